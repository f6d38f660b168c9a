//! The prefetch engine: threads make batches ahead of the caller, and a queue puts them in order.
//!
//! A thread draws a ticket when there is room, makes its batch, and stores the batch or an error under the ticket, so
//! waiting for a ticket always ends. A poisoned lock is used like any other. A thread that panics between two batches
//! leaves an error that every later call returns. Dropping the engine waits until each thread has finished its record;
//! requests to object storage are canceled.
//!
//! Making a batch of tokens takes about as long as waking a thread. A caller whose next batch is not ready therefore
//! makes batches, too, instead of sleeping.
//!
//! When all tickets of an epoch are drawn, threads continue with those of the next one, so that its first batches are
//! ready when it starts. They are not returned before [`BatchEngine::next_epoch`].

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dsconvert_dataset::error::{Error, ErrorKind, Result};
use dsconvert_dataset::panics::caught;
use dsconvert_dataset::storage::interrupt::interruptible;
use dsconvert_dataset::threads;

use super::BatchFinisher;
use super::assemble::Assembler;
use super::batch::Batch;
use super::image::DecodeScratch;
use super::schedule::{BatchTask, LoaderCounts, Schedule};
use super::state::LoaderState;
use crate::batch::{BatchRows, Layout, StepPlan};

/// Makes batches from one position on.
pub(super) struct BatchEngine {
    shared: Arc<EngineState>,
    threads: Vec<JoinHandle<()>>,
    /// Buffers of the calling thread.
    scratch: Box<DecodeScratch>,
    /// Whether the caller makes batches instead of waiting. Without threads, it makes all of them.
    helps: bool,
    /// Without threads: the batch that was interrupted, with its schedule. It is made again.
    interrupted: Option<(Arc<Schedule>, Box<BatchTask>)>,
    /// Id of the process that started the threads.
    process: u32,
}

struct EngineState {
    assembler: Arc<Assembler>,
    finisher: Option<Arc<dyn BatchFinisher>>,
    plan: Arc<dyn StepPlan>,
    layout: Layout,
    /// Maximum number of batches that are ready or in progress.
    in_flight: u64,
    queue: Mutex<Queue>,
    /// Notified when there may be room for another batch.
    room: Condvar,
    /// Notified when there may be another batch.
    ready: Condvar,
    stop: AtomicBool,
    /// The message of a panic outside a batch.
    broken: OnceLock<String>,
}

impl BatchEngine {
    /// Starts threads that make the batches from the position `at` on.
    pub(super) fn start(
        counts: &LoaderCounts,
        finisher: Option<Arc<dyn BatchFinisher>>,
        at: LoaderState,
    ) -> Result<Self> {
        let (plan, assembler) = (Arc::clone(&counts.plan), Arc::clone(&counts.assembler));
        let options = assembler.options();
        let (layout, threads, in_flight) = (options.layout, options.threads, options.in_flight());
        let first = Tickets::new(Schedule::new(Arc::clone(&plan), at, layout)?);
        let shared = Arc::new(EngineState {
            assembler,
            finisher,
            plan,
            layout,
            in_flight: in_flight as u64,
            queue: Mutex::new(Queue { current: first, next: None }),
            room: Condvar::new(),
            ready: Condvar::new(),
            stop: AtomicBool::new(false),
            broken: OnceLock::new(),
        });
        // A finisher may take long, so the caller must not start a later batch while the next one is nearly ready.
        // Nor must it wait for object storage, because callers check for signals between their waits.
        let can_help = shared.assembler.is_light() && !shared.assembler.source().is_remote();
        let helps = threads == 0 || (can_help && shared.finisher.is_none());
        let mut engine = Self {
            shared,
            threads: Vec::new(),
            scratch: Box::default(),
            helps,
            interrupted: None,
            process: std::process::id(),
        };
        engine.threads = threads::start_up_to(threads.min(in_flight), |n| {
            let shared = Arc::clone(&engine.shared);
            threads::named(&format!("dsconvert-{n}")).spawn(move || shared.run_thread())
        })
        .map_err(|e| {
            e.help("raise the thread limit of the process, or set `num_threads` to 0 (in Rust, `threads`)")
        })?;
        Ok(engine)
    }

    /// Returns whether the threads belong to another process: a fork does not copy threads.
    pub(super) fn is_foreign(&self) -> bool {
        self.process != std::process::id()
    }

    /// Makes the engine behave as after a fork.
    #[cfg(test)]
    pub(super) fn pretend_fork(&mut self) {
        self.process = self.process.wrapping_add(1);
    }

