//! The queue of a prefetch engine: tickets that are drawn, and their results until they are taken in order.

use std::collections::BTreeMap;
use std::sync::Arc;

use dsconvert_dataset::error::{Error, Result};

use super::batch::Batch;
use super::schedule::{BatchTask, LoaderPlan, Schedule};
use super::state::LoaderState;
use crate::batch::Layout;

/// A batch and the state after it is returned, or `None` after the end of the epoch.
pub(super) type MadeBatch = Option<(Batch, LoaderState)>;

/// The result for one ticket.
pub(super) type TicketResult = Result<MadeBatch, FailedBatch>;

/// A batch that could not be made.
pub(super) struct FailedBatch {
    pub(super) error: Error,
    /// The batch, if its rows were known.
    pub(super) task: Option<Box<BatchTask>>,
}

/// The current epoch and, once all its tickets are drawn, the next one.
pub(super) struct Queue {
    pub(super) current: Tickets,
    pub(super) next: Option<Tickets>,
}

/// The tickets of one epoch, from drawn to taken.
pub(super) struct Tickets {
    pub(super) schedule: Arc<Schedule>,
    pub(super) drawn: u64,
    pub(super) taken: u64,
    /// The first ticket without a batch, once it is known.
    pub(super) end: Option<u64>,
    pub(super) made: BTreeMap<u64, TicketResult>,
}

impl Queue {
    pub(super) fn epochs(&self) -> impl Iterator<Item = &Tickets> {
        std::iter::once(&self.current).chain(&self.next)
    }

    pub(super) fn epochs_mut(&mut self) -> impl Iterator<Item = &mut Tickets> {
        std::iter::once(&mut self.current).chain(&mut self.next)
    }

    /// Returns the number of batches that are ready or in progress.
    pub(super) fn in_flight(&self) -> u64 {
        self.epochs().map(Tickets::in_flight).sum()
    }

    /// Opens the epoch after the current one. A failure is returned to the caller that requests that epoch.
    pub(super) fn open_next(&mut self, plan: &Arc<LoaderPlan>, layout: Layout) {
        let Some(epoch) = self.current.schedule.epoch().checked_add(1) else { return };
        if self.next.is_none() {
            let start = plan.start_in(self.current.schedule.start(), epoch);
            let schedule = start.and_then(|at| Schedule::new(Arc::clone(plan), at, layout));
            self.next = schedule.ok().map(Tickets::new);
        }
    }

    /// Returns the tickets of `schedule`, or `None` if the loader has left its epoch.
    pub(super) fn tickets(&mut self, schedule: &Arc<Schedule>) -> Option<&mut Tickets> {
        self.epochs_mut().find(|tickets| Arc::ptr_eq(&tickets.schedule, schedule))
    }

    /// Records the end of the epoch if `made` shows that it ends before `ticket`. Returns whether it does.
    pub(super) fn note(&mut self, schedule: &Arc<Schedule>, ticket: u64, made: &TicketResult) -> bool {
        let is_end = matches!(made, Ok(None));
        if let (true, Some(tickets)) = (is_end, self.tickets(schedule)) {
            tickets.end = Some(tickets.end.map_or(ticket, |end| end.min(ticket)));
        }
        is_end
    }

    /// Keeps a result until it is taken, or returns it if the loader has left its epoch.
    pub(super) fn put(
        &mut self,
        schedule: &Arc<Schedule>,
        ticket: u64,
        made: TicketResult,
    ) -> Option<TicketResult> {
        match self.tickets(schedule) {
            Some(tickets) => tickets.made.insert(ticket, made),
            None => Some(made),
        }
    }
}

impl Tickets {
    pub(super) fn new(schedule: Schedule) -> Self {
        Self { schedule: Arc::new(schedule), drawn: 0, taken: 0, end: None, made: BTreeMap::new() }
    }

    /// Draws the next ticket and returns it with its schedule.
    pub(super) fn draw(&mut self) -> (Arc<Schedule>, u64) {
        self.drawn += 1;
        (Arc::clone(&self.schedule), self.drawn - 1)
    }

    /// Undoes the last draw.
    pub(super) fn put_back(&mut self) {
        self.drawn = self.drawn.saturating_sub(1);
    }

    /// Returns whether all batches were taken.
    pub(super) fn is_over(&self) -> bool {
        self.end.is_some_and(|end| self.taken >= end)
    }

    /// Returns whether all batches are ready or in progress.
    pub(super) fn is_drawn(&self) -> bool {
        self.end.is_some_and(|end| self.drawn >= end)
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.end.map_or(self.drawn, |end| self.drawn.min(end)).saturating_sub(self.taken)
    }
}
