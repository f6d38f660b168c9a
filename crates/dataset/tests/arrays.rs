//! Arrays and lists of texts are read back unchanged from Arrow and Parquet, in place from Arrow, and refused by the other formats.

#![allow(clippy::unwrap_used)] // The exemption for tests does not cover helper functions.

mod common;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use common::{any_record, write};
use dsconvert_dataset::error::ErrorKind;
use dsconvert_dataset::format::{Format, check_schema, infer_schema, open, writer};
use dsconvert_dataset::sample::{ArrayValue, Ids, Record, Value};
use dsconvert_dataset::schema::{ArrayType, DType, Field, FieldType, IdWidth, Schema};
use dsconvert_dataset::storage::{Access, Blob, NewFile};
use proptest::collection::vec;
use proptest::prelude::*;

const COLUMNAR: [Format; 2] = [Format::Arrow, Format::Parquet];

fn schema(arrays: Vec<(ArrayType, bool)>) -> Schema {
    let field = |(i, (ty, nullable)): (usize, (ArrayType, bool))| Field {
        name: format!("a{i}"),
        ty: FieldType::Array(ty),
        nullable,
    };
    let texts = Field { name: "texts".to_owned(), ty: FieldType::Texts, nullable: arrays.len() > 1 };
    let images = Field { name: "images".to_owned(), ty: FieldType::Images, nullable: !texts.nullable };
    let fields = [texts, images].into_iter().chain(arrays.into_iter().enumerate().map(field));
    Schema::text(IdWidth::U16, fields.collect()).unwrap()
}

fn any_array_type() -> impl Strategy<Value = ArrayType> {
    let axis = prop_oneof![(1usize..4).prop_map(Some), Just(None)];
    let dtype = prop::sample::select(DType::ALL[1..].to_vec());
    (dtype, vec(axis, 0..5)).prop_map(|(dtype, axes)| ArrayType::new(dtype, &axes).unwrap())
}

fn text(values: impl IntoIterator<Item = Value>) -> Record {
    let ids = Value::Ids(Ids::pack(IdWidth::U16, &[1]).unwrap());
    let mut record = vec![Value::Text("k".into()), ids, Value::UInt(1), Value::Text("o".into())];
    record.extend(values);
    Record { values: record }
}

