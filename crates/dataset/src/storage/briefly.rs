//! Locks that are never waited for.
//!
//! In a process that was forked while another thread held a lock, waiting for the lock never ends. The locks that are taken
//! here are held for some dozen nanoseconds and protect what only saves time: a caller that finds one taken does without.

use std::sync::{Mutex, MutexGuard, TryLockError};

/// Looks at a lock before it counts as taken.
const TRIES: u32 = 1000;

/// The first of them that follow each other at once; after each other one, another thread may run.
const AT_ONCE: u32 = 200;

/// What `mutex` holds, unless it stays taken.
pub fn briefly<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    for attempt in 0..TRIES {
        match mutex.try_lock() {
            Ok(held) => return Some(held),
            Err(TryLockError::Poisoned(held)) => return Some(held.into_inner()),
            Err(TryLockError::WouldBlock) if attempt < AT_ONCE => std::hint::spin_loop(),
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
    None
}
