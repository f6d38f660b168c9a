//! Scan headers and the data of scans.

/// A Huffman table as stored in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HuffmanSpec<'a> {
    /// Number of codes of each length from 1 to 16.
    pub(crate) counts: &'a [u8; 16],
    pub(crate) symbols: &'a [u8],
}

/// A component of a scan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScanComponent<'a> {
    /// Index of the component in the frame.
    pub(crate) index: usize,
    /// Slots of the DC and AC tables.
    pub(crate) slots: (usize, usize),
    /// The Huffman tables that the scan needs; `None` for others.
    pub(crate) dc: Option<HuffmanSpec<'a>>,
    pub(crate) ac: Option<HuffmanSpec<'a>>,
}

/// One scan.
#[derive(Debug, Clone)]
pub(crate) struct Scan<'a> {
    pub(crate) components: Vec<ScanComponent<'a>>,
    /// Spectral selection: the first and last coefficient, in zigzag order.
    pub(crate) spectral: (usize, usize),
    /// Successive approximation: the number of missing low bits before and after the scan.
    pub(crate) approximation: (u8, u8),
    /// Restart interval: MCUs between restart markers, or 0 without restarts.
    pub(crate) restart: usize,
    /// Entropy-coded segments, including byte stuffing and restart markers.
    pub(crate) data: &'a [u8],
}