fn round_trip(format: Format, schema: &Schema, records: &[Record], path: &Path) {
    let placed = write(format, schema, records, path);
    for access in [Access::Map, Access::Read] {
        let blob = Blob::open(path, access, None).unwrap();
        assert_eq!(infer_schema(format, &blob).unwrap(), *schema, "{format}");
        let reader = open(format, Arc::new(schema.clone()), blob).unwrap();
        let scanned: Vec<Record> = reader.scan().unwrap().map(|found| found.unwrap().1).collect();
        assert_eq!(scanned, records, "{format}");
        for (record, &at) in records.iter().zip(&placed) {
            assert_eq!(reader.get(at).unwrap(), *record, "{format}");
            assert_eq!(reader.get(at).unwrap().crc32c(), record.crc32c(), "{format}");
        }
        let backwards: Vec<_> = placed.iter().rev().copied().collect();
        let found = reader.get_many(&backwards).unwrap();
        assert!(found.iter().eq(records.iter().rev()), "{format}");
        let last = schema.fields.len() - 1;
        for (found, record) in reader.get_columns(&placed, &[last]).unwrap().iter().zip(records) {
            assert_eq!(found.values[last], record.values[last], "{format}");
            assert!(found.values[..last].iter().all(|value| *value == Value::Null), "{format}");
        }
        let mut lent = Vec::new();
        if reader.can_lend() {
            assert!(reader.lend(&placed, &mut lent));
            let lent: Vec<String> = lent.iter().map(|value| format!("{value:?}")).collect();
            assert_eq!(lent.len(), records.iter().map(|record| record.values.len()).sum::<usize>());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_arrays_round_trip(
        (schema, records) in vec((any_array_type(), any::<bool>()), 1..4)
            .prop_map(schema)
            .prop_flat_map(|schema| { let records = vec(any_record(&schema), 0..12); (Just(schema), records) })
    ) {
        let dir = tempfile::tempdir().unwrap();
        for format in COLUMNAR {
            round_trip(format, &schema, &records, &dir.path().join(format.name()));
        }
    }
}

fn numbers(ty: &str) -> FieldType {
    FieldType::Array(ty.parse().unwrap())
}

#[test]
fn arrays_larger_than_a_batch_are_aligned_views_of_the_mapped_file() {
    let fields = vec![
        Field::nullable("x", numbers("array<float64>[?,1000]")),
        Field::nullable("y", numbers("array<bfloat16>[3]")),
    ];
    let schema = Schema::text(IdWidth::U16, fields).unwrap();
    let array = |rows: u32| {
        let numbers = (0..rows * 1000).flat_map(|i| f64::from(i).to_le_bytes()).collect::<Vec<_>>();
        Value::Array(ArrayValue::new([rows, 1000], numbers.into()))
    };
    let records: Vec<Record> = (0..30)
        .map(|i| text([if i % 7 == 6 { Value::Null } else { array(i * 11 % 90) }, Value::Null]))
        .chain([text([array(2500), Value::Null])])
        .collect();
    let dir = tempfile::tempdir().unwrap();
    for format in COLUMNAR {
        round_trip(format, &schema, &records, &dir.path().join(format.name()));
    }
    let path = dir.path().join("view");
    let placed = write(Format::Arrow, &schema, &records, &path);
    let blob = Blob::open(&path, Access::Map, None).unwrap();
    let file = blob.as_slice().unwrap().as_ptr_range();
    let reader = open(Format::Arrow, Arc::new(schema), blob).unwrap();
    for at in placed {
        let record = reader.get(at).unwrap();
        let Value::Array(array) = &record.values[4] else { continue };
        let start = array.as_bytes().as_ptr();
        assert!(array.as_bytes().is_empty() || file.contains(&start));
        assert!(start.addr().is_multiple_of(8));
    }
}

#[test]
fn lists_of_images_larger_than_a_batch_are_views_of_the_mapped_file() {
    let schema = Schema::records(vec![
        Field::nullable("pages", FieldType::Images),
        Field::required("n", FieldType::UInt32),
    ])
    .unwrap();
    let record = |i: u32| {
        let page = |at: u32| Bytes::from(vec![(i + at) as u8; (at * 150_000 + i) as usize]);
        let pages = if i % 7 == 6 { Value::Null } else { Value::Files((0..i % 5).map(page).collect()) };
        Record { values: vec![Value::Text("k".into()), pages, Value::UInt(i.into())] }
    };
    let mut records: Vec<Record> = (0..60).map(record).collect();
    // Pages of Parquet with thousands of lists, and a record that exceeds a row group.
    records.extend((0..5_000).map(|i| {
        let pages = Value::Files(vec![Bytes::from_static(b"ab"); i as usize % 3]);
        Record { values: vec![Value::Text("k".into()), pages, Value::UInt(i)] }
    }));
    let large = Value::Files(vec![vec![1; 9 << 20].into(), Bytes::new(), vec![2; 9 << 20].into()]);
    records.push(Record { values: vec![Value::Text("k".into()), large, Value::UInt(0)] });
    let dir = tempfile::tempdir().unwrap();
    for format in COLUMNAR {
        round_trip(format, &schema, &records, &dir.path().join(format.name()));
    }
    let path = dir.path().join(Format::Arrow.name());
    let blob = Blob::open(&path, Access::Map, None).unwrap();
    let file = blob.as_slice().unwrap().as_ptr_range();
    let reader = open(Format::Arrow, Arc::new(schema), blob).unwrap();
    for found in reader.scan().unwrap() {
        let Value::Files(pages) = &found.unwrap().1.values[1] else { continue };
        assert!(pages.iter().all(|page| page.is_empty() || file.contains(&page.as_ptr())));
    }
}

#[test]
fn other_formats_refuse_arrays_and_arrays_of_other_shapes_are_refused() {
    let schema = Arc::new(
        Schema::text(IdWidth::U16, vec![Field::required("x", numbers("array<float32>[2,?]"))]).unwrap(),
    );
    let texts = Arc::new(Schema::text(IdWidth::U16, vec![Field::nullable("x", FieldType::Texts)]).unwrap());
    for format in [Format::Msgpack, Format::Protobuf] {
        let error = check_schema(format, &texts).unwrap_err();
        assert!(error.to_string().contains("list<string>"), "{error}");
    }
    let images = Arc::new(Schema::records(vec![Field::nullable("x", FieldType::Images)]).unwrap());
    for format in [Format::Msgpack, Format::Protobuf] {
        let error = check_schema(format, &images).unwrap_err();
        assert!(error.to_string().contains("list<image>"), "{error}");
        let error = check_schema(format, &schema).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage);
        let text = error.to_string();
        assert!(text.contains("\"x\"") && text.contains("array<float32>[2,?]"), "{text}");
    }
    let dir = tempfile::tempdir().unwrap();
    for format in COLUMNAR {
        let mut shard =
            writer(format, Arc::clone(&schema), NewFile::create(&dir.path().join(format.name())).unwrap())
                .unwrap();
        let array = |shape: &[u32], bytes: usize| Value::Array(ArrayValue::new(shape, vec![0; bytes].into()));
        for wrong in [
            array(&[3, 1], 12),
            array(&[2, 1], 12),
            array(&[2], 8),
            Value::Null,
            Value::Bytes(vec![0; 8].into()),
        ] {
            let error = shard.push(&text([wrong])).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Usage);
            assert!(error.to_string().contains("\"x\""), "{error}");
        }
        shard.push(&text([array(&[2, 1], 8)])).unwrap();
        shard.push(&text([array(&[2, 0], 0)])).unwrap();
    }
}

