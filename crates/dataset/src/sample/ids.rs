//! Token ids in their stored form: little-endian bytes of fixed width.

use bytes::{Bytes, BytesMut};

use super::Numbers;
use crate::schema::{DType, IdWidth};

/// Token ids as little-endian bytes of fixed width.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ids<B = Bytes> {
    width: IdWidth,
    bytes: B,
}

impl<B: AsRef<[u8]>> Ids<B> {
    /// Creates ids from little-endian `bytes`; `None` if their number is not a multiple of the width.
    pub fn new(width: IdWidth, bytes: B) -> Option<Self> {
        bytes.as_ref().len().is_multiple_of(width.bytes()).then_some(Self { width, bytes })
    }

    /// Returns the width of an id.
    pub fn width(&self) -> IdWidth {
        self.width
    }

    /// Returns the little-endian bytes.
    pub fn as_bytes(&self) -> &B {
        &self.bytes
    }

    /// Returns the number of ids.
    pub fn len(&self) -> usize {
        self.bytes.as_ref().len() / self.width.bytes()
    }

    /// Returns whether there are no ids.
    pub fn is_empty(&self) -> bool {
        self.bytes.as_ref().is_empty()
    }

    /// Iterates over the ids, widened to 32 bits.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.bytes.as_ref().chunks_exact(self.width.bytes()).map(|c| match *c {
            [a, b] => u32::from(u16::from_le_bytes([a, b])),
            [a, b, c, d] => u32::from_le_bytes([a, b, c, d]),
            _ => 0, // the only widths are 2 and 4
        })
    }

    /// Returns the ids as numbers.
    pub fn numbers(&self) -> Numbers<&B> {
        let dtype = match self.width {
            IdWidth::U16 => DType::UInt16,
            IdWidth::U32 => DType::UInt32,
        };
        Numbers { dtype, shape: vec![self.len()], bytes: &self.bytes }
    }

    /// Borrows the ids.
    pub fn lend(&self) -> Ids<&[u8]> {
        Ids { width: self.width, bytes: self.bytes.as_ref() }
    }
}

impl Ids {
    /// Packs `ids`; `None` if one of them does not fit the width.
    pub fn pack(width: IdWidth, ids: &[u32]) -> Option<Self> {
        // A buffer of its own, because nothing else will share it.
        let mut packed = PackedIds { width, bytes: BytesMut::with_capacity(ids.len() * width.bytes()) };
        packed.push(ids).then(|| Self { width, bytes: packed.bytes.freeze() })
    }
}

/// Capacity of the buffers that short documents share.
const SHARED_BYTES: usize = 1 << 16;

/// Builder for the ids of consecutive documents, packed piece by piece.
///
/// Short documents share a buffer of 64 KiB, which stays allocated as long as any of their ids are in use. Copy ids
/// that live much longer than their neighbors ([`Tokens::copy_of`](super::Tokens::copy_of)).
#[derive(Debug)]
pub struct PackedIds {
    width: IdWidth,
    bytes: BytesMut,
}

impl PackedIds {
    /// Creates an empty builder.
    pub fn new(width: IdWidth) -> Self {
        Self { width, bytes: BytesMut::new() }
    }

    /// Reserves capacity for `additional` ids, which avoids reallocations if a document is pushed in many pieces.
    pub fn reserve(&mut self, additional: usize) {
        let additional = additional * self.width.bytes();
        if self.bytes.is_empty() && self.bytes.capacity() < additional {
            self.bytes = BytesMut::with_capacity(additional.max(SHARED_BYTES));
        } else {
            self.bytes.reserve(additional);
        }
    }

