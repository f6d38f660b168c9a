//! Scheduler state: open units, their tasks, and the choice of the next action.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::FailedUnits;
use super::finalizer::Closed;
use crate::error::{Error, ErrorKind};
use crate::pipeline::job::{EngineUse, Feed};
use crate::pipeline::memory::{MemoryPool, Reservation};
use crate::writer::outcome::Outcomes;
use crate::writer::unit::UnitSink;

/// Maximum tasks per thread that a unit may have in progress or waiting to be written: other tasks proceed while one
/// slow task runs. Memory has its own limit.
const WINDOW_PER_THREAD: usize = 16;

/// Threads per additional unit that is open at the same time.
const THREADS_PER_UNIT: usize = 4;

/// Tasks that a unit may have in progress or waiting to be written while another unit can be read or opened. More would
/// take the memory that other units need, and the single writer of a unit would limit the speed of all threads.
const SHARE_OF_UNIT: usize = 4 * THREADS_PER_UNIT;

/// Units that may be open in addition to twice as many as are read at the same time, because all of their tasks are
/// fed and some are slow.
const EXHAUSTED_UNITS: usize = 2;

/// Maximum number of closed shards in the queue of the finalizer; writing pauses while it is full.
const MAX_CLOSED: usize = 4;

/// State of a scheduler for tasks of type `T`.
pub(super) struct SchedulerState<'c, T> {
    todo: VecDeque<u32>,
    pub(super) open: Vec<OpenUnit<'c, T>>,
    /// Number of units that are being opened.
    pub(super) opening: usize,
    /// Shards and units to finalize, in order.
    pub(super) closed: VecDeque<Closed>,
    pub(super) failed: FailedUnits,
    pub(super) fatal: Option<Error>,
    threads: usize,
    workers: usize,
    /// Total time during which threads had no worker, and the instant up to which it is counted.
    idle: (Duration, Instant),
}

pub(super) struct OpenUnit<'c, T> {
    pub(super) unit: u32,
    /// `None` while a worker feeds from it, and at the end.
    pub(super) feed: Option<Box<dyn Feed<T> + 'c>>,
    pub(super) exhausted: bool,
    /// Tasks that have not been started, in order.
    pub(super) waiting: VecDeque<NumberedTask<T>>,
    /// `None` while a worker writes to it.
    pub(super) sink: Option<Box<UnitSink>>,
    /// Numbers of the next task to feed and of the next task to write.
    pub(super) fed: u64,
    pub(super) written: u64,
    /// Outcomes that wait for earlier ones, with the memory that their tasks hold.
    pub(super) ready: BTreeMap<u64, (Outcomes, Reservation)>,
    pub(super) engine: EngineUse,
    pub(super) failure: Option<UnitFailure>,
}

pub(super) struct NumberedTask<T> {
    pub(super) number: u64,
    pub(super) task: T,
    pub(super) held: Reservation,
}

pub(super) enum UnitFailure {
    Error(Error),
    Redo,
}

/// The next step of a worker.
pub(super) enum WorkerAction<'c, T> {
    Write { unit: u32, sink: Box<UnitSink>, ready: Vec<(Outcomes, Reservation)>, finished: bool },
    Feed { unit: u32, feed: Box<dyn Feed<T> + 'c> },
    Convert { unit: u32, engine: EngineUse, task: NumberedTask<T> },
    Open { unit: u32, engine: EngineUse },
}

impl<T> OpenUnit<'_, T> {
    fn is_writable(&self) -> bool {
        self.sink.is_some() && self.ready.contains_key(&self.written)
    }

    fn is_finished(&self) -> bool {
        self.sink.is_some() && self.exhausted && self.fed == self.written
    }

    fn in_progress(&self) -> usize {
        (self.fed - self.written) as usize
    }
}

impl<'c, T> SchedulerState<'c, T> {
    pub(super) fn new(units: Vec<u32>, threads: usize) -> Self {
        Self {
            todo: units.into(),
            open: Vec::new(),
            opening: 0,
            closed: VecDeque::new(),
            failed: Vec::new(),
            fatal: None,
            threads,
            workers: 0,
            idle: (Duration::ZERO, Instant::now()),
        }
    }

    /// Returns whether all units were written or have failed.
    pub(super) fn is_done(&self) -> bool {
        self.open.is_empty() && self.opening == 0 && self.todo.is_empty()
    }

