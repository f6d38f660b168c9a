//! Class labels from the folders of a source.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::folder_words::is_container;
use super::layout::{FolderLayout, SplitBy};
use super::split_levels::{SplitNames, folders};
use super::splits::{Splits, named_archive};
use crate::error::{Error, Result};
use crate::options::SplitName;
use crate::sample::{Reject, RejectCode};
use crate::source::list::file_list::ChosenFiles;
use crate::source::list::source_file::SourceFile;
use crate::warning::Warning;

/// Splits and classes from the paths of the listed files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Folders {
    /// Splits of the files.
    pub splits: Splits,
    /// Class names, one list for all splits: sorted, or in the order of `--classes`. `None` if no file has a class
    /// folder.
    pub class_names: Option<Vec<String>>,
    /// Decisions that may be unintended.
    #[serde(skip)]
    pub warnings: Vec<Warning>,
    /// Names of the classes of files.
    classes_by: Option<ClassesBy>,
    /// Number of folders in a split folder that only repeat it (`train/train`), by its name.
    repeats: BTreeMap<String, usize>,
    /// Number of folders above the class folders that hold all of them.
    wrappers: usize,
    by_name: BTreeMap<String, u32>,
}

/// The names that are classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum ClassesBy {
    /// The first folders, or those below the split folders.
    Folder,
    /// Archives that are themselves sources.
    Archive,
}

/// Maximum number of nested folders that are not class folders.
const MAX_NESTED: usize = 32;

impl Folders {
    /// Determines the splits of `files`, without classes.
    ///
    /// # Errors
    ///
    /// As [`Splits::find`].
    pub fn of(files: &ChosenFiles<'_>, layout: FolderLayout, names: SplitNames) -> Result<Self> {
        Splits::find(files, layout, names).map(Self::of_splits)
    }

    /// Uses `splits`, with warnings about them.
    pub fn of_splits((splits, warnings): (Splits, Vec<Warning>)) -> Self {
        let (repeats, by_name) = (BTreeMap::new(), BTreeMap::new());
        Self { splits, class_names: None, warnings, classes_by: None, repeats, wrappers: 0, by_name }
    }

    /// Uses the folders of `files` as classes. With [`FolderLayout::Labels`] and no folders, the names of archives that
    /// are sources are classes. If `classes` is given (`--classes`), that list is used unchanged.
    ///
    /// # Errors
    ///
    /// Returns an error if a class is listed twice, or a list is given although there are no class folders.
    pub fn with_classes(
        mut self,
        files: &ChosenFiles<'_>,
        layout: FolderLayout,
        classes: Option<Vec<String>>,
    ) -> Result<Self> {
        self.find_repeats(files);
        let is_container = layout == FolderLayout::Auto && self.find_wrappers(files);
        let mut classes_by = ClassesBy::Folder;
        let mut found = if is_container { BTreeMap::new() } else { self.classes_of(files, classes_by) };
        if layout == FolderLayout::Labels && found.is_empty() {
            let archives = self.classes_of(files, ClassesBy::Archive);
            if archives.len() > 1 {
                (classes_by, found) = (ClassesBy::Archive, archives);
            }
        }
        let is_flat = layout == FolderLayout::Flat
            || (layout == FolderLayout::Auto && found.is_empty() && !self.splits.are_folders());
        if is_flat {
            return match classes {
                None => Ok(self),
                Some(_) => Err(Error::usage("`classes` needs class folders, and this layout has none")
                    .help("use `layout labels` or `layout splits`")),
            };
        }
        self.classes_by = (!is_container).then_some(classes_by);
        if let Some(unused) = &self.splits.unused
            && unused.folders.iter().chain(&unused.others).all(|folder| found.contains_key(folder))
        {
            let of_classes = unused.warning(true);
            for warning in self.warnings.iter_mut().filter(|warning| warning.code == of_classes.code) {
                *warning = of_classes.clone();
            }
        }
        if found.is_empty() && self.splits.by == SplitBy::NestedFolder {
            self.warn_of_folders_above(files);
        }
        self.class_names = match classes {
            Some(given) => Some(given),
            None if found.is_empty() => None,
            None => {
                self.warn(&found, layout);
                if layout == FolderLayout::Auto && !is_container {
                    self.warn_of_equal_folders(files, &found);
                }
                Some(found.into_keys().collect())
            }
        };
        self.by_name = class_ordinals(self.class_names.as_deref().unwrap_or_default())?;
        Ok(self)
    }

