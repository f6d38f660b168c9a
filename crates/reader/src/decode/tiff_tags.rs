//! Reads tags of TIFF files that the decoder of the `image` crate does not report, or not always.

use std::ops::Range;

/// Size of the samples of an entry, in bytes, by its type (TIFF 6.0, and BigTIFF from 16 on); 0 for unknown types.
const TYPE_BYTES: [u8; 19] = [0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8, 8, 8];
const SHORT: u16 = 3;
const LONG: u16 = 4;
const LONG8: u16 = 16;

const IMAGE_WIDTH: u16 = 256;
const IMAGE_LENGTH: u16 = 257;
const COMPRESSION: u16 = 259;
const FILL_ORDER: u16 = 266;
const STRIP_OFFSETS: u16 = 273;
const STRIP_BYTE_COUNTS: u16 = 279;
const SAMPLES_PER_PIXEL: u16 = 277;
const PLANAR_CONFIGURATION: u16 = 284;
const TILE_WIDTH: u16 = 322;
const TILE_LENGTH: u16 = 323;
const TILE_OFFSETS: u16 = 324;
const TILE_BYTE_COUNTS: u16 = 325;
const EXTRA_SAMPLES: u16 = 338;
const ICC_PROFILE: u16 = 34_675;

const SEPARATE_PLANES: u32 = 2;
const ASSOCIATED_ALPHA: u32 = 1;
const LOW_BITS_FIRST: u32 = 2;
/// Compressions whose data has the fill order of the file: none, those of fax, LZW, deflate (two numbers) and PackBits.
/// As in libtiff, that of others, such as JPEG, does not depend on it.
const FILLED_COMPRESSIONS: [u32; 8] = [1, 2, 3, 4, 5, 8, 32_773, 32_946];

/// The first directory of a TIFF file. Values are borrowed from the file, so their sizes are bounded by its size.
#[derive(Debug, Clone, Copy)]
pub struct TiffTags<'a> {
    bytes: &'a [u8],
    is_little_endian: bool,
    is_big_tiff: bool,
    /// Position of the first entry.
    entries: usize,
    count: u64,
}

