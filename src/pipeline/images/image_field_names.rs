//! The fields of additional images and their names: members of samples, or columns of tables.
//!
//! They depend only on the set of members and their types, not on the order in which samples or options name them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::recipe::is_reserved;
use crate::schema::{Field, FieldType};

/// Words in the names of masks and other images whose values must not be interpolated or rounded.
const MASK_WORDS: [&str; 16] = [
    "mask",
    "masks",
    "seg",
    "segm",
    "segmentation",
    "segmentations",
    "segmap",
    "semantic",
    "panoptic",
    "label",
    "labels",
    "labelmap",
    "annotation",
    "annotations",
    "depth",
    "disparity",
];

/// Returns whether a word of `name` says that an image is a mask.
pub(super) fn is_mask_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.split(|c: char| !c.is_ascii_alphabetic()).any(|word| MASK_WORDS.contains(&word))
}

/// Returns a key that sorts names with numbers by their value: `2` before `10`.
pub(super) fn natural(name: &str) -> Vec<(String, u64)> {
    let mut parts: Vec<(String, u64)> = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let text = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let digits = rest[text..].find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len() - text);
        let number = if digits == 0 { 0 } else { rest[text..text + digits].parse().unwrap_or(u64::MAX) };
        parts.push((rest[..text].to_owned(), number));
        rest = &rest[text + digits..];
    }
    parts
}

/// A member of samples, or a column, that becomes a field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MemberField {
    /// Name of the field.
    pub(super) name: String,
    /// In tar files, the part of the member's name after its first dot, in lower case: `seg.png`. In tables, the column,
    /// with the ordinal of an item if it holds lists of images: `images[2]`.
    pub(super) member: String,
    /// For an additional image, an image or a mask.
    #[serde(rename = "type")]
    pub(super) ty: FieldType,
}

impl MemberField {
    /// Returns the field in the schema. It is nullable, because samples may lack the member.
    pub(super) fn field(&self) -> Field {
        Field::nullable(&self.name, self.ty)
    }
}

/// A member that becomes a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChosenMember {
    /// The chosen name of the field; `None` for the default.
    pub(super) name: Option<String>,
    /// As in [`MemberField`].
    pub(super) member: String,
    pub(super) ty: FieldType,
}

impl ChosenMember {
    /// Creates the field of `member`, with the default for the type.
    pub(super) fn new(name: Option<&str>, member: &str, ty: Option<FieldType>) -> Self {
        let member = member.to_ascii_lowercase();
        let is_png = member == "png" || member.ends_with(".png");
        let ty = ty.unwrap_or(if is_png { FieldType::Mask } else { FieldType::Image });
        Self { name: name.map(str::to_owned), member, ty }
    }

    /// Returns the member without its extension, as the name of a field.
    pub(super) fn stem(&self) -> String {
        self.member.rsplit_once('.').map_or(self.member.as_str(), |(stem, _)| stem).replace('.', "_")
    }

    fn with_type(&self) -> String {
        format!("{}_{}", self.stem(), self.ty.name())
    }

    fn with_extension(&self) -> String {
        let extension = self.member.rsplit('.').next().unwrap_or_default();
        format!("{}_{extension}", self.stem())
    }
}

/// Returns the fields of `members`, in the same order. A default name is the member without its extension. If several
/// members share it, or it is reserved, the type is appended; if that is ambiguous, the extension.
///
/// # Errors
///
/// Fails if two fields have the same name nevertheless.
pub(super) fn named(members: Vec<ChosenMember>) -> Result<Vec<MemberField>> {
    let defaults = default_names(members.iter().filter(|member| member.name.is_none()));
    let field = |ChosenMember { name, member, ty }: ChosenMember| {
        let name = name.or_else(|| defaults.get(&member).cloned()).unwrap_or_default();
        MemberField { name, member, ty }
    };
    let fields: Vec<MemberField> = members.into_iter().map(field).collect();
    let mut by_name: BTreeMap<&str, &str> = BTreeMap::new();
    for MemberField { name, member, .. } in &fields {
        if let Some(other) = by_name.insert(name, member) {
            let what =
                format!("the additional images {other:?} and {member:?} would both be the field {name:?}");
            return Err(Error::usage(what)
                .help(format!("choose two names, such as `image_fields FIELD={other},OTHER={member}`")));
        }
    }
    Ok(fields)
}

