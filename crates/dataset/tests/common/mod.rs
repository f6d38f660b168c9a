//! Schemas, records and shards for the format tests.

#![allow(dead_code)] // Each test binary uses only some of these.
#![allow(clippy::unwrap_used)] // The exemption for tests does not cover helper functions.

use std::path::Path;
use std::sync::Arc;

use dsconvert_dataset::format::{Format, Placed, writer};
use dsconvert_dataset::sample::{ArrayValue, Ids, Record, Text, Value};
use dsconvert_dataset::schema::{ArrayType, Field, FieldType, IdWidth, Kind, Schema};
use dsconvert_dataset::storage::NewFile;
use proptest::collection::vec;
use proptest::prelude::*;

/// All types that a further field may have.
pub(crate) const ALL_TYPES: [FieldType; 16] = [
    FieldType::String,
    FieldType::Binary,
    FieldType::Json,
    FieldType::Bool,
    FieldType::Int32,
    FieldType::Int64,
    FieldType::UInt32,
    FieldType::UInt64,
    FieldType::Float32,
    FieldType::Float64,
    FieldType::Image,
    FieldType::Mask,
    FieldType::Label,
    FieldType::IdsU16,
    FieldType::IdsU32,
    FieldType::Int32Pair,
];

/// Returns three class names, enough for the generated labels.
pub(crate) fn classes() -> Vec<String> {
    vec!["кот".to_owned(), "dog".to_owned(), "a, \"b\"".to_owned()]
}

/// Returns an image schema with labels and one nullable field of each type.
pub(crate) fn images_with_everything() -> Schema {
    let extra = ALL_TYPES.iter().map(|ty| Field::nullable(&format!("my {}", ty.name()), *ty));
    Schema::images(Some(classes()), extra.collect()).unwrap()
}

/// Returns the fields of boxes.
pub(crate) fn boxes() -> [Field; 3] {
    [
        Field::nullable("boxes", FieldType::Boxes),
        Field::nullable("labels", FieldType::BoxLabels),
        Field::nullable("iscrowd", FieldType::BoxInts),
    ]
}

/// Generates a schema of any kind.
pub(crate) fn any_schema() -> impl Strategy<Value = Schema> {
    let fields = vec((prop::sample::select(ALL_TYPES.to_vec()), any::<bool>()), 0..6);
    (
        prop::sample::select(vec![Kind::Images, Kind::Text, Kind::Records]),
        any::<bool>(),
        any::<bool>(),
        fields,
    )
        .prop_map(|(kind, flag, more, fields)| {
            let masked = more;
            let field = |(i, (ty, nullable))| Field { name: format!("поле {i}"), ty, nullable };
            let mut extra: Vec<Field> = fields.into_iter().enumerate().map(field).collect();
            if kind == Kind::Records {
                extra.push(Field::required("score", FieldType::Float32));
            }
            if kind == Kind::Images && more {
                extra.extend(boxes());
            }
            let mut schema = match kind {
                Kind::Images => Schema::images(flag.then(classes), extra).unwrap(),
                Kind::Text => Schema::text(if flag { IdWidth::U16 } else { IdWidth::U32 }, extra).unwrap(),
                Kind::Records => Schema::records(extra).unwrap(),
            };
            if kind == Kind::Text && masked {
                schema = schema.with_assistant_masks().unwrap();
            }
            let has_classes = |f: &Field| matches!(f.ty, FieldType::Label | FieldType::BoxLabels);
            if schema.fields.iter().any(has_classes) {
                schema.class_names = classes();
            }
            schema
        })
}

