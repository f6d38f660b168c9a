//! Checks a record against its entry in the record index.

use dsconvert_dataset::index::IndexEntry;
use dsconvert_dataset::sample::{Value, crc32c_of};
use dsconvert_dataset::schema::{HEIGHT, INPUT_IDS, LENGTH, Schema, WIDTH};

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
    let length = own_length(schema, values)?;
    if length != entry.length {
        return Err(format!("the length is {length}, but {} in the record index", entry.length));
    }
    if !schema.index_columns().is_empty() {
        let (width, height) = (number(schema, values, WIDTH), number(schema, values, HEIGHT));
        if (width, height) != (Some(entry.width.into()), Some(entry.height.into())) {
            return Err("width and height differ from those in the record index".to_owned());
        }
    }
    Ok(())
}

/// Returns the length of a record according to its own values: the number of ids, or width × height.
pub(super) fn own_length<B: AsRef<[u8]>>(schema: &Schema, values: &[Value<B>]) -> Result<u64, String> {
    match schema.holds_token_ids() {
        false => {
            let (width, height) = (number(schema, values, WIDTH), number(schema, values, HEIGHT));
            let pixels = width.zip(height).and_then(|(width, height)| width.checked_mul(height));
            pixels.ok_or_else(|| "the record has no width and height".to_owned())
        }
        true => {
            let ids = match schema.index_of(INPUT_IDS).and_then(|i| values.get(i)) {
                Some(Value::Ids(ids)) => ids.len() as u64,
                _ => return Err("the record has no token ids".to_owned()),
            };
            match number(schema, values, LENGTH) {
                Some(length) if length == ids => Ok(ids),
                Some(length) => Err(format!("the record has {ids} ids, but its length field is {length}")),
                None => Err("the record has no length".to_owned()),
            }
        }
    }
}

fn number<B: AsRef<[u8]>>(schema: &Schema, values: &[Value<B>], name: &str) -> Option<u64> {
    match schema.index_of(name).and_then(|i| values.get(i)) {
        Some(&Value::UInt(u)) => Some(u),
        _ => None,
    }
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
