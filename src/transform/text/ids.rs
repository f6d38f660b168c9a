//! Token ids in their stored width.

use std::ops::Range;

use dsconvert_tokens::{EncodeError, IdSink, IdSource, Tokenizer};

use crate::sample::{Ids, PackedIds};
use crate::schema::IdWidth;

/// Returns the narrowest width that holds every id of `tokenizer`. It depends on the largest id, not on the vocabulary
/// size.
pub fn id_width(tokenizer: &Tokenizer) -> IdWidth {
    IdWidth::for_max_id(tokenizer.info().max_id)
}

/// Packs ids as they are produced.
pub(crate) struct PackedIdSink<'a>(pub(crate) &'a mut PackedIds);

impl IdSink for PackedIdSink<'_> {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn append(&mut self, ids: &[u32]) -> Result<(), EncodeError> {
        let too_large =
            || EncodeError::Refused("the tokenizer produced an id above its declared maximum".to_owned());
        self.0.push(ids).then_some(()).ok_or_else(too_large)
    }

    fn truncate(&mut self, count: usize) {
        self.0.truncate(count);
    }

    fn reserve(&mut self, additional: usize) {
        self.0.reserve(additional);
    }
}

/// The stored ids of a document, for comparison.
pub(crate) struct StoredIds<'a>(pub(crate) &'a Ids);

impl IdSource for StoredIds<'_> {
    fn id_count(&self) -> usize {
        self.0.len()
    }

    fn is_equal(&self, range: Range<usize>, expected: &[u32]) -> bool {
        let width = self.0.width();
        let bytes = self.0.as_bytes().get(range.start * width.bytes()..range.end * width.bytes());
        bytes.and_then(|ids| Ids::new(width, ids)).is_some_and(|ids| ids.iter().eq(expected.iter().copied()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_beyond_the_width_are_refused_and_nothing_is_added() {
        let mut packed = PackedIds::new(IdWidth::U16);
        let mut sink = PackedIdSink(&mut packed);
        assert_eq!(sink.append(&[1, 65_535]), Ok(()));
        assert!(matches!(sink.append(&[2, 65_536]), Err(EncodeError::Refused(_))));
        assert_eq!(sink.count(), 2);
        sink.truncate(1);
        assert_eq!(packed.take().iter().collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn stored_ids_are_compared_by_range() {
        let ids = Ids::pack(IdWidth::U16, &[5, 6, 7]).unwrap();
        let stored = StoredIds(&ids);
        assert!(stored.is_equal(1..3, &[6, 7]) && stored.id_count() == 3);
        assert!(
            !stored.is_equal(1..3, &[6, 8])
                && !stored.is_equal(1..3, &[6])
                && !stored.is_equal(2..4, &[7, 0])
        );
    }

    #[test]
    fn the_width_is_that_of_the_largest_id() {
        assert_eq!(id_width(&Tokenizer::bytes(Default::default()).unwrap()), IdWidth::U16);
    }
}
