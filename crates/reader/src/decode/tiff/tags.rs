//! The directories of a TIFF file, and their tags (TIFF 6.0 and BigTIFF).

/// Size of the values of an entry, in bytes, by its type (TIFF 6.0, and BigTIFF from 16 on); 0 for unknown types.
const TYPE_BYTES: [u8; 19] = [0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8, 8, 8];
const BYTE: u16 = 1;
const SHORT: u16 = 3;
const LONG: u16 = 4;
const RATIONAL: u16 = 5;
const IFD: u16 = 13;
const LONG8: u16 = 16;
const IFD8: u16 = 18;

pub(super) const NEW_SUBFILE_TYPE: u16 = 254;
pub(super) const SUBFILE_TYPE: u16 = 255;
pub(super) const IMAGE_WIDTH: u16 = 256;
pub(super) const IMAGE_LENGTH: u16 = 257;
pub(super) const BITS_PER_SAMPLE: u16 = 258;
pub(super) const COMPRESSION: u16 = 259;
pub(super) const PHOTOMETRIC: u16 = 262;
pub(super) const FILL_ORDER: u16 = 266;
pub(super) const STRIP_OFFSETS: u16 = 273;
pub(super) const ORIENTATION: u16 = 274;
pub(super) const SAMPLES_PER_PIXEL: u16 = 277;
pub(super) const ROWS_PER_STRIP: u16 = 278;
pub(super) const STRIP_BYTE_COUNTS: u16 = 279;
pub(super) const PLANAR_CONFIGURATION: u16 = 284;
pub(super) const T4_OPTIONS: u16 = 292;
pub(super) const PREDICTOR: u16 = 317;
pub(super) const COLOR_MAP: u16 = 320;
pub(super) const TILE_WIDTH: u16 = 322;
pub(super) const TILE_LENGTH: u16 = 323;
pub(super) const TILE_OFFSETS: u16 = 324;
pub(super) const TILE_BYTE_COUNTS: u16 = 325;
pub(super) const SUB_DIRECTORIES: u16 = 330;
pub(super) const EXTRA_SAMPLES: u16 = 338;
pub(super) const SAMPLE_FORMAT: u16 = 339;
pub(super) const JPEG_TABLES: u16 = 347;
pub(super) const JPEG_INTERCHANGE_FORMAT: u16 = 513;
pub(super) const JPEG_Q_TABLES: u16 = 519;
pub(super) const JPEG_DC_TABLES: u16 = 520;
pub(super) const JPEG_AC_TABLES: u16 = 521;
pub(super) const YCBCR_COEFFICIENTS: u16 = 529;
pub(super) const YCBCR_SUBSAMPLING: u16 = 530;
pub(super) const REFERENCE_BLACK_WHITE: u16 = 532;
pub(super) const XMP: u16 = 700;
pub(super) const ICC_PROFILE: u16 = 34_675;
pub(super) const DNG_VERSION: u16 = 50_706;

/// The tags that determine pixels.
const PIXEL_TAGS: [u16; 26] = [
    IMAGE_WIDTH,
    IMAGE_LENGTH,
    BITS_PER_SAMPLE,
    COMPRESSION,
    PHOTOMETRIC,
    FILL_ORDER,
    STRIP_OFFSETS,
    ORIENTATION,
    SAMPLES_PER_PIXEL,
    ROWS_PER_STRIP,
    STRIP_BYTE_COUNTS,
    PLANAR_CONFIGURATION,
    T4_OPTIONS,
    PREDICTOR,
    COLOR_MAP,
    TILE_WIDTH,
    TILE_LENGTH,
    TILE_OFFSETS,
    TILE_BYTE_COUNTS,
    EXTRA_SAMPLES,
    SAMPLE_FORMAT,
    JPEG_TABLES,
    JPEG_INTERCHANGE_FORMAT,
    YCBCR_COEFFICIENTS,
    YCBCR_SUBSAMPLING,
    REFERENCE_BLACK_WHITE,
];

