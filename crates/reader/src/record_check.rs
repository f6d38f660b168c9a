//! Checks a record against its entry in the record index.

use dsconvert_dataset::index::IndexEntry;
use dsconvert_dataset::sample::{Value, crc32c_of, index_values, length_of};
use dsconvert_dataset::schema::Schema;

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
            schema.index_columns().join(" and ")
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
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
