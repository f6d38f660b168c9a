//! Selects the decoder for uncommon JPEGs.

use dsconvert_dataset::sample::Reject;
use dsconvert_jpeg::{JpegLayout, Process};

use super::unsupported;

/// The decoder for a JPEG that `FastDecoder` declines. The pixels do not depend on the choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JpegEngine {
    /// [`JpegLayout::decode`].
    Layout,
    /// libjpeg-turbo-rs.
    Turbo,
}

impl JpegEngine {
    /// Returns the decoder for `layout`. libjpeg-turbo-rs decodes one and three components with the usual sampling
    /// factors, each in its own scan or all in one, and arithmetic-coded, lossless and 12-bit files whose components have
    /// equal factors.
    ///
    /// # Errors
    ///
    /// When neither decoder supports it.
    pub fn of(layout: &JpegLayout<'_>) -> Result<Self, Reject> {
        let factors: Vec<(usize, usize)> =
            layout.components().iter().map(|component| component.sampling_factors()).collect();
        let is_usual = match factors[..] {
            [_] => true,
            [luma, (1, 1), (1, 1)] => matches!(luma, (1 | 2, 1 | 2)),
            _ => false,
        };
        let is_usual = is_usual && !layout.has_partial_scans();
        let is_read_by_layout =
            layout.precision() == 8 && !layout.is_arithmetic() && layout.process() != Process::Lossless;
        match (is_usual, is_read_by_layout) {
            (true, _) => Ok(Self::Turbo),
            (false, true) => Ok(Self::Layout),
            (false, false) if layout.has_partial_scans() => Err(unsupported(
                "a lossless, arithmetic-coded or 12-bit JPEG with some of its components in one scan is not supported",
            )),
            (false, false) if factors.iter().all(|of_one| *of_one == factors[0]) => Ok(Self::Turbo),
            (false, false) => Err(unsupported(format!(
                "a lossless, arithmetic-coded or 12-bit JPEG with the sampling factors {} is not supported",
                layout.sampling_text()
            ))),
        }
    }
}