/// One directory of a TIFF file. Values are borrowed from the file, so their sizes are bounded by its size.
#[derive(Debug, Clone, Copy)]
pub(super) struct TiffTags<'a> {
    bytes: &'a [u8],
    is_little_endian: bool,
    is_big_tiff: bool,
    /// Position of the first entry.
    first_entry: usize,
    count: u64,
}

impl<'a> TiffTags<'a> {
    /// Reads the first directory of the TIFF file `bytes`.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let (is_little_endian, is_big_tiff) = match bytes.get(..4)? {
            b"II*\0" => (true, false),
            b"MM\0*" => (false, false),
            b"II+\0" => (true, true),
            b"MM\0+" => (false, true),
            _ => return None,
        };
        let tags = Self { bytes, is_little_endian, is_big_tiff, first_entry: 0, count: 0 };
        let (pointer, word) = if is_big_tiff { (8, 8) } else { (4, 4) };
        tags.at(tags.number(pointer, word)?)
    }

    /// Reads the directory at `position` of the same file.
    pub(super) fn at(&self, position: u64) -> Option<Self> {
        let sizes = if self.is_big_tiff { 8 } else { 2 };
        let directory = usize::try_from(position).ok()?;
        let count = self.number(directory, sizes)?;
        let tags = Self { count, first_entry: directory.checked_add(sizes)?, ..*self };
        // The whole directory is in the file, with the position of the next one.
        tags.next().map(|_| tags)
    }

    /// Returns the position of the next directory, which is 0 after the last one.
    pub(super) fn next(&self) -> Option<u64> {
        let (entry_bytes, word) = if self.is_big_tiff { (20, 8) } else { (12, 4) };
        let entries = usize::try_from(self.count.checked_mul(entry_bytes)?).ok()?;
        self.number(self.first_entry.checked_add(entries)?, word)
    }

    /// Returns whether the values of all tags that determine pixels are in the file. A missing value must not be taken for
    /// a missing tag.
    pub(super) fn has_all_values(&self) -> bool {
        self.entries().all(|(tag, _, value)| !PIXEL_TAGS.contains(&tag) || value.is_some())
    }

    /// Returns the position of the first entry, which identifies the directory.
    pub(super) fn first_entry(&self) -> usize {
        self.first_entry
    }

    pub(super) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    pub(super) fn is_little_endian(&self) -> bool {
        self.is_little_endian
    }

    /// Returns the bytes of a tag of bytes; `None` if they are missing or empty.
    pub(super) fn data(&self, tag: u16) -> Option<&'a [u8]> {
        let (kind, data) = self.value(tag)?;
        (TYPE_BYTES[usize::from(kind)] == 1 && !data.is_empty()).then_some(data)
    }

    /// Returns the first number of a tag of whole numbers.
    pub(super) fn first(&self, tag: u16) -> Option<u64> {
        self.numbers(tag).next()
    }

    /// Returns all numbers of a tag of whole numbers.
    pub(super) fn numbers(&self, tag: u16) -> impl Iterator<Item = u64> {
        let (kind, data) = self.value(tag).unwrap_or((LONG, &[]));
        let size = match kind {
            BYTE | SHORT | LONG | IFD | LONG8 | IFD8 => usize::from(TYPE_BYTES[usize::from(kind)]),
            // Never a whole chunk.
            _ => data.len() + 1,
        };
        data.chunks_exact(size).map(|number| self.whole(number))
    }

    /// Returns all numbers of a tag of fractions or whole numbers. A fraction with the denominator 0 is not finite.
    pub(super) fn fractions(&self, tag: u16) -> Vec<f64> {
        match self.value(tag) {
            Some((RATIONAL, data)) => data
                .chunks_exact(8)
                .map(|pair| self.whole(&pair[..4]) as f64 / self.whole(&pair[4..]) as f64)
                .collect(),
            _ => self.numbers(tag).map(|number| number as f64).collect(),
        }
    }

    /// Returns the type and the bytes of a tag.
    fn value(&self, tag: u16) -> Option<(u16, &'a [u8])> {
        let (_, kind, value) = self.entries().find(|(found, ..)| *found == tag)?;
        Some((kind, value?))
    }

    /// Returns the number, the type and the value of each tag; no value if its type is unknown or it is not in the file.
    fn entries(&self) -> impl Iterator<Item = (u16, u16, Option<&'a [u8]>)> {
        let (entry_bytes, word) = if self.is_big_tiff { (20, 8) } else { (12, 4) };
        (0..self.count).map_while(move |entry| {
            let at = self.first_entry.checked_add(usize::try_from(entry.checked_mul(entry_bytes)?).ok()?)?;
            let tag = u16::try_from(self.number(at, 2)?).ok()?;
            let kind = u16::try_from(self.number(at + 2, 2)?).ok()?;
            Some((tag, kind, self.entry_value(at, kind, word)))
        })
    }

    /// Returns the value of the entry at `at`, of the type `kind`.
    fn entry_value(&self, at: usize, kind: u16, word: usize) -> Option<&'a [u8]> {
        let count = self.number(at + 4, word)?;
        let length = count.checked_mul((*TYPE_BYTES.get(usize::from(kind))?).into())?;
        let length = usize::try_from(length).ok()?;
        let inline = at + 4 + word;
        let start = if length <= word { inline } else { usize::try_from(self.number(inline, word)?).ok()? };
        self.bytes.get(start..start.checked_add(length)?)
    }

    /// Reads a number of `length` bytes.
    fn number(&self, at: usize, length: usize) -> Option<u64> {
        Some(self.whole(self.bytes.get(at..at.checked_add(length)?)?))
    }

    fn whole(&self, bytes: &[u8]) -> u64 {
        let add = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        if self.is_little_endian { bytes.iter().rev().fold(0, add) } else { bytes.iter().fold(0, add) }
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
            let bytes_of = |value: u32, length: usize| {
                let bytes = value.to_le_bytes();
                if little {
                    bytes[..length].to_vec()
                } else {
                    bytes[..length].iter().rev().copied().collect()
                }
            };
            let profile: Vec<u8> = (0..200).collect();
            let bytes = file(
                little,
                big,
                &[
                    (IMAGE_WIDTH, SHORT, &bytes_of(300, 2)),
                    (IMAGE_LENGTH, LONG, &bytes_of(70_000, 4)),
                    (BITS_PER_SAMPLE, SHORT, &bytes_of(8, 2).repeat(7)),
                    (REFERENCE_BLACK_WHITE, RATIONAL, &[bytes_of(5, 4), bytes_of(2, 4)].concat().repeat(2)),
                    (ICC_PROFILE, 7, &profile),
                ],
            );
            let tags = TiffTags::read(&bytes).unwrap();
            assert_eq!(tags.first(IMAGE_WIDTH), Some(300));
            assert_eq!(tags.first(IMAGE_LENGTH), Some(70_000));
            assert_eq!(tags.numbers(BITS_PER_SAMPLE).collect::<Vec<_>>(), [8; 7]);
            assert_eq!(tags.fractions(REFERENCE_BLACK_WHITE), [2.5; 2]);
            assert_eq!(tags.data(ICC_PROFILE), Some(&profile[..]));
            assert_eq!((tags.first(ICC_PROFILE), tags.data(IMAGE_WIDTH)), (None, None));
            assert_eq!((tags.first(PREDICTOR), tags.data(COLOR_MAP)), (None, None));
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
                for tag in [IMAGE_WIDTH, STRIP_OFFSETS, ICC_PROFILE] {
                    let _ = (tags.first(tag), tags.numbers(tag).count(), tags.data(tag), tags.fractions(tag));
                }
            }
        }
    }
}
