//! TIFF: the decoder reads the directory.

use super::super::exif::Orientation;
use super::super::xmp;
use super::{Structure, size};
use crate::decode::TiffFile;
use crate::sample::Reject;

/// Reads the size and orientation of the first image of the TIFF file `bytes`.
pub(in crate::transform::image) fn walk(bytes: &[u8]) -> Result<Structure, Reject> {
    let file = TiffFile::read(bytes)?;
    let mut structure = Structure::of_size(size(file.size().width, file.size().height)?);
    structure.orientation = match file.orientation() {
        Some(tag) => Orientation::from_tag(tag).unwrap_or_default(),
        None => file.xmp_packet().and_then(xmp::orientation).unwrap_or_default(),
    };
    structure.decoder_bytes = file.working_bytes();
    Ok(structure)
}
