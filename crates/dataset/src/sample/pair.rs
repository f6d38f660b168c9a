//! Pairs of integers in their stored form.

use bytes::Bytes;

/// Two integers, such as a height and a width.
pub type Int32Pair = [i32; 2];

/// Bytes of a pair.
pub(crate) const PAIR_BYTES: usize = size_of::<Int32Pair>();

/// Returns the pair in a value of the type `int32_pair`; `None` if it has another number of bytes.
pub fn pair(bytes: &[u8]) -> Option<Int32Pair> {
    match bytes.as_chunks() {
        (&[first, second], []) => Some([first, second].map(i32::from_le_bytes)),
        _ => None,
    }
}

/// Returns the value of the type `int32_pair`.
pub fn pack_pair(pair: Int32Pair) -> Bytes {
    pair.into_iter().flat_map(i32::to_le_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_two_little_endian_integers() {
        let bytes = pack_pair([1, -2]);
        assert_eq!(bytes.as_ref(), [1, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff]);
        assert_eq!(pair(&bytes), Some([1, -2]));
        for wrong in [0, 4, 7, 9, 12] {
            assert_eq!(pair(&vec![0; wrong]), None);
        }
    }
}
