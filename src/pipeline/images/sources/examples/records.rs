//! The records of a TFRecord file, and the `tf.train.Example` in each.
//!
//! ```text
//! record = u64 length, u32 masked CRC-32C of these 8 bytes, data, u32 masked CRC-32C of the data (little-endian)
//! data   = Example { features = 1: Features { feature = 1: map<string, Feature> } }
//! Feature = bytes_list = 1 | float_list = 2 | int64_list = 3, each with values = 1
//! ```
//!
//! A whole file may be compressed with gzip.

use bytes::{Buf, Bytes};

use crate::error::Result;
use crate::foreign::masked_crc32c;
use crate::sample::{Reject, RejectCode};
use crate::source::io::broken::Broken;
use crate::source::io::compression::Compression;
use crate::source::io::planned::PlannedFile;
use crate::source::io::stream::Stream;

/// Bytes before and after the data of a record.
const HEADER_BYTES: usize = 12;
const FOOTER_BYTES: usize = 4;
/// Maximum size of a record, in bytes.
const MAX_RECORD_BYTES: u64 = 256 << 20;
/// Bytes that are allocated at a time for a record, because its length may be wrong.
const PIECE_BYTES: usize = 1 << 20;

/// The next part of a file.
pub(super) enum NextRecord {
    Data(Bytes),
    /// A damaged record, or the rest of a file that cannot be read any further.
    Damaged(Reject),
}

/// Reader of the records of a file, in order.
pub(super) struct Records {
    stream: Stream,
    /// Number of the next record.
    number: u64,
    ended: bool,
}

impl Records {
    /// Opens a file, which is decompressed if it starts like a gzip file.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read.
    pub(super) fn open(planned: &PlannedFile) -> Result<Self> {
        let start = planned.start(HEADER_BYTES as u64)?;
        let is_gzip = length_in(&start).is_none() && Compression::sniff(&start) == Some(Compression::Gzip);
        let stream = Stream::open(planned, is_gzip.then_some(Compression::Gzip))?;
        Ok(Self { stream, number: 0, ended: false })
    }

    /// Returns whether the file starts like a record.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read.
    pub(super) fn starts_with_record(&mut self) -> Result<bool> {
        Ok(length_in(self.stream.peek(HEADER_BYTES)?).is_some())
    }

    /// Returns the number of bytes of the file that were read, before decompression.
    pub(super) fn raw_bytes(&self) -> u64 {
        self.stream.raw_bytes()
    }

    /// Returns the next record and its number, counted from 0; `None` at the end.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, or has changed since it was planned.
    pub(super) fn read(&mut self) -> Result<Option<(u64, NextRecord)>> {
        if self.ended {
            return Ok(None);
        }
        let number = self.number;
        self.number += 1;
        let found = match self.record() {
            Ok(None) => {
                self.ended = true;
                self.stream.check_unchanged()?;
                return Ok(None);
            }
            Ok(Some(found)) => found,
            Err(Broken::Failed(error)) => return Err(error),
            Err(Broken::Damaged(reject)) => {
                // Apparent damage may also be a file that is still being written.
                self.stream.check_unchanged()?;
                self.ended = true;
                NextRecord::Damaged(reject)
            }
        };
        Ok(Some((number, found)))
    }

    fn record(&mut self) -> Result<Option<NextRecord>, Broken> {
        let offset = self.stream.position();
        let at = || format!("the record at byte {offset}");
        let mut header = [0; HEADER_BYTES];
        match self.stream.fill(&mut header)? {
            0 => return Ok(None),
            HEADER_BYTES => {}
            _ => return Err(damaged(RejectCode::Truncated, format!("{} is cut off in its length", at()))),
        }
        let Some(length) = length_in(&header) else {
            let is_zlib =
                offset == 0 && header[0] == 0x78 && u16::from_be_bytes([header[0], header[1]]) % 31 == 0;
            if is_zlib {
                let what = "the file is compressed with ZLIB; write it with GZIP or without compression";
                return Err(damaged(RejectCode::Unsupported, what.to_owned()));
            }
            let what =
                format!("the checksum of the length of {} is wrong, so nothing after it can be read", at());
            return Err(damaged(RejectCode::Corrupt, what));
        };
        if length > MAX_RECORD_BYTES {
            let what = format!("{} has {length} bytes, more than the limit of {MAX_RECORD_BYTES}", at());
            self.skip(length)?;
            return Ok(Some(NextRecord::Damaged(Reject::new(RejectCode::TooLarge, what))));
        }
        let mut data = Vec::new();
        let length = length as usize;
        while data.len() < length + FOOTER_BYTES {
            let start = data.len();
            data.resize((start + PIECE_BYTES).min(length + FOOTER_BYTES), 0);
            let wanted = data.len() - start;
            if self.stream.fill(&mut data[start..])? < wanted {
                return Err(damaged(RejectCode::Truncated, format!("{} is cut off", at())));
            }
        }
        let stored = (&data[length..]).get_u32_le();
        data.truncate(length);
        if masked_crc32c(&data) != stored {
            let what = format!("the checksum of {} is wrong", at());
            return Ok(Some(NextRecord::Damaged(Reject::new(RejectCode::Corrupt, what))));
        }
        Ok(Some(NextRecord::Data(data.into())))
    }

