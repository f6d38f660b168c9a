//! What the next 64 bytes are: one bit for each byte and class, so that a splitter finds all words among them at once,
//! in a few dozen operations without a branch that depends on the text.
//!
//! Only ASCII is looked at. A block ends before the first byte that is not, and who needs the rest goes on with
//! [`Classes`](super::classes::Classes), character by character.

/// Most bytes of a block.
pub(super) const MOST: usize = 64;
/// Where a byte beyond ASCII comes within so many, a block does not pay.
const FEWEST: usize = 8;

/// The bytes of a block and their classes: bit `i` stands for byte `i`. A byte that is in no class is anything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block<'a> {
    /// All of ASCII, at most [`MOST`].
    pub(super) bytes: &'a [u8],
    /// `\p{L}`.
    pub(super) letters: u64,
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
}

impl<'a> Block<'a> {
    /// The block that begins at `at`; `None` when there are not enough bytes of ASCII to make it worth it.
    #[inline(always)]
    pub(super) fn at(bytes: &'a [u8], at: usize) -> Option<Self> {
        let rest = bytes.get(at..)?;
        let head = rest.first_chunk::<FEWEST>()?;
        if u64::from_ne_bytes(*head) & (0x80 * EACH) != 0 {
            return None;
        }
        match rest.first_chunk::<MOST>() {
            Some(window) => Some(Self::of(rest, window)),
            None => {
                // What is behind the end is no ASCII.
                let mut window = [0xff; MOST];
                window.get_mut(..rest.len())?.copy_from_slice(rest);
                Some(Self::of(rest, &window))
            }
        }
    }

    /// The block that `rest` begins with; `window` has its bytes.
    #[inline(always)]
    fn of(rest: &'a [u8], window: &[u8; MOST]) -> Self {
        let Classified { letters, numbers, spaces, blanks, lines, apostrophes, others } = classify(window);
        let len = others.trailing_zeros() as usize;
        let valid = low(len);
        Self {
            bytes: rest.get(..len).unwrap_or(rest),
            letters: letters & valid,
            numbers: numbers & valid,
            spaces: spaces & valid,
            blanks: blanks & valid,
            lines: lines & valid,
            apostrophes: apostrophes & valid,
        }
    }

    /// A bit for every byte.
    #[inline(always)]
    pub(super) fn all(&self) -> u64 {
        low(self.bytes.len())
    }
}

/// The lowest `count` bits, at most 64.
#[inline(always)]
pub(super) fn low(count: usize) -> u64 {
    u64::MAX.checked_shr(64 - count as u32).unwrap_or(0)
}

const EACH: u64 = 0x0101_0101_0101_0101;

/// The classes of 64 bytes, a bit for each byte.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Classified {
    letters: u64,
    numbers: u64,
    spaces: u64,
    blanks: u64,
    lines: u64,
    apostrophes: u64,
    /// Not ASCII.
    others: u64,
}

impl Classified {
    /// Adds those of the bytes from `at` on.
    #[inline(always)]
    fn put(&mut self, at: usize, next: Self) {
        self.letters |= next.letters << at;
        self.numbers |= next.numbers << at;
        self.spaces |= next.spaces << at;
        self.blanks |= next.blanks << at;
        self.lines |= next.lines << at;
        self.apostrophes |= next.apostrophes << at;
        self.others |= next.others << at;
    }
}

use portable::classify;

/// Eight bytes at once, as every processor can.
mod portable {
    use super::{Classified, EACH, MOST};

    #[inline(always)]
    pub(super) fn classify(window: &[u8; MOST]) -> Classified {
        let mut all = Classified::default();
        for (i, bytes) in window.as_chunks::<8>().0.iter().enumerate() {
            all.put(8 * i, eight(u64::from_le_bytes(*bytes)));
        }
        all
    }

    #[inline(always)]
    fn eight(bytes: u64) -> Classified {
        let high = 0x80 * EACH;
        let low = bytes & !high;
        // The high bit of each byte of ASCII that is at least `first`. No byte carries into the next.
        let from = |bytes: u64, first: u8| bytes + u64::from(0x80 - first) * EACH;
        let among = |bytes, first: u8, count: u8| from(bytes, first) & !from(bytes, first + count);
        let is = |byte: u8| among(low, byte, 1);
        let bits = |set: u64| (set & !bytes & high).wrapping_mul(0x0002_0408_1020_4081) >> 56;
        let lines = bits(is(b'\n') | is(b'\r'));
        Classified {
            letters: bits(among(low | (0x20 * EACH), b'a', 26)),
            numbers: bits(among(low, b'0', 10)),
            spaces: bits(is(b' ')),
            blanks: bits(among(low, b'\t', 5)) & !lines,
            lines,
            apostrophes: bits(is(b'\'')),
            others: (bytes & high).wrapping_mul(0x0002_0408_1020_4081) >> 56,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_byte_is_in_its_class_on_every_processor() {
        for byte in 0..=255u8 {
            for at in [0, 7, 8, 15, 16, 63] {
                let mut window = [b'!'; MOST];
                window[at] = byte;
                let found = classify(&window);
                let bit = |is: bool| u64::from(is) << at;
                let line = matches!(byte, b'\r' | b'\n');
                let expected = Classified {
                    letters: bit(byte.is_ascii_alphabetic()),
                    numbers: bit(byte.is_ascii_digit()),
                    spaces: bit(byte == b' '),
                    blanks: bit(matches!(byte, 9..=13) && !line),
                    lines: bit(line),
                    apostrophes: bit(byte == b'\''),
                    others: bit(!byte.is_ascii()),
                };
                assert_eq!(found, expected, "{byte} at {at}");
                assert_eq!(portable::classify(&window), expected, "{byte} at {at}");
            }
        }
    }

    proptest! {
        #[test]
        fn both_ways_agree(window in prop::array::uniform32(any::<[u8; 2]>())) {
            let window: [u8; MOST] = window.concat().try_into().unwrap();
            prop_assert_eq!(classify(&window), portable::classify(&window));
        }
    }

    #[test]
    fn a_block_ends_before_what_is_not_ascii_and_at_the_end() {
        let text = "0123456789 abcdefé!".repeat(9);
        let block = |at| Block::at(text.as_bytes(), at);
        assert_eq!(block(0).unwrap().bytes, b"0123456789 abcdef");
        assert_eq!((block(0).unwrap().all(), block(0).unwrap().spaces), ((1 << 17) - 1, 1 << 10));
        assert_eq!(block(10), None);
        assert_eq!(block(text.len()), None);
        let plain = "ab cd ".repeat(20);
        assert_eq!(Block::at(plain.as_bytes(), 0).unwrap().all(), u64::MAX);
        let end = Block::at(plain.as_bytes(), 108).unwrap();
        assert_eq!(
            (end.bytes, end.letters, end.spaces),
            (&b"ab cd ab cd "[..], 0b0110_1101_1011, 0b1001_0010_0100)
        );
        assert_eq!((low(0), low(64)), (0, u64::MAX));
    }
}
