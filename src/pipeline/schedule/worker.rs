//! Workers, which execute the actions of the scheduler.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rayon::Scope;

use super::SchedulerContext;
use super::finalizer::Closed;
use super::state::{NumberedTask, OpenUnit, SchedulerState, UnitFailure, WorkerAction};
use crate::error::{Error, Result};
use crate::panics::caught;
use crate::pipeline::job::{Conversion, Converting, EngineUse, Feed};
use crate::pipeline::memory::Reservation;
use crate::pipeline::progress::{Activity, Event, EventLevel};
use crate::testing::panic_point;
use crate::writer::outcome::{ItemOutcome, Outcomes};
use crate::writer::stage::Finished;
use crate::writer::unit::UnitSink;

thread_local! {
    /// Whether a worker is on the stack of this thread.
    static HAS_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Scheduler of a run, shared by all its workers.
pub(super) struct Scheduler<'a, 'c, C: Conversion> {
    pub(super) context: &'a SchedulerContext<'c, C>,
    pub(super) state: Mutex<SchedulerState<'c, C::Task>>,
    /// Notified when there is something to finalize, and when a worker ends.
    pub(super) finalize_ready: Condvar,
    /// Scratches of workers that ended, reused by workers that start.
    pub(super) scratches: Mutex<Vec<C::Scratch>>,
}

impl<'c, C: Conversion> Scheduler<'_, 'c, C> {
    /// Starts a worker, if fewer are running than there are threads.
    pub(super) fn start_worker<'s>(&'s self, state: &mut SchedulerState<'c, C::Task>, scope: &Scope<'s>) {
        if state.add_worker() {
            scope.spawn(move |scope| self.work(scope));
        }
    }

    /// Returns the shards and units to finalize, in order, until all workers have ended. Taking one makes room for
    /// further writes.
    pub(super) fn closed<'s>(&'s self, scope: &Scope<'s>) -> impl Iterator<Item = Closed> {
        std::iter::from_fn(move || {
            let mut state = self.lock();
            while state.closed.is_empty() && state.has_workers() {
                state = self.finalize_ready.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let next = state.closed.pop_front()?;
            self.start_worker(&mut state, scope);
            Some(next)
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, SchedulerState<'c, C::Task>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work<'s>(&'s self, scope: &Scope<'s>) {
        // While this thread waited for segments of a document, it picked up another worker. That worker ends here: the
        // one below it on the stack takes further actions soon, so none is missed. This way, a thread has only one
        // document at a time in memory.
        if HAS_WORKER.replace(true) {
            self.end_worker(&mut self.lock());
            return;
        }
        let worked = caught(|| self.run_actions(scope));
        HAS_WORKER.set(false);
        if let Err(panic) = worked {
            self.context.stop.report_bug(&panic.into_error("converting"));
            self.end_worker(&mut self.lock());
        }
    }

    fn end_worker(&self, state: &mut SchedulerState<'c, C::Task>) {
        state.remove_worker();
        self.finalize_ready.notify_one();
    }

    fn run_actions<'s>(&'s self, scope: &Scope<'s>) {
        let kept = self.scratches().pop();
        let mut scratch = kept.unwrap_or_else(|| C::scratch(self.context.job, &self.context.memory));
        loop {
            let mut state = self.lock();
            let action = match self.context.stop.is_set() {
                true => None,
                false => state.next_action(&self.context.memory.tasks),
            };
            let Some(action) = action else {
                // Before the state is unlocked: the next change to it starts another worker.
                self.end_worker(&mut state);
                break;
            };
            // If there is another action, the new worker takes it.
            self.start_worker(&mut state, scope);
            drop(state);
            let result = match action {
                WorkerAction::Write { unit, sink, ready, finished } => {
                    self.write(unit, sink, ready, finished)
                }
                WorkerAction::Feed { unit, feed } => {
                    self.feed(unit, feed);
                    Ok(())
                }
                WorkerAction::Convert { unit, engine, task } => {
                    self.convert(unit, engine, task, &mut scratch);
                    Ok(())
                }
                WorkerAction::Open { unit, engine } => self.open(unit, engine),
            };
            if let Err(error) = result {
                // The records are produced by dsconvert, so an error in writing them is never a usage error.
                self.lock().fatal.get_or_insert(error.never_usage());
            }
        }
        self.scratches().push(scratch);
    }

    fn scratches(&self) -> MutexGuard<'_, Vec<C::Scratch>> {
        self.scratches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add_time(&self, activity: Activity, time: Duration) {
        self.context.progress.add_time(activity, time);
    }

    fn open(&self, unit: u32, engine: EngineUse) -> Result<()> {
        let started = Instant::now();
        let SchedulerContext { job, duplicates, .. } = self.context;
        let opened = (self.context.sink)(unit).map(|sink| (sink, C::feed(job, duplicates, unit, engine)));
        self.add_time(Activity::Read, started.elapsed());
        let mut state = self.lock();
        state.opening -= 1;
        let (sink, feed) = opened?;
        let (feed, failure) = match feed {
            Ok(feed) => (Some(feed), None),
            Err(error) => (None, Some(UnitFailure::Error(error))),
        };
        let open = OpenUnit {
            unit,
            exhausted: feed.is_none(),
            feed,
            waiting: VecDeque::new(),
            sink: Some(Box::new(sink)),
            fed: 0,
            written: 0,
            ready: BTreeMap::new(),
            engine,
            failure,
        };
        state.open.push(open);
        state.open.sort_by_key(|u| u.unit);
        Ok(())
    }

    fn feed(&self, unit: u32, mut feed: Box<dyn Feed<C::Task> + 'c>) {
        panic_point("feed");
        let started = Instant::now();
        let next = feed.next();
        self.add_time(Activity::Read, started.elapsed());
        let mut state = self.lock();
        let Some(open) = state.open.iter_mut().find(|u| u.unit == unit) else { return };
        match next {
            Ok(Some((task, bytes))) if open.failure.is_none() => {
                let held = self.context.memory.tasks.hold(bytes);
                open.waiting.push_back(NumberedTask { number: open.fed, task, held });
                open.fed += 1;
                open.feed = Some(feed);
            }
            other => {
                open.exhausted = true;
                if let Err(error) = other {
                    open.failure.get_or_insert(UnitFailure::Error(error));
                }
            }
        }
    }

    fn convert(&self, unit: u32, engine: EngineUse, task: NumberedTask<C::Task>, scratch: &mut C::Scratch) {
        let NumberedTask { number, task, held } = task;
        panic_point("convert");
        let mut outcomes = Outcomes::default();
        let started = Instant::now();
        let converted = C::convert(self.context.job, task, scratch, &mut outcomes);
        self.add_time(Activity::Transform, started.elapsed().saturating_sub(outcomes.reading));
        self.add_time(Activity::Read, outcomes.reading);
        // The outcomes may be larger than their input.
        let held = held.at_least(outcomes.memory_bytes());
        let mut state = self.lock();
        let Some(open) = state.open.iter_mut().find(|u| u.unit == unit) else { return };
        match converted {
            Ok(Converting::Done) => {}
            Ok(Converting::RedoUnit) if engine == EngineUse::Reference => {
                let error =
                    Error::internal(format!("the careful attempt at unit {unit} requested another attempt"));
                open.failure.get_or_insert(UnitFailure::Error(error));
            }
            Ok(Converting::RedoUnit) => drop(open.failure.get_or_insert(UnitFailure::Redo)),
            Err(error) => drop(open.failure.get_or_insert(UnitFailure::Error(error))),
        }
        open.ready.insert(number, (outcomes, held));
    }

    fn write(
        &self,
        unit: u32,
        mut sink: Box<UnitSink>,
        ready: Vec<(Outcomes, Reservation)>,
        finished: bool,
    ) -> Result<()> {
        panic_point("write");
        let started = Instant::now();
        let mut closed = Vec::new();
        let tasks = ready.len() as u64;
        for (outcomes, _held) in ready {
            self.report_progress(&outcomes);
            sink.write(outcomes, &mut closed)?;
        }
        self.add_time(Activity::Write, started.elapsed());
        // Before another worker can continue with the unit: its shards must be queued before its end.
        self.hand_over(closed.drain(..).map(Closed::shard));
        let mut state = self.lock();
        let Some(at) = state.open.iter().position(|u| u.unit == unit) else { return Ok(()) };
        let open = &mut state.open[at];
        open.written += tasks;
        if !finished || open.failure.is_some() {
            open.sink = Some(sink);
            return Ok(());
        }
        drop(state);
        let started = Instant::now();
        let records = sink.finish_stages(&mut closed)?;
        self.hand_over(closed.drain(..).map(Closed::shard));
        if records == Finished::NotYet {
            self.add_time(Activity::Write, started.elapsed());
            // Shards may have to be finalized before this unit continues, and the run may have to stop.
            if let Some(open) = self.lock().open.iter_mut().find(|u| u.unit == unit) {
                open.sink = Some(sink);
            }
            return Ok(());
        }
        self.lock().open.retain(|u| u.unit != unit);
        let unit = sink.close(&mut closed)?;
        self.add_time(Activity::Write, started.elapsed());
        self.hand_over(closed.into_iter().map(Closed::shard).chain([Closed::Unit(Box::new(unit))]));
        Ok(())
    }

    /// Queues files for the thread that waits for the disk.
    fn hand_over(&self, closed: impl Iterator<Item = Closed>) {
        self.lock().closed.extend(closed);
        self.finalize_ready.notify_one();
    }

    fn report_progress(&self, outcomes: &Outcomes) {
        let records = outcomes.list.iter().filter(|o| matches!(o, ItemOutcome::Converted(_))).count() as u64;
        let mut rejected = 0;
        for outcome in &outcomes.list {
            let ItemOutcome::Rejected { origin, reject, .. } = outcome else { continue };
            rejected += 1;
            self.context.progress.add_event(EventLevel::Rejects, || Event::Rejected {
                origin: origin.clone(),
                code: reject.code.name(),
                message: reject.message.clone(),
            });
        }
        self.context.progress.done(outcomes.list.len() as u64, outcomes.source_bytes, records, rejected);
    }
}