/// Generates a value for `field`.
pub(crate) fn any_value(field: &Field) -> BoxedStrategy<Value> {
    let bytes = || vec(any::<u8>(), 0..40).prop_map(bytes::Bytes::from);
    let present = match field.ty {
        FieldType::String => "\\PC{0,12}".prop_map(|s| Value::Text(s.into())).boxed(),
        FieldType::Json => "[0-9]{1,9}".prop_map(|s| Value::Text(s.into())).boxed(),
        FieldType::Binary | FieldType::Image | FieldType::Mask => bytes().prop_map(Value::Bytes).boxed(),
        FieldType::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        FieldType::Int32 => any::<i32>().prop_map(|i| Value::Int(i.into())).boxed(),
        FieldType::Int64 => any::<i64>().prop_map(Value::Int).boxed(),
        FieldType::UInt32 => any::<u32>().prop_map(|u| Value::UInt(u.into())).boxed(),
        FieldType::UInt64 => any::<u64>().prop_map(Value::UInt).boxed(),
        FieldType::Float32 => any::<f32>().prop_map(|x| Value::Float(x.into())).boxed(),
        FieldType::Float64 => any::<f64>().prop_map(Value::Float).boxed(),
        FieldType::Label => (0..3i64).prop_map(Value::Int).boxed(),
        FieldType::IdsU16 => vec(any::<u16>().prop_map(u32::from), 0..40)
            .prop_map(|ids| Value::Ids(Ids::pack(IdWidth::U16, &ids).unwrap()))
            .boxed(),
        FieldType::IdsU32 => vec(any::<u32>(), 0..40)
            .prop_map(|ids| Value::Ids(Ids::pack(IdWidth::U32, &ids).unwrap()))
            .boxed(),
        // Adapted to the number of ids by `any_record`.
        FieldType::Flags => vec(any::<bool>(), 1..60)
            .prop_map(|flags| Value::Bytes(flags.into_iter().map(u8::from).collect()))
            .boxed(),
        FieldType::Boxes => vec(any_box(), 0..40)
            .prop_map(|boxes| Value::Bytes(boxes.into_iter().flatten().flat_map(f32::to_le_bytes).collect()))
            .boxed(),
        // Adapted to the number of boxes by `any_record`.
        FieldType::BoxLabels => numbers((0..3i64).boxed()),
        FieldType::BoxInts => numbers(any::<i64>().boxed()),
        FieldType::Array(ty) => any_array(ty).boxed(),
        FieldType::Texts => {
            let text = "\\PC{0,9}".prop_map(|text| Text::from(text.as_str()));
            vec(text, 0..5).prop_map(Value::Texts).boxed()
        }
        FieldType::Images => vec(bytes(), 0..5).prop_map(Value::Files).boxed(),
        FieldType::Int32Pair => any::<[u8; 8]>().prop_map(|pair| Value::Bytes(pair.to_vec().into())).boxed(),
    };
    if field.nullable { prop_oneof![1 => Just(Value::Null), 3 => present].boxed() } else { present }
}

/// Generates a list of as many numbers as a record may have boxes.
fn numbers(number: BoxedStrategy<i64>) -> BoxedStrategy<Value> {
    vec(number, 40)
        .prop_map(|numbers| Value::Bytes(numbers.into_iter().flat_map(i64::to_le_bytes).collect()))
        .boxed()
}

/// Generates an array, whose open axes are 0 to 4.
fn any_array(ty: ArrayType) -> impl Strategy<Value = Value> {
    let axes: Vec<_> = ty.axes().collect();
    let shape = axes.into_iter().map(|axis| match axis {
        Some(size) => (size as u32..=size as u32).boxed(),
        None => (0u32..5).boxed(),
    });
    shape.collect::<Vec<_>>().prop_flat_map(move |shape| {
        let bytes = shape.iter().product::<u32>() as usize * ty.dtype().bytes();
        vec(any::<u8>(), bytes)
            .prop_map(move |bytes| Value::Array(ArrayValue::new(shape.clone(), bytes::Bytes::from(bytes))))
    })
}

fn any_box() -> impl Strategy<Value = [f32; 4]> {
    [-1e30f32..1e30, -9.0f32..9.0, 0.0f32..1e30, 0.0f32..9.0]
        .prop_map(|[left, top, width, height]| [left, top, left + width, top + height])
}

/// Generates a record of `schema`.
pub(crate) fn any_record(schema: &Schema) -> BoxedStrategy<Record> {
    let aligned: Vec<usize> = schema.aligned().collect();
    let (boxes, per_box) = (schema.boxes_field(), schema.per_box().collect::<Vec<_>>());
    let values = schema.fields.iter().map(any_value).collect::<Vec<_>>();
    values
        .prop_map(move |mut values| {
            for &at in &aligned {
                let (Value::Ids(ids), Value::Bytes(flags)) = (&values[1], &values[at]) else { continue };
                let flags = flags.iter().copied().cycle().take(ids.len()).collect();
                values[at] = Value::Bytes(flags);
            }
            for &at in per_box.iter().filter(|&&at| Some(at) != boxes) {
                let count = match &values[boxes.unwrap_or_default()] {
                    Value::Bytes(boxes) => Some(boxes.len() / 16),
                    _ => None,
                };
                values[at] = match (count, &values[at]) {
                    (Some(count), Value::Bytes(numbers)) => Value::Bytes(numbers.slice(..count * 8)),
                    (Some(count), _) => Value::Bytes(vec![0; count * 8].into()),
                    (None, _) => Value::Null,
                };
            }
            Record { values }
        })
        .boxed()
}

/// Generates a schema with up to `max` records.
pub(crate) fn any_records(max: usize) -> impl Strategy<Value = (Schema, Vec<Record>)> {
    any_schema().prop_flat_map(move |schema| {
        let records = vec(any_record(&schema), 0..=max);
        (Just(schema), records)
    })
}

/// Writes `records` to `path`.
pub(crate) fn write(format: Format, schema: &Schema, records: &[Record], path: &Path) -> Vec<Placed> {
    let mut writer = writer(format, Arc::new(schema.clone()), NewFile::create(path).unwrap()).unwrap();
    let placed = records.iter().map(|record| writer.push(record).unwrap()).collect();
    writer.finish().unwrap().commit().unwrap();
    placed
}
