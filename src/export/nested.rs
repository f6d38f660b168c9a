//! Prompts whose messages and other JSON are nested columns, as a folder for `datasets`: what GRPO in TRL, and verl, read.
//!
//! A column has one type, which follows from all its values. It is found in a pass over the records before anything is
//! written; members are in the order in which they first appear.

use std::sync::Arc;

use arrow_array::builder::BooleanBuilder;
use arrow_array::{ArrayRef, Float64Array, Int64Array, ListArray, NullArray, StringArray, StructArray};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field, Fields, Schema as ArrowSchema, SchemaRef};
use serde_json::{Map, Value as Json};

use super::hf::check_split_names;
use super::hub_card::{Features, quoted};
use super::row_columns::RowColumns;
use super::{Columns, ExportInput, ExportOptions, ExportSplit};
use crate::error::{Error, Result};
use crate::reader::Record;
use crate::sample::Value;
use crate::schema::{FieldType, Schema};

/// Records whose JSON is read at a time to find the types.
const BLOCK_RECORDS: u64 = 1024;

/// Records with nested columns.
pub(super) struct NestedColumns {
    schema: SchemaRef,
    columns: Vec<Column>,
    warnings: Vec<String>,
}

/// A field and the type of its values.
struct Column {
    name: String,
    ty: FieldType,
    shape: Shape,
}

/// The type of JSON values, except null.
#[derive(Debug, Clone, PartialEq)]
enum Shape {
    /// There are none.
    Null,
    Bool,
    Int,
    Float,
    Text,
    List(Box<Shape>),
    Struct(Vec<(String, Shape)>),
}

impl NestedColumns {
    pub(super) fn new(input: &ExportInput, _: &ExportOptions) -> Result<Self> {
        check_split_names(input)?;
        let schema = input.schema()?;
        if !schema.holds_prompts() {
            return Err(Error::usage("`columns nested` is for prompts, whose messages are nested")
                .help("leave it out: other datasets have no nested fields"));
        }
        let mut columns = columns_of(schema)?;
        for split in &input.splits {
            let count = split.source.lengths().records();
            let mut start = 0;
            while start < count {
                let end = (start + BLOCK_RECORDS).min(count);
                let ordinals: Vec<u64> = (start..end).collect();
                for record in split.source.get_many(&ordinals)? {
                    for (at, column) in columns.iter_mut().enumerate() {
                        column.add(&record, at).map_err(|e| split.source.at_record(e, record.ordinal()))?;
                    }
                }
                start = end;
            }
        }
        let mut warnings = Vec::new();
        for Column { name, shape, .. } in &mut columns {
            shape.without_empty(name, &mut warnings);
        }
        let fields: Vec<_> =
            columns.iter().map(|column| Field::new(&column.name, column.shape.data_type(), true)).collect();
        Ok(Self { schema: Arc::new(ArrowSchema::new(fields)), columns, warnings })
    }
}

/// Returns the columns of the fields, without values yet.
fn columns_of(schema: &Schema) -> Result<Vec<Column>> {
    let column = |field: &crate::schema::Field| {
        let shape = match field.ty {
            FieldType::Json => Shape::Null,
            FieldType::String => Shape::Text,
            FieldType::Bool => Shape::Bool,
            FieldType::Int32 | FieldType::Int64 | FieldType::UInt32 => Shape::Int,
            FieldType::Float32 | FieldType::Float64 => Shape::Float,
            other => {
                let what =
                    format!("the field {:?} has the type {}, which is not nested", field.name, other.name());
                return Err(Error::usage(what).of_option("columns").help("leave it out with `fields`"));
            }
        };
        Ok(Column { name: field.name.clone(), ty: field.ty, shape })
    };
    schema.fields.iter().map(column).collect()
}

