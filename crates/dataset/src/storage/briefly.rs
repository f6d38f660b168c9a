//! Non-blocking locks.
//!
//! If a process is forked while another thread holds a lock, the child would wait for that lock forever. The locks
//! taken here are held for a few dozen nanoseconds and protect only optimizations, so a caller that cannot get one
//! proceeds without it.

use std::sync::{Mutex, MutexGuard, TryLockError};

/// Number of attempts before a lock counts as taken.
const TRIES: u32 = 1000;

/// Number of initial attempts that spin. Later attempts yield to other threads.
const SPINS: u32 = 200;

/// Locks `mutex`, or returns `None` if it stays taken.
pub fn briefly<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    for attempt in 0..TRIES {
        match mutex.try_lock() {
            Ok(held) => return Some(held),
            Err(TryLockError::Poisoned(held)) => return Some(held.into_inner()),
            Err(TryLockError::WouldBlock) if attempt < SPINS => std::hint::spin_loop(),
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
    None
}
