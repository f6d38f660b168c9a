//! Fields of a protobuf record that are not built in (extra fields).

use bytes::Bytes;

use super::proto;
use super::proto::field::Value as Extra;
use crate::sample::{Ids, Text, Value, from_runs, to_runs};
use crate::schema::{Field, FieldType, IdWidth};

/// Converts the value of an extra field to its stored form; `None` if it is null.
pub(super) fn extra(ty: FieldType, value: &Value) -> Option<Extra> {
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
        (_, Value::Ids(ids)) => {
            Extra::IdsValue(proto::Ids { data: ids.as_bytes().clone(), id_width: ids.width().bytes() as u32 })
        }
    })
}

/// Converts a stored value to the value of the extra field `field` of a record with `tokens` ids.
pub(super) fn extra_value(field: &Field, found: Option<Extra>, tokens: usize) -> Result<Value, String> {
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
pub(super) fn extra_type(value: &Extra) -> Result<FieldType, String> {
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
pub(super) fn width(bytes: u32) -> Result<IdWidth, String> {
    IdWidth::from_bytes(bytes.into()).ok_or_else(|| format!("unsupported id width of {bytes} bytes"))
}

/// Creates a list of ids from little-endian `bytes`.
pub(super) fn ids(bytes: Bytes, id_width: u32) -> Result<Value, String> {
    let partial = || "the id list ends in the middle of an id".to_owned();
    Ids::new(width(id_width)?, bytes).map(Value::Ids).ok_or_else(partial)
}
