//! Protobuf shards: length-delimited messages defined in `proto/dsconvert/v1/record.proto`.
//!
//! Messages are canonical: each record has exactly one encoding. A reader can therefore reject unknown fields, repeated
//! fields and overlong numbers with a single size comparison.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;

use super::check;
use super::frames::{Fault, FrameCodec, frames};
use super::runs::{from_runs, to_runs};
use crate::error::{Error, Result};
use crate::sample::{Ids, Record, Text, Value};
use crate::schema::{
    Field, FieldType, HEIGHT, IMAGE, INPUT_IDS, IdWidth, KEY, Kind, LABEL, LENGTH, ORIGIN, Schema, WIDTH,
};
use crate::storage::Blob;

/// Generated from `proto/dsconvert/v1/record.proto`; a test verifies that they match.
#[allow(missing_docs, unreachable_pub, clippy::all)]
mod proto {
    include!("generated/dsconvert.v1.rs");
}

use proto::field::Value as Extra;
use proto::record::Payload;

/// Maximum message size in bytes that every protobuf library can read.
const MAX_MESSAGE_BYTES: u64 = (1 << 31) - 1;
/// Maximum size of a frame's length prefix in bytes.
const MAX_PREFIX_BYTES: usize = 5;
/// Number of the message field that holds fields that are not built in.
const EXTRA_TAG: u64 = 5;
/// Maximum fields of a record with an unknown schema.
const MAX_INFERRED_FIELDS: usize = 4096;

/// Location of a schema field in the message.
#[derive(Clone, Copy, PartialEq)]
enum FieldSlot {
    Key,
    Origin,
    Data,
    Width,
    Height,
    Label,
    InputIds,
    Length,
    Extra,
}

impl FieldSlot {
    fn of(schema: &Schema, field: &Field) -> Self {
        let has_slot = schema.layout().built_in.contains(&field.name.as_str());
        match field.name.as_str() {
            LABEL if schema.holds_images() && field.ty == FieldType::Label => FieldSlot::Label,
            _ if !has_slot => FieldSlot::Extra,
            KEY => FieldSlot::Key,
            ORIGIN => FieldSlot::Origin,
            IMAGE => FieldSlot::Data,
            WIDTH => FieldSlot::Width,
            HEIGHT => FieldSlot::Height,
            INPUT_IDS => FieldSlot::InputIds,
            LENGTH => FieldSlot::Length,
            _ => FieldSlot::Extra,
        }
    }

    /// Returns whether the message can represent every value of `field` in this slot.
    fn holds(self, field: &Field) -> bool {
        let ty = match self {
            FieldSlot::Extra | FieldSlot::Label => return true,
            FieldSlot::Key | FieldSlot::Origin => FieldType::String,
            FieldSlot::Data => FieldType::Image,
            FieldSlot::Width | FieldSlot::Height | FieldSlot::Length => FieldType::UInt32,
            FieldSlot::InputIds => return field.ty.id_width().is_some() && !field.nullable,
        };
        field.ty == ty && !field.nullable
    }
}

/// Protobuf codec, with the message slot of each field.
pub(super) struct Protobuf {
    schema: Arc<Schema>,
    slots: Vec<FieldSlot>,
    extras: usize,
}

impl FrameCodec for Protobuf {
    fn new(schema: Arc<Schema>) -> Result<Self> {
        let slots: Vec<FieldSlot> = schema.fields.iter().map(|f| FieldSlot::of(&schema, f)).collect();
        for (field, slot) in schema.fields.iter().zip(&slots) {
            if !slot.holds(field) {
                return Err(Error::usage(format!(
                    "protobuf records cannot represent field {:?} with type {}",
                    field.name,
                    field.ty.name()
                )));
            }
        }
        let extras = slots.iter().filter(|&&s| s == FieldSlot::Extra).count();
        Ok(Self { schema, slots, extras })
    }

    fn encode(&self, record: &Record, frame: &mut Vec<u8>) -> Result<()> {
        let message = self.message(record)?;
        message
            .encode_length_delimited(frame)
            .map_err(|e| Error::internal("the record cannot be written as protobuf").caused_by(e))
    }

