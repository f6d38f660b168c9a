//! The memory budget of a run: the division of `--memory`, and reservations.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::options::{MIN_MEMORY_BYTES, RunOptions};
use crate::writer::SORT_BYTES;

/// Sorting happens before and after the conversion, when nothing else is reserved.
const _: () = assert!(SORT_BYTES as u64 <= MIN_MEMORY_BYTES, "a sort may use the minimum value of `memory`");

/// The division of `--memory` while units are converted. Tasks and images have separate shares because their sizes
/// become known at different times: the memory of a task before it is read, the memory of an image from its header.
#[derive(Debug, Clone)]
pub struct Shares {
    /// A quarter for tasks: files and records, from being read to being written.
    pub(super) tasks: MemoryPool,
    /// Half for images while they are decoded and resized.
    pub(super) images: MemoryPool,
    /// Bytes per thread of the buffers that are kept for the next image: a quarter, divided among all threads.
    pub(super) kept_by_thread: u64,
}

impl Shares {
    pub(super) fn of(run: &RunOptions) -> Self {
        let memory = run.memory_bytes;
        Self {
            tasks: MemoryPool::new(memory / 4),
            images: MemoryPool::new(memory / 2),
            kept_by_thread: memory / 4 / run.threads.max(1) as u64,
        }
    }
}

/// A memory pool: a limited number of bytes that can be reserved.
#[derive(Debug, Clone)]
pub struct MemoryPool(Arc<PoolInner>);

#[derive(Debug)]
struct PoolInner {
    limit: u64,
    bytes: Mutex<u64>,
    freed: Condvar,
}

/// A reservation of bytes in a pool, released on drop.
#[derive(Debug)]
pub(super) struct Reservation {
    pool: MemoryPool,
    bytes: u64,
}

impl MemoryPool {
    pub(super) fn new(limit: u64) -> Self {
        Self(Arc::new(PoolInner { limit, bytes: Mutex::default(), freed: Condvar::new() }))
    }

    /// Returns whether `bytes` more fit. An amount larger than the pool fits if nothing else is reserved: leaving the
    /// item out would make the dataset depend on `--memory`.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        self.0.has_room(self.held(), bytes)
    }

    /// Reserves `bytes` even if they do not fit, for memory that is already in use.
    pub(super) fn hold(&self, bytes: u64) -> Reservation {
        *self.0.bytes.lock().unwrap_or_else(PoisonError::into_inner) += bytes;
        Reservation { pool: self.clone(), bytes }
    }

    /// Waits until `bytes` more fit, and reserves them.
    ///
    /// The holder of a reservation never waits for another one of the same pool, so waiting always ends.
    pub(super) fn wait_for(&self, bytes: u64) -> Reservation {
        let mut held = self.0.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.0.has_room(*held, bytes) {
            held = self.0.freed.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        *held += bytes;
        Reservation { pool: self.clone(), bytes }
    }

    fn held(&self) -> u64 {
        *self.0.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reservation {
    /// Returns the reservation, enlarged to at least `bytes`.
    pub(super) fn at_least(self, bytes: u64) -> Self {
        match bytes > self.bytes {
            true => self.pool.hold(bytes),
            false => self,
        }
    }
}

impl PoolInner {
    fn has_room(&self, held: u64, bytes: u64) -> bool {
        held == 0 || held.saturating_add(bytes) <= self.limit
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        *self.pool.0.bytes.lock().unwrap_or_else(PoisonError::into_inner) -= self.bytes;
        self.pool.0.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::default_memory_bytes;
    use crate::pipeline::predict::testing::run_options;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn only_a_lone_reservation_exceeds_the_limit() {
        let pool = MemoryPool::new(10);
        let (now, holders) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for bytes in 0..16u64 {
                let (pool, now, holders) = (&pool, &now, &holders);
                scope.spawn(move || {
                    for _ in 0..100 {
                        let _held = pool.wait_for(bytes);
                        let others = holders.fetch_add(u64::from(bytes > 0), Ordering::SeqCst);
                        let held = now.fetch_add(bytes, Ordering::SeqCst) + bytes;
                        assert!(held <= 10 || bytes == 0 || others == 0, "{held} by {}", others + 1);
                        std::thread::yield_now();
                        now.fetch_sub(bytes, Ordering::SeqCst);
                        holders.fetch_sub(u64::from(bytes > 0), Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(pool.held(), 0);
    }

    #[test]
    fn hold_may_exceed_the_limit() {
        let pool = MemoryPool::new(10);
        let held = pool.hold(25);
        assert!(!pool.has_room(0) && !pool.has_room(1));
        drop(held);
        assert!(pool.has_room(10) && pool.has_room(25));
        let _held = pool.hold(2).at_least(6).at_least(5);
        assert!(pool.has_room(4) && !pool.has_room(5));
    }

    #[test]
    fn by_default_any_number_of_threads_keeps_the_buffers_of_a_photograph() {
        for threads in [1, 32, 64, 1024] {
            let memory_bytes = default_memory_bytes(threads);
            let shares = Shares::of(&RunOptions { memory_bytes, ..run_options("out".as_ref(), threads) });
            // A photograph of 500×375 pixels takes 5 MiB.
            assert!(shares.kept_by_thread >= 8 << 20, "{threads}");
            assert!(memory_bytes == 1 << 30 || threads > 32);
        }
    }

    #[test]
    fn shares_add_up_to_the_memory() {
        for threads in [0, 1, 7] {
            let shares =
                Shares::of(&RunOptions { memory_bytes: 1 << 30, ..run_options("out".as_ref(), threads) });
            let kept = shares.kept_by_thread * threads.max(1) as u64;
            let sum = shares.tasks.0.limit + shares.images.0.limit + kept;
            assert!(sum <= 1 << 30 && sum > (1 << 30) - 8, "{sum}");
        }
    }
}