impl Column {
    /// Adds the value of a record to the type, if it is JSON. The field has the position `at`.
    fn add(&mut self, record: &Record, at: usize) -> Result<()> {
        if self.ty == FieldType::Json
            && let Some(json) = json_of(record, at)?
        {
            self.shape.add(&json, &self.name)?;
        }
        Ok(())
    }

    /// Returns the values of records.
    fn array(&self, records: &[Record], at: usize) -> Result<ArrayRef> {
        let values = |record: &Record| record.values().get(at).cloned().unwrap_or(Value::Null);
        Ok(match self.ty {
            FieldType::Json => {
                let all = records.iter().map(|record| json_of(record, at)).collect::<Result<Vec<_>>>()?;
                self.shape.array(&all.iter().map(Option::as_ref).collect::<Vec<_>>())
            }
            // A float is not a number of JSON if it is NaN.
            FieldType::Float32 | FieldType::Float64 => {
                let float = |record| match values(record) {
                    Value::Float(float) => Some(float),
                    _ => None,
                };
                Arc::new(records.iter().map(float).collect::<Float64Array>())
            }
            _ => {
                let all: Vec<Option<Json>> = records.iter().map(|record| scalar(&values(record))).collect();
                self.shape.array(&all.iter().map(Option::as_ref).collect::<Vec<_>>())
            }
        })
    }
}

/// Returns a value that is not JSON as one; `None` if it is null.
fn scalar(value: &Value) -> Option<Json> {
    match value {
        Value::Text(text) => Some(text.as_str().into()),
        Value::Bool(flag) => Some((*flag).into()),
        Value::Int(int) => Some((*int).into()),
        Value::UInt(int) => Some((*int).into()),
        _ => None,
    }
}

/// Returns the JSON in a field; `None` if it is null.
fn json_of(record: &Record, at: usize) -> Result<Option<Json>> {
    match record.values().get(at) {
        Some(Value::Text(text)) => serde_json::from_str(text.as_str())
            .map_err(|e| Error::corrupt("the record has a field that is not JSON").caused_by(e)),
        _ => Ok(None),
    }
}

