//! The meaning of the folders of a source, and what determines the split of a file.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::options::word_choice;

word_choice! {
    /// The meaning of the folders of a source.
    #[derive(Default, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    FolderLayout, text => Error::usage(format!("unknown layout {text:?}")).help("use auto, labels, splits or flat");
    /// Inferred from the names of sources and folders: see [`Splits`](super::splits::Splits). Folders that are not
    /// splits are classes.
    #[default]
    Auto = "auto",
    /// First-level folder = class; everything is in one split.
    Labels = "labels",
    /// First-level folder = split, unless labels of sources are splits. The folder below is the class. For text: as
    /// [`FolderLayout::Auto`], but first-level folder = split if no name denotes one.
    Splits = "splits",
    /// Names have no meaning.
    Flat = "flat",
}

/// The criterion that determines the split of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SplitBy {
    /// Nothing: all files are in one split.
    Nothing,
    /// The labels of the sources.
    SourceLabel,
    /// The first-level folders.
    Folder,
    /// Names of shards: `data/SPLIT-00000-of-00001.parquet`.
    ShardName,
    /// Folders below the first level.
    NestedFolder,
    /// Words in file names.
    FileName,
    /// The card of a repository of the Hugging Face Hub.
    Configuration,
}

impl fmt::Display for SplitBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "by nothing",
            Self::SourceLabel => "by the labels of the sources",
            Self::Folder => "by first-level folders",
            Self::ShardName => "by the names of shards",
            Self::NestedFolder => "by the names of folders",
            Self::FileName => "by the names of files",
            Self::Configuration => "by the configuration in README.md",
        })
    }
}