    /// Returns the next batch of the epoch, in order, or `None` if it is not ready by `deadline`.
    pub(super) fn take(&mut self, deadline: Option<Instant>) -> Option<TicketResult> {
        let Self { shared, threads, scratch, interrupted, .. } = self;
        let mut queue = shared.lock();
        loop {
            let tickets = &mut queue.current;
            if tickets.is_over() {
                return Some(Ok(None));
            }
            if let Some(made) = tickets.made.remove(&tickets.taken) {
                tickets.taken += 1;
                drop(queue);
                shared.room.notify_one();
                return Some(made);
            }
            if let Some(bug) = shared.broken.get() {
                return Some(Err(FailedBatch { error: Error::internal(bug), task: None }));
            }
            if self.helps && !tickets.is_drawn() && queue.in_flight() < shared.in_flight {
                let (schedule, ticket) = queue.current.draw();
                drop(queue);
                // A schedule returns the task of a ticket only once.
                let again = interrupted.take().filter(|(other, _)| Arc::ptr_eq(other, &schedule));
                let made = shared.make(&schedule, ticket, again.map(|(_, task)| *task), scratch);
                queue = shared.lock();
                let made = match made {
                    // Other threads cannot be interrupted, so with threads, an error of this kind is like any other.
                    // An exception of a signal handler may have ended the batch, which can then be made again.
                    Err(FailedBatch { error, task })
                        if threads.is_empty() && matches!(error.kind(), ErrorKind::Interrupted(_)) =>
                    {
                        queue.current.put_back();
                        *interrupted = task.map(|task| (schedule, task));
                        return Some(Err(FailedBatch { error, task: None }));
                    }
                    made => made,
                };
                // Never returned: the batch belongs to the current epoch, which only this thread can leave.
                shared.hand_in(&mut queue, &schedule, ticket, made);
                continue;
            }
            queue = match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                None => shared.ready.wait(queue).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => return None,
                Some(left) => {
                    shared.ready.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Leaves the current epoch and continues at the start of the next one, with the batches that are ready, if that is
    /// `epoch`. Returns whether it did.
    pub(super) fn next_epoch(&mut self, epoch: u64) -> bool {
        if self.is_foreign() {
            return false;
        }
        let mut queue = self.shared.lock();
        queue.open_next(&self.shared.plan, self.shared.layout);
        let Some(next) = queue.next.take_if(|next| next.schedule.epoch() == epoch) else { return false };
        let previous = std::mem::replace(&mut queue.current, next);
        drop(queue);
        self.shared.room.notify_all();
        drop(previous);
        true
    }

    /// Returns the number of ready batches of each epoch in progress.
    #[cfg(test)]
    pub(super) fn ready(&self) -> Vec<(u64, usize)> {
        let queue = self.shared.lock();
        queue.epochs().map(|tickets| (tickets.schedule.epoch(), tickets.made.len())).collect()
    }
}

impl Drop for BatchEngine {
    fn drop(&mut self) {
        if self.is_foreign() {
            // There are no threads to wait for, and the lock may be held by a thread of the parent.
            std::mem::take(&mut self.threads).into_iter().for_each(std::mem::forget);
            std::mem::forget(Arc::clone(&self.shared));
            return;
        }
        // Under the lock, so that no thread is between its check of `stop` and its wait.
        let queue = self.shared.lock();
        self.shared.stop.store(true, Ordering::Relaxed);
        drop(queue);
        self.shared.room.notify_all();
        // A finisher may drop the loader. Its thread cannot wait for itself; it ends after its batch.
        let own = std::thread::current().id();
        for thread in std::mem::take(&mut self.threads).into_iter().filter(|t| t.thread().id() != own) {
            // A panic was caught and reported where it happened.
            let _ = thread.join();
        }
    }
}

impl EngineState {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does the work of one thread.
    fn run_thread(self: &Arc<Self>) {
        match &self.finisher {
            Some(finisher) => finisher.run_thread(&mut || self.work_to_end()),
            None => self.work_to_end(),
        }
    }

    /// Works until it is stopped. A panic outside a batch breaks the loader.
    fn work_to_end(self: &Arc<Self>) {
        let state = Arc::clone(self);
        // Stopping also ends requests to object storage, which may be retried for minutes.
        let work = || interruptible(move || state.stop.load(Ordering::Relaxed), || self.work());
        if let Err(panic) = caught(work) {
            let error = panic.into_error("planning the batches of a loader");
            let _ = self.broken.set(error.to_string());
            // Under the lock, so that no caller is between its check of `broken` and its wait.
            drop(self.lock());
            self.ready.notify_all();
        }
    }

    fn work(&self) {
        let mut scratch = DecodeScratch::default();
        while let Some((schedule, ticket)) = self.draw() {
            let made = self.make(&schedule, ticket, None, &mut scratch);
            let mut queue = self.lock();
            let stale = self.hand_in(&mut queue, &schedule, ticket, made);
            let is_next = queue.current.is_over() || queue.current.made.contains_key(&queue.current.taken);
            drop(queue);
            drop(stale);
            if is_next {
                self.ready.notify_one(); // only one caller can wait: it has exclusive access to the loader
            }
        }
    }

    /// Stores a result under its ticket, or the end of the epoch if there is no batch. Returns the result if the loader has
    /// left its epoch.
    fn hand_in(
        &self,
        queue: &mut Queue,
        schedule: &Arc<Schedule>,
        ticket: u64,
        made: TicketResult,
    ) -> Option<TicketResult> {
        match (queue.tickets(schedule), made) {
            (Some(tickets), Ok(None)) => {
                tickets.end = Some(tickets.end.map_or(ticket, |end| end.min(ticket)));
                // Tickets after the end take no room.
                self.room.notify_all();
                None
            }
            (Some(tickets), made) => tickets.made.insert(ticket, made),
            (None, made) => Some(made),
        }
    }

    /// Waits for room for another batch and draws its ticket. Returns `None` when the engine stops.
    fn draw(&self) -> Option<(Arc<Schedule>, u64)> {
        #[cfg(test)]
        assert!(!self.assembler.panic_between_batches, "deliberate test failure");
        let mut queue = self.lock();
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return None;
            }
            if queue.in_flight() < self.in_flight {
                if queue.current.is_drawn() {
                    queue.open_next(&self.plan, self.layout);
                }
                if let Some(tickets) = queue.epochs_mut().find(|tickets| !tickets.is_drawn()) {
                    return Some(tickets.draw());
                }
            }
            queue = self.room.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Makes the batch of `ticket`, whose `task` is known if it is made again. A panic, which would be a defect of a
    /// decoder, becomes an error.
    fn make(
        &self,
        schedule: &Schedule,
        ticket: u64,
        mut task: Option<BatchTask>,
        scratch: &mut DecodeScratch,
    ) -> TicketResult {
        let made = caught(|| {
            let task = match &mut task {
                Some(task) => task,
                none => {
                    let Some(found) = schedule.task(ticket)? else { return Ok(None) };
                    none.insert(found)
                }
            };
            let batch = match &task.rows {
                BatchRows::Records { batch, epochs } => {
                    self.assembler.records(task.id, batch, epochs, scratch, &self.stop)?
                }
                BatchRows::Packed { rows, filler_rows } => {
                    self.assembler.packed(task.id, rows, *filler_rows, scratch, &self.stop)?
                }
            };
            match &self.finisher {
                Some(finisher) if !self.stop.load(Ordering::Relaxed) => finisher.finish(batch).map(Some),
                _ => Ok(Some(batch)),
            }
        });
        let made = made.unwrap_or_else(|panic| {
            *scratch = DecodeScratch::default();
            Err(panic.into_error(&format!("making batch {ticket} of a loader")))
        });
        match made {
            Ok(batch) => Ok(batch.zip(task.map(|task| task.after))),
            Err(error) => Err(FailedBatch { error, task: task.map(Box::new) }),
        }
    }
}

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
struct Queue {
    current: Tickets,
    next: Option<Tickets>,
}

/// The tickets of one epoch, from drawn to taken.
struct Tickets {
    schedule: Arc<Schedule>,
    drawn: u64,
    taken: u64,
    /// The first ticket without a batch, once it is known.
    end: Option<u64>,
    made: BTreeMap<u64, TicketResult>,
}

impl Queue {
    fn epochs(&self) -> impl Iterator<Item = &Tickets> {
        std::iter::once(&self.current).chain(&self.next)
    }

    fn epochs_mut(&mut self) -> impl Iterator<Item = &mut Tickets> {
        std::iter::once(&mut self.current).chain(&mut self.next)
    }

    /// Returns the number of batches that are ready or in progress.
    fn in_flight(&self) -> u64 {
        self.epochs().map(Tickets::in_flight).sum()
    }

    /// Opens the epoch after the current one. A failure is returned to the caller that requests that epoch.
    fn open_next(&mut self, plan: &Arc<dyn StepPlan>, layout: Layout) {
        let Some(epoch) = self.current.schedule.epoch().checked_add(1) else { return };
        if self.next.is_none() {
            let start = LoaderState::start(&**plan, Some(self.current.schedule.start()), epoch);
            let schedule = start.and_then(|at| Schedule::new(Arc::clone(plan), at, layout));
            self.next = schedule.ok().map(Tickets::new);
        }
    }

    /// Returns the tickets of `schedule`, or `None` if the loader has left its epoch.
    fn tickets(&mut self, schedule: &Arc<Schedule>) -> Option<&mut Tickets> {
        self.epochs_mut().find(|tickets| Arc::ptr_eq(&tickets.schedule, schedule))
    }
}

impl Tickets {
    fn new(schedule: Schedule) -> Self {
        Self { schedule: Arc::new(schedule), drawn: 0, taken: 0, end: None, made: BTreeMap::new() }
    }

    /// Draws the next ticket and returns it with its schedule.
    fn draw(&mut self) -> (Arc<Schedule>, u64) {
        self.drawn += 1;
        (Arc::clone(&self.schedule), self.drawn - 1)
    }

    /// Undoes the last draw.
    fn put_back(&mut self) {
        self.drawn = self.drawn.saturating_sub(1);
    }

    /// Returns whether all batches were taken.
    fn is_over(&self) -> bool {
        self.end.is_some_and(|end| self.taken >= end)
    }

    /// Returns whether all batches are ready or in progress.
    fn is_drawn(&self) -> bool {
        self.end.is_some_and(|end| self.drawn >= end)
    }

    fn in_flight(&self) -> u64 {
        self.end.map_or(self.drawn, |end| self.drawn.min(end)).saturating_sub(self.taken)
    }
}
