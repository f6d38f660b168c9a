//! Workers: feed, convert, write in order.
//!
//! Every worker does whatever is most urgent: write outcomes that are next in order, else see to it that a task of the
//! oldest unit that has room waits for each worker, else convert such a task, else open another unit. So one thread alone
//! does the whole job without handing anything over, several threads share one unit without waiting for one of them to
//! read, and when writing one unit becomes the bottleneck the next one is begun.
//!
//! Order is kept by numbers: the tasks of a unit are counted as they are fed, and only the worker that holds the
//! unit's sink writes, in that order. Memory is bounded by the bytes that tasks hold from being fed to being written;
//! the tasks of a unit are fed in order, so the one that must be written next always has its share already.
//!
//! A panic in any of these threads ends the run: it becomes its error, and all threads end at their next step.
//!
//! Waiting for the disk (fsync, rename) happens on one more thread, and for object storage on a few. A task that is so long that others run out of work
//! is told how many these are ([`Conversion::scratch`]), and may have as many threads help.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::close::{Close, Closing};
use super::conversion::{Conversion, Converting, Feed};
use super::events::{Event, EventLevel};
use super::memory::{Pool, Reservation};
use super::outcome::{Outcome, Outcomes};
use super::progress::{Progress, Stop, resumable};
use super::testing::panic_point;
use super::timing::{Stage, Timing};
use super::unit::UnitSink;
use crate::error::{Error, ErrorKind, Result};
use crate::panics::{Panic, caught};
use crate::threads;

/// Tasks of one unit that may be under way or waiting to be written, per thread: so many can be done while one is that
/// takes long. Memory has its own limit.
const WINDOW_PER_THREAD: usize = 16;

/// A further unit is begun beside the ones under way for this many threads.
const THREADS_PER_UNIT: usize = 4;

/// Closed shards that may wait for the disk before the workers wait too.
const CLOSING_QUEUE: usize = 4;

/// What the workers are told.
pub(super) struct Schedule<'a, C: Conversion> {
    pub conversion: &'a C,
    pub threads: usize,
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
        state: Mutex::new(State { todo: units.into(), ..State::default() }),
        changed: Condvar::new(),
        idle: Arc::default(),
    };
    let (closing, closed) = sync_channel(CLOSING_QUEUE);
    std::thread::scope(|scope| -> Result<()> {
        let close = || close_all(&shared, schedule, closed);
        threads::named("close").spawn_scoped(scope, close).map_err(threads::refused)?;
        threads::start_up_to(schedule.threads, |_| {
            let worker = Worker { schedule, shared: &shared, closing: closing.clone() };
            threads::named("worker").spawn_scoped(scope, move || worker.run_to_end())
        })?;
        drop(closing);
        Ok(())
    })?;
    let state = shared.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    schedule.stop.bug().map_or(Ok(()), Err)?;
    if let Some(error) = state.fatal {
        return Err(resumable(error));
    }
    schedule.stop.check()?;
    if !(state.open.is_empty() && state.todo.is_empty()) {
        return Err(Error::internal("the workers ended before the units"));
    }
    let mut failed = state.failed;
    failed.sort_by_key(|(unit, _)| *unit);
    Ok(failed)
}

impl<T> Shared<'_, T> {
    /// Ends the run because of a bug.
    fn end_by(&self, panic: Panic, doing: &str, stop: &Stop) {
        stop.report_bug(&panic.into_error(doing));
        // Under the lock, so that no worker is between its look at `stop` and its wait.
        drop(self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }
}

struct Shared<'c, T> {
    state: Mutex<State<'c, T>>,
    changed: Condvar,
    /// Workers that wait.
    idle: Arc<AtomicUsize>,
}

struct State<'c, T> {
    todo: VecDeque<u32>,
    open: Vec<OpenUnit<'c, T>>,
    /// Units being opened right now.
    opening: usize,
    failed: FailedUnits,
    fatal: Option<Error>,
}

