//! Roles of the columns in a Parquet file of images.

use arrow_schema::{DataType, Fields, Schema};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::error::{Error, Result};
use crate::schema::{Field, LABEL};
use crate::source::items::box_fields::{self, is_box_column, source_side};
use crate::source::items::metadata::columns::{KeptField, is_built_in};
use crate::source::table::columns::{ColumnNames, kept_type, position, read_columns};
use crate::source::table::missing_field::no_column;
use crate::source::table::{field_type, is_bytes, is_text};

/// Names of binary columns that are treated as images without being declared as such.
const IMAGE_NAMES: [&str; 2] = ["image", "img"];
/// Name of an audio column, whose structs are those of images.
const AUDIO: &str = "audio";

/// A column that has images, or may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageColumn {
    /// Ordinal of the column.
    pub at: usize,
    /// Name of the column.
    pub name: String,
    /// Whether its values are lists.
    pub is_list: bool,
    /// Whether it is declared as images.
    pub is_declared: bool,
    /// Whether it is declared as images, or has their structure or name. Otherwise, only its content can show it.
    pub has_images: bool,
}

impl ImageColumn {
    /// Returns the columns of `schema` that have images, or bytes that may be images. `declared` is the JSON in which
    /// `datasets` describes the columns.
    pub(super) fn find(schema: &Schema, declared: Option<&str>) -> Vec<Self> {
        let declared = Declared::new(declared);
        let column = |(at, column): (usize, &arrow_schema::FieldRef)| {
            let name = column.name();
            let (ty, is_list) = match column.data_type() {
                DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
                    (item.data_type(), true)
                }
                ty => (ty, false),
            };
            let may_be = is_bytes(ty) || has_bytes(ty);
            let kind = declared.kind(name, is_list);
            let is_declared = kind == Some("Image");
            // Other declared kinds, such as `Audio`, are not images.
            let may_be = may_be && (is_declared || kind.is_none_or(|kind| kind == "Value"));
            let is_named = is_bytes(ty) && !is_list && IMAGE_NAMES.contains(&name.as_str());
            let has_images = is_declared || kind.is_none() && (has_bytes(ty) && name != AUDIO || is_named);
            may_be.then(|| Self { at, name: name.clone(), is_list, is_declared, has_images })
        };
        schema.fields().iter().enumerate().filter_map(column).collect()
    }
}

/// The description of the columns by `datasets`.
struct Declared(Json);

impl Declared {
    fn new(declared: Option<&str>) -> Self {
        Self(declared.and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default())
    }

    fn feature(&self, name: &str) -> Option<&Json> {
        self.0.pointer("/info/features").and_then(|features| features.get(name))
    }

    /// Returns the kind of a column, or of the items of its lists.
    fn kind(&self, name: &str, is_list: bool) -> Option<&str> {
        let feature = self.feature(name)?;
        let item = match is_list {
            // Written as `{"feature": …, "_type": "List"}`, and in old versions as `[…]`.
            true => feature.get("feature").or_else(|| feature.get(0))?,
            false => feature,
        };
        item.get("_type").and_then(Json::as_str)
    }
}

/// Returns the names of the categories that `declared` has for the objects in the column `name`.
pub(super) fn declared_categories(declared: Option<&str>, name: &str) -> Option<Vec<String>> {
    box_fields::declared_categories(Declared::new(declared).feature(name)?)
}

/// The place of an image in a row: a column, or an item of its lists.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ImageCell {
    /// Name of the column.
    pub column: String,
    /// Ordinal of the item.
    pub item: Option<usize>,
}

/// The images of the rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableImages {
    /// The main image.
    pub main: ImageCell,
    /// Additional images, one per field.
    pub further: Vec<ImageCell>,
    /// Columns with images that are left out.
    pub left_out: Vec<String>,
}

