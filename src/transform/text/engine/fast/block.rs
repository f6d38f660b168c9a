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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
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
        if u64::from_ne_bytes(*head) & HIGH != 0 {
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

    /// The block that `rest` begins with; `window` has its bytes. Eight of them are looked at together, in one number.
    #[inline(always)]
    fn of(rest: &'a [u8], window: &[u8; MOST]) -> Self {
        let words = || (0..).step_by(8).zip(window.as_chunks::<8>().0.iter().map(|w| u64::from_le_bytes(*w)));
        let others = words().fold(0, |others, (at, word)| others | high_bits(word) << at);
        let len = others.trailing_zeros() as usize;
        let mut block = Self { bytes: rest.get(..len).unwrap_or(rest), ..Self::default() };
        for (at, word) in words() {
            let bits = |set: u64| high_bits(set & !word) << at;
            let plain = word & !HIGH;
            let is = |byte: u8| among(plain, byte, 1);
            let lines = is(b'\n') | is(b'\r');
            block.letters |= bits(among(plain | (0x20 * EACH), b'a', 26));
            block.numbers |= bits(among(plain, b'0', 10));
            block.spaces |= bits(is(b' '));
            block.blanks |= bits(among(plain, b'\t', 5) & !lines);
            block.lines |= bits(lines);
            block.apostrophes |= bits(is(b'\''));
        }
        let all = block.all();
        let Self { letters, numbers, spaces, blanks, lines, apostrophes, .. } = &mut block;
        for class in [letters, numbers, spaces, blanks, lines, apostrophes] {
            *class &= all;
        }
        block
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
const HIGH: u64 = 0x80 * EACH;

/// The high bit of each byte of `bytes`, all of ASCII, that is one of `count` from `first` on. No byte carries into the
/// next.
#[inline(always)]
fn among(bytes: u64, first: u8, count: u8) -> u64 {
    let from = |first: u8| bytes + u64::from(0x80 - first) * EACH;
    from(first) & !from(first + count)
}

/// The high bits of the eight bytes, as the lowest eight bits.
#[inline(always)]
fn high_bits(bytes: u64) -> u64 {
    (bytes & HIGH).wrapping_mul(0x0002_0408_1020_4081) >> 56
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The classes of the bytes of `window` before the first that is not ASCII, one byte at a time.
    fn expected(window: &[u8; MOST]) -> Block<'_> {
        let len = window.iter().position(|byte| !byte.is_ascii()).unwrap_or(MOST);
        let bytes = &window[..len];
        let bits =
            |is: fn(u8) -> bool| bytes.iter().rev().fold(0, |bits, &byte| bits << 1 | u64::from(is(byte)));
        Block {
            bytes,
            letters: bits(|byte| byte.is_ascii_alphabetic()),
            numbers: bits(|byte| byte.is_ascii_digit()),
            spaces: bits(|byte| byte == b' '),
            blanks: bits(|byte| matches!(byte, 9..=13) && !matches!(byte, b'\r' | b'\n')),
            lines: bits(|byte| matches!(byte, b'\r' | b'\n')),
            apostrophes: bits(|byte| byte == b'\''),
        }
    }

    #[test]
    fn every_byte_is_in_its_class_everywhere() {
        for byte in 0..=255u8 {
            for at in [0, 7, 8, 15, 16, 63] {
                let mut window = [b'!'; MOST];
                window[at] = byte;
                assert_eq!(Block::of(&window, &window), expected(&window), "{byte} at {at}");
            }
        }
    }

    proptest! {
        #[test]
        fn all_bytes_are_in_their_classes(window in prop::array::uniform32(any::<[u8; 2]>()), ascii: bool) {
            let mut window: [u8; MOST] = window.concat().try_into().unwrap();
            if ascii {
                window = window.map(|byte| byte & 0x7f);
            }
            prop_assert_eq!(Block::of(&window, &window), expected(&window));
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
