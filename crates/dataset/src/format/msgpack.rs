//! MessagePack shards: concatenated maps, readable by any streaming unpacker.
//!
//! All maps have the same keys in schema order, encoded identically, so a reader compares keys as bytes. Numbers are
//! written at the full width of their type: the bytes alone determine the schema, and a larger number does not shift
//! the following records.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use rmp::Marker;
use rmp::encode as put;

use super::check;
use super::frames::{Fault, FrameCodec, frames};
use super::runs::{from_runs, to_runs};
use crate::error::{Error, Result};
use crate::sample::{Ids, Record, Text, Value};
use crate::schema::{ASSISTANT_MASKS, Field, FieldType, IMAGE, INPUT_IDS, IdWidth, KEY, Kind, LABEL, Schema};
use crate::storage::Blob;

/// Key next to `input_ids` that stores the bytes per id. For any other list of ids, `x`, the key is `x_id_width`.
const ID_WIDTH: &str = "id_width";

/// Returns the key that stores the id width of the list `name`.
fn width_key(name: &str) -> String {
    if name == INPUT_IDS { ID_WIDTH.to_owned() } else { format!("{name}_{ID_WIDTH}") }
}

/// MessagePack codec, with the bytes that are identical in every record.
pub(super) struct Msgpack {
    schema: Arc<Schema>,
    /// Header of the map.
    head: Vec<u8>,
    /// For each field, the bytes before its value (its encoded key) and after it (for ids, the key and value of the id
    /// width).
    around: Vec<(Vec<u8>, Vec<u8>)>,
}

impl FrameCodec for Msgpack {
    const LENDS: bool = true;

    fn new(schema: Arc<Schema>) -> Result<Self> {
        let mut around = Vec::with_capacity(schema.fields.len());
        let mut keys = schema.fields.len();
        for field in &schema.fields {
            let mut key = Vec::new();
            let mut after = Vec::new();
            put::write_str(&mut key, &field.name).map_err(encode_error)?;
            if let Some(width) = field.ty.id_width() {
                let name = width_key(&field.name);
                if schema.index_of(&name).is_some() {
                    return Err(Error::usage(format!(
                        "the field name {name:?} is reserved in msgpack records"
                    ))
                    .help("rename or drop this field, or choose another format"));
                }
                keys += 1;
                put::write_str(&mut after, &name).map_err(encode_error)?;
                put::write_uint(&mut after, width.bytes() as u64).map_err(encode_error)?;
            }
            around.push((key, after));
        }
        let keys = u32::try_from(keys).map_err(|_| Error::usage("the schema has too many fields"))?;
        let mut head = Vec::new();
        put::write_map_len(&mut head, keys).map_err(encode_error)?;
        Ok(Self { schema, head, around })
    }

    fn encode(&self, record: &Record, frame: &mut Vec<u8>) -> Result<()> {
        frame.extend_from_slice(&self.head);
        for ((field, (key, after)), value) in self.schema.fields.iter().zip(&self.around).zip(&record.values)
        {
            if matches!(value, Value::Array(_) | Value::Texts(_) | Value::Files(_)) {
                return Err(Error::internal("an array in a msgpack record"));
            }
            frame.extend_from_slice(key);
            encode_value(field.ty, value, frame).map_err(encode_error)?;
            frame.extend_from_slice(after);
        }
        Ok(())
    }

    fn decode(&self, bytes: &Bytes) -> Result<(Record, usize), Fault> {
        let mut values = Vec::with_capacity(self.schema.fields.len());
        let size = self.values(bytes, |range| bytes.slice(range), |flags| Some(flags.into()), &mut values)?;
        Ok((Record { values }, size))
    }

    fn lend<'a>(&self, bytes: &'a [u8], values: &mut Vec<Value<&'a [u8]>>) -> Option<usize> {
        // Flags are not stored as they are returned.
        if self.schema.aligned().next().is_some() {
            return None;
        }
        // The cursor never requests a range out of bounds.
        self.values(bytes, |range| bytes.get(range).unwrap_or_default(), |_| None, values).ok()
    }
}

