//! Boxes, the numbers of boxes, and pairs of integers in their stored form.

use bytes::Bytes;

/// A box in pixels of an image: x and y of the top left corner, then of the bottom right corner.
pub type PixelBox = [f32; BOX_NUMBERS];

/// Numbers of a box.
pub(crate) const BOX_NUMBERS: usize = 4;
/// Bytes of a box.
const BOX_BYTES: usize = size_of::<PixelBox>();

/// Returns the boxes in a value of the type `boxes`.
pub fn boxes(bytes: &[u8]) -> impl ExactSizeIterator<Item = PixelBox> + '_ {
    let one = |bytes: &[u8; BOX_BYTES]| {
        let mut corners = PixelBox::default();
        for (to, from) in corners.iter_mut().zip(bytes.as_chunks().0) {
            *to = f32::from_le_bytes(*from);
        }
        corners
    };
    bytes.as_chunks().0.iter().map(one)
}

/// Returns the value of the type `boxes`.
pub fn pack_boxes(boxes: impl IntoIterator<Item = PixelBox>) -> Bytes {
    boxes.into_iter().flatten().flat_map(f32::to_le_bytes).collect()
}

/// Returns the numbers in a value of the type `box_labels` or `box_ints`.
pub fn box_numbers(bytes: &[u8]) -> impl ExactSizeIterator<Item = i64> + '_ {
    bytes.as_chunks().0.iter().map(|number| i64::from_le_bytes(*number))
}

/// Returns the value of the type `box_labels` or `box_ints`.
pub fn pack_box_numbers(numbers: impl IntoIterator<Item = i64>) -> Bytes {
    numbers.into_iter().flat_map(i64::to_le_bytes).collect()
}

/// Returns whether `bytes` are boxes of finite numbers whose corners are in order.
pub(crate) fn are_boxes(bytes: &[u8]) -> bool {
    let is_box = |corners: PixelBox| {
        let [left, top, right, bottom] = corners;
        left <= right && top <= bottom && corners.iter().all(|number| number.is_finite())
    };
    bytes.len().is_multiple_of(BOX_BYTES) && boxes(bytes).all(is_box)
}

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
