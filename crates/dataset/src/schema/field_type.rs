//! Types of fields.

use serde::{Deserialize, Serialize};

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
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
    #[serde(rename = "ids<u16>")]
    IdsU16,
    /// List of token ids or other unsigned numbers, four bytes each.
    #[serde(rename = "ids<u32>")]
    IdsU32,
    /// One value 0 or 1 for each token of the record ([`Schema::aligned`](super::Schema::aligned)).
    Flags,
    /// List of boxes in pixels of the record's image: x and y of the top left and bottom right corners, each in 32 bits.
    Boxes,
    /// Class of each box: indices into [`Schema::class_names`](super::Schema), 64 bits each.
    #[serde(rename = "box_labels")]
    BoxLabels,
    /// One signed number of 64 bits for each box.
    #[serde(rename = "box_ints")]
    BoxInts,
    /// Two signed integers of 32 bits, such as a height and a width.
    #[serde(rename = "int32_pair")]
    Int32Pair,
}

/// Bytes of a box in a record.
pub const BOX_BYTES: usize = 16;

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

    /// Returns the bytes per item in a record if values are lists of ids, flags or boxes, or of what each box has.
    pub fn item_bytes(self) -> Option<usize> {
        match self {
            FieldType::Flags => Some(1),
            FieldType::Boxes => Some(BOX_BYTES),
            FieldType::BoxLabels | FieldType::BoxInts => Some(size_of::<i64>()),
            FieldType::Int32Pair => Some(size_of::<i32>()),
            _ => self.id_width().map(IdWidth::bytes),
        }
    }

    /// Returns whether values are lists with one item per token, or other lists of ids.
    pub fn is_token_list(self) -> bool {
        self == FieldType::Flags || self.id_width().is_some()
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
            FieldType::Flags => "flags",
            FieldType::Boxes => "boxes",
            FieldType::BoxLabels => "box_labels",
            FieldType::BoxInts => "box_ints",
            FieldType::Int32Pair => "int32_pair",
        }
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
}