    fn decode(&self, bytes: &Bytes) -> Result<(Record, usize), Fault> {
        let (prefix, message) = message(bytes, self.extras)?;
        let size = prefix + message.encoded_len();
        let record = self.record(message).map_err(|why| Fault::bad(prefix, why))?;
        Ok((record, size))
    }
}

impl Protobuf {
    fn message(&self, record: &Record) -> Result<proto::Record> {
        let mut message = proto::Record { extra: Vec::with_capacity(self.extras), ..Default::default() };
        let mut image = proto::Image::default();
        let mut text = proto::Text::default();
        for ((field, slot), value) in self.schema.fields.iter().zip(&self.slots).zip(&record.values) {
            match (slot, value) {
                (FieldSlot::Key, Value::Text(t)) => message.key = t.as_str().to_owned(),
                (FieldSlot::Origin, Value::Text(t)) => message.origin = t.as_str().to_owned(),
                (FieldSlot::Data, Value::Bytes(b)) => image.data = b.clone(),
                // The ranges were checked, so these casts are lossless.
                (FieldSlot::Width, Value::UInt(u)) => image.width = *u as u32,
                (FieldSlot::Height, Value::UInt(u)) => image.height = *u as u32,
                (FieldSlot::Label, Value::Int(i)) => image.label = Some(*i),
                (FieldSlot::Label, Value::Null) => image.label = None,
                (FieldSlot::InputIds, Value::Ids(ids)) => {
                    text.input_ids = ids.as_bytes().clone();
                    text.id_width = ids.width().bytes() as u32;
                }
                (FieldSlot::Length, Value::UInt(u)) => text.length = *u as u32,
                (FieldSlot::Extra, value) => {
                    message
                        .extra
                        .push(proto::Field { name: field.name.clone(), value: extra(field.ty, value) });
                }
                _ => {
                    return Err(Error::internal(format!(
                        "field {:?} has a value of another type",
                        field.name
                    )));
                }
            }
        }
        message.payload = match self.schema.kind {
            Kind::Images => Some(Payload::Image(image)),
            Kind::Text => Some(Payload::Text(text)),
            Kind::Records => None,
        };
        Ok(message)
    }

    /// Converts `message` to a record. The error is one sentence.
    fn record(&self, message: proto::Record) -> Result<Record, String> {
        let proto::Record { key, origin, extra, payload } = message;
        let (image, text) = match (payload, self.schema.kind) {
            (Some(Payload::Image(image)), Kind::Images) => (image, proto::Text::default()),
            (Some(Payload::Text(text)), Kind::Text) => (proto::Image::default(), text),
            (None, Kind::Records) if origin.is_empty() => Default::default(),
            _ => return Err(format!("the record is not of kind {}", self.schema.kind.name())),
        };
        let tokens = text.input_ids.len() / (text.id_width as usize).max(1);
        let mut strings = (Some(key), Some(origin));
        let mut extra = extra.into_iter();
        let mut values = Vec::with_capacity(self.slots.len());
        for (field, slot) in self.schema.fields.iter().zip(&self.slots) {
            let value = match slot {
                FieldSlot::Key => Value::Text(strings.0.take().unwrap_or_default().into()),
                FieldSlot::Origin => Value::Text(strings.1.take().unwrap_or_default().into()),
                FieldSlot::Data => Value::Bytes(image.data.clone()),
                FieldSlot::Width => Value::UInt(image.width.into()),
                FieldSlot::Height => Value::UInt(image.height.into()),
                FieldSlot::Label => image.label.map_or(Value::Null, Value::Int),
                FieldSlot::InputIds => ids(text.input_ids.clone(), text.id_width)?,
                FieldSlot::Length => Value::UInt(text.length.into()),
                FieldSlot::Extra => {
                    let next = extra.next().filter(|found| found.name == field.name);
                    let found = next.ok_or_else(|| format!("expected field {:?}", field.name))?;
                    extra_value(field, found.value, tokens)?
                }
            };
            check::value(&self.schema, field, &value)?;
            values.push(value);
        }
        Ok(Record { values })
    }
}

