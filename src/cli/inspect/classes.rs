//! Records per class in each split, for the description of a dataset.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use serde_json::{Map, Value as Json, json};

use super::open_dataset;
use crate::cli::flags::shown;
use crate::cli::{print, summary};
use crate::error::{Error, Result};
use crate::numbers::plural;
use crate::reader::Description;
use crate::report::LabelCounts;
use crate::schema::LABEL;
use crate::storage::Access;

/// Label counts of each split of a dataset. Empty for datasets without labels.
#[derive(Default)]
pub(super) struct ClassCounts {
    names: Vec<String>,
    splits: BTreeMap<String, LabelCounts>,
}

impl ClassCounts {
    /// Reads the labels of the dataset at `path`. Damage is only a warning, so that everything else is still described.
    pub(super) fn of(path: &Path, description: &Description, access: Access) -> Result<Self> {
        let Description::Dataset(described) = description else { return Ok(Self::default()) };
        if described.schema.index_of(LABEL).is_none() {
            return Ok(Self::default());
        }
        let dataset = open_dataset(path, access)?;
        let mut splits = BTreeMap::new();
        for split in dataset.splits() {
            let mut first: Option<String> = None;
            let mut note = |error: &Error| {
                first.get_or_insert_with(|| shown(error));
            };
            let counts = LabelCounts::of(&dataset, &split, &mut note);
            match counts {
                Ok(counts) => {
                    splits.insert(split.name().to_owned(), counts);
                }
                Err(error) => note(&error),
            }
            if let Some(error) = first {
                print::warning(format!("labels of {} cannot be read: {error}", split.name()));
            }
        }
        Ok(Self { names: dataset.class_names().to_vec(), splits })
    }

    /// Prints the classes of a split.
    pub(super) fn print(&self, split: &str, records: u64, out: &mut impl Write) -> io::Result<()> {
        let Some(found) = self.splits.get(split).filter(|found| found.read > 0) else { return Ok(()) };
        let LabelCounts { counts, unlabeled, read } = found;
        if !self.names.is_empty() {
            let text = summary::class_counts(&self.names, |label| counts.get(label).copied().unwrap_or(0));
            writeln!(out, "  {text}")?;
        }
        if *unlabeled > 0 {
            writeln!(out, "  {} without a label", plural(*unlabeled, "record"))?;
        }
        if *read < records {
            writeln!(out, "  (counted in {})", plural(*read, "evenly spaced record"))?;
        }
        Ok(())
    }

    /// Returns the description as JSON, with `classes`, `unlabeled` and `labels_read` in each split.
    pub(super) fn add_to(&self, description: &Description) -> Result<Json> {
        let json = serde_json::to_value(description);
        let mut json = json.map_err(|e| Error::not_serialized("the description", e))?;
        for (name, found) in &self.splits {
            if let Some(split) = json.pointer_mut(&format!("/splits/{name}")).and_then(Json::as_object_mut) {
                let classes: Map<String, Json> =
                    self.names.iter().cloned().zip(found.counts.iter().map(|count| json!(count))).collect();
                split.insert("classes".to_owned(), Json::Object(classes));
                split.insert("unlabeled".to_owned(), json!(found.unlabeled));
                split.insert("labels_read".to_owned(), json!(found.read));
            }
        }
        Ok(json)
    }
}
