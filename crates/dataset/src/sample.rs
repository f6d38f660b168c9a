//! Records and rejects: the possible results of converting an item.
//!
//! A [`Record`] is a row of [`Value`]s in schema order. The converter writes the same type that the reader returns.
//! Text, bytes and token ids are reference-counted slices ([`Bytes`]), so a record read from a memory map is a view,
//! not a copy.
//!
//! # Canonical form
//!
//! The CRC32C in the record index covers the *canonical form* of a record, which is identical in all formats. For each
//! field in schema order it has one presence byte (0 null, 1 present) and, if present, the value:
//!
//! | type | bytes |
//! |---|---|
//! | `string`, `binary`, `json`, `image`, `mask` | byte count as u64 LE, then the bytes |
//! | `ids<u16>`, `ids<u32>` | byte count as u64 LE, then the ids, LE |
//! | `flags` | byte count as u64 LE, then one byte 0 or 1 per token |
//! | `boxes` | byte count as u64 LE, then four binary32 per box, LE |
//! | `box_labels`, `box_ints` | byte count as u64 LE, then one i64 per box, LE |
//! | `int32_pair` | byte count 8 as u64 LE, then two i32 LE |
//! | `array<…>[…]` | byte count of all that follows as u64 LE, then the size of each axis as u32 LE, then the numbers, LE, in row-major order |
//! | `list<string>`, `list<image>` | number of items as u64 LE, then for each its byte count as u64 LE and its bytes |
//! | `bool`, integers, `label` | the value as i64 or u64, LE (bool: 0 or 1) |
//! | `float32`, `float64` | the bits of the value as binary64, LE |
//!
//! Its size in bytes is the *canonical size* of the record; shard boundaries are based on it.

mod aligned;
mod array_value;
pub(crate) mod boxes;
mod ids;
mod joined;
mod numbers;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub use aligned::{Tokens, trained};
pub use array_value::ArrayValue;
pub(crate) use boxes::check_per_box;
pub use boxes::{Int32Pair, PixelBox, box_numbers, boxes, pack_box_numbers, pack_boxes, pack_pair, pair};
pub use ids::{Ids, PackedIds};
pub use joined::{can_be_joined, joined};
pub use numbers::Numbers;

use crate::schema::{FieldType, INPUT_IDS, MAX_INDEX_COLUMNS, Schema, TOKEN_WEIGHTS, TRAINED, preference};

/// One value of a record. Its bytes are shared ([`Bytes`]) or, for short-lived access, borrowed (`&[u8]`).
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
    /// `float32` (stored exactly), `float64`.
    Float(f64),
    /// `string`, `json`.
    Text(Text<B>),
    /// `binary`, `image`, `mask`; `flags`, one byte 0 or 1 per token; `boxes`, `box_labels`, `box_ints`, `int32_pair` as in
    /// the [canonical form](self#canonical-form).
    Bytes(B),
    /// `ids<u16>`, `ids<u32>`.
    Ids(Ids<B>),
    /// `array<…>[…]`.
    Array(ArrayValue<B>),
    /// `list<string>`.
    Texts(Vec<Text<B>>),
    /// `list<image>`.
    Files(Vec<B>),
}

impl<B: AsRef<[u8]>> Value<B> {
    /// Calls `visit` with the bytes of the [canonical form](self#canonical-form), piece by piece.
    pub fn canonical(&self, visit: &mut impl FnMut(&[u8])) {
        let mut counted = |count: u64| {
            let mut head = [1; 9];
            head[1..].copy_from_slice(&count.to_le_bytes());
            visit(&head);
        };
        match self {
            Value::Null => visit(&[0]),
            Value::Bool(b) => counted(u64::from(*b)),
            Value::Int(i) => counted(i.cast_unsigned()),
            Value::UInt(u) => counted(*u),
            Value::Float(x) => counted(x.to_bits()),
            Value::Text(text) => {
                counted(text.as_bytes().as_ref().len() as u64);
                visit(text.as_bytes().as_ref());
            }
            Value::Bytes(bytes) => {
                counted(bytes.as_ref().len() as u64);
                visit(bytes.as_ref());
            }
            Value::Ids(ids) => {
                counted(ids.as_bytes().as_ref().len() as u64);
                visit(ids.as_bytes().as_ref());
            }
            Value::Array(array) => {
                counted(array.canonical_bytes() as u64);
                array.shape().iter().for_each(|size| visit(&size.to_le_bytes()));
                visit(array.as_bytes().as_ref());
            }
            Value::Texts(texts) => {
                counted(texts.len() as u64);
                texts.iter().for_each(|text| item(text.as_bytes().as_ref(), visit));
            }
            Value::Files(files) => {
                counted(files.len() as u64);
                files.iter().for_each(|file| item(file.as_ref(), visit));
            }
        }
    }
}

