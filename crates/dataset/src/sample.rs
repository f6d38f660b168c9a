//! Records and rejects: what an item becomes.
//!
//! A [`Record`] is a row of [`Value`]s in schema order. The same type is written by the converter and handed out by the
//! reader. Its texts, bytes and token ids are reference-counted slices ([`Bytes`]), so a record read from a memory map
//! is a view, not a copy.
//!
//! # Canonical form
//!
//! The CRC32C in the record index covers the *canonical form* of a record, which is the same in all formats: for each
//! field in schema order one presence byte (0 null, 1 present) and, when present:
//!
//! | type | bytes |
//! |---|---|
//! | `string`, `binary`, `json`, `image` | byte count as u64 LE, then the bytes |
//! | `ids<u16>`, `ids<u32>` | byte count as u64 LE, then the ids, LE |
//! | `bool`, integers, `label` | the value as i64 or u64, LE (bool: 0 or 1) |
//! | `float32`, `float64` | the bits of the value as binary64, LE |
//!
//! Its size in bytes is the record's *canonical size*, from which shard cuts are decided.

mod ids;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub use ids::{Ids, PackedIds};

/// One value of a record. Its bytes are shared ([`Bytes`]) or, for the time of a look, borrowed (`&[u8]`).
#[derive(Debug, Clone, PartialEq)]
pub enum Value<B: AsRef<[u8]> = Bytes> {
    /// Missing.
    Null,
    /// `bool`.
    Bool(bool),
    /// `int32`, `int64`, `label`.
    Int(i64),
    /// `uint32`, `uint64`.
    UInt(u64),
    /// `float32` (held exactly), `float64`.
    Float(f64),
    /// `string`, `json`.
    Text(Text<B>),
    /// `binary`, `image`.
    Bytes(B),
    /// `ids<u16>`, `ids<u32>`.
    Ids(Ids<B>),
}

/// UTF-8 text in a shared buffer.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Text<B = Bytes>(B);

impl<B: AsRef<[u8]>> Text<B> {
    /// Text over `bytes`, when they are UTF-8.
    pub fn new(bytes: B) -> Result<Self, std::str::Utf8Error> {
        std::str::from_utf8(bytes.as_ref())?;
        Ok(Self(bytes))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        // Every constructor has checked the bytes, and they cannot be written through `Bytes`. A memory map whose
        // file someone else changes could still break it: then the text is shown as empty rather than as nonsense.
        std::str::from_utf8(self.0.as_ref()).unwrap_or_default()
    }

    /// The UTF-8 bytes.
    pub fn as_bytes(&self) -> &B {
        &self.0
    }
}

impl From<String> for Text {
    fn from(s: String) -> Self {
        Self(Bytes::from(s))
    }
}

impl From<&str> for Text {
    fn from(s: &str) -> Self {
        Self(Bytes::copy_from_slice(s.as_bytes()))
    }
}

impl<B: AsRef<[u8]>> std::fmt::Debug for Text<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_str().fmt(f)
    }
}

/// The encoded form of one sample: values in schema order.
#[derive(Debug, Clone, PartialEq)]
pub struct Record<B: AsRef<[u8]> = Bytes> {
    /// One value per field of the schema.
    pub values: Vec<Value<B>>,
}

impl<B: AsRef<[u8]>> Record<B> {
    /// Size of the canonical form in bytes.
    pub fn canonical_size(&self) -> u64 {
        self.values
            .iter()
            .map(|v| match v {
                Value::Null => 1,
                Value::Bool(_) | Value::Int(_) | Value::UInt(_) | Value::Float(_) => 9,
                Value::Text(t) => 9 + t.as_bytes().as_ref().len() as u64,
                Value::Bytes(b) => 9 + b.as_ref().len() as u64,
                Value::Ids(ids) => 9 + ids.as_bytes().as_ref().len() as u64,
            })
            .sum()
    }

    /// CRC32C (Castagnoli, RFC 3720) of the canonical form.
    pub fn crc32c(&self) -> u32 {
        crc32c_of(&self.values)
    }
}

/// [`Record::crc32c`] of the record of these values.
pub fn crc32c_of<B: AsRef<[u8]>>(values: &[Value<B>]) -> u32 {
    values.iter().fold(0, |crc, value| match value {
        Value::Null => crc32c::crc32c_append(crc, &[0]),
        Value::Bool(b) => scalar(crc, u64::from(*b)),
        Value::Int(i) => scalar(crc, i.cast_unsigned()),
        Value::UInt(u) => scalar(crc, *u),
        Value::Float(x) => scalar(crc, x.to_bits()),
        Value::Text(t) => counted(crc, t.as_bytes().as_ref()),
        Value::Bytes(b) => counted(crc, b.as_ref()),
        Value::Ids(ids) => counted(crc, ids.as_bytes().as_ref()),
    })
}