    /// Returns the number of ids in the current document.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.width.bytes()
    }

    /// Returns whether the current document has no ids.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Appends `ids`. Returns false and appends nothing if one of them does not fit the width.
    #[must_use]
    pub fn push(&mut self, ids: &[u32]) -> bool {
        self.reserve(ids.len());
        let begin = self.bytes.len();
        let mut any = 0;
        match self.width {
            IdWidth::U16 => append(&mut self.bytes, ids, |id| {
                // Collects the bits set in any id. Searching for the first id that does not fit would add a branch per
                // id.
                any |= id;
                (id as u16).to_le_bytes()
            }),
            IdWidth::U32 => append(&mut self.bytes, ids, u32::to_le_bytes),
        }
        if any > u32::from(u16::MAX) {
            self.bytes.truncate(begin);
            return false;
        }
        true
    }

    /// Keeps only the first `count` ids.
    pub fn truncate(&mut self, count: usize) {
        self.bytes.truncate(count * self.width.bytes());
        if self.bytes.is_empty() && !self.is_shared() {
            self.bytes = BytesMut::new();
        }
    }

    /// Returns whether other documents may share the buffer. A buffer allocated for a long document is handed out or
    /// freed with that document.
    fn is_shared(&self) -> bool {
        self.bytes.capacity() <= SHARED_BYTES
    }

    /// Returns the ids of the current document and starts the next one.
    pub fn take(&mut self) -> Ids {
        let is_short = self.bytes.len() <= SHARED_BYTES / 4 && self.is_shared();
        let bytes = if is_short { self.bytes.split() } else { std::mem::take(&mut self.bytes) };
        Ids { width: self.width, bytes: bytes.freeze() }
    }
}

/// Appends the bytes of each id, many ids at a time.
fn append<const WIDTH: usize>(
    bytes: &mut BytesMut,
    ids: &[u32],
    mut bytes_of: impl FnMut(u32) -> [u8; WIDTH],
) {
    let mut buffer = [[0; WIDTH]; 64];
    for ids in ids.chunks(buffer.len()) {
        buffer.iter_mut().zip(ids).for_each(|(to, id)| *to = bytes_of(*id));
        bytes.extend_from_slice(buffer[..ids.len()].as_flattened());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_packed_little_endian_and_never_wrap() {
        let ids = Ids::pack(IdWidth::U16, &[1, 0x1234, 65_535]).unwrap();
        assert_eq!(ids.as_bytes().as_ref(), [1, 0, 0x34, 0x12, 0xff, 0xff]);
        assert_eq!(ids.iter().collect::<Vec<_>>(), [1, 0x1234, 65_535]);
        assert_eq!(Ids::pack(IdWidth::U16, &[65_536]), None);
    }

    #[test]
    fn consecutive_short_documents_share_buffers() {
        let documents: Vec<Vec<u32>> =
            (0..400).map(|i| (0..i * i % 30_011).map(|id| (id * 7 + i) % 65_536).collect()).collect();
        let mut packed = PackedIds::new(IdWidth::U16);
        let taken: Vec<Ids> = documents
            .iter()
            .map(|ids| {
                assert!(packed.is_empty());
                // The ids of a discarded document must not appear in the next one.
                assert!(packed.push(&[1, 2, 3]));
                packed.truncate(0);
                ids.chunks(1000).for_each(|ids| assert!(packed.push(ids)));
                packed.take()
            })
            .collect();
        for (ids, taken) in documents.iter().zip(&taken) {
            assert!(taken.iter().eq(ids.iter().copied()));
        }
        let shared = taken.windows(2).filter(|pair| {
            let [first, second] = pair else { return false };
            first.as_bytes().as_ptr().wrapping_add(first.as_bytes().len()) == second.as_bytes().as_ptr()
        });
        assert!(shared.count() > 100, "short documents share buffers");
    }

    #[test]
    fn the_buffer_of_a_long_document_is_not_reused() {
        let mut packed = PackedIds::new(IdWidth::U16);
        packed.reserve(SHARED_BYTES);
        assert!(packed.push(&[1, 2, 3]));
        assert_eq!(packed.take(), Ids::pack(IdWidth::U16, &[1, 2, 3]).unwrap());
        assert!(packed.bytes.capacity() <= SHARED_BYTES);
        packed.reserve(SHARED_BYTES);
        assert!(packed.push(&[4]));
        packed.truncate(0);
        assert!(packed.bytes.capacity() <= SHARED_BYTES);
    }

    #[test]
    fn pieces_are_concatenated() {
        for width in [IdWidth::U16, IdWidth::U32] {
            let mut packed = PackedIds::new(width);
            assert!(packed.push(&[1, 2]) && packed.push(&[]) && packed.push(&[700, 4, 5]));
            assert_eq!(packed.push(&[6, 65_536]), width == IdWidth::U32);
            packed.truncate(4);
            let ids = packed.take();
            assert_eq!(ids, Ids::pack(width, &[1, 2, 700, 4]).unwrap());
            assert!(packed.is_empty());
        }
    }
}
