//! TIFF: the decoder reads the directories.

use std::io::Cursor;

use image::ImageDecoder;
use image::codecs::tiff::TiffDecoder;

use super::super::exif::Orientation;
use super::{Structure, size, unsupported};
use crate::decode::TiffTags;
use crate::decode::other::reject;
use crate::sample::Reject;

/// Reads the size and orientation of the first image of the TIFF file `bytes`.
pub(in crate::transform::image) fn walk(bytes: &[u8]) -> Result<Structure, Reject> {
    let mut decoder = TiffDecoder::new(Cursor::new(bytes)).map_err(reject)?;
    // The decoder panics.
    if TiffTags::read(bytes).is_some_and(|tags| tags.has_separate_padded_tiles()) {
        return Err(unsupported(
            "a TIFF with separate tiles for each channel is supported only if its sides are multiples of those of a tile",
        ));
    }
    let (width, height) = decoder.dimensions();
    let mut structure = Structure::of_size(size(width, height)?);
    structure.orientation = match decoder.orientation() {
        Ok(orientation) => Orientation::from_tag(u16::from(orientation.to_exif())).unwrap_or_default(),
        Err(_) => Orientation::Upright,
    };
    Ok(structure)
}
