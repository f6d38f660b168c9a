//! Parser of the delta encodings of Parquet, to determine what a decoder will allocate.
//!
//! Pages of `DELTA_BINARY_PACKED`, `DELTA_LENGTH_BYTE_ARRAY` and `DELTA_BYTE_ARRAY` start with the number of values,
//! and the `parquet` crate allocates for all of them before it reads any. In `DELTA_BYTE_ARRAY`, each value repeats a
//! prefix of the previous value, so a few bytes may expand to gigabytes.

use ::parquet::basic::Encoding;

/// Codes of the encodings in page headers.
const BINARY_PACKED: i64 = 5;
const LENGTH_BYTE_ARRAY: i64 = 6;
const BYTE_ARRAY: i64 = 7;
/// All delta encodings.
pub(super) const ALL: [i64; 3] = [BINARY_PACKED, LENGTH_BYTE_ARRAY, BYTE_ARRAY];
/// Maximum number of values per block; writers produce blocks of 128 to a few thousand.
const MAX_BLOCK_VALUES: u64 = 1 << 24;

/// Returns the code of `encoding`, if it is one of [`ALL`].
pub(super) fn code(encoding: Encoding) -> Option<i64> {
    match encoding {
        Encoding::DELTA_BINARY_PACKED => Some(BINARY_PACKED),
        Encoding::DELTA_LENGTH_BYTE_ARRAY => Some(LENGTH_BYTE_ARRAY),
        Encoding::DELTA_BYTE_ARRAY => Some(BYTE_ARRAY),
        _ => None,
    }
}

/// The reason why a page cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BadDelta {
    /// The bytes violate the encoding.
    Damaged,
    /// The values have at least this many bytes, which exceeds the limit.
    TooLarge(u64),
}

