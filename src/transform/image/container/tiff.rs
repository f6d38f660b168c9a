//! TIFF: the decoder reads the directories.

use std::io::Cursor;

use image::ImageDecoder;
use image::codecs::tiff::TiffDecoder;

use super::super::exif::Orientation;
use super::{Structure, size};
use crate::decode::other::reject;
use crate::sample::Reject;

/// Reads the size and orientation of the first image of the TIFF file `bytes`.
pub(in crate::transform::image) fn walk(bytes: &[u8]) -> Result<Structure, Reject> {
    let mut decoder = TiffDecoder::new(Cursor::new(bytes)).map_err(reject)?;
    let (width, height) = decoder.dimensions();
    let mut structure = Structure::of_size(size(width, height)?);
    structure.orientation = match decoder.orientation() {
        Ok(orientation) => Orientation::from_tag(u16::from(orientation.to_exif())).unwrap_or_default(),
        Err(_) => Orientation::Upright,
    };
    Ok(structure)
}
