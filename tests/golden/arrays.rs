//! Arrays of all types of numbers, and lists of texts, in the formats that hold them: `fixtures/golden/v3/arrays-*`.

use dsconvert::sample::ArrayValue;
use dsconvert::schema::{DType, Field as SchemaField, FieldType};

use super::*;

/// Name and type of each field: one with fixed axes for each type of numbers, then the other layouts.
fn fields() -> Vec<(String, String)> {
    let fixed = DType::ALL.into_iter().filter(|dtype| *dtype != DType::Bool);
    let fixed = fixed.map(|dtype| (dtype.name().to_owned(), format!("array<{dtype}>[2,3]")));
    let others = [
        ("number", "array<int16>[]"),
        ("scores", "array<float32>[?]"),
        ("frames", "array<float64>[?,2]"),
        ("latent", "array<bfloat16>[4,?,?]"),
    ];
    fixed.chain(others.map(|(name, ty)| (name.to_owned(), ty.to_owned()))).collect()
}

/// The number at place `at` of the array in record `i`, as little-endian bytes.
fn number(dtype: DType, i: u32, at: u32) -> Vec<u8> {
    let value = i * 10 + at;
    match dtype {
        DType::Bool => vec![],
        DType::UInt8 | DType::Int8 => vec![value as u8],
        DType::UInt16 | DType::Int16 => (value as u16).wrapping_mul(997).to_le_bytes().to_vec(),
        DType::UInt32 | DType::Int32 => value.wrapping_mul(0x1357_9bdf).to_le_bytes().to_vec(),
        DType::UInt64 | DType::Int64 => (u64::from(value) << 57 | u64::from(at)).to_le_bytes().to_vec(),
        // 1 + value / 1024.
        DType::Float16 => (0x3c00 + value as u16).to_le_bytes().to_vec(),
        DType::BFloat16 => ((value as f32).to_bits() >> 16).to_le_bytes()[..2].to_vec(),
        DType::Float32 => (value as f32 / 3.0).to_le_bytes().to_vec(),
        DType::Float64 => (f64::from(value) / 3.0).to_le_bytes().to_vec(),
    }
}

fn write_arrays(format: &str, out: &Path) {
    let fields = fields();
    let extra =
        fields.iter().map(|(name, ty)| SchemaField::nullable(name, FieldType::Array(ty.parse().unwrap())));
    let extra = extra.chain([SchemaField::nullable("tags", FieldType::Texts)]);
    let schema = Schema::text(IdWidth::U16, extra.collect()).unwrap();
    let options = WriterOptions {
        format: format.parse::<Format>().unwrap(),
        splits: vec!["train".to_owned()],
        shard_records: Some(5),
        ..WriterOptions::new(2, "arrays")
    };
    let writer = DatasetWriter::open(out, &schema, &options).unwrap();
    for unit_number in 0..2 {
        let mut unit = writer.unit(unit_number).unwrap();
        for i in (0..13u32).filter(|i| i % 2 == unit_number) {
            let key = format!("record-{i}");
            let mut values = vec![
                Field::Text(key.as_str().into()),
                Field::Ids(Ids::pack(IdWidth::U16, &[i]).unwrap()),
                Field::UInt(1),
                Field::Text(key.into()),
            ];
            for (name, ty) in &fields {
                let FieldType::Array(ty) = FieldType::Array(ty.parse().unwrap()) else { unreachable!() };
                let shape: Vec<u32> = match name.as_str() {
                    "number" => vec![],
                    "scores" => vec![i % 5],
                    "frames" => vec![i % 4, 2],
                    "latent" => vec![4, i % 3, 1 + i % 2],
                    _ => vec![2, 3],
                };
                let count = shape.iter().product();
                let bytes: Vec<u8> = (0..count).flat_map(|at| number(ty.dtype(), i, at)).collect();
                values.push(match i % 6 {
                    5 => Field::Null,
                    _ => Field::Array(ArrayValue::new(shape, bytes.into())),
                });
            }
            let tags = (0..i % 4).map(|at| format!("tag {}", at * i).as_str().into()).collect();
            values.push(if i % 6 == 5 { Field::Null } else { Field::Texts(tags) });
            unit.push(Record { values }, "train").unwrap();
        }
        unit.finish().unwrap();
    }
    writer.commit(&Provenance::default()).unwrap();
}

#[test]
fn golden_arrays_are_read_and_still_written() {
    check_golden_in("v3", &["parquet", "arrow"], "arrays", write_arrays, digest);
}
