//! Schema inference for protobuf shards.

use bytes::Bytes;
use prost::Message;

use super::extra::{extra_type, width};
use super::message;
use super::proto::record::Payload;
use crate::error::{Error, Result};
use crate::format::frames::{Fault, frames};
use crate::schema::{Field, FieldType, IdWidth, Kind, Schema};
use crate::storage::Blob;

/// Maximum fields of a record with an unknown schema.
const MAX_INFERRED_FIELDS: usize = 4096;

/// Returns whether the shard starts with a valid protobuf record.
pub(in crate::format) fn sniff(blob: &Blob) -> bool {
    frames(blob, shape).next().is_some_and(|first| first.is_ok())
}

/// Kind of a record, the type of its ids or whether it has a label, and its extra fields.
struct InferredShape {
    kind: Kind,
    ids: FieldType,
    label: bool,
    extra: Vec<(String, Option<FieldType>)>,
}

/// Infers the schema from the records. A field that is always null is inferred as string, and all fields that are not
/// built in as nullable. Class names are not stored in the shard.
pub(in crate::format) fn infer_schema(blob: &Blob) -> Result<Schema> {
    let mut told: Option<InferredShape> = None;
    for shape in frames(blob, shape) {
        let (placed, shape) = shape?;
        let Some(told) = &mut told else {
            told = Some(shape);
            continue;
        };
        if told.extra.len() != shape.extra.len() {
            let why = "a record with another number of fields than the first";
            return Err(Fault::bad(0, why).into_error(blob, placed.position));
        }
        told.label |= shape.label;
        for ((_, told), (_, ty)) in told.extra.iter_mut().zip(shape.extra) {
            *told = told.or(ty);
        }
    }
    let Some(InferredShape { kind, ids, label, extra }) = told else {
        return Err(Error::corrupt("an empty shard does not tell its schema").at_path(blob.path()));
    };
    let extra = extra.into_iter().map(|(name, ty)| Field {
        name,
        ty: ty.unwrap_or(FieldType::String),
        nullable: true,
    });
    match kind {
        Kind::Images => Schema::images(label.then(Vec::new), extra.collect()),
        Kind::Text => Schema::text(ids.id_width().unwrap_or(IdWidth::U32), extra.collect()),
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
        Some(Payload::Image(image)) => (Kind::Images, FieldType::IdsU32, image.label.is_some()),
        Some(Payload::Text(text)) => (Kind::Text, FieldType::ids(width(text.id_width).map_err(bad)?), false),
        None => return Err(bad("a record without image or text".to_owned())),
    };
    Ok((InferredShape { kind, ids, label, extra }, size))
}
