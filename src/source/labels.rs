//! Class labels and splits from the folders of a tree.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::walk::SourceFile;
use crate::error::{Error, Result};

/// Split of items that belong to no other.
pub const DEFAULT_SPLIT: &str = "train";

/// Folder names that mean splits, and the splits they mean.
const SPLIT_FOLDERS: [(&str, &str); 5] = [
    ("train", "train"),
    ("val", "validation"),
    ("valid", "validation"),
    ("validation", "validation"),
    ("test", "test"),
];

/// What the folders of a tree mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// [`Layout::Splits`] when all first-level folders are named as splits, [`Layout::Flat`] when there are no
    /// folders, [`Layout::Labels`] otherwise.
    #[default]
    Auto,
    /// First-level folder = class.
    Labels,
    /// First-level folder = split, second level = class (where there is one).
    Splits,
    /// Folders mean nothing.
    Flat,
}

impl FromStr for Layout {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        Ok(match s {
            "auto" => Layout::Auto,
            "labels" => Layout::Labels,
            "splits" => Layout::Splits,
            "flat" => Layout::Flat,
            _ => {
                return Err(
                    Error::usage(format!("{s:?} is no layout")).help("use auto, labels, splits or flat")
                );
            }
        })
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Layout::Auto => "auto",
            Layout::Labels => "labels",
            Layout::Splits => "splits",
            Layout::Flat => "flat",
        })
    }
}

/// What the folders of the listed files say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folders {
    /// The layout that was found or asked for; never [`Layout::Auto`].
    pub layout: Layout,
    /// Sorted class names, one list for all splits; `None` when no file has a class folder.
    pub class_names: Option<Vec<String>>,
    /// Names of the splits, sorted.
    pub splits: Vec<String>,
    by_name: BTreeMap<String, u32>,
}

/// Folder names above a file, outermost first.
fn folders(file: &SourceFile) -> Vec<String> {
    let mut names: Vec<String> = file.relative.iter().map(super::portable_name).collect();
    names.pop();
    names
}

impl Folders {
    /// Reads the folders of `files`. With `classes` (from `--classes`) that list is used as it is.
    ///
    /// # Errors
    ///
    /// `Splits` asked for and a file that stands in no split folder; a class list with a name twice.
    pub fn of<'a>(
        files: impl IntoIterator<Item = &'a SourceFile, IntoIter: Clone>,
        layout: Layout,
        classes: Option<Vec<String>>,
    ) -> Result<Self> {
        let files = files.into_iter();
        let mut first_level = BTreeSet::new();
        let mut loose = None;
        for file in files.clone() {
            match folders(file).into_iter().next() {
                Some(name) => drop(first_level.insert(name)),
                None => loose = loose.or(Some(file)),
            }
        }
        let layout = match layout {
            Layout::Auto if first_level.is_empty() => Layout::Flat,
            Layout::Auto if loose.is_none() && first_level.iter().all(|n| split_named(n).is_some()) => {
                Layout::Splits
            }
            Layout::Auto => Layout::Labels,
            given => given,
        };
        let level = match layout {
            Layout::Splits => {
                if let Some(file) = loose {
                    return Err(Error::usage(format!("{} stands in no split folder", file.origin))
                        .help("move it into train, validation or test, or use another --layout"));
                }
                1
            }
            Layout::Labels => 0,
            _ => usize::MAX,
        };
        let mut found = BTreeSet::new();
        let mut splits = BTreeSet::new();
        for file in files {
            let names = folders(file);
            if let Some(class) = names.get(level) {
                found.insert(class.clone());
            }
            if layout == Layout::Splits {
                splits.extend(names.first().map(|n| split_named(n).unwrap_or(n).to_owned()));
            }
        }
        if splits.is_empty() {
            splits.insert(DEFAULT_SPLIT.to_owned());
        }
        let class_names = match classes {
            Some(_) if layout == Layout::Flat => {
                return Err(Error::usage("--classes needs class folders, and this layout has none")
                    .help("use --layout labels or --layout splits"));
            }
            Some(given) => Some(given),
            None if found.is_empty() => None,
            None => Some(found.into_iter().collect()),
        };
        let mut by_name = BTreeMap::new();
        for (i, name) in class_names.iter().flatten().enumerate() {
            if by_name.insert(name.clone(), i as u32).is_some() {
                return Err(Error::usage(format!("the class {name:?} is listed twice"))
                    .help("keep one of them in --classes"));
            }
        }
        Ok(Self { layout, class_names, splits: splits.into_iter().collect(), by_name })
    }

    /// Name of the class folder of `file`, and its label; the label is `None` for a class that `--classes` lacks.
    pub fn label_of(&self, file: &SourceFile) -> Option<(String, Option<u32>)> {
        let level = match self.layout {
            Layout::Labels => 0,
            Layout::Splits => 1,
            _ => return None,
        };
        let name = folders(file).into_iter().nth(level)?;
        let label = self.by_name.get(&name).copied();
        Some((name, label))
    }

    /// Ordinal in [`Folders::splits`] of the split of `file`.
    pub fn split_of(&self, file: &SourceFile) -> usize {
        if self.layout != Layout::Splits {
            return 0;
        }
        let name = folders(file).into_iter().next().unwrap_or_default();
        let name = split_named(&name).unwrap_or(&name);
        self.splits.iter().position(|s| s == name).unwrap_or(0)
    }
}

