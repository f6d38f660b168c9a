//! Token ids, as they are stored: little-endian bytes of one width.

use std::ops::Range;

use bytes::Bytes;

use crate::schema::IdWidth;

/// Token ids as little-endian bytes of one width.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ids<B = Bytes> {
    width: IdWidth,
    bytes: B,
}

impl<B: AsRef<[u8]>> Ids<B> {
    /// Ids over little-endian `bytes`; `None` when their number is not a multiple of the width.
    pub fn new(width: IdWidth, bytes: B) -> Option<Self> {
        bytes.as_ref().len().is_multiple_of(width.bytes()).then_some(Self { width, bytes })
    }

    /// Bytes per id.
    pub fn width(&self) -> IdWidth {
        self.width
    }

    /// The little-endian bytes.
    pub fn as_bytes(&self) -> &B {
        &self.bytes
    }

    /// Number of ids.
    pub fn len(&self) -> usize {
        self.bytes.as_ref().len() / self.width.bytes()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.bytes.as_ref().is_empty()
    }

    /// The ids, widened.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.bytes.as_ref().chunks_exact(self.width.bytes()).map(|c| match *c {
            [a, b] => u32::from(u16::from_le_bytes([a, b])),
            [a, b, c, d] => u32::from_le_bytes([a, b, c, d]),
            _ => 0, // widths are 2 and 4 only
        })
    }

    /// The same ids, borrowed.
    pub fn lend(&self) -> Ids<&[u8]> {
        Ids { width: self.width, bytes: self.bytes.as_ref() }
    }
}

impl Ids {
    /// Packs `ids`; `None` when one does not fit the width.
    pub fn pack(width: IdWidth, ids: &[u32]) -> Option<Self> {
        let mut packed = PackedIds::new(width);
        packed.push(ids).then(|| packed.take())
    }

    /// A copy of some of the ids, which does not keep the others in memory; `None` when there are fewer.
    pub fn copy_of(&self, ids: Range<usize>) -> Option<Self> {
        let width = self.width.bytes();
        let bytes = self.bytes.get(ids.start.checked_mul(width)?..ids.end.checked_mul(width)?)?;
        Some(Self { width: self.width, bytes: Bytes::copy_from_slice(bytes) })
    }
}

/// Ids that are being packed: a document's, a piece at a time.
#[derive(Debug)]
pub struct PackedIds {
    width: IdWidth,
    bytes: Vec<u8>,
}

impl PackedIds {
    /// No ids yet.
    pub fn new(width: IdWidth) -> Self {
        Self { width, bytes: Vec::new() }
    }

    /// Number of ids.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.width.bytes()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Adds `ids`; false, and nothing is added, when one does not fit the width.
    #[must_use]
    pub fn push(&mut self, ids: &[u32]) -> bool {
        // What any of them has set: a search for the first that does not fit would look at one after the other.
        if self.width == IdWidth::U16 && ids.iter().fold(0, |all, id| all | id) > u32::from(u16::MAX) {
            return false;
        }
        let begin = self.bytes.len();
        let end = begin + ids.len() * self.width.bytes();
        if begin == 0 {
            // Most documents are one piece.
            self.bytes.reserve_exact(end);
        }
        self.bytes.resize(end, 0);
        let added = &mut self.bytes[begin..];
        match self.width {
            IdWidth::U16 => {
                let places = added.as_chunks_mut().0;
                places.iter_mut().zip(ids).for_each(|(to, id)| *to = (*id as u16).to_le_bytes());
            }
            IdWidth::U32 => {
                let places = added.as_chunks_mut().0;
                places.iter_mut().zip(ids).for_each(|(to, id)| *to = id.to_le_bytes());
            }
        }
        true
    }

    /// Keeps the first `count` ids.
    pub fn truncate(&mut self, count: usize) {
        self.bytes.truncate(count * self.width.bytes());
    }

    /// The ids; none remain.
    pub fn take(&mut self) -> Ids {
        Ids { width: self.width, bytes: Bytes::from(std::mem::take(&mut self.bytes)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_pack_little_endian_and_refuse_to_wrap() {
        let ids = Ids::pack(IdWidth::U16, &[1, 0x1234, 65_535]).unwrap();
        assert_eq!(ids.as_bytes().as_ref(), [1, 0, 0x34, 0x12, 0xff, 0xff]);
        assert_eq!(ids.iter().collect::<Vec<_>>(), [1, 0x1234, 65_535]);
        assert_eq!(Ids::pack(IdWidth::U16, &[65_536]), None);
    }

    #[test]
    fn pieces_make_one_list() {
        for width in [IdWidth::U16, IdWidth::U32] {
            let mut packed = PackedIds::new(width);
            assert!(packed.push(&[1, 2]) && packed.push(&[]) && packed.push(&[700, 4, 5]));
            assert_eq!(packed.push(&[6, 65_536]), width == IdWidth::U32);
            packed.truncate(4);
            let ids = packed.take();
            assert_eq!(ids, Ids::pack(width, &[1, 2, 700, 4]).unwrap());
            assert!(packed.is_empty());
            assert_eq!(ids.copy_of(1..3), Ids::pack(width, &[2, 700]));
            assert_eq!(ids.copy_of(3..5), None);
        }
    }
}
