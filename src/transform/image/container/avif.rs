//! AVIF: an ISOBMFF container, whose structure `dsconvert-avif` reads.

use super::super::orientation::Orientation;
use super::{Structure, size};
use crate::decode::avif;
use crate::sample::Reject;

/// Reads the structure of the AVIF file `bytes`, and checks that the data of its first frame is complete.
pub(in crate::transform::image) fn walk(bytes: &[u8]) -> Result<Structure, Reject> {
    let header = avif::header(bytes)?;
    let mut structure = Structure::of_size(size(header.size.width, header.size.height)?);
    structure.orientation = Orientation::from_tag(header.orientation).unwrap_or_default();
    structure.animated = header.frames > 1;
    structure.lacks_data = avif::check_data(bytes).err();
    Ok(structure)
}
