//! Dataset schema in Arrow and Parquet files.
//!
//! Both formats carry one metadata key, `huggingface`. The `datasets` package uses it to open images as `Image` and
//! labels as `ClassLabel`. It also stores what Arrow types cannot express (the dataset kind, and which strings are
//! JSON), so the schema can be recovered from a single shard. It must remain the only key: several keys would be
//! written in hash map order, which varies.
//!
//! Every column is declared nullable, regardless of the schema, because `datasets` ignores its features for
//! non-nullable columns. The metadata key records which fields are actually nullable.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field as ArrowField, Fields, Schema as ArrowSchema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};

use crate::error::{Error, ErrorKind, Result};
use crate::schema::{ArrayLayout, ArrayType, DType, Field, FieldType, Kind, ListItems, Schema};

/// The one metadata key of an Arrow or Parquet shard.
pub(super) const METADATA_KEY: &str = "huggingface";
/// Name of the child field for the encoded image.
pub(super) const IMAGE_BYTES: &str = "bytes";
/// Name of the child field for a file name. Always null, because the image is in the record.
pub(super) const IMAGE_PATH: &str = "path";

/// Name of the child field for the numbers of arrays.
pub(super) const ARRAY_DATA: &str = "data";
/// Name of the child field for the sizes of the axes of arrays.
pub(super) const ARRAY_SHAPE: &str = "shape";

/// Value of the metadata key.
#[derive(Serialize, Deserialize)]
struct Metadata {
    info: Info,
    dsconvert: Option<OwnMetadata>,
}

/// The part that the `datasets` package reads.
#[derive(Serialize, Deserialize)]
struct Info {
    features: Map<String, Json>,
}

/// The part that Arrow types cannot express.
#[derive(Serialize, Deserialize)]
struct OwnMetadata {
    kind: Kind,
    /// Field type of each column.
    types: Vec<FieldType>,
    /// Whether each column is nullable.
    nullable: Vec<bool>,
}

/// Returns the Arrow schema for `schema`, including its metadata.
pub(super) fn to_arrow(schema: &Schema) -> Result<Arc<ArrowSchema>> {
    let fields: Fields =
        schema.fields.iter().map(|f| ArrowField::new(&f.name, data_type(f.ty), true)).collect();
    let metadata = HashMap::from([(METADATA_KEY.to_owned(), metadata(schema, Offsets::Large)?)]);
    Ok(Arc::new(ArrowSchema::new_with_metadata(fields, metadata)))
}

/// Width of the offsets of lists. `datasets` ignores the feature of a column if they differ.
#[derive(Clone, Copy)]
pub(super) enum Offsets {
    /// 32 bits for types that were always so, and 64 bits for others, as in Arrow.
    Large,
    /// Parquet has no offsets, and Arrow's default is 32 bits.
    #[cfg(feature = "parquet")]
    Default,
}

/// Returns the value of the metadata key.
pub(super) fn metadata(schema: &Schema, offsets: Offsets) -> Result<String> {
    let features = schema.fields.iter().map(|f| (f.name.clone(), feature(f.ty, schema, offsets))).collect();
    let types = schema.fields.iter().map(|f| f.ty).collect();
    let nullable = schema.fields.iter().map(|f| f.nullable).collect();
    let own = OwnMetadata { kind: schema.kind, types, nullable };
    serde_json::to_string(&Metadata { info: Info { features }, dsconvert: Some(own) })
        .map_err(|e| Error::not_serialized("the schema", e))
}

/// Returns the error for a file of another program.
pub(super) fn not_a_shard() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "the file is not a dsconvert shard: its metadata does not contain a dsconvert schema",
    )
}

