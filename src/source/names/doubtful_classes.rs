//! Classes from the names of folders that may be unintended.

use std::collections::{BTreeMap, BTreeSet};

use super::folder_words::{CONTAINERS, MASKS, PERHAPS_MASKS, ends, is_container, is_mask};
use super::labels::{Folders, add_class};
use super::layout::FolderLayout;
use super::split_levels::folders;
use crate::manifest::Manifest;
use crate::source::list::file_list::ChosenFiles;
use crate::source::list::source_file::SourceFile;
use crate::warning::{Warning, quoted};

/// Maximum number of folders in class folders that are compared.
const MAX_EQUAL: usize = 4096;

impl Folders {
    /// Warns about `classes` that may be unintended.
    pub(super) fn warn(&mut self, classes: &BTreeMap<String, Option<usize>>, layout: FolderLayout) {
        self.warnings.extend(of_one_split(&self.splits.names, classes, true));
        let containers = || classes.keys().filter(|class| is_container(class));
        if layout == FolderLayout::Auto && classes.len() > 1 {
            let folders: Vec<String> = containers().cloned().collect();
            let are_beside_masks = classes.keys().any(|class| is_mask(class, true));
            if !folders.is_empty() && !are_beside_masks {
                self.warnings.push(container_classes(&folders));
            }
        }
        let is_number = |class: &&String| class.bytes().all(|byte| byte.is_ascii_digit());
        let numbers =
            classes.keys().filter(is_number).filter_map(|class| Some((class, class.parse::<u64>().ok()?)));
        let numbers: Vec<(&String, u64)> = numbers.collect();
        if let Some([(first, _), (second, _)]) =
            numbers.array_windows().find(|[(_, first), (_, second)]| first > second)
        {
            let message = format!(
                "class names are sorted as text, so {first:?} comes before {second:?}, and the label of a class is not its \
                 number"
            );
            self.warnings.push(
                Warning::new("numbers-sorted-as-text", message)
                    .with("first", first)
                    .with("second", second)
                    .remedy("classes", "FILE", "sets the order: a list with one class per line"),
            );
        }
    }

    /// Warns about classes from a table that occur in only one split. `labeled` are files with their class names.
    pub fn warn_of_labels<'a>(&mut self, labeled: impl Iterator<Item = (SourceFile, &'a String)>) {
        if self.splits.names.len() > 1 {
            let mut found = BTreeMap::new();
            labeled.for_each(|(file, class)| add_class(&mut found, class.clone(), self.splits.of(&file)));
            self.warnings.extend(of_one_split(&self.splits.names, &found, false));
        }
    }

    /// Warns if several `classes` hold the same folders, and no image of their own: `fold1/cat`, `fold2/cat`. More than
    /// half of all such folders must be in all of them.
    pub(super) fn warn_of_equal_folders(
        &mut self,
        files: &ChosenFiles<'_>,
        classes: &BTreeMap<String, Option<usize>>,
    ) {
        let (mut all, mut inner, mut common) = (BTreeSet::new(), BTreeSet::new(), None);
        let keep = |common: &mut Option<BTreeSet<String>>, inner: &BTreeSet<String>| match common {
            Some(common) => common.retain(|name| inner.contains(name)),
            None => *common = Some(inner.clone()),
        };
        let mut current: Option<Vec<String>> = None;
        for file in files.first_in_folders() {
            let mut folders = folders(&file);
            let at = self.class_level(&folders);
            if folders.len() <= at {
                continue;
            }
            // `amazon/images/bike`, `webcam/images/bike`.
            let Some(name) = folders.drain(at + 1..).find(|name| !is_container(name)) else { return };
            // Folders in one class folder follow each other.
            if current.as_ref() != Some(&folders) && current.replace(folders).is_some() {
                keep(&mut common, &inner);
                all.append(&mut inner);
            }
            inner.insert(name);
            if inner.len().max(all.len()) > MAX_EQUAL {
                return;
            }
        }
        keep(&mut common, &inner);
        all.append(&mut inner);
        let common: Vec<String> = common.into_iter().flatten().collect();
        if classes.len() > 1 && common.len() * 2 > all.len() && !all.iter().all(|name| is_mask(name, true)) {
            self.warnings.push(equal_folders(&classes.keys().cloned().collect::<Vec<_>>(), &common));
        }
    }

    /// Warns if there are no classes, but several folders that contain split folders.
    pub(super) fn warn_of_folders_above(&mut self, files: &ChosenFiles<'_>) {
        let mut above = BTreeSet::new();
        for file in files.iter() {
            let mut folders = folders(&file);
            let level = self.splits.first_class_level(&folders).checked_sub(2);
            if let Some(level) = level.filter(|level| *level < folders.len()) {
                above.insert(folders.swap_remove(level));
            }
        }
        let is_class = |name: &&String| !is_mask(name, true) && !is_container(name);
        if above.iter().filter(is_class).count() > 1 {
            let folders: Vec<String> = above.into_iter().collect();
            let names = quoted(&folders);
            let message = format!("the folders {names} are not classes, because they contain split folders");
            let effect = "makes the first-level folders classes, and puts everything into train";
            self.warnings.push(
                Warning::new("folders-above-splits", message)
                    .with("folders", folders)
                    .remedy("layout", "labels", effect),
            );
        }
    }

    /// Warns if `images` are in folders that are called like those of masks or annotations.
    pub fn warn_of_masks(&mut self, images: &ChosenFiles<'_>) {
        let (mut masks, mut perhaps, mut has_images) = (BTreeSet::new(), BTreeSet::new(), false);
        // The words before those of images, and before those of masks: `leaf` for `leaf_images` and `leaf_mask`.
        let (mut starts, mut ended) = (BTreeSet::new(), BTreeSet::new());
        let mut last = String::new();
        for file in images.iter() {
            let parent = file.origin.rsplit_once('/').map_or("", |(parent, _)| parent);
            // Files in one folder follow each other.
            if parent == last {
                continue;
            }
            parent.clone_into(&mut last);
            for folder in folders(&file) {
                has_images |= is_container(&folder);
                for (start, last) in ends(&folder) {
                    if CONTAINERS.contains(&&*last) {
                        starts.insert(start);
                    } else if MASKS.contains(&&*last) || PERHAPS_MASKS.contains(&&*last) {
                        ended.insert((start, folder.clone()));
                    }
                }
                match (is_mask(&folder, false), is_mask(&folder, true)) {
                    (true, _) => drop(masks.insert(folder)),
                    (false, true) => drop(perhaps.insert(folder)),
                    (false, false) => {}
                }
            }
        }
        masks.extend(ended.into_iter().filter(|(start, _)| starts.contains(start)).map(|(_, folder)| folder));
        if has_images || !masks.is_empty() {
            masks.append(&mut perhaps);
        }
        if !masks.is_empty() {
            self.warnings.push(mask_folders(&masks.into_iter().collect::<Vec<_>>()));
        }
    }
}