    /// Returns whether there is a warning with this code.
    pub(super) fn warns_of(&self, code: &str) -> bool {
        self.warnings.iter().any(|warning| warning.code == code)
    }

    /// Returns the classes of `files`, each with the ordinal of its split; `None` if it occurs in several.
    fn classes_of(&self, files: &ChosenFiles<'_>, by: ClassesBy) -> BTreeMap<String, Option<usize>> {
        let mut found = BTreeMap::new();
        let is_split = self.splits.names.len() > 1;
        for file in files.iter() {
            let Some(class) = self.class_of(&file, by) else { continue };
            add_class(&mut found, class, if is_split { self.splits.of(&file) } else { 0 });
        }
        found
    }

    /// Counts the folders in split folders that only repeat them, as archives that are unpacked into a folder of their
    /// own name have: `train/train/cat`, `seg_test/seg_test/forest`.
    fn find_repeats(&mut self, files: &ChosenFiles<'_>) {
        if !self.splits.are_folders() {
            return;
        }
        for _ in 0..MAX_NESTED {
            // The only folder in a split folder; `None` if there are files or several folders.
            let mut only: BTreeMap<String, Option<String>> = BTreeMap::new();
            for file in files.iter() {
                let mut folders = folders(&file);
                let start = self.splits.first_class_level(&folders);
                let at = self.class_level(&folders);
                if start == 0 || folders.len() < start {
                    continue;
                }
                let inner = (at < folders.len()).then(|| folders.swap_remove(at));
                match only.get_mut(&folders[start - 1]) {
                    Some(known) if *known == inner => {}
                    Some(known) => *known = None,
                    None => drop(only.insert(folders.swap_remove(start - 1), inner)),
                }
            }
            let split = |name: &str| SplitName::of(name).map(|name| name.split);
            let is_repeat = |(folder, inner): &(String, Option<String>)| {
                let inner = inner.as_deref();
                inner.is_some_and(|inner| {
                    inner == folder || (split(inner).is_some() && split(inner) == split(folder))
                })
            };
            let repeated: Vec<String> =
                only.into_iter().filter(is_repeat).map(|(folder, _)| folder).collect();
            if repeated.is_empty() {
                return;
            }
            repeated.into_iter().for_each(|folder| *self.repeats.entry(folder).or_default() += 1);
        }
    }

    /// Counts the folders that hold all class folders and nothing else, as for archives. Returns whether the images are in
    /// one folder that is called like a folder of images or like the folder around it, and is not a class.
    fn find_wrappers(&mut self, files: &ChosenFiles<'_>) -> bool {
        for _ in 0..MAX_NESTED {
            let (mut only, mut holds_images, mut is_repeat) = (None, false, false);
            for file in files.iter() {
                let mut folders = folders(&file);
                let at = self.class_level(&folders);
                if at >= folders.len() {
                    continue;
                }
                if folders.len() == at + 1 && !holds_images {
                    let mut above = file.relative.ancestors().skip(1).map(Path::file_name);
                    is_repeat = above.next() == above.next();
                    holds_images = true;
                }
                let folder = folders.swap_remove(at);
                if only.as_ref().is_some_and(|only| *only != folder) {
                    return false;
                }
                only = Some(folder);
            }
            match only {
                Some(_) if !holds_images => {
                    self.wrappers += 1;
                }
                Some(folder) => return is_container(&folder) || is_repeat,
                None => return false,
            }
        }
        false
    }

    /// Returns the level of the class folder of a file in `folders`.
    pub(super) fn class_level(&self, folders: &[String]) -> usize {
        let start = self.splits.first_class_level(folders);
        let repeats = start.checked_sub(1).and_then(|level| self.repeats.get(folders.get(level)?));
        start + repeats.copied().unwrap_or(0) + self.wrappers
    }

    fn class_of(&self, file: &SourceFile, by: ClassesBy) -> Option<String> {
        match by {
            ClassesBy::Folder => {
                let folders = folders(file);
                let level = self.class_level(&folders);
                folders.into_iter().nth(level)
            }
            ClassesBy::Archive => named_archive(file),
        }
    }

    /// Returns the name of the class folder of `file`, and its label. The label is `None` for a class that is not in
    /// `--classes`.
    pub fn label_of(&self, file: &SourceFile) -> Option<(String, Option<u32>)> {
        let name = self.class_of(file, self.classes_by?)?;
        let label = self.by_name.get(&name).copied();
        Some((name, label))
    }
}

