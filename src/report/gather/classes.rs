//! How many records each class has.

use super::sample::evenly_spaced;
use super::{Problems, ReportOptions};
use crate::reader::{Dataset, OpenOptions, Split};
use crate::schema::LABEL;

/// Records whose label is read.
const MAX_RECORDS: u64 = 100_000;
/// Records that are read together.
const CHUNK: usize = 2048;
/// Classes that are listed.
pub(in crate::report) const SHOWN_CLASSES: usize = 50;

/// Class balance of a split.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Classes {
    /// The most frequent classes by name, with their records; ties in the order of labels.
    pub top: Vec<(String, u64)>,
    /// Number of classes of the dataset.
    pub classes: u64,
    /// Classes without a record among those that were read.
    pub empty: u64,
    /// Records of the least frequent class that has any.
    pub least: u64,
    /// Records of the class in the middle of those that have any.
    pub median: u64,
    /// Records without a label.
    pub unlabelled: u64,
    /// Records whose label was read: all, or a sample.
    pub read: u64,
}

/// Counts the labels of all records, or of evenly spaced ones. `None` when the dataset has no labels.
pub(super) fn gather(
    dataset: &Dataset,
    split: &Split,
    options: &ReportOptions<'_>,
    problems: &mut Problems,
) -> Option<Classes> {
    let names = dataset.class_names();
    dataset.schema().index_of(LABEL)?;
    // Without checksums, only the labels of parquet shards are decoded; thumbnails are read with them.
    let reopened = OpenOptions::new().access(options.access).verify_checksums(false).open(dataset.path());
    let labels = reopened.and_then(|dataset| dataset.split(split.name())?.select(&[LABEL]));
    let labels = problems.kept("labels cannot be read", labels)?;
    let mut counts = vec![0u64; names.len()];
    let mut classes = Classes { classes: names.len() as u64, ..Classes::default() };
    let wanted: Vec<u64> = evenly_spaced(split.len(), MAX_RECORDS).collect();
    let mut count = |label: Option<usize>| {
        classes.read += 1;
        match label.and_then(|label| counts.get_mut(label)) {
            Some(count) => *count += 1,
            None => classes.unlabelled += 1,
        }
    };
    for chunk in wanted.chunks(CHUNK) {
        match labels.get_many(chunk) {
            Ok(records) => records.iter().for_each(|record| count(record.label())),
            // One by one: the others are counted.
            Err(_) => {
                for &ordinal in chunk {
                    match labels.get(ordinal) {
                        Ok(record) => count(record.label()),
                        Err(error) => problems.unreadable(&error),
                    }
                }
            }
        }
    }
    let mut order: Vec<usize> = (0..counts.len()).collect();
    let of = |label: &usize| counts.get(*label).copied().unwrap_or(0);
    order.sort_by_key(|label| (std::cmp::Reverse(of(label)), *label));
    let present = order.iter().filter(|label| of(label) > 0).count();
    classes.empty = (order.len() - present) as u64;
    classes.least = present.checked_sub(1).and_then(|last| order.get(last)).map_or(0, of);
    classes.median = order.get(present / 2).map_or(0, of);
    let named =
        order.iter().take(SHOWN_CLASSES).filter_map(|label| Some((names.get(*label)?.clone(), of(label))));
    classes.top = named.collect();
    Some(classes)
}