/// Visits the canonical form of an item of a list.
fn item(bytes: &[u8], visit: &mut impl FnMut(&[u8])) {
    visit(&(bytes.len() as u64).to_le_bytes());
    visit(bytes);
}

/// UTF-8 text in a shared buffer.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Text<B = Bytes>(B);

impl<B: AsRef<[u8]>> Text<B> {
    /// Creates a text from `bytes`.
    ///
    /// # Errors
    ///
    /// Fails if `bytes` are not UTF-8.
    pub fn new(bytes: B) -> Result<Self, std::str::Utf8Error> {
        std::str::from_utf8(bytes.as_ref())?;
        Ok(Self(bytes))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        // Every constructor validated the bytes, and `Bytes` is immutable. Only another process that modifies a mapped
        // file can invalidate them; the text then reads as empty.
        std::str::from_utf8(self.0.as_ref()).unwrap_or_default()
    }

    /// Returns the UTF-8 bytes.
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
    /// Returns the size of the canonical form in bytes.
    pub fn canonical_size(&self) -> u64 {
        canonical_size_of(&self.values)
    }

    /// Returns the CRC32C (Castagnoli, RFC 3720) of the canonical form.
    pub fn crc32c(&self) -> u32 {
        crc32c_of(&self.values)
    }
}

/// Returns [`Record::canonical_size`] for a record with these `values`.
fn canonical_size_of<B: AsRef<[u8]>>(values: &[Value<B>]) -> u64 {
    let size = |value: &Value<B>| match value {
        Value::Null => 1,
        Value::Bool(_) | Value::Int(_) | Value::UInt(_) | Value::Float(_) => 9,
        Value::Text(t) => 9 + t.as_bytes().as_ref().len() as u64,
        Value::Bytes(b) => 9 + b.as_ref().len() as u64,
        Value::Ids(ids) => 9 + ids.as_bytes().as_ref().len() as u64,
        Value::Array(array) => 9 + array.canonical_bytes() as u64,
        Value::Files(files) => 9 + files.iter().map(|file| 8 + file.as_ref().len() as u64).sum::<u64>(),
        Value::Texts(texts) => {
            9 + texts.iter().map(|text| 8 + text.as_bytes().as_ref().len() as u64).sum::<u64>()
        }
    };
    values.iter().map(size).sum()
}

/// Returns [`Record::crc32c`] for a record with these `values`.
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
        Value::Array(array) => {
            let crc = scalar(crc, array.canonical_bytes() as u64);
            let add = |crc, size: &u32| crc32c::crc32c_append(crc, &size.to_le_bytes());
            crc32c::crc32c_append(array.shape().iter().fold(crc, add), array.as_bytes().as_ref())
        }
        Value::Texts(texts) => items(crc, texts.iter().map(|text| text.as_bytes().as_ref())),
        Value::Files(files) => items(crc, files.iter().map(B::as_ref)),
    })
}

/// Returns the length of a record according to its own values: the fields that state it, which must agree with its token
/// ids and aligned fields if it has some; or its canonical size if no field does. The error is a clause for a message.
///
/// # Errors
///
/// Fails if the values do not determine a length.
pub fn length_of<B: AsRef<[u8]>>(schema: &Schema, values: &[Value<B>]) -> Result<u64, String> {
    let layout = schema.layout();
    let payload = layout.payload.and_then(|name| schema.index_of(name));
    let ids = match payload.and_then(|field| values.get(field)) {
        Some(Value::Ids(ids)) => Some(ids.len() as u64),
        _ if layout.payload == Some(INPUT_IDS) => return Err("the record has no token ids".to_owned()),
        _ => None,
    };
    check_aligned(schema, values)?;
    check_per_box(schema, values)?;
    if layout.payload != Some(INPUT_IDS) && schema.holds_completions() {
        return preference::length_of(schema, values);
    }
    let fields = layout.length_fields;
    if fields.is_empty() {
        return Ok(canonical_size_of(values));
    }
    let mut numbers = fields.iter().map(|name| uint(schema, values, name));
    let length = numbers.try_fold(1u64, |product, number| product.checked_mul(number?));
    let length = length.ok_or_else(|| format!("the record has no {}", fields.join(" and ")))?;
    match ids {
        Some(ids) if ids != length => {
            Err(format!("the record has {ids} ids, but its length field is {length}"))
        }
        _ => Ok(length),
    }
}

