//! Class labels from the folders of a source.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::file_list::ChosenFiles;
use super::layout::FolderLayout;
use super::source_file::SourceFile;
use super::split_by::SplitBy;
pub use super::splits::DEFAULT_SPLIT;
use super::splits::{SplitNames, Splits, distinct, folders, named_archive};
use super::warning::Warning;
use crate::error::{Error, Result};
use crate::sample::{Reject, RejectCode};

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
    by_name: BTreeMap<String, u32>,
}

/// The names that are classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum ClassesBy {
    /// Folders at this level, from 0.
    Level(usize),
    /// Archives that are themselves sources.
    Archive,
}

impl ClassesBy {
    /// Returns the class of `file`.
    fn name_of(self, file: &SourceFile) -> Option<String> {
        match self {
            Self::Level(level) => folders(file).into_iter().nth(level),
            Self::Archive => named_archive(file),
        }
    }
}

impl Folders {
    /// Determines the splits of `files`, without classes.
    ///
    /// # Errors
    ///
    /// As [`Splits::find`].
    pub fn of(files: &ChosenFiles<'_>, layout: FolderLayout, names: SplitNames) -> Result<Self> {
        let (splits, warnings) = Splits::find(files, layout, names)?;
        Ok(Self { splits, class_names: None, warnings, classes_by: None, by_name: BTreeMap::new() })
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
        let level = usize::from(self.splits.by == SplitBy::Folder);
        let names = |by: ClassesBy| distinct(files.iter().filter_map(|file| by.name_of(&file)));
        let mut classes_by = ClassesBy::Level(level);
        let mut found = names(classes_by);
        if layout == FolderLayout::Labels && found.is_empty() {
            let archives = names(ClassesBy::Archive);
            if archives.len() > 1 {
                (classes_by, found) = (ClassesBy::Archive, archives);
            }
        }
        let is_flat = layout == FolderLayout::Flat
            || (layout == FolderLayout::Auto && found.is_empty() && self.splits.by != SplitBy::Folder);
        if is_flat {
            return match classes {
                None => Ok(self),
                Some(_) => Err(Error::usage("`classes` needs class folders, and this layout has none")
                    .help("use `layout labels` or `layout splits`")),
            };
        }
        self.classes_by = Some(classes_by);
        if layout == FolderLayout::Auto && self.splits.by == SplitBy::Nothing {
            let is_split = |name: &&String| super::splits::is_usual(name);
            if let Some(folder) = found.iter().find(is_split) {
                let others = found.iter().filter(|name| *name != folder).cloned().collect();
                self.warnings.push(Warning::SplitNamedClass { folder: folder.clone(), others });
            }
        }
        self.class_names = match classes {
            Some(given) => Some(given),
            None if found.is_empty() => None,
            None => Some(found.into_iter().collect()),
        };
        self.by_name = class_ordinals(self.class_names.as_deref().unwrap_or_default())?;
        Ok(self)
    }

    /// Returns the name of the class folder of `file`, and its label. The label is `None` for a class that is not in
    /// `--classes`.
    pub fn label_of(&self, file: &SourceFile) -> Option<(String, Option<u32>)> {
        let name = self.classes_by?.name_of(file)?;
        let label = self.by_name.get(&name).copied();
        Some((name, label))
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

    fn files(paths: &[&str]) -> Vec<SourceFile> {
        paths.iter().map(|path| SourceFile::for_test(path, &format!("s/{path}"), 1)).collect()
    }

    fn folders_of(files: &[SourceFile], layout: FolderLayout, classes: Option<&[&str]>) -> Result<Folders> {
        let files = ChosenFiles::all(files);
        let classes = classes.map(|names| names.iter().map(|&n| n.to_owned()).collect());
        Folders::of(&files, layout, SplitNames::Folders)?.with_classes(&files, layout, classes)
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
        assert!(
            matches!(&folders.warnings[..], [Warning::SplitNamedClass { folder, .. }] if folder == "train")
        );
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
