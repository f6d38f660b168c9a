//! A limit on bytes in use at one time.

use std::sync::{Condvar, Mutex, PoisonError};

/// A counting semaphore over bytes. One request larger than the whole waits until it is alone, and then runs.
///
/// A holder never waits for a second permit, so waiting always ends.
#[derive(Debug)]
pub(super) struct MemoryLimit {
    limit: u64,
    used: Mutex<u64>,
    freed: Condvar,
}

/// Bytes in use until dropped.
#[derive(Debug)]
pub(super) struct Permit<'a> {
    of: &'a MemoryLimit,
    bytes: u64,
}

impl MemoryLimit {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, used: Mutex::new(0), freed: Condvar::new() }
    }

    /// Waits until `bytes` more fit.
    pub(super) fn acquire(&self, bytes: u64) -> Permit<'_> {
        let bytes = bytes.min(self.limit);
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        while *used + bytes > self.limit {
            used = self.freed.wait(used).unwrap_or_else(PoisonError::into_inner);
        }
        *used += bytes;
        Permit { of: self, bytes }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        *self.of.used.lock().unwrap_or_else(PoisonError::into_inner) -= self.bytes;
        self.of.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn no_more_than_the_limit_is_in_use() {
        let limit = MemoryLimit::new(10);
        let (now, peak) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for i in 0..8u64 {
                let (limit, now, peak) = (&limit, &now, &peak);
                scope.spawn(move || {
                    for _ in 0..100 {
                        let bytes = i * 2;
                        let _permit = limit.acquire(bytes);
                        let used = now.fetch_add(bytes.min(10), Ordering::SeqCst) + bytes.min(10);
                        peak.fetch_max(used, Ordering::SeqCst);
                        now.fetch_sub(bytes.min(10), Ordering::SeqCst);
                    }
                });
            }
        });
        assert!(peak.load(Ordering::SeqCst) <= 10);
    }
}
