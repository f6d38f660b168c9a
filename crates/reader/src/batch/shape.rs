//! Buckets by shape: the records of a bucket are images of one width and height.
//!
//! The unit of the order is the micro-batch, not the step. A bucket is divided into micro-batches of its own, of which at
//! most one is short. The micro-batches of all buckets are permuted together, and a step has the next ones of them, whatever
//! their shapes. `docs/reference/batching.md` specifies the algorithm.

use std::collections::BTreeMap;
use std::ops::Range;

use dsconvert_dataset::error::{Error, Result};
use dsconvert_dataset::index::LengthRun;
use xxhash_rust::xxh3::Xxh3;

use super::bucket::{Bucket, Buckets, too_long};
use super::lengths::{ImageShape, Lengths};
use super::options::{BatchOptions, Last, Oversize};

/// The records of a split in the order of their buckets: the number of pixels, then the width, then the ordinal.
#[derive(Debug)]
pub(super) struct ShapeOrder {
    records: Vec<u32>,
    /// The shape of each bucket.
    shapes: Vec<ImageShape>,
}

impl ShapeOrder {
    /// Returns the record at a position of the order.
    pub(super) fn record_at(&self, position: u64) -> Option<u64> {
        self.records.get(usize::try_from(position).ok()?).map(|&record| record.into())
    }

    /// Returns the shape of a bucket.
    pub(super) fn of_bucket(&self, bucket: usize) -> Option<ImageShape> {
        self.shapes.get(bucket).copied()
    }
}

/// Builds the buckets of all shapes. `first_step`, `steps` and `tail` of a bucket count micro-batches.
pub(super) fn build<L: Lengths>(lengths: &L, options: &BatchOptions) -> Result<(Buckets, ShapeOrder)> {
    let all = lengths.records();
    let Ok(records) = u32::try_from(all) else {
        return Err(Error::usage(format!("buckets by shape are limited to {} records, not {all}", u32::MAX)));
    };
    let shape_of = |record: u32| {
        let shape = lengths.shape_of(record.into())?;
        shape.ok_or_else(|| {
            Error::usage("bucket \"shape\" needs images: the records have no width and height")
                .help("use bucket \"length\" or \"none\"")
        })
    };
    // Number of records of each shape, then the position of its next record.
    let mut counts: BTreeMap<(u64, ImageShape), u64> = BTreeMap::new();
    for record in 0..records {
        let shape = shape_of(record)?;
        *counts.entry((shape.pixels(), shape)).or_default() += 1;
    }
    // Short micro-batches get more rows.
    let fills = matches!(options.last, Last::Pad | Last::Wrap);
    let (mut buckets, mut shapes, mut digest) = (Vec::new(), Vec::new(), Xxh3::new());
    let (mut first_rank, mut kept, mut oversize, mut first_step) = (0, 0, 0, 0);
    for (&(pixels, shape), next) in &mut counts {
        let count = std::mem::replace(next, first_rank);
        digest.update(&shape.width.to_le_bytes());
        digest.update(&shape.height.to_le_bytes());
        digest.update(&count.to_le_bytes());
        if options.cap().is_some_and(|cap| pixels > cap) {
            oversize += count;
            if options.oversize == Oversize::Error {
                return Err(too_long(lengths, options, LengthRun { length: pixels, count, first_rank }));
            }
        }
        let is_dropped = options.oversize == Oversize::Drop && options.cap().is_some_and(|cap| pixels > cap);
        if !is_dropped {
            let per_batch = options.per_batch(pixels);
            let tail = count % per_batch;
            let has_short = tail > 0 && options.last != Last::Drop;
            let steps = count / per_batch + u64::from(has_short);
            buckets.push(Bucket {
                start: first_rank,
                records: count,
                shortest: pixels,
                longest: pixels,
                per_batch,
                first_step,
                steps,
                tail,
                largest_batch: options.padded(if fills { per_batch } else { per_batch.min(count) }, pixels),
                graded: None,
            });
            shapes.push(shape);
            first_step += steps;
            kept = first_rank + count;
        }
        first_rank += count;
    }
    let mut order = vec![0; kept as usize];
    for record in 0..records {
        let shape = shape_of(record)?;
        let next = counts.get_mut(&(shape.pixels(), shape));
        let Some(next) = next else { return Err(Error::corrupt("an index changed while it was read")) };
        // Dropped shapes are the largest, so they are last.
        if let Some(slot) = order.get_mut(*next as usize) {
            *slot = record;
        }
        *next += 1;
    }
    let runs = counts.len() as u64;
    let digest = format!("{:032x}", digest.digest128());
    Ok((Buckets { buckets, runs, oversize, digest }, ShapeOrder { records: order, shapes }))
}

/// Returns the positions of micro-batch `number` of a bucket, and its number of filler rows. Positions past the end wrap
/// around to the start. `is_missing`: the epoch has no such micro-batch, but its last step needs one.
pub(super) fn positions(bucket: &Bucket, number: u64, last: Last, is_missing: bool) -> (Range<u64>, u64) {
    let start = number * bucket.per_batch;
    let held = bucket.per_batch.min(bucket.records.saturating_sub(start));
    match last {
        Last::Wrap => (start..start + bucket.per_batch, 0),
        Last::Pad if is_missing => (start..start, bucket.per_batch),
        Last::Pad => (start..start + held, bucket.per_batch - held),
        _ if is_missing => (start..start, 0),
        Last::Short | Last::Drop => (start..start + held, 0),
    }
}