/// Decodes the message at the start of `bytes` and returns the size of its prefix and the message. It may have at most
/// `max_extras` extra fields. They are counted before decoding, because an empty one takes two bytes here but many in
/// memory.
fn message(bytes: &Bytes, max_extras: usize) -> Result<(usize, proto::Record), Fault> {
    let (len, prefix) = varint(bytes)?;
    if prefix > MAX_PREFIX_BYTES || len > MAX_MESSAGE_BYTES {
        return Err(Fault::bad(
            0,
            format!("the record has {len} bytes, but the limit is {MAX_MESSAGE_BYTES}"),
        ));
    }
    // Below 2³¹, so it fits.
    let len = len as usize;
    let body = bytes.get(prefix..).and_then(|rest| rest.get(..len)).ok_or(Fault::Short)?;
    let extras = count_extras(body).ok_or_else(|| Fault::bad(prefix, "the record has an unknown field"))?;
    if extras > max_extras {
        let why = format!("the record has {extras} fields that are not built in, expected {max_extras}");
        return Err(Fault::bad(prefix, why));
    }
    let message = proto::Record::decode(bytes.slice_ref(body))
        .map_err(|e| Fault::bad(prefix, format!("the record cannot be decoded: {e}")))?;
    if message.encoded_len() != len {
        return Err(Fault::bad(prefix, "the record is not in canonical form"));
    }
    Ok((prefix, message))
}

/// Counts the extra fields of a message. Returns `None` if it is not a record.
fn count_extras(mut body: &[u8]) -> Option<usize> {
    let mut extras = 0;
    while !body.is_empty() {
        let (key, size) = varint(body).ok()?;
        let (len, len_size) = varint(body.get(size..)?).ok()?;
        // All fields of a record are length-delimited (wire type 2).
        if key & 7 != 2 || !(1..=EXTRA_TAG).contains(&(key >> 3)) {
            return None;
        }
        extras += usize::from(key >> 3 == EXTRA_TAG);
        body = body.get(size + len_size..)?.get(usize::try_from(len).ok()?..)?;
    }
    Some(extras)
}

/// Decodes the shortest-form varint at the start of `bytes` and returns its value and size.
fn varint(bytes: &[u8]) -> Result<(u64, usize), Fault> {
    let mut value = 0;
    for (i, byte) in bytes.iter().enumerate().take(2 * MAX_PREFIX_BYTES) {
        let bits = u64::from(byte & 0x7f);
        if (i == 9 && bits > 1) || (i > 0 && *byte == 0) {
            return Err(Fault::bad(0, "a varint is not in its shortest form"));
        }
        value |= bits << (7 * i);
        if byte & 0x80 == 0 {
            return Ok((value, i + 1));
        }
    }
    if bytes.len() < 2 * MAX_PREFIX_BYTES {
        Err(Fault::Short)
    } else {
        Err(Fault::bad(0, "a varint is longer than 10 bytes"))
    }
}

