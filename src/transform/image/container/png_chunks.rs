//! The chunks of PNG files.

use super::u32_be;

/// The eight bytes at the start of every PNG file.
pub(in crate::transform::image) const SIGNATURE: &[u8; 8] = b"\x89PNG\r\n\x1a\n";

/// One chunk of a PNG file.
#[derive(Debug, Clone, Copy)]
pub(in crate::transform::image) struct PngChunk<'a> {
    pub(in crate::transform::image) kind: [u8; 4],
    pub(in crate::transform::image) data: &'a [u8],
    /// Length, type, data and CRC as stored in the file.
    pub(in crate::transform::image) whole: &'a [u8],
}

impl PngChunk<'_> {
    /// Returns whether the image cannot be shown without the chunk: the first letter of its type is uppercase.
    pub(in crate::transform::image) fn is_critical(&self) -> bool {
        self.kind[0].is_ascii_uppercase()
    }

    pub(super) fn crc_is_valid(&self) -> bool {
        u32_be(self.whole, self.whole.len() - 4)
            == Some(crc32fast::hash(&self.whole[4..self.whole.len() - 4]))
    }
}

/// Returns the chunks of a PNG file, up to its end or the first truncated chunk.
pub(in crate::transform::image) fn chunks(bytes: &[u8]) -> impl Iterator<Item = PngChunk<'_>> {
    let mut rest = bytes.get(SIGNATURE.len()..).unwrap_or_default();
    std::iter::from_fn(move || {
        let length = usize::try_from(u32_be(rest, 0)?).ok()?;
        let (whole, after) = rest.split_at_checked(length.checked_add(12)?)?;
        rest = after;
        let kind = *whole.get(4..)?.first_chunk()?;
        Some(PngChunk { kind, data: &whole[8..8 + length], whole })
    })
}
