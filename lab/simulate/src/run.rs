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

/// A finished simulation.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Run {
    /// Options of the run.
    pub options: Options,
    /// Simulated time at the end of the run.
    pub end_ns: u64,
    /// Number of batches whose step ended.
    pub finished: u64,
    /// All batches assigned to workers, in order of assignment.
    pub batches: Vec<Batch>,
    /// All events in order; see [ties](crate#ties).
    pub events: Vec<Event>,
}
