//! A record as the reader hands it out.

use std::sync::Arc;

use bytes::Bytes;
use dsconvert_dataset::sample::{self, Ids, Value};
use dsconvert_dataset::schema::{
    FieldType, HEIGHT, IMAGE, INPUT_IDS, KEY, LABEL, LENGTH, ORIGIN, Schema, WIDTH,
};

/// One record with the names and types of its fields.
///
/// Texts, bytes and token ids are views into the shard where its format allows (arrow, msgpack, protobuf), so a record
/// is cheap to clone and keeps its shard open while it lives.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    schema: Arc<Schema>,
    ordinal: u64,
    values: Vec<Value>,
}

impl Record {
    /// A record whose `values` are those of `schema`, in its order.
    pub(super) fn new(schema: Arc<Schema>, ordinal: u64, values: Vec<Value>) -> Self {
        Self { schema, ordinal, values }
    }

    /// Its ordinal in the split.
    pub fn ordinal(&self) -> u64 {
        self.ordinal
    }

    /// The fields it has: all of the dataset, or those that were selected.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The value of the field called `name`; `None` when there is no such field. A value that is missing in this record
    /// is [`Value::Null`].
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(self.schema.index_of(name)?)
    }

    /// The values in the order of the fields.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// Names and values, in order.
    pub fn fields(&self) -> impl ExactSizeIterator<Item = (&str, FieldType, &Value)> {
        self.schema.fields.iter().zip(&self.values).map(|(f, v)| (f.name.as_str(), f.ty, v))
    }

    /// The values alone.
    pub fn into_inner(self) -> sample::Record {
        sample::Record { values: self.values }
    }

    /// The text of a `string` or `json` field.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Value::Text(text) => Some(text.as_str()),
            _ => None,
        }
    }

    /// The bytes of a `binary` or `image` field.
    pub fn bytes(&self, name: &str) -> Option<&Bytes> {
        match self.get(name)? {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The ids of a field that is a list of ids.
    pub fn ids(&self, name: &str) -> Option<&Ids> {
        match self.get(name)? {
            Value::Ids(ids) => Some(ids),
            _ => None,
        }
    }

    /// The number in an integer field, when `i64` holds it.
    pub fn integer(&self, name: &str) -> Option<i64> {
        match *self.get(name)? {
            Value::Int(i) => Some(i),
            Value::UInt(u) => i64::try_from(u).ok(),
            _ => None,
        }
    }

    /// The number in a floating-point field.
    pub fn float(&self, name: &str) -> Option<f64> {
        match *self.get(name)? {
            Value::Float(x) => Some(x),
            _ => None,
        }
    }

    /// What identifies the record.
    pub fn key(&self) -> Option<&str> {
        self.text(KEY)
    }

    /// Where the record came from.
    pub fn origin(&self) -> Option<&str> {
        self.text(ORIGIN)
    }

    /// The encoded image (JPEG, PNG, …).
    pub fn image(&self) -> Option<&Bytes> {
        self.bytes(IMAGE)
    }

    /// Width of the image in pixels.
    pub fn width(&self) -> Option<u32> {
        self.integer(WIDTH)?.try_into().ok()
    }

    /// Height of the image in pixels.
    pub fn height(&self) -> Option<u32> {
        self.integer(HEIGHT)?.try_into().ok()
    }

    /// The class: an index into [`Schema::class_names`]. `None` also for a record without one.
    pub fn label(&self) -> Option<usize> {
        self.integer(LABEL)?.try_into().ok()
    }

    /// The name of the class.
    pub fn class_name(&self) -> Option<&str> {
        self.schema.class_names.get(self.label()?).map(String::as_str)
    }

    /// The token ids.
    pub fn input_ids(&self) -> Option<&Ids> {
        self.ids(INPUT_IDS)
    }

    /// The stored number of tokens. [`Split::length`](super::Split::length) knows it without reading the record.
    pub fn length(&self) -> Option<u32> {
        self.integer(LENGTH)?.try_into().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dsconvert_dataset::schema::{Field, IdWidth};

    #[test]
    fn values_are_found_by_name_and_type() {
        let extra = vec![Field::nullable("score", FieldType::Float64)];
        let schema = Arc::new(Schema::images(Some(vec!["cat".into(), "dog".into()]), extra).unwrap());
        let values = vec![
            Value::Text("k".into()),
            Value::Bytes(Bytes::from_static(b"JPEG")),
            Value::UInt(3),
            Value::UInt(4),
            Value::Int(1),
            Value::Text("a/b.jpg".into()),
            Value::Null,
        ];
        let record = Record::new(schema, 7, values);
        assert_eq!((record.key(), record.origin(), record.ordinal()), (Some("k"), Some("a/b.jpg"), 7));
        assert_eq!((record.width(), record.height()), (Some(3), Some(4)));
        assert_eq!((record.label(), record.class_name()), (Some(1), Some("dog")));
        assert_eq!(record.image().map(|b| b.as_ref()), Some(b"JPEG".as_ref()));
        assert_eq!(record.get("score"), Some(&Value::Null));
        assert_eq!((record.float("score"), record.get("nope"), record.input_ids()), (None, None, None));
        assert_eq!((record.text(IMAGE), record.bytes(KEY), record.integer(KEY)), (None, None, None));
        assert_eq!(record.fields().last(), Some(("score", FieldType::Float64, &Value::Null)));
    }

    #[test]
    fn ids_are_handed_out_packed() {
        let schema = Arc::new(Schema::text(IdWidth::U16, vec![]).unwrap());
        let ids = Ids::pack(IdWidth::U16, &[5, 6]).unwrap();
        let values =
            vec![Value::Text("k".into()), Value::Ids(ids.clone()), Value::UInt(2), Value::Text("o".into())];
        let record = Record::new(schema, 0, values.clone());
        assert_eq!((record.input_ids(), record.length(), record.label()), (Some(&ids), Some(2), None));
        assert_eq!(record.into_inner().values, values);
    }
}
