//! Events of a run that a display may print: finished units and rejected items.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use super::units::UnitResult;

/// Maximum number of events that wait to be taken; further ones are counted and dropped.
const MAX_WAITING: usize = 10_000;

/// The events that are collected. Each level includes the previous ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventLevel {
    /// No events.
    #[default]
    Nothing,
    /// Finished units.
    Units,
    /// Rejected items.
    Rejects,
}

/// An event of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A unit was finished.
    UnitFinished {
        /// Number of the unit, from 0.
        unit: u32,
        /// Number of items in the unit.
        items: u64,
        /// Number of records in the unit.
        records: u64,
        /// Number of rejected items in the unit.
        rejected: u64,
        /// Bytes of the sources that the unit read.
        source_bytes: u64,
        /// Bytes of the shards of the unit.
        shard_bytes: u64,
    },
    /// An item was rejected.
    Rejected {
        /// Origin of the item.
        origin: String,
        /// Reason code.
        code: &'static str,
        /// Human-readable reason.
        message: String,
    },
    /// This many events were dropped, because they were not taken in time.
    Dropped(u64),
}

impl Event {
    /// Returns the event that reports a finished unit.
    pub(super) fn of_unit(unit: &UnitResult) -> Self {
        let counts = unit.counts();
        Self::UnitFinished {
            unit: unit.unit,
            items: counts.found,
            records: unit.splits.iter().map(|split| split.records).sum(),
            rejected: counts.rejected,
            source_bytes: unit.source_bytes,
            shard_bytes: unit.splits.iter().flat_map(|split| &split.shards).map(|shard| shard.bytes).sum(),
        }
    }
}

/// Events that wait for a display.
#[derive(Debug, Default)]
pub(super) struct Events {
    level: AtomicU8,
    queue: Mutex<EventQueue>,
}

#[derive(Debug, Default)]
struct EventQueue {
    events: Vec<Event>,
    dropped: u64,
}

impl Events {
    pub(super) fn set_level(&self, level: EventLevel) {
        self.level.store(level as u8, Relaxed);
    }

    /// Adds an event of `level`. Calls `event` only if events of this level are collected.
    pub(super) fn add(&self, level: EventLevel, event: impl FnOnce() -> Event) {
        if self.level.load(Relaxed) < level as u8 {
            return;
        }
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.events.len() < MAX_WAITING {
            queue.events.push(event());
        } else {
            queue.dropped += 1;
        }
    }

    /// Takes the events that were added since the last call.
    pub(super) fn take(&self) -> Vec<Event> {
        let EventQueue { mut events, dropped } =
            std::mem::take(&mut *self.queue.lock().unwrap_or_else(PoisonError::into_inner));
        if dropped > 0 {
            events.push(Event::Dropped(dropped));
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reject(message: &str) -> Event {
        Event::Rejected { origin: "a".to_owned(), code: "empty", message: message.to_owned() }
    }

    #[test]
    fn only_events_of_the_level_are_collected_and_their_number_is_bounded() {
        let events = Events::default();
        events.add(EventLevel::Units, || reject("before a level is set"));
        assert_eq!(events.take(), []);
        events.set_level(EventLevel::Units);
        events.add(EventLevel::Rejects, || reject("above the level"));
        events.add(EventLevel::Units, || reject("kept"));
        assert_eq!(events.take(), [reject("kept")]);
        (0..MAX_WAITING + 3).for_each(|_| events.add(EventLevel::Units, || reject("many")));
        let taken = events.take();
        assert_eq!((taken.len(), taken.last()), (MAX_WAITING + 1, Some(&Event::Dropped(3))));
        assert_eq!(events.take(), []);
    }
}