/// Checks that the aligned fields of a record have one value for each of its token ids. The error is a clause for a
/// message.
pub(crate) fn check_aligned<B: AsRef<[u8]>>(schema: &Schema, values: &[Value<B>]) -> Result<(), String> {
    for at in schema.aligned() {
        let ids = match schema.payload_field().and_then(|field| values.get(field)) {
            Some(Value::Ids(ids)) => ids.len(),
            _ => return Err("the record has no token ids".to_owned()),
        };
        let (Some(field), Some(Value::Bytes(flags))) = (schema.fields.get(at), values.get(at)) else {
            return Err("the record has no mark for each token".to_owned());
        };
        let flags = flags.as_ref().len();
        if flags != ids {
            return Err(format!("the record has {ids} ids, but {flags} values in {:?}", field.name));
        }
    }
    if let Some((at, array)) = schema.weights_field() {
        let ids = match schema.payload_field().and_then(|field| values.get(field)) {
            Some(Value::Ids(ids)) => ids.len(),
            _ => return Err("the record has no token ids".to_owned()),
        };
        let numbers = values.get(at).and_then(|value| Numbers::of(FieldType::Array(array), value));
        let weights = numbers.map_or(0, |numbers| numbers.shape.first().copied().unwrap_or_default());
        if weights != ids {
            return Err(format!("the record has {ids} ids, but {weights} values in {TOKEN_WEIGHTS:?}"));
        }
    }
    Ok(())
}

/// Returns the values of a record that the record index stores, too ([`Schema::index_columns`]), followed by zeros. `None`
/// if the record lacks one, or one does not fit.
pub fn index_values<B: AsRef<[u8]>>(
    schema: &Schema,
    values: &[Value<B>],
) -> Option<[u32; MAX_INDEX_COLUMNS]> {
    let mut found = [0; MAX_INDEX_COLUMNS];
    for (slot, name) in found.iter_mut().zip(schema.index_columns()) {
        *slot = match schema.masks_field().filter(|_| name == TRAINED) {
            Some(masks) => match values.get(masks)? {
                Value::Bytes(flags) => u32::try_from(trained(flags.as_ref())).ok()?,
                _ => return None,
            },
            None => u32::try_from(uint(schema, values, name)?).ok()?,
        };
    }
    Some(found)
}

/// Returns the number in the field `name` of a record.
fn uint<B: AsRef<[u8]>>(schema: &Schema, values: &[Value<B>], name: &str) -> Option<u64> {
    match schema.index_of(name).and_then(|i| values.get(i)) {
        Some(&Value::UInt(u)) => Some(u),
        _ => None,
    }
}

fn scalar(crc: u32, value: u64) -> u32 {
    let mut buf = [1; 9];
    buf[1..].copy_from_slice(&value.to_le_bytes());
    crc32c::crc32c_append(crc, &buf)
}

fn items<'a>(crc: u32, items: impl ExactSizeIterator<Item = &'a [u8]>) -> u32 {
    let crc = scalar(crc, items.len() as u64);
    items.fold(crc, |crc, bytes| {
        let crc = crc32c::crc32c_append(crc, &(bytes.len() as u64).to_le_bytes());
        crc32c::crc32c_append(crc, bytes)
    })
}

fn counted(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(scalar(crc, bytes.len() as u64), bytes)
}

