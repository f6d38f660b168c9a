//! Records per aspect-ratio bucket, and the share of their pixels that was cropped.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use super::{each_record, in_splits};
use crate::error::{Error, Result};
use crate::reader::{Dataset, Record, Split};
use crate::sample::{Value, pair};
use crate::schema::{FieldType, RESIZED_SIZE, Schema, TARGET_SIZE};

/// The records of one bucket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct BucketShare {
    /// Number of records.
    pub(crate) records: u64,
    /// Pixels of the resized images.
    resized: u64,
    /// Pixels that the crop keeps.
    kept: u64,
}

impl BucketShare {
    /// Returns the share of the resized pixels that was cropped.
    pub(crate) fn cropped(&self) -> f64 {
        if self.resized == 0 { 0.0 } else { 1.0 - self.kept as f64 / self.resized as f64 }
    }

    /// Returns the sum over `all`.
    pub(crate) fn sum<'a>(all: impl Iterator<Item = &'a Self>) -> Self {
        all.fold(Self::default(), |a, b| Self {
            records: a.records + b.records,
            resized: a.resized + b.resized,
            kept: a.kept + b.kept,
        })
    }
}

/// The buckets of each split of a dataset, by width and height. Empty for datasets without them.
#[derive(Debug, Default)]
pub struct BucketShares(BTreeMap<String, BTreeMap<(i32, i32), BucketShare>>);

impl BucketShares {
    /// Reads the sizes of all records of `dataset`. Those that cannot be read are not counted; for each split, the first
    /// error is passed to `unreadable` with the name of the split.
    pub fn of(dataset: &Dataset, unreadable: &mut dyn FnMut(&str, &Error)) -> Self {
        if !Self::exist_in(dataset.schema()) {
            return Self::default();
        }
        Self(in_splits(dataset, unreadable, |split, unreadable| of_split(dataset, split, unreadable)))
    }

    /// Returns whether the records of a dataset have the sizes of their buckets.
    pub(crate) fn exist_in(schema: &Schema) -> bool {
        let is_pair = |name| schema.fields.iter().any(|f| f.name == name && f.ty == FieldType::Int32Pair);
        is_pair(RESIZED_SIZE) && is_pair(TARGET_SIZE)
    }

    /// Returns the buckets of a split, by width and height.
    pub(crate) fn split(&self, name: &str) -> impl Iterator<Item = (&(i32, i32), &BucketShare)> {
        self.0.get(name).into_iter().flatten()
    }

    /// Adds `buckets` to the splits of a description in JSON.
    pub fn add_to(&self, description: &mut Json) {
        for (name, found) in &self.0 {
            let split = description.get_mut("splits").and_then(|splits| splits.get_mut(name));
            let Some(split) = split.and_then(Json::as_object_mut) else { continue };
            let buckets = found.iter().map(|((width, height), share)| {
                json!({ "width": width, "height": height, "records": share.records, "cropped": share.cropped() })
            });
            split.insert("buckets".to_owned(), buckets.collect());
        }
    }
}

fn of_split(
    dataset: &Dataset,
    split: &Split,
    unreadable: &mut dyn FnMut(&Error),
) -> Result<BTreeMap<(i32, i32), BucketShare>> {
    // Without checksums, shards of columns decode only these; `inspect --verify` checks the bytes.
    let sizes = dataset.unverified().split(split.name())?.select(&[RESIZED_SIZE, TARGET_SIZE])?;
    let mut found: BTreeMap<(i32, i32), BucketShare> = BTreeMap::new();
    let add = |record: &Record| {
        let of = |name| match record.get(name) {
            Some(Value::Bytes(bytes)) => pair(bytes),
            _ => None,
        };
        if let Some(([height, width], [target_height, target_width])) = of(RESIZED_SIZE).zip(of(TARGET_SIZE))
        {
            let pixels = |a: i32, b: i32| u64::from(a.unsigned_abs()) * u64::from(b.unsigned_abs());
            let share = found.entry((target_width, target_height)).or_default();
            share.records += 1;
            share.resized = share.resized.saturating_add(pixels(height, width));
            share.kept = share.kept.saturating_add(pixels(target_height, target_width));
        }
    };
    each_record(&sizes, add, unreadable);
    Ok(found)
}