impl Shape {
    fn name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool => "a boolean",
            Self::Int | Self::Float => "a number",
            Self::Text => "a text",
            Self::List(_) => "a list",
            Self::Struct(_) => "an object",
        }
    }

    /// Makes the type hold `value`, which is at `path`.
    fn add(&mut self, value: &Json, path: &str) -> Result<()> {
        let found = match value {
            Json::Null => return Ok(()),
            Json::Bool(_) => Self::Bool,
            Json::Number(number) if number.is_i64() => Self::Int,
            Json::Number(number) if number.is_u64() => {
                return Err(Error::usage(format!(
                    "{path} is {number}, which does not fit in 64 bits with a sign"
                ))
                .help("export with `columns stored`, which keeps JSON as text"));
            }
            Json::Number(_) => Self::Float,
            Json::String(_) => Self::Text,
            Json::Array(_) => Self::List(Box::new(Self::Null)),
            Json::Object(_) => Self::Struct(Vec::new()),
        };
        if *self == Self::Null {
            *self = found.clone();
        }
        match (&mut *self, value) {
            (Self::List(items), Json::Array(values)) => {
                let path = format!("{path}[]");
                values.iter().try_for_each(|value| items.add(value, &path))
            }
            (Self::Struct(members), Json::Object(values)) => {
                for (name, value) in values {
                    let at = members.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
                        members.push((name.clone(), Self::Null));
                        members.len() - 1
                    });
                    if let Some((_, shape)) = members.get_mut(at) {
                        shape.add(value, &format!("{path}.{name}"))?;
                    }
                }
                Ok(())
            }
            (Self::Int, _) if found == Self::Float => {
                *self = Self::Float;
                Ok(())
            }
            (Self::Float, _) if found == Self::Int => Ok(()),
            (known, _) if *known == found => Ok(()),
            (known, _) => Err(Error::usage(format!(
                "{path} is {} in some records and {} in others, but a column has one type",
                known.name(),
                found.name()
            ))
            .help("make the values of the source alike; or export with `columns stored`, which keeps JSON as text")),
        }
    }

    /// Replaces objects that never have a member by null: Parquet has no columns for them.
    fn without_empty(&mut self, path: &str, warnings: &mut Vec<String>) {
        match self {
            Self::List(items) => items.without_empty(&format!("{path}[]"), warnings),
            Self::Struct(members) if members.is_empty() => {
                warnings
                    .push(format!("{path} is an object without members in all records, and becomes null"));
                *self = Self::Null;
            }
            Self::Struct(members) => {
                for (name, shape) in members {
                    shape.without_empty(&format!("{path}.{name}"), warnings);
                }
            }
            _ => {}
        }
    }

    fn data_type(&self) -> DataType {
        match self {
            Self::Null => DataType::Null,
            Self::Bool => DataType::Boolean,
            Self::Int => DataType::Int64,
            Self::Float => DataType::Float64,
            Self::Text => DataType::Utf8,
            Self::List(items) => DataType::List(items.item()),
            Self::Struct(members) => DataType::Struct(struct_fields(members)),
        }
    }

    /// Returns the field of the items of a list.
    fn item(&self) -> Arc<Field> {
        Arc::new(Field::new("item", self.data_type(), true))
    }

    /// Returns values as a column.
    fn array(&self, values: &[Option<&Json>]) -> ArrayRef {
        match self {
            Self::Null => Arc::new(NullArray::new(values.len())),
            Self::Bool => {
                let mut flags = BooleanBuilder::with_capacity(values.len());
                values.iter().for_each(|value| flags.append_option(value.and_then(Json::as_bool)));
                Arc::new(flags.finish())
            }
            Self::Int => {
                Arc::new(values.iter().map(|value| value.and_then(Json::as_i64)).collect::<Int64Array>())
            }
            Self::Float => {
                Arc::new(values.iter().map(|value| value.and_then(Json::as_f64)).collect::<Float64Array>())
            }
            Self::Text => {
                Arc::new(values.iter().map(|value| value.and_then(Json::as_str)).collect::<StringArray>())
            }
            Self::List(items) => {
                let lists: Vec<Option<&Vec<Json>>> =
                    values.iter().map(|value| value.and_then(Json::as_array)).collect();
                let lengths = lists.iter().map(|list| list.map_or(0, Vec::len));
                let nulls: NullBuffer = lists.iter().map(Option::is_some).collect();
                let all: Vec<Option<&Json>> =
                    lists.iter().flatten().flat_map(|list| list.iter().map(Some)).collect();
                let (offsets, items_array) = (OffsetBuffer::from_lengths(lengths), items.array(&all));
                Arc::new(ListArray::new(items.item(), offsets, items_array, Some(nulls)))
            }
            Self::Struct(members) => {
                let objects: Vec<Option<&Map<String, Json>>> =
                    values.iter().map(|value| value.and_then(Json::as_object)).collect();
                let nulls: NullBuffer = objects.iter().map(Option::is_some).collect();
                fn member<'a>(object: Option<&'a Map<String, Json>>, name: &str) -> Option<&'a Json> {
                    object?.get(name)
                }
                let columns = members.iter().map(|(name, shape)| {
                    shape.array(&objects.iter().map(|object| member(*object, name)).collect::<Vec<_>>())
                });
                Arc::new(StructArray::new(struct_fields(members), columns.collect(), Some(nulls)))
            }
        }
    }

    /// Returns the type in the YAML of `datasets`, whose further lines are indented by `indent`.
    fn feature(&self, indent: usize) -> String {
        let dtype = |name: &str| format!("dtype: {name}");
        match self {
            Self::Null => dtype("'null'"),
            Self::Bool => dtype("bool"),
            Self::Int => dtype("int64"),
            Self::Float => dtype("float64"),
            Self::Text => dtype("string"),
            Self::List(items) => match &**items {
                Self::Struct(members) => format!("list:{}", features(members, indent)),
                Self::List(_) => format!("list:\n{:indent$}  {}", "", items.feature(indent + 2)),
                scalar => format!("list: {}", scalar.feature(indent).trim_start_matches("dtype: ")),
            },
            Self::Struct(members) => format!("struct:{}", features(members, indent)),
        }
    }
}

