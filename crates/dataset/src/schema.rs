//! What the records of a dataset look like: its kind, its fields and their types.
//!
//! The schema is part of the manifest. `docs/reference/format-records.md` shows each type in each format.

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};

/// Name of the field that identifies a record; unique in a dataset.
pub const KEY: &str = "key";
/// Name of the field that says where a record came from.
pub const ORIGIN: &str = "origin";
/// Name of the image field.
pub const IMAGE: &str = "image";
/// Name of the image width field, in pixels.
pub const WIDTH: &str = "width";
/// Name of the image height field, in pixels.
pub const HEIGHT: &str = "height";
/// Name of the class label field.
pub const LABEL: &str = "label";
/// Name of the token id field.
pub const INPUT_IDS: &str = "input_ids";
/// Name of the field that holds the number of tokens.
pub const LENGTH: &str = "length";

/// What a dataset is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Encoded images.
    Images,
    /// Token ids.
    Text,
}

impl Kind {
    /// The name used in manifests and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Images => "images",
            Kind::Text => "text",
        }
    }

    /// The unit in which lengths of this kind are counted.
    pub fn length_unit(self) -> LengthUnit {
        match self {
            Kind::Images => LengthUnit::Pixels,
            Kind::Text => LengthUnit::Tokens,
        }
    }
}

/// What a length counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LengthUnit {
    /// Token ids of one record.
    Tokens,
    /// Width × height of the stored image.
    Pixels,
    /// Bytes of the payload.
    Bytes,
}

impl LengthUnit {
    /// The plural noun.
    pub fn name(self) -> &'static str {
        match self {
            LengthUnit::Tokens => "tokens",
            LengthUnit::Pixels => "pixels",
            LengthUnit::Bytes => "bytes",
        }
    }
}

/// How many bytes one stored token id takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IdWidth {
    /// Two bytes, little-endian.
    U16,
    /// Four bytes, little-endian.
    U32,
}

impl IdWidth {
    /// Bytes per id.
    pub fn bytes(self) -> usize {
        match self {
            IdWidth::U16 => 2,
            IdWidth::U32 => 4,
        }
    }

    /// The narrowest width that holds `max_id`. `max_id` must include added tokens: choosing from the vocabulary
    /// size alone wraps silently.
    pub fn for_max_id(max_id: u32) -> Self {
        if max_id <= u32::from(u16::MAX) { IdWidth::U16 } else { IdWidth::U32 }
    }

    /// The width of `bytes` per id, as stored in msgpack and protobuf records.
    pub fn from_bytes(bytes: u64) -> Option<Self> {
        match bytes {
            2 => Some(IdWidth::U16),
            4 => Some(IdWidth::U32),
            _ => None,
        }
    }
}

/// Type of one field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FieldType {
    /// UTF-8 text.
    String,
    /// Uninterpreted bytes.
    Binary,
    /// UTF-8 text that holds one JSON value.
    Json,
    /// True or false.
    Bool,
    /// Signed, 32 bits.
    Int32,
    /// Signed, 64 bits.
    Int64,
    /// Unsigned, 32 bits.
    UInt32,
    /// Unsigned, 64 bits.
    UInt64,
    /// IEEE 754 binary32.
    Float32,
    /// IEEE 754 binary64.
    Float64,
    /// One encoded image (JPEG, PNG, …).
    Image,
    /// One PNG file of the size of the record's image, whose samples are classes or other values, not colours.
    Mask,
    /// Index into [`Schema::class_names`].
    Label,
    /// A list of token ids (or of other unsigned numbers, as `cu_seqlens`), two bytes each.
    #[serde(rename = "ids<u16>")]
    IdsU16,
    /// A list of token ids (or of other unsigned numbers), four bytes each.
    #[serde(rename = "ids<u32>")]
    IdsU32,
}

impl FieldType {
    /// The list type whose ids are `width` wide.
    pub fn ids(width: IdWidth) -> Self {
        match width {
            IdWidth::U16 => FieldType::IdsU16,
            IdWidth::U32 => FieldType::IdsU32,
        }
    }

    /// The width of the ids, when this is a list of ids.
    pub fn id_width(self) -> Option<IdWidth> {
        match self {
            FieldType::IdsU16 => Some(IdWidth::U16),
            FieldType::IdsU32 => Some(IdWidth::U32),
            _ => None,
        }
    }

    /// Whether a value is the bytes of an image file.
    pub fn is_image_file(self) -> bool {
        matches!(self, FieldType::Image | FieldType::Mask)
    }

