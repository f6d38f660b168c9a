//! The discrete-event engine.
//!
//! The clock jumps from event to event. Events at the same time are handled in this order:
//!
//! 1. workers that have started become idle, in order of worker number;
//! 2. loads end, in order of remaining work, then of worker number;
//! 3. the model's transfer or step ends;
//! 4. the model, if it is free, takes a batch, and the loader assigns the next one;
//! 5. idle workers start loading, in order of worker number.
//!
//! `page/simulate.js` is a port of this module; `tests/javascript.rs` compares their event logs.

mod transitions;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::error::Error;
use crate::load::LoadSampler;
use crate::options::{MAX_BATCHES, MAX_RUN_NS, Options, Order, Stop};
use crate::random::{Stream, Xoshiro128};
use crate::run::{Batch, Event, EventKind, Run};

/// Simulates a run with `options`.
///
/// # Errors
///
/// If an option is out of range, or the run needs more than [`MAX_BATCHES`] batches or [`MAX_RUN_NS`] nanoseconds.
pub fn simulate(options: &Options) -> Result<Run, Error> {
    options.check()?;
    Simulator::new(options).run()
}

/// Simulates a run like [`simulate`], without its events: faster, and enough for its batches and its report.
pub(crate) fn simulate_quietly(options: &Options) -> Result<Run, Error> {
    options.check()?;
    Simulator { is_logging: false, ..Simulator::new(options) }.run()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WorkerState {
    Starting,
    Idle,
    Loading,
    /// Holds a finished batch because the shared queue is full.
    Blocked,
}

#[derive(Debug)]
struct Worker {
    state: WorkerState,
    /// The batch being loaded or held.
    batch: u32,
    /// Batches assigned but not yet started.
    tasks: VecDeque<u32>,
    /// Number of batches assigned but not yet taken by the model.
    outstanding: u32,
}

#[derive(Debug, Clone, Copy)]
enum ModelState {
    Free,
    Transferring {
        batch: u32,
        until: u64,
    },
    Computing {
        batch: u32,
        until: u64,
    },
    /// Computes on a core shared with the workers, until `work` reaches `target`.
    Sharing {
        batch: u32,
        target: u64,
    },
}

#[derive(Debug)]
struct Simulator<'a> {
    options: &'a Options,
    loads: LoadSampler<'a>,
    /// Source of step times.
    steps: Xoshiro128,
    now: u64,
    horizon: u64,
    /// Maximum number of batches that the loader assigns.
    limit: u64,
    /// Work clock: the work that a constantly loading worker has done so far. Equals `now` unless cores are shared.
    work: u64,
    /// Loading workers, ordered by the value of `work` at which they finish.
    loading: BinaryHeap<Reverse<(u64, u32)>>,
    workers: Vec<Worker>,
    /// Number of workers that have started.
    started: usize,
    /// Workers that may start loading now.
    idle: Vec<u32>,
    /// Deliverable batches, oldest first.
    queue: VecDeque<u32>,
    /// [`WorkerState::Blocked`] workers, longest-blocked first.
    blocked: VecDeque<u32>,
    /// The next batch to become deliverable under [`Order::Pytorch`].
    next_in_order: usize,
    /// The next worker in round-robin order.
    turn: usize,
    model: ModelState,
    finished: u64,
    batches: Vec<Batch>,
    is_logging: bool,
    events: Vec<Event>,
}

impl<'a> Simulator<'a> {
    fn new(options: &'a Options) -> Self {
        let worker =
            || Worker { state: WorkerState::Starting, batch: 0, tasks: VecDeque::new(), outstanding: 0 };
        let (horizon, limit) = match options.stop {
            Stop::AfterNs(ns) => (ns, u64::MAX),
            Stop::Batches(n) => (MAX_RUN_NS, n),
        };
        Self {
            options,
            loads: LoadSampler::new(&options.load, options.slow, options.seed),
            steps: Xoshiro128::new(options.seed, Stream::Step),
            now: 0,
            horizon,
            limit,
            work: 0,
            loading: BinaryHeap::new(),
            workers: (0..options.workers).map(|_| worker()).collect(),
            started: 0,
            idle: Vec::new(),
            queue: VecDeque::new(),
            blocked: VecDeque::new(),
            next_in_order: 0,
            turn: 0,
            model: ModelState::Free,
            finished: 0,
            batches: Vec::new(),
            is_logging: true,
            events: Vec::new(),
        }
    }