impl Msgpack {
    /// Decodes the frame at the start of `bytes`: appends its values to `values` and returns its size. `cut` returns a
    /// range of `bytes`; `own` holds bytes that are not stored as such, if that is possible.
    fn values<B: AsRef<[u8]>>(
        &self,
        bytes: &[u8],
        cut: impl Fn(Range<usize>) -> B,
        own: impl Fn(Vec<u8>) -> Option<B>,
        values: &mut Vec<Value<B>>,
    ) -> Result<usize, Fault> {
        let first = values.len();
        let mut cursor = Cursor { bytes, at: 0, cut };
        if !cursor.skip(&self.head)? {
            return Err(Fault::bad(0, "expected a record, which is a map with one key per field"));
        }
        for (field, (key, after)) in self.schema.fields.iter().zip(&self.around) {
            let at = cursor.at;
            if !cursor.skip(key)? {
                return Err(Fault::bad(at, format!("expected the key {:?}", field.name)));
            }
            let at = cursor.at;
            let mut value = cursor.value(field)?;
            if let (FieldType::Flags, Value::Bytes(runs)) = (field.ty, &value) {
                // The ids come first in every schema.
                let ids = self.schema.payload_field().and_then(|ids| values.get(first + ids));
                let tokens = if let Some(Value::Ids(ids)) = ids { ids.len() } else { 0 };
                let flags = from_runs(runs.as_ref(), tokens).map_err(|why| Fault::bad(at, why))?;
                value = own(flags).map(Value::Bytes).ok_or_else(|| Fault::bad(at, "flags are not lent"))?;
            }
            check::value(&self.schema, field, &value).map_err(|why| Fault::bad(at, why))?;
            values.push(value);
            let at = cursor.at;
            if !cursor.skip(after)? {
                return Err(Fault::bad(at, format!("expected the id width of field {:?}", field.name)));
            }
        }
        Ok(cursor.at)
    }
}

fn encode_value(ty: FieldType, value: &Value, out: &mut Vec<u8>) -> Result<(), put::ValueWriteError> {
    match value {
        Value::Null => put::write_nil(out).map_err(put::ValueWriteError::InvalidMarkerWrite)?,
        Value::Bool(b) => put::write_bool(out, *b).map_err(put::ValueWriteError::InvalidMarkerWrite)?,
        // The ranges were checked, so these casts are lossless.
        Value::Int(i) if ty == FieldType::Int32 => put::write_i32(out, *i as i32)?,
        Value::Int(i) => put::write_i64(out, *i)?,
        Value::UInt(u) if ty == FieldType::UInt32 => put::write_u32(out, *u as u32)?,
        Value::UInt(u) => put::write_u64(out, *u)?,
        Value::Float(x) if ty == FieldType::Float32 => put::write_f32(out, *x as f32)?,
        Value::Float(x) => put::write_f64(out, *x)?,
        Value::Text(t) => put::write_str(out, t.as_str())?,
        Value::Bytes(flags) if ty == FieldType::Flags => put::write_bin(out, &to_runs(flags))?,
        Value::Bytes(b) => put::write_bin(out, b)?,
        Value::Ids(ids) => put::write_bin(out, ids.as_bytes())?,
        // Such a field is refused.
        Value::Array(_) | Value::Texts(_) | Value::Files(_) => {}
    }
    Ok(())
}

/// Converts an encoding error. Writing to memory fails only for lengths that exceed 32 bits.
fn encode_error(e: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::internal("the record cannot be written as msgpack").caused_by(e)
}

/// Reads MessagePack values as views. Allocates nothing and checks every length against the available bytes.
struct Cursor<'a, C> {
    bytes: &'a [u8],
    at: usize,
    cut: C,
}

