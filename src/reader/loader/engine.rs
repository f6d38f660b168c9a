//! Threads that make batches ahead of who asks for them, and the queue that puts them in order.
//!
//! A thread draws a ticket when there is room, makes the batch of it, and puts it where it belongs. It always puts
//! something there, an error if need be, so whoever waits for a ticket gets an answer; a poisoned lock is used as if it
//! were not. Whoever drops the engine waits until each thread has finished the record it is at.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::assemble::{Assembler, Scratch};
use super::batch::Batch;
use super::schedule::{Rows, Schedule};
use super::state::LoaderState;
use crate::error::{Error, ErrorKind, Result};

/// A batch, and the state once it is handed out; `None` behind the end of the epoch.
pub(super) type Made = Option<(Batch, LoaderState)>;

/// The makers of the batches of one epoch.
pub(super) struct Engine {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Without threads: what the caller works with.
    own: Option<Box<Scratch>>,
    /// The process whose threads they are.
    process: u32,
}

struct Shared {
    assembler: Arc<Assembler>,
    schedule: Schedule,
    in_flight: u64,
    queue: Mutex<Queue>,
    /// There may be room for another batch.
    room: Condvar,
    /// There may be another batch.
    ready: Condvar,
    stop: AtomicBool,
}

/// Tickets, from drawn to taken.
#[derive(Default)]
struct Queue {
    drawn: u64,
    taken: u64,
    /// The first ticket that stands for no batch, once it is known.
    end: Option<u64>,
    made: BTreeMap<u64, Result<Made>>,
}

impl Engine {
    /// Starts `threads` threads that keep at most `in_flight` batches ready or in the making.
    pub(super) fn start(
        assembler: Arc<Assembler>,
        schedule: Schedule,
        threads: usize,
        in_flight: usize,
    ) -> Result<Self> {
        let shared = Arc::new(Shared {
            assembler,
            schedule,
            in_flight: in_flight as u64,
            queue: Mutex::new(Queue::default()),
            room: Condvar::new(),
            ready: Condvar::new(),
            stop: AtomicBool::new(false),
        });
        let own = (threads == 0).then(Box::<Scratch>::default);
        let mut engine = Self { shared, threads: Vec::new(), own, process: std::process::id() };
        for n in 0..threads.min(in_flight) {
            let shared = Arc::clone(&engine.shared);
            let thread = std::thread::Builder::new().name(format!("dsconvert-{n}"));
            match thread.spawn(move || shared.work()) {
                Ok(thread) => engine.threads.push(thread),
                // Fewer threads do it, too.
                Err(_) if n > 0 => break,
                Err(e) => {
                    return Err(Error::new(ErrorKind::Io, "cannot start a thread")
                        .caused_by(e)
                        .help("give the process more threads, or use a loader of 0 threads"));
                }
            }
        }
        Ok(engine)
    }

    /// Whether its threads are those of another process: a fork leaves them behind.
    pub(super) fn is_foreign(&self) -> bool {
        self.process != std::process::id()
    }

    /// Makes the engine believe that it went through a fork.
    #[cfg(test)]
    pub(super) fn pretend_fork(&mut self) {
        self.process = self.process.wrapping_add(1);
    }

    /// The next batch in order. `None` when it is not there by `deadline`.
    pub(super) fn take(&mut self, deadline: Option<Instant>) -> Option<Result<Made>> {
        if let Some(scratch) = &mut self.own {
            let mut queue = self.shared.lock();
            if queue.end.is_some_and(|end| queue.taken >= end) {
                return Some(Ok(None));
            }
            let ticket = queue.taken;
            queue.taken += 1;
            drop(queue);
            let made = self.shared.make(ticket, scratch);
            self.shared.lock().note_end(ticket, &made);
            return Some(made);
        }
        let mut queue = self.shared.lock();
        loop {
            let ticket = queue.taken;
            if queue.end.is_some_and(|end| ticket >= end) {
                return Some(Ok(None));
            }
            if let Some(made) = queue.made.remove(&ticket) {
                queue.taken += 1;
                drop(queue);
                self.shared.room.notify_one();
                return Some(made);
            }
            queue = match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                None => self.shared.ready.wait(queue).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => return None,
                Some(left) => {
                    self.shared.ready.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.is_foreign() {
            // There is nobody to wait for, and the lock may be held by a thread that is not here.
            std::mem::take(&mut self.threads).into_iter().for_each(std::mem::forget);
            std::mem::forget(Arc::clone(&self.shared));
            return;
        }
        // Under the lock, so that no thread is between its look at `stop` and its wait.
        let queue = self.shared.lock();
        self.shared.stop.store(true, Ordering::Relaxed);
        drop(queue);
        self.shared.room.notify_all();
        for thread in std::mem::take(&mut self.threads) {
            // A panic was caught and reported where it happened.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut scratch = Scratch::default();
        while let Some(ticket) = self.draw() {
            let made = self.make(ticket, &mut scratch);
            let mut queue = self.lock();
            queue.note_end(ticket, &made);
            queue.made.insert(ticket, made);
            drop(queue);
            self.ready.notify_all();
        }
    }

    /// The next ticket, when there is room for its batch; `None` at the end.
    fn draw(&self) -> Option<u64> {
        let mut queue = self.lock();
        loop {
            if self.stop.load(Ordering::Relaxed) || queue.end.is_some_and(|end| queue.drawn >= end) {
                return None;
            }
            if queue.drawn < queue.taken + self.in_flight {
                queue.drawn += 1;
                return Some(queue.drawn - 1);
            }
            queue = self.room.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Makes the batch of `ticket`. A panic on the way, which would be a defect of a decoder, is an error.
    fn make(&self, ticket: u64, scratch: &mut Scratch) -> Result<Made> {
        let made = catch_unwind(AssertUnwindSafe(|| {
            let Some(task) = self.schedule.task(ticket)? else { return Ok(None) };
            let batch = match &task.rows {
                Rows::Records(batch) => self.assembler.records(task.id, batch, scratch, &self.stop)?,
                Rows::Packed { rows, filler_rows } => self.assembler.packed(task.id, rows, *filler_rows)?,
            };
            Ok(Some((batch, task.after)))
        }));
        made.unwrap_or_else(|_| {
            *scratch = Scratch::default();
            let what = format!("a thread of the loader failed at its batch {ticket}");
            Err(Error::new(ErrorKind::Unsupported, what)
                .help("this is a defect of dsconvert: please report it"))
        })
    }
}

impl Queue {
    fn note_end(&mut self, ticket: u64, made: &Result<Made>) {
        if matches!(made, Ok(None)) {
            self.end = Some(self.end.map_or(ticket, |end| end.min(ticket)));
        }
    }
}