/// Recovers the dataset schema from the columns and the metadata value of an Arrow or Parquet file.
pub(super) fn from_arrow(arrow: &ArrowSchema, metadata: Option<&str>) -> Result<Schema> {
    let metadata: Metadata = serde_json::from_str(metadata.ok_or_else(not_a_shard)?)
        .map_err(|e| Error::corrupt("the metadata of the shard is damaged").caused_by(e))?;
    let own = metadata.dsconvert.ok_or_else(not_a_shard)?;
    if own.types.len() != arrow.fields().len() || own.nullable.len() != own.types.len() {
        return Err(Error::corrupt("the metadata of the shard describes a different number of columns"));
    }
    let fields = arrow
        .fields()
        .iter()
        .zip(own.types.into_iter().zip(own.nullable))
        .map(|(f, (ty, nullable))| Field { name: f.name().clone(), ty, nullable })
        .collect::<Vec<_>>();
    let class_names = fields
        .iter()
        .find(|f| f.ty.is_class())
        .and_then(|f| {
            let feature = metadata.info.features.get(&f.name)?;
            feature.get("feature").unwrap_or(feature).get("names")?.as_array()
        })
        .map(|names| names.iter().filter_map(|n| n.as_str().map(str::to_owned)).collect())
        .unwrap_or_default();
    let schema = Schema { kind: own.kind, fields, class_names, indexed: Vec::new() }.checked_as_read()?;
    expect(&schema, arrow)?;
    Ok(schema)
}

/// Checks that the columns in `found` match `schema`.
pub(super) fn expect(schema: &Schema, found: &ArrowSchema) -> Result<()> {
    if schema.fields.len() != found.fields().len() {
        return Err(Error::corrupt(format!(
            "the shard has {} columns, but the schema has {} fields",
            found.fields().len(),
            schema.fields.len()
        )));
    }
    for (field, column) in schema.fields.iter().zip(found.fields()) {
        let same = field.name == *column.name()
            && column.is_nullable()
            && same_type(&data_type(field.ty), column.data_type());
        if !same {
            return Err(Error::corrupt(format!(
                "the shard has column {:?} of type {}, but the schema has field {:?} of type {}",
                column.name(),
                column.data_type(),
                field.name,
                field.ty.name()
            )));
        }
    }
    Ok(())
}

/// Compares types but ignores what Parquet lacks: the name of list items, which is `element` in Parquet and `item` in
/// Arrow, the width of the offsets of lists, and the size of `a` if it is a list of fixed size.
fn same_type(a: &DataType, b: &DataType) -> bool {
    match (a, b) {
        (DataType::FixedSizeList(_, a), DataType::FixedSizeList(_, b)) if a != b => false,
        (DataType::List(a), DataType::List(b))
        | (DataType::LargeList(a), DataType::List(b) | DataType::LargeList(b))
        | (DataType::FixedSizeList(a, _), DataType::List(b) | DataType::FixedSizeList(b, _)) => {
            same_type(a.data_type(), b.data_type()) && a.is_nullable() == b.is_nullable()
        }
        (DataType::Struct(a), DataType::Struct(b)) => {
            a.len() == b.len()
                && a.iter().zip(b).all(|(a, b)| {
                    a.name() == b.name()
                        && a.is_nullable() == b.is_nullable()
                        && same_type(a.data_type(), b.data_type())
                })
        }
        _ => a == b,
    }
}

/// Returns the Arrow type of a field type.
pub(super) fn data_type(ty: FieldType) -> DataType {
    match ty {
        FieldType::String | FieldType::Json => DataType::Utf8,
        FieldType::Binary => DataType::Binary,
        FieldType::Bool => DataType::Boolean,
        FieldType::Int32 => DataType::Int32,
        FieldType::Int64 | FieldType::Label => DataType::Int64,
        FieldType::UInt32 => DataType::UInt32,
        FieldType::UInt64 => DataType::UInt64,
        FieldType::Float32 => DataType::Float32,
        FieldType::Float64 => DataType::Float64,
        FieldType::Image | FieldType::Mask => DataType::Struct(image_fields()),
        FieldType::Array(array) => array_type(array),
        FieldType::Texts => DataType::LargeList(item(DataType::Utf8)),
        FieldType::Images => DataType::LargeList(item(DataType::Struct(image_fields()))),
        // The remaining types are lists.
        list => match list.list_items() {
            Some(ListItems { dtype, columns: None }) => DataType::List(item(number_type(dtype))),
            Some(ListItems { dtype, columns: Some(columns) }) => {
                DataType::List(item(DataType::FixedSizeList(item(number_type(dtype)), columns as i32)))
            }
            None => DataType::Null,
        },
    }
}

