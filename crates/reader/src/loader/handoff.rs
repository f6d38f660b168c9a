//! A lock that threads in a loop leave to a thread that needs it once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A value that threads lock in turns, and that other threads can claim.
///
/// A mutex alone is unfair: a thread that unlocks it and locks it again usually precedes the one that it has woken.
/// Therefore, a claim is announced before it waits, and no thread gets another turn until the claim is dropped.
#[derive(Debug)]
pub struct Handoff<T> {
    value: Mutex<T>,
    claims: AtomicUsize,
}

impl<T> Handoff<T> {
    /// Wraps `value`.
    pub fn new(value: T) -> Self {
        Self { value: Mutex::new(value), claims: AtomicUsize::new(0) }
    }

    /// Announces that the calling thread needs the value. Does not wait.
    pub fn claim(&self) -> Claim<'_, T> {
        self.claims.fetch_add(1, Ordering::SeqCst);
        Claim(self)
    }

    /// Returns whether there is a claim.
    pub fn is_claimed(&self) -> bool {
        self.claims.load(Ordering::SeqCst) > 0
    }

    /// Waits for the turns of other threads, and locks the value. Returns `None` if there is a claim.
    pub fn turn(&self) -> Option<MutexGuard<'_, T>> {
        if self.is_claimed() {
            return None;
        }
        let value = self.lock();
        // The claim may have been announced while this thread waited.
        (!self.is_claimed()).then_some(value)
    }

    /// Returns the value, which no other thread can refer to.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A claim to the value of a [`Handoff`], until it is dropped.
#[derive(Debug)]
pub struct Claim<'a, T>(&'a Handoff<T>);

impl<'a, T> Claim<'a, T> {
    /// Waits for the current turn and for other claims, and locks the value.
    pub fn lock(&self) -> MutexGuard<'a, T> {
        self.0.lock()
    }
}

impl<T> Drop for Claim<'_, T> {
    fn drop(&mut self) {
        self.0.claims.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    #[test]
    fn no_thread_gets_another_turn_while_there_is_a_claim() {
        let shared = Handoff::new(0);
        let turn = shared.turn().unwrap();
        let claim = shared.claim();
        assert!(shared.is_claimed());
        drop(turn);
        // The claim has not locked the value yet, and still nobody precedes it.
        for _ in 0..3 {
            assert!(shared.turn().is_none());
        }
        *claim.lock() += 1;
        assert!(shared.turn().is_none());
        drop(claim);
        assert_eq!(*shared.turn().unwrap(), 1);
    }

    #[test]
    fn every_claim_is_waited_for() {
        let shared = Handoff::new(0);
        let claims = [shared.claim(), shared.claim()];
        for claim in claims {
            assert!(shared.turn().is_none());
            *claim.lock() += 1;
        }
        assert_eq!(*shared.turn().unwrap(), 2);
    }

    /// One thread takes turns without a pause. Each claim is announced during a turn, which ends only then.
    #[test]
    fn a_claim_precedes_the_next_turn() {
        const CLAIMS: u64 = 1000;
        let shared = Handoff::new((0_u64, 0_u64));
        let (in_turn, announced) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut turns = 0;
                while turns < CLAIMS {
                    if let Some(mut value) = shared.turn() {
                        turns += 1;
                        value.0 = turns;
                        in_turn.wait();
                        announced.wait();
                    }
                }
            });
            for number in 1..=CLAIMS {
                in_turn.wait();
                let claim = shared.claim();
                announced.wait();
                let mut value = claim.lock();
                assert_eq!(*value, (number, number - 1));
                value.1 = number;
            }
        });
    }
}