#[test]
fn damaged_shards_of_arrays_are_errors_or_other_records() {
    let fields = ["array<int8>[?]", "array<float16>[2,3]", "array<uint16>[?,?]"];
    let fields = fields.iter().enumerate().map(|(i, ty)| Field::nullable(&format!("a{i}"), numbers(ty)));
    let fields = fields
        .chain([Field::nullable("texts", FieldType::Texts), Field::required("images", FieldType::Images)]);
    let schema = Schema::text(IdWidth::U16, fields.collect()).unwrap();
    let records: Vec<Record> = (0..9u32)
        .map(|i| {
            let array = |shape: &[u32], width: u32| {
                let bytes = (0..shape.iter().product::<u32>() * width)
                    .map(|at| (at * 7 + i) as u8)
                    .collect::<Vec<_>>();
                if i % 4 == 3 { Value::Null } else { Value::Array(ArrayValue::new(shape, bytes.into())) }
            };
            let texts = Value::Texts((0..i).map(|at| "ab".repeat(at as usize).as_str().into()).collect());
            let images = Value::Files((0..i % 4).map(|at| vec![i as u8; at as usize * 40].into()).collect());
            text([array(&[i], 1), array(&[2, 3], 2), array(&[i, 2], 2), texts, images])
        })
        .collect();
    let dir = tempfile::tempdir().unwrap();
    for format in COLUMNAR {
        let path = dir.path().join(format.name());
        let placed = write(format, &schema, &records, &path);
        let sound = std::fs::read(&path).unwrap();
        for at in (0..sound.len()).step_by(3) {
            let mut damaged = sound.clone();
            damaged[at] ^= 1 << (at % 8);
            let blob = Blob::from_bytes(&path, damaged.into());
            let Ok(reader) = open(format, Arc::new(schema.clone()), blob) else { continue };
            placed.iter().for_each(|&at| drop(reader.get(at)));
            reader.scan().into_iter().flatten().for_each(drop);
        }
    }
}
