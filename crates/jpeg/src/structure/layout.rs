//! The public description of a JPEG file's structure.

use super::component::{ColorModel, Component, Process};
use super::scan::Scan;
use crate::error::{Error, ErrorKind};

/// The structure of a JPEG file: its frame header and scans, with the tables that each scan uses.
///
/// ```no_run
/// use dsconvert_jpeg::{JpegLayout, Process};
///
/// let bytes = std::fs::read("photo.jpg")?;
/// let layout = JpegLayout::read_strict(&bytes)?;
/// println!("{} × {}, progressive: {}", layout.width(), layout.height(), layout.process() == Process::Progressive);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct JpegLayout<'a> {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) precision: u8,
    pub(crate) process: Process,
    pub(crate) is_arithmetic: bool,
    pub(crate) color: ColorModel,
    pub(crate) has_adobe: bool,
    pub(crate) components: Vec<Component>,
    pub(crate) scans: Vec<Scan<'a>>,
    pub(crate) damage: Option<Error>,
}

impl JpegLayout<'_> {
    /// Returns the width in pixels.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the height in pixels.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Returns the bits per sample: 8, except in some medical and scientific files.
    pub fn precision(&self) -> u8 {
        self.precision
    }

    /// Returns the coding process.
    pub fn process(&self) -> Process {
        self.process
    }

    /// Returns whether the entropy coding is arithmetic instead of Huffman.
    pub fn is_arithmetic(&self) -> bool {
        self.is_arithmetic
    }

    /// Returns the color model of the components, by libjpeg's rules.
    pub fn color_model(&self) -> ColorModel {
        self.color
    }

    /// Returns whether the file has an Adobe marker. If so, CMYK samples are stored inverted: 0 is full ink.
    pub fn has_adobe_marker(&self) -> bool {
        self.has_adobe
    }

    /// Returns the components: 1, 3 or 4.
    pub fn components(&self) -> &[Component] {
        &self.components
    }

    /// Returns the number of scans.
    pub fn scan_count(&self) -> usize {
        self.scans.len()
    }

    /// Returns whether a scan has several components, but not all. Few encoders write such files, and some decoders do not
    /// support them.
    pub fn has_partial_scans(&self) -> bool {
        self.scans.iter().any(|scan| (2..self.components.len()).contains(&scan.components.len()))
    }

    /// Returns the damage found after the first scan header; `None` for files that follow the format.
    pub fn damage(&self) -> Option<&Error> {
        self.damage.as_ref()
    }

    /// Returns the sampling factors of all components as text, such as `2x2,1x1,1x1`.
    pub fn sampling_text(&self) -> String {
        let texts: Vec<String> =
            self.components.iter().map(|c| format!("{}x{}", c.horizontal, c.vertical)).collect();
        texts.join(",")
    }

    /// Returns the largest horizontal and vertical sampling factors.
    pub(crate) fn max_factors(&self) -> (usize, usize) {
        let max = |of: fn(&Component) -> usize| self.components.iter().map(of).max().unwrap_or(1);
        (max(|c| c.horizontal), max(|c| c.vertical))
    }

    /// Returns the number of MCUs per row, and of rows, in scans with several components.
    pub(crate) fn mcus(&self) -> (usize, usize) {
        let (max_h, max_v) = self.max_factors();
        (self.width.div_ceil(8 * max_h), self.height.div_ceil(8 * max_v))
    }

    /// Returns the columns and rows of blocks of a component that have pixels of the image. Other blocks only complete
    /// MCUs.
    pub(crate) fn blocks_with_pixels(&self, component: &Component) -> (usize, usize) {
        let (max_h, max_v) = self.max_factors();
        let columns = (self.width * component.horizontal).div_ceil(8 * max_h);
        (columns, (self.height * component.vertical).div_ceil(8 * max_v))
    }

    /// Returns the number of blocks per MCU, of all components.
    pub(crate) fn blocks_per_mcu(&self) -> usize {
        self.components.iter().map(|component| component.horizontal * component.vertical).sum()
    }

    /// Fails if the file `bytes` is too small for the blocks of the image, each of which takes at least one bit. This
    /// keeps a header alone from deciding how much memory is allocated.
    pub(crate) fn check_file_size(&self, bytes: &[u8]) -> Result<(), Error> {
        let (columns, rows) = self.mcus();
        check_file_size(columns * rows * self.blocks_per_mcu(), bytes)
    }

    /// Returns whether the scans contain every bit of every coefficient.
    pub(crate) fn is_complete(&self) -> bool {
        self.process != Process::Progressive
            || self.components.iter().all(|c| c.missing_bits.iter().all(|bits| *bits == Some(0)))
    }
}

/// Fails if the file `bytes` cannot hold `blocks` blocks.
pub(crate) fn check_file_size(blocks: usize, bytes: &[u8]) -> Result<(), Error> {
    if blocks / 8 > bytes.len() {
        let message = format!("a file of {} bytes cannot hold the {blocks} blocks of its image", bytes.len());
        return Err(Error::new(ErrorKind::Truncated, message));
    }
    Ok(())
}
