//! Results of a simulation: batches and events.

use std::fmt;

use crate::options::Options;

/// Timestamps of one batch on its way from a worker to the model; `None` for events after the end of the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Batch {
    /// The worker that loads it.
    pub worker: u32,
    /// Work to load it: the load time on a core of its own.
    pub load_ns: u64,
    /// The worker started loading.
    pub start_ns: Option<u64>,
    /// Work clock when loading started; see [`Run::progress`].
    pub start_work_ns: u64,
    /// The worker finished loading.
    pub done_ns: Option<u64>,
    /// The batch became deliverable. In order, this is when all batches before it were done.
    pub queued_ns: Option<u64>,
    /// The model took the batch from the queue.
    pub taken_ns: Option<u64>,
    /// The transfer ended and the step started.
    pub step_ns: Option<u64>,
    /// The step ended.
    pub end_ns: Option<u64>,
}

/// Kind of an [`Event`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// A worker starts loading a batch.
    Start,
    /// A worker finishes loading a batch.
    Done,
    /// A batch becomes deliverable.
    Queue,
    /// The model takes a batch.
    Take,
    /// The model starts a step.
    Step,
    /// The model ends a step.
    End,
}

impl EventKind {
    /// Returns the name in event logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Done => "done",
            Self::Queue => "queue",
            Self::Take => "take",
            Self::Step => "step",
            Self::End => "end",
        }
    }
}

/// One entry of the event log, displayed as `TIME_NS KIND BATCH WORKER`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Simulated time.
    pub ns: u64,
    /// Kind of event.
    pub kind: EventKind,
    /// The batch, counted from 0.
    pub batch: u32,
    /// The worker that loads the batch, counted from 0.
    pub worker: u32,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.ns, self.kind.name(), self.batch, self.worker)
    }
}

/// A point of the work clock, which is slower than simulated time while cores are shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpeedChange {
    pub(crate) ns: u64,
    pub(crate) work_ns: u64,
}

/// A finished simulation.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    pub(crate) options: Options,
    pub(crate) end_ns: u64,
    pub(crate) finished: u64,
    pub(crate) batches: Vec<Batch>,
    pub(crate) events: Vec<Event>,
    pub(crate) speed: Vec<SpeedChange>,
}

impl Run {
    /// Returns the options of the run.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the simulated time at the end of the run.
    pub fn end_ns(&self) -> u64 {
        self.end_ns
    }

    /// Returns the number of batches whose step ended.
    pub fn finished(&self) -> u64 {
        self.finished
    }

    /// Returns all batches assigned to workers, in order of assignment.
    pub fn batches(&self) -> &[Batch] {
        &self.batches
    }

    /// Returns all events in order; see [ties](crate#ties).
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Returns the loaded share of `batch` at time `ns`, between 0 and 1.
    ///
    /// ```
    /// use dsconvert_simulate::{Options, simulate};
    ///
    /// let run = simulate(&Options::new(200.0, 100.0, 1)?)?;
    /// assert_eq!(run.progress(0, 50_000_000), 0.25);
    /// assert_eq!(run.progress(1, 50_000_000), 0.0);
    /// # Ok::<(), dsconvert_simulate::Error>(())
    /// ```
    pub fn progress(&self, batch: usize, ns: u64) -> f64 {
        let Some(record) = self.batches.get(batch) else { return 0.0 };
        match (record.start_ns, record.done_ns) {
            (Some(start), _) if ns < start => 0.0,
            (Some(_), Some(done)) if ns >= done => 1.0,
            (Some(_), _) => {
                let work = self.work_at(ns).saturating_sub(record.start_work_ns);
                (work as f64 / record.load_ns as f64).min(1.0)
            }
            (None, _) => 0.0,
        }
    }

    /// Returns the work clock at time `ns`.
    fn work_at(&self, ns: u64) -> u64 {
        let after = self.speed.partition_point(|point| point.ns <= ns);
        match (after.checked_sub(1).and_then(|i| self.speed.get(i)), self.speed.get(after)) {
            (Some(a), Some(b)) => {
                let share = (ns - a.ns) as f64 / (b.ns - a.ns) as f64;
                a.work_ns + ((b.work_ns - a.work_ns) as f64 * share) as u64
            }
            (Some(a), None) => {
                let loading =
                    self.batches.iter().filter(|b| b.start_ns.is_some() && b.done_ns.is_none()).count();
                let computing = self.batches.iter().any(|b| b.step_ns.is_some() && b.end_ns.is_none());
                let active = loading + usize::from(self.options.step_core && computing);
                let cores = self.options.cores.map_or(1.0, f64::from);
                a.work_ns + ((ns - a.ns) as f64 * (cores / active.max(1) as f64).min(1.0)) as u64
            }
            (None, _) => ns,
        }
    }
}
