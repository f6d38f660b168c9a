//! Decisions of a plan that the user may not have intended.
//!
//! Warnings are for people and programs that run a conversion. They are not stored in the dataset.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use super::split_by::SplitBy;
use crate::numbers::plural;
use crate::printable::{printable, printable_path};
use crate::schema::Kind;

/// Maximum number of names that a message lists; the rest is counted.
const SHOWN_NAMES: usize = 4;

/// A decision or an omission that may be unintended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "code", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Warning {
    /// Folders or files are treated as splits although their names are unusual for splits.
    UnusualSplitNames {
        /// Pairs of name and split.
        names: Vec<(String, String)>,
    },
    /// Folders next to split folders become further splits.
    StrayFolders {
        /// Names of the folders.
        folders: Vec<String>,
    },
    /// Some files name no split, while others do.
    UnassignedFiles {
        /// Criterion that determines the splits of the other files.
        by: SplitBy,
        /// Number of files.
        files: u64,
        /// Origin of the first of these files.
        example: String,
        /// The split they are assigned to.
        split: String,
    },
    /// A folder named like a split is a class, like the folders next to it.
    SplitNamedClass {
        /// Name of the folder.
        folder: String,
        /// The other classes.
        others: Vec<String>,
    },
    /// Only some of the sources are named like splits, so none of them is treated as a split.
    MixedSourceLabels {
        /// Labels that name splits.
        splits: Vec<String>,
        /// Labels that do not.
        others: Vec<String>,
    },
    /// All items are assigned to one split, because the only source is named like it.
    SplitOfSource {
        /// Label of the source.
        label: String,
        /// The split.
        split: String,
    },
    /// A metadata file is not used, because it is in a folder with tar or Parquet files, in an archive, or next to one.
    MetadataSkipped {
        /// Path of the metadata file.
        path: PathBuf,
    },
    /// Damaged Parquet files beside images or archives, which may contain images, are not read.
    DamagedTables {
        /// Number of the files.
        files: u64,
        /// Path of the first one.
        path: PathBuf,
    },
    /// Tar files look like archives of image folders, but are read as WebDataset because one of them is compressed.
    TarFoldersUnused {
        /// Path of the compressed tar file.
        path: PathBuf,
        /// One of the folders.
        example: String,
    },
    /// Samples of tar files have a class (`.cls`), which becomes a field but not a label, because the classes are not
    /// given.
    TarClassesUnused {
        /// Path of the first tar file.
        path: PathBuf,
    },
    /// Archives in a folder with images or text are not read, because these may have been unpacked from them.
    ArchivesSkipped {
        /// Kind of the files next to them.
        kind: Kind,
        /// One of the archives.
        example: String,
    },
    /// Objects are skipped because their keys are not valid paths: they have empty components, `..` or control
    /// characters.
    KeysSkipped {
        /// Number of objects.
        objects: u64,
        /// URL of the first of these objects.
        example: String,
    },
    /// Columns of Parquet files with images are left out, because no field can hold their type, or because a field of
    /// every dataset has their name.
    ColumnsLeftOut {
        /// Names of the columns.
        columns: Vec<String>,
    },
    /// Metadata files next to the images are used, and some images are in none of their rows.
    ImagesWithoutRow {
        /// Number of images.
        images: u64,
        /// Origin of the first of these images.
        example: String,
    },
    /// Metadata files next to the images are used, so the folders are not classes.
    FolderClassesUnused {
        /// Names of the folders.
        folders: Vec<String>,
        /// Whether the folders above them are splits.
        in_splits: bool,
    },
    /// None of the inspected rows has a field that should be kept.
    FieldNotSeen {
        /// Name of the field.
        field: String,
        /// What was inspected: the first rows of files, or the files.
        examined: String,
        /// Fields that the rows have.
        there: Vec<String>,
    },
}

/// An option that changes the decision of a warning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remedy {
    /// Name of the option, with underscores.
    pub option: &'static str,
    /// Value to set.
    pub value: &'static str,
    /// Effect of that value.
    pub effect: &'static str,
}

impl Warning {
    /// Returns the options that change the decision.
    pub fn remedies(&self) -> &'static [Remedy] {
        const FLAT: Remedy = Remedy { option: "layout", value: "flat", effect: "puts everything into train" };
        const SPLITS: Remedy =
            Remedy { option: "layout", value: "splits", effect: "makes the folders splits" };
        const LABELS: Remedy =
            Remedy { option: "layout", value: "labels", effect: "makes the folders classes" };
        const SPLITS_AND_LABELS: Remedy = Remedy {
            option: "layout",
            value: "splits",
            effect: "makes the first-level folders splits and the folders in them classes",
        };
        const SKIPPED: [Remedy; 2] = [
            Remedy { option: "metadata", value: "FILE", effect: "reads images and fields from its rows" },
            Remedy { option: "metadata", value: "none", effect: "leaves it out without a warning" },
        ];
        const IGNORED: [Remedy; 1] = [Remedy {
            option: "layout",
            value: "flat",
            effect: "puts everything into train without a warning",
        }];
        const CLASSES: Remedy = Remedy {
            option: "classes",
            value: "FILE",
            effect: "makes it the label: a name or an ordinal in a list with one class per line",
        };
        const UNUSED: Remedy = Remedy {
            option: "metadata",
            value: "none",
            effect: "converts all images, without the fields of the metadata",
        };
        match self {
            Self::UnusualSplitNames { .. }
            | Self::StrayFolders { .. }
            | Self::UnassignedFiles { .. }
            | Self::SplitOfSource { .. } => &[FLAT],
            Self::SplitNamedClass { .. } => &[SPLITS],
            Self::MetadataSkipped { .. } => &SKIPPED,
            Self::ImagesWithoutRow { .. } => &[UNUSED],
            Self::TarFoldersUnused { .. } => &IGNORED,
            Self::TarClassesUnused { .. } => &[CLASSES],
            Self::FolderClassesUnused { in_splits: false, .. } => &[LABELS],
            Self::FolderClassesUnused { in_splits: true, .. } => &[SPLITS_AND_LABELS],
            Self::MixedSourceLabels { .. }
            | Self::FieldNotSeen { .. }
            | Self::ColumnsLeftOut { .. }
            | Self::ArchivesSkipped { .. }
            | Self::DamagedTables { .. }
            | Self::KeysSkipped { .. } => &[],
        }
    }
}

