//! The order of work: feed, convert, write in order.
//!
//! A *worker* is a task of the thread pool that does one action after another, always the most urgent one: write outcomes that are
//! next in order, else see to it that a task of the oldest unit that has room waits for each worker, else convert such a task,
//! else open another unit ([`state`]). When there is none, it ends; a worker that finds an action starts another worker, as
//! long as there are fewer than threads. So one thread alone does the whole job without handing anything over, several threads
//! share one unit without waiting for one of them to read, and when writing one unit becomes the bottleneck the next one is
//! begun. A thread without a worker is free for segments of long documents.
//!
//! Order is kept by numbers: the tasks of a unit are counted as they are fed, and only the worker that holds the
//! unit's sink writes, in that order. Memory is bounded by the bytes that tasks hold from being fed to being written;
//! the tasks of a unit are fed in order, so the one that must be written next always has its share already.
//!
//! No worker waits for another one. In particular none waits for the disk or for object storage: closed shards are left to the
//! thread that called [`run`], and nothing more is written while it has too many. Only large images wait for memory, which is
//! held by images that are being converted, and these wait for nothing.
//!
//! A panic in a worker ends the run: it becomes its error, and all workers end with their present action.

mod state;
mod worker;

#[cfg(test)]
mod tests;

use std::sync::{Condvar, Mutex, PoisonError};

use self::state::State;
use self::worker::Shared;
use super::close::Close;
use super::conversion::Conversion;
use super::memory::Pool;
use super::progress::Progress;
use super::stop::{Stop, resumable};
use super::timing::Activity;
use super::unit::UnitSink;
use super::workers::Workers;
use crate::error::{Error, Result};
use crate::panics::caught;

/// What the workers are told.
pub(super) struct Schedule<'a, C: Conversion> {
    pub conversion: &'a C,
    pub workers: &'a Workers,
    /// What tasks hold from being fed to being written.
    pub memory: Pool,
    pub progress: &'a Progress,
    pub stop: &'a Stop,
    /// Starts the sink of a unit.
    pub sink: &'a (dyn Fn(u32) -> Result<UnitSink> + Sync),
    /// With object storage: shards and units that are sent at a time.
    pub uploads: Option<usize>,
}

/// Units that could not be finished, with the reason: their sources could not be read.
pub(super) type FailedUnits = Vec<(u32, Error)>;

/// Does all `units`, in about this order.
///
/// # Errors
///
/// When output cannot be written, the run is stopped, or a thread panics. Failures to read sources only fail their unit.
pub(super) fn run<C: Conversion>(schedule: &Schedule<'_, C>, units: Vec<u32>) -> Result<FailedUnits> {
    let shared = Shared {
        schedule,
        state: Mutex::new(State::new(units, schedule.workers.count())),
        for_closing: Condvar::new(),
        scratches: Mutex::default(),
    };
    schedule.workers.scope(|scope| {
        shared.start_worker(&mut shared.lock(), scope);
        let close = Close { progress: schedule.progress, stop: schedule.stop };
        let closed = shared.closed(scope);
        match caught(|| match schedule.uploads {
            None => close.one_by_one(closed),
            Some(at_a_time) => close.several(closed, at_a_time),
        }) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => drop(shared.lock().fatal.get_or_insert(error)),
            Err(panic) => schedule.stop.report_bug(&panic.into_error("finishing shards")),
        }
    });
    let mut state = shared.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    schedule.progress.timing.add(Activity::Wait, state.idle_time());
    schedule.stop.bug().map_or(Ok(()), Err)?;
    if let Some(error) = state.fatal {
        return Err(resumable(error));
    }
    schedule.stop.check()?;
    if !state.is_done() {
        return Err(Error::internal("the workers ended before the units"));
    }
    state.failed.sort_by_key(|(unit, _)| *unit);
    Ok(state.failed)
}
