//! Properties of files that come from a list or table.

use serde::{Deserialize, Serialize};

use super::boxes::ImageBoxes;
use crate::sample::{Reject, Value};

/// Properties of a named file that come from the list or table.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Detail {
    /// Why the file cannot become a record, if already known.
    pub defect: Option<Box<Reject>>,
    /// Label, as an index into the class names.
    pub label: Option<u32>,
    /// One value per kept field.
    #[serde(with = "super::stored_values")]
    pub values: Box<[Value]>,
    /// Boxes whose place in the converted image is not yet known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boxes: Option<Box<ImageBoxes>>,
}
