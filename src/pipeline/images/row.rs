//! The fields of a record of an image. Only this file knows their order.

use bytes::Bytes;

use crate::pipeline::outcome::Converted;
use crate::sample::{Record, Value};

/// A converted image.
pub(super) struct ImageRow {
    /// Key and origin.
    pub(super) origin: String,
    pub(super) image: Bytes,
    pub(super) width: u32,
    pub(super) height: u32,
    /// The class, or null for an unlabelled image; `None` when the dataset has no labels.
    pub(super) label: Option<Value>,
    /// Fields that not every dataset has, in the order of the schema.
    pub(super) more: Vec<Value>,
}

impl ImageRow {
    /// The record, for the split with the ordinal `split`. Its length is the number of pixels.
    pub(super) fn converted(self, split: u16) -> Converted {
        let Self { origin, image, width, height, label, more } = self;
        let name = || Value::Text(origin.as_str().into());
        let mut values =
            vec![name(), Value::Bytes(image), Value::UInt(u64::from(width)), Value::UInt(u64::from(height))];
        values.extend(label);
        values.push(name());
        values.extend(more);
        let pixels = u64::from(width) * u64::from(height);
        Converted { width, height, ..Converted::new(split, Record { values }, pixels) }
    }
}
