//! Checks that values fit their fields, for each record before it is written and for each value read.

use std::borrow::Cow;

use crate::error::{Error, Result};
use crate::sample::{Record, Value, check_aligned, check_per_box};
use crate::schema::{Field, FieldType, MAX_RECORD_BYTES, Schema};

/// Checks `record` against `schema`, as every writer of shards does, and returns its canonical size in bytes.
///
/// # Errors
///
/// [`ErrorKind::Usage`](crate::error::ErrorKind) if a value does not fit its field, or if the record is larger than
/// [`MAX_RECORD_BYTES`].
pub fn record(schema: &Schema, record: &Record) -> Result<u64> {
    if record.values.len() != schema.fields.len() {
        return Err(Error::usage(format!(
            "the record has {} values, but its schema has {} fields",
            record.values.len(),
            schema.fields.len()
        )));
    }
    for (field, value) in schema.fields.iter().zip(&record.values) {
        if let Err(why) = self::value(schema, field, value) {
            return Err(Error::usage(why));
        }
    }
    check_aligned(schema, &record.values).map_err(Error::usage)?;
    check_per_box(schema, &record.values).map_err(Error::usage)?;
    let bytes = record.canonical_size();
    if bytes > MAX_RECORD_BYTES {
        return Err(Error::usage(format!(
            "the record has {bytes} bytes, but the limit is {MAX_RECORD_BYTES}"
        ))
        .help("split the item into smaller ones"));
    }
    Ok(bytes)
}

/// Checks that `field` of `schema` can hold `value`. The error is one sentence that names the field.
pub(super) fn value<B: AsRef<[u8]>>(schema: &Schema, field: &Field, value: &Value<B>) -> Result<(), String> {
    let has_class = |class| is_class(schema, class);
    let mut unfit: Option<Cow<'static, str>> = None;
    let fits = match (field.ty, value) {
        (_, Value::Null) => field.nullable,
        (FieldType::String | FieldType::Json, Value::Text(_)) | (FieldType::Texts, Value::Texts(_)) => true,
        (FieldType::Images, Value::Files(_)) => true,
        (FieldType::Binary | FieldType::Image | FieldType::Mask, Value::Bytes(_)) => true,
        (FieldType::Bool, Value::Bool(_)) => true,
        (FieldType::Int32, Value::Int(i)) => i32::try_from(*i).is_ok(),
        (FieldType::Int64, Value::Int(_)) => true,
        (FieldType::Label, Value::Int(i)) => usize::try_from(*i).is_ok_and(has_class),
        (FieldType::UInt32, Value::UInt(u)) => u32::try_from(*u).is_ok(),
        (FieldType::UInt64, Value::UInt(_)) => true,
        (FieldType::Float32, Value::Float(x)) => f64::from(*x as f32).to_bits() == x.to_bits(),
        (FieldType::Float64, Value::Float(_)) => true,
        (FieldType::IdsU16 | FieldType::IdsU32, Value::Ids(ids)) => field.ty.id_width() == Some(ids.width()),
        (ty, Value::Bytes(items)) if ty.list_items().is_some() && ty.id_width().is_none() => {
            unfit = ty.check_items(items.as_ref(), has_class).err().map(Cow::from);
            unfit.is_none()
        }
        (FieldType::Array(ty), Value::Array(array)) => {
            unfit = ty.check(array.shape(), array.as_bytes().as_ref().len()).err().map(Cow::from);
            unfit.is_none()
        }
        _ => false,
    };
    if fits {
        return Ok(());
    }
    let holds = match value {
        Value::Null => "is null".to_owned(),
        Value::Bool(b) => format!("holds {b}"),
        Value::Int(i) => format!("holds {i}"),
        Value::UInt(u) => format!("holds {u}"),
        Value::Float(x) => format!("holds {x:?}"),
        Value::Text(_) => "holds text".to_owned(),
        Value::Bytes(_) => format!("holds {}", unfit.as_deref().unwrap_or("bytes")),
        Value::Ids(ids) => format!("holds ids of {} bytes each", ids.width().bytes()),
        Value::Array(_) => format!("holds {}", unfit.as_deref().unwrap_or("an array")),
        Value::Texts(_) => "holds a list of texts".to_owned(),
        Value::Files(_) => "holds a list of files".to_owned(),
    };
    let required = if field.nullable { "" } else { "required " };
    let limit = match field.ty.is_class() {
        true => format!(" of {} classes", schema.class_names.len()),
        false => String::new(),
    };
    Err(format!("field {:?} {holds}; expected {required}{}{limit}", field.name, field.ty.name()))
}

