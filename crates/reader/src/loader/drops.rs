//! Values that are left out at random, such as captions for classifier-free guidance.

use dsconvert_dataset::error::{Error, Result};
use dsconvert_dataset::sample::Value;
use dsconvert_dataset::schema::{FieldType, Schema};
use xxhash_rust::xxh3::xxh3_64;

use super::augment::RecordRandom;
use super::batch_field::BatchField;
use super::fields::BatchFields;
use super::options::DropField;
use crate::Record;
use crate::range::check_in_range;

/// A field whose value is replaced, with its index in the records.
#[derive(Debug)]
pub(super) struct Drop {
    index: usize,
    probability: f64,
    value: Value,
    /// Part of the seed, so that fields are dropped independently of each other.
    name_hash: u64,
}

impl Drop {
    /// Checks the fields of a batch that are dropped.
    pub(super) fn all(fields: &BatchFields, schema: &Schema, dropped: &[DropField]) -> Result<Vec<Self>> {
        let of_option = |what: String| Error::usage(what).of_option("drop");
        let one = |DropField { field: name, probability, value }: &DropField| {
            check_in_range("drop", *probability, 0.0..=1.0)?;
            let column = fields.columns.iter().find(|(column, _)| column == name);
            let (index, ty) = match column.map(|(_, field)| *field) {
                Some(BatchField::Stored(index, ty) | BatchField::Mirrored { index, ty, .. }) => (index, ty),
                Some(_) => return Err(of_option(format!("{name:?} is not a stored value of its own"))),
                None => {
                    return Err(
                        of_option(format!("a batch has no field {name:?}")).help("name it in `fields`, too")
                    );
                }
            };
            let fits = fitting(ty, value);
            let value = fits.ok_or_else(|| {
                let what = format!("{value:?} is no value of {name:?}, which has the type {}", ty.name());
                of_option(what).help("null leaves the value out")
            })?;
            let name_hash = xxh3_64(name.as_bytes());
            debug_assert!(schema.fields.get(index).is_some());
            Ok(Self { index, probability: *probability, value, name_hash })
        };
        dropped.iter().map(one).collect()
    }

    /// Returns `records`, some of whose values are replaced. `epoch` returns the epoch of the record in a row.
    pub(super) fn apply(
        all: &[Self],
        records: &[Record],
        seed: u64,
        epoch: impl Fn(usize) -> u64,
    ) -> Vec<Record> {
        let one = |(row, record): (usize, &Record)| {
            let mut record = record.clone();
            for drop in all {
                let mut random = RecordRandom::of_drop(seed ^ drop.name_hash, epoch(row), record.ordinal());
                if random.unit() < drop.probability {
                    record.set(drop.index, drop.value.clone());
                }
            }
            record
        };
        records.iter().enumerate().map(one).collect()
    }
}

/// Returns `value` as a value of the type `ty`, if it is one.
fn fitting(ty: FieldType, value: &Value) -> Option<Value> {
    match (ty, value) {
        (_, Value::Null)
        | (FieldType::String | FieldType::Json, Value::Text(_))
        | (FieldType::Bool, Value::Bool(_))
        | (FieldType::Float32 | FieldType::Float64, Value::Float(_))
        | (FieldType::Int64, Value::Int(_)) => Some(value.clone()),
        (FieldType::Int32, Value::Int(number)) => i32::try_from(*number).ok().map(|_| value.clone()),
        (FieldType::UInt32, Value::Int(number)) => u32::try_from(*number).ok().map(|n| Value::UInt(n.into())),
        (FieldType::UInt64, Value::Int(number)) => u64::try_from(*number).ok().map(Value::UInt),
        (FieldType::Float32 | FieldType::Float64, Value::Int(number)) => Some(Value::Float(*number as f64)),
        _ => None,
    }
}
