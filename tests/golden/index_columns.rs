//! Fields that are columns of the record index, with a manifest of version 4: `fixtures/golden/v4/counts-*`.

use dsconvert::schema::{Field as SchemaField, FieldType};

use super::*;

fn write_counts(format: &str, out: &Path) {
    let fields = vec![
        SchemaField::required("patches", FieldType::UInt32),
        SchemaField::nullable("note", FieldType::String),
        SchemaField::required("frames", FieldType::UInt64),
    ];
    let schema = Schema::text(IdWidth::U16, fields).unwrap().with_assistant_masks().unwrap();
    let schema = schema.with_indexed(&["patches", "frames"]).unwrap();
    let options = WriterOptions {
        format: format.parse::<Format>().unwrap(),
        splits: vec!["train".to_owned(), "test".to_owned()],
        shard_records: Some(4),
        ..WriterOptions::new(2, "counts")
    };
    let writer = DatasetWriter::open(out, &schema, &options).unwrap();
    for number in 0..2 {
        let mut unit = writer.unit(number).unwrap();
        for i in (0..12u32).filter(|i| i % 2 == number) {
            let key = format!("clip-{i}");
            let record = Record {
                values: vec![
                    Field::Text(key.as_str().into()),
                    Field::Ids(Ids::pack(IdWidth::U16, &vec![i; i as usize]).unwrap()),
                    Field::UInt(i.into()),
                    Field::Text(key.into()),
                    Field::Bytes((0..i).map(|at| (at % 2) as u8).collect()),
                    Field::UInt(u64::from(i) * 0x1357_9bdf % 0xffff_ffff),
                    Field::Null,
                    Field::UInt((i * i).into()),
                ],
            };
            unit.push(record, if i % 5 == 3 { "test" } else { "train" }).unwrap();
        }
        unit.finish().unwrap();
    }
    writer.commit(&Provenance::default()).unwrap();
}

/// The digest of the records, and the columns.
fn digest_with_columns(path: &Path) -> Value {
    let dataset = Dataset::open(path).unwrap();
    let columns: BTreeMap<String, Vec<Value>> = dataset
        .splits()
        .map(|split| {
            let of = |at, name| split.index_column(at, name).unwrap();
            let row = |at| json!(["trained", "patches", "frames"].map(|name| of(at, name)));
            (split.name().to_owned(), (0..split.len()).map(row).collect())
        })
        .collect();
    json!({"records": digest(path), "columns": columns})
}

#[test]
fn golden_index_columns_are_read_and_still_written() {
    check_golden_in("v4", &FORMATS, "counts", write_counts, digest_with_columns);
}