/// Returns whether there is a class `label`. A schema inferred from a shard without class names has no upper bound.
fn is_class(schema: &Schema, label: usize) -> bool {
    schema.class_names.is_empty() || label < schema.class_names.len()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::sample::Ids;
    use crate::schema::IdWidth;

    #[test]
    fn values_must_fit_the_type_of_their_field() {
        let classes = Some(vec!["a".to_owned(), "b".to_owned()]);
        let schema = Schema::images(classes, vec![]).unwrap();
        let fits = |ty, v: Value| value(&schema, &Field::nullable("x", ty), &v).is_ok();
        assert!(fits(FieldType::Int32, Value::Int(i64::from(i32::MIN))));
        assert!(!fits(FieldType::Int32, Value::Int(i64::from(i32::MIN) - 1)));
        assert!(!fits(FieldType::Int32, Value::UInt(1)));
        assert!(!fits(FieldType::UInt32, Value::UInt(1 << 32)));
        assert!(fits(FieldType::Label, Value::Int(1)));
        assert!(!fits(FieldType::Label, Value::Int(2)));
        assert!(!fits(FieldType::Label, Value::Int(-1)));
        assert!(fits(FieldType::Float32, Value::Float(0.5)));
        assert!(!fits(FieldType::Float32, Value::Float(0.1)));
        assert!(fits(FieldType::Float32, Value::Float(f64::NAN)));
        let ids = Value::Ids(Ids::pack(IdWidth::U16, &[1]).unwrap());
        assert!(fits(FieldType::IdsU16, ids.clone()) && !fits(FieldType::IdsU32, ids));
        assert!(fits(FieldType::Flags, Value::Bytes(Bytes::from_static(&[0, 1, 1]))));
        assert!(!fits(FieldType::Flags, Value::Bytes(Bytes::from_static(&[0, 2]))));
        assert!(!fits(FieldType::Flags, Value::Bytes(Bytes::from_static(&[0, 255]))));
        let boxes = |numbers: &[f32]| Value::Bytes(numbers.iter().flat_map(|n| n.to_le_bytes()).collect());
        assert!(fits(FieldType::Boxes, boxes(&[])) && fits(FieldType::Boxes, boxes(&[0.0, -1.0, 0.0, 2.5])));
        for wrong in [&[1.0, 2.0, 3.0][..], &[2.0, 0.0, 1.0, 1.0], &[0.0, 2.0, 1.0, 1.0], &[f32::NAN; 4]] {
            assert!(!fits(FieldType::Boxes, boxes(wrong)), "{wrong:?}");
        }
        assert!(!fits(FieldType::Boxes, boxes(&[0.0, 0.0, f32::INFINITY, 1.0])));
        let numbers = |numbers: &[i64]| Value::Bytes(numbers.iter().flat_map(|n| n.to_le_bytes()).collect());
        assert!(fits(FieldType::BoxLabels, numbers(&[0, 1])) && fits(FieldType::BoxInts, numbers(&[-5, 9])));
        assert!(!fits(FieldType::BoxLabels, numbers(&[2])) && !fits(FieldType::BoxLabels, numbers(&[-1])));
        assert!(!fits(FieldType::BoxInts, Value::Bytes(Bytes::from_static(&[0; 4]))));
        let bytes = |count| Value::Bytes(vec![0; count].into());
        assert!(fits(FieldType::Int32Pair, bytes(8)) && fits(FieldType::Int32Pair, Value::Null));
        assert!(!fits(FieldType::Int32Pair, bytes(4)) && !fits(FieldType::Int32Pair, bytes(12)));
        assert!(fits(FieldType::Json, Value::Null));
        let required = Field::required("name", FieldType::String);
        let why = value(&schema, &required, &Value::<Bytes>::Null).unwrap_err();
        assert_eq!(why, "field \"name\" is null; expected required string");
    }
}
