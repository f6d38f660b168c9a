//! Records per aspect-ratio bucket in each split, for the description of a dataset.

use std::io::{self, Write};
use std::path::Path;

use super::open_dataset;
use crate::cli::flags::shown;
use crate::cli::print;
use crate::error::Result;
use crate::numbers::{percent, plural};
use crate::reader::Description;
use crate::report::{BucketShare, BucketShares};
use crate::storage::Access;

/// Counts the buckets of the dataset at `path`. Damage is only a warning, so that everything else is still described.
pub(super) fn count(path: &Path, description: &Description, access: Access) -> Result<BucketShares> {
    // Opening a dataset in object storage takes requests.
    match description {
        Description::Dataset(described) if BucketShares::exist_in(&described.schema) => {
            Ok(BucketShares::of(&open_dataset(path, access)?, &mut |split, error| {
                print::warning(format!("sizes of {split} cannot be read: {}", shown(error)));
            }))
        }
        _ => Ok(BucketShares::default()),
    }
}

/// Prints the buckets of a split.
pub(super) fn print(buckets: &BucketShares, split: &str, out: &mut impl Write) -> io::Result<()> {
    let all = BucketShare::sum(buckets.split(split).map(|(_, share)| share));
    if all.records == 0 {
        return Ok(());
    }
    let count = plural(buckets.split(split).count() as u64, "bucket");
    writeln!(out, "  {count}; {} of the pixels cropped", percent(all.cropped()))?;
    for ((width, height), share) in buckets.split(split) {
        let (size, records) = (format!("{width}x{height}"), plural(share.records, "record"));
        let of_all = percent(share.records as f64 / all.records as f64);
        writeln!(out, "    {size:<11} {records} ({of_all}), {} cropped", percent(share.cropped()))?;
    }
    Ok(())
}
