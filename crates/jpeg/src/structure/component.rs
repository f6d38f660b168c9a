//! The frame's vocabulary: coding process, color model and components.

/// How samples are coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Process {
    /// DCT coefficients, each complete in one scan: baseline and extended sequential.
    Sequential,
    /// DCT coefficients in several scans.
    Progressive,
    /// Predicted samples without DCT.
    Lossless,
}

/// What the components of a file mean.
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
    pub(super) id: u8,
    pub(crate) horizontal: usize,
    pub(crate) vertical: usize,
    pub(super) quant_slot: usize,
    /// The quantization table in force when the first scan of the component starts, in zigzag order.
    pub(crate) quant: Option<[u16; 64]>,
    /// Whether a scan has its DC coefficients.
    pub(super) has_dc: bool,
    /// Low bits that are still missing per coefficient; `None` before its first scan.
    pub(super) missing_bits: [Option<u8>; 64],
}

impl Component {
    /// Horizontal and vertical sampling factor, 1 to 4. 1 and 1 for a single component, whose factors have no meaning.
    pub fn sampling_factors(&self) -> (usize, usize) {
        (self.horizontal, self.vertical)
    }
}
