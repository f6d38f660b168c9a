//! Schema inference for MessagePack shards.

use bytes::Bytes;
use rmp::Marker;

use super::{Cursor, is_str, width_key};
use crate::error::{Error, Result};
use crate::format::frames::{Fault, frames};
use crate::schema::{ASSISTANT_MASKS, Field, FieldType, IMAGE, IdWidth, KEY, Kind, LABEL, Schema};
use crate::storage::Blob;

/// Returns whether `head` starts like a MessagePack record: a map whose first key is `key`.
pub(in crate::format) fn sniff(head: &[u8]) -> bool {
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
pub(in crate::format) fn infer_schema(blob: &Blob) -> Result<Schema> {
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
    let kind = Kind::of_fields(|payload| inferred.iter().any(|(name, _)| name == payload));
    let mut schema = Schema { kind, fields: Vec::new(), class_names: Vec::new() };
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
        let nullable = ty != FieldType::Flags && schema.layout().built_in().all(|built_in| built_in != name);
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
