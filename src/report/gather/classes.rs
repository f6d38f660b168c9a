//! Records per class.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

use super::{Problems, each_record, in_splits};
use crate::error::{Error, Result};
use crate::reader::{Dataset, Description, Split};
use crate::schema::LABEL;

/// Records per label, from the manifest. Manifests before version 3 lack them; then, all labels are read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelCounts {
    /// Number of records by label.
    pub(crate) counts: Vec<u64>,
    /// Records without a label.
    pub(crate) unlabeled: u64,
    /// Records whose label is known.
    pub(crate) read: u64,
}

impl LabelCounts {
    /// Counts the records of `split` by label. Records that cannot be read are passed to `unreadable` and not counted.
    ///
    /// # Errors
    ///
    /// If the dataset cannot be opened.
    pub(crate) fn of(dataset: &Dataset, split: &Split, unreadable: &mut dyn FnMut(&Error)) -> Result<Self> {
        if let Some(info) = split.info()
            && let Some(counts) = &info.class_counts
        {
            let unlabeled = info.records.saturating_sub(counts.iter().sum());
            return Ok(Self { counts: counts.clone(), unlabeled, read: info.records });
        }
        // Without checksums, parquet shards decode only the labels; `inspect --verify` checks the bytes.
        let labels = dataset.unverified().split(split.name())?.select(&[LABEL])?;
        let mut found = Self { counts: vec![0; dataset.class_names().len()], ..Self::default() };
        each_record(&labels, |record| found.add(record.label()), unreadable);
        Ok(found)
    }

    fn add(&mut self, label: Option<usize>) {
        self.read += 1;
        match label.and_then(|label| self.counts.get_mut(label)) {
            Some(count) => *count += 1,
            None => self.unlabeled += 1,
        }
    }
}

/// Counts the labels. Returns `None` if the dataset has no labels, or if they cannot be read.
pub(super) fn gather(dataset: &Dataset, split: &Split, problems: &mut Problems) -> Option<LabelCounts> {
    dataset.schema().index_of(LABEL)?;
    let found = LabelCounts::of(dataset, split, &mut |error| problems.add_unreadable(error));
    problems.ok_or_add("labels cannot be read", found)
}

/// Label counts of each split of a dataset. Empty for datasets without labels.
#[derive(Debug, Default)]
pub struct ClassCounts {
    /// The names of the classes, in label order.
    pub(crate) names: Vec<String>,
    pub(crate) splits: BTreeMap<String, LabelCounts>,
}

impl ClassCounts {
    /// Counts the labels of `dataset`. If they have to be read, those that cannot be read are not counted; for each split,
    /// the first error is passed to `unreadable` with the name of the split.
    pub fn of(dataset: &Dataset, unreadable: &mut dyn FnMut(&str, &Error)) -> Self {
        if dataset.schema().index_of(LABEL).is_none() {
            return Self::default();
        }
        let count =
            |split: &Split, unreadable: &mut dyn FnMut(&Error)| LabelCounts::of(dataset, split, unreadable);
        Self { names: dataset.class_names().to_vec(), splits: in_splits(dataset, unreadable, count) }
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
