//! Options of batches, and their validation.

use dsconvert_dataset::error::{Error, Result};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use crate::range::check_in_range;

/// Version of the algorithm that `docs/reference/batching.md` specifies. It is part of every state; a state that was
/// saved under another version is refused.
pub const ALGORITHM: u32 = 2;

/// Default of [`Boundaries::Auto`]: the maximum fraction of padding of a bucket according to its bounds. Actual batches
/// have less.
pub const DEFAULT_MAX_WASTE: f64 = 0.04;

/// Maximum of `max_waste`.
pub const MAX_MAX_WASTE: f64 = 0.9;

/// Default ratio of geometric boundaries.
pub const DEFAULT_RATIO: f64 = 1.1;

/// Default upper bound of the first geometric bucket.
pub const DEFAULT_FIRST_BOUND: u64 = 16;

/// Default number of global steps whose records are sorted together with [`BucketBy::Windows`].
pub const DEFAULT_WINDOW_STEPS: u64 = 50;

/// Default number of neighboring records that a block shuffle keeps together.
pub const DEFAULT_BLOCK_RECORDS: u64 = 256;

/// Default number of blocks whose records are mixed.
pub const DEFAULT_GROUP_BLOCKS: u64 = 64;

/// Maximum number of records of one micro-batch.
pub const MAX_BATCH_RECORDS: u64 = 1 << 24;

/// Maximum number of tokens of one micro-batch.
pub const MAX_BATCH_TOKENS: u64 = 1 << 40;

/// Maximum number of micro-batches of one global step.
pub const MAX_MICRO_BATCHES: u64 = 1 << 20;

/// Maximum number of records of one sorted window, which is sorted in memory.
pub const MAX_WINDOW_RECORDS: u64 = 1 << 24;

/// Maximum number of given or geometric boundaries.
pub const MAX_BOUNDARIES: usize = 1 << 16;

/// Size of a micro-batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BatchSize {
    /// A fixed number of records.
    BatchSize(u64),
    /// As many records as fit when each is padded to the longest: records × width never exceeds this.
    MaxTokens(u64),
    /// As many records as fit without padding, for kernels that take packed sequences: the sum of lengths never exceeds
    /// this.
    MaxTokensUnpadded(u64),
}

/// Which records may share a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BucketBy {
    /// Any records: there is one bucket.
    None,
    /// Records of similar length.
    Length(Boundaries),
    /// Images of one width and height. The micro-batches of a step may have different shapes.
    Shape,
    /// Records that are adjacent after this many global steps of the shuffled order are sorted by length.
    Windows {
        /// Global steps per window.
        steps: u64,
    },
}

/// Where buckets end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Boundaries {
    /// Chosen from the histogram: as wide as possible, with at most this fraction of a bucket being padding or unused
    /// budget.
    Auto {
        /// From 0.001 to 0.9.
        max_waste: f64,
    },
    /// `first`, then each `ratio` times the previous one, rounded up to an integer.
    Geometric {
        /// The first boundary, at least 1.
        first: u64,
        /// From 1.001 to 1000.
        ratio: f64,
    },
    /// Strictly ascending lengths, each of which starts a bucket (and ends the one before).
    Given(Vec<u64>),
}

impl BucketBy {
    /// Sorted windows of [`DEFAULT_WINDOW_STEPS`].
    pub const WINDOWS: Self = BucketBy::Windows { steps: DEFAULT_WINDOW_STEPS };
}

impl Boundaries {
    /// Chosen from the histogram with [`DEFAULT_MAX_WASTE`].
    pub const AUTO: Self = Boundaries::Auto { max_waste: DEFAULT_MAX_WASTE };
    /// Geometric, from [`DEFAULT_FIRST_BOUND`] with [`DEFAULT_RATIO`].
    pub const GEOMETRIC: Self = Boundaries::Geometric { first: DEFAULT_FIRST_BOUND, ratio: DEFAULT_RATIO };
}

/// The order of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Shuffle {
    /// The stored order; with buckets, from short to long.
    None,
    /// A full shuffle: any order is possible, a different one in each epoch.
    Full,
    /// Keeps neighboring records near each other, for disks and object stores: whole blocks are shuffled, then the
    /// records of each group of blocks.
    Block {
        /// Records per block.
        records: u64,
        /// Blocks per group.
        group: u64,
    },
}

impl Shuffle {
    /// Groups of [`DEFAULT_GROUP_BLOCKS`] blocks of [`DEFAULT_BLOCK_RECORDS`].
    pub const BLOCK: Self = Shuffle::Block { records: DEFAULT_BLOCK_RECORDS, group: DEFAULT_GROUP_BLOCKS };

    /// Checks the numbers of a block shuffle.
    pub(super) fn check(self) -> Result<()> {
        if let Shuffle::Block { records, group } = self {
            check_in_range("block_records", records, 1..=MAX_BATCH_RECORDS)?;
            check_in_range("block_group", group, 1..=MAX_BATCH_RECORDS)?;
        }
        Ok(())
    }
}

