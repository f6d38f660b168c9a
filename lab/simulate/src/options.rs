//! Simulation options: the loader, its times, the model, and the end of the run.

use crate::distribution::{MAX_TIME_NS, TimeDistribution, ns_from_ms};
use crate::error::Error;
use crate::load::{LoadTimes, SlowRuns};

/// Maximum number of workers.
pub const MAX_WORKERS: u32 = 1024;
/// Maximum prefetch factor.
pub const MAX_PREFETCH: u32 = 256;
/// Default of [`Options::prefetch`], as in PyTorch.
pub const DEFAULT_PREFETCH: u32 = 2;
/// Maximum capacity of the shared queue.
pub const MAX_QUEUE: u32 = MAX_WORKERS * MAX_PREFETCH;
/// Maximum length of a run: 1,000,000 s. Times stay below 2⁵³ ns, so JavaScript represents them exactly.
pub const MAX_RUN_NS: u64 = 1_000_000_000_000_000;
/// Maximum number of batches that a run delivers.
pub const MAX_BATCHES: u64 = 1_000_000;

/// How batches are assigned to workers and delivered to the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// PyTorch's default. Batch *k* belongs to worker *k* mod *W*; at most prefetch × *W* batches are outstanding, and
    /// they are delivered in order. When the model takes a batch, a new one is assigned.
    #[default]
    Pytorch,
    /// PyTorch's `in_order=False`. Batches are delivered as they complete; a new one goes to the next worker in
    /// round-robin order with fewer than prefetch outstanding batches.
    Completed,
    /// One shared bounded queue. A free worker starts the next batch at once; a worker that finishes a batch while the
    /// queue is full holds it and waits.
    Pool,
}

impl Order {
    /// Returns the name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pytorch => "pytorch",
            Self::Completed => "completed",
            Self::Pool => "pool",
        }
    }
}

/// End of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// After this much simulated time, in nanoseconds. A step that ends exactly then counts.
    AfterNs(u64),
    /// When the model has finished this many batches. The loader loads no more than that.
    Batches(u64),
}

/// Parameters of a simulation. All times are integer nanoseconds.
///
/// # Examples
///
/// ```
/// use dsconvert_simulate::{Options, simulate};
///
/// // Seven workers that need 2 s for a batch feed a model that needs 100 ms.
/// let run = simulate(&Options::new(2_000.0, 100.0, 7)?)?;
/// assert_eq!(run.report().batches, 98);
/// # Ok::<(), dsconvert_simulate::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Worker processes or threads.
    pub workers: u32,
    /// Outstanding batches per worker for [`Order::Pytorch`] and [`Order::Completed`].
    pub prefetch: u32,
    /// Order of assignment and delivery.
    pub order: Order,
    /// Capacity of the shared queue for [`Order::Pool`]; `None` means prefetch × workers.
    pub queue: Option<u32>,
    /// Time that a worker needs to load a batch.
    pub load: LoadTimes,
    /// Runs of slow batches, applied on top of `load`.
    pub slow: Option<SlowRuns>,
    /// Compute time of the model per batch.
    pub step: TimeDistribution,
    /// Time to copy a batch to the device. The model does not compute meanwhile.
    pub transfer_ns: u64,
    /// Time before a worker can start its first batch.
    pub startup_ns: u64,
    /// Delay of each worker's start after that of the previous worker.
    pub stagger_ns: u64,
    /// CPU cores that the workers share; `None` means one per worker.
    pub cores: Option<u32>,
    /// Whether the model computes on one of `cores` and slows down with the workers when cores are scarce.
    pub step_core: bool,
    /// Granularity of the clock: loads, transfers and steps end at a multiple of it. 1 means an exact clock.
    pub tick_ns: u64,
    /// Seed of all random times.
    pub seed: u64,
    /// End of the run.
    pub stop: Stop,
}

impl Options {
    /// Creates options with constant times in milliseconds and these defaults: PyTorch's order, prefetch 2, exact
    /// clock, 30 s.
    ///
    /// # Errors
    ///
    /// If a time is not positive or a number is out of range.
    pub fn new(load_ms: f64, step_ms: f64, workers: u32) -> Result<Self, Error> {
        let options = Self {
            workers,
            prefetch: DEFAULT_PREFETCH,
            order: Order::default(),
            queue: None,
            load: LoadTimes::Drawn(TimeDistribution::constant(ns_from_ms("load_ms", load_ms)?)),
            slow: None,
            step: TimeDistribution::constant(ns_from_ms("step_ms", step_ms)?),
            transfer_ns: 0,
            startup_ns: 0,
            stagger_ns: 0,
            cores: None,
            step_core: false,
            tick_ns: 1,
            seed: 0,
            stop: Stop::AfterNs(30_000_000_000),
        };
        options.check()?;
        Ok(options)
    }

