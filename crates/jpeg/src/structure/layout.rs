//! The structure of a file.

use super::component::{ColorModel, Component, Process};
use super::scan::Scan;
use crate::error::Error;

/// The structure of a JPEG file: its frame header and scans, with the tables that each scan uses.
///
/// ```no_run
/// use dsconvert_jpeg::{Layout, Process};
///
/// let bytes = std::fs::read("photo.jpg")?;
/// let layout = Layout::read_strict(&bytes)?;
/// println!("{} × {}, progressive: {}", layout.width(), layout.height(), layout.process() == Process::Progressive);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Layout<'a> {
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

impl Layout<'_> {
    /// Width in pixels.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Height in pixels.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Bits per sample: 8, except in files of medicine and science.
    pub fn precision(&self) -> u8 {
        self.precision
    }

    /// The coding process.
    pub fn process(&self) -> Process {
        self.process
    }

    /// Whether entropy coding is arithmetic instead of Huffman.
    pub fn is_arithmetic(&self) -> bool {
        self.is_arithmetic
    }

    /// What the components mean, by libjpeg's rules.
    pub fn color_model(&self) -> ColorModel {
        self.color
    }

    /// Whether the file has an Adobe marker. CMYK samples are then stored inverted: 0 is full ink.
    pub fn has_adobe_marker(&self) -> bool {
        self.has_adobe
    }

    /// The components: 1, 3 or 4.
    pub fn components(&self) -> &[Component] {
        &self.components
    }

    /// The number of scans.
    pub fn scan_count(&self) -> usize {
        self.scans.len()
    }

    /// What is wrong after the first scan header; `None` for files that follow the format.
    pub fn damage(&self) -> Option<&Error> {
        self.damage.as_ref()
    }

    /// The sampling factors of all components as text, such as `2x2,1x1,1x1`.
    pub fn sampling_text(&self) -> String {
        let texts: Vec<String> =
            self.components.iter().map(|c| format!("{}x{}", c.horizontal, c.vertical)).collect();
        texts.join(",")
    }

    /// Largest sampling factors.
    pub(crate) fn max_factors(&self) -> (usize, usize) {
        let max = |of: fn(&Component) -> usize| self.components.iter().map(of).max().unwrap_or(1);
        (max(|c| c.horizontal), max(|c| c.vertical))
    }

    /// Whether the scans hold every bit of every coefficient.
    pub(crate) fn is_complete(&self) -> bool {
        self.process != Process::Progressive
            || self.components.iter().all(|c| c.missing_bits.iter().all(|bits| *bits == Some(0)))
    }
}
