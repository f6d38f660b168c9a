//! What is measured, and for how long.

use super::batch::BenchBatchSize;
use super::order::ReadOrder;
use crate::error::{Error, Result};
use crate::reader::batch::{MAX_BATCH_RECORDS, MAX_BATCH_TOKENS};

/// Most threads of a measurement.
pub const MAX_THREADS: usize = 1024;
/// Most processes.
pub const MAX_JOBS: usize = 256;
/// Most rounds of a measurement.
pub const MAX_REPEAT: usize = 1000;
/// Longest round.
const MAX_SECONDS: f64 = 86_400.0;

/// Length of a round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Effort {
    /// So many seconds.
    Seconds(f64),
    /// So many items, rounded up to whole batches.
    Items(u64),
}

/// What is measured.
#[derive(Debug, Clone, PartialEq)]
pub struct BenchOptions {
    /// Orders.
    pub orders: Vec<ReadOrder>,
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// With decoding, without, or both.
    pub decode: Vec<bool>,
    /// Size of a batch.
    pub batch: BenchBatchSize,
    /// Length of a round.
    pub effort: Effort,
    /// Rounds of each measurement.
    pub repeat: usize,
    /// Whether files are dropped from the page cache before each round.
    pub cold: bool,
    /// Processes.
    pub jobs: usize,
    /// Seed of random orders.
    pub seed: u64,
    /// Whether plain reads are measured, too.
    pub probe: bool,
}

impl BenchOptions {
    /// Refuses numbers that are out of range.
    pub(super) fn check(&self) -> Result<()> {
        let in_range = |name: &str, value: u64, most: u64| match value {
            0 => Err(Error::usage(format!("{name} must be at least 1"))),
            n if n > most => Err(Error::usage(format!("{name}: {n} is above the maximum of {most}"))),
            _ => Ok(()),
        };
        if self.orders.is_empty() || self.threads.is_empty() || self.decode.is_empty() {
            return Err(
                Error::usage("nothing is to be measured").help("name an order and a number of threads")
            );
        }
        self.threads.iter().try_for_each(|&n| in_range("threads", n as u64, MAX_THREADS as u64))?;
        in_range("jobs", self.jobs as u64, MAX_JOBS as u64)?;
        in_range("repeat", self.repeat as u64, MAX_REPEAT as u64)?;
        match self.batch {
            BenchBatchSize::Items(n) => in_range("batch-size", n, MAX_BATCH_RECORDS)?,
            BenchBatchSize::Tokens(n) => in_range("batch-tokens", n, MAX_BATCH_TOKENS)?,
        }
        match self.effort {
            Effort::Seconds(s) if s > 0.0 && s <= MAX_SECONDS => Ok(()),
            Effort::Seconds(s) => {
                Err(Error::usage(format!("seconds: {s} is not more than 0 and at most {MAX_SECONDS}")))
            }
            Effort::Items(n) => in_range("items", n, u64::MAX),
        }
    }
}
