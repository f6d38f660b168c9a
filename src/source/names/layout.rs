//! The meaning of the folders of a source.

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
