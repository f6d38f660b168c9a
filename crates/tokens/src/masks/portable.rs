//! Portable implementation with eight bytes per `u64`.

use super::{ByteMasks, WINDOW};

/// The implementation for every CPU.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Portable;

/// Eight bytes of value 1.
pub(crate) const ONES: u64 = 0x0101_0101_0101_0101;
/// The high bit of each of eight bytes, which is zero in ASCII.
pub(crate) const HIGH_BITS: u64 = 0x80 * ONES;

impl Portable {
    /// Collects the high bits of the bytes that `mark` returns for every eight bytes.
    #[inline(always)]
    fn bits(window: [u64; WINDOW / 8], mark: impl Fn(u64) -> u64) -> u64 {
        let mut bits = 0;
        for (i, bytes) in window.into_iter().enumerate() {
            // The multiplication moves the high bit of byte k to bit k of the highest byte.
            bits |= ((mark(bytes) & HIGH_BITS).wrapping_mul(0x0002_0408_1020_4081) >> 56) << (8 * i);
        }
        bits
    }
}

// None of these operations carries from one byte into the next.
impl ByteMasks for Portable {
    type Window = [u64; WINDOW / 8];

    #[inline(always)]
    fn load(self, bytes: &[u8; WINDOW]) -> Self::Window {
        let mut window = [0; WINDOW / 8];
        for (to, from) in window.iter_mut().zip(bytes.as_chunks().0) {
            *to = u64::from_le_bytes(*from);
        }
        window
    }

    #[inline(always)]
    fn set_case_bit(self, window: Self::Window) -> Self::Window {
        window.map(|bytes| bytes | (0x20 * ONES))
    }

    #[inline(always)]
    fn equal(self, window: Self::Window, byte: u8) -> u64 {
        let pattern = ONES * u64::from(byte);
        Self::bits(window, |bytes| {
            let differing = bytes ^ pattern;
            !(((differing & !HIGH_BITS) + !HIGH_BITS) | differing)
        })
    }

    #[inline(always)]
    fn in_range(self, window: Self::Window, first: u8, count: u8) -> u64 {
        // Added to a byte below 0x80, these set its high bit if it is at least `first` or `first + count`,
        // respectively.
        let (from, end) = (ONES * u64::from(0x80 - first), ONES * u64::from(0x80 - first - count));
        Self::bits(window, |bytes| {
            let low = bytes & !HIGH_BITS;
            (low + from) & !(low + end) & !bytes
        })
    }

    #[inline(always)]
    fn non_ascii(self, window: Self::Window) -> u64 {
        Self::bits(window, |bytes| bytes)
    }
}