/// The columns of a Parquet file with images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageColumns {
    /// Ordinals of the columns of the images, with the ordinals of the items: the main image, then the additional ones.
    pub(super) images: Vec<(usize, Option<usize>)>,
    /// Names of these columns.
    pub(super) image_names: Vec<String>,
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
    /// Finds the columns in `schema` for these `images`; returns `None` if the column of the main image is missing or has no
    /// images. `declared` is the JSON in which `datasets` describes the columns. `label` names the column with the classes,
    /// if the user does. With `keep`, only these columns become fields.
    ///
    /// # Errors
    ///
    /// Returns an error if another column of images, the column of classes or a column to keep is missing, or has an
    /// unusable type.
    pub(super) fn find(
        schema: &Schema,
        declared: Option<&str>,
        images: &TableImages,
        label: Option<&str>,
        keep: Option<&[KeptField]>,
    ) -> Result<Option<Self>> {
        let all = || 0..schema.fields().len();
        let name = |at: usize| schema.field(at).name().as_str();
        let names = ColumnNames::of(schema);
        let columns = ImageColumn::find(schema, declared);
        let cell = |cell: &ImageCell| {
            let fits = |c: &&ImageColumn| c.name == cell.column && c.is_list == cell.item.is_some();
            columns.iter().find(fits).map(|column| (column.at, cell.item))
        };
        let Some(main) = cell(&images.main) else { return Ok(None) };
        let mut cells = vec![main];
        for further in &images.further {
            // A column of another type is missing, too.
            let missing = || no_column("image_fields", &further.column, names.all());
            cells.push(cell(further).ok_or_else(missing)?);
        }
        let image_names = cells.iter().map(|(at, _)| name(*at).to_owned()).collect();
        let is_image = |at: usize| cells.iter().any(|(image, _)| *image == at);
        let declared = Declared::new(declared);
        let is_class = |at: usize| declared.kind(name(at), false) == Some("ClassLabel");
        let is_label =
            |at: usize| is_text(schema.field(at).data_type()) || schema.field(at).data_type().is_integer();
        let classes: Vec<usize> = all().filter(|&at| is_class(at) && is_label(at)).collect();
        let named = all().find(|&at| !is_image(at) && name(at) == LABEL && is_label(at));
        let label = match label {
            Some(wanted) => {
                let at = names.required(wanted, "label_field")?;
                if is_image(at) || !is_label(at) {
                    let ty = schema.field(at).data_type();
                    return Err(Error::usage(format!("the column {wanted:?} is {ty}, and holds no classes"))
                        .of_option("label_field")
                        .help("name a column of text or integers"));
                }
                Some(at)
            }
            None => named.or(match classes[..] {
                [one] => Some(one),
                _ => None,
            }),
        };
        let class_names = |at: usize| declared.feature(name(at))?.get("names")?.as_array();
        let declared_classes = label.filter(|&at| is_class(at)).and_then(class_names).map(|names| {
            names.iter().map(|name| name.as_str().map_or_else(|| name.to_string(), str::to_owned)).collect()
        });
        let mut found = Self {
            images: cells.clone(),
            image_names,
            label,
            kept: Vec::new(),
            fields: Vec::new(),
            left_out: Vec::new(),
            declared_classes,
        };
        if let Some(keep) = keep {
            for kept in keep {
                let at = names.required(&kept.member, "keep_fields")?;
                if is_image(at) || Some(at) == label {
                    let what = if Some(at) == label { "the class" } else { "an image already" };
                    return Err(Error::usage(format!("the column {:?} is {what}", kept.member))
                        .of_option("keep_fields")
                        .help("leave it out of `keep_fields`"));
                }
                let ty = kept_type(&kept.member, schema.field(at).data_type(), kept.ty)?;
                found.kept.push(at);
                found.fields.push(Field::nullable(kept.name.as_ref().unwrap_or(&kept.member), ty));
            }
            return Ok(Some(found));
        }
        // Boxes are in pixels of an image of this size.
        let has_boxes = all().any(|at| is_box_column(name(at)) && schema.field(at).data_type().is_nested());
        for at in all().filter(|&at| !is_image(at) && Some(at) != label) {
            // A column of images that is left out does not become a field of bytes either.
            let new_name =
                source_side(name(at)).filter(|new| has_boxes && names.all().iter().all(|name| name != new));
            let is_left_out = (is_built_in(name(at)) && new_name.is_none())
                || images.left_out.iter().any(|c| c == name(at));
            match field_type(schema.field(at).data_type()).filter(|_| !is_left_out) {
                Some(ty) => {
                    found.kept.push(at);
                    found.fields.push(Field::nullable(new_name.unwrap_or(name(at)), ty));
                }
                None => found.left_out.push(name(at).to_owned()),
            }
        }
        Ok(Some(found))
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

    /// Returns the ordinals of the columns to read, ascending, and these columns as positions in a batch of only those.
    pub(super) fn alone(&self) -> (Vec<usize>, Self) {
        let images = self.images.iter().map(|(at, _)| *at);
        let read = read_columns(images.chain(self.label).chain(self.kept.iter().copied()));
        let alone = Self {
            images: self.images.iter().map(|(at, item)| (position(&read, *at), *item)).collect(),
            label: self.label.map(|at| position(&read, at)),
            kept: self.kept.iter().map(|&at| position(&read, at)).collect(),
            ..self.clone()
        };
        (read, alone)
    }
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

    fn image_type() -> DataType {
        let members =
            vec![Column::new("bytes", DataType::Binary, true), Column::new("path", DataType::Utf8, true)];
        DataType::Struct(members.into())
    }

    fn image(name: &str) -> Column {
        Column::new(name, image_type(), true)
    }

    fn list(name: &str, item: DataType) -> Column {
        Column::new(name, DataType::List(Arc::new(Column::new("item", item, true))), true)
    }

    #[test]
    fn image_columns_are_found_by_declaration_name_or_type() {
        // The columns with images, and those that may have images.
        let of = |columns: Vec<Column>, declared: &str| {
            let found = ImageColumn::find(&Schema::new(columns), Some(declared));
            let names = |sure: bool| {
                let names = found.iter().filter(|c| c.has_images == sure).map(|c| c.name.clone());
                names.collect::<Vec<_>>().join(" ")
            };
            (names(true), names(false))
        };
        let both = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        let (id, bytes) = (Column::new("id", DataType::Int64, true), |name: &str| {
            Column::new(name, DataType::Binary, true)
        });
        let declared = |kind: &str| format!(r#"{{"info": {{"features": {{"x": {{"_type": "{kind}"}}}}}}}}"#);
        assert_eq!(of(vec![id.clone(), image("x")], ""), both("x", ""));
        assert_eq!(of(vec![id.clone(), bytes("image"), bytes("x")], ""), both("image", "x"));
        assert_eq!(of(vec![bytes("x")], &declared("Image")), both("x", ""));
        assert_eq!(of(vec![bytes("x")], &declared("Value")), both("", "x"));
        assert_eq!(of(vec![image("x")], &declared("Audio")), both("", ""));
        assert_eq!(of(vec![image("audio"), image("a"), image("image")], ""), both("a image", "audio"));
        let lists = || vec![list("x", image_type()), list("b", DataType::Binary), list("n", DataType::Int8)];
        assert_eq!(of(lists(), ""), both("x", "b"));
        for feature in
            [r#"{"feature": {"_type": "Video"}, "_type": "List"}"#, r#"[{"_type": "Video", "decode": true}]"#]
        {
            let declared = format!(r#"{{"info": {{"features": {{"x": {feature}}}}}}}"#);
            assert_eq!(of(lists(), &declared), both("", "b"), "{feature}");
        }
    }

    #[test]
    fn the_other_columns_are_labels_and_fields() {
        let declared =
            r#"{"info": {"features": {"breed": {"_type": "ClassLabel", "names": ["cat", "dog"]}}}}"#;
        let schema = Schema::new(vec![
            Column::new("width", DataType::Int32, true),
            list("views", image_type()),
            Column::new("breed", DataType::Int64, true),
            Column::new("day", DataType::Date32, true),
            Column::new("time", DataType::Time32(arrow_schema::TimeUnit::Second), true),
            list("tags", DataType::Utf8),
            image("front"),
        ]);
        let cell = |column: &str, item| ImageCell { column: column.to_owned(), item };
        let images = TableImages {
            main: cell("front", None),
            further: vec![cell("views", Some(0)), cell("views", Some(1))],
            left_out: Vec::new(),
        };
        let find = |keep: Option<&str>| {
            let keep = keep.map(|text| crate::source::items::metadata::columns::parse_kept(text).unwrap());
            ImageColumns::find(&schema, Some(declared), &images, None, keep.as_deref())
        };
        let found = find(None).unwrap().unwrap();
        assert_eq!(
            (found.label, found.declared_classes.as_deref()),
            (Some(2), Some(&["cat".to_owned(), "dog".to_owned()][..]))
        );
        let day = Field::nullable("day", FieldType::String);
        assert_eq!(found.fields, [day, Field::nullable("tags", FieldType::Json)]);
        assert_eq!(found.left_out, ["width", "time"]);
        let (read, alone) = found.alone();
        assert_eq!(read, [1, 2, 3, 5, 6]);
        assert_eq!(alone.kept, [2, 3]);
        assert_eq!(alone.images, [(4, None), (0, Some(0)), (0, Some(1))]);
        let kept = find(Some("w=width")).unwrap().unwrap();
        assert_eq!(kept.fields, [Field::nullable("w", FieldType::Int32)]);
        assert_eq!(kept.left_out, [""; 0]);
        for (wrong, message) in [
            ("breed", "is the class"),
            ("front", "is an image already"),
            ("time", "which no field can hold"),
            ("width:string", "is int32, not string"),
            ("wdth", "there is no column \"wdth\""),
        ] {
            let error = find(Some(wrong)).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