impl Warning {
    /// Returns the warning about the objects at `urls`, if there are any.
    pub(crate) fn of_keys(urls: &[String]) -> Option<Self> {
        let example = urls.first()?.clone();
        Some(Self::KeysSkipped { objects: urls.len() as u64, example })
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnusualSplitNames { names } => {
                let pairs =
                    names.iter().map(|(name, split)| format!("{name:?} is read as the split {split}"));
                f.write_str(&listed(pairs))
            }
            Self::StrayFolders { folders } => {
                let names = listed(folders.iter().map(|name| format!("{name:?}")));
                write!(f, "folders next to split folders become splits of their own: {names}")
            }
            Self::UnassignedFiles { by, files, example, split } => write!(
                f,
                "splits are determined {by}, but {files} of the files name none, such as {:?}: they are in {split}",
                printable(example)
            ),
            Self::SplitNamedClass { folder, others } => {
                let others = listed(others.iter().map(|name| format!("{name:?}")));
                write!(f, "the folder {folder:?} is a class, not a split, because it is next to {others}")
            }
            Self::MixedSourceLabels { splits, others } => {
                let splits = listed(splits.iter().map(|name| format!("{name:?}")));
                let others = listed(others.iter().map(|name| format!("{name:?}")));
                write!(
                    f,
                    "sources become splits only if all are named like splits: {splits} would be, {others} is not"
                )
            }
            Self::SplitOfSource { label, split } => {
                write!(f, "everything is in the split {split}, because the source is called {label:?}")
            }
            Self::MetadataSkipped { path } => {
                write!(
                    f,
                    "{}: metadata next to tar or Parquet files or in archives is not used",
                    printable_path(path)
                )
            }
            Self::DamagedTables { files, path } => {
                let path = printable_path(path);
                let (others, verb) = match files - 1 {
                    0 => (String::new(), "is"),
                    more => (format!(" and {}", plural(more, "more Parquet file")), "are"),
                };
                write!(f, "{path}{others} {verb} damaged and skipped, and not counted as rejected")
            }
            Self::TarFoldersUnused { path, example } => write!(
                f,
                "{} is compressed and read as WebDataset: its folders, such as {:?}, are neither classes nor splits; to \
                 use them, decompress it with gzip -d or zstd -d, or make a zip archive",
                printable_path(path),
                printable(example)
            ),
            Self::TarClassesUnused { path } => write!(
                f,
                "{}: the class of each sample (.cls) becomes the field \"cls\", and records have no label",
                printable_path(path)
            ),
            Self::ArchivesSkipped { kind, example } => write!(
                f,
                "{} are not read, such as {}; name one as a source to convert it",
                match kind {
                    Kind::Images => "archives next to images",
                    Kind::Text => "zip archives next to text",
                },
                printable(example)
            ),
            Self::KeysSkipped { objects, example } => {
                let what = match objects {
                    1 => "object is left out because its key is not a valid path",
                    _ => "objects are left out because their keys are not valid paths",
                };
                write!(f, "{objects} {what}, such as {}", printable(example))
            }
            Self::ColumnsLeftOut { columns } => {
                let names = listed(columns.iter().map(|name| format!("{name:?}")));
                write!(
                    f,
                    "these columns are left out, because of their type or because dsconvert has a field of that name: {names}"
                )
            }
            Self::ImagesWithoutRow { images, example } => write!(
                f,
                "{images} image{} left out, such as {:?}",
                if *images == 1 {
                    " has no row in the metadata and is"
                } else {
                    "s have no row in the metadata and are"
                },
                printable(example)
            ),
            Self::FolderClassesUnused { folders, .. } => {
                let names = listed(folders.iter().map(|name| format!("{name:?}")));
                write!(f, "the folders {names} are not classes, because metadata describes the images")
            }
            Self::FieldNotSeen { field, examined, there } => {
                let there = listed(there.iter().map(|name| format!("{name:?}")));
                write!(f, "none of {examined} has the field {field:?}; they have {there}")
            }
        }
    }
}

/// Joins the first [`SHOWN_NAMES`] names, and appends how many more there are.
pub(crate) fn listed(names: impl ExactSizeIterator<Item = String>) -> String {
    let count = names.len();
    let mut text = names.take(SHOWN_NAMES).collect::<Vec<_>>().join(", ");
    if count > SHOWN_NAMES {
        text.push_str(&format!(" and {} more", count - SHOWN_NAMES));
    }
    text
}
