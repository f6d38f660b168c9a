//! Removes defects that lose no pixel from a file, so that the rest of the transform only sees clean files.
//!
//! The structure walks report such defects. Those inside ancillary chunks of a PNG are only found by its decoder: a file
//! that it refuses is decoded again without them.

use bytes::Bytes;

use super::container::{bmp, gif, jpeg, qoi};
use super::outcome::Tolerated;
use super::source::CheckedImage;
use super::strip;
use crate::decode::ImageType;

/// Returns the file of `source` without the defect that its structure walk reports, and the defect; `None` if there is
/// none.
pub(super) fn clean(source: &CheckedImage<'_>) -> Option<(Bytes, Tolerated)> {
    let bytes = source.bytes;
    let defect = source.structure.tolerated?;
    let file = match defect {
        Tolerated::StrayBytes => return Some((strip::without_stray_bytes(source)?, defect)),
        Tolerated::ScanParameters => {
            let mut file = bytes.to_vec();
            let parameters = jpeg::scan_parameters(bytes, source.jpeg.as_ref()?.first_scan)?;
            file.get_mut(parameters)?.copy_from_slice(&jpeg::SEQUENTIAL);
            file
        }
        Tolerated::PngChunks => {
            strip::with_chunks(bytes, |chunk| !chunk.is_ancillary() || chunk.crc_is_valid())
        }
        Tolerated::GifEnd => gif::first_frame(bytes)?,
        Tolerated::BmpHeader => bmp::with_one_plane(bytes)?,
        Tolerated::QoiEnd => qoi::with_end(bytes)?,
    };
    Some((file.into(), defect))
}

/// Returns the file `bytes`, whose decoder found damage, without the chunks that it may have found it in although no pixel
/// depends on them; `None` if there are none. Only PNG has such chunks.
pub(super) fn without_suspects(bytes: &[u8], image_type: ImageType) -> Option<(Bytes, Tolerated)> {
    const KEPT: [&[u8; 4]; 6] = [b"iCCP", b"sRGB", b"eXIf", b"tEXt", b"zTXt", b"iTXt"];
    if image_type != ImageType::Png {
        return None;
    }
    let file = strip::with_chunks(bytes, |chunk| !chunk.is_ancillary() || KEPT.contains(&&chunk.kind));
    (file.len() < bytes.len()).then(|| (file.into(), Tolerated::PngChunks))
}
