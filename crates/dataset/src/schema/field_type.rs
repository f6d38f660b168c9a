//! Types of fields: names, how values are stored, and what they must be.
//!
//! Everything that the formats, batches and views need of a type follows from the facts in this file. Two types that store
//! the same numbers are written and read by the same code.

use std::borrow::Cow;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{ArrayLayout, ArrayType, DType};
use crate::error::Error;
use crate::sample::boxes::{BOX_NUMBERS, PAIR_BYTES, are_boxes, box_numbers};

/// Size of one stored token id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IdWidth {
    /// Two bytes, little-endian.
    U16,
    /// Four bytes, little-endian.
    U32,
}

impl IdWidth {
    /// Returns the bytes per id.
    pub fn bytes(self) -> usize {
        match self {
            IdWidth::U16 => 2,
            IdWidth::U32 => 4,
        }
    }

    /// Returns the narrowest width that holds `max_id`.
    ///
    /// `max_id` must include added tokens: a width chosen from the vocabulary size alone would silently wrap ids.
    pub fn for_max_id(max_id: u32) -> Self {
        if max_id <= u32::from(u16::MAX) { IdWidth::U16 } else { IdWidth::U32 }
    }

    /// Returns the width with `bytes` per id, as stored in msgpack and protobuf records.
    pub fn from_bytes(bytes: u64) -> Option<Self> {
        match bytes {
            2 => Some(IdWidth::U16),
            4 => Some(IdWidth::U32),
            _ => None,
        }
    }
}

/// Type of one field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldType {
    /// UTF-8 text.
    String,
    /// Arbitrary bytes.
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
    /// One PNG file with the size of the record's image; its samples are classes or other values, not colors.
    Mask,
    /// Index into [`Schema::class_names`](super::Schema).
    Label,
    /// List of token ids or other unsigned numbers such as `cu_seqlens`, two bytes each.
    IdsU16,
    /// List of token ids or other unsigned numbers, four bytes each.
    IdsU32,
    /// One value 0 or 1 for each token of the record ([`Schema::aligned`](super::Schema::aligned)).
    Flags,
    /// List of boxes in pixels of the record's image: x and y of the top left and bottom right corners, each in 32 bits.
    Boxes,
    /// Class of each box: indices into [`Schema::class_names`](super::Schema), 64 bits each.
    BoxLabels,
    /// One signed number of 64 bits for each box.
    BoxInts,
    /// Two signed integers of 32 bits, such as a height and a width.
    Int32Pair,
    /// List of UTF-8 texts.
    Texts,
    /// List of encoded images, such as the pages of a document or the frames of a clip.
    Images,
    /// Numbers in the shape of an array.
    Array(ArrayType),
}

/// All types without parameters.
const PLAIN: [FieldType; 22] = [
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
    FieldType::Flags,
    FieldType::Boxes,
    FieldType::BoxLabels,
    FieldType::BoxInts,
    FieldType::Int32Pair,
    FieldType::Texts,
    FieldType::Images,
];

/// Items of a list type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListItems {
    /// Type of the numbers.
    pub dtype: DType,
    /// How many numbers an item has; `None` if each item is a number.
    pub columns: Option<usize>,
}

impl ListItems {
    /// Returns the bytes of an item.
    pub fn bytes(self) -> usize {
        self.dtype.bytes() * self.columns.unwrap_or(1)
    }
}

impl FieldType {
    /// Returns the list type for ids of `width`.
    pub fn ids(width: IdWidth) -> Self {
        match width {
            IdWidth::U16 => FieldType::IdsU16,
            IdWidth::U32 => FieldType::IdsU32,
        }
    }

    /// Returns the width of the ids if this is a list of ids.
    pub fn id_width(self) -> Option<IdWidth> {
        match self {
            FieldType::IdsU16 => Some(IdWidth::U16),
            FieldType::IdsU32 => Some(IdWidth::U32),
            _ => None,
        }
    }

    /// Returns the items of a list type, which are stored one after the other, little-endian; `None` for other types.
    pub fn list_items(self) -> Option<ListItems> {
        let (dtype, columns) = match self {
            FieldType::IdsU16 => (DType::UInt16, None),
            FieldType::IdsU32 => (DType::UInt32, None),
            FieldType::Flags => (DType::Int8, None),
            FieldType::Boxes => (DType::Float32, Some(BOX_NUMBERS)),
            FieldType::BoxLabels | FieldType::BoxInts => (DType::Int64, None),
            FieldType::Int32Pair => (DType::Int32, None),
            _ => return None,
        };
        Some(ListItems { dtype, columns })
    }

    /// Returns the bytes per item of a list type.
    pub fn item_bytes(self) -> Option<usize> {
        self.list_items().map(ListItems::bytes)
    }