/// Reason why an item was rejected. The codes are stable because scripts read them from `rejects.jsonl`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RejectCode {
    /// No bytes at all, or a document without characters.
    Empty,
    /// The name has a supported type, but the content does not.
    UnknownType,
    /// The file is truncated.
    Truncated,
    /// The content violates its format.
    Corrupt,
    /// Content that the format allows but this build cannot decode.
    Unsupported,
    /// More pixels, bytes, scans or nesting levels than the limits allow.
    TooLarge,
    /// A line or file that is not UTF-8.
    InvalidUtf8,
    /// Text of which more than a hundredth is NUL: binary data.
    NulBytes,
    /// A line that is not a JSON object.
    InvalidJson,
    /// The named field is missing or null.
    MissingField,
    /// The named field has the wrong type.
    WrongType,
    /// A field value that does not fit the declared type.
    InvalidValue,
    /// A class name that is not in the class list.
    UnknownLabel,
    /// Longer than `--max-length` with `--overflow reject`.
    TooLong,
    /// Text containing the string of a special token, with `--special-in-text error`.
    SpecialToken,
    /// A chat of which the template leaves something out.
    NotRendered,
    /// A message with several text parts, over which the chat template does not iterate.
    TextParts,
    /// No token of the document, or of what is left of it, is to be trained on.
    NothingToTrain,
    /// A chat that is not a list of messages, or that the template rejects.
    InvalidChat,
    /// A pair whose completions are the same.
    SameCompletions,
    /// A completion without text.
    EmptyCompletion,
    /// A pair whose sides have different ids before their completions, with `--seam error`.
    SeamDiffers,
    /// A chat whose images are more or fewer than its messages have places for, or than the template writes tokens for.
    ImageCount,
    /// A chat whose row has a system message, and whose list of messages starts with another one.
    TwoSystems,
    /// An animated image, with `--animated reject`.
    Animated,
    /// A file listed in the metadata does not exist.
    MissingFile,
    /// A container member that is a link, or whose path is absolute or contains `..`.
    UnsafePath,
    /// The annotations of an image contradict it, or each other.
    AnnotationMismatch,
    /// A label that is neither -100 nor the id of its token.
    LabelMismatch,
    /// The code that decodes or encodes the item panicked on its bytes.
    DecoderPanicked,
    /// A function of the user raised an exception.
    FunctionFailed,
    /// A function of the user rejected the item.
    FunctionRejected,
}

impl RejectCode {
    /// Returns the name used in `rejects.jsonl`.
    pub fn name(self) -> &'static str {
        match self {
            RejectCode::Empty => "empty",
            RejectCode::UnknownType => "unknown-type",
            RejectCode::Truncated => "truncated",
            RejectCode::Corrupt => "corrupt",
            RejectCode::Unsupported => "unsupported",
            RejectCode::TooLarge => "too-large",
            RejectCode::InvalidUtf8 => "invalid-utf8",
            RejectCode::NulBytes => "nul-bytes",
            RejectCode::InvalidJson => "invalid-json",
            RejectCode::MissingField => "missing-field",
            RejectCode::WrongType => "wrong-type",
            RejectCode::InvalidValue => "invalid-value",
            RejectCode::UnknownLabel => "unknown-label",
            RejectCode::TooLong => "too-long",
            RejectCode::SpecialToken => "special-token",
            RejectCode::NotRendered => "not-rendered",
            RejectCode::TextParts => "text-parts",
            RejectCode::NothingToTrain => "nothing-to-train",
            RejectCode::InvalidChat => "invalid-chat",
            RejectCode::SameCompletions => "same-completions",
            RejectCode::EmptyCompletion => "empty-completion",
            RejectCode::SeamDiffers => "seam-differs",
            RejectCode::TwoSystems => "two-systems",
            RejectCode::ImageCount => "image-count",
            RejectCode::Animated => "animated",
            RejectCode::MissingFile => "missing-file",
            RejectCode::UnsafePath => "unsafe-path",
            RejectCode::AnnotationMismatch => "annotation-mismatch",
            RejectCode::LabelMismatch => "label-mismatch",
            RejectCode::DecoderPanicked => "decoder-panicked",
            RejectCode::FunctionFailed => "function-failed",
            RejectCode::FunctionRejected => "function-rejected",
        }
    }
}

/// An item whose bytes cannot become a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reject {
    /// Stable reason code.
    pub code: RejectCode,
    /// One sentence for people.
    pub message: String,
}

