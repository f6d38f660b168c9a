//! Tests of the portable and the AVX2 implementation against a byte-by-byte one.

use proptest::prelude::*;

use super::{ByteMasks, Kernel, Portable, WINDOW, dispatch};

/// Kernel that computes every mask of a window.
struct AllMasks([u8; WINDOW]);

const BYTES: [u8; 7] = [0, b' ', b'"', b'\\', 0x7f, 0x80, 0xff];
const RANGES: [(u8, u8); 6] = [(0, 32), (b'a', 26), (b'0', 10), (9, 5), (0, 128), (0x7f, 1)];

impl Kernel for AllMasks {
    type Output = Vec<u64>;

    #[inline(always)]
    fn run(self, masks: impl ByteMasks) -> Vec<u64> {
        let window = masks.load(&self.0);
        let mut all = vec![masks.non_ascii(window)];
        for window in [window, masks.set_case_bit(window)] {
            for byte in BYTES {
                all.push(masks.equal(window, byte));
            }
            for (first, count) in RANGES {
                all.push(masks.in_range(window, first, count));
            }
        }
        all
    }
}

/// Computes the same masks one byte at a time.
fn expected(window: [u8; WINDOW]) -> Vec<u64> {
    let bits = |is: &dyn Fn(u8) -> bool, window: [u8; WINDOW]| {
        window.iter().rev().fold(0, |bits, &byte| bits << 1 | u64::from(is(byte)))
    };
    let mut all = vec![bits(&|byte| !byte.is_ascii(), window)];
    for bytes in [window, window.map(|byte| byte | 0x20)] {
        all.extend(BYTES.map(|wanted| bits(&|byte| byte == wanted, bytes)));
        all.extend(RANGES.map(|(first, count)| bits(&|byte| byte >= first && byte - first < count, bytes)));
    }
    all
}

#[test]
fn every_byte_is_found_at_every_kind_of_position() {
    for byte in 0..=255u8 {
        for at in [0, 7, 8, 31, 32, 63] {
            for other in [b'!', 0, 0xff] {
                let mut window = [other; WINDOW];
                window[at] = byte;
                assert_eq!(AllMasks(window).run(Portable), expected(window), "{byte} at {at}");
                assert_eq!(dispatch(AllMasks(window)), expected(window), "{byte} at {at}");
            }
        }
    }
}

proptest! {
    #[test]
    fn portable_and_dispatched_masks_equal_the_byte_by_byte_masks(
        window in prop::array::uniform32(any::<[u8; 2]>()),
    ) {
        let window: [u8; WINDOW] = window.concat().try_into().unwrap();
        prop_assert_eq!(AllMasks(window).run(Portable), expected(window));
        prop_assert_eq!(dispatch(AllMasks(window)), expected(window));
    }
}