/// Returns the default names of fields, by member.
fn default_names<'a>(members: impl Iterator<Item = &'a ChosenMember>) -> BTreeMap<String, String> {
    let mut by_stem: BTreeMap<String, Vec<&ChosenMember>> = BTreeMap::new();
    for member in members {
        by_stem.entry(member.stem()).or_default().push(member);
    }
    let is_unique = |stem: &str, members: &[&ChosenMember]| members.len() == 1 && !is_reserved(stem);
    let mut names = BTreeMap::new();
    // Names that are unique take precedence over those with a suffix.
    let mut taken: BTreeSet<String> = BTreeSet::new();
    for (stem, members) in by_stem.iter().filter(|(stem, members)| is_unique(stem, members)) {
        names.extend(members.iter().map(|member| (member.member.clone(), stem.clone())));
        taken.insert(stem.clone());
    }
    for (_, members) in by_stem.iter().filter(|(stem, members)| !is_unique(stem, members)) {
        let typed: Vec<String> = members.iter().map(|member| member.with_type()).collect();
        let is_ambiguous = distinct(&typed).len() < typed.len() || typed.iter().any(|n| taken.contains(n));
        let found = match is_ambiguous {
            true => members.iter().map(|member| member.with_extension()).collect(),
            false => typed,
        };
        taken.extend(found.iter().cloned());
        names.extend(members.iter().map(|member| member.member.clone()).zip(found));
    }
    names
}

fn distinct(names: &[String]) -> BTreeSet<&String> {
    names.iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_masks_have_a_word_for_them() {
        for name in ["mask", "Mask.png", "tumor_mask2", "seg.map.png", "semantic-segmentation", "depth_map"] {
            assert!(is_mask_name(name), "{name}");
        }
        for name in ["image", "masked_image_of_segway", "edited", "unlabeled", ""] {
            assert!(!is_mask_name(name), "{name}");
        }
    }

    #[test]
    fn numbers_in_names_are_sorted_by_value() {
        let mut names = ["10.jpg", "2.jpg", "b1", "a", "a10", "a9", "02.jpg"];
        names.sort_by_key(|name| natural(name));
        assert_eq!(names, ["2.jpg", "02.jpg", "10.jpg", "a", "a9", "a10", "b1"]);
    }

    /// Returns the names of the fields of `members`, written as `[NAME=]MEMBER`.
    fn names(members: &[&str]) -> Result<Vec<String>> {
        let member = |text: &&str| {
            let (name, member) = text.split_once('=').map_or((None, *text), |(name, m)| (Some(name), m));
            ChosenMember::new(name, member, None)
        };
        let fields = named(members.iter().map(member).collect())?;
        Ok(fields.into_iter().map(|field| field.name).collect())
    }

    #[test]
    fn members_that_differ_only_by_extension_have_two_names() {
        for (members, expected) in [
            (&["seg.png"][..], &["seg"][..]),
            (&["seg.jpg", "seg.png"], &["seg_image", "seg_mask"]),
            (&["left.webp", "left.jpg", "seg.png"], &["left_webp", "left_jpg", "seg"]),
            (&["a.jpg", "a.webp", "a.png"], &["a_jpg", "a_webp", "a_png"]),
            (&["label.png"], &["label_mask"]),
            (&["label.png", "label.jpg"], &["label_mask", "label_image"]),
            (&["label.webp", "label.jpg"], &["label_webp", "label_jpg"]),
            // A name without a collision stays as it is.
            (&["seg.jpg", "seg.png", "seg_mask.png"], &["seg_jpg", "seg_png", "seg_mask"]),
            (&["label.png", "label_mask.png"], &["label_png", "label_mask"]),
            (&["mask=seg.jpg", "seg.png"], &["mask", "seg"]),
        ] {
            assert_eq!(names(members).unwrap(), expected);
            let reversed: Vec<&str> = members.iter().rev().copied().collect();
            let expected: Vec<&str> = expected.iter().rev().copied().collect();
            assert_eq!(names(&reversed).unwrap(), expected);
        }
    }

    #[test]
    fn two_fields_never_have_the_same_name() {
        for (members, name) in [
            (&["seg=seg.jpg", "seg.png"][..], "seg"),
            (&["x=seg.jpg", "x=seg.png"], "x"),
            (&["seg.jpg", "seg.png", "seg_mask=depth.png"], "seg_mask"),
            (&["depth.map.png", "depth_map.png"], "depth_map_png"),
        ] {
            let message = names(members).unwrap_err().to_string();
            assert!(message.contains(&format!("both be the field {name:?}")), "{message}");
        }
    }
}
