//! Fields from the names of class folders such as `10_cat`: how often an image is repeated, and what it shows.

use serde::{Deserialize, Serialize};

use crate::sample::Value;
use crate::schema::{Field, FieldType};
use crate::source::names::labels::Folders;
use crate::source::names::layout::FolderLayout;
use crate::warning::Warning;

/// Names of the fields.
const CONCEPT: &str = "concept";
const REPEATS: &str = "repeats";

/// The fields from the names of class folders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Repeats {
    /// Position of the first one among the fields that only some datasets have.
    at: usize,
}

impl Repeats {
    /// Adds the fields before the `images` additional images, which are last, if all class folders have such names.
    pub(super) fn find(
        folders: &mut Folders,
        fields: &mut Vec<Field>,
        images: usize,
        layout: FolderLayout,
    ) -> Option<Self> {
        let names = folders.class_names.as_deref().filter(|_| layout == FolderLayout::Auto)?;
        let example = names.first()?.clone();
        if !names.iter().all(|name| number_and_concept(name).is_some()) {
            return None;
        }
        let in_splits = folders.splits.are_folders();
        let message = format!(
            "the class folders are named like {example:?}: their numbers become the field \"repeats\", and their names the \
             field \"concept\""
        );
        let (layout, effect) = match in_splits {
            true => ("splits", "keeps the folders in those of splits as classes only"),
            false => ("labels", "keeps the folders as classes only"),
        };
        let warning = Warning::new("repeat-folders", message).with("example", example);
        folders.warnings.push(warning.with("in_splits", in_splits).remedy("layout", layout, effect));
        let at = fields.len() - images;
        let added =
            [Field::nullable(CONCEPT, FieldType::String), Field::nullable(REPEATS, FieldType::UInt32)];
        fields.splice(at..at, added);
        Some(Self { at })
    }

    /// Sets the values of an image in the folder `class`.
    pub(super) fn set(self, class: Option<&str>, values: &mut [Value]) {
        let Some((repeats, concept)) = class.and_then(number_and_concept) else { return };
        if let Some([name, number]) = values.get_mut(self.at..self.at + 2) {
            *name = Value::Text(concept.into());
            *number = Value::UInt(repeats.into());
        }
    }
}

/// Returns the number and the name of a folder such as `10_cat`.
fn number_and_concept(name: &str) -> Option<(u32, &str)> {
    let (number, concept) = name.split_once('_')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && !concept.is_empty()).then_some((number.parse().ok()?, concept))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_have_a_number_and_a_name() {
        for (name, expected) in [
            ("10_cat", Some((10, "cat"))),
            ("3_a red_dog", Some((3, "a red_dog"))),
            ("007_x", Some((7, "x"))),
            ("10", None),
            ("10_", None),
            ("_cat", None),
            ("a1_cat", None),
            ("+1_cat", None),
            ("99999999999_cat", None),
        ] {
            assert_eq!(number_and_concept(name), expected, "{name}");
        }
    }
}