impl Reject {
    /// Creates a reject with `code` and `message`.
    pub fn new(code: RejectCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Creates the reject of bytes that are not UTF-8. `what` names them, such as `the line`.
    pub fn not_utf8(what: &str, error: &std::str::Utf8Error) -> Self {
        Self::new(RejectCode::InvalidUtf8, format!("byte {} of {what} is not UTF-8", error.valid_up_to()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::IdWidth;

    #[test]
    fn lengths_and_columns_of_the_record_index_are_those_of_fields() {
        let images = Schema::images(None, vec![]).unwrap();
        let image = |width, height| {
            vec![
                Value::Text("k".into()),
                Value::Bytes(Bytes::from_static(b"jpeg")),
                Value::UInt(width),
                Value::UInt(height),
                Value::Text("o".into()),
            ]
        };
        assert_eq!(length_of(&images, &image(30, 20)), Ok(600));
        assert_eq!(index_values(&images, &image(30, 20)), Some([30, 20, 0, 0]));
        assert_eq!(index_values(&images, &image(30, 1 << 32)), None);
        for values in [&image(30, 20)[..3], &image(1 << 32, 1 << 32)] {
            assert_eq!(length_of(&images, values), Err("the record has no width and height".to_owned()));
        }
        let text = Schema::text(IdWidth::U16, vec![]).unwrap();
        let ids = Value::Ids(Ids::pack(IdWidth::U16, &[5, 6]).unwrap());
        let document =
            |ids: &Value, length| vec![Value::Text("k".into()), ids.clone(), length, Value::Text("o".into())];
        assert_eq!(length_of(&text, &document(&ids, Value::UInt(2))), Ok(2));
        assert_eq!(index_values(&text, &document(&ids, Value::UInt(2))), Some([0; 4]));
        for (ids, length, why) in [
            (&Value::Null, Value::UInt(2), "the record has no token ids"),
            (&ids, Value::Null, "the record has no length"),
            (&ids, Value::UInt(3), "the record has 2 ids, but its length field is 3"),
        ] {
            assert_eq!(length_of(&text, &document(ids, length)), Err(why.to_owned()));
        }
    }

    #[test]
    fn masks_have_one_value_per_token_and_are_counted() {
        let schema = Schema::text(IdWidth::U16, vec![]).unwrap().with_assistant_masks().unwrap();
        let document = |masks: &'static [u8]| {
            vec![
                Value::Text("k".into()),
                Value::Ids(Ids::pack(IdWidth::U16, &[5, 6, 7]).unwrap()),
                Value::UInt(3),
                Value::Text("o".into()),
                Value::Bytes(Bytes::from_static(masks)),
            ]
        };
        assert_eq!(length_of(&schema, &document(&[0, 1, 1])), Ok(3));
        assert_eq!(index_values(&schema, &document(&[0, 1, 1])), Some([2, 0, 0, 0]));
        for wrong in [&[0, 1][..], &[0, 1, 1, 1], &[]] {
            let why = format!("the record has 3 ids, but {} values in \"assistant_masks\"", wrong.len());
            assert_eq!(length_of(&schema, &document(wrong)), Err(why));
        }
        let mut without = document(&[]);
        without.pop();
        assert!(length_of(&schema, &without).is_err() && index_values(&schema, &without).is_none());
    }

    /// Every dataset depends on the canonical form: this test never changes.
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
        let mut visited: Vec<u8> = Vec::new();
        record.values.iter().for_each(|value| value.canonical(&mut |bytes| visited.extend(bytes)));
        assert_eq!(visited, bytes);
    }

    #[test]
    fn the_canonical_form_of_each_value_is_what_its_checksum_covers() {
        let values: [Value; 5] = [
            Value::Files(vec![Bytes::from_static(b"a"), Bytes::new()]),
            Value::UInt(u64::MAX),
            Value::Bytes(Bytes::from_static(&[1, 2, 3])),
            Value::Array(ArrayValue::new([2, 1], Bytes::from_static(&[1, 2, 3, 4]))),
            Value::Texts(vec!["a".into(), "".into(), "bc".into()]),
        ];
        for value in values {
            let mut visited: Vec<u8> = Vec::new();
            value.canonical(&mut |bytes| visited.extend(bytes));
            assert_eq!(crc32c::crc32c(&visited), crc32c_of(std::slice::from_ref(&value)), "{value:?}");
            let size = Record { values: vec![value] }.canonical_size();
            assert_eq!(visited.len() as u64, size);
        }
    }

    #[test]
    fn reject_code_names_match_their_serialized_form() {
        for code in [
            RejectCode::InvalidUtf8,
            RejectCode::UnknownType,
            RejectCode::TooLarge,
            RejectCode::UnsafePath,
            RejectCode::NotRendered,
            RejectCode::TextParts,
            RejectCode::NothingToTrain,
            RejectCode::InvalidChat,
            RejectCode::SameCompletions,
            RejectCode::EmptyCompletion,
            RejectCode::SeamDiffers,
            RejectCode::TwoSystems,
            RejectCode::DecoderPanicked,
            RejectCode::FunctionFailed,
            RejectCode::FunctionRejected,
        ] {
            assert_eq!(serde_json::to_string(&code).unwrap(), format!("\"{}\"", code.name()));
        }
    }
}
