//! Schema of a dataset: its kind, its fields and their types.
//!
//! The schema is part of the manifest. `docs/reference/format-records.md` shows each type in each format.

mod array_type;
mod dtype;
mod field_type;
pub mod multimodal;
pub mod preference;
pub mod prompts;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
pub use array_type::{ArrayLayout, ArrayType, MAX_AXES};
pub use dtype::DType;
pub use field_type::{FieldType, IdWidth, ListItems};

/// Name of the field that identifies a record; unique within a dataset.
pub const KEY: &str = "key";
/// Name of the field that holds the origin of a record.
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
/// Name of the field that marks the tokens to train on.
pub const ASSISTANT_MASKS: &str = "assistant_masks";
/// Name of the field with the weight of each token, a target.
pub const TOKEN_WEIGHTS: &str = "token_weights";
/// Name of the field with the ends of the documents of a packed row.
pub const CU_SEQLENS: &str = "cu_seqlens";
/// Name of the field with the position of the first token of each piece of a packed row in its document.
pub const PIECE_STARTS: &str = "piece_starts";
/// Name of the column of the record index with the number of tokens to train on.
pub const TRAINED: &str = "trained";
/// Name of the field with the boxes of an annotated image.
pub const BOXES: &str = "boxes";
/// Name of the field with the class of each box.
pub const BOX_LABELS: &str = "labels";
/// Name of the field that marks the boxes of crowds.
pub const BOX_CROWDS: &str = "iscrowd";

/// Name of the field with the upright size of the source of a bucketed image. This and the following ones are pairs: height
/// and width, or y and x, in pixels.
pub const ORIGINAL_SIZE: &str = "original_size";
/// Name of the field with the size of a bucketed image before it was cropped.
pub const RESIZED_SIZE: &str = "resized_size";
/// Name of the field with the top left corner of the crop in the resized image.
pub const CROP_TOP_LEFT: &str = "crop_top_left";
/// Name of the field with the size of the bucket.
pub const TARGET_SIZE: &str = "target_size";

/// Content of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Encoded images.
    Images,
    /// Token ids.
    Text,
    /// Anything: a key and fields of any type.
    Records,
}

impl Kind {
    /// Returns the name used in manifests and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Images => "images",
            Kind::Text => "text",
            Kind::Records => "records",
        }
    }

    /// Returns the unit for lengths of this kind.
    pub fn length_unit(self) -> LengthUnit {
        self.layout().length_unit
    }

    /// Returns what follows from the kind. Other code asks for one of these facts instead of the kind.
    pub fn layout(self) -> &'static RecordLayout {
        match self {
            Kind::Images => &RecordLayout {
                items: "images",
                built_in: &[KEY, IMAGE, WIDTH, HEIGHT, ORIGIN],
                payload: Some(IMAGE),
                length_unit: LengthUnit::Pixels,
                length_fields: &[WIDTH, HEIGHT],
                index_columns: &[WIDTH, HEIGHT],
            },
            Kind::Text => &RecordLayout {
                items: "documents",
                built_in: &[KEY, INPUT_IDS, LENGTH, ORIGIN],
                payload: Some(INPUT_IDS),
                length_unit: LengthUnit::Tokens,
                length_fields: &[LENGTH],
                index_columns: &[],
            },
            Kind::Records => &RecordLayout {
                items: "items",
                built_in: &[KEY],
                payload: None,
                length_unit: LengthUnit::Bytes,
                length_fields: &[],
                index_columns: &[],
            },
        }
    }
}

/// What follows from the kind of a dataset: the fields that each of its records has, and what they mean.
#[derive(Debug, PartialEq, Eq)]
pub struct RecordLayout {
    /// What the converted items are called in messages.
    pub items: &'static str,
    /// Names of the built-in fields that every record has.
    pub built_in: &'static [&'static str],
    /// Field that holds the image or the token ids, if records are one or the other.
    pub payload: Option<&'static str>,
    /// Unit of the length of a record.
    pub length_unit: LengthUnit,
    /// Fields whose product is the length. Without any, it is the canonical size of the record.
    pub length_fields: &'static [&'static str],
    /// Fields that the record index stores, too, each in 32 bits: at most [`MAX_INDEX_COLUMNS`]. A dataset may have others
    /// ([`Schema::index_columns`]).
    pub index_columns: &'static [&'static str],
}

/// Names of columns of the record index that are not those of fields.
const RESERVED: [&str; 6] = ["shard", "position", "bytes", LENGTH, "crc32c", TRAINED];