/// What happens to records that exceed the budget on their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Oversize {
    /// The plan is refused.
    Error,
    /// They are left out, and counted.
    Drop,
    /// Each is a micro-batch of its own, which exceeds the budget.
    Alone,
    /// They are truncated to the budget.
    Truncate,
}

/// What happens to the records at the end of an epoch that do not fill a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Last {
    /// They form a smaller step, so every record occurs exactly once. A micro-batch of this step may be empty.
    Short,
    /// They are left out of this epoch, and counted; other epochs leave out other records.
    Drop,
    /// The step is filled with rows that hold no record.
    Pad,
    /// The step is filled with records that already occurred in this epoch, and these are counted.
    Wrap,
}

/// The most that the records of a micro-batch, or the documents of a packed row, have together of a column of the record
/// index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnBudget {
    /// Name of the column, such as `patches`.
    pub column: String,
    /// The maximum.
    pub max: u64,
}

/// How records are grouped into batches. The order of an epoch depends on all fields.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchOptions {
    /// Size of a micro-batch.
    pub size: BatchSize,
    /// A second budget, which holds for every micro-batch besides that of `size`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<ColumnBudget>,
    /// Widths are rounded up to a multiple of this.
    pub pad_to_multiple_of: u64,
    /// Which records may share a batch.
    pub bucket: BucketBy,
    /// The order of records.
    pub shuffle: Shuffle,
    /// Whether the worst cases come first, so that a run that needs too much memory fails at once: the largest
    /// micro-batch in the first step, the longest record in the second (or also in the first).
    pub longest_first: bool,
    /// What happens to records that exceed the budget on their own.
    pub oversize: Oversize,
    /// What happens to the records at the end of an epoch that do not fill a step.
    pub last: Last,
}

impl BatchOptions {
    /// Creates the default options for a size: a full shuffle; buckets by length for token budgets, none for a fixed
    /// number of records.
    pub fn new(size: BatchSize) -> Self {
        let bucket = match size {
            BatchSize::BatchSize(_) => BucketBy::None,
            _ => BucketBy::Length(Boundaries::AUTO),
        };
        Self {
            size,
            budget: None,
            pad_to_multiple_of: 1,
            bucket,
            shuffle: Shuffle::Full,
            longest_first: false,
            oversize: Oversize::Error,
            last: Last::Short,
        }
    }

    /// Checks all numbers, and that the options are compatible.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`](dsconvert_dataset::error::ErrorKind) naming the option.
    pub fn check(&self) -> Result<()> {
        let (name, size, most) = match self.size {
            BatchSize::BatchSize(n) => ("batch_size", n, MAX_BATCH_RECORDS),
            BatchSize::MaxTokens(n) => ("max_tokens", n, MAX_BATCH_TOKENS),
            BatchSize::MaxTokensUnpadded(n) => ("max_tokens_unpadded", n, MAX_BATCH_TOKENS),
        };
        check_in_range(name, size, 1..=most)?;
        check_in_range("pad_to_multiple_of", self.pad_to_multiple_of, 1..=MAX_BATCH_TOKENS)?;
        if self.cap() == Some(0) {
            let what = format!(
                "`max_tokens {size}` is less than `pad_to_multiple_of {}`, so no record fits",
                self.pad_to_multiple_of
            );
            return Err(Error::usage(what));
        }
        self.shuffle.check()?;
        self.check_bucket()?;
        self.check_column_budget()
    }

    fn check_column_budget(&self) -> Result<()> {
        let Some(budget) = &self.budget else { return Ok(()) };
        budget.check()?;
        let refused = |what: &str, help: &str| Err(budget.does_not_apply(what).help(help.to_owned()));
        match (&self.size, &self.bucket) {
            (BatchSize::BatchSize(_), _) => refused(
                "a batch with a fixed number of records has no budget",
                "use `max_tokens` or `max_tokens_unpadded`, or pack documents with `seq_len`",
            ),
            (_, BucketBy::Shape) => {
                refused("buckets by shape count the pixels of images", "use buckets by length")
            }
            (_, BucketBy::Length(Boundaries::Geometric { .. } | Boundaries::Given(_))) => refused(
                "buckets are ranges of shares of both budgets, but the boundaries are lengths",
                "use bucket \"length\"",
            ),
            _ if self.oversize == Oversize::Truncate => refused(
                "records are whole, and `oversize \"truncate\"` cuts them",
                "use another oversize policy",
            ),
            _ => Ok(()),
        }
    }

