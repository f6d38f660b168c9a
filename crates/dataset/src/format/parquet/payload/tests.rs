//! Tests that shards are byte-for-byte identical to those the `parquet` crate writes for the same records, and that they are
//! read as these records.

use std::sync::Arc;

use ::parquet::arrow::ArrowWriter;
use ::parquet::arrow::arrow_writer::ArrowWriterOptions;
use ::parquet::basic::Encoding;
use ::parquet::file::properties::WriterProperties;
use ::parquet::schema::types::ColumnPath;
use bytes::Bytes;
use proptest::prelude::*;

use super::super::{CHUNK_BYTES, CHUNK_ROWS, GROUP_BYTES, GROUP_ROWS, PAGE_ROWS, Reader, Writer, properties};
use crate::format::columns::ColumnBuilders;
use crate::format::{Placed, ShardReader, ShardWriter};
use crate::sample::{Ids, Record, Value};
use crate::schema::{Field, FieldType, IdWidth, Schema};
use crate::storage::{Access, Blob, NewFile};

/// Reference writer, which writes every column through Arrow.
struct Reference {
    columns: ColumnBuilders,
    writer: ArrowWriter<NewFile>,
    group: u32,
    rows: usize,
    bytes: u64,
}

impl Reference {
    fn new(schema: &Schema, file: NewFile) -> Self {
        Self::with(properties(schema).unwrap(), schema, file)
    }

    fn with(properties: WriterProperties, schema: &Schema, file: NewFile) -> Self {
        let columns = ColumnBuilders::new(schema, |_| true).unwrap();
        let options = ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true);
        let writer = ArrowWriter::try_new_with_options(file, columns.arrow.clone(), options).unwrap();
        Self { columns, writer, group: 0, rows: 0, bytes: 0 }
    }

    fn encode(&mut self) {
        if self.columns.rows > 0 {
            self.writer.write(&self.columns.take().unwrap()).unwrap();
        }
    }

    fn push(&mut self, record: &Record) -> Placed {
        let bytes = record.canonical_size();
        if self.rows == GROUP_ROWS || (self.rows > 0 && self.bytes + bytes > GROUP_BYTES) {
            self.encode();
            self.writer.flush().unwrap();
            (self.rows, self.bytes) = (0, 0);
            self.group += 1;
        } else if self.columns.rows == CHUNK_ROWS || self.columns.bytes + bytes > CHUNK_BYTES {
            self.encode();
        }
        let placed = Placed::in_group(self.group, self.rows as u32, bytes);
        self.columns.push(record, bytes).unwrap();
        self.rows += 1;
        self.bytes += bytes;
        placed
    }

    fn finish(mut self) -> NewFile {
        self.encode();
        self.writer.into_inner().unwrap()
    }
}

#[track_caller]
fn assert_same_bytes(schema: &Schema, records: &[Record]) {
    let dir = tempfile::tempdir().unwrap();
    let (ours, expected) = (dir.path().join("ours"), dir.path().join("expected"));
    let mut reference = Reference::new(schema, NewFile::create(&expected).unwrap());
    let mut writer =
        Box::new(Writer::new(Arc::new(schema.clone()), NewFile::create(&ours).unwrap()).unwrap());
    for record in records {
        assert_eq!(writer.push(record).unwrap(), reference.push(record));
    }
    writer.finish().unwrap().commit().unwrap();
    reference.finish().commit().unwrap();
    let reader =
        Reader::new(Arc::new(schema.clone()), Blob::open(&ours, Access::Read, None).unwrap()).unwrap();
    let (at, read): (Vec<_>, Vec<_>) = reader.scan().unwrap().map(Result::unwrap).unzip();
    assert!(read == records, "read as other records");
    let some = |n: &usize| n.is_multiple_of(7);
    let (at, some): (Vec<_>, Vec<_>) =
        (0..at.len()).filter(some).map(|n| (at[n], records[n].clone())).unzip();
    assert!(reader.get_many(&at).unwrap() == some, "read as other records, one in seven");
    let (ours, expected) = (std::fs::read(ours).unwrap(), std::fs::read(expected).unwrap());
    let differs = ours.iter().zip(&expected).position(|(a, b)| a != b);
    assert!(ours == expected, "{} and {} bytes differ at {differs:?}", ours.len(), expected.len());
}

/// A linear congruential generator.
struct Lcg(u64);

impl Lcg {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % limit.max(1)
    }
}

