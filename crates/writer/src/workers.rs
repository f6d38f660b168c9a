//! The compute threads: one pool for all steps of a run.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};

use rayon::{Scope, ThreadBuilder, ThreadPool, ThreadPoolBuilder};

use super::stop::Stop;
use crate::error::Result;
use crate::testing::panic_point;
use crate::{panics, threads};

/// A thread pool that finds duplicates, converts, encodes segments of long documents, and checks finished files.
///
/// A task never waits for work that another task has yet to start: a waiting thread executes other tasks meanwhile, on
/// its own stack.
pub struct Workers(ThreadPool);

impl Workers {
    /// Starts `count` threads, at least one; fewer if the system does not allow that many.
    ///
    /// # Errors
    ///
    /// Fails if the system allows none.
    pub fn start(count: usize) -> Result<Self> {
        // Threads are started before the pool, because building a pool fails if a single thread is refused. Each waits
        // for its role in the pool.
        let started = threads::start_up_to(count.max(1), |ordinal| {
            let (sender, receiver) = mpsc::channel::<ThreadBuilder>();
            threads::named(&format!("worker-{ordinal}"))
                .spawn(move || receiver.recv().map(ThreadBuilder::run))?;
            Ok(sender)
        })?;
        let mut senders = started.iter();
        ThreadPoolBuilder::new()
            .num_threads(started.len())
            .spawn_handler(|thread| {
                let sent = senders.next().map(|sender| sender.send(thread));
                sent.and_then(|sent| sent.ok()).ok_or_else(|| std::io::ErrorKind::WouldBlock.into())
            })
            .build()
            .map(Self)
            .map_err(|error| threads::refused(std::io::Error::other(error)))
    }

    /// Returns the number of threads.
    pub fn count(&self) -> usize {
        self.0.current_num_threads()
    }

    /// Calls `first` on the current thread, which is not part of the pool, and returns after all tasks spawned in the
    /// scope have ended.
    pub fn scope<'s, R>(&self, first: impl FnOnce(&Scope<'s>) -> R) -> R {
        self.0.in_place_scope(first)
    }

    /// Runs `work` on every thread until all have returned. `doing` describes the work in the error for a panic. `work`
    /// should check `stop` between its steps: after a panic in one thread, the others end there.
    ///
    /// # Errors
    ///
    /// Returns the first error of a thread, including panics.
    pub fn on_all(&self, doing: &str, stop: &Stop, work: impl Fn() -> Result<()> + Sync) -> Result<()> {
        let results = self.0.broadcast(|_| contained(doing, stop, &work));
        // All threads have ended, even if the first one failed.
        stop.bug().map_or(Ok(()), Err)?;
        results.into_iter().collect()
    }

    /// Calls `each` with all `items` on the threads of the pool, in any order.
    ///
    /// # Errors
    ///
    /// As [`Self::on_all`].
    pub fn for_all<T: Sync>(
        &self,
        items: &[T],
        doing: &str,
        stop: &Stop,
        each: impl Fn(&T) -> Result<()> + Sync,
    ) -> Result<()> {
        let next = AtomicUsize::new(0);
        self.on_all(doing, stop, || take_all(items, &next, stop, &each))
    }
}

/// Number of threads for many small files or requests. They mostly wait for a file system or the network rather than use
/// a processor.
const IO_THREADS: usize = 16;

/// Number of results that [`in_order`] holds at a time.
const WINDOW: usize = 1024;

/// Calls `each` with all `items` on up to 16 threads of its own, in any order.
pub(crate) fn for_all<T: Sync>(
    items: &[T],
    doing: &str,
    stop: &Stop,
    each: impl Fn(&T) -> Result<()> + Sync,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    match items.len() {
        0 => Ok(()),
        count => on_io_threads(IO_THREADS.min(count), doing, stop, || take_all(items, &next, stop, &each)),
    }
}

/// Calls `each` with the items, starting at `next`, that no other thread has taken.
fn take_all<T>(items: &[T], next: &AtomicUsize, stop: &Stop, each: &impl Fn(&T) -> Result<()>) -> Result<()> {
    while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
        stop.check()?;
        // After a failure, the other threads end after their current item.
        each(item).inspect_err(|_| next.store(items.len(), Ordering::Relaxed))?;
    }
    Ok(())
}