impl<T> Default for State<'_, T> {
    fn default() -> Self {
        Self { todo: VecDeque::new(), open: Vec::new(), opening: 0, failed: Vec::new(), fatal: None }
    }
}

struct OpenUnit<'c, T> {
    unit: u32,
    /// `None` while a worker feeds from it, and at the end.
    feed: Option<Box<dyn Feed<T> + 'c>>,
    exhausted: bool,
    /// Tasks that are not started, in order.
    waiting: VecDeque<Numbered<T>>,
    /// `None` while a worker writes.
    sink: Option<Box<UnitSink>>,
    /// Number of the next task to be fed, and to be written.
    fed: u64,
    written: u64,
    /// Outcomes that wait for earlier ones, with what their tasks hold.
    ready: BTreeMap<u64, (Outcomes, Reservation)>,
    careful: bool,
    failure: Option<Failure>,
}

struct Numbered<T> {
    number: u64,
    task: T,
    held: Reservation,
}

enum Failure {
    Error(Error),
    Redo,
}

impl<T> OpenUnit<'_, T> {
    fn is_writable(&self) -> bool {
        self.sink.is_some() && self.ready.contains_key(&self.written)
    }

    fn is_finished(&self) -> bool {
        self.sink.is_some() && self.exhausted && self.fed == self.written
    }

    fn under_way(&self) -> usize {
        (self.fed - self.written) as usize
    }
}

/// What a worker does next.
enum Action<'c, T> {
    Write { unit: u32, sink: Box<UnitSink>, ready: Vec<(Outcomes, Reservation)>, finished: bool },
    Feed { unit: u32, feed: Box<dyn Feed<T> + 'c> },
    Convert { unit: u32, careful: bool, task: Numbered<T> },
    Open { unit: u32, careful: bool },
    Wait,
    End,
}

struct Worker<'a, 'c, C: Conversion> {
    schedule: &'a Schedule<'c, C>,
    shared: &'a Shared<'c, C::Task>,
    closing: SyncSender<Closing>,
}

