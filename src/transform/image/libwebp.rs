//! Lossy WebP with libwebp: the encoder, and a second opinion about files. `no_libwebp.rs` has the same interface, for builds
//! without the feature `webp`.

use super::container::unsupported;
use super::pixels::Pixels;
use crate::sample::Reject;

/// Returns whether libwebp decodes the still lossy image `file`. The decoder of the `image` crate reads on after the data of
/// a partition has ended.
///
/// # Errors
///
/// None; without libwebp, every such image is rejected.
pub(super) fn decodes(file: &[u8]) -> Result<bool, Reject> {
    Ok(webp::Decoder::new(file).decode().is_some())
}

/// Encodes `pixels` as lossy WebP of `quality`, from 1 to 100.
pub(super) fn encode(pixels: &Pixels, quality: u8) -> Result<Vec<u8>, Reject> {
    // libwebp does not support gray images.
    let widened: Vec<u8>;
    let encoder = match pixels.channels {
        1 => {
            widened = pixels.data.iter().flat_map(|v| [*v; 3]).collect();
            webp::Encoder::from_rgb(&widened, pixels.width, pixels.height)
        }
        3 => webp::Encoder::from_rgb(&pixels.data, pixels.width, pixels.height),
        _ => webp::Encoder::from_rgba(&pixels.data, pixels.width, pixels.height),
    };
    match encoder.encode_simple(false, f32::from(quality)) {
        Ok(memory) => Ok(memory.to_vec()),
        Err(error) => Err(unsupported(format!("libwebp cannot encode it: {error:?}"))),
    }
}