    /// Returns the capacity of the shared queue for [`Order::Pool`].
    pub fn queue_capacity(&self) -> u32 {
        self.queue.unwrap_or_else(|| self.prefetch.saturating_mul(self.workers))
    }

    /// Checks every value.
    ///
    /// # Errors
    ///
    /// Returns an error for the first option that is out of range.
    pub fn check(&self) -> Result<(), Error> {
        check_count("workers", self.workers, MAX_WORKERS)?;
        check_count("prefetch", self.prefetch, MAX_PREFETCH)?;
        if let Some(queue) = self.queue {
            check_count("queue", queue, MAX_QUEUE)?;
        }
        if let Some(cores) = self.cores {
            check_count("cores", cores, MAX_WORKERS)?;
        } else if self.step_core {
            return Err(Error::new("step_core", "requires a limited number of cores").help("set `cores`"));
        }
        match &self.load {
            LoadTimes::Drawn(load) => load.check("load_ms", "load_cv")?,
            LoadTimes::Trace(trace) => trace.check()?,
        }
        if let Some(slow) = &self.slow {
            slow.check()?;
        }
        self.step.check("step_ms", "step_cv")?;
        for (option, ns) in [
            ("transfer_ms", self.transfer_ns),
            ("startup_ms", self.startup_ns),
            ("stagger", self.stagger_ns),
            ("tick_ms", self.tick_ns),
        ] {
            if ns > MAX_TIME_NS {
                return Err(Error::new(option, format!("{ns} ns is above the maximum of one hour")));
            }
        }
        if self.tick_ns == 0 {
            return Err(Error::new("tick_ms", "must be more than 0"));
        }
        match self.stop {
            Stop::AfterNs(0) => Err(Error::new("seconds", "must be more than 0")),
            Stop::AfterNs(ns) if ns > MAX_RUN_NS => {
                Err(Error::new("seconds", "is above the maximum of 1,000,000 s"))
            }
            Stop::Batches(0) => Err(Error::new("batches", "must be at least 1")),
            Stop::Batches(n) if n > MAX_BATCHES => {
                Err(Error::new("batches", format!("{n} is above the maximum of {MAX_BATCHES}")))
            }
            _ => Ok(()),
        }
    }
}

fn check_count(option: &'static str, value: u32, max: u32) -> Result<(), Error> {
    if value == 0 {
        return Err(Error::new(option, "must be at least 1"));
    }
    if value > max {
        return Err(Error::new(option, format!("{value} is above the maximum of {max}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_option() {
        let good = Options::new(10.0, 10.0, 1).unwrap();
        let bad = |change: fn(&mut Options)| {
            let mut options = good.clone();
            change(&mut options);
            options.check().unwrap_err().option
        };
        assert_eq!(bad(|o| o.workers = 0), "workers");
        assert_eq!(bad(|o| o.workers = 1_000_000), "workers");
        assert_eq!(bad(|o| o.prefetch = 0), "prefetch");
        assert_eq!(bad(|o| o.queue = Some(0)), "queue");
        assert_eq!(bad(|o| o.cores = Some(0)), "cores");
        assert_eq!(bad(|o| o.tick_ns = 0), "tick_ms");
        assert_eq!(bad(|o| o.step.mean_ns = 0), "step_ms");
        assert_eq!(bad(|o| o.step.cv = f64::NAN), "step_cv");
        assert_eq!(bad(|o| o.stop = Stop::AfterNs(0)), "seconds");
        assert_eq!(bad(|o| o.stop = Stop::AfterNs(u64::MAX)), "seconds");
        assert_eq!(bad(|o| o.stop = Stop::Batches(0)), "batches");
        assert_eq!(bad(|o| o.transfer_ns = u64::MAX), "transfer_ms");
        for ms in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e12, 1e-9] {
            assert_eq!(Options::new(ms, 1.0, 1).unwrap_err().option, "load_ms", "{ms}");
        }
    }
}