    /// Skips the data of a record that is too large, and its checksum.
    fn skip(&mut self, length: u64) -> Result<(), Broken> {
        let mut left = length.saturating_add(FOOTER_BYTES as u64);
        let mut buffer = vec![0; PIECE_BYTES];
        while left > 0 {
            let wanted = left.min(PIECE_BYTES as u64) as usize;
            if self.stream.fill(&mut buffer[..wanted])? < wanted {
                return Err(damaged(RejectCode::Truncated, "the last record is cut off".to_owned()));
            }
            left -= wanted as u64;
        }
        Ok(())
    }
}

fn damaged(code: RejectCode, message: String) -> Broken {
    Broken::Damaged(Reject::new(code, message))
}

/// Returns the length at the start of a record; `None` if its checksum is wrong.
fn length_in(header: &[u8]) -> Option<u64> {
    let (length, mut stored) = header.get(..HEADER_BYTES)?.split_at(8);
    (masked_crc32c(length) == stored.get_u32_le()).then(|| (&length[..]).get_u64_le())
}

/// The values of a feature.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Feature {
    Bytes(Vec<Bytes>),
    Floats(Vec<f32>),
    Ints(Vec<i64>),
}

impl Feature {
    /// Returns the number of values.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Bytes(values) => values.len(),
            Self::Floats(values) => values.len(),
            Self::Ints(values) => values.len(),
        }
    }
}

/// The features of an example, in the order in which they are stored. Those without values are left out.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Example(Vec<(String, Feature)>);

impl Example {
    /// Parses an example. As in Protocol Buffers, unknown fields are skipped, and the last of several values counts.
    ///
    /// # Errors
    ///
    /// Returns a reject if the bytes are no such message.
    pub(super) fn parse(data: Bytes) -> Result<Self, Reject> {
        let mut example = Self::default();
        let is_sound = fields(data, &mut |field, value| match (field, value) {
            (1, WireValue::Bytes(features)) => fields(features, &mut |field, value| match (field, value) {
                (1, WireValue::Bytes(entry)) => example.add(entry),
                _ => Some(()),
            }),
            _ => Some(()),
        });
        let invalid = || Reject::new(RejectCode::Corrupt, "the record is not a tf.train.Example");
        is_sound.ok_or_else(invalid).map(|()| example)
    }

    /// Adds an entry of the map of features.
    fn add(&mut self, entry: Bytes) -> Option<()> {
        let (mut name, mut feature) = (String::new(), None);
        fields(entry, &mut |field, value| {
            match (field, value) {
                (1, WireValue::Bytes(key)) => name = String::from_utf8(key.to_vec()).ok()?,
                (2, WireValue::Bytes(value)) => feature = parse_feature(value)?,
                _ => {}
            }
            Some(())
        })?;
        self.0.retain(|(known, _)| *known != name);
        self.0.extend(feature.filter(|feature| feature.len() > 0).map(|feature| (name, feature)));
        Some(())
    }

    /// Returns the values of a feature; `None` if there are none.
    pub(super) fn get(&self, name: &str) -> Option<&Feature> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, feature)| feature)
    }

    /// Returns the features with their names.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Feature)> {
        self.0.iter().map(|(name, feature)| (name.as_str(), feature))
    }
}