/// Maximum canonical size of one record: 1 GiB. It keeps every format below its 32-bit limits: Arrow offsets (2 GiB),
/// Parquet page sizes (2 GiB), protobuf messages (2 GiB) and MessagePack lengths (4 GiB).
pub const MAX_RECORD_BYTES: u64 = 1 << 30;
/// Maximum number of columns of the record index that follow from fields.
pub const MAX_INDEX_COLUMNS: usize = 4;

/// Unit of a length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LengthUnit {
    /// Token ids in one record.
    Tokens,
    /// Width × height of the stored image.
    Pixels,
    /// Bytes of the record in its canonical form ([`Record::canonical_size`](crate::sample::Record::canonical_size)).
    Bytes,
}

impl LengthUnit {
    /// Returns the plural name of the unit.
    pub fn name(self) -> &'static str {
        match self {
            LengthUnit::Tokens => "tokens",
            LengthUnit::Pixels => "pixels",
            LengthUnit::Bytes => "bytes",
        }
    }
}

/// One named, typed field of a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// Name, unique within the schema.
    pub name: String,
    /// Type of the value.
    #[serde(rename = "type")]
    pub ty: FieldType,
    /// Whether the value may be null.
    pub nullable: bool,
}

impl Field {
    /// Creates a non-nullable field.
    pub fn required(name: &str, ty: FieldType) -> Self {
        Self { name: name.to_owned(), ty, nullable: false }
    }

    /// Creates a nullable field.
    pub fn nullable(name: &str, ty: FieldType) -> Self {
        Self { name: name.to_owned(), ty, nullable: true }
    }
}

/// Kind, fields in stored order, and class names.
///
/// The built-in fields come first: `key`, then `image, width, height[, label]` or `input_ids, length`, then `origin`, then
/// `assistant_masks` if the dataset has them. Fields that the user chose to keep follow. [Records of any
/// kind](Kind::Records) have no built-in field but `key`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schema {
    /// Content of the dataset.
    pub kind: Kind,
    /// Fields in stored order.
    pub fields: Vec<Field>,
    /// Class names in label order; empty if there is neither a `label` field nor classes of boxes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub class_names: Vec<String>,
    /// Names of fields that the record index stores, too, such as a second length of the records ([`Schema::with_indexed`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty", rename = "index_columns")]
    pub indexed: Vec<String>,
}

