//! Records per class in each split, as `dsconvert inspect` prints them and `describe()` in Python returns them.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

use super::gather::LabelCounts;
use crate::error::{Error, Result};
use crate::reader::{Dataset, Description};
use crate::schema::LABEL;

/// Label counts of each split of a dataset. Empty for datasets without labels.
#[derive(Debug, Default)]
pub struct ClassCounts {
    names: Vec<String>,
    splits: BTreeMap<String, LabelCounts>,
}

impl ClassCounts {
    /// Counts the labels of `dataset`. If they have to be read, those that cannot be read are not counted; for each split,
    /// the first error is passed to `unreadable` with the name of the split.
    pub fn of(dataset: &Dataset, unreadable: &mut dyn FnMut(&str, &Error)) -> Self {
        if dataset.schema().index_of(LABEL).is_none() {
            return Self::default();
        }
        let mut splits = BTreeMap::new();
        for split in dataset.splits() {
            let mut is_first = true;
            let mut note = |error: &Error| {
                if std::mem::take(&mut is_first) {
                    unreadable(split.name(), error);
                }
            };
            match LabelCounts::of(dataset, &split, &mut note) {
                Ok(counts) => {
                    splits.insert(split.name().to_owned(), counts);
                }
                Err(error) => note(&error),
            }
        }
        Self { names: dataset.class_names().to_vec(), splits }
    }

    /// Returns the names of the classes, in label order.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the counts of a split.
    pub(crate) fn split(&self, name: &str) -> Option<&LabelCounts> {
        self.splits.get(name)
    }

    /// Returns `description` as JSON, with `classes`, `unlabeled` and `labels_read` in each split that has labels.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Internal`](crate::error::ErrorKind) if the description cannot be serialized.
    pub fn describe(&self, description: &Description) -> Result<Json> {
        let json = serde_json::to_value(description);
        let mut json = json.map_err(|e| Error::not_serialized("the description", e))?;
        for (name, found) in &self.splits {
            let split = json.get_mut("splits").and_then(|splits| splits.get_mut(name));
            if let Some(split) = split.and_then(Json::as_object_mut) {
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
