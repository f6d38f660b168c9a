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
pub struct Run {
    pub(crate) options: Options,
    pub(crate) end_ns: u64,
    pub(crate) finished: u64,
    pub(crate) batches: Vec<Batch>,
    pub(crate) events: Vec<Event>,
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
}
