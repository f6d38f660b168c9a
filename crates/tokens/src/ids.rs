//! Destinations of encoded ids, and sources of ids to compare.

use std::ops::Range;

use crate::error::EncodeError;

/// Receives the ids of texts. `Vec<u32>` implements it; other implementations can store ids in another width or place
/// without a copy.
pub trait IdSink {
    /// Returns the number of ids received.
    fn count(&self) -> usize;

    /// Appends ids.
    ///
    /// # Errors
    ///
    /// [`EncodeError::Refused`] if an id cannot be stored. Encoding the text then fails.
    fn append(&mut self, ids: &[u32]) -> Result<(), EncodeError>;

    /// Keeps only the first `count` ids.
    fn truncate(&mut self, count: usize);

    /// Reserves capacity for `additional` ids.
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

/// Ids of one text that [`Tokenizer::verify`](crate::Tokenizer::verify) compares with the reference. Implemented for
/// slices and vectors of `u32`.
pub trait IdSource {
    /// Returns the number of ids.
    fn id_count(&self) -> usize;

    /// Returns whether the ids in `range` are exactly `expected`; false if the range is out of bounds.
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
