//! The fields of samples in tar files.

use crate::schema::{Field, FieldType};

/// Members that become fields, by extension, with the types of the fields.
pub(super) const FIELDS: [(&str, FieldType); 3] =
    [("json", FieldType::Json), ("txt", FieldType::String), ("cls", FieldType::Int64)];

/// The member with the class of a sample. It is a field, or the label if classes are given. It is the last of
/// [`FIELDS`].
pub(super) const CLASS: &str = "cls";

/// Returns the fields of a dataset with samples from tar files.
pub(super) fn tar_fields(has_classes: bool) -> Vec<Field> {
    let fields = FIELDS.iter().filter(|(name, _)| !(has_classes && *name == CLASS));
    fields.map(|(name, ty)| Field::nullable(name, *ty)).collect()
}
