//! Words in the names of folders that hold images of any class, or masks.

use crate::options::{SplitName, split_affixes};

/// Names of folders of images that are not classes if there is no other one.
pub(super) const CONTAINERS: [&str; 11] =
    ["images", "image", "imgs", "img", "jpegimages", "jpegs", "jpeg", "jpgs", "jpg", "pngs", "png"];
/// Names of folders of masks or annotations.
pub(super) const MASKS: [&str; 28] = [
    "masks",
    "maskimages",
    "anno",
    "annotations",
    "annotation",
    "annotationimages",
    "annots",
    "annot",
    "labels",
    "labelids",
    "labelimages",
    "labelmaps",
    "pixellabels",
    "gt",
    "gts",
    "gtfine",
    "gtcoarse",
    "groundtruth",
    "groundtruths",
    "segmentation",
    "segmentations",
    "segmentationclass",
    "segmentationclassaug",
    "segmentationclassraw",
    "segmentationobject",
    "segmaps",
    "stuffthingmaps",
    "trimaps",
];
/// Those of [`MASKS`] that are also the last word of names of classes.
const NOUNS: [&str; 7] = ["masks", "labels", "gt", "gts", "annotation", "annotations", "segmentation"];
/// As [`MASKS`], if there are folders of images or masks beside them: a class may have such a name.
pub(super) const PERHAPS_MASKS: [&str; 7] =
    ["mask", "label", "seg", "semantic", "instance", "panoptic", "depth"];

/// Returns the letters of `name` in lower case, without the word of a split: `masks` for `train_masks_2`.
fn plain(name: &str) -> String {
    let word = SplitName::of(name).map(|name| name.word);
    let rest = word
        .and_then(|word| name.split_once(word))
        .map_or_else(|| name.to_owned(), |(a, b)| a.to_owned() + b);
    rest.chars().filter(char::is_ascii_alphabetic).map(|c| c.to_ascii_lowercase()).collect()
}

/// Returns whether a folder of this name holds masks or annotations; with `perhaps`, also if a class may have that name.
pub(super) fn is_mask(name: &str, perhaps: bool) -> bool {
    let is_listed = |name: &str| MASKS.contains(&name) || (perhaps && PERHAPS_MASKS.contains(&name));
    // `ISIC_Training_Part1_GroundTruth`, `stage1_ground_truth`; a class may be `gas_masks`.
    let is_class = |last: &str| NOUNS.contains(&last) && SplitName::of(name).is_none();
    let is_end = |last: &str| MASKS.contains(&last) && !is_class(last);
    let plain = plain(name);
    is_listed(&plain)
        || ends(name).iter().any(|(_, last)| is_end(last))
        || split_affixes(&plain).iter().any(|(_, affix)| is_listed(&affix.rest))
}

/// Returns whether a folder of this name holds images of any class.
pub(super) fn is_container(name: &str) -> bool {
    CONTAINERS.contains(&&*plain(name))
}

/// Returns the last word and the last two words of `name`, each with the words before, in lower case. Words of splits and
/// numbers do not count.
pub(super) fn ends(name: &str) -> Vec<(String, String)> {
    let words = name.split(|c: char| !c.is_ascii_alphabetic());
    let is_word = |word: &&str| !word.is_empty() && SplitName::of(word).is_none();
    let words: Vec<String> = words.filter(is_word).map(str::to_ascii_lowercase).collect();
    let starts = words.len().saturating_sub(2)..words.len();
    starts
        .filter(|start| *start > 0)
        .map(|start| (words[..start].concat(), words[start..].concat()))
        .collect()
}
