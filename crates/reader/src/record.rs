//! A record, typed access to its fields, and the check against its entry in the record index.

use std::sync::Arc;

use bytes::Bytes;
use dsconvert_dataset::index::IndexEntry;
use dsconvert_dataset::sample::{self, Ids, Numbers, Value, crc32c_of, index_values, length_of};
use dsconvert_dataset::schema::{
    ASSISTANT_MASKS, FieldType, HEIGHT, IMAGE, INPUT_IDS, KEY, LABEL, LENGTH, ORIGIN, Schema, WIDTH,
};

/// Receiver of token ids, one for each record that was asked for: see
/// [`RecordSource::lend_ids`](crate::RecordSource::lend_ids).
pub type ReadIds<'a> = dyn FnMut(&[Ids<&[u8]>]) + 'a;

/// One record with the names and types of its fields.
///
/// Where the format allows (arrow, msgpack, protobuf), texts, bytes and token ids are views into the shard. A record is
/// therefore cheap to clone, and keeps its shard open until it is dropped.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    schema: Arc<Schema>,
    ordinal: u64,
    values: Vec<Value>,
}

impl Record {
    /// Creates a record from the `values` of the fields of `schema`, in schema order. `ordinal` is its number in its
    /// [source](crate::RecordSource).
    pub fn new(schema: Arc<Schema>, ordinal: u64, values: Vec<Value>) -> Self {
        Self { schema, ordinal, values }
    }

    /// Returns the ordinal of the record in its split.
    pub fn ordinal(&self) -> u64 {
        self.ordinal
    }