/// Distribution of generated values.
#[derive(Debug, Clone, Copy)]
struct ValueShape {
    seed: u64,
    /// Probability of null for nullable values, in sixteenths.
    missing: usize,
    /// Exclusive upper limit for the ids or bytes of a value.
    size: usize,
    /// One in this many values is forty times as large; 0 means none.
    large: usize,
}

fn records(schema: &Schema, count: usize, shape: ValueShape) -> Vec<Record> {
    let mut numbers = Lcg(shape.seed);
    let mut value = |field: &Field| {
        if field.nullable && numbers.below(16) < shape.missing {
            return Value::Null;
        }
        let large = shape.large > 0 && numbers.below(shape.large) == 0;
        let size = numbers.below(shape.size) * if large { 40 } else { 1 };
        let first = numbers.below(50_000);
        match field.ty {
            FieldType::String | FieldType::Json => Value::Text(first.to_string().into()),
            FieldType::Binary | FieldType::Image | FieldType::Mask => {
                Value::Bytes((0..size).map(|i| ((i * first) >> 3) as u8).collect::<Bytes>())
            }
            FieldType::Bool => Value::Bool(first.is_multiple_of(2)),
            FieldType::Int32 | FieldType::Int64 => Value::Int(first as i64),
            FieldType::Label => Value::Int(first as i64 % 2),
            FieldType::UInt32 | FieldType::UInt64 => Value::UInt(first as u64),
            FieldType::Float32 | FieldType::Float64 => Value::Float(first as f64),
            FieldType::IdsU16 | FieldType::IdsU32 => {
                let ids: Vec<u32> = (0..size).map(|i| (first + i * i / 7) as u32 % 65_536).collect();
                Value::Ids(Ids::pack(field.ty.id_width().unwrap(), &ids).unwrap())
            }
            FieldType::Flags
            | FieldType::Boxes
            | FieldType::BoxLabels
            | FieldType::BoxInts
            | FieldType::Int32Pair
            | FieldType::Texts
            | FieldType::Images
            | FieldType::Array(_) => Value::Null,
        }
    };
    let mut all: Vec<Record> =
        (0..count).map(|_| Record { values: schema.fields.iter().map(&mut value).collect() }).collect();
    for record in all.iter_mut().filter(|_| schema.masks_field().is_some()) {
        let Value::Ids(ids) = &record.values[1] else { panic!("no ids") };
        record.values[4] = Value::Bytes((0..ids.len()).map(|at| u8::from(at % 300 > shape.size)).collect());
    }
    all
}

fn nullable(types: &[FieldType]) -> Vec<Field> {
    types.iter().map(|ty| Field::nullable(&format!("my {}", ty.name()), *ty)).collect()
}

fn texts(width: IdWidth, extra: &[FieldType]) -> Schema {
    Schema::text(width, nullable(extra)).unwrap()
}

fn images(extra: &[FieldType]) -> Schema {
    Schema::images(Some(vec!["cat".into(), "dog".into()]), nullable(extra)).unwrap()
}

const ALL_PAYLOAD: [FieldType; 4] =
    [FieldType::IdsU16, FieldType::IdsU32, FieldType::Binary, FieldType::Image];

#[test]
fn a_schema_may_contain_every_field_type() {
    use FieldType::*;
    let all = [
        Image, String, Binary, Json, Bool, Int32, IdsU32, Int64, UInt32, Binary, UInt64, Float32, Float64,
        IdsU16, Label,
    ];
    let extra = all.iter().zip(0..).map(|(ty, i)| Field::nullable(&format!("{i}"), *ty)).collect();
    let schema = Schema::images(Some(vec!["cat".into(), "dog".into()]), extra).unwrap();
    for count in [0, 1, 40, CHUNK_ROWS + 1] {
        assert_same_bytes(
            &schema,
            &records(&schema, count, ValueShape { seed: 1, missing: 5, size: 60, large: 9 }),
        );
    }
}

#[test]
fn flags_are_written_with_the_ids() {
    for (width, size) in [(IdWidth::U16, 3000), (IdWidth::U32, 2), (IdWidth::U16, 100)] {
        let schema = texts(width, &[FieldType::Json]).with_assistant_masks().unwrap();
        let shape = ValueShape { seed: 8, missing: 3, size, large: 50 };
        assert_same_bytes(&schema, &records(&schema, 3 * PAGE_ROWS / 2, shape));
    }
}

