//! Scans.

/// A Huffman table as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HuffmanSpec<'a> {
    /// Number of codes of each length from 1 to 16.
    pub(crate) counts: &'a [u8; 16],
    pub(crate) symbols: &'a [u8],
}

/// A component in a scan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScanComponent<'a> {
    /// Index in the frame.
    pub(crate) index: usize,
    /// The tables that the scan needs.
    pub(crate) dc: Option<HuffmanSpec<'a>>,
    pub(crate) ac: Option<HuffmanSpec<'a>>,
}

/// One scan.
#[derive(Debug, Clone)]
pub(crate) struct Scan<'a> {
    pub(crate) components: Vec<ScanComponent<'a>>,
    /// First and last coefficient, in zigzag order.
    pub(crate) spectral: (usize, usize),
    /// Successive approximation: the previous and the new number of missing low bits.
    pub(crate) approximation: (u8, u8),
    /// Restart interval: MCUs between restart markers; 0 without restarts.
    pub(crate) restart: usize,
    /// Entropy-coded segments with byte stuffing and restart markers.
    pub(crate) data: &'a [u8],
}
