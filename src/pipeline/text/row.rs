//! The fields of a record of token ids. Only this file knows their order.

use xxhash_rust::xxh3::xxh3_128;

use crate::pipeline::outcome::Converted;
use crate::sample::{Ids, Record, Text, Value};

/// A document, a piece of one, or a row of several.
pub(super) struct TextRow {
    pub(super) key: Text,
    pub(super) ids: Ids,
    pub(super) origin: Text,
    /// Fields that not every dataset has, in the order of the schema.
    pub(super) more: Vec<Value>,
}

impl TextRow {
    /// The row that a record was made of; `None` when it is no record of token ids.
    pub(super) fn of(record: Record) -> Option<Self> {
        let mut values = record.values.into_iter();
        match (values.next(), values.next(), values.next(), values.next()) {
            (
                Some(Value::Text(key)),
                Some(Value::Ids(ids)),
                Some(Value::UInt(_)),
                Some(Value::Text(origin)),
            ) => Some(Self { key, ids, origin, more: values.collect() }),
            _ => None,
        }
    }

    /// The record, for the split with the ordinal `split`. `hashed`: whether other records may have the same key.
    pub(super) fn converted(self, split: u16, hashed: bool) -> Converted {
        let Self { key, ids, origin, more } = self;
        let length = ids.len() as u64;
        let key_hash = hashed.then(|| xxh3_128(key.as_bytes()));
        let mut values = vec![Value::Text(key), Value::Ids(ids), Value::UInt(length), Value::Text(origin)];
        values.extend(more);
        Converted { key_hash, ..Converted::new(split, Record { values }, length) }
    }
}

/// Key or origin of the piece of a document that begins at the token `start`.
pub(super) fn piece_name(name: &str, start: u64) -> String {
    format!("{name}@{start}")
}