impl<B: AsRef<[u8]>, C: Fn(Range<usize>) -> B> Cursor<'_, C> {
    /// Skips `expected`; returns `false` if other bytes are found.
    fn skip(&mut self, expected: &[u8]) -> Result<bool, Fault> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if rest.starts_with(expected) {
            self.at += expected.len();
            return Ok(true);
        }
        if expected.starts_with(rest) { Err(Fault::Short) } else { Ok(false) }
    }

    fn take(&mut self, len: usize) -> Result<B, Fault> {
        let end = self.at.checked_add(len).filter(|&end| end <= self.bytes.len()).ok_or(Fault::Short)?;
        let taken = (self.cut)(self.at..end);
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let found = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk::<N>()).ok_or(Fault::Short)?;
        self.at += N;
        Ok(*found)
    }

    fn marker(&mut self) -> Result<Marker, Fault> {
        Ok(Marker::from_u8(self.array::<1>()?[0]))
    }

    /// Reads the payload of a string or byte string whose marker is `marker`.
    fn payload(&mut self, marker: Marker) -> Result<Option<B>, Fault> {
        let len = match marker {
            Marker::FixStr(len) => u32::from(len),
            Marker::Str8 | Marker::Bin8 => u32::from(self.array::<1>()?[0]),
            Marker::Str16 | Marker::Bin16 => u32::from(u16::from_be_bytes(self.array()?)),
            Marker::Str32 | Marker::Bin32 => u32::from_be_bytes(self.array()?),
            _ => return Ok(None),
        };
        let len = usize::try_from(len).map_err(|_| Fault::Short)?;
        self.take(len).map(Some)
    }

    fn text(&mut self, marker: Marker) -> Result<Option<Text<B>>, Fault> {
        let at = self.at;
        if !is_str(marker) {
            return Ok(None);
        }
        let Some(bytes) = self.payload(marker)? else { return Ok(None) };
        Text::new(bytes).map(Some).map_err(|_| Fault::bad(at, "the text is not UTF-8"))
    }

    /// Reads the value of `field`, which must have the type of the field or be nil.
    fn value(&mut self, field: &Field) -> Result<Value<B>, Fault> {
        let at = self.at;
        let wrong = |marker: Marker| {
            Fault::bad(at, format!("field {:?} must be {}, not {marker:?}", field.name, field.ty.name()))
        };
        let marker = self.marker()?;
        Ok(match (field.ty, marker) {
            (_, Marker::Null) => Value::Null,
            (FieldType::Bool, Marker::True) => Value::Bool(true),
            (FieldType::Bool, Marker::False) => Value::Bool(false),
            (FieldType::Int32, Marker::I32) => Value::Int(i32::from_be_bytes(self.array()?).into()),
            (FieldType::Int64 | FieldType::Label, Marker::I64) => {
                Value::Int(i64::from_be_bytes(self.array()?))
            }
            (FieldType::UInt32, Marker::U32) => Value::UInt(u32::from_be_bytes(self.array()?).into()),
            (FieldType::UInt64, Marker::U64) => Value::UInt(u64::from_be_bytes(self.array()?)),
            (FieldType::Float32, Marker::F32) => Value::Float(f32::from_be_bytes(self.array()?).into()),
            (FieldType::Float64, Marker::F64) => Value::Float(f64::from_be_bytes(self.array()?)),
            (FieldType::String | FieldType::Json, _) => {
                Value::Text(self.text(marker)?.ok_or_else(|| wrong(marker))?)
            }
            (ty, Marker::Bin8 | Marker::Bin16 | Marker::Bin32)
                if ty == FieldType::Binary || ty.is_image_file() || ty.list_items().is_some() =>
            {
                let bytes = self.payload(marker)?.ok_or_else(|| wrong(marker))?;
                let partial = || Fault::bad(at, "the id list ends in the middle of an id");
                match ty.id_width() {
                    Some(width) => Value::Ids(Ids::new(width, bytes).ok_or_else(partial)?),
                    None => Value::Bytes(bytes),
                }
            }
            _ => return Err(wrong(marker)),
        })
    }
}

fn is_str(marker: Marker) -> bool {
    matches!(marker, Marker::FixStr(_) | Marker::Str8 | Marker::Str16 | Marker::Str32)
}

