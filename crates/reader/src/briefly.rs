//! Non-blocking locks.
//!
//! In a process that was forked while another thread held a lock, waiting for the lock never ends. The locks here are held
//! for some dozen nanoseconds and protect what only saves time: a caller that finds one taken does without.

use std::sync::{Mutex, MutexGuard, TryLockError};

/// Looks at a lock before it counts as taken.
const TRIES: u32 = 200;

/// What `mutex` holds, unless it is taken.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    for _ in 0..TRIES {
        match mutex.try_lock() {
            Ok(held) => return Some(held),
            Err(TryLockError::Poisoned(held)) => return Some(held.into_inner()),
            Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
        }
    }
    None
}