/// Parses a feature. `Some(None)` if it has no list.
fn parse_feature(data: Bytes) -> Option<Option<Feature>> {
    let mut feature = None;
    fields(data, &mut |field, value| {
        let WireValue::Bytes(list) = value else { return Some(()) };
        match field {
            1 => {
                let mut values = Vec::new();
                fields(list, &mut |field, value| {
                    if let (1, WireValue::Bytes(value)) = (field, value) {
                        values.push(value);
                    }
                    Some(())
                })?;
                feature = Some(Feature::Bytes(values));
            }
            2 => {
                let mut values = Vec::new();
                fields(list, &mut |field, value| {
                    match (field, value) {
                        (1, WireValue::Fixed32(bits)) => values.push(f32::from_bits(bits)),
                        (1, WireValue::Bytes(mut packed)) => {
                            if packed.len() % 4 != 0 {
                                return None;
                            }
                            while packed.has_remaining() {
                                values.push(packed.get_f32_le());
                            }
                        }
                        _ => {}
                    }
                    Some(())
                })?;
                feature = Some(Feature::Floats(values));
            }
            3 => {
                let mut values = Vec::new();
                fields(list, &mut |field, value| {
                    match (field, value) {
                        (1, WireValue::Varint(number)) => values.push(number as i64),
                        (1, WireValue::Bytes(mut packed)) => {
                            while packed.has_remaining() {
                                values.push(varint(&mut packed)? as i64);
                            }
                        }
                        _ => {}
                    }
                    Some(())
                })?;
                feature = Some(Feature::Ints(values));
            }
            _ => {}
        }
        Some(())
    })?;
    Some(feature)
}

/// The value of a field of a message of Protocol Buffers.
enum WireValue {
    Varint(u64),
    Fixed32(u32),
    Fixed64,
    Bytes(Bytes),
}

/// Calls `each` with the number and value of every field of a message. `None` if the message is damaged, or `each` says so.
fn fields(mut message: Bytes, each: &mut dyn FnMut(u64, WireValue) -> Option<()>) -> Option<()> {
    while message.has_remaining() {
        let tag = varint(&mut message)?;
        let value = match tag & 7 {
            0 => WireValue::Varint(varint(&mut message)?),
            1 => {
                (message.remaining() >= 8).then(|| message.advance(8))?;
                WireValue::Fixed64
            }
            2 => {
                let length = usize::try_from(varint(&mut message)?).ok()?;
                WireValue::Bytes((length <= message.len()).then(|| message.split_to(length))?)
            }
            5 => WireValue::Fixed32((message.remaining() >= 4).then(|| message.get_u32_le())?),
            _ => return None,
        };
        each(tag >> 3, value)?;
    }
    Some(())
}

fn varint(bytes: &mut Bytes) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = bytes.has_remaining().then(|| bytes.get_u8())?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn constants_are_those_of_the_format() {
        // The first record of a file that TensorFlow has written: 3 bytes of data.
        let length = [3, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(masked_crc32c(&length).to_le_bytes(), [0xb0, 0x99, 0x49, 0x0e]);
        assert_eq!(masked_crc32c(b"abc").to_le_bytes(), [0x6e, 0x57, 0xf1, 0x21]);
    }

    #[test]
    fn lists_are_packed_or_not() {
        let example = |list: &[u8]| {
            let feature = [&[list[0], list.len() as u8 - 1][..], &list[1..]].concat();
            let entry = [&[0x0a, 1, b'a', 0x12, feature.len() as u8][..], &feature].concat();
            let map = [&[0x0a, entry.len() as u8][..], &entry].concat();
            let data = [&[0x0a, map.len() as u8][..], &map].concat();
            Example::parse(data.into())
        };
        let of = |list: &[u8]| example(list).unwrap().get("a").cloned();
        assert_eq!(of(&[0x1a, 0x0a, 3, 1, 0xac, 2]), Some(Feature::Ints(vec![1, 300])));
        assert_eq!(of(&[0x1a, 0x08, 1, 0x08, 0xac, 2]), Some(Feature::Ints(vec![1, 300])));
        assert_eq!(of(&[0x12, 0x0a, 4, 0, 0, 0x80, 0x3f]), Some(Feature::Floats(vec![1.0])));
        assert_eq!(of(&[0x12, 0x0d, 0, 0, 0x80, 0x3f]), Some(Feature::Floats(vec![1.0])));
        assert_eq!(of(&[0x0a, 0x0a, 1, b'x', 0x0a, 0]), Some(Feature::Bytes(vec!["x".into(), "".into()])));
        assert_eq!(of(&[0x0a]), None, "a list without values");
        for damaged in [&[0x12, 0x0a, 3, 0, 0, 0x80][..], &[0x1a, 0x0a, 1, 0x80], &[0x0a, 0x0a, 9]] {
            assert!(example(damaged).is_err(), "{damaged:?}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Example::parse(bytes.into());
        }
    }
}