    fn run(mut self) -> Result<Run, Error> {
        if self.options.order != Order::Pool {
            for _ in 0..self.options.workers * self.options.prefetch {
                self.assign();
            }
        }
        let end = loop {
            if self.finished == self.limit {
                break self.now;
            }
            match self.next_time() {
                Some(time) if time <= self.horizon => self.step_to(time)?,
                _ if self.horizon == MAX_RUN_NS && self.limit != u64::MAX => {
                    return Err(Error::new(
                        "batches",
                        "the run takes longer than 1,000,000 s of simulated time",
                    )
                    .help("simulate fewer batches"));
                }
                _ => break self.horizon,
            }
        };
        Ok(Run {
            options: self.options.clone(),
            end_ns: end,
            finished: self.finished,
            batches: self.batches,
            events: self.events,
        })
    }

    /// Rounds `ns` up to a multiple of the tick.
    fn tick(&self, ns: u64) -> u64 {
        ns.next_multiple_of(self.options.tick_ns)
    }

    fn start_time(&self, worker: usize) -> u64 {
        self.tick(self.options.startup_ns + worker as u64 * self.options.stagger_ns)
    }

    /// Returns the number of loading workers, plus 1 if the model computes on one of their cores, and the number of cores if
    /// it is lower.
    fn sharing(&self) -> (u64, Option<u64>) {
        let active = self.loading.len() as u64 + u64::from(matches!(self.model, ModelState::Sharing { .. }));
        (active, self.options.cores.map(u64::from).filter(|&cores| cores < active))
    }

    /// The time at which `work` reaches `target` if no event happens before.
    fn time_of_work(&self, target: u64) -> u64 {
        let left = target.saturating_sub(self.work);
        let time = match self.sharing() {
            (active, Some(cores)) => (left * active).div_ceil(cores),
            _ => left,
        };
        self.tick(self.now + time)
    }

    fn next_time(&self) -> Option<u64> {
        let start = (self.started < self.workers.len()).then(|| self.start_time(self.started));
        let load = self.loading.peek().map(|Reverse((target, _))| self.time_of_work(*target));
        let model = match self.model {
            ModelState::Free => None,
            ModelState::Transferring { until, .. } | ModelState::Computing { until, .. } => Some(until),
            ModelState::Sharing { target, .. } => Some(self.time_of_work(target)),
        };
        [start, load, model].into_iter().flatten().min()
    }

    fn log(&mut self, kind: EventKind, batch: u32, worker: u32) {
        if self.is_logging {
            self.events.push(Event { ns: self.now, kind, batch, worker });
        }
    }

    fn step_to(&mut self, time: u64) -> Result<(), Error> {
        let elapsed = time - self.now;
        self.work += match self.sharing() {
            (active, Some(cores)) => elapsed * cores / active,
            _ => elapsed,
        };
        self.now = time;
        while self.started < self.workers.len() && self.start_time(self.started) <= time {
            self.workers[self.started].state = WorkerState::Idle;
            self.idle.push(self.started as u32);
            self.started += 1;
        }
        while let Some(&Reverse((target, worker))) = self.loading.peek()
            && target <= self.work
        {
            self.loading.pop();
            self.load_ended(worker);
        }
        self.advance_model();
        if matches!(self.model, ModelState::Free) {
            self.take();
        }
        self.idle.sort_unstable();
        for worker in std::mem::take(&mut self.idle) {
            self.start_load(worker);
        }
        if self.finished > MAX_BATCHES {
            return Err(Error::new("seconds", format!("the run takes more than {MAX_BATCHES} batches"))
                .help("simulate a shorter time"));
        }
        Ok(())
    }
}