/// Calls `produce` with all `items` on the threads for files, and `consume` with the results, on the current thread
/// and in item order. Both may fail.
///
/// # Errors
///
/// The first error of `produce` or `consume`, and [`ErrorKind::Interrupted`](crate::error::ErrorKind) after a stop.
pub fn in_order<T: Sync, R: Send>(
    items: &[T],
    doing: &str,
    stop: &Stop,
    produce: impl Fn(&T) -> Result<R> + Sync,
    mut consume: impl FnMut(&T, R) -> Result<()>,
) -> Result<()> {
    for window in items.chunks(WINDOW) {
        let numbered: Vec<(usize, &T)> = window.iter().enumerate().collect();
        let results = Mutex::new(Vec::with_capacity(window.len()));
        for_all(&numbered, doing, stop, |&(at, item)| {
            let result = produce(item)?;
            results.lock().unwrap_or_else(PoisonError::into_inner).push((at, item, result));
            Ok(())
        })?;
        let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.sort_by_key(|(at, ..)| *at);
        results.into_iter().try_for_each(|(_, item, result)| consume(item, result))?;
    }
    Ok(())
}

/// Runs `work` on the current thread and on up to `count` − 1 new threads, for work that waits for the network or a
/// file system and hardly computes.
fn on_io_threads(count: usize, doing: &str, stop: &Stop, work: impl Fn() -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        let work = || contained(doing, stop, &work);
        let start = |_| threads::named("io").spawn_scoped(scope, work);
        // The current thread works as well, so it does not matter how many others the system allows.
        let started = threads::start_up_to(count.saturating_sub(1), start).unwrap_or_default();
        let own = work();
        let others = started.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(crate::error::Error::internal("a thread died")))
        });
        // All threads are joined, even if the first one failed.
        let others: Vec<Result<()>> = others.collect();
        stop.bug().map_or(Ok(()), Err)?;
        own.and_then(|()| others.into_iter().collect())
    })
}

/// Turns a panic of `work` into an error, which also ends the run.
fn contained(doing: &str, stop: &Stop, work: &(impl Fn() -> Result<()> + Sync)) -> Result<()> {
    let work = || {
        panic_point("prepare");
        work()
    };
    panics::caught(work).unwrap_or_else(|panic| {
        let error = panic.into_error(doing);
        stop.report_bug(&error);
        Err(error)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn results_come_in_item_order_and_the_first_failure_stops_all() {
        let (items, stop): (Vec<usize>, _) = ((0..3 * WINDOW + 7).collect(), Stop::default());
        let mut taken = Vec::new();
        let take = |_: &usize, double| {
            taken.push(double);
            Ok(())
        };
        in_order(&items, "testing", &stop, |item| Ok(item * 2), take).unwrap();
        assert_eq!(taken, items.iter().map(|item| item * 2).collect::<Vec<_>>());
        let fail = |item: &usize| match item {
            2000 => Err(crate::error::Error::usage("2000 fails")),
            _ => Ok(()),
        };
        let mut count = 0;
        let counted = |_: &usize, ()| {
            count += 1;
            Ok(())
        };
        let error = in_order(&items, "testing", &stop, fail, counted).unwrap_err();
        assert!(error.to_string().contains("2000"));
        assert_eq!(count, WINDOW, "only the window before the failure was consumed");
        for_all(&[], "testing", &stop, |_: &usize| panic!("there are no items")).unwrap();
        let sum = AtomicUsize::new(0);
        let add = |item: &usize| {
            sum.fetch_add(*item, Ordering::Relaxed);
            Ok(())
        };
        Workers::start(3).unwrap().for_all(&items, "testing", &stop, add).unwrap();
        assert_eq!(sum.into_inner(), items.iter().sum::<usize>());
    }

    #[test]
    fn a_panic_in_one_thread_stops_all_with_an_internal_error() {
        let workers = Workers::start(3).unwrap();
        for waits in [false, true] {
            let (stop, ordinal) = (Stop::default(), AtomicUsize::new(0));
            let work = || {
                assert_ne!(ordinal.fetch_add(1, Ordering::Relaxed), 1, "a panic of the test");
                // The other threads would otherwise run forever.
                while stop.check().is_ok() {
                    std::thread::yield_now();
                }
                stop.check()
            };
            let result = match waits {
                false => workers.on_all("testing", &stop, work),
                true => on_io_threads(3, "testing", &stop, work),
            };
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Internal);
            assert!(error.to_string().contains("a panic while testing"), "{error}");
            assert!(error.to_string().contains("a panic of the test"), "{error}");
        }
    }
}