    /// Checks the `items` of a list type other than ids. `has_class` returns whether there is a class with a number. The error
    /// says what the field holds.
    pub(crate) fn check_items(
        self,
        items: &[u8],
        has_class: impl Fn(usize) -> bool,
    ) -> Result<(), &'static str> {
        let is_class = |label: i64| usize::try_from(label).is_ok_and(&has_class);
        let is_whole = self.item_bytes().is_some_and(|bytes| items.len().is_multiple_of(bytes));
        let (fits, else_holds) = match self {
            // Without a branch per value.
            FieldType::Flags => {
                (items.iter().fold(0, |any, flag| any | flag) <= 1, "a value other than 0 and 1")
            }
            FieldType::Boxes => (are_boxes(items), "something other than boxes with x1 ≤ x2 and y1 ≤ y2"),
            FieldType::BoxLabels => {
                (is_whole && box_numbers(items).all(is_class), "something other than classes")
            }
            FieldType::Int32Pair => (items.len() == PAIR_BYTES, "something other than two integers"),
            _ => (is_whole, "bytes"),
        };
        if fits { Ok(()) } else { Err(else_holds) }
    }

    /// Returns whether only Arrow and Parquet can store values.
    pub fn is_columnar(self) -> bool {
        matches!(self, FieldType::Array(_) | FieldType::Texts | FieldType::Images)
    }

    /// Returns whether values, or the items of values, are indices into [`Schema::class_names`](super::Schema).
    pub fn is_class(self) -> bool {
        matches!(self, FieldType::Label | FieldType::BoxLabels)
    }

    /// Returns the shape that all values have if they are numbers that make one array of a batch; `None` for other types.
    pub fn fixed_shape(self) -> Option<Vec<usize>> {
        match self {
            FieldType::Bool
            | FieldType::Int32
            | FieldType::Int64
            | FieldType::UInt32
            | FieldType::UInt64
            | FieldType::Float32
            | FieldType::Float64
            | FieldType::Label => Some(Vec::new()),
            FieldType::Int32Pair => Some(vec![PAIR_BYTES / size_of::<i32>()]),
            FieldType::Array(array) => match array.layout() {
                ArrayLayout::Fixed(sizes) => Some(sizes),
                ArrayLayout::Rows(_) | ArrayLayout::Shaped(_) => None,
            },
            _ => None,
        }
    }

    /// Returns whether values are lists with one item per token, or other lists of ids.
    pub fn is_token_list(self) -> bool {
        self == FieldType::Flags || self.id_width().is_some()
    }

    /// Returns whether values are lists of boxes.
    pub fn is_boxes(self) -> bool {
        self == FieldType::Boxes
    }

    /// Returns whether values are lists with one item per box.
    pub fn is_per_box(self) -> bool {
        matches!(self, FieldType::Boxes | FieldType::BoxLabels | FieldType::BoxInts)
    }

    /// Returns whether values are the bytes of an image file.
    pub fn is_image_file(self) -> bool {
        matches!(self, FieldType::Image | FieldType::Mask)
    }

    /// Returns the name used in manifests, on the command line and in messages.
    pub fn name(self) -> Cow<'static, str> {
        let plain = match self {
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
            FieldType::Flags => "flags",
            FieldType::Boxes => "boxes",
            FieldType::BoxLabels => "box_labels",
            FieldType::BoxInts => "box_ints",
            FieldType::Int32Pair => "int32_pair",
            FieldType::Texts => "list<string>",
            FieldType::Images => "list<image>",
            FieldType::Array(array) => return array.to_string().into(),
        };
        plain.into()
    }
}

impl Serialize for FieldType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name())
    }
}

impl<'de> Deserialize<'de> for FieldType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = Cow::<'de, str>::deserialize(deserializer)?;
        let plain = PLAIN.into_iter().find(|known| known.name() == name);
        let array = || name.starts_with("array<").then(|| name.parse().map(FieldType::Array));
        let found = plain.map(Ok).or_else(array);
        found
            .unwrap_or_else(|| Err(Error::usage(format!("unknown type of fields {name:?}"))))
            .map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_width_depends_on_the_largest_id() {
        assert_eq!(IdWidth::for_max_id(65_535), IdWidth::U16);
        assert_eq!(IdWidth::for_max_id(65_536), IdWidth::U32);
    }

    #[test]
    fn names_are_stored_and_read() {
        let array = FieldType::Array("array<bfloat16>[16,?,?]".parse().unwrap());
        for ty in PLAIN.into_iter().chain([array]) {
            let json = serde_json::to_string(&ty).unwrap();
            assert_eq!(json, format!("{:?}", ty.name()));
            assert_eq!(serde_json::from_str::<FieldType>(&json).unwrap(), ty);
        }
        for unknown in ["\"float\"", "\"Bool\"", "\"array<float32>[-1]\"", "1"] {
            assert!(serde_json::from_str::<FieldType>(unknown).is_err(), "{unknown}");
        }
    }
}