fn struct_fields(members: &[(String, Shape)]) -> Fields {
    members.iter().map(|(name, shape)| Field::new(name, shape.data_type(), true)).collect()
}

/// Returns the members of an object in the YAML of `datasets`.
fn features(members: &[(String, Shape)], indent: usize) -> String {
    let member = |(name, shape): &(String, Shape)| {
        format!("\n{:indent$}- name: {}\n{:indent$}  {}", "", quoted(name), "", shape.feature(indent + 2))
    };
    members.iter().map(member).collect()
}

impl RowColumns for NestedColumns {
    const CONTENT: &str = "prompts";

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn columns(&self) -> Columns {
        Columns::Nested
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn arrays(&self, _: &ExportSplit, records: &[Record]) -> Result<Vec<ArrayRef>> {
        self.columns.iter().enumerate().map(|(at, column)| column.array(records, at)).collect()
    }

    fn features(&self) -> Features {
        let fields = self.columns.iter().map(|column| (column.name.clone(), column.shape.feature(4)));
        Features { task: Some("text-generation"), fields: fields.collect() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shape(values: &[Json]) -> Result<Shape> {
        let mut shape = Shape::Null;
        values.iter().try_for_each(|value| shape.add(value, "x"))?;
        Ok(shape)
    }

    #[test]
    fn types_hold_all_values_in_the_order_of_their_members() {
        let text = |name: &str| (name.to_owned(), Shape::Text);
        let message = |members: &[&str]| {
            Shape::List(Box::new(Shape::Struct(members.iter().map(|name| text(name)).collect())))
        };
        let found = shape(&[
            json!([{"role": "user", "content": "a"}]),
            Json::Null,
            json!([]),
            json!([{"name": "n"}]),
        ]);
        assert_eq!(found.unwrap(), message(&["role", "content", "name"]));
        assert_eq!(shape(&[json!(1), json!(1.5)]).unwrap(), Shape::Float);
        assert_eq!(shape(&[json!(1.5), json!(1)]).unwrap(), Shape::Float);
        for (values, parts) in [
            ([json!([{"c": "a"}]), json!([{"c": [1]}])], ["x[].c is a text", "a list in others"]),
            ([json!("a"), json!([])], ["x is a text", "a list"]),
            ([json!(true), json!(1)], ["x is a boolean", "a number"]),
            ([json!(1), json!(u64::MAX)], ["x is 18446744073709551615", "64 bits"]),
        ] {
            let error = shape(&values).unwrap_err().to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
    }

    #[test]
    fn objects_without_members_are_null_and_named() {
        let mut found = shape(&[json!({"a": {}, "b": 1})]).unwrap();
        let mut warnings = Vec::new();
        found.without_empty("x", &mut warnings);
        assert_eq!(found, Shape::Struct(vec![("a".to_owned(), Shape::Null), ("b".to_owned(), Shape::Int)]));
        assert!(warnings.len() == 1 && warnings[0].starts_with("x.a "));
    }

    #[test]
    fn types_are_features_of_datasets() {
        let found = shape(&[json!({"a": [{"b": 1}], "c": [[true]], "d": null})]).unwrap();
        let expected = "struct:\n    - name: \"a\"\n      list:\n      - name: \"b\"\n        dtype: int64\n    - name: \"c\"\n      \
                        list:\n        list: bool\n    - name: \"d\"\n      dtype: 'null'";
        assert_eq!(found.feature(4), expected);
    }
}
