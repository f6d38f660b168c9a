//! Character-class bitmasks of the next 64 bytes, one bit per byte and class. They allow a splitter to find all words
//! of a block in a few dozen operations, without branches that depend on the text.
//!
//! A block is ASCII and ends before the first non-ASCII byte. From there, the splitters continue character by
//! character, with [`Classes`](super::classes::Classes).

use crate::masks::{ByteMasks, HIGH_BITS, WINDOW};

/// Minimum number of ASCII bytes for which a block is worthwhile.
const MIN_BLOCK_BYTES: usize = 8;

/// The bytes of a block and their classes. Bit `i` is for byte `i`; a byte in no class is any other character.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct AsciiBlock<'a> {
    /// At most [`WINDOW`] bytes, all ASCII.
    pub(super) bytes: &'a [u8],
    /// `\p{L}`.
    pub(super) letters: u64,
    /// `\p{Lu}`.
    pub(super) capitals: u64,
    /// `\p{N}`.
    pub(super) numbers: u64,
    /// U+0020.
    pub(super) spaces: u64,
    /// White space that is neither U+0020 nor a line end.
    pub(super) blanks: u64,
    /// `[\r\n]`.
    pub(super) lines: u64,
    /// `'`.
    pub(super) apostrophes: u64,
    /// `/`.
    pub(super) slashes: u64,
    /// `\p{Cc}` that are not white space.
    pub(super) controls: u64,
}

impl<'a> AsciiBlock<'a> {
    /// Returns the block that starts at `at`, or `None` if it has too few ASCII bytes to be worthwhile.
    #[inline(always)]
    pub(super) fn at(masks: impl ByteMasks, bytes: &'a [u8], at: usize) -> Option<Self> {
        let rest = bytes.get(at..)?;
        let head = rest.first_chunk::<MIN_BLOCK_BYTES>()?;
        if u64::from_ne_bytes(*head) & HIGH_BITS != 0 {
            return None;
        }
        match rest.first_chunk::<WINDOW>() {
            Some(window) => Some(Self::of(masks, rest, window)),
            None => {
                // Bytes after the end count as non-ASCII.
                let mut window = [0xff; WINDOW];
                window.get_mut(..rest.len())?.copy_from_slice(rest);
                Some(Self::of(masks, rest, &window))
            }
        }
    }

    /// Returns the block at the start of `rest`; `window` contains its bytes.
    #[inline(always)]
    fn of(masks: impl ByteMasks, rest: &'a [u8], window: &[u8; WINDOW]) -> Self {
        let window = masks.load(window);
        let len = masks.non_ascii(window).trailing_zeros() as usize;
        let all = low(len);
        let lines = masks.equal(window, b'\n') | masks.equal(window, b'\r');
        Self {
            bytes: rest.get(..len).unwrap_or(rest),
            letters: masks.in_range(masks.set_case_bit(window), b'a', 26) & all,
            capitals: masks.in_range(window, b'A', 26) & all,
            numbers: masks.in_range(window, b'0', 10) & all,
            spaces: masks.equal(window, b' ') & all,
            blanks: masks.in_range(window, b'\t', 5) & !lines & all,
            lines: lines & all,
            apostrophes: masks.equal(window, b'\'') & all,
            slashes: masks.equal(window, b'/') & all,
            controls: (masks.in_range(window, 0, 9)
                | masks.in_range(window, 14, 18)
                | masks.equal(window, 0x7f))
                & all,
        }
    }

    /// Returns a mask with a bit for every byte of the block.
    #[inline(always)]
    pub(super) fn all(&self) -> u64 {
        low(self.bytes.len())
    }
}

/// Returns a mask of the lowest `count` bits, at most 64.
#[inline(always)]
pub(super) fn low(count: usize) -> u64 {
    u64::MAX.checked_shr(64 - count as u32).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::masks::Portable;

    /// Computes the classes of the bytes of `window` before the first non-ASCII byte, one byte at a time.
    fn expected(window: &[u8; WINDOW]) -> AsciiBlock<'_> {
        let len = window.iter().position(|byte| !byte.is_ascii()).unwrap_or(WINDOW);
        let bytes = &window[..len];
        let bits =
            |is: fn(u8) -> bool| bytes.iter().rev().fold(0, |bits, &byte| bits << 1 | u64::from(is(byte)));
        AsciiBlock {
            bytes,
            letters: bits(|byte| byte.is_ascii_alphabetic()),
            capitals: bits(|byte| byte.is_ascii_uppercase()),
            numbers: bits(|byte| byte.is_ascii_digit()),
            spaces: bits(|byte| byte == b' '),
            blanks: bits(|byte| matches!(byte, 9..=13) && !matches!(byte, b'\r' | b'\n')),
            lines: bits(|byte| matches!(byte, b'\r' | b'\n')),
            apostrophes: bits(|byte| byte == b'\''),
            slashes: bits(|byte| byte == b'/'),
            controls: bits(|byte| byte.is_ascii_control() && !matches!(byte, 9..=13)),
        }
    }

    #[test]
    fn every_byte_is_in_its_class_at_every_position() {
        for byte in 0..=255u8 {
            for at in [0, 7, 8, 15, 16, 63] {
                let mut window = [b'!'; WINDOW];
                window[at] = byte;
                assert_eq!(AsciiBlock::of(Portable, &window, &window), expected(&window), "{byte} at {at}");
            }
        }
    }

    proptest! {
        #[test]
        fn random_bytes_are_in_their_classes(window in prop::array::uniform32(any::<[u8; 2]>()), ascii: bool) {
            let mut window: [u8; WINDOW] = window.concat().try_into().unwrap();
            if ascii {
                window = window.map(|byte| byte & 0x7f);
            }
            prop_assert_eq!(AsciiBlock::of(Portable, &window, &window), expected(&window));
        }
    }

    #[test]
    fn a_block_ends_before_non_ascii_and_at_the_end_of_the_text() {
        let text = "0123456789 abcdefé!".repeat(9);
        let block = |at| AsciiBlock::at(Portable, text.as_bytes(), at);
        assert_eq!(block(0).unwrap().bytes, b"0123456789 abcdef");
        assert_eq!((block(0).unwrap().all(), block(0).unwrap().spaces), ((1 << 17) - 1, 1 << 10));
        assert_eq!(block(10), None);
        assert_eq!(block(text.len()), None);
        let plain = "ab cd ".repeat(20);
        assert_eq!(AsciiBlock::at(Portable, plain.as_bytes(), 0).unwrap().all(), u64::MAX);
        let end = AsciiBlock::at(Portable, plain.as_bytes(), 108).unwrap();
        assert_eq!(
            (end.bytes, end.letters, end.spaces),
            (&b"ab cd ab cd "[..], 0b0110_1101_1011, 0b1001_0010_0100)
        );
        assert_eq!((low(0), low(64)), (0, u64::MAX));
    }
}