/// Converts the value of an extra field to its stored form; `None` if it is null.
fn extra(ty: FieldType, value: &Value) -> Option<Extra> {
    Some(match (ty, value) {
        (_, Value::Null) => return None,
        (FieldType::Json, Value::Text(t)) => Extra::JsonValue(t.as_str().to_owned()),
        (_, Value::Text(t)) => Extra::StringValue(t.as_str().to_owned()),
        (FieldType::Image | FieldType::Mask, Value::Bytes(b)) => Extra::ImageValue(b.clone()),
        (FieldType::Flags, Value::Bytes(flags)) => Extra::FlagsValue(to_runs(flags).into()),
        (FieldType::Boxes, Value::Bytes(b)) => Extra::BoxesValue(b.clone()),
        (FieldType::BoxLabels, Value::Bytes(b)) => Extra::BoxLabelsValue(b.clone()),
        (FieldType::BoxInts, Value::Bytes(b)) => Extra::BoxIntsValue(b.clone()),
        (FieldType::Int32Pair, Value::Bytes(b)) => Extra::Int32PairValue(b.clone()),
        (_, Value::Bytes(b)) => Extra::BinaryValue(b.clone()),
        (_, Value::Bool(b)) => Extra::BoolValue(*b),
        (FieldType::Int32, Value::Int(i)) => Extra::Int32Value(*i as i32),
        (FieldType::Label, Value::Int(i)) => Extra::LabelValue(*i),
        (_, Value::Int(i)) => Extra::Int64Value(*i),
        (FieldType::UInt32, Value::UInt(u)) => Extra::Uint32Value(*u as u32),
        (_, Value::UInt(u)) => Extra::Uint64Value(*u),
        (FieldType::Float32, Value::Float(x)) => Extra::Float32Value(*x as f32),
        (_, Value::Float(x)) => Extra::Float64Value(*x),
        // Such a field is refused.
        (_, Value::Array(_) | Value::Texts(_) | Value::Files(_)) => return None,
        (_, Value::Ids(ids)) => {
            Extra::IdsValue(proto::Ids { data: ids.as_bytes().clone(), id_width: ids.width().bytes() as u32 })
        }
    })
}

/// Converts a stored value to the value of the extra field `field` of a record with `tokens` ids.
fn extra_value(field: &Field, found: Option<Extra>, tokens: usize) -> Result<Value, String> {
    let Some(found) = found else { return Ok(Value::Null) };
    let ty = extra_type(&found)?;
    // The message does not distinguish masks from other images.
    let is_mask = ty == FieldType::Image && field.ty == FieldType::Mask;
    if ty != field.ty && !is_mask {
        return Err(format!("field {:?} must be {}, not {}", field.name, field.ty.name(), ty.name()));
    }
    Ok(match found {
        Extra::StringValue(s) | Extra::JsonValue(s) => Value::Text(Text::from(s)),
        Extra::BinaryValue(b)
        | Extra::ImageValue(b)
        | Extra::BoxesValue(b)
        | Extra::BoxLabelsValue(b)
        | Extra::BoxIntsValue(b)
        | Extra::Int32PairValue(b) => Value::Bytes(b),
        Extra::BoolValue(b) => Value::Bool(b),
        Extra::Int32Value(i) => Value::Int(i.into()),
        Extra::Int64Value(i) | Extra::LabelValue(i) => Value::Int(i),
        Extra::Uint32Value(u) => Value::UInt(u.into()),
        Extra::Uint64Value(u) => Value::UInt(u),
        Extra::Float32Value(x) => Value::Float(x.into()),
        Extra::Float64Value(x) => Value::Float(x),
        Extra::IdsValue(list) => ids(list.data, list.id_width)?,
        Extra::FlagsValue(runs) => Value::Bytes(from_runs(&runs, tokens)?.into()),
    })
}

/// Returns the field type of a stored value.
fn extra_type(value: &Extra) -> Result<FieldType, String> {
    Ok(match value {
        Extra::StringValue(_) => FieldType::String,
        Extra::BinaryValue(_) => FieldType::Binary,
        Extra::JsonValue(_) => FieldType::Json,
        Extra::BoolValue(_) => FieldType::Bool,
        Extra::Int32Value(_) => FieldType::Int32,
        Extra::Int64Value(_) => FieldType::Int64,
        Extra::Uint32Value(_) => FieldType::UInt32,
        Extra::Uint64Value(_) => FieldType::UInt64,
        Extra::Float32Value(_) => FieldType::Float32,
        Extra::Float64Value(_) => FieldType::Float64,
        Extra::ImageValue(_) => FieldType::Image,
        Extra::LabelValue(_) => FieldType::Label,
        Extra::IdsValue(list) => FieldType::ids(width(list.id_width)?),
        Extra::FlagsValue(_) => FieldType::Flags,
        Extra::BoxesValue(_) => FieldType::Boxes,
        Extra::BoxLabelsValue(_) => FieldType::BoxLabels,
        Extra::BoxIntsValue(_) => FieldType::BoxInts,
        Extra::Int32PairValue(_) => FieldType::Int32Pair,
    })
}