/// Returns whether `head` starts like a MessagePack record: a map whose first key is `key`.
pub(super) fn sniff(head: &[u8]) -> bool {
    let rest = match head {
        [0x80..=0x8f, rest @ ..] | [0xde, _, _, rest @ ..] | [0xdf, _, _, _, _, rest @ ..] => rest,
        _ => return false,
    };
    rest.strip_prefix(&[0xa0 | KEY.len() as u8]).is_some_and(|rest| rest.starts_with(KEY.as_bytes()))
}

/// Name and type of each field, as observed in one record. The type is `None` if the value is null.
type RecordShape = Vec<(String, Option<FieldType>)>;

/// Infers the schema from the records. Names distinguish types that share an encoding (`image`, `label`,
/// `assistant_masks`). JSON fields and fields that are always null are inferred as string, and all fields that are not built in as nullable. Class
/// names are not stored in the shard.
pub(super) fn infer_schema(blob: &Blob) -> Result<Schema> {
    let mut inferred: RecordShape = Vec::new();
    for shape in frames(blob, shape) {
        let (placed, shape) = shape?;
        if inferred.is_empty() {
            inferred = shape;
        } else if inferred.len() == shape.len() {
            for ((_, inferred), (_, ty)) in inferred.iter_mut().zip(shape) {
                *inferred = inferred.or(ty);
            }
        } else {
            let why = "the record and the first record differ in their number of fields";
            return Err(Fault::bad(0, why).into_error(blob, placed.position));
        }
        if inferred.iter().all(|(_, ty)| ty.is_some()) {
            break;
        }
    }
    if inferred.is_empty() {
        return Err(Error::corrupt("the schema of an empty shard cannot be inferred").at_path(blob.path()));
    }
    // The kind whose built-in fields are the first ones: records of any kind have only the first of them.
    let has = |kind: &Kind| {
        let built_in = kind.layout().built_in;
        built_in.iter().all(|built_in| inferred.iter().any(|(name, _)| name == built_in))
    };
    let kind = [Kind::Text, Kind::Images].into_iter().find(has).unwrap_or(Kind::Records);
    let mut schema = Schema { kind, fields: Vec::new(), class_names: Vec::new(), indexed: Vec::new() };
    for (name, ty) in inferred {
        let ty = match ty {
            Some(FieldType::Int64) | None if schema.holds_images() && name == LABEL => FieldType::Label,
            Some(FieldType::Binary) if schema.holds_images() && name == IMAGE => FieldType::Image,
            Some(FieldType::Binary) if schema.holds_token_ids() && name == ASSISTANT_MASKS => {
                FieldType::Flags
            }
            other => other.unwrap_or(FieldType::String),
        };
        // Fields that every record has are required.
        let nullable = ty != FieldType::Flags && !schema.layout().built_in.contains(&name.as_str());
        schema.fields.push(Field { name, ty, nullable });
    }
    schema.checked_as_read()
}

/// Reads a record without a schema.
fn shape(bytes: &Bytes) -> Result<(RecordShape, usize), Fault> {
    let mut cursor = Cursor { bytes, at: 0, cut: |range| bytes.slice(range) };
    let keys = match cursor.marker()? {
        Marker::FixMap(keys) => u32::from(keys),
        Marker::Map16 => u32::from(u16::from_be_bytes(cursor.array()?)),
        Marker::Map32 => u32::from_be_bytes(cursor.array()?),
        _ => return Err(Fault::bad(0, "expected a record, which is a map")),
    };
    let mut shape: RecordShape = Vec::new();
    for _ in 0..keys {
        let at = cursor.at;
        let marker = cursor.marker()?;
        let name = cursor.text(marker)?.ok_or_else(|| Fault::bad(at, "expected a key, which is a string"))?;
        let at = cursor.at;
        let ty = match cursor.marker()? {
            Marker::Null => None,
            Marker::True | Marker::False => Some(FieldType::Bool),
            Marker::I32 => cursor.array::<4>().map(|_| Some(FieldType::Int32))?,
            Marker::I64 => cursor.array::<8>().map(|_| Some(FieldType::Int64))?,
            Marker::U32 => cursor.array::<4>().map(|_| Some(FieldType::UInt32))?,
            Marker::U64 => cursor.array::<8>().map(|_| Some(FieldType::UInt64))?,
            Marker::F32 => cursor.array::<4>().map(|_| Some(FieldType::Float32))?,
            Marker::F64 => cursor.array::<8>().map(|_| Some(FieldType::Float64))?,
            Marker::FixPos(width) => {
                let ids = shape.last_mut().filter(|(last, _)| width_key(last) == name.as_str());
                let width = IdWidth::from_bytes(width.into());
                let (Some((_, ty)), Some(width)) = (ids, width) else {
                    return Err(Fault::bad(at, "a one-byte integer that is not an id width"));
                };
                *ty = Some(FieldType::ids(width));
                continue;
            }
            marker => {
                cursor.payload(marker)?.ok_or_else(|| {
                    Fault::bad(at, format!("unexpected {marker:?}: no field has this type"))
                })?;
                Some(if is_str(marker) { FieldType::String } else { FieldType::Binary })
            }
        };
        shape.push((name.as_str().to_owned(), ty));
    }
    Ok((shape, cursor.at))
}