/// Checks the values of a page with a delta encoding, in `bytes`, before a decoder allocates memory for them. There may be
/// at most `max_values` values with a total of `max_bytes` bytes. Pages with other encodings pass, because their decoders
/// allocate nothing in advance.
pub(super) fn check(encoding: i64, bytes: &[u8], max_values: u64, max_bytes: u64) -> Result<(), BadDelta> {
    let ints = |bytes| DeltaInts::new(bytes).filter(|ints| ints.left <= max_values).ok_or(BadDelta::Damaged);
    match encoding {
        BINARY_PACKED => ints(bytes).map(drop),
        LENGTH_BYTE_ARRAY => {
            let mut lengths = ints(bytes)?;
            let mut total = 0;
            while let Some(length) = lengths.next_length()? {
                total += length;
            }
            (total <= lengths.bytes.len() as u64).then_some(()).ok_or(BadDelta::Damaged)
        }
        BYTE_ARRAY => {
            let mut prefixes = ints(bytes)?;
            // The suffixes start where the prefixes end, which is only known after reading all prefixes.
            let mut suffixes = ints(prefixes.clone().end()?)?;
            let left = suffixes.clone().end()?.len() as u64;
            if prefixes.left != suffixes.left {
                return Err(BadDelta::Damaged);
            }
            let (mut last, mut stored, mut total) = (0, 0, 0u64);
            while let (Some(prefix), Some(suffix)) = (prefixes.next_length()?, suffixes.next_length()?) {
                stored += suffix;
                if prefix > last || stored > left {
                    return Err(BadDelta::Damaged);
                }
                last = prefix + suffix;
                total = total.saturating_add(last);
                if total > max_bytes {
                    return Err(BadDelta::TooLarge(total));
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The 32-bit integers of a `DELTA_BINARY_PACKED` run.
#[derive(Clone)]
struct DeltaInts<'a> {
    bytes: &'a [u8],
    /// Values per miniblock, and miniblocks per block.
    mini_values: u64,
    minis: usize,
    /// Values still to be read.
    left: u64,
    /// The first value, until it is read.
    first: Option<i64>,
    /// The previous value.
    last: i32,
    min_delta: i32,
    /// Bit widths of the miniblocks of the block that are still to be read.
    widths: &'a [u8],
    /// The current miniblock: its bytes, its bit width, and the ordinal of the next value in it.
    mini: &'a [u8],
    width: u64,
    at: u64,
}

impl<'a> DeltaInts<'a> {
    /// Reads the header.
    fn new(mut bytes: &'a [u8]) -> Option<Self> {
        let block = varint(&mut bytes)?;
        let minis = varint(&mut bytes)?;
        let left = varint(&mut bytes)?;
        let first = zigzag(varint(&mut bytes)?);
        let mini_values = block.checked_div(minis)?;
        let is_allowed = (1..=MAX_BLOCK_VALUES).contains(&block)
            && block.is_multiple_of(minis)
            && mini_values.is_multiple_of(32);
        is_allowed.then_some(())?;
        Some(Self {
            bytes,
            mini_values,
            minis: usize::try_from(minis).ok()?,
            left,
            first: Some(first),
            last: 0,
            min_delta: 0,
            widths: &[],
            mini: &[],
            width: 0,
            at: mini_values,
        })
    }

    /// Returns the next value; `None` at the end.
    fn next(&mut self) -> Result<Option<i32>, BadDelta> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        if let Some(first) = self.first.take() {
            self.last = i32::try_from(first).map_err(|_| BadDelta::Damaged)?;
        } else {
            if self.at == self.mini_values {
                self.start_mini().ok_or(BadDelta::Damaged)?;
            }
            let delta = bits(self.mini, self.at * self.width, self.width);
            self.at += 1;
            self.last = self.last.wrapping_add(self.min_delta).wrapping_add(delta.cast_signed());
        }
        Ok(Some(self.last))
    }

    /// Returns the next value as a length.
    fn next_length(&mut self) -> Result<Option<u64>, BadDelta> {
        let value = self.next()?;
        value.map(|value| u64::try_from(value).map_err(|_| BadDelta::Damaged)).transpose()
    }

    /// Advances to the next miniblock, in the next block if necessary.
    fn start_mini(&mut self) -> Option<()> {
        if self.widths.is_empty() {
            self.min_delta = i32::try_from(zigzag(varint(&mut self.bytes)?)).ok()?;
            self.widths = self.bytes.split_off(..self.minis)?;
        }
        let (&width, widths) = self.widths.split_first()?;
        let bytes = u64::from(width).checked_mul(self.mini_values / 8)?;
        (width <= 32).then_some(())?;
        self.mini = self.bytes.split_off(..usize::try_from(bytes).ok()?)?;
        (self.widths, self.width, self.at) = (widths, width.into(), 0);
        Some(())
    }

    /// Reads all values and returns the bytes after them. The last miniblock is stored whole; unused miniblocks after
    /// it are not stored.
    fn end(mut self) -> Result<&'a [u8], BadDelta> {
        while self.next()?.is_some() {}
        Ok(self.bytes)
    }
}

/// Returns `width` bits of `bytes` starting at the bit `from`, lowest bit first.
fn bits(bytes: &[u8], from: u64, width: u64) -> u32 {
    let mut word = 0;
    for (i, &byte) in bytes.iter().skip((from / 8) as usize).take(5).enumerate() {
        word |= u64::from(byte) << (8 * i);
    }
    (word >> (from % 8) & ((1 << width) - 1)) as u32
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.split_off_first()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn zigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use ::parquet::data_type::{ByteArray, ByteArrayType, Int32Type};
    use ::parquet::file::properties::WriterProperties;
    use ::parquet::file::writer::SerializedFileWriter;
    use ::parquet::schema::parser::parse_message_type;
    use proptest::prelude::*;
    use std::sync::Arc;

    use super::super::values_of_pages;
    use super::*;

    fn written(
        schema: &str,
        encoding: Encoding,
        write: impl FnOnce(&mut SerializedFileWriter<Vec<u8>>),
    ) -> Vec<u8> {
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let properties = WriterProperties::builder().set_dictionary_enabled(false).set_encoding(encoding);
        let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties.build())).unwrap();
        write(&mut writer);
        writer.into_inner().unwrap()
    }

    /// Returns the values of the only page of a file of `texts`.
    fn page(encoding: Encoding, texts: &[Vec<u8>]) -> Vec<u8> {
        let values: Vec<ByteArray> = texts.iter().map(|text| ByteArray::from(text.clone())).collect();
        let file = written("message m { required binary t; }", encoding, |writer| {
            let mut group = writer.next_row_group().unwrap();
            let mut column = group.next_column().unwrap().unwrap();
            column.typed::<ByteArrayType>().write_batch(&values, None, None).unwrap();
            column.close().unwrap();
            group.close().unwrap();
        });
        values_of_pages(file).remove(0).to_vec()
    }

    proptest! {
        #[test]
        fn integers_match_those_that_the_library_wrote(values in prop::collection::vec(any::<i32>(), 1..400), small: bool) {
            let values: Vec<i32> = values.iter().map(|v| if small { v % 5 } else { *v }).collect();
            let file = written("message m { required int32 n; }", Encoding::DELTA_BINARY_PACKED, |writer| {
                let mut group = writer.next_row_group().unwrap();
                let mut column = group.next_column().unwrap().unwrap();
                column.typed::<Int32Type>().write_batch(&values, None, None).unwrap();
                column.close().unwrap();
                group.close().unwrap();
            });
            let page = values_of_pages(file).remove(0);
            let mut ints = DeltaInts::new(&page).unwrap();
            let mut found = Vec::new();
            while let Some(value) = ints.next().unwrap() {
                found.push(value);
            }
            prop_assert_eq!(found, values);
        }

        #[test]
        fn pages_that_the_library_wrote_are_accepted_up_to_their_size(
            texts in prop::collection::vec(prop::collection::vec(0u8..3, 0..12), 1..300)
        ) {
            let (values, bytes) = (texts.len() as u64, texts.iter().map(Vec::len).sum::<usize>() as u64);
            let lengths = page(Encoding::DELTA_LENGTH_BYTE_ARRAY, &texts);
            prop_assert_eq!(check(LENGTH_BYTE_ARRAY, &lengths, values, bytes), Ok(()));
            prop_assert_eq!(check(LENGTH_BYTE_ARRAY, &lengths, values - 1, bytes), Err(BadDelta::Damaged));
            let prefixes = page(Encoding::DELTA_BYTE_ARRAY, &texts);
            prop_assert_eq!(check(BYTE_ARRAY, &prefixes, values, bytes), Ok(()));
            prop_assert_eq!(check(BYTE_ARRAY, &prefixes, values - 1, bytes), Err(BadDelta::Damaged));
            if bytes > 0 {
                prop_assert_eq!(check(BYTE_ARRAY, &prefixes, values, bytes - 1), Err(BadDelta::TooLarge(bytes)));
            }
        }

        #[test]
        fn arbitrary_bytes_cause_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), encoding in 4i64..9) {
            let _ = check(encoding, &bytes, 1000, 1 << 20);
        }
    }
}