impl Schema {
    /// Creates the schema of an image dataset. `class_names` is `None` if the items have no labels.
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
        let class_names = class_names.unwrap_or_default();
        Self { kind: Kind::Images, fields, class_names, indexed: Vec::new() }.checked()
    }

    /// Creates the schema of a text dataset with ids of `width`.
    pub fn text(width: IdWidth, extra: Vec<Field>) -> Result<Self> {
        let mut fields = vec![
            Field::required(KEY, FieldType::String),
            Field::required(INPUT_IDS, FieldType::ids(width)),
            Field::required(LENGTH, FieldType::UInt32),
            Field::required(ORIGIN, FieldType::String),
        ];
        fields.extend(extra);
        Self { kind: Kind::Text, fields, class_names: Vec::new(), indexed: Vec::new() }.checked()
    }

    /// Creates the schema of records of any kind: a key and `fields`.
    pub fn records(fields: Vec<Field>) -> Result<Self> {
        let key = Field::required(KEY, FieldType::String);
        let fields = std::iter::once(key).chain(fields).collect();
        Self { kind: Kind::Records, fields, class_names: Vec::new(), indexed: Vec::new() }.checked()
    }

    /// Adds the field [`ASSISTANT_MASKS`] to the schema of a text dataset, directly after the origin.
    pub fn with_assistant_masks(mut self) -> Result<Self> {
        let after = self.index_of(ORIGIN).map_or(self.fields.len(), |origin| origin + 1);
        self.fields.insert(after, Field::required(ASSISTANT_MASKS, FieldType::Flags));
        self.checked()
    }

    /// Adds the field [`TOKEN_WEIGHTS`] to the schema of a text dataset, after the field that marks the tokens to train on or, if
    /// there is none, the origin.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`] if there is a field of this name.
    pub fn with_token_weights(mut self) -> Result<Self> {
        let before = self.masks_field().or_else(|| self.index_of(ORIGIN));
        let after = before.map_or(self.fields.len(), |at| at + 1);
        let ty = FieldType::Array(ArrayType::new(DType::Float32, &[None])?);
        self.fields.insert(after, Field::required(TOKEN_WEIGHTS, ty));
        self.checked()
    }

    /// Makes the fields `names` columns of the record index, so that they are known of every record without reading it: counts
    /// such as `patches` or `frames`. They are never null, and of type `uint32` or `uint64` with values below 2³².
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`] if there is no such field, if it may be null or has another type, or if the index has it already.
    pub fn with_indexed(mut self, names: &[&str]) -> Result<Self> {
        self.indexed.extend(names.iter().map(|name| (*name).to_owned()));
        self.checked()
    }

    /// Returns what follows from the kind of the dataset.
    pub fn layout(&self) -> &'static RecordLayout {
        match self.kind {
            // Each of the two searches all fields, and this is called for each record.
            Kind::Text if self.index_of(INPUT_IDS).is_none() => match self.holds_completions() {
                true => &preference::LAYOUT,
                false if self.holds_prompts() => &prompts::LAYOUT,
                false => self.kind.layout(),
            },
            kind => kind.layout(),
        }
    }

    /// Returns whether records are lists of token ids, which can be cut, padded and packed.
    pub fn holds_token_ids(&self) -> bool {
        self.layout().payload == Some(INPUT_IDS)
    }

    /// Returns whether records are images.
    pub fn holds_images(&self) -> bool {
        self.layout().payload == Some(IMAGE)
    }

    /// Returns the unit of the lengths of records.
    pub fn length_unit(&self) -> LengthUnit {
        self.layout().length_unit
    }

    /// Returns the position of the field with the image or the token ids, unless a selection leaves it out or records are
    /// neither.
    pub fn payload_field(&self) -> Option<usize> {
        self.index_of(self.layout().payload?)
    }

    /// Returns the names of the columns of the record index that follow from fields: those of the kind, or [`TRAINED`] if
    /// the tokens to train on are marked, then those that the schema names.
    pub fn index_columns(&self) -> impl Iterator<Item = &str> {
        let of_kind = if self.masks_field().is_some() { &[TRAINED] } else { self.layout().index_columns };
        of_kind.iter().copied().chain(self.indexed.iter().map(String::as_str))
    }

    /// Returns the positions of the fields with one value per token. They are cut, split and packed together with the token
    /// ids.
    pub fn aligned(&self) -> impl Iterator<Item = usize> {
        (0..).zip(&self.fields).filter(|(_, field)| field.ty == FieldType::Flags).map(|(at, _)| at)
    }

    /// Returns the position of the field that marks the tokens to train on, if there is one.
    pub fn masks_field(&self) -> Option<usize> {
        self.aligned().find(|&at| self.fields[at].name == ASSISTANT_MASKS)
    }

    /// Returns the position and the type of the field with a weight for each token, if there is one.
    pub fn weights_field(&self) -> Option<(usize, ArrayType)> {
        let at = self.index_of(TOKEN_WEIGHTS)?;
        match self.fields.get(at)?.ty {
            FieldType::Array(array)
                if self.holds_token_ids() && array.dtype() == DType::Float32 && array.axes().eq([None]) =>
            {
                Some((at, array))
            }
            _ => None,
        }
    }

    /// Returns the position of the field with boxes, if there is one.
    pub fn boxes_field(&self) -> Option<usize> {
        self.fields.iter().position(|field| field.ty.is_boxes())
    }

    /// Returns the position of the field with the classes of boxes, if there is one.
    pub fn box_labels_field(&self) -> Option<usize> {
        self.per_box().find(|&at| self.fields.get(at).is_some_and(|field| field.ty.is_class()))
    }

    /// Returns the positions of the fields with one item per box, in stored order.
    pub fn per_box(&self) -> impl Iterator<Item = usize> {
        (0..).zip(&self.fields).filter(|(_, field)| field.ty.is_per_box()).map(|(at, _)| at)
    }

    /// Returns the position of the field with the classes of the records, if there is one.
    pub fn label_field(&self) -> Option<usize> {
        self.fields.iter().position(|f| f.name == LABEL && f.ty == FieldType::Label)
    }

    /// Returns the position of the field `name`.
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|f| f.name == name)
    }

    /// Like [`Self::checked`], but for a schema read from a file: invalid input there means damage, not misuse.
    pub(crate) fn checked_as_read(self) -> Result<Self> {
        self.checked().map_err(|e| match e.kind() {
            ErrorKind::Usage => Error::corrupt(format!("the schema contradicts itself: {e}")),
            _ => e,
        })
    }

    /// Checks the columns of the record index.
    fn check_indexed(&self) -> Result<()> {
        let columns: Vec<&str> = self.index_columns().collect();
        if columns.len() > MAX_INDEX_COLUMNS {
            let what =
                format!("the record index cannot have the {} columns {}", columns.len(), columns.join(", "));
            return Err(Error::usage(what).help(format!("it has at most {MAX_INDEX_COLUMNS}")));
        }
        for (at, name) in columns.iter().enumerate().skip(columns.len() - self.indexed.len()) {
            let field = self.fields.iter().find(|field| field.name == *name);
            let fits =
                |field: &Field| matches!(field.ty, FieldType::UInt32 | FieldType::UInt64) && !field.nullable;
            if !field.is_some_and(fits) || columns[..at].contains(name) || RESERVED.contains(name) {
                return Err(Error::usage(format!(
                    "the field {name:?} cannot be a column of the record index"
                ))
                .help("name each field once; its type is uint32 or uint64, and it is never null"));
            }
        }
        Ok(())
    }

    /// Checks the invariants of every schema: unique names and the built-in fields of its kind.
    pub fn checked(self) -> Result<Self> {
        for (i, field) in self.fields.iter().enumerate() {
            if self.fields[..i].iter().any(|f| f.name == field.name) {
                return Err(Error::usage(format!("two fields are called {:?}", field.name))
                    .help("rename or drop one of them"));
            }
        }
        for name in self.layout().built_in {
            if self.index_of(name).is_none() {
                return Err(Error::corrupt(format!("the schema has no field {name:?}")));
            }
        }
        self.check_indexed()?;
        let origin = self.index_of(ORIGIN);
        if let Some(field) = self.aligned().find_map(|at| {
            let field = &self.fields[at];
            let is_right = self.holds_token_ids()
                && field.name == ASSISTANT_MASKS
                && !field.nullable
                && origin.is_some_and(|origin| origin + 1 == at);
            (!is_right).then_some(field)
        }) {
            return Err(Error::usage(format!(
                "field {:?} cannot have the type flags, with one value per token",
                field.name
            ))
            .help(format!(
                "only {ASSISTANT_MASKS:?} of a text dataset has this type; it directly follows {ORIGIN:?} and is never null"
            )));
        }
        let boxes = self.fields.iter().filter(|field| field.ty.is_boxes()).count();
        if let Some(at) = self.per_box().next()
            && (boxes != 1 || !self.holds_images())
        {
            let field = &self.fields[at];
            let what = format!("field {:?} cannot have the type {}", field.name, field.ty.name());
            return Err(Error::usage(what).help(
                "only datasets of images have boxes, in one field of the type boxes, and classes and numbers only with it",
            ));
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_names_fields_of_its_schema() {
        let (images, text) =
            (Schema::images(None, vec![]).unwrap(), Schema::text(IdWidth::U16, vec![]).unwrap());
        for schema in [images, text, Schema::records(vec![]).unwrap()] {
            assert!(schema.index_columns().count() <= MAX_INDEX_COLUMNS);
            assert!(
                schema.fields.iter().map(|field| field.name.as_str()).eq(schema.layout().built_in.to_vec())
            );
            // A shard without a manifest shows its kind by its payload.
            let payloads = [Kind::Text, Kind::Images].map(|kind| kind.layout().payload);
            let built_in = schema.layout().built_in.iter().map(|name| Some(*name));
            assert!(
                built_in
                    .filter(|name| payloads.contains(name))
                    .eq(schema.payload_field().map(|_| schema.layout().payload))
            );
        }
    }

    #[test]
    fn records_have_a_key_and_any_fields() {
        let fields = vec![
            Field::nullable(IMAGE, FieldType::Image),
            Field::required(INPUT_IDS, FieldType::IdsU32),
            Field::required("patches", FieldType::UInt32),
        ];
        let schema = Schema::records(fields).unwrap().with_indexed(&["patches"]).unwrap();
        assert!(!schema.holds_images() && !schema.holds_token_ids() && schema.payload_field().is_none());
        assert!(schema.index_columns().eq(["patches"]));
        assert_eq!(serde_json::from_str::<Schema>(&serde_json::to_string(&schema).unwrap()).unwrap(), schema);
        for wrong in [
            Field::nullable(KEY, FieldType::String),
            Field::required(ASSISTANT_MASKS, FieldType::Flags),
            Field::nullable("boxes", FieldType::Boxes),
        ] {
            assert_eq!(Schema::records(vec![wrong]).unwrap_err().kind(), ErrorKind::Usage);
        }
    }

    #[test]
    fn a_kept_field_may_not_shadow_a_built_in_one() {
        let twice = Schema::text(IdWidth::U16, vec![Field::nullable(ORIGIN, FieldType::String)]);
        assert!(twice.is_err_and(|e| e.to_string().contains("origin")));
    }

    #[test]
    fn only_the_assistant_masks_after_the_origin_are_flags() {
        let text = |extra| Schema::text(IdWidth::U16, extra);
        let kept = Field::nullable("score", FieldType::Float64);
        let masks = Field::required(ASSISTANT_MASKS, FieldType::Flags);
        let schema = text(vec![kept.clone()]).unwrap();
        assert_eq!((schema.aligned().count(), schema.index_columns().count()), (0, 0));
        let schema = schema.with_assistant_masks().unwrap();
        assert_eq!(schema, text(vec![masks.clone(), kept.clone()]).unwrap());
        assert_eq!((schema.masks_field(), schema.aligned().collect::<Vec<_>>()), (Some(4), vec![4]));
        assert!(schema.index_columns().eq(["trained"]));
        assert!(serde_json::to_string(&schema).unwrap().contains("\"type\":\"flags\""));
        for wrong in [
            text(vec![kept, masks.clone()]),
            text(vec![Field::required("other", FieldType::Flags)]),
            text(vec![Field::nullable(ASSISTANT_MASKS, FieldType::Flags)]),
            Schema::images(None, vec![masks]),
            schema.with_assistant_masks(),
        ] {
            assert_eq!(wrong.unwrap_err().kind(), ErrorKind::Usage);
        }
        // Datasets made before this type may have such a field.
        let other = text(vec![Field::nullable(ASSISTANT_MASKS, FieldType::Json)]).unwrap();
        assert_eq!((other.masks_field(), other.index_columns().count()), (None, 0));
    }

    #[test]
    fn unsigned_fields_can_be_columns_of_the_record_index() {
        let fields = || {
            vec![
                Field::required("patches", FieldType::UInt32),
                Field::required("frames", FieldType::UInt64),
                Field::required("more", FieldType::UInt64),
                Field::nullable("null", FieldType::UInt32),
                Field::required("signed", FieldType::Int32),
            ]
        };
        let images = || Schema::images(None, fields()).unwrap();
        let schema = images().with_indexed(&["patches", "frames"]).unwrap();
        assert!(schema.index_columns().eq([WIDTH, HEIGHT, "patches", "frames"]));
        let json = serde_json::to_string(&schema).unwrap();
        assert!(json.ends_with(r#""index_columns":["patches","frames"]}"#), "{json}");
        assert_eq!(serde_json::from_str::<Schema>(&json).unwrap(), schema);
        assert!(!serde_json::to_string(&images()).unwrap().contains("index_columns"));
        let wrong: [&[&str]; 6] = [
            &["none"],
            &["null"],
            &["signed"],
            &["width"],
            &["frames", "frames"],
            &["patches", "frames", "more"],
        ];
        for names in wrong {
            assert_eq!(images().with_indexed(names).unwrap_err().kind(), ErrorKind::Usage, "{names:?}");
        }
        assert!(Schema::text(IdWidth::U16, fields()).unwrap().with_indexed(&["length"]).is_err());
        assert!(
            Schema::text(IdWidth::U16, fields())
                .unwrap()
                .with_indexed(&["patches", "frames", "more"])
                .is_ok()
        );
    }

    #[test]
    fn boxes_are_in_one_field_of_images() {
        let images = |types: &[FieldType]| {
            let field = |(i, ty): (usize, &FieldType)| Field::nullable(&format!("f{i}"), *ty);
            Schema::images(None, types.iter().enumerate().map(field).collect())
        };
        let schema = images(&[FieldType::Boxes, FieldType::Int32, FieldType::BoxLabels, FieldType::BoxInts]);
        let schema = schema.unwrap();
        assert_eq!((schema.boxes_field(), schema.per_box().collect::<Vec<_>>()), (Some(5), vec![5, 7, 8]));
        assert!(serde_json::to_string(&schema).unwrap().contains("\"type\":\"box_labels\""));
        for wrong in [
            images(&[FieldType::Boxes, FieldType::Boxes]),
            images(&[FieldType::BoxLabels]),
            images(&[FieldType::BoxInts]),
            Schema::text(IdWidth::U16, vec![Field::nullable("b", FieldType::Boxes)]),
        ] {
            assert_eq!(wrong.unwrap_err().kind(), ErrorKind::Usage);
        }
    }

    #[test]
    fn schemas_round_trip_through_json() {
        let schema = Schema::images(Some(vec!["cat".into(), "dog".into()]), vec![]).unwrap();
        let json = serde_json::to_string(&schema).unwrap();
        assert_eq!(serde_json::from_str::<Schema>(&json).unwrap(), schema);
    }
}
