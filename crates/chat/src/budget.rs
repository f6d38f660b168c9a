//! `Budget`: what rendering may still cost. Its counts are the same on every machine, and are charged before the work.
//!
//! A template is code from a stranger: it can loop for ever, or double a string in each iteration. A limit of time
//! would reject a chat on a slow machine and accept it on a fast one, so that a dataset would depend on the machine.
//! Counts do not; but to count differently is to reject other chats.

use crate::error::{ErrorKind, Result, error};

/// Bytes that are read in one step.
const BYTES_PER_STEP: usize = 16;
/// Bytes of a value in a list.
pub(crate) const VALUE_BYTES: usize = 64;
/// Bytes of a run of characters from one source, with those of the pieces that are made of it.
const RUN_BYTES: usize = 32;

/// Counts down what may still be done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    steps: u64,
    /// Bytes of all values made so far, also of those that are dropped: memory in use would depend on reference counts.
    bytes: u64,
}

impl Budget {
    pub(crate) fn new(steps: u64, bytes: u64) -> Budget {
        Budget { steps, bytes }
    }

    /// Pays for steps: operations, comparisons, items that are visited.
    #[inline]
    pub(crate) fn charge(&mut self, steps: usize) -> Result<()> {
        match self.steps.checked_sub(steps as u64) {
            Some(left) => {
                self.steps = left;
                Ok(())
            }
            None => error(ErrorKind::Limit, "the template takes too many steps; does it loop for ever?"),
        }
    }

    /// Pays for one step, and for `bytes` that are compared, searched or copied one by one.
    #[inline]
    pub(crate) fn read(&mut self, bytes: usize) -> Result<()> {
        self.charge(1 + bytes / BYTES_PER_STEP)
    }

    /// Pays for one step and `bytes` of new text.
    #[inline]
    pub(crate) fn make(&mut self, bytes: usize) -> Result<()> {
        match self.bytes.checked_sub(bytes as u64) {
            Some(left) => {
                self.bytes = left;
                self.charge(1)
            }
            None => error(ErrorKind::Limit, "the template writes too much text, or makes too many values"),
        }
    }

    /// Pays for one step, and for text of `bytes` in `runs` of characters from one source.
    #[inline]
    pub(crate) fn make_runs(&mut self, bytes: usize, runs: usize) -> Result<()> {
        self.make(bytes + RUN_BYTES * runs)
    }

    /// Pays for `count` characters that become texts of their own, or change one by one.
    pub(crate) fn make_chars(&mut self, count: usize) -> Result<()> {
        self.make(count)?;
        self.charge(count / 2)
    }

    /// Pays for a new list of `count` items.
    pub(crate) fn make_items(&mut self, count: usize) -> Result<()> {
        self.make(count.saturating_mul(VALUE_BYTES))?;
        self.charge(count)
    }

    /// Pays for a new mapping of `count` keys.
    pub(crate) fn make_entries(&mut self, count: usize) -> Result<()> {
        self.make_items(count.saturating_mul(4))
    }

    /// The steps and the bytes that are left.
    /// The caller subtracts them from the limits, to report what a rendering has cost.
    pub(crate) fn left(&self) -> (u64, u64) {
        (self.steps, self.bytes)
    }
}
