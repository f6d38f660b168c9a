//! Records per class in each split, for the description of a dataset.

use std::io::{self, Write};
use std::path::Path;

use super::open_dataset;
use crate::cli::flags::shown;
use crate::cli::{print, summary};
use crate::error::Result;
use crate::numbers::plural;
use crate::reader::Description;
use crate::report::{ClassCounts, LabelCounts};
use crate::schema::LABEL;
use crate::storage::Access;

/// Counts the labels of the dataset at `path`. Damage is only a warning, so that everything else is still described.
pub(super) fn count(path: &Path, description: &Description, access: Access) -> Result<ClassCounts> {
    let has_labels = match description {
        Description::Dataset(described) => described.schema.index_of(LABEL).is_some(),
        Description::Shard(_) => false,
    };
    // Opening a dataset in object storage takes requests.
    if !has_labels {
        return Ok(ClassCounts::default());
    }
    Ok(ClassCounts::of(&open_dataset(path, access)?, &mut |split, error| {
        print::warning(format!("labels of {split} cannot be read: {}", shown(error)));
    }))
}

/// Prints the classes of a split.
pub(super) fn print(
    classes: &ClassCounts,
    split: &str,
    records: u64,
    out: &mut impl Write,
) -> io::Result<()> {
    let Some(found) = classes.split(split).filter(|found| found.read > 0) else { return Ok(()) };
    let LabelCounts { counts, unlabeled, read } = found;
    if !classes.names().is_empty() {
        let text = summary::class_counts(classes.names(), |label| counts.get(label).copied().unwrap_or(0));
        writeln!(out, "  {text}")?;
    }
    if *unlabeled > 0 {
        writeln!(out, "  {} without a label", plural(*unlabeled, "record"))?;
    }
    if *read < records {
        writeln!(out, "  (counted in the {} that can be read)", plural(*read, "record"))?;
    }
    Ok(())
}