#[test]
fn null_and_empty_values_may_be_mixed() {
    let schema = texts(IdWidth::U16, &ALL_PAYLOAD);
    for missing in [0, 1, 8, 15, 16] {
        for size in [1, 2] {
            let shape = ValueShape { seed: 2, missing, size, large: 0 };
            assert_same_bytes(&schema, &records(&schema, 3 * PAGE_ROWS / 2, shape));
        }
    }
}

#[test]
fn row_groups_end_by_rows_and_by_bytes() {
    let schema = texts(IdWidth::U16, &[]);
    assert_same_bytes(
        &schema,
        &records(&schema, GROUP_ROWS + 20, ValueShape { seed: 3, missing: 0, size: 4, large: 0 }),
    );
    let schema = images(&[]);
    let shape = ValueShape { seed: 4, missing: 0, size: 60_000, large: 0 };
    assert_same_bytes(&schema, &records(&schema, 900, shape));
    // Record sizes around the exact limits of a row group and of a chunk.
    for limit in [GROUP_BYTES, CHUNK_BYTES] {
        let record = |bytes: u64| Record {
            values: vec![
                Value::Text("".into()),
                Value::Bytes(vec![7; bytes as usize].into()),
                Value::UInt(1),
                Value::UInt(1),
                Value::Null,
                Value::Text("".into()),
            ],
        };
        let around = record(0).canonical_size();
        for size in [limit - around - 1, limit - around, limit - around + 1] {
            assert_same_bytes(
                &schema,
                &[record(5), record(size), record(6), record(size - 6 - around), record(7)],
            );
        }
    }
}

#[test]
fn large_records_are_one_page() {
    let schema = texts(IdWidth::U32, &[FieldType::Binary, FieldType::IdsU16]);
    for count in [1, 2, 5] {
        let shape = ValueShape { seed: 5, missing: 4, size: 300_000, large: 3 };
        assert_same_bytes(&schema, &records(&schema, count, shape));
    }
}

#[test]
fn a_long_list_ends_a_page_of_short_ones() {
    for width in [IdWidth::U16, IdWidth::U32] {
        let schema = texts(width, &[]);
        let shape = ValueShape { seed: 7, missing: 0, size: 50, large: 0 };
        let mut records = records(&schema, 40, shape);
        // Mostly zeros, so that chunks of zeros lie between others.
        let ids: Vec<u32> = (0..3_000_000).map(|i| if i % 9973 < 3 { i % 65_536 } else { 0 }).collect();
        for at in [7, 8, 20] {
            records[at].values[1] = Value::Ids(Ids::pack(width, &ids[at..]).unwrap());
        }
        assert_same_bytes(&schema, &records);
    }
}

#[test]
fn plain_encoded_ids_are_read() {
    let schema = texts(IdWidth::U16, &[]);
    let records = records(&schema, 500, ValueShape { seed: 6, missing: 0, size: 90, large: 7 });
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("plain");
    let ids = ColumnPath::from(vec!["input_ids".to_owned(), "list".to_owned(), "element".to_owned()]);
    let plain = properties(&schema).unwrap().into_builder().set_column_encoding(ids, Encoding::PLAIN).build();
    let mut writer = Reference::with(plain, &schema, NewFile::create(&path).unwrap());
    for record in &records {
        writer.push(record);
    }
    writer.finish().commit().unwrap();
    let reader = Reader::new(Arc::new(schema), Blob::open(&path, Access::Read, None).unwrap()).unwrap();
    let read: Vec<_> = reader.scan().unwrap().map(|record| record.unwrap().1).collect();
    assert_eq!(read, records);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_records_give_the_same_bytes(
        (seed, wide, is_image) in any::<(u64, bool, bool)>(),
        count in 0usize..3000,
        missing in 0usize..=16,
        size in prop::sample::select(vec![1usize, 2, 3, 10, 40, 200, 700, 2000, 9000]),
        large in prop::sample::select(vec![0usize, 0, 5, 100]),
        extra in prop::sample::subsequence(ALL_PAYLOAD.to_vec(), 0..=2),
    ) {
        let schema = match is_image {
            true => images(&extra),
            false => texts(if wide { IdWidth::U32 } else { IdWidth::U16 }, &extra),
        };
        // Similar total size for all value sizes.
        let count = count.min(3_000_000 / (size * if large == 5 { 8 } else { 1 }));
        assert_same_bytes(&schema, &records(&schema, count, ValueShape { seed, missing, size, large }));
    }
}
