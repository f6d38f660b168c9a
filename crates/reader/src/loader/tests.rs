//! Tests of loaders on small datasets.

#[cfg(feature = "decode")]
mod boxes;
mod completions;
mod engine;
mod failures;
mod finisher;
#[cfg(feature = "decode")]
mod image;
mod joined;
#[cfg(feature = "decode")]
mod masks;
mod pinned;
mod source;
mod stored;
mod text;
mod trained;
mod vision;

use std::path::Path;

use dsconvert_dataset::format::Format;
use dsconvert_dataset::schema::Kind;

use super::*;
use crate::batch::{BatchOptions, BatchSize, Batching, SavedPlan};
use crate::testing;
use crate::{Dataset, Split};

/// Returns the split `train` of a new dataset of 50 text records.
fn text_split(dir: &Path, format: Format) -> Split {
    testing::write(dir, format, Kind::Text, &[&[20, 0, 30]]).unwrap();
    Dataset::open(dir).unwrap().split("train").unwrap()
}

fn batches_of(records: u64) -> LoaderOptions {
    LoaderOptions { threads: 2, ..LoaderOptions::new(BatchOptions::new(BatchSize::BatchSize(records))) }
}

fn all(loader: &mut Loader) -> Vec<Batch> {
    loader.map(Result::unwrap).collect()
}