/// Returns the Arrow type of the arrays of a type.
fn array_type(array: ArrayType) -> DataType {
    let number = number_type(array.dtype());
    match array.layout() {
        ArrayLayout::Fixed(sizes) => nested(number, &sizes),
        ArrayLayout::Rows(sizes) => DataType::LargeList(item(nested(number, &sizes))),
        ArrayLayout::Shaped(rank) => DataType::Struct(shaped_fields(array.dtype(), rank)),
    }
}

/// Returns nested lists of `number` of fixed `sizes`, the outermost first.
fn nested(number: DataType, sizes: &[usize]) -> DataType {
    // A size has less than 32 bits.
    sizes.iter().rev().fold(number, |of, &size| DataType::FixedSizeList(item(of), size as i32))
}

/// Returns the child fields of a column of arrays that differ in more than their first axis.
pub(super) fn shaped_fields(dtype: DType, rank: usize) -> Fields {
    let numbers = DataType::LargeList(item(number_type(dtype)));
    Fields::from(vec![
        ArrowField::new(ARRAY_DATA, numbers, true),
        ArrowField::new(ARRAY_SHAPE, nested(DataType::Int32, &[rank]), true),
    ])
}

/// Returns the Arrow type of a number.
pub(super) fn number_type(dtype: DType) -> DataType {
    match dtype.stored() {
        DType::Bool => DataType::Boolean,
        DType::UInt8 => DataType::UInt8,
        DType::Int8 => DataType::Int8,
        DType::UInt16 | DType::BFloat16 => DataType::UInt16,
        DType::Int16 => DataType::Int16,
        DType::Float16 => DataType::Float16,
        DType::UInt32 => DataType::UInt32,
        DType::Int32 => DataType::Int32,
        DType::UInt64 => DataType::UInt64,
        DType::Int64 => DataType::Int64,
        DType::Float32 => DataType::Float32,
        DType::Float64 => DataType::Float64,
    }
}

/// Returns the type of the numbers that Arrow stores as `ty`. bfloat16 is none, because Arrow has it as uint16.
pub fn number_of(ty: &DataType) -> Option<DType> {
    DType::ALL.into_iter().find(|&dtype| dtype.stored() == dtype && number_type(dtype) == *ty)
}

/// Returns the child fields of an image column.
pub(super) fn image_fields() -> Fields {
    Fields::from(vec![
        ArrowField::new(IMAGE_BYTES, DataType::Binary, true),
        ArrowField::new(IMAGE_PATH, DataType::Utf8, true),
    ])
}

/// Returns the child field of a list column. It is never null, but declared nullable like in every other tool.
pub(super) fn item(ty: DataType) -> Arc<ArrowField> {
    Arc::new(ArrowField::new("item", ty, true))
}

