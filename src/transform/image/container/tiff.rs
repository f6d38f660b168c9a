//! TIFF: the decoder reads the directory.

use super::super::orientation::Orientation;
use super::super::xmp;
use super::{Structure, check_decoded_bytes, cut_off, size, truncated};
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
    structure.hides_image = !file.is_first();
    structure.further_pages = file.further_pages();
    structure.further_channels = file.further_channels();
    structure.decoder_bytes = file.working_bytes();
    let (decoded, stored, ratio) = file.data_bytes();
    let checked = check_decoded_bytes(decoded, stored, ratio.unwrap_or(u64::MAX));
    if file.is_cut_off() {
        structure.lacks_data = checked.map_err(cut_off).err();
        structure.note(truncated("its pixels"));
    } else {
        checked?;
    }
    Ok(structure)
}
