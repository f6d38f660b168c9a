//! The scheduler: feeds tasks, converts them, and writes their outcomes in order.
//!
//! A *worker* is a task of the thread pool that executes one action after another, always the one with the highest
//! priority ([`state`]):
//!
//! 1. write the outcomes that are next in order;
//! 2. feed a task, if the oldest unit with room has fewer tasks waiting than there are threads; a unit with many unwritten
//!    tasks only if no other unit can be fed or opened;
//! 3. convert a waiting task;
//! 4. open another unit, unless enough are open.
//!
//! A worker ends when there is no action. A worker that finds an action starts another worker, up to the number of
//! threads. So a single thread does the whole job without handovers. Several threads share one unit without waiting for
//! a reader thread, and the next unit is started when writing becomes the bottleneck. Threads without a worker are free
//! for segments of long documents.
//!
//! Tasks of a unit are numbered as they are fed, and only the worker that holds the unit's sink writes, in that order.
//! Memory is bounded by the bytes that tasks hold from being fed to being written. Because tasks are fed in order, the
//! next one to write already holds its share.
//!
//! Workers do not wait for each other, nor for the disk or object storage. Closed shards are left to the thread that
//! called [`run`]; while too many are queued there, nothing more is written. Only large images wait for memory. It is
//! held by images that are being converted, and these wait for nothing.
//!
//! A panic in a worker ends the run: it becomes the error of the run, and all workers end after their current action.

mod finalizer;
mod state;
mod worker;

#[cfg(test)]
mod tests;

use std::sync::{Condvar, Mutex, PoisonError};

use self::finalizer::Finalizer;
use self::state::SchedulerState;
use self::worker::Scheduler;
use super::job::{Conversion, Job};
use super::memory::Shares;
use super::progress::{Activity, Progress};
use crate::error::{Error, Result};
use crate::panics::caught;
use crate::writer::stop::Stop;
use crate::writer::unit::UnitSink;
use crate::writer::workers::Workers;

/// Settings and resources shared by all workers.
pub(super) struct SchedulerContext<'a, C: Conversion> {
    pub job: &'a Job<C>,
    pub duplicates: &'a C::Duplicates,
    pub workers: &'a Workers,
    pub memory: Shares,
    pub progress: &'a Progress,
    pub stop: &'a Stop,
    /// Creates the sink of a unit.
    pub sink: &'a (dyn Fn(u32) -> Result<UnitSink> + Sync),
    /// Number of shards and units uploaded at a time; `None` without object storage.
    pub uploads: Option<usize>,
}

/// Units that failed because their sources could not be read, with the error.
pub(super) type FailedUnits = Vec<(u32, Error)>;

/// Processes all `units`, in approximately this order.
///
/// # Errors
///
/// Fails if output cannot be written, the run is stopped, or a thread panics. If sources cannot be read, only their
/// unit fails.
pub(super) fn run<C: Conversion>(context: &SchedulerContext<'_, C>, units: Vec<u32>) -> Result<FailedUnits> {
    let scheduler = Scheduler {
        context,
        state: Mutex::new(SchedulerState::new(units, context.workers.count())),
        finalize_ready: Condvar::new(),
        scratches: Mutex::default(),
    };
    context.workers.scope(|scope| {
        scheduler.start_worker(&mut scheduler.lock(), scope);
        let finalizer = Finalizer { progress: context.progress, stop: context.stop };
        let closed = scheduler.closed(scope);
        match caught(|| match context.uploads {
            None => finalizer.sequentially(closed),
            Some(at_a_time) => finalizer.concurrently(closed, at_a_time),
        }) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => drop(scheduler.lock().fatal.get_or_insert(error)),
            Err(panic) => context.stop.report_bug(&panic.into_error("finalizing shards")),
        }
    });
    let mut state = scheduler.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    context.progress.add_time(Activity::Wait, state.idle_time());
    context.stop.bug().map_or(Ok(()), Err)?;
    if let Some(error) = state.fatal {
        return Err(context.stop.continuation().add_to(error));
    }
    context.stop.check()?;
    if !state.is_done() {
        return Err(Error::internal("the workers ended before all units were converted"));
    }
    state.failed.sort_by_key(|(unit, _)| *unit);
    Ok(state.failed)
}
