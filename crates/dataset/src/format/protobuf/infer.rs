//! Schema inference for protobuf shards.

use bytes::Bytes;
use prost::Message;

use super::extra::{extra_type, width};
use super::message;
use super::proto::record::Payload;
use crate::error::{Error, Result};
use crate::format::frames::{Fault, frames};
use crate::schema::{Field, FieldType, IdWidth, Schema};
use crate::storage::Blob;

/// Maximum fields of a record with an unknown schema.
const MAX_INFERRED_FIELDS: usize = 4096;

/// Returns whether the shard starts with a valid protobuf record.
pub(in crate::format) fn sniff(blob: &Blob) -> bool {
    frames(blob, shape).next().is_some_and(|first| first.is_ok())
}

/// What one record reveals about the schema.
struct InferredShape {
    /// Size of a token id; `None` if the records are images.
    ids: Option<IdWidth>,
    /// Whether an image has a label.
    label: bool,
    /// Name and type of each extra field. The type is `None` if the value is null.
    extra: Vec<(String, Option<FieldType>)>,
}

/// Infers the schema from the records. A field that is always null is inferred as string, and all fields that are not
/// built in as nullable. Class names are not stored in the shard.
pub(in crate::format) fn infer_schema(blob: &Blob) -> Result<Schema> {
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
        inferred.label |= shape.label;
        for ((_, inferred), (_, ty)) in inferred.extra.iter_mut().zip(shape.extra) {
            *inferred = inferred.or(ty);
        }
    }
    let Some(InferredShape { ids, label, extra }) = inferred else {
        return Err(Error::corrupt("the schema of an empty shard cannot be inferred").at_path(blob.path()));
    };
    let extra = extra.into_iter().map(|(name, ty)| {
        let ty = ty.unwrap_or(FieldType::String);
        Field { name, ty, nullable: ty != FieldType::Flags }
    });
    match ids {
        None => Schema::images(label.then(Vec::new), extra.collect()),
        Some(width) => Schema::text(width, extra.collect()),
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
    let (ids, label) = match message.payload {
        Some(Payload::Image(image)) => (None, image.label.is_some()),
        Some(Payload::Text(text)) => (Some(width(text.id_width).map_err(bad)?), false),
        None => return Err(bad("the record has neither an image nor text".to_owned())),
    };
    Ok((InferredShape { ids, label, extra }, size))
}
