//! Tests that records written in any format are read back unchanged, in any order.

#![allow(clippy::unwrap_used)] // The exemption for tests does not cover helper functions.

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{ALL_TYPES, any_records, boxes, classes, images_with_everything, write};
use dsconvert_dataset::error::ErrorKind;
use dsconvert_dataset::format::{Format, Placed, infer_schema, open, sniff, writer};
use dsconvert_dataset::sample::{Ids, Record, Value, length_of};
use dsconvert_dataset::schema::{Field, FieldType, IdWidth, Schema};
use dsconvert_dataset::storage::{Access, Blob, NewFile};
use proptest::prelude::*;

/// Writes records and reads them back by position, by batch and by scan.
fn round_trip(format: Format, schema: &Schema, records: &[Record], order: &[usize]) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shard");
    let placed = write(format, schema, records, &path);
    let again = dir.path().join("again");
    write(format, schema, records, &again);
    assert!(std::fs::read(&path).unwrap() == std::fs::read(&again).unwrap(), "{format} is not deterministic");
    for access in [Access::Map, Access::Read] {
        let blob = Blob::open(&path, access, None).unwrap();
        let reader = open(format, Arc::new(schema.clone()), blob).unwrap();
        let (scanned_at, scanned): (Vec<_>, Vec<_>) = reader.scan().unwrap().map(Result::unwrap).unzip();
        assert_eq!(scanned, records, "{format}");
        assert_eq!(scanned_at, placed, "{format}");
        for (record, &at) in records.iter().zip(&placed) {
            let got = reader.get(at).unwrap();
            assert_eq!(got.crc32c(), record.crc32c(), "{format}");
            assert_eq!(got, *record, "{format}");
        }
        if !records.is_empty() {
            let order: Vec<usize> = order.iter().map(|i| i % records.len()).collect();
            let at: Vec<Placed> = order.iter().map(|&i| placed[i]).collect();
            let expected: Vec<Record> = order.iter().map(|&i| records[i].clone()).collect();
            assert_eq!(reader.get_many(&at).unwrap(), expected, "{format}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_records_round_trip((schema, records) in any_records(30), order in prop::collection::vec(any::<usize>(), 0..40)) {
        for format in Format::ALL {
            round_trip(format, &schema, &records, &order);
        }
    }
}

fn text_record(i: usize, tokens: usize) -> Record {
    let ids: Vec<u32> = (0..tokens).map(|t| (i * 31 + t * 7) as u32 % 50_000).collect();
    Record {
        values: vec![
            Value::Text(format!("doc/{i}").into()),
            Value::Ids(Ids::pack(IdWidth::U16, &ids).unwrap()),
            Value::UInt(tokens as u64),
            Value::Text(format!("corpus.jsonl@{}", i * 100).into()),
        ],
    }
}

#[test]
fn shards_with_several_row_groups_round_trip() {
    let schema = Schema::text(IdWidth::U16, vec![]).unwrap();
    let mut records: Vec<Record> = (0..20_000).map(|i| text_record(i, i % 7)).collect();
    // Larger than the limit for a batch or row group of several records.
    records.insert(5_000, text_record(5, 10 << 20));
    let order: Vec<usize> = (0..300).map(|i| i * 7919).collect();
    let dir = tempfile::tempdir().unwrap();
    for format in Format::ALL {
        let path = dir.path().join(format.name());
        let placed = write(format, &schema, &records, &path);
        let reader =
            open(format, Arc::new(schema.clone()), Blob::open(&path, Access::Map, None).unwrap()).unwrap();
        let mut scanned = reader.scan().unwrap();
        for (record, at) in records.iter().zip(&placed) {
            let (found_at, found) = scanned.next().unwrap().unwrap();
            assert!(found == *record && found_at == *at, "{format}");
        }
        assert!(scanned.next().is_none());
        let at: Vec<Placed> = order.iter().map(|i| placed[i % placed.len()]).collect();
        for (found, i) in reader.get_many(&at).unwrap().iter().zip(&order) {
            assert!(*found == records[i % records.len()], "{format}");
        }
        if matches!(format, Format::Arrow | Format::Parquet) {
            assert!(placed.last().unwrap().group() >= 2);
            let at = Placed::in_group(999, 0, 1);
            assert_eq!(reader.get(at).unwrap_err().kind(), ErrorKind::Corrupt);
        }
        let beyond = Placed { position: placed.last().unwrap().position + 1_000_000, bytes: 10 };
        assert_eq!(reader.get(beyond).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}

#[test]
fn empty_shards_round_trip() {
    let schemas =
        [Schema::images(Some(classes()), vec![]).unwrap(), Schema::text(IdWidth::U32, vec![]).unwrap()];
    for schema in &schemas {
        for format in Format::ALL {
            round_trip(format, schema, &[], &[]);
        }
    }
}

#[test]
fn a_nan_keeps_its_bits() {
    let extra = vec![Field::required("a", FieldType::Float32), Field::required("b", FieldType::Float64)];
    let schema = Schema::text(IdWidth::U16, extra).unwrap();
    let mut record = text_record(1, 2);
    record.values.extend([Value::Float(f64::NAN), Value::Float(f64::from_bits(f64::NAN.to_bits() | 77))]);
    let dir = tempfile::tempdir().unwrap();
    for format in Format::ALL {
        let path = dir.path().join(format.name());
        let placed = write(format, &schema, std::slice::from_ref(&record), &path);
        let reader =
            open(format, Arc::new(schema.clone()), Blob::open(&path, Access::Map, None).unwrap()).unwrap();
        assert_eq!(reader.get(placed[0]).unwrap().crc32c(), record.crc32c(), "{format}");
    }
}

#[test]
fn errors_name_the_field_that_does_not_fit() {
    let extra = vec![Field::nullable("stars", FieldType::Int32)];
    let schema = Arc::new(Schema::text(IdWidth::U16, extra).unwrap());
    let dir = tempfile::tempdir().unwrap();
    for format in Format::ALL {
        let file = NewFile::create(&dir.path().join(format.name())).unwrap();
        let mut writer = writer(format, schema.clone(), file).unwrap();
        let mut record = text_record(1, 3);
        assert!(writer.push(&record).is_err(), "{format} takes a record without its last value");
        record.values.push(Value::Int(1 << 40));
        let error = writer.push(&record).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(error.to_string().contains("\"stars\""), "{error}");
        record.values[4] = Value::Null;
        record.values[0] = Value::Null;
        assert!(writer.push(&record).unwrap_err().to_string().contains("\"key\""));
    }
}

#[test]
fn format_and_schema_are_inferred() {
    let dir = tempfile::tempdir().unwrap();
    let everything = images_with_everything();
    let mut values = vec![
        Value::Text("k".into()),
        Value::Bytes(vec![0xff, 0xd8].into()),
        Value::UInt(2),
        Value::UInt(3),
        Value::Int(1),
        Value::Text("o".into()),
    ];
    values.resize(values.len() + ALL_TYPES.len(), Value::Null);
    let empty = Record { values: values.clone() };
    for (value, ty) in values[6..].iter_mut().zip(ALL_TYPES) {
        *value = match ty {
            FieldType::String => Value::Text("ü".into()),
            FieldType::Json => Value::Text("{}".into()),
            FieldType::Binary | FieldType::Image | FieldType::Mask => Value::Bytes(vec![1].into()),
            FieldType::Bool => Value::Bool(false),
            FieldType::Int32 | FieldType::Int64 | FieldType::Label => Value::Int(0),
            FieldType::UInt32 | FieldType::UInt64 => Value::UInt(0),
            FieldType::Float32 | FieldType::Float64 => Value::Float(0.0),
            FieldType::Int32Pair => Value::Bytes(vec![1; 8].into()),
            _ => Value::Ids(Ids::pack(ty.id_width().unwrap(), &[1]).unwrap()),
        };
    }
    for format in Format::ALL {
        let path = dir.path().join(format.name());
        write(format, &everything, &[empty.clone(), Record { values: values.clone() }], &path);
        let blob = Blob::open(&path, Access::Map, None).unwrap();
        assert_eq!(sniff(&blob), Some(format));
        let inferred = infer_schema(format, &blob).unwrap();
        let mut expected = everything.clone();
        if matches!(format, Format::Msgpack | Format::Protobuf) {
            expected.class_names = Vec::new();
        }
        if format == Format::Protobuf {
            let masks = expected.fields.iter_mut().filter(|field| field.ty == FieldType::Mask);
            masks.for_each(|field| field.ty = FieldType::Image);
        }
        if format == Format::Msgpack {
            for field in &mut expected.fields[6..] {
                field.ty = match field.ty {
                    FieldType::Json => FieldType::String,
                    FieldType::Image | FieldType::Mask | FieldType::Int32Pair => FieldType::Binary,
                    FieldType::Label => FieldType::Int64,
                    same => same,
                };
            }
        }
        assert_eq!(inferred, expected, "{format}");
        let reader = open(format, Arc::new(inferred), blob).unwrap();
        assert_eq!(reader.scan().unwrap().filter(Result::is_ok).count(), 2);
    }
}

fn boxed_record(i: usize, boxes: Option<&[[f32; 4]]>) -> Record {
    let list = |bytes: Vec<u8>| Value::Bytes(bytes.into());
    let of =
        |numbers: &dyn Fn(&[[f32; 4]]) -> Vec<u8>| boxes.map_or(Value::Null, |boxes| list(numbers(boxes)));
    let count = |boxes: &[[f32; 4]]| boxes.len() as i64;
    Record {
        values: vec![
            Value::Text(format!("{i}").as_str().into()),
            Value::Bytes(vec![0xff, 0xd8].into()),
            Value::UInt(7),
            Value::UInt(5),
            Value::Text("o".into()),
            of(&|boxes| boxes.iter().flatten().flat_map(|number| number.to_le_bytes()).collect()),
            of(&|boxes| (0..count(boxes)).flat_map(|at| (at % 3).to_le_bytes()).collect()),
            of(&|boxes| (0..count(boxes)).flat_map(|at| (-at).to_le_bytes()).collect()),
        ],
    }
}

/// Records of any kind may have fields that are built in elsewhere.
#[test]
fn records_of_any_kind_are_written_and_inferred_in_every_format() {
    let fields = vec![
        Field::nullable("image", FieldType::Binary),
        Field::nullable("input_ids", FieldType::IdsU32),
        Field::nullable("label", FieldType::Int64),
        Field::nullable("origin", FieldType::String),
    ];
    let schema = Schema::records(fields).unwrap();
    let record = |i: u32| {
        let ids = Value::Ids(Ids::pack(IdWidth::U32, &[i, i]).unwrap());
        let image = Value::Bytes(vec![i as u8; 3].into());
        Record { values: vec![Value::Text("k".into()), image, ids, Value::Int(-1), Value::Text("o".into())] }
    };
    let empty = Record { values: [vec![Value::Text("e".into())], vec![Value::Null; 4]].concat() };
    let records = [empty, record(1), record(70_000)];
    assert!(records.iter().all(|record| length_of(&schema, &record.values) == Ok(record.canonical_size())));
    let dir = tempfile::tempdir().unwrap();
    for format in Format::ALL {
        let path = dir.path().join(format.name());
        let placed = write(format, &schema, &records, &path);
        let blob = Blob::open(&path, Access::Map, None).unwrap();
        assert_eq!(sniff(&blob), Some(format));
        assert_eq!(infer_schema(format, &blob).unwrap(), schema, "{format}");
        let reader = open(format, Arc::new(schema.clone()), blob).unwrap();
        assert!(
            records.iter().zip(placed).all(|(record, at)| reader.get(at).unwrap() == *record),
            "{format}"
        );
    }
}

#[test]
fn boxes_are_written_and_inferred_in_every_format() {
    let mut schema = Schema::images(None, boxes().to_vec()).unwrap();
    schema.class_names = classes();
    let many: Vec<[f32; 4]> = (0..9000).map(|at| [0.25, 1.0, 1.5 + at as f32, 2.0]).collect();
    let one = [[0.1, 0.2, 0.3, 0.4]];
    let all = [Some(&one[..]), None, Some(&[]), Some(&many[..]), Some(&many[..2]), None];
    let records: Vec<Record> = all.iter().enumerate().map(|(i, boxes)| boxed_record(i, *boxes)).collect();
    let dir = tempfile::tempdir().unwrap();
    for format in Format::ALL {
        round_trip(format, &schema, &records, &[3, 0, 5, 5, 1]);
        let path = dir.path().join(format.name());
        write(format, &schema, &records, &path);
        let inferred = infer_schema(format, &Blob::open(&path, Access::Map, None).unwrap()).unwrap();
        let mut expected = schema.clone();
        if matches!(format, Format::Msgpack | Format::Protobuf) {
            expected.class_names = Vec::new();
        }
        if format == Format::Msgpack {
            expected.fields[5..].iter_mut().for_each(|field| field.ty = FieldType::Binary);
        }
        assert_eq!(inferred, expected, "{format}");
        // One item per box.
        let file = NewFile::create(&dir.path().join("wrong")).unwrap();
        let mut writer = writer(format, Arc::new(schema.clone()), file).unwrap();
        for (at, value) in [(6, Value::Null), (7, Value::Bytes(vec![0; 16].into())), (5, Value::Null)] {
            let mut wrong = boxed_record(0, Some(&one));
            wrong.values[at] = value;
            let error = writer.push(&wrong).unwrap_err();
            assert!(error.to_string().contains("\"boxes\""), "{error}");
        }
    }
}

fn masked_record(i: usize, masks: &[u8]) -> Record {
    let mut record = text_record(i, masks.len());
    record.values.push(Value::Bytes(masks.to_vec().into()));
    record
}

#[test]
fn masks_are_written_and_inferred_in_every_format() {
    let schema = Schema::text(IdWidth::U16, vec![]).unwrap().with_assistant_masks().unwrap();
    let long: Vec<u8> = (0..40_000).map(|at| u8::from(at % 997 > 300)).collect();
    let records: Vec<Record> = [&[0, 1, 1, 0][..], &[], &[1], &[0; 300], &[1; 300], &long]
        .iter()
        .enumerate()
        .map(|(i, masks)| masked_record(i, masks))
        .collect();
    let dir = tempfile::tempdir().unwrap();
    for format in Format::ALL {
        round_trip(format, &schema, &records, &[3, 0, 5, 5, 1]);
        let path = dir.path().join(format.name());
        write(format, &schema, &records, &path);
        let inferred = infer_schema(format, &Blob::open(&path, Access::Map, None).unwrap()).unwrap();
        assert_eq!(inferred, schema, "{format}");
    }
}

#[test]
fn masks_that_are_no_flags_of_the_ids_are_refused() {
    let schema = Arc::new(Schema::text(IdWidth::U16, vec![]).unwrap().with_assistant_masks().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let mut short = masked_record(1, &[0, 1, 1]);
    short.values[4] = Value::Bytes(vec![0, 1].into());
    let mut null = short.clone();
    null.values[4] = Value::Null;
    for format in Format::ALL {
        let file = NewFile::create(&dir.path().join(format.name())).unwrap();
        let mut writer = writer(format, schema.clone(), file).unwrap();
        for (record, why) in [
            (&masked_record(1, &[0, 2]), "holds a value other than 0 and 1; expected required flags"),
            (&short, "the record has 3 ids, but 2 values in \"assistant_masks\""),
            (&null, "is null"),
            (&text_record(1, 2), "4 values"),
        ] {
            let error = writer.push(record).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Usage, "{format}");
            assert!(error.to_string().contains(why), "{format}: {error}");
        }
        writer.push(&masked_record(1, &[0, 1])).unwrap();
    }
}

#[test]
fn a_shard_with_another_schema_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let written = Schema::text(IdWidth::U16, vec![]).unwrap();
    let other = Arc::new(Schema::text(IdWidth::U32, vec![]).unwrap());
    for format in Format::ALL {
        let path = dir.path().join(format.name());
        write(format, &written, &[text_record(1, 5)], &path);
        let read = open(format, other.clone(), Blob::open(&path, Access::Map, None).unwrap())
            .and_then(|reader| reader.scan()?.next().unwrap().map(|_| ()));
        let error = read.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert_eq!(error.place().path.as_deref(), Some(path.as_path()));
    }
}

#[test]
fn other_files_are_not_detected_as_shards() {
    for bytes in [&b""[..], b"{\"a\": 1}", b"\x89PNG\r\n\x1a\n", b"PK\x03\x04", &[0; 100]] {
        assert_eq!(sniff(&Blob::from_bytes(Path::new("x"), bytes.to_vec().into())), None, "{bytes:?}");
    }
}