    /// The name used in manifests, on the command line and in messages.
    pub fn name(self) -> &'static str {
        match self {
            FieldType::String => "string",
            FieldType::Binary => "binary",
            FieldType::Json => "json",
            FieldType::Bool => "bool",
            FieldType::Int32 => "int32",
            FieldType::Int64 => "int64",
            FieldType::UInt32 => "uint32",
            FieldType::UInt64 => "uint64",
            FieldType::Float32 => "float32",
            FieldType::Float64 => "float64",
            FieldType::Image => "image",
            FieldType::Mask => "mask",
            FieldType::Label => "label",
            FieldType::IdsU16 => "ids<u16>",
            FieldType::IdsU32 => "ids<u32>",
        }
    }
}

/// One named, typed field of a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Field {
    /// Name, unique in the schema.
    pub name: String,
    /// Type of the value.
    #[serde(rename = "type")]
    pub ty: FieldType,
    /// Whether a record may lack it.
    pub nullable: bool,
}

impl Field {
    /// A field that every record has.
    pub fn required(name: &str, ty: FieldType) -> Self {
        Self { name: name.to_owned(), ty, nullable: false }
    }

    /// A field that a record may lack.
    pub fn nullable(name: &str, ty: FieldType) -> Self {
        Self { name: name.to_owned(), ty, nullable: true }
    }
}

/// Kind, fields in stored order, and class names.
///
/// The built-in fields come first: `key`, then `image, width, height[, label]` or `input_ids, length`, then `origin`,
/// then what the user asked to keep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schema {
    /// What the dataset is made of.
    pub kind: Kind,
    /// Fields in stored order.
    pub fields: Vec<Field>,
    /// Names of the classes, in label order; empty when there is no `label` field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub class_names: Vec<String>,
}

impl Schema {
    /// Schema of an image dataset. `class_names` is `None` when the items have no labels.
    pub fn images(class_names: Option<Vec<String>>, extra: Vec<Field>) -> Result<Self> {
        let mut fields = vec![
            Field::required(KEY, FieldType::String),
            Field::required(IMAGE, FieldType::Image),
            Field::required(WIDTH, FieldType::UInt32),
            Field::required(HEIGHT, FieldType::UInt32),
        ];
        if class_names.is_some() {
            fields.push(Field::nullable(LABEL, FieldType::Label));
        }
        fields.push(Field::required(ORIGIN, FieldType::String));
        fields.extend(extra);
        Self { kind: Kind::Images, fields, class_names: class_names.unwrap_or_default() }.checked()
    }

    /// Schema of a text dataset whose ids are `width` wide.
    pub fn text(width: IdWidth, extra: Vec<Field>) -> Result<Self> {
        let mut fields = vec![
            Field::required(KEY, FieldType::String),
            Field::required(INPUT_IDS, FieldType::ids(width)),
            Field::required(LENGTH, FieldType::UInt32),
            Field::required(ORIGIN, FieldType::String),
        ];
        fields.extend(extra);
        Self { kind: Kind::Text, fields, class_names: Vec::new() }.checked()
    }

    /// Position of the field called `name`.
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|f| f.name == name)
    }

    /// As [`Self::checked`], for a schema that was read: what nobody may ask for is damage there.
    pub(crate) fn checked_as_read(self) -> Result<Self> {
        self.checked().map_err(|e| match e.kind() {
            ErrorKind::Usage => Error::corrupt(format!("the schema contradicts itself: {e}")),
            _ => e,
        })
    }

    /// Checks what every schema promises: unique names and the built-in fields of its kind.
    pub fn checked(self) -> Result<Self> {
        for (i, field) in self.fields.iter().enumerate() {
            if self.fields[..i].iter().any(|f| f.name == field.name) {
                return Err(Error::usage(format!("two fields are called {:?}", field.name))
                    .help("rename one of them, or do not keep it"));
            }
        }
        let built_in: &[&str] = match self.kind {
            Kind::Images => &[KEY, IMAGE, WIDTH, HEIGHT, ORIGIN],
            Kind::Text => &[KEY, INPUT_IDS, LENGTH, ORIGIN],
        };
        for name in built_in {
            if self.index_of(name).is_none() {
                return Err(Error::corrupt(format!("the schema has no field {name:?}")));
            }
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_width_counts_the_largest_id_not_the_vocabulary() {
        assert_eq!(IdWidth::for_max_id(65_535), IdWidth::U16);
        assert_eq!(IdWidth::for_max_id(65_536), IdWidth::U32);
    }

    #[test]
    fn a_kept_field_may_not_shadow_a_built_in_one() {
        let twice = Schema::text(IdWidth::U16, vec![Field::nullable(ORIGIN, FieldType::String)]);
        assert!(twice.is_err_and(|e| e.to_string().contains("origin")));
    }

    #[test]
    fn a_schema_survives_json() {
        let schema = Schema::images(Some(vec!["cat".into(), "dog".into()]), vec![]).unwrap();
        let json = serde_json::to_string(&schema).unwrap();
        assert_eq!(serde_json::from_str::<Schema>(&json).unwrap(), schema);
    }
}