impl<'c, C: Conversion> Worker<'_, 'c, C> {
    /// Works until the end of the run. A panic ends the run.
    fn run_to_end(self) {
        if let Err(panic) = caught(|| self.run()) {
            self.shared.end_by(panic, "converting", self.schedule.stop);
        }
    }

    fn run(&self) {
        let mut scratch = self.schedule.conversion.scratch(&self.shared.idle);
        loop {
            let mut state = self.lock();
            let action = loop {
                match self.next_action(&mut state) {
                    Action::Wait => {
                        self.shared.idle.fetch_add(1, Ordering::Relaxed);
                        let timer = self.timing().start();
                        state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                        self.timing().end_stage(Stage::Wait, timer);
                        self.shared.idle.fetch_sub(1, Ordering::Relaxed);
                    }
                    action => break action,
                }
            };
            drop(state);
            let result = match action {
                Action::End => return self.tell(),
                Action::Wait => Ok(()),
                Action::Write { unit, sink, ready, finished } => self.write(unit, sink, ready, finished),
                Action::Feed { unit, feed } => {
                    self.feed(unit, feed);
                    Ok(())
                }
                Action::Convert { unit, careful, task } => {
                    self.convert(unit, careful, task, &mut scratch);
                    Ok(())
                }
                Action::Open { unit, careful } => self.open(unit, careful),
            };
            if let Err(error) = result {
                // What is written was made here: if it does not fit, that is no fault of the user.
                self.lock().fatal.get_or_insert(error.never_usage());
            }
            self.tell();
        }
    }

    /// Has those that wait look again. A worker counts as waiting before it lets go of the state.
    fn tell(&self) {
        if self.shared.idle.load(Ordering::Relaxed) > 0 {
            self.shared.changed.notify_all();
        }
    }

    fn timing(&self) -> &Timing {
        &self.schedule.progress.timing
    }

    fn lock(&self) -> MutexGuard<'_, State<'c, C::Task>> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_action(&self, state: &mut State<'c, C::Task>) -> Action<'c, C::Task> {
        if state.fatal.is_some() || self.schedule.stop.is_set() {
            return Action::End;
        }
        if let Some(action) = self.drop_failed(state) {
            return action;
        }
        if let Some(open) = state.open.iter_mut().find(|u| u.is_writable() || u.is_finished()) {
            let mut ready = Vec::new();
            while let Some(outcomes) = open.ready.remove(&(open.written + ready.len() as u64)) {
                ready.push(outcomes);
            }
            let finished = open.exhausted && open.fed == open.written + ready.len() as u64;
            if let Some(sink) = open.sink.take() {
                return Action::Write { unit: open.unit, sink, ready, finished };
            }
        }
        let window = self.schedule.threads * WINDOW_PER_THREAD;
        let has_room = |feed: &dyn Feed<C::Task>| self.schedule.memory.has_room(feed.next_bytes());
        for open in state.open.iter_mut().filter(|open| open.failure.is_none()) {
            if open.waiting.len() < self.schedule.threads
                && open.under_way() < window
                && let Some(feed) = open.feed.take_if(|feed| has_room(feed.as_ref()))
            {
                return Action::Feed { unit: open.unit, feed };
            }
            if let Some(task) = open.waiting.pop_front() {
                return Action::Convert { unit: open.unit, careful: open.careful, task };
            }
        }
        let active = state.opening + state.open.iter().filter(|u| !u.exhausted).count();
        if active < 1 + self.schedule.threads / THREADS_PER_UNIT
            && let Some(unit) = state.todo.pop_front()
        {
            state.opening += 1;
            return Action::Open { unit, careful: false };
        }
        if state.open.is_empty() && state.opening == 0 && state.todo.is_empty() {
            Action::End
        } else {
            Action::Wait
        }
    }

    /// Takes a unit that failed off the list once no worker holds a part of it.
    fn drop_failed(&self, state: &mut State<'c, C::Task>) -> Option<Action<'c, C::Task>> {
        let at = state.open.iter().position(|u| {
            let at_rest = (u.ready.len() + u.waiting.len()) as u64;
            let idle = u.fed == u.written + at_rest && (u.feed.is_some() || u.exhausted);
            u.failure.is_some() && u.sink.is_some() && idle
        })?;
        let open = state.open.remove(at);
        match open.failure {
            Some(Failure::Redo) => {
                state.opening += 1;
                Some(Action::Open { unit: open.unit, careful: true })
            }
            Some(Failure::Error(error)) if error.kind() == ErrorKind::Internal => {
                state.fatal.get_or_insert(error);
                Some(Action::End)
            }
            Some(Failure::Error(error)) => {
                state.failed.push((open.unit, error));
                None
            }
            None => None,
        }
    }

    fn open(&self, unit: u32, careful: bool) -> Result<()> {
        let timer = self.timing().start();
        let opened =
            (self.schedule.sink)(unit).map(|sink| (sink, self.schedule.conversion.open(unit, careful)));
        self.timing().end_stage(Stage::Read, timer);
        let mut state = self.lock();
        state.opening -= 1;
        let (sink, feed) = opened?;
        let (feed, failure) = match feed {
            Ok(feed) => (Some(feed), None),
            Err(error) => (None, Some(Failure::Error(error))),
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
            careful,
            failure,
        };
        state.open.push(open);
        state.open.sort_by_key(|u| u.unit);
        Ok(())
    }

    fn feed(&self, unit: u32, mut feed: Box<dyn Feed<C::Task> + 'c>) {
        panic_point("feed");
        let timer = self.timing().start();
        let next = feed.next();
        self.timing().end_stage(Stage::Read, timer);
        let mut state = self.lock();
        let Some(open) = state.open.iter_mut().find(|u| u.unit == unit) else { return };
        match next {
            Ok(Some((task, bytes))) if open.failure.is_none() => {
                let held = self.schedule.memory.hold(bytes);
                open.waiting.push_back(Numbered { number: open.fed, task, held });
                open.fed += 1;
                open.feed = Some(feed);
            }
            other => {
                open.exhausted = true;
                if let Err(error) = other {
                    open.failure.get_or_insert(Failure::Error(error));
                }
            }
        }
    }

    fn convert(&self, unit: u32, careful: bool, task: Numbered<C::Task>, scratch: &mut C::Scratch) {
        let Numbered { number, task, held } = task;
        panic_point("convert");
        let mut outcomes = Outcomes::default();
        let timer = self.timing().start();
        let converted = self.schedule.conversion.convert(task, scratch, &mut outcomes);
        self.timing().add(Stage::Transform, timer.elapsed().saturating_sub(outcomes.reading));
        self.timing().add(Stage::Read, outcomes.reading);
        // The outcomes may be larger than what they were made of.
        let held = held.at_least(outcomes.memory_bytes());
        let mut state = self.lock();
        let Some(open) = state.open.iter_mut().find(|u| u.unit == unit) else { return };
        match converted {
            Ok(Converting::Done) => {}
            Ok(Converting::RedoUnit) if careful => {
                let error = Error::internal(format!("the careful attempt at unit {unit} is to be redone"));
                open.failure.get_or_insert(Failure::Error(error));
            }
            Ok(Converting::RedoUnit) => drop(open.failure.get_or_insert(Failure::Redo)),
            Err(error) => drop(open.failure.get_or_insert(Failure::Error(error))),
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
        let timer = self.timing().start();
        let mut closed = Vec::new();
        let tasks = ready.len() as u64;
        for (outcomes, _held) in ready {
            self.count(&outcomes);
            sink.write(outcomes, &mut closed)?;
        }
        self.timing().end_stage(Stage::Write, timer);
        // Handed over before anyone else can go on with the unit: its shards go before its end.
        self.hand_over(closed.drain(..).map(Closing::shard));
        let mut state = self.lock();
        let Some(at) = state.open.iter().position(|u| u.unit == unit) else { return Ok(()) };
        let open = &mut state.open[at];
        open.written += tasks;
        if finished && open.failure.is_none() {
            state.open.remove(at);
            drop(state);
            let timer = self.timing().start();
            let end = sink.close(&mut closed)?;
            self.timing().end_stage(Stage::Write, timer);
            self.hand_over(closed.into_iter().map(Closing::shard).chain([Closing::Unit(Box::new(end))]));
        } else {
            open.sink = Some(sink);
        }
        Ok(())
    }

    /// Gives files to the thread that waits for the disk. It is gone only after a failure, which is already known.
    fn hand_over(&self, messages: impl Iterator<Item = Closing>) {
        for message in messages {
            if self.closing.send(message).is_err() {
                break;
            }
        }
    }

    fn count(&self, outcomes: &Outcomes) {
        let records = outcomes.list.iter().filter(|o| matches!(o, Outcome::Converted(_))).count() as u64;
        let mut rejected = 0;
        for outcome in &outcomes.list {
            let Outcome::Rejected { origin, reject, .. } = outcome else { continue };
            rejected += 1;
            self.schedule.progress.events.add(EventLevel::Rejects, || Event::Rejected {
                origin: origin.clone(),
                code: reject.code.name(),
                message: reject.message.clone(),
            });
        }
        self.schedule.progress.done(outcomes.list.len() as u64, outcomes.source_bytes, records, rejected);
    }
}

fn close_all<C: Conversion>(
    shared: &Shared<'_, C::Task>,
    schedule: &Schedule<'_, C>,
    closing: Receiver<Closing>,
) {
    let close = Close { progress: schedule.progress, stop: schedule.stop };
    match caught(|| match schedule.uploads {
        None => close.one_by_one(closing),
        Some(at_a_time) => close.several(closing, at_a_time),
    }) {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            shared.state.lock().unwrap_or_else(PoisonError::into_inner).fatal.get_or_insert(error);
            shared.changed.notify_all();
        }
        Err(panic) => shared.end_by(panic, "finishing shards", schedule.stop),
    }
}

#[cfg(test)]
mod tests;