fn split_named(folder: &str) -> Option<&'static str> {
    SPLIT_FOLDERS.iter().find(|(name, _)| *name == folder).map(|(_, split)| *split)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(paths: &[&str]) -> Vec<SourceFile> {
        paths
            .iter()
            .map(|p| SourceFile {
                source: 0,
                relative: p.into(),
                origin: format!("s/{p}"),
                bytes: 1,
                modified_ns: 0,
            })
            .collect()
    }

    #[test]
    fn first_level_folders_are_classes() {
        let files = files(&["dog/a.jpg", "cat/deep/b.jpg", "loose.jpg"]);
        let folders = Folders::of(&files, Layout::Auto, None).unwrap();
        assert_eq!(folders.layout, Layout::Labels);
        assert_eq!(folders.class_names.as_deref().unwrap(), ["cat", "dog"]);
        assert_eq!(folders.label_of(&files[0]), Some(("dog".into(), Some(1))));
        assert_eq!(folders.label_of(&files[2]), None);
    }

    #[test]
    fn split_folders_are_recognised_and_share_one_class_list() {
        let files = files(&["train/dog/a.jpg", "val/cat/b.jpg", "test/c.jpg"]);
        let folders = Folders::of(&files, Layout::Auto, None).unwrap();
        assert_eq!(folders.layout, Layout::Splits);
        assert_eq!(folders.splits, ["test", "train", "validation"]);
        assert_eq!(folders.split_of(&files[1]), 2);
        assert_eq!(folders.label_of(&files[0]), Some(("dog".into(), Some(1))));
        let labels = Folders::of(&files, Layout::Labels, None).unwrap();
        assert_eq!(labels.class_names.unwrap(), ["test", "train", "val"]);
    }

    #[test]
    fn a_given_class_list_keeps_its_order_and_knows_no_other() {
        let files = files(&["dog/a.jpg", "cow/b.jpg"]);
        let folders = Folders::of(&files, Layout::Auto, Some(vec!["dog".into(), "cat".into()])).unwrap();
        assert_eq!(folders.label_of(&files[0]), Some(("dog".into(), Some(0))));
        assert_eq!(folders.label_of(&files[1]), Some(("cow".into(), None)));
        assert!(Folders::of(&files, Layout::Auto, Some(vec!["dog".into(), "dog".into()])).is_err());
    }

    #[test]
    fn a_folder_without_folders_is_flat() {
        let folders = Folders::of(&files(&["a.jpg"]), Layout::Auto, None).unwrap();
        assert_eq!((folders.layout, folders.class_names), (Layout::Flat, None));
    }
}