/// Returns a warning about `classes` that occur in only one of the splits `names`, given as its ordinal.
fn of_one_split(
    names: &[String],
    classes: &BTreeMap<String, Option<usize>>,
    by_folder: bool,
) -> Option<Warning> {
    let mut by_split: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for (class, split) in classes {
        if let Some(split) = split {
            by_split.entry(*split).or_default().push(class.clone());
        }
    }
    let has_others = |split: usize| classes.values().any(|other| *other != Some(split));
    if names.len() < 2 || !by_split.keys().any(|split| has_others(*split)) {
        return None;
    }
    let named = |(split, classes)| Some((names.get(split).cloned()?, classes));
    let mut classes: Vec<(String, Vec<String>)> = by_split.into_iter().filter_map(named).collect();
    classes.sort_by_key(|(_, classes)| classes.len());
    let of_split = |(split, classes): &(String, Vec<String>)| {
        let (noun, verb) = if classes.len() == 1 { ("class", "occurs") } else { ("classes", "occur") };
        format!("the {noun} {} {verb} only in {split}", quoted(classes))
    };
    let message = classes.iter().map(of_split).collect::<Vec<_>>().join(", ");
    let warning = Warning::new("classes-of-one-split", message)
        .with("classes", classes)
        .with("by_folder", by_folder)
        .remedy("classes", "FILE", OTHER_CLASSES);
    Some(match by_folder {
        true => or_no_labels(warning),
        false => warning.remedy("layout", "flat", "ignores all folders: everything in train"),
    })
}

/// Effect of a list of classes.
const OTHER_CLASSES: &str = "rejects images of other classes than those in a list";

/// Adds the option that keeps folders from being classes.
pub(super) fn or_no_labels(warning: Warning) -> Warning {
    warning.remedy("layout", "flat", "ignores all folders: no labels, everything in train")
}

/// Returns the warning about classes that have the names of folders for images of any class.
fn container_classes(folders: &[String]) -> Warning {
    let (noun, verb) = if folders.len() == 1 { ("", "is a class") } else { ("s", "are classes") };
    let names = quoted(folders);
    let message = format!("the folder{noun} {names} {verb}, although named like a folder of any images");
    let warning = Warning::new("container-classes", message).with("folders", folders);
    or_no_labels(warning.remedy("classes", "FILE", OTHER_CLASSES))
}

/// Returns the warning about `classes` that all hold the `folders`, which may be the classes.
fn equal_folders(classes: &[String], folders: &[String]) -> Warning {
    let (are, them) = if folders.len() == 1 { (" is", "a class") } else { ("s are", "classes") };
    let message = format!(
        "the folders {} are the classes, although the same folder{are} in all of them: {}; to make the latter {them}, name \
         the former as sources",
        quoted(classes),
        quoted(folders)
    );
    let warning = Warning::new("equal-class-folders", message);
    or_no_labels(warning.with("classes", classes).with("folders", folders))
}

/// Returns the warning about images that are items although they may be masks.
fn mask_folders(folders: &[String]) -> Warning {
    let message = format!(
        "the images in the folder{} {} are converted like all others, although named like masks or annotations; to leave \
         them out, name the other folders as sources",
        if folders.len() == 1 { "" } else { "s" },
        quoted(folders)
    );
    Warning::new("mask-folders", message)
        .with("folders", folders)
        .remedy(
            "companion",
            "NAME=PATTERN,…",
            "makes them fields of the images that they belong to, as in mask=masks/{stem}.png",
        )
        .remedy("files_from", "FILE", "converts only the images in a list")
}

/// Returns a warning about classes with records in only one of several splits of a dataset, unless records are
/// assigned to splits at random. Labels in containers, and declared classes, are not known before the conversion.
pub fn converted_classes_of_one_split(manifest: &Manifest) -> Option<Warning> {
    let is_random = manifest.options.pointer("/output/split").is_some_and(|split| !split.is_null());
    manifest.schema.label_field().filter(|_| !is_random)?;
    let mut found = BTreeMap::new();
    for (ordinal, split) in manifest.splits.values().enumerate() {
        let counts = split.class_counts.iter().flatten();
        let classes = manifest.schema.class_names.iter().zip(counts).filter(|(_, count)| **count > 0);
        classes.for_each(|(class, _)| add_class(&mut found, class.clone(), ordinal));
    }
    let names: Vec<String> = manifest.splits.keys().cloned().collect();
    of_one_split(&names, &found, false)
}