fn scalar(crc: u32, value: u64) -> u32 {
    let mut buf = [1; 9];
    buf[1..].copy_from_slice(&value.to_le_bytes());
    crc32c::crc32c_append(crc, &buf)
}

fn counted(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(scalar(crc, bytes.len() as u64), bytes)
}

/// Why the bytes of an item cannot become a record. The codes are stable: scripts read them in `rejects.jsonl`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RejectCode {
    /// No bytes at all, or a document without a character.
    Empty,
    /// The content is of no type the command reads, though the name says so.
    UnknownType,
    /// The file ends before its content does.
    Truncated,
    /// The content contradicts its format.
    Corrupt,
    /// A kind of content the format allows and this build cannot decode.
    Unsupported,
    /// More pixels, bytes, scans or nesting than the limits allow.
    TooLarge,
    /// A line or file that is not UTF-8.
    InvalidUtf8,
    /// A line that is not a JSON object.
    InvalidJson,
    /// The named field is missing or null.
    MissingField,
    /// The named field is of another type.
    WrongType,
    /// A field value that does not fit the declared type.
    InvalidValue,
    /// A class name that is not in the list of classes.
    UnknownLabel,
    /// Longer than `--max-length` with `--overflow reject`.
    TooLong,
    /// Text that contains the string of a special token, with `--special-in-text error`.
    SpecialToken,
    /// An animated image, with `--animated reject`.
    Animated,
    /// A file that the metadata names is not there.
    MissingFile,
    /// A container member whose path is absolute, contains `..`, or is a link.
    UnsafePath,
    /// The code that decodes or encodes the item panicked on its bytes.
    DecoderPanicked,
}

impl RejectCode {
    /// The name in `rejects.jsonl`.
    pub fn name(self) -> &'static str {
        match self {
            RejectCode::Empty => "empty",
            RejectCode::UnknownType => "unknown-type",
            RejectCode::Truncated => "truncated",
            RejectCode::Corrupt => "corrupt",
            RejectCode::Unsupported => "unsupported",
            RejectCode::TooLarge => "too-large",
            RejectCode::InvalidUtf8 => "invalid-utf8",
            RejectCode::InvalidJson => "invalid-json",
            RejectCode::MissingField => "missing-field",
            RejectCode::WrongType => "wrong-type",
            RejectCode::InvalidValue => "invalid-value",
            RejectCode::UnknownLabel => "unknown-label",
            RejectCode::TooLong => "too-long",
            RejectCode::SpecialToken => "special-token",
            RejectCode::Animated => "animated",
            RejectCode::MissingFile => "missing-file",
            RejectCode::UnsafePath => "unsafe-path",
            RejectCode::DecoderPanicked => "decoder-panicked",
        }
    }
}

/// An item that cannot become a record because of what its bytes are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reject {
    /// Stable reason.
    pub code: RejectCode,
    /// One sentence for a person.
    pub message: String,
}

impl Reject {
    /// A reject for `code` that says `message`.
    pub fn new(code: RejectCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::IdWidth;

    /// The canonical form is a promise to every dataset written: this test never changes.
    #[test]
    fn canonical_form_never_changes() {
        let record = Record {
            values: vec![
                Value::Text("ab".into()),
                Value::Null,
                Value::Int(-1),
                Value::Bool(true),
                Value::Float(1.5),
                Value::Ids(Ids::pack(IdWidth::U16, &[7]).unwrap()),
            ],
        };
        let mut bytes = vec![1, 2, 0, 0, 0, 0, 0, 0, 0, b'a', b'b', 0];
        bytes.extend([1, 255, 255, 255, 255, 255, 255, 255, 255]);
        bytes.extend([1, 1, 0, 0, 0, 0, 0, 0, 0]);
        bytes.push(1);
        bytes.extend(1.5f64.to_bits().to_le_bytes());
        bytes.extend([1, 2, 0, 0, 0, 0, 0, 0, 0, 7, 0]);
        assert_eq!(record.canonical_size(), bytes.len() as u64);
        assert_eq!(record.crc32c(), crc32c::crc32c(&bytes));
    }

    #[test]
    fn reject_codes_are_named_as_they_are_serialised() {
        for code in [
            RejectCode::InvalidUtf8,
            RejectCode::UnknownType,
            RejectCode::TooLarge,
            RejectCode::UnsafePath,
            RejectCode::DecoderPanicked,
        ] {
            assert_eq!(serde_json::to_string(&code).unwrap(), format!("\"{}\"", code.name()));
        }
    }
}
