//! The meaning of the folders of a source.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The meaning of the folders of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FolderLayout {
    /// Inferred from the names of sources and folders: see [`Splits`](super::splits::Splits). Folders that are not
    /// splits are classes.
    #[default]
    Auto,
    /// First-level folder = class; everything is in one split.
    Labels,
    /// First-level folder = split, unless labels of sources are splits. The folder below is the class. For text: as
    /// [`FolderLayout::Auto`], but first-level folder = split if no name denotes one.
    Splits,
    /// Names have no meaning.
    Flat,
}

impl FromStr for FolderLayout {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        Ok(match s {
            "auto" => FolderLayout::Auto,
            "labels" => FolderLayout::Labels,
            "splits" => FolderLayout::Splits,
            "flat" => FolderLayout::Flat,
            _ => {
                return Err(
                    Error::usage(format!("unknown layout {s:?}")).help("use auto, labels, splits or flat")
                );
            }
        })
    }
}

impl crate::options::Choice for FolderLayout {
    const WORDS: &'static [&'static str] = &["auto", "labels", "splits", "flat"];
}

impl fmt::Display for FolderLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FolderLayout::Auto => "auto",
            FolderLayout::Labels => "labels",
            FolderLayout::Splits => "splits",
            FolderLayout::Flat => "flat",
        })
    }
}
