//! PNM (PBM, PGM, PPM) and PAM: a header of text, then samples as bytes or text. The decoder reads the header.

use std::io::Cursor;

use image::ImageDecoder;
use image::codecs::pnm::{PnmDecoder, PnmSubtype, SampleEncoding};

use super::{Structure, corrupt, size, truncated, unsupported};
use crate::decode::other::reject;
use crate::sample::Reject;

/// Reads the size of the first image of the file `bytes`, and checks that its samples are complete.
pub(in crate::transform::image) fn walk(bytes: &[u8]) -> Result<Structure, Reject> {
    let decoder = PnmDecoder::new(Cursor::new(bytes)).map_err(reject)?;
    let (width, height) = decoder.dimensions();
    let structure = Structure::of_size(size(width, height)?);
    let color_type = decoder.color_type();
    let sample_bytes = u64::from(color_type.bytes_per_pixel() / color_type.channel_count());
    if let Some(header) = decoder.header().as_arbitrary() {
        if header.depth != u32::from(color_type.channel_count()) {
            return Err(corrupt(format!("the header declares {} channels", header.depth)));
        }
        // The decoder would read samples of one byte.
        if header.maxval > 0xff && sample_bytes == 1 {
            return Err(unsupported("a PAM without TUPLTYPE is supported only with 8 bits per sample"));
        }
    }
    let pixels = structure.size.pixels();
    let samples = pixels.saturating_mul(color_type.channel_count().into());
    let needed = match decoder.subtype() {
        PnmSubtype::Bitmap(SampleEncoding::Binary) => {
            u64::from(width.div_ceil(8)).saturating_mul(height.into())
        }
        PnmSubtype::Bitmap(SampleEncoding::Ascii) => pixels,
        // A digit and a separator each.
        PnmSubtype::Graymap(SampleEncoding::Ascii) | PnmSubtype::Pixmap(SampleEncoding::Ascii) => {
            samples.saturating_mul(2).saturating_sub(1)
        }
        _ => samples.saturating_mul(sample_bytes),
    };
    let start = decoder.into_inner().0.position();
    if (bytes.len() as u64).saturating_sub(start) < needed {
        return Err(truncated("its samples"));
    }
    Ok(structure)
}
