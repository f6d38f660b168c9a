//! Decoding of JPEG through libjpeg-turbo-rs, strict unless it is asked to be lenient.

use dsconvert_dataset::sample::{Reject, RejectCode};
use dsconvert_jpeg::MAX_SCANS;
use libjpeg_turbo_rs::{DecodeLimits, Decoder, JpegError, ScalingFactor};

use super::reject::{corrupt, unsupported};

/// A decoder over `bytes` of at most `max_pixels`, at 1/`reduction` of the size. Unless it is `lenient`, a warning is an
/// error.
pub fn decoder(
    bytes: &[u8],
    max_pixels: u64,
    lenient: bool,
    reduction: u32,
) -> Result<Decoder<'_>, JpegError> {
    let limits = DecodeLimits {
        max_width: usize::from(u16::MAX),
        max_height: usize::from(u16::MAX),
        max_pixels,
        max_scans: MAX_SCANS,
        max_memory: None,
    };
    let mut decoder = Decoder::new_with_limits(bytes, limits)?;
    decoder.set_scale(ScalingFactor::try_new(1, reduction)?);
    decoder.set_lenient(lenient);
    decoder.set_stop_on_warning(!lenient);
    Ok(decoder)
}

/// The reject an error of the decoder stands for. Without its end marker a file is cut, whatever else is wrong.
pub fn reject(error: JpegError, is_ended: bool) -> Reject {
    match error {
        JpegError::LimitExceeded { .. } | JpegError::AllocationFailed { .. } => {
            Reject::new(RejectCode::TooLarge, error.to_string())
        }
        JpegError::Unsupported(_) => unsupported(error.to_string()),
        _ if !is_ended => Reject::new(RejectCode::Truncated, format!("the JPEG has no end: {error}")),
        JpegError::UnexpectedEof => corrupt("the entropy-coded data ends too early"),
        other => corrupt(other.to_string()),
    }
}