    fn check_bucket(&self) -> Result<()> {
        match &self.bucket {
            BucketBy::Length(_) if matches!(self.shuffle, Shuffle::Block { .. }) => {
                return Err(Error::usage(
                    "a block shuffle keeps neighboring records together, but buckets by length separate them",
                )
                .help("use sorted windows with a block shuffle, or a full shuffle with buckets by length"));
            }
            BucketBy::Shape if matches!(self.shuffle, Shuffle::Block { .. }) => {
                return Err(Error::usage(
                    "a block shuffle keeps neighboring records together, but buckets by shape separate them",
                )
                .help("use a full shuffle with buckets by shape"));
            }
            BucketBy::Shape if self.pad_to_multiple_of != 1 => {
                return Err(Error::usage(format!(
                    "pad_to_multiple_of {} does not apply with buckets by shape: images of one shape need no padding",
                    self.pad_to_multiple_of
                )));
            }
            BucketBy::Length(Boundaries::Auto { max_waste }) => {
                check_in_range("max_waste", *max_waste, 0.001..=MAX_MAX_WASTE)?;
            }
            BucketBy::Length(Boundaries::Geometric { first, ratio }) => {
                check_in_range("first_boundary", *first, 1..=MAX_BATCH_TOKENS)?;
                check_in_range("boundary_ratio", *ratio, 1.001..=1000.0)?;
            }
            BucketBy::Length(Boundaries::Given(boundaries)) => {
                if !boundaries.is_sorted_by(|a, b| a < b) {
                    return Err(Error::usage("bucket boundaries must be strictly ascending"));
                }
                if boundaries.len() > MAX_BOUNDARIES {
                    let what = format!(
                        "{} bucket boundaries exceed the limit of {MAX_BOUNDARIES}",
                        boundaries.len()
                    );
                    return Err(Error::usage(what));
                }
            }
            BucketBy::Windows { steps } => check_in_range("window_steps", *steps, 1..=MAX_WINDOW_RECORDS)?,
            BucketBy::None | BucketBy::Shape => {}
        }
        match self.oversize {
            Oversize::Alone if !self.has_sorted_buckets() => Err(Error::usage(
                "`oversize \"alone\"` needs buckets by length: otherwise one record over the budget reduces every batch \
                 to one record",
            )
            .help("use buckets by length or another oversize policy")),
            Oversize::Drop if !self.can_drop() => {
                Err(Error::usage("`oversize \"drop\"` cannot leave records out of the stored order")
                    .help("use a full shuffle, buckets by length or another oversize policy"))
            }
            _ => Ok(()),
        }
    }

    /// Returns whether records of similar size share a bucket, so that one of them does not reduce all batches.
    fn has_sorted_buckets(&self) -> bool {
        matches!(self.bucket, BucketBy::Length(_) | BucketBy::Shape)
    }

    fn can_drop(&self) -> bool {
        self.has_sorted_buckets() || self.shuffle == Shuffle::Full
    }

    /// Returns the names of the policies for records over the budget that are possible, as in messages.
    pub(super) fn applicable_policies(&self, can_be_cut: bool) -> Vec<&'static str> {
        let policies = [
            ("\"truncate\"", can_be_cut),
            ("\"alone\"", self.has_sorted_buckets()),
            ("\"drop\"", self.can_drop()),
        ];
        policies.into_iter().filter_map(|(name, applies)| applies.then_some(name)).collect()
    }

    /// Returns the longest length that fits the budget on its own, or `None` without a budget.
    pub(super) fn cap(&self) -> Option<u64> {
        match self.size {
            BatchSize::BatchSize(_) => None,
            BatchSize::MaxTokens(max) => Some(max / self.pad_to_multiple_of * self.pad_to_multiple_of),
            BatchSize::MaxTokensUnpadded(max) => Some(max),
        }
    }

    /// Returns the width of a batch whose longest record has `length`: at least one multiple, so that even empty
    /// records have a row.
    pub(crate) fn width(&self, length: u64) -> u64 {
        let wide = length.max(1);
        wide.checked_next_multiple_of(self.pad_to_multiple_of).unwrap_or(wide)
    }

    /// Returns the length of a record of `length` after truncation.
    pub(super) fn used(&self, length: u64) -> u64 {
        match (self.oversize, self.cap()) {
            (Oversize::Truncate, Some(cap)) => length.min(cap),
            _ => length,
        }
    }

    /// Returns how much of a record of `length` is delivered: nothing if it is dropped.
    pub(crate) fn delivered(&self, length: u64) -> u64 {
        match self.cap() {
            Some(cap) if length > cap && self.oversize == Oversize::Drop => 0,
            _ => self.used(length),
        }
    }

    /// Returns the number of records of a micro-batch whose longest record has `length`: at least 1.
    pub(super) fn per_batch(&self, length: u64) -> u64 {
        let records = match self.size {
            BatchSize::BatchSize(records) => records,
            BatchSize::MaxTokens(max) => max / self.width(length),
            BatchSize::MaxTokensUnpadded(max) => max / length.max(1),
        };
        records.clamp(1, MAX_BATCH_RECORDS)
    }

    /// Returns the padded tokens of `records` rows whose longest record has `length`.
    pub(crate) fn padded(&self, records: u64, length: u64) -> u64 {
        records.saturating_mul(self.width(length))
    }
}

/// Returns the XXH3-128 of `value` as JSON, in hexadecimal. An error names it as `what`.
pub(crate) fn json_digest(what: &str, value: &impl Serialize) -> Result<String> {
    let json = serde_json::to_vec(value).map_err(|e| Error::not_serialized(what, e))?;
    Ok(format!("{:032x}", xxh3_128(&json)))
}
