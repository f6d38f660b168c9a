//! Records of any kind, with a manifest of version 4: `fixtures/golden/v4/records-*`.

use dsconvert::schema::{Field as SchemaField, FieldType};

use super::*;

fn write_records(format: &str, out: &Path) {
    let fields = vec![
        SchemaField::required("text", FieldType::String),
        SchemaField::nullable("picture", FieldType::Image),
        SchemaField::required("tokens", FieldType::IdsU16),
        SchemaField::required("steps", FieldType::UInt32),
        SchemaField::nullable("state", FieldType::Json),
        SchemaField::required("reward", FieldType::Float32),
        SchemaField::nullable("done", FieldType::Bool),
    ];
    let schema = Schema::records(fields).unwrap().with_indexed(&["steps"]).unwrap();
    let options = WriterOptions {
        format: format.parse::<Format>().unwrap(),
        splits: vec!["train".to_owned(), "test".to_owned()],
        shard_records: Some(4),
        ..WriterOptions::new(2, "records")
    };
    let writer = DatasetWriter::open(out, &schema, &options).unwrap();
    for number in 0..2 {
        let mut unit = writer.unit(number).unwrap();
        for i in (0..12u32).filter(|i| i % 2 == number) {
            let or_null = |value| if i % 4 == 3 { Field::Null } else { value };
            let record = Record {
                values: vec![
                    Field::Text(format!("episode {i}").into()),
                    Field::Text("é".repeat(i as usize).into()),
                    or_null(Field::Bytes(vec![i as u8; 7].into())),
                    Field::Ids(Ids::pack(IdWidth::U16, &vec![i * 500; i as usize]).unwrap()),
                    Field::UInt(u64::from(i * i)),
                    or_null(Field::Text(format!("{{\"x\": {i}}}").into())),
                    Field::Float((i as f32 / 3.0).into()),
                    or_null(Field::Bool(i > 4)),
                ],
            };
            unit.push(record, if i % 5 == 3 { "test" } else { "train" }).unwrap();
        }
        unit.finish().unwrap();
    }
    writer.commit(&Provenance::default()).unwrap();
}

/// Schema, and per split the key, the checksum, the length and the index column of each record, and the order by length.
fn digest_with_steps(path: &Path) -> Value {
    digest_of_records(path, |split, i| json!(split.index_column(i, "steps").unwrap()))
}

#[test]
fn golden_records_are_read_and_still_written() {
    check_golden_in("v4", &FORMATS, "records", write_records, digest_with_steps);
}
