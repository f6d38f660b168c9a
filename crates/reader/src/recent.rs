//! A cache of the last results of a computation.

use std::collections::VecDeque;
use std::sync::Mutex;

/// The last results of a computation, by their inputs. What a caller returns does not depend on it. Its lock is non-blocking,
/// because after a fork it may be held forever by a thread that no longer exists.
#[derive(Debug)]
pub(crate) struct Recent<K, V> {
    most: usize,
    kept: Mutex<VecDeque<(K, V)>>,
}

impl<K: PartialEq, V: Clone> Recent<K, V> {
    /// Creates an empty cache of at most `most` results.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, kept: Mutex::new(VecDeque::new()) }
    }

    pub(crate) fn get(&self, input: &K) -> Option<V> {
        let kept = self.kept.try_lock().ok()?;
        kept.iter().find(|(of, _)| of == input).map(|(_, result)| result.clone())
    }

    pub(crate) fn keep(&self, input: K, result: V) {
        if let Ok(mut kept) = self.kept.try_lock() {
            kept.truncate(self.most.saturating_sub(1));
            kept.push_front((input, result));
        }
    }
}
