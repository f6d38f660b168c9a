//! Where ids are written to and compared from.

use std::ops::Range;

use crate::error::EncodeError;

/// Receives the ids of texts. `Vec<u32>` is one; implement it to store ids in another width or place without a copy.
pub trait IdSink {
    /// Number of ids received.
    fn count(&self) -> usize;

    /// Appends ids.
    ///
    /// # Errors
    ///
    /// [`EncodeError::Refused`] when an id cannot be stored. The text then has no ids.
    fn append(&mut self, ids: &[u32]) -> Result<(), EncodeError>;

    /// Keeps the first `count` ids.
    fn truncate(&mut self, count: usize);

    /// Reserves room for `additional` ids.
    fn reserve(&mut self, additional: usize);
}

impl IdSink for Vec<u32> {
    fn count(&self) -> usize {
        self.len()
    }

    fn append(&mut self, ids: &[u32]) -> Result<(), EncodeError> {
        self.extend_from_slice(ids);
        Ok(())
    }

    fn truncate(&mut self, count: usize) {
        self.truncate(count);
    }

    fn reserve(&mut self, additional: usize) {
        self.reserve(additional);
    }
}

/// Ids of one text, to be compared with the reference by [`Tokenizer::verify`](crate::Tokenizer::verify). Slices and vectors
/// of `u32` are such ids.
pub trait IdSource {
    /// Number of ids.
    fn id_count(&self) -> usize;

    /// Whether the ids in `range` are exactly `expected`; false when the range is out of bounds.
    fn is_equal(&self, range: Range<usize>, expected: &[u32]) -> bool;
}

impl IdSource for [u32] {
    fn id_count(&self) -> usize {
        self.len()
    }

    fn is_equal(&self, range: Range<usize>, expected: &[u32]) -> bool {
        self.get(range) == Some(expected)
    }
}

impl IdSource for Vec<u32> {
    fn id_count(&self) -> usize {
        self.len()
    }

    fn is_equal(&self, range: Range<usize>, expected: &[u32]) -> bool {
        self.as_slice().is_equal(range, expected)
    }
}
