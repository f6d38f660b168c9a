//! Fields of chats with images, beside those of a text dataset.

use super::{ArrayType, DType, Field, FieldType, Schema};
use crate::error::Result;

/// Name of the field with the encoded images of a record, in the order of their tokens.
pub const IMAGES: &str = "images";
/// Name of the field with the numbers of patches of each image: in time, vertically and horizontally.
pub const IMAGE_GRIDS: &str = "image_grids";
/// Name of the field, and of the column of the record index, with the number of patches of all images.
pub const PATCHES: &str = "patches";

/// Returns the type of [`IMAGE_GRIDS`].
fn grids_type() -> Result<FieldType> {
    Ok(FieldType::Array(ArrayType::new(DType::Int32, &[None, Some(3)])?))
}

impl Schema {
    /// Adds the fields of images to the schema of a text dataset, directly after the masks or the origin.
    pub fn with_images(mut self) -> Result<Self> {
        let after = self.masks_field().or_else(|| self.index_of(super::ORIGIN));
        let at = after.map_or(self.fields.len(), |after| after + 1);
        let fields = [
            Field::required(IMAGES, FieldType::Images),
            Field::required(IMAGE_GRIDS, grids_type()?),
            Field::required(PATCHES, FieldType::UInt32),
        ];
        self.fields.splice(at..at, fields);
        self.with_indexed(&[PATCHES])
    }

    /// Returns whether records are token ids with the images that some of the ids stand for.
    pub fn holds_multimodal(&self) -> bool {
        self.holds_token_ids()
            && self.indexed.iter().any(|name| name == PATCHES)
            && self.fields.iter().any(|field| field.name == IMAGES && field.ty == FieldType::Images)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{IdWidth, TRAINED};

    #[test]
    fn images_follow_the_masks() {
        let kept = vec![Field::nullable("note", FieldType::String)];
        let text = Schema::text(IdWidth::U32, kept).unwrap();
        assert!(!text.holds_multimodal());
        let schema = text.with_assistant_masks().unwrap().with_images().unwrap();
        let names: Vec<&str> = schema.fields.iter().map(|field| field.name.as_str()).collect();
        assert_eq!(
            names,
            ["key", "input_ids", "length", "origin", "assistant_masks", IMAGES, IMAGE_GRIDS, PATCHES, "note"]
        );
        assert!(schema.holds_multimodal() && schema.index_columns().eq([TRAINED, PATCHES]));
        assert_eq!(serde_json::from_str::<Schema>(&serde_json::to_string(&schema).unwrap()).unwrap(), schema);
    }
}