/// Adds the split in which a class occurs.
pub(super) fn add_class(found: &mut BTreeMap<String, Option<usize>>, class: String, split: usize) {
    match found.get_mut(&class) {
        Some(other) if *other == Some(split) => {}
        Some(other) => *other = None,
        None => drop(found.insert(class, Some(split))),
    }
}

/// Returns the ordinals of classes, by name.
///
/// # Errors
///
/// Returns an error if a class is listed twice, because its items would all get one of the two ordinals.
pub fn class_ordinals(names: &[String]) -> Result<BTreeMap<String, u32>> {
    let mut by_name = BTreeMap::new();
    for (name, ordinal) in names.iter().zip(0..) {
        if by_name.insert(name.clone(), ordinal).is_some() {
            return Err(Error::usage(format!("the class {name:?} is listed twice"))
                .help("keep one of them in `classes`"));
        }
    }
    Ok(by_name)
}

/// Returns the reject of an item whose class is not in `--classes`, or not declared by the source.
pub(crate) fn unknown_class(class: &str) -> Reject {
    Reject::new(RejectCode::UnknownLabel, format!("the class {class:?} is not in the list of classes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::list::file_list::FileList;

    fn files(paths: &[&str]) -> Vec<SourceFile> {
        paths.iter().map(|path| SourceFile::for_test(path, &format!("s/{path}"), 1)).collect()
    }

    fn list(files: &[SourceFile]) -> FileList {
        files.iter().cloned().collect()
    }

    fn folders_of(files: &[SourceFile], layout: FolderLayout, classes: Option<&[&str]>) -> Result<Folders> {
        let files = list(files);
        let files = ChosenFiles::all(&files);
        let classes = classes.map(|names| names.iter().map(|&n| n.to_owned()).collect());
        Folders::of(&files, layout, SplitNames::OfImages)?.with_classes(&files, layout, classes)
    }

    #[test]
    fn first_level_folders_are_classes() {
        let files = files(&["dog/a.jpg", "cat/deep/b.jpg", "loose.jpg"]);
        let folders = folders_of(&files, FolderLayout::Auto, None).unwrap();
        assert_eq!(folders.splits, Splits::none());
        assert_eq!(folders.class_names.as_deref().unwrap(), ["cat", "dog"]);
        assert_eq!(folders.label_of(&files[0]), Some(("dog".into(), Some(1))));
        assert_eq!(folders.label_of(&files[2]), None);
        assert!(folders.warnings.is_empty());
    }

    #[test]
    fn split_folders_are_recognized_and_share_one_class_list() {
        let files = files(&["train/dog/a.jpg", "val/cat/b.jpg", "test/c.jpg"]);
        let folders = folders_of(&files, FolderLayout::Auto, None).unwrap();
        assert_eq!(folders.splits.names, ["test", "train", "validation"]);
        assert_eq!(folders.splits.of(&files[1]), 2);
        assert_eq!(folders.label_of(&files[0]), Some(("dog".into(), Some(1))));
        let labels = folders_of(&files, FolderLayout::Labels, None).unwrap();
        assert_eq!(labels.class_names.unwrap(), ["test", "train", "val"]);
    }

    #[test]
    fn a_class_named_like_a_split_causes_a_warning() {
        let files = files(&["aeroplane/a.jpg", "train/b.jpg"]);
        let folders = folders_of(&files, FolderLayout::Auto, None).unwrap();
        assert_eq!(folders.class_names.as_deref().unwrap(), ["aeroplane", "train"]);
        let [warning] = &folders.warnings[..] else { panic!("{:?}", folders.warnings) };
        assert_eq!(warning.code, "split-named-folders");
        assert_eq!(warning.value("folders"), &serde_json::json!(["train"]));
        assert_eq!(warning.value("are_classes"), true);
    }

    #[test]
    fn classes_are_below_split_folders() {
        for (paths, classes) in [
            (&["chest/train/NORMAL/1", "chest/val/PNEUMONIA/2"][..], &["NORMAL", "PNEUMONIA"][..]),
            (&["images/train/1", "images/val/2"], &[]),
            (
                &["seg_train/seg_train/sea/1", "seg_test/seg_test/ice/2", "seg_pred/seg_pred/3"],
                &["ice", "sea"],
            ),
            // One of the split folders is nested.
            (&["train/train/cat/1", "train/train/dog/2", "test1/cat/3"], &["cat", "dog"]),
            (&["train/train/1", "train/car/2", "val/car/3"], &["car", "train"]),
            // Folders around all classes.
            (&["food/images/pizza/1", "food/images/sushi/2"], &["pizza", "sushi"]),
            (&["train/images/cat/1", "val/images/dog/2"], &["cat", "dog"]),
            (&["train/images/1", "valid/images/2"], &[]),
            (&["images/1", "images/2"], &[]),
            (&["celeba/celeba/1", "celeba/celeba/2"], &[]),
            (&["cats/1", "cats/2"], &["cats"]),
        ] {
            let files = files(paths);
            let folders = folders_of(&files, FolderLayout::Auto, None).unwrap();
            assert_eq!(folders.class_names.unwrap_or_default(), classes, "{paths:?}");
        }
    }

    #[test]
    fn doubtful_classes_cause_warnings() {
        for (paths, codes) in [
            (&["train/n01440764/1", "val/n01440764/1", "test/1"][..], &[][..]),
            (&["train/cat/1", "train/dog/1", "val/images/1"], &["classes-of-one-split", "container-classes"]),
            (&["train/cat/1", "test/unknown/1", "val/cat/1"], &["classes-of-one-split"]),
            (&["train/cat/1", "test/1"], &[]),
            (&["JPEGImages/1", "SegmentationClass/1"], &["mask-folders"]),
            (&["images/train/1", "train_labels/train/1", "images/val/1"], &["mask-folders"]),
            (&["image/1", "mask/1"], &["mask-folders"]),
            (&["training/image_2/1", "training/image_3/1"], &["unusual-split-names", "container-classes"]),
            (&["train_images/1", "train_masks/1", "test_images/1"], &["mask-folders"]),
            (
                &["A_Training_Data/1", "A_Training_Part1_GroundTruth/1", "A_Test_Data/1"],
                &["unusual-split-names", "mask-folders"],
            ),
            (&["x/1", "stage1_ground_truth/1"], &["mask-folders"]),
            (&["stage1_train/1", "stage1_train_masks/1"], &["mask-folders"]),
            (&["leaf_images/1", "leaf_mask/1"], &["mask-folders"]),
            (&["HQ-img/1", "HQ-mask-anno/1"], &["mask-folders"]),
            (&["with_mask/1", "without_mask/1"], &[]),
            (&["images/with_mask/1", "images/without_mask/1"], &[]),
            (&["gas_masks/1", "face_images/1", "return_labels/1"], &[]),
            (&["mask/1", "no_mask/1"], &[]),
            (&["train/1", "trainannot/1", "val/1"], &["stray-folders", "mask-folders"]),
            (&["1/1", "10/1", "2/1"], &["numbers-sorted-as-text"]),
            (&["0/1", "1/1", "2/1"], &[]),
            (&["01/1", "02/1", "10/1"], &[]),
            (&["cat/train/1", "cat/test/1", "dog/train/1"], &["folders-above-splits"]),
            (&["images/train/1", "images/val/1"], &[]),
        ] {
            let files = files(paths);
            let mut folders = folders_of(&files, FolderLayout::Auto, None).unwrap();
            folders.warn_of_masks(&ChosenFiles::all(&list(&files)));
            assert_eq!(
                folders.warnings.iter().map(|warning| warning.code).collect::<Vec<_>>(),
                codes,
                "{paths:?}"
            );
        }
    }

    #[test]
    fn a_given_class_list_keeps_its_order_and_excludes_other_classes() {
        let files = files(&["dog/a.jpg", "cow/b.jpg"]);
        let folders = folders_of(&files, FolderLayout::Auto, Some(&["dog", "cat"])).unwrap();
        assert_eq!(folders.label_of(&files[0]), Some(("dog".into(), Some(0))));
        assert_eq!(folders.label_of(&files[1]), Some(("cow".into(), None)));
        assert!(folders_of(&files, FolderLayout::Auto, Some(&["dog", "dog"])).is_err());
    }

    #[test]
    fn a_folder_without_folders_is_flat() {
        let files = files(&["a.jpg"]);
        let folders = folders_of(&files, FolderLayout::Auto, None).unwrap();
        assert_eq!((folders.classes_by, folders.class_names), (None, None));
        assert!(folders_of(&files, FolderLayout::Auto, Some(&["a"])).is_err());
    }
}
