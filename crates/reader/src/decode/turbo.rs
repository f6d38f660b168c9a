//! Decodes JPEG with libjpeg-turbo-rs, strictly unless lenient decoding is requested.

use dsconvert_dataset::sample::{Reject, RejectCode};
use dsconvert_jpeg::MAX_SCANS;
use libjpeg_turbo_rs::{DecodeLimits, Decoder, JpegError, ScalingFactor};

use super::{corrupt, unsupported};

/// Creates a decoder for `bytes`, with at most `max_pixels`, at 1/`reduction` of the size. Unless it is `lenient`,
/// warnings are errors.
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

/// Converts an error of the decoder into a reject. A file without an end-of-image marker counts as truncated, whatever
/// else is wrong.
pub fn reject(error: JpegError, has_end_marker: bool) -> Reject {
    match error {
        JpegError::LimitExceeded { .. } | JpegError::AllocationFailed { .. } => {
            Reject::new(RejectCode::TooLarge, error.to_string())
        }
        JpegError::Unsupported(_) => unsupported(error.to_string()),
        _ if !has_end_marker => {
            Reject::new(RejectCode::Truncated, format!("the JPEG has no end-of-image marker: {error}"))
        }
        JpegError::UnexpectedEof => corrupt("the entropy-coded data ends too early"),
        other => corrupt(other.to_string()),
    }
}