#[cfg(test)]
mod tests {
    use super::super::examples::{self, check_beginnings, check_runs, frame};
    use super::*;
    use crate::sample::pack_pair;

    #[test]
    fn the_bytes_of_a_record_never_change() {
        let expected: &[&[u8]] = &[
            &[0x85],
            b"\xa3key\xa1a",
            b"\xa9input_ids\xc4\x04\x07\x00\x02\x01",
            b"\xa8id_width\x02",
            b"\xa6length\xce\x00\x00\x00\x02",
            b"\xa6origin\xa5t.txt",
        ];
        assert_eq!(frame::<Msgpack>(examples::text()), expected.concat());
        check_beginnings::<Msgpack>(examples::text());
    }

    #[test]
    fn the_bytes_of_flags_never_change() {
        let frame = frame::<Msgpack>(examples::flags());
        let flags = b"\xafassistant_masks\xc4\x08\x01\0\0\0\x01\0\0\0";
        assert_eq!((frame[0], frame.ends_with(flags)), (0x86, true), "{frame:x?}");
        let codec = Msgpack::new(examples::flags().0).unwrap();
        assert_eq!(codec.lend(&frame, &mut Vec::new()), None, "flags are not stored as they are returned");
        check_beginnings::<Msgpack>(examples::flags());
        check_runs::<Msgpack>();
    }

    #[test]
    fn the_bytes_of_boxes_never_change() {
        let frame = frame::<Msgpack>(examples::boxes());
        let lists: &[&[u8]] = &[
            b"\xa5boxes\xc4\x10\0\0\0\0\0\0\0\x3f\0\0\x80\x3f\0\0\xc0\x3f",
            b"\xa6labels\xc4\x08\x02\0\0\0\0\0\0\0",
            b"\xa7iscrowd\xc4\x08\xff\xff\xff\xff\xff\xff\xff\xff",
        ];
        assert!(frame.ends_with(&lists.concat()), "{frame:x?}");
    }

    #[test]
    fn the_bytes_of_pairs_never_change() {
        for (second, end) in [
            (Value::Bytes(pack_pair([-1, 2])), &b"\xa2at\xc4\x08\xff\xff\xff\xff\x02\0\0\0"[..]),
            (Value::Null, b"\xa2at\xc0"),
        ] {
            let frame = frame::<Msgpack>(examples::pairs(second));
            let pairs = [b"\xa4size\xc4\x08\xe0\x01\0\0\x80\x02\0\0", end].concat();
            assert!(frame.ends_with(&pairs), "{frame:x?}");
        }
    }

    #[test]
    fn field_names_must_not_collide_with_id_width_keys() {
        let extra = |names: &[&str]| names.iter().map(|n| Field::nullable(n, FieldType::IdsU32)).collect();
        let text = |names: &[&str]| Msgpack::new(Arc::new(Schema::text(IdWidth::U16, extra(names)).unwrap()));
        assert!(text(&["cu_seqlens"]).is_ok());
        assert!(text(&["id_width"]).is_err());
        assert!(text(&["cu_seqlens", "cu_seqlens_id_width"]).is_err());
    }
}
