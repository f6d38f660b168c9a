//! Types of the frame header: coding process, color model and components.

/// The coding process of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Process {
    /// DCT coefficients, each coded completely in one scan: baseline and extended sequential.
    Sequential,
    /// DCT coefficients, coded over several scans.
    Progressive,
    /// Predicted samples, without a DCT.
    Lossless,
}

/// Color model of the components.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColorModel {
    /// One component.
    Gray,
    /// Luma and two chroma components.
    YCbCr,
    /// Red, green and blue.
    Rgb,
    /// Cyan, magenta, yellow and black.
    Cmyk,
    /// CMYK whose first three components are stored as YCbCr.
    Ycck,
}

/// One component of the frame.
#[derive(Debug, Clone)]
pub struct Component {
    pub(crate) id: u8,
    pub(crate) horizontal: usize,
    pub(crate) vertical: usize,
    pub(super) quant_slot: usize,
    /// The quantization table that is defined when the first scan of the component starts, in zigzag order.
    pub(crate) quant: Option<[u16; 64]>,
    /// Whether a scan with its DC coefficients was read.
    pub(super) has_dc: bool,
    /// Number of low bits still missing, per coefficient; `None` before its first scan.
    pub(super) missing_bits: [Option<u8>; 64],
}

impl Component {
    /// Returns the horizontal and vertical sampling factors, 1 to 4. Both are 1 for a single component, whose factors
    /// have no meaning.
    pub fn sampling_factors(&self) -> (usize, usize) {
        (self.horizontal, self.vertical)
    }
}
