//! The fields of samples in tar files.

use crate::schema::{Field, FieldType};

/// Members that become fields, by extension, and the types of the fields.
pub(super) const FIELDS: [(&str, FieldType); 3] =
    [("json", FieldType::Json), ("txt", FieldType::String), ("cls", FieldType::Int64)];

/// The member with the class of a sample: a field, or the label where classes are given. The last of [`FIELDS`].
pub(super) const CLASS: &str = "cls";

/// The fields of a dataset that has samples from tar files.
pub(super) fn tar_fields(has_classes: bool) -> Vec<Field> {
    let fields = FIELDS.iter().filter(|(name, _)| !(has_classes && *name == CLASS));
    fields.map(|(name, ty)| Field::nullable(name, *ty)).collect()
}
