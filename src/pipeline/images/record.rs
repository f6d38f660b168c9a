//! The fields of an image record. Their order is defined only in this file.

use bytes::Bytes;

use crate::pipeline::outcome::ConvertedRecord;
use crate::sample::{Record, Value};

/// A converted image.
pub(super) struct ImageRecord {
    /// Used as the key and the origin.
    pub(super) origin: String,
    pub(super) image: Bytes,
    pub(super) width: u32,
    pub(super) height: u32,
    /// The class, or null for an unlabeled image; `None` if the dataset has no labels.
    pub(super) label: Option<Value>,
    /// Fields that only some datasets have, in the order of the schema.
    pub(super) extra_values: Vec<Value>,
}

impl ImageRecord {
    /// Creates the record, for the split with the ordinal `split`. Its length is the number of pixels.
    pub(super) fn converted(self, split: u16) -> ConvertedRecord {
        let Self { origin, image, width, height, label, extra_values } = self;
        let name = || Value::Text(origin.as_str().into());
        let mut values =
            vec![name(), Value::Bytes(image), Value::UInt(u64::from(width)), Value::UInt(u64::from(height))];
        values.extend(label);
        values.push(name());
        values.extend(extra_values);
        let pixels = u64::from(width) * u64::from(height);
        ConvertedRecord { width, height, ..ConvertedRecord::new(split, Record { values }, pixels) }
    }
}