/// Returns the `datasets` feature for a field type.
fn feature(ty: FieldType, schema: &Schema, offsets: Offsets) -> Json {
    let value = |dtype: &str| json!({ "dtype": dtype, "_type": "Value" });
    let class = || json!({ "names": schema.class_names, "_type": "ClassLabel" });
    if let Some(ListItems { dtype, columns }) = ty.list_items() {
        let number = if ty.is_class() { class() } else { value(dtype.name()) };
        let one = match columns {
            Some(columns) => json!({ "feature": number, "length": columns, "_type": "List" }),
            None => number,
        };
        return json!({ "feature": one, "_type": "List" });
    }
    let nested = |number: Json, sizes: &[usize]| {
        sizes.iter().rev().fold(number, |of, &size| json!({ "feature": of, "length": size, "_type": "List" }))
    };
    let list = match offsets {
        Offsets::Large => "LargeList",
        #[cfg(feature = "parquet")]
        Offsets::Default => "List",
    };
    let open = |of: Json| json!({ "feature": of, "_type": list });
    if let FieldType::Array(array) = ty {
        let number = value(array.dtype().stored().name());
        return match array.layout() {
            ArrayLayout::Fixed(sizes) => nested(number, &sizes),
            ArrayLayout::Rows(sizes) => open(nested(number, &sizes)),
            ArrayLayout::Shaped(rank) => {
                json!({ ARRAY_DATA: open(number), ARRAY_SHAPE: nested(value("int32"), &[rank]) })
            }
        };
    }
    match ty {
        FieldType::Json => value("string"),
        FieldType::Image | FieldType::Mask => json!({ "_type": "Image" }),
        FieldType::Label => class(),
        FieldType::Texts => open(value("string")),
        FieldType::Images => open(json!({ "_type": "Image" })),
        // The remaining types have the same name in `datasets`.
        other => value(&other.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::IdWidth;

    #[test]
    fn numbers_have_one_type_in_arrow_and_back() {
        for dtype in DType::ALL {
            assert_eq!(number_of(&number_type(dtype)), Some(dtype.stored()));
        }
        assert_eq!(number_of(&DataType::Utf8), None);
    }

    #[test]
    fn the_metadata_key_and_value_never_change() {
        let schema = Schema::images(Some(vec!["cat".into(), "dog".into()]), vec![]).unwrap();
        let arrow = to_arrow(&schema).unwrap();
        assert_eq!(arrow.metadata().len(), 1);
        let expected = concat!(
            r#"{"info":{"features":{"key":{"dtype":"string","_type":"Value"},"image":{"_type":"Image"},"#,
            r#""width":{"dtype":"uint32","_type":"Value"},"height":{"dtype":"uint32","_type":"Value"},"#,
            r#""label":{"names":["cat","dog"],"_type":"ClassLabel"},"origin":{"dtype":"string","_type":"Value"}}},"#,
            r#""dsconvert":{"kind":"images","types":["string","image","uint32","uint32","label","string"],"#,
            r#""nullable":[false,false,false,false,true,false]}}"#,
        );
        assert_eq!(arrow.metadata()["huggingface"], expected);
    }

    #[test]
    fn the_schema_is_recovered_from_arrow_metadata() {
        let all = [Field::nullable("j", FieldType::Json), Field::required("n", FieldType::IdsU32)];
        for schema in [
            Schema::images(Some(vec!["cat".into()]), all.to_vec()).unwrap(),
            Schema::images(None, vec![]).unwrap(),
            Schema {
                class_names: vec!["cat".into(), "dog".into()],
                ..Schema::images(
                    None,
                    vec![
                        Field::nullable("boxes", FieldType::Boxes),
                        Field::nullable("labels", FieldType::BoxLabels),
                        Field::nullable("iscrowd", FieldType::BoxInts),
                    ],
                )
                .unwrap()
            },
            Schema::text(IdWidth::U16, all.to_vec()).unwrap(),
            Schema::text(IdWidth::U16, all.to_vec()).unwrap().with_assistant_masks().unwrap(),
        ] {
            let arrow = to_arrow(&schema).unwrap();
            let metadata = arrow.metadata().get(METADATA_KEY).map(String::as_str);
            assert_eq!(from_arrow(&arrow, metadata).unwrap(), schema);
            assert!(from_arrow(&arrow, None).is_err());
            assert!(from_arrow(&arrow, Some("{}")).is_err());
        }
    }
}