impl<'a> TiffTags<'a> {
    /// Reads the first directory of the TIFF file `bytes`.
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let (is_little_endian, is_big_tiff) = match bytes.get(..4)? {
            b"II*\0" => (true, false),
            b"MM\0*" => (false, false),
            b"II+\0" => (true, true),
            b"MM\0+" => (false, true),
            _ => return None,
        };
        let mut tags = Self { bytes, is_little_endian, is_big_tiff, entries: 0, count: 0 };
        let (pointer, sizes) = if is_big_tiff { (8, 8) } else { (4, 2) };
        let directory = usize::try_from(tags.number(pointer, if is_big_tiff { 8 } else { 4 })?).ok()?;
        tags.count = tags.number(directory, sizes)?;
        tags.entries = directory.checked_add(sizes)?;
        Some(tags)
    }

    /// Returns whether several channels are stored in separate planes of tiles that reach beyond the image.
    pub fn has_separate_padded_tiles(&self) -> bool {
        let is_padded = |side: u16, tile: u16| match (self.first(side), self.first(tile)) {
            (Some(side), Some(tile)) => tile > 0 && !side.is_multiple_of(tile),
            _ => false,
        };
        self.first(PLANAR_CONFIGURATION) == Some(SEPARATE_PLANES)
            && self.first(SAMPLES_PER_PIXEL).is_some_and(|samples| samples > 1)
            && (is_padded(IMAGE_WIDTH, TILE_WIDTH) || is_padded(IMAGE_LENGTH, TILE_LENGTH))
    }

    /// Returns whether the colors are multiplied by alpha.
    pub fn has_associated_alpha(&self) -> bool {
        self.first(EXTRA_SAMPLES) == Some(ASSOCIATED_ALPHA)
    }

    /// Returns where the pixels are stored, if the first pixel of each byte is in its lowest bits (TIFF 6.0,
    /// `FillOrder`); otherwise, nothing. The ranges are in the file and do not overlap.
    pub fn reversed_data(&self) -> Vec<Range<usize>> {
        let is_filled = FILLED_COMPRESSIONS.contains(&self.first(COMPRESSION).unwrap_or(1));
        if self.first(FILL_ORDER) != Some(LOW_BITS_FIRST) || !is_filled {
            return Vec::new();
        }
        let parts = [(STRIP_OFFSETS, STRIP_BYTE_COUNTS), (TILE_OFFSETS, TILE_BYTE_COUNTS)];
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for (offsets, counts) in parts {
            let range = |(start, count): (u64, u64)| {
                let (start, count) = (usize::try_from(start).ok()?, usize::try_from(count).ok()?);
                let range = start..start.checked_add(count)?.min(self.bytes.len());
                (!range.is_empty()).then_some(range)
            };
            ranges.extend(self.numbers(offsets).zip(self.numbers(counts)).filter_map(range));
        }
        ranges.sort_unstable_by_key(|range| range.start);
        let mut end = 0;
        for range in &mut ranges {
            range.start = range.start.max(end).min(range.end);
            end = range.end.max(end);
        }
        ranges
    }

    /// Returns the embedded color profile.
    pub fn icc_profile(&self) -> Option<&'a [u8]> {
        let (kind, data) = self.value(ICC_PROFILE)?;
        (TYPE_BYTES[usize::from(kind)] == 1 && !data.is_empty()).then_some(data)
    }

    /// Returns the first number of a tag of whole numbers.
    fn first(&self, tag: u16) -> Option<u32> {
        let (kind, data) = self.value(tag)?;
        match kind {
            SHORT => self.whole(data.get(..2)?),
            LONG => self.whole(data.get(..4)?),
            _ => None,
        }
        .and_then(|number| u32::try_from(number).ok())
    }

    /// Returns all numbers of a tag of whole numbers.
    fn numbers(&self, tag: u16) -> impl Iterator<Item = u64> {
        let (kind, data) = self.value(tag).unwrap_or((LONG, &[]));
        let size = match kind {
            SHORT | LONG | LONG8 => usize::from(TYPE_BYTES[usize::from(kind)]),
            // Never a whole chunk.
            _ => data.len() + 1,
        };
        data.chunks_exact(size).filter_map(|number| self.whole(number))
    }

    /// Returns the type and the bytes of a tag.
    fn value(&self, tag: u16) -> Option<(u16, &'a [u8])> {
        let (entry_bytes, word) = if self.is_big_tiff { (20, 8) } else { (12, 4) };
        for entry in 0..self.count {
            let at = self.entries.checked_add(usize::try_from(entry.checked_mul(entry_bytes)?).ok()?)?;
            if self.number(at, 2)? != u64::from(tag) {
                continue;
            }
            let kind = u16::try_from(self.number(at + 2, 2)?).ok()?;
            let count = self.number(at + 4, word)?;
            let length = count.checked_mul((*TYPE_BYTES.get(usize::from(kind))?).into())?;
            let length = usize::try_from(length).ok()?;
            let inline = at + 4 + word;
            let start =
                if length <= word { inline } else { usize::try_from(self.number(inline, word)?).ok()? };
            return Some((kind, self.bytes.get(start..start.checked_add(length)?)?));
        }
        None
    }

    /// Reads a number of `length` bytes.
    fn number(&self, at: usize, length: usize) -> Option<u64> {
        self.whole(self.bytes.get(at..at.checked_add(length)?)?)
    }

    fn whole(&self, bytes: &[u8]) -> Option<u64> {
        let add = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        Some(if self.is_little_endian { bytes.iter().rev().fold(0, add) } else { bytes.iter().fold(0, add) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Creates a file that consists of one directory, with values after it.
    fn file(is_little: bool, is_big: bool, tags: &[(u16, u16, &[u8])]) -> Vec<u8> {
        let number = |value: u64, length: usize| {
            let mut bytes = value.to_le_bytes()[..length].to_vec();
            if !is_little {
                bytes.reverse();
            }
            bytes
        };
        let (word, sizes) = if is_big { (8, 8) } else { (4, 2) };
        let mut out = if is_little { b"II".to_vec() } else { b"MM".to_vec() };
        out.extend(number(if is_big { 43 } else { 42 }, 2));
        if is_big {
            out.extend([number(8, 2), number(0, 2)].concat());
        }
        out.extend(number(if is_big { 16 } else { 8 }, word));
        out.extend(number(tags.len() as u64, sizes));
        let mut values = out.len() + tags.len() * (4 + 2 * word) + word;
        let mut data = vec![0; word];
        for (tag, kind, value) in tags {
            let count = value.len() / usize::from(TYPE_BYTES[usize::from(*kind)]);
            out.extend(
                [number((*tag).into(), 2), number((*kind).into(), 2), number(count as u64, word)].concat(),
            );
            if value.len() <= word {
                out.extend([value, &vec![0; word - value.len()][..]].concat());
            } else {
                out.extend(number(values as u64, word));
                values += value.len();
                data.extend(*value);
            }
        }
        out.extend(data);
        out
    }

    #[test]
    fn tags_are_read_in_every_form_of_the_container() {
        for (little, big) in [(true, false), (false, false), (true, true), (false, true)] {
            let one = if little { [1, 0] } else { [0, 1] };
            let two = if little { [2, 0] } else { [0, 2] };
            let profile: Vec<u8> = (0..200).collect();
            let bytes = file(
                little,
                big,
                &[
                    (256, SHORT, &one),
                    (277, SHORT, &two),
                    (284, SHORT, &two),
                    (322, SHORT, &two),
                    (338, SHORT, &one),
                    (34_675, 7, &profile),
                ],
            );
            let tags = TiffTags::read(&bytes).unwrap();
            assert!(tags.has_separate_padded_tiles() && tags.has_associated_alpha());
            assert_eq!(tags.icc_profile(), Some(&profile[..]));
            let bytes = file(
                little,
                big,
                &[
                    (256, SHORT, &two),
                    (277, SHORT, &two),
                    (284, SHORT, &two),
                    (322, SHORT, &two),
                    (338, SHORT, &two),
                ],
            );
            let tags = TiffTags::read(&bytes).unwrap();
            assert!(!tags.has_separate_padded_tiles() && !tags.has_associated_alpha());
            assert_eq!(tags.icc_profile(), None);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_safe(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            start in prop::sample::select(vec![&b"II*\0\x08\0\0\0"[..], b"MM\0+\0\x08\0\0", b""]),
        ) {
            let bytes = [start, &bytes].concat();
            if let Some(tags) = TiffTags::read(&bytes) {
                let _ = (tags.has_separate_padded_tiles(), tags.has_associated_alpha(), tags.icc_profile());
                let data = tags.reversed_data();
                prop_assert!(data.iter().all(|range| range.start <= range.end && range.end <= bytes.len()));
                prop_assert!(data.is_sorted_by(|a, b| a.end <= b.start));
            }
        }
    }
}
