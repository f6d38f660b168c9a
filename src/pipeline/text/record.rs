//! The fields of a text record. Their order is defined only in this file.

use xxhash_rust::xxh3::xxh3_128;

use crate::pipeline::outcome::ConvertedRecord;
use crate::sample::{Ids, Record, Text, Value};

/// A document, a piece of one, or a row of several.
pub(super) struct TextRecord {
    pub(super) key: Text,
    pub(super) ids: Ids,
    pub(super) origin: Text,
    /// Fields that only some datasets have, in the order of the schema.
    pub(super) extra_values: Vec<Value>,
}

impl TextRecord {
    /// Returns the fields of `record`; `None` if it is not a text record.
    pub(super) fn of(record: Record) -> Option<Self> {
        let mut values = record.values.into_iter();
        match (values.next(), values.next(), values.next(), values.next()) {
            (
                Some(Value::Text(key)),
                Some(Value::Ids(ids)),
                Some(Value::UInt(_)),
                Some(Value::Text(origin)),
            ) => Some(Self { key, ids, origin, extra_values: values.collect() }),
            _ => None,
        }
    }

    /// Creates the record, for the split with the ordinal `split`. `key_may_repeat` states whether another record may
    /// have the same key.
    pub(super) fn converted(self, split: u16, key_may_repeat: bool) -> ConvertedRecord {
        let Self { key, ids, origin, extra_values } = self;
        let length = ids.len() as u64;
        let key_hash = key_may_repeat.then(|| xxh3_128(key.as_bytes()));
        let mut values = vec![Value::Text(key), Value::Ids(ids), Value::UInt(length), Value::Text(origin)];
        values.extend(extra_values);
        ConvertedRecord { key_hash, ..ConvertedRecord::new(split, Record { values }, length) }
    }
}

/// Returns the key or origin of the piece of a document that starts at token `start`.
pub(super) fn piece_name(name: &str, start: u64) -> String {
    format!("{name}@{start}")
}
