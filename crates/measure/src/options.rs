//! Options of a benchmark.

use super::batch::BenchBatchSize;
use super::order::ReadOrder;
use crate::error::{Error, Result};
use crate::reader::batch::{MAX_BATCH_RECORDS, MAX_BATCH_TOKENS};

/// Maximum number of threads.
pub const MAX_THREADS: usize = 1024;
/// Maximum number of processes.
pub const MAX_JOBS: usize = 256;
/// Maximum number of rounds of a measurement.
pub const MAX_REPEAT: usize = 1000;
/// Maximum length of a round, in seconds.
const MAX_SECONDS: f64 = 86_400.0;

/// Length of a round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Effort {
    /// A number of seconds.
    Seconds(f64),
    /// A number of items, rounded up to whole batches.
    Items(u64),
}

/// What to measure, and for how long.
#[derive(Debug, Clone, PartialEq)]
pub struct BenchOptions {
    /// Orders of the items.
    pub orders: Vec<ReadOrder>,
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// With decoding, without, or both.
    pub decode: Vec<bool>,
    /// Size of a batch.
    pub batch: BenchBatchSize,
    /// Length of a round.
    pub effort: Effort,
    /// Number of rounds per measurement.
    pub repeat: usize,
    /// Whether files are dropped from the page cache before each round.
    pub cold: bool,
    /// Number of processes.
    pub jobs: usize,
    /// Seed of random orders.
    pub seed: u64,
    /// Whether plain reads are also measured.
    pub probe: bool,
}

impl BenchOptions {
    /// Rejects numbers that are out of range.
    pub(super) fn check(&self) -> Result<()> {
        let in_range = |name: &str, value: u64, max: u64| match value {
            0 => Err(Error::usage(format!("`{name}` must be at least 1"))),
            n if n > max => Err(Error::usage(format!("`{name}` must be at most {max}, not {n}"))),
            _ => Ok(()),
        };
        if self.orders.is_empty() || self.threads.is_empty() || self.decode.is_empty() {
            return Err(
                Error::usage("there is nothing to measure").help("name an order and a number of threads")
            );
        }
        self.threads.iter().try_for_each(|&n| in_range("threads", n as u64, MAX_THREADS as u64))?;
        in_range("jobs", self.jobs as u64, MAX_JOBS as u64)?;
        in_range("repeat", self.repeat as u64, MAX_REPEAT as u64)?;
        match self.batch {
            BenchBatchSize::Items(n) => in_range("batch_size", n, MAX_BATCH_RECORDS)?,
            BenchBatchSize::Tokens(n) => in_range("batch_tokens", n, MAX_BATCH_TOKENS)?,
        }
        match self.effort {
            Effort::Seconds(s) if s > 0.0 && s <= MAX_SECONDS => Ok(()),
            Effort::Seconds(s) => {
                Err(Error::usage(format!("`seconds` must be above 0 and at most {MAX_SECONDS}, not {s}")))
            }
            Effort::Items(n) => in_range("items", n, u64::MAX),
        }
    }
}
