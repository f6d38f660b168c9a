//! Bytes of a converted record in a temporary file, which only the same process reads.

use bytes::{Buf, BufMut, Bytes};

use crate::sample::{ArrayValue, Ids, Record, Text, Value};
use crate::schema::IdWidth;
use crate::writer::outcome::ConvertedRecord;

const NULL: u8 = 0;
const BOOL: u8 = 1;
const INT: u8 = 2;
const UINT: u8 = 3;
const FLOAT: u8 = 4;
const TEXT: u8 = 5;
const BYTES: u8 = 6;
const IDS_U16: u8 = 7;
const IDS_U32: u8 = 8;
const ARRAY: u8 = 9;
const TEXTS: u8 = 10;

/// Appends the bytes of `converted` to `out`.
pub(super) fn encode(converted: &ConvertedRecord, out: &mut Vec<u8>) {
    let ConvertedRecord {
        split,
        record,
        length,
        // The same as in the record.
        canonical_bytes: _,
        crc32c,
        key_hash,
        continues,
    } = converted;
    out.put_u16_le(*split);
    out.put_u64_le(*length);
    out.put_u32_le(*crc32c);
    out.put_u8(u8::from(key_hash.is_some()));
    out.put_u128_le(key_hash.unwrap_or_default());
    out.put_u8(u8::from(*continues));
    for value in &record.values {
        let counted = |tag: u8, bytes: &[u8], out: &mut Vec<u8>| {
            out.put_u8(tag);
            out.put_u64_le(bytes.len() as u64);
            out.put_slice(bytes);
        };
        let scalar = |tag: u8, bits: u64, out: &mut Vec<u8>| {
            out.put_u8(tag);
            out.put_u64_le(bits);
        };
        match value {
            Value::Null => out.put_u8(NULL),
            Value::Bool(b) => scalar(BOOL, u64::from(*b), out),
            Value::Int(i) => scalar(INT, i.cast_unsigned(), out),
            Value::UInt(u) => scalar(UINT, *u, out),
            Value::Float(x) => scalar(FLOAT, x.to_bits(), out),
            Value::Text(text) => counted(TEXT, text.as_bytes(), out),
            Value::Bytes(bytes) => counted(BYTES, bytes, out),
            Value::Ids(ids) => match ids.width() {
                IdWidth::U16 => counted(IDS_U16, ids.as_bytes(), out),
                IdWidth::U32 => counted(IDS_U32, ids.as_bytes(), out),
            },
            Value::Texts(texts) => {
                let bytes = texts.iter().map(|text| 8 + text.as_bytes().len()).sum::<usize>();
                scalar(TEXTS, bytes as u64, out);
                for text in texts {
                    out.put_u64_le(text.as_bytes().len() as u64);
                    out.put_slice(text.as_bytes());
                }
            }
            Value::Array(array) => {
                let sizes = array.shape();
                scalar(ARRAY, (1 + size_of_val(sizes) + array.as_bytes().len()) as u64, out);
                out.put_u8(sizes.len() as u8);
                sizes.iter().for_each(|&size| out.put_u32_le(size));
                out.put_slice(array.as_bytes());
            }
        }
    }
}

/// Reads what [`encode`] wrote; `None` for other bytes, which the checksum of the record detects.
pub(super) fn decode(mut bytes: Bytes) -> Option<ConvertedRecord> {
    let split = bytes.try_get_u16_le().ok()?;
    let length = bytes.try_get_u64_le().ok()?;
    let crc32c = bytes.try_get_u32_le().ok()?;
    let has_hash = bytes.try_get_u8().ok()? != 0;
    let key_hash = Some(bytes.try_get_u128_le().ok()?).filter(|_| has_hash);
    let continues = bytes.try_get_u8().ok()? != 0;
    let mut values = Vec::new();
    while bytes.has_remaining() {
        let tag = bytes.try_get_u8().ok()?;
        if tag == NULL {
            values.push(Value::Null);
            continue;
        }
        let bits = bytes.try_get_u64_le().ok()?;
        let mut content = || {
            let length = usize::try_from(bits).ok().filter(|&length| length <= bytes.len())?;
            Some(bytes.split_to(length))
        };
        values.push(match tag {
            BOOL => Value::Bool(bits != 0),
            INT => Value::Int(bits.cast_signed()),
            UINT => Value::UInt(bits),
            FLOAT => Value::Float(f64::from_bits(bits)),
            TEXT => Value::Text(Text::new(content()?).ok()?),
            BYTES => Value::Bytes(content()?),
            IDS_U16 => Value::Ids(Ids::new(IdWidth::U16, content()?)?),
            IDS_U32 => Value::Ids(Ids::new(IdWidth::U32, content()?)?),
            TEXTS => {
                let mut content = content()?;
                let mut texts = Vec::new();
                while content.has_remaining() {
                    let bytes = usize::try_from(content.try_get_u64_le().ok()?).ok()?;
                    let is_there = bytes <= content.len();
                    texts.push(Text::new(is_there.then(|| content.split_to(bytes))?).ok()?);
                }
                Value::Texts(texts)
            }
            ARRAY => {
                let mut content = content()?;
                let rank = content.try_get_u8().ok()?;
                let shape = (0..rank).map(|_| content.try_get_u32_le().ok()).collect::<Option<Vec<u32>>>()?;
                Value::Array(ArrayValue::new(shape, content))
            }
            _ => return None,
        });
    }
    let converted = ConvertedRecord::new(split, Record { values }, length);
    (converted.crc32c == crc32c).then_some(ConvertedRecord { key_hash, continues, ..converted })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_back_unchanged() {
        let ids = |width, ids: &[u32]| Value::Ids(Ids::pack(width, ids).unwrap());
        let values = vec![
            Value::Text("kéy".into()),
            Value::Null,
            Value::Bool(true),
            Value::Int(i64::MIN),
            Value::UInt(u64::MAX),
            Value::Float(-0.0),
            Value::Bytes(Bytes::from_static(b"\xff\0")),
            Value::Text("".into()),
            ids(IdWidth::U16, &[1, 65_535]),
            ids(IdWidth::U32, &[]),
            Value::Array(ArrayValue::new([2, 1], Bytes::from_static(&[1, 2, 3, 4]))),
            Value::Array(ArrayValue::new([], Bytes::from_static(&[1]))),
            Value::Texts(vec!["".into(), "é".into()]),
            Value::Texts(Vec::new()),
        ];
        let mut converted = ConvertedRecord::new(3, Record { values }, 7);
        converted.continues = true;
        for key_hash in [None, Some(u128::MAX - 1)] {
            converted.key_hash = key_hash;
            let mut bytes = Vec::new();
            encode(&converted, &mut bytes);
            let read = decode(bytes.clone().into()).unwrap();
            assert_eq!(format!("{read:?}"), format!("{converted:?}"));
            for cut in 0..bytes.len() {
                assert!(decode(Bytes::copy_from_slice(&bytes[..cut])).is_none(), "{cut}");
            }
        }
    }
}