    /// Returns the schema of the record: all fields of the dataset, or the selected ones.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Returns the value of the field `name`, or `None` if there is no such field. A value that is missing in this
    /// record is [`Value::Null`].
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(self.schema.index_of(name)?)
    }

    /// Takes the value of the field at `index` out of the record.
    pub(super) fn take(&mut self, index: usize) -> Value {
        self.values.get_mut(index).map_or(Value::Null, |value| std::mem::replace(value, Value::Null))
    }

    /// Sets the value of the field at `index`.
    pub(super) fn set(&mut self, index: usize, value: Value) {
        if let Some(slot) = self.values.get_mut(index) {
            *slot = value;
        }
    }

    /// Returns the values in field order.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// Returns the name, type and value of each field, in order.
    pub fn fields(&self) -> impl ExactSizeIterator<Item = (&str, FieldType, &Value)> {
        self.schema.fields.iter().zip(&self.values).map(|(f, v)| (f.name.as_str(), f.ty, v))
    }

    /// Returns the values without the schema.
    pub fn into_inner(self) -> sample::Record {
        sample::Record { values: self.values }
    }

    /// Returns the text of a `string` or `json` field.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Value::Text(text) => Some(text.as_str()),
            _ => None,
        }
    }

    /// Returns the bytes of a `binary` or `image` field.
    pub fn bytes(&self, name: &str) -> Option<&Bytes> {
        match self.get(name)? {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Returns the numbers of an array, of ids, or of another list of numbers. In a mapped Arrow shard they are a view of the
    /// file, at an address that is aligned for their type.
    pub fn numbers(&self, name: &str) -> Option<Numbers<&Bytes>> {
        let (_, ty, value) = self.fields().find(|(found, ..)| *found == name)?;
        Numbers::of(ty, value)
    }

    /// Returns the ids of a field that is a list of ids.
    pub fn ids(&self, name: &str) -> Option<&Ids> {
        match self.get(name)? {
            Value::Ids(ids) => Some(ids),
            _ => None,
        }
    }

    /// Returns the value of an integer field, if it fits into `i64`.
    pub fn integer(&self, name: &str) -> Option<i64> {
        match *self.get(name)? {
            Value::Int(i) => Some(i),
            Value::UInt(u) => i64::try_from(u).ok(),
            _ => None,
        }
    }

    /// Returns the value of a floating-point field.
    pub fn float(&self, name: &str) -> Option<f64> {
        match *self.get(name)? {
            Value::Float(x) => Some(x),
            _ => None,
        }
    }

    /// Returns the key that identifies the record.
    pub fn key(&self) -> Option<&str> {
        self.text(KEY)
    }

    /// Returns where the record came from.
    pub fn origin(&self) -> Option<&str> {
        self.text(ORIGIN)
    }

    /// Returns the encoded image (JPEG, PNG, …).
    pub fn image(&self) -> Option<&Bytes> {
        self.bytes(IMAGE)
    }

    /// Returns the width of the image in pixels.
    pub fn width(&self) -> Option<u32> {
        self.integer(WIDTH)?.try_into().ok()
    }

    /// Returns the height of the image in pixels.
    pub fn height(&self) -> Option<u32> {
        self.integer(HEIGHT)?.try_into().ok()
    }

    /// Returns the class, as an index into [`Schema::class_names`]. Also `None` for a record without a class.
    pub fn label(&self) -> Option<usize> {
        self.integer(LABEL)?.try_into().ok()
    }

    /// Returns the name of the class.
    pub fn class_name(&self) -> Option<&str> {
        self.schema.class_names.get(self.label()?).map(String::as_str)
    }

    /// Returns the token ids.
    pub fn input_ids(&self) -> Option<&Ids> {
        self.ids(INPUT_IDS)
    }

    /// Returns which tokens are to be trained on: one byte 0 or 1 for each.
    pub fn assistant_masks(&self) -> Option<&Bytes> {
        self.bytes(ASSISTANT_MASKS)
    }

    /// Returns the stored number of tokens. [`Split::length`](super::Split::length) returns it without reading the
    /// record.
    pub fn length(&self) -> Option<u32> {
        self.integer(LENGTH)?.try_into().ok()
    }
}

/// Checks that `values` are those of the record that `entry` describes. The error is a clause for a message.
pub(super) fn check_record<B: AsRef<[u8]>>(
    schema: &Schema,
    entry: &IndexEntry,
    values: &[Value<B>],
) -> Result<(), String> {
    if values.len() != schema.fields.len() {
        return Err(format!("the record has {} values for {} fields", values.len(), schema.fields.len()));
    }
    let crc32c = crc32c_of(values);
    if crc32c != entry.crc32c {
        return Err(format!("the checksum is {crc32c:08x}, but {:08x} in the record index", entry.crc32c));
    }
    let length = length_of(schema, values)?;
    if length != entry.length {
        return Err(format!("the length is {length}, but {} in the record index", entry.length));
    }
    if index_values(schema, values) != Some(entry.columns) {
        return Err(format!(
            "{} differ from those in the record index",
            schema.index_columns().collect::<Vec<_>>().join(" and ")
        ));
    }
    Ok(())
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
    fn ids_are_returned_packed() {
        let schema = Arc::new(Schema::text(IdWidth::U16, vec![]).unwrap());
        let ids = Ids::pack(IdWidth::U16, &[5, 6]).unwrap();
        let values =
            vec![Value::Text("k".into()), Value::Ids(ids.clone()), Value::UInt(2), Value::Text("o".into())];
        let record = Record::new(schema, 0, values.clone());
        assert_eq!((record.input_ids(), record.length(), record.label()), (Some(&ids), Some(2), None));
        assert_eq!(record.into_inner().values, values);
    }
}

#[cfg(test)]
mod record_check_tests {
    use super::*;
    use dsconvert_dataset::sample::{Ids, Record};
    use dsconvert_dataset::schema::IdWidth;

    fn text(length: u64) -> Record {
        let ids = Ids::pack(IdWidth::U16, &[5, 6]).unwrap();
        let values =
            vec![Value::Text("k".into()), Value::Ids(ids), Value::UInt(length), Value::Text("o".into())];
        Record { values }
    }

    #[test]
    fn a_record_must_match_the_checksum_and_length_of_its_entry() {
        let schema = Schema::text(IdWidth::U16, vec![]).unwrap();
        let entry =
            |record: &Record| IndexEntry { crc32c: record.crc32c(), length: 2, ..IndexEntry::default() };
        let good = text(2);
        assert_eq!(check_record(&schema, &entry(&good), &good.values), Ok(()));
        let differs = IndexEntry { crc32c: !good.crc32c(), ..entry(&good) };
        assert!(check_record(&schema, &differs, &good.values).is_err_and(|e| e.contains("checksum")));
        let longer = IndexEntry { length: 3, ..entry(&good) };
        assert!(check_record(&schema, &longer, &good.values).is_err_and(|e| e.contains("length is 2")));
        let wrong = text(3);
        assert!(check_record(&schema, &entry(&wrong), &wrong.values).is_err_and(|e| e.contains("has 2 ids")));
        let short = Record { values: vec![] };
        assert!(check_record(&schema, &entry(&short), &short.values).is_err());
    }
}