    pub(super) fn has_workers(&self) -> bool {
        self.workers > 0
    }

    /// Counts another worker, if fewer are running than there are threads. Returns whether it did.
    pub(super) fn add_worker(&mut self) -> bool {
        let has_room = self.workers < self.threads;
        if has_room {
            self.idle_time();
            self.workers += 1;
        }
        has_room
    }

    pub(super) fn remove_worker(&mut self) {
        self.idle_time();
        self.workers -= 1;
    }

    /// Returns the total time so far during which threads had no worker.
    pub(super) fn idle_time(&mut self) -> Duration {
        let (sum, since) = self.idle;
        let now = Instant::now();
        self.idle = (sum + (now - since) * (self.threads - self.workers) as u32, now);
        self.idle.0
    }

    /// Returns the action with the highest priority. `None` if there is nothing to do until a worker finishes an action
    /// or a shard is finalized, or nothing at all.
    pub(super) fn next_action(&mut self, memory: &MemoryPool) -> Option<WorkerAction<'c, T>> {
        if self.fatal.is_some() {
            return None;
        }
        while let Some((unit, failure)) = self.take_failed() {
            match failure {
                UnitFailure::Redo => {
                    self.opening += 1;
                    return Some(WorkerAction::Open { unit, engine: EngineUse::Reference });
                }
                UnitFailure::Error(error) if error.kind() == ErrorKind::Internal => {
                    self.fatal.get_or_insert(error);
                    return None;
                }
                UnitFailure::Error(error) => self.failed.push((unit, error)),
            }
        }
        if self.closed.len() < MAX_CLOSED
            && let Some(open) = self.open.iter_mut().find(|u| u.is_writable() || u.is_finished())
        {
            let mut ready = Vec::new();
            while let Some(outcomes) = open.ready.remove(&(open.written + ready.len() as u64)) {
                ready.push(outcomes);
            }
            let finished = open.exhausted && open.fed == open.written + ready.len() as u64;
            if let Some(sink) = open.sink.take() {
                return Some(WorkerAction::Write { unit: open.unit, sink, ready, finished });
            }
        }
        let (threads, window) = (self.threads, self.threads * WINDOW_PER_THREAD);
        // Units that are read to the end, but not written, have open files too. Many small units would otherwise pile up
        // while the disk is slow.
        let most = 1 + threads / THREADS_PER_UNIT;
        let active = self.opening + self.open.iter().filter(|u| !u.exhausted).count();
        let may_open = active < most
            && self.opening + self.open.len() < 2 * most + EXHAUSTED_UNITS
            && !self.todo.is_empty();
        let has_share = |open: &OpenUnit<'c, T>| open.in_progress() >= SHARE_OF_UNIT;
        let others_suffice = may_open
            || self.opening > 0
            || self.open.iter().any(|u| !u.exhausted && u.failure.is_none() && !has_share(u));
        for open in self.open.iter_mut().filter(|open| open.failure.is_none()) {
            if open.waiting.len() < threads
                && open.in_progress() < window
                && !(others_suffice && has_share(open))
                && let Some(feed) = open.feed.take_if(|feed| memory.has_room(feed.next_bytes()))
            {
                return Some(WorkerAction::Feed { unit: open.unit, feed });
            }
            if let Some(task) = open.waiting.pop_front() {
                return Some(WorkerAction::Convert { unit: open.unit, engine: open.engine, task });
            }
        }
        if may_open {
            let unit = self.todo.pop_front()?;
            self.opening += 1;
            return Some(WorkerAction::Open { unit, engine: EngineUse::Selected });
        }
        None
    }

    /// Removes a failed unit that no worker holds a part of, and returns it with its failure.
    fn take_failed(&mut self) -> Option<(u32, UnitFailure)> {
        let is_at_rest = |u: &OpenUnit<'c, T>| {
            let waiting = (u.ready.len() + u.waiting.len()) as u64;
            u.sink.is_some() && u.fed == u.written + waiting && (u.feed.is_some() || u.exhausted)
        };
        let at = self.open.iter().position(|u| u.failure.is_some() && is_at_rest(u))?;
        let open = self.open.remove(at);
        open.failure.map(|failure| (open.unit, failure))
    }
}