/// Returns the width for ids of `bytes` bytes each.
fn width(bytes: u32) -> Result<IdWidth, String> {
    IdWidth::from_bytes(bytes.into()).ok_or_else(|| format!("unsupported id width of {bytes} bytes"))
}

/// Creates a list of ids from little-endian `bytes`.
fn ids(bytes: Bytes, id_width: u32) -> Result<Value, String> {
    let partial = || "the id list ends in the middle of an id".to_owned();
    Ids::new(width(id_width)?, bytes).map(Value::Ids).ok_or_else(partial)
}

/// Returns whether the shard starts with a valid protobuf record.
pub(super) fn sniff(blob: &Blob) -> bool {
    frames(blob, shape).next().is_some_and(|first| first.is_ok())
}

/// What one record reveals about the schema.
struct InferredShape {
    /// Kind of the dataset.
    kind: Kind,
    /// Size of a token id, if there are some.
    ids: IdWidth,
    /// Whether an image has a label.
    label: bool,
    /// Name and type of each extra field. The type is `None` if the value is null.
    extra: Vec<(String, Option<FieldType>)>,
}

/// Infers the schema from the records. A field that is always null is inferred as string, and all fields that are not
/// built in as nullable. Class names are not stored in the shard.
pub(super) fn infer_schema(blob: &Blob) -> Result<Schema> {
    let mut inferred: Option<InferredShape> = None;
    for shape in frames(blob, shape) {
        let (placed, shape) = shape?;
        let Some(inferred) = &mut inferred else {
            inferred = Some(shape);
            continue;
        };
        if inferred.extra.len() != shape.extra.len() {
            let why = "the record and the first record differ in their number of fields";
            return Err(Fault::bad(0, why).into_error(blob, placed.position));
        }
        if inferred.kind != shape.kind {
            let why = "the record and the first record are of different kinds";
            return Err(Fault::bad(0, why).into_error(blob, placed.position));
        }
        inferred.label |= shape.label;
        for ((_, inferred), (_, ty)) in inferred.extra.iter_mut().zip(shape.extra) {
            *inferred = inferred.or(ty);
        }
    }
    let Some(InferredShape { kind, ids, label, extra }) = inferred else {
        return Err(Error::corrupt("the schema of an empty shard cannot be inferred").at_path(blob.path()));
    };
    let extra = extra.into_iter().map(|(name, ty)| {
        let ty = ty.unwrap_or(FieldType::String);
        Field { name, ty, nullable: ty != FieldType::Flags }
    });
    match kind {
        Kind::Images => Schema::images(label.then(Vec::new), extra.collect()),
        Kind::Text => Schema::text(ids, extra.collect()),
        Kind::Records => Schema::records(extra.collect()),
    }
}

/// Reads a record without a schema.
fn shape(bytes: &Bytes) -> Result<(InferredShape, usize), Fault> {
    let (prefix, message) = message(bytes, MAX_INFERRED_FIELDS)?;
    let size = prefix + message.encoded_len();
    let bad = |why: String| Fault::bad(prefix, why);
    let mut extra = Vec::with_capacity(message.extra.len());
    for field in message.extra {
        let ty = field.value.as_ref().map(extra_type).transpose().map_err(bad)?;
        extra.push((field.name, ty));
    }
    let (kind, ids, label) = match message.payload {
        Some(Payload::Image(image)) => (Kind::Images, IdWidth::U16, image.label.is_some()),
        Some(Payload::Text(text)) => (Kind::Text, width(text.id_width).map_err(bad)?, false),
        // Nothing else shows that these bytes are a record.
        None if !message.origin.is_empty() || extra.is_empty() => {
            return Err(bad("the record has neither an image nor text".to_owned()));
        }
        None => (Kind::Records, IdWidth::U16, false),
    };
    Ok((InferredShape { kind, ids, label, extra }, size))
}

