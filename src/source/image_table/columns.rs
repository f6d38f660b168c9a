//! Roles of the columns in a Parquet file of images.

use arrow_schema::{DataType, Fields, Schema};
use serde_json::Value as Json;

use crate::error::{Error, Result};
use crate::schema::{Field, LABEL};
use crate::source::table::{field_type, is_text};

/// Names of binary columns that are treated as images without being declared as such.
const IMAGE_NAMES: [&str; 2] = ["image", "img"];
/// Name of an audio column, whose structs are those of images.
const AUDIO: &str = "audio";
/// Fields that every image dataset has.
const BUILT_IN: [&str; 5] = ["key", "image", "width", "height", "origin"];

/// The columns of a Parquet file with images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageColumns {
    /// Ordinal of the image column.
    pub(super) image: usize,
    /// Ordinal of the label column.
    pub(super) label: Option<usize>,
    /// Ordinals of the columns that become fields.
    pub(super) kept: Vec<usize>,
    /// The fields of these columns.
    pub fields: Vec<Field>,
    /// Names of columns that are left out: no field can hold them, or the name belongs to another field.
    pub left_out: Vec<String>,
    /// Names of the classes, if they are declared for the labels.
    pub declared_classes: Option<Vec<String>>,
}

impl ImageColumns {
    /// Finds the columns in `schema`; returns `None` if no column has images. `declared` is the JSON in which
    /// `datasets` describes the columns.
    ///
    /// # Errors
    ///
    /// Returns an error if several columns have images, and none of them is named `image`.
    pub(super) fn find(schema: &Schema, declared: Option<&str>) -> Result<Option<Self>> {
        let declared: Json = declared.and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default();
        let feature = |name: &str| declared.pointer("/info/features").and_then(|features| features.get(name));
        let kind = |name: &str| feature(name).and_then(|feature| feature.get("_type")).and_then(Json::as_str);
        let is_image = |at: usize| {
            let (name, ty) = (schema.field(at).name().as_str(), schema.field(at).data_type());
            match (kind(name), ty) {
                (Some("Image"), ty) => is_bytes(ty) || has_bytes(ty),
                (Some(_), _) => false,
                (None, DataType::Struct(_)) => has_bytes(ty) && name != AUDIO,
                (None, ty) => is_bytes(ty) && IMAGE_NAMES.contains(&name),
            }
        };
        let all = || 0..schema.fields().len();
        let name = |at: usize| schema.field(at).name().as_str();
        let images: Vec<usize> = all().filter(|&at| is_image(at)).collect();
        let image = match images[..] {
            [] => return Ok(None),
            [one] => one,
            _ => images.iter().copied().find(|&at| name(at) == IMAGE_NAMES[0]).ok_or_else(|| {
                let names: Vec<&str> = images.iter().map(|&at| name(at)).collect();
                Error::usage(format!("several columns have images: {}", names.join(", ")))
                    .help("rename the one to convert to \"image\"")
            })?,
        };
        let is_label =
            |at: usize| is_text(schema.field(at).data_type()) || schema.field(at).data_type().is_integer();
        let classes: Vec<usize> =
            all().filter(|&at| kind(name(at)) == Some("ClassLabel") && is_label(at)).collect();
        let named = all().find(|&at| at != image && name(at) == LABEL && is_label(at));
        let label = named.or(match classes[..] {
            [one] => Some(one),
            _ => None,
        });
        let names = |at: usize| feature(name(at))?.get("names")?.as_array();
        let declared_classes =
            label.filter(|&at| kind(name(at)) == Some("ClassLabel")).and_then(names).map(|names| {
                names
                    .iter()
                    .map(|name| name.as_str().map_or_else(|| name.to_string(), str::to_owned))
                    .collect()
            });
        let (mut kept, mut fields, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
        for at in all().filter(|&at| at != image && Some(at) != label) {
            let is_built_in = BUILT_IN.contains(&name(at)) || name(at) == LABEL;
            match field_type(schema.field(at).data_type()).filter(|_| !is_built_in) {
                Some(ty) => {
                    kept.push(at);
                    fields.push(Field::nullable(name(at), ty));
                }
                None => left_out.push(name(at).to_owned()),
            }
        }
        Ok(Some(Self { image, label, kept, fields, left_out, declared_classes }))
    }

    /// Returns whether records of both files can be in one dataset.
    pub fn fits(&self, other: &Self) -> bool {
        self.fields == other.fields
            && self.label.is_some() == other.label.is_some()
            && self.declared_classes == other.declared_classes
    }

    /// Returns whether there are labels.
    pub fn has_labels(&self) -> bool {
        self.label.is_some()
    }

    /// Returns the ordinals of all these columns, ascending.
    pub(super) fn roots(&self) -> Vec<usize> {
        let mut all: Vec<usize> =
            [self.image].into_iter().chain(self.label).chain(self.kept.clone()).collect();
        all.sort_unstable();
        all
    }

    /// Returns the same columns with their positions in `roots`.
    pub(super) fn among(&self, roots: &[usize]) -> Self {
        let position = |at: usize| roots.partition_point(|&other| other < at);
        Self {
            image: position(self.image),
            label: self.label.map(position),
            kept: self.kept.iter().map(|&at| position(at)).collect(),
            ..self.clone()
        }
    }
}

fn is_bytes(ty: &DataType) -> bool {
    matches!(ty, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
}

/// Returns whether a struct has the bytes of a file, and optionally its path, as `datasets` stores files.
fn has_bytes(ty: &DataType) -> bool {
    let member = |members: &Fields, name: &str, fits: fn(&DataType) -> bool| {
        members.iter().any(|member| member.name() == name && fits(member.data_type()))
    };
    match ty {
        DataType::Struct(members) => {
            member(members, "bytes", is_bytes)
                && members.iter().all(|m| ["bytes", "path"].contains(&m.name().as_str()))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::Field as Column;

    use super::*;
    use crate::schema::FieldType;

    fn image(name: &str) -> Column {
        let members =
            vec![Column::new("bytes", DataType::Binary, true), Column::new("path", DataType::Utf8, true)];
        Column::new(name, DataType::Struct(members.into()), true)
    }

    fn find(columns: Vec<Column>, declared: &str) -> Result<Option<ImageColumns>> {
        ImageColumns::find(&Schema::new(columns), Some(declared))
    }

    #[test]
    fn image_columns_are_found_by_declaration_name_or_type() {
        let of = |columns, declared| find(columns, declared).unwrap().map(|found| found.image);
        let (id, bytes) = (Column::new("id", DataType::Int64, true), |name: &str| {
            Column::new(name, DataType::Binary, true)
        });
        assert_eq!(of(vec![id.clone(), image("x")], ""), Some(1));
        assert_eq!(of(vec![id.clone(), bytes("image")], ""), Some(1));
        assert_eq!(of(vec![id.clone(), bytes("x")], ""), None);
        assert_eq!(of(vec![bytes("x")], r#"{"info": {"features": {"x": {"_type": "Image"}}}}"#), Some(0));
        assert_eq!(of(vec![image("x")], r#"{"info": {"features": {"x": {"_type": "Audio"}}}}"#), None);
        assert_eq!(of(vec![image("audio")], ""), None);
        assert_eq!(of(vec![image("a"), image("image")], ""), Some(1));
        let error = find(vec![image("a"), image("b")], "").unwrap_err();
        assert!(error.to_string().contains("several columns have images: a, b"), "{error}");
    }

    #[test]
    fn the_other_columns_are_labels_and_fields() {
        let declared =
            r#"{"info": {"features": {"breed": {"_type": "ClassLabel", "names": ["cat", "dog"]}}}}"#;
        let columns = vec![
            Column::new("width", DataType::Int32, true),
            image("image"),
            Column::new("breed", DataType::Int64, true),
            Column::new("day", DataType::Date32, true),
            Column::new("time", DataType::Time32(arrow_schema::TimeUnit::Second), true),
            Column::new("tags", DataType::List(Arc::new(Column::new("item", DataType::Utf8, true))), true),
        ];
        let found = find(columns, declared).unwrap().unwrap();
        assert_eq!(
            (found.label, found.declared_classes.as_deref()),
            (Some(2), Some(&["cat".to_owned(), "dog".to_owned()][..]))
        );
        let day = Field::nullable("day", FieldType::String);
        assert_eq!(found.fields, [day, Field::nullable("tags", FieldType::Json)]);
        assert_eq!(found.left_out, ["width", "time"]);
        assert_eq!(found.roots(), [1, 2, 3, 5]);
        assert_eq!(found.among(&found.roots()).kept, [2, 3]);
    }
}
