//! Criteria that determine the splits of files.

use std::fmt;

use serde::{Deserialize, Serialize};

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
        })
    }
}