#[cfg(test)]
mod tests {
    use super::super::examples::{self, check_beginnings, check_runs, frame};
    use super::*;

    #[test]
    fn the_bytes_of_a_record_never_change() {
        let expected: &[&[u8]] =
            &[&[22], b"\x0a\x01a", b"\x1a\x0a\x0a\x04\x07\x00\x02\x01\x10\x02\x18\x02", b"\x22\x05t.txt"];
        assert_eq!(frame::<Protobuf>(examples::text()), expected.concat());
        check_beginnings::<Protobuf>(examples::text());
    }

    #[test]
    fn the_bytes_of_flags_never_change() {
        let frame = frame::<Protobuf>(examples::flags());
        let flags = b"\x2a\x1b\x0a\x0fassistant_masks\x7a\x08\x01\0\0\0\x01\0\0\0";
        assert_eq!((frame[0], frame.ends_with(flags)), (0x33, true), "{frame:x?}");
        check_runs::<Protobuf>();
    }

    #[test]
    fn the_bytes_of_boxes_never_change() {
        let frame = frame::<Protobuf>(examples::boxes());
        let lists: &[&[u8]] = &[
            b"\x2a\x1a\x0a\x05boxes\x82\x01\x10\0\0\0\0\0\0\0\x3f\0\0\x80\x3f\0\0\xc0\x3f",
            b"\x2a\x13\x0a\x06labels\x8a\x01\x08\x02\0\0\0\0\0\0\0",
            b"\x2a\x14\x0a\x07iscrowd\x92\x01\x08\xff\xff\xff\xff\xff\xff\xff\xff",
        ];
        assert!(frame.ends_with(&lists.concat()), "{frame:x?}");
    }

    #[test]
    fn the_bytes_of_pairs_never_change() {
        let frame = frame::<Protobuf>(examples::pairs(Value::Null));
        assert!(
            frame.ends_with(b"\x2a\x11\x0a\x04size\x9a\x01\x08\xe0\x01\0\0\x80\x02\0\0\x2a\x04\x0a\x02at"),
            "{frame:x?}"
        );
    }

    #[test]
    fn only_the_canonical_form_of_a_record_is_read() {
        let schema = Arc::new(Schema::text(IdWidth::U16, vec![]).unwrap());
        let codec = Protobuf::new(schema).unwrap();
        let read = |message: &[u8]| {
            let mut frame = vec![message.len() as u8];
            frame.extend_from_slice(message);
            codec.decode(&frame.into()).map(|_| ())
        };
        assert_eq!(read(b"\x0a\x01a\x1a\x02\x10\x02"), Ok(()));
        let others: [&[u8]; 7] = [
            b"\x0a\x01a",                                  // no payload
            b"\x0a\x01a\x1a\x02\x10\x03",                  // ids of three bytes
            b"\x0a\x01a\x1a\x03\x10\x82\x00",              // an overlong varint
            b"\x0a\x01a\x0a\x01b\x1a\x02\x10\x02",         // a repeated field
            b"\x0a\x01a\x1a\x04\x10\x02\x20\x01",          // an unknown field of the text
            b"\x0a\x01a\x1a\x02\x10\x02\x30\x01",          // an unknown field of the record
            b"\x0a\x01a\x1a\x02\x10\x02\x2a\x03\x0a\x01x", // a field that the schema lacks
        ];
        for message in others {
            assert!(matches!(read(message), Err(Fault::Bad { .. })), "{message:x?}");
        }
        let codec_reads = |frame: &'static [u8]| codec.decode(&Bytes::from_static(frame)).map(|_| ());
        assert!(matches!(codec_reads(b"\xff\xff\xff\xff\x0f"), Err(Fault::Bad { .. })));
        assert!(matches!(codec_reads(b"\x80\x00"), Err(Fault::Bad { .. })));
        assert_eq!(codec_reads(b"\xff"), Err(Fault::Short));
    }
}
