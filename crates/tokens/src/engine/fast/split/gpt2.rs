//! Splitter for the pattern of GPT-2.

use super::steps::{Contraction, Split, contraction, contractions};
use crate::engine::fast::block::AsciiBlock;
use crate::engine::fast::classes::{Classes, LETTER, NUMBER, SPACE};

/// [`Pattern::Gpt2`](super::pattern::Pattern::Gpt2); `BETWEEN` is
/// [`Pattern::Gpt2BetweenNumbers`](super::pattern::Pattern::Gpt2BetweenNumbers).
pub(in super::super) struct Gpt2<const BETWEEN: bool>;

impl<const BETWEEN: bool> Split for Gpt2<BETWEEN> {
    #[inline(always)]
    fn end(classes: Classes, bytes: &[u8], at: usize) -> usize {
        let Some((class, len)) = classes.at(bytes, at) else { return bytes.len() };
        let first = bytes[at];
        // With `BETWEEN`, the text ends at the next number.
        let next = |at| classes.at(bytes, at).filter(|(class, _)| !(BETWEEN && *class == NUMBER));
        if first == b' ' {
            return match next(at + 1) {
                Some((LETTER, len)) => classes.letters(bytes, at + 1 + len),
                Some((class, len)) if class < SPACE => classes.run(bytes, at + 1 + len, class),
                _ => spaces(next, at + 1, at),
            };
        }
        if class == LETTER {
            return classes.letters(bytes, at + len);
        }
        if BETWEEN && class == NUMBER {
            return at + len;
        }
        if class < SPACE {
            if first == b'\''
                && let Some(end) = contraction(bytes, at, false)
            {
                return end;
            }
            return classes.run(bytes, at + len, class);
        }
        spaces(next, at + len, at)
    }

    #[inline(always)]
    fn starts(block: &AsciiBlock<'_>) -> u64 {
        let &AsciiBlock { letters, numbers, spaces, blanks, lines, apostrophes, .. } = block;
        let white = spaces | blanks | lines;
        let other = block.all() & !(letters | numbers | white);
        let first_other = other & !(other << 1);
        let (alone, first_numbers, before_alone) = match BETWEEN {
            true => (numbers, 0, numbers >> 1),
            false => (0, numbers & !(numbers << 1), 0),
        };
        let runs = letters & !(letters << 1) | first_numbers | first_other;
        // A word includes a single space before it, the last one of a run.
        let last_white = white & !(white >> 1) & block.all() >> 1 & !before_alone;
        let starts = alone | runs & !(spaces << 1) | white & !(white << 1) | last_white;
        contractions(block, apostrophes & first_other & !(spaces << 1), starts, false, Contraction::Whole)
    }
}

/// Returns the end of the match of `\s+(?!\S)|\s+` that starts at `at` and whose first character ends at `end`. `next`
/// returns the class and length of a character.
#[inline(always)]
fn spaces(next: impl Fn(usize) -> Option<(u8, usize)>, mut end: usize, at: usize) -> usize {
    let mut last = at;
    while let Some((class, len)) = next(end) {
        if class < SPACE {
            // The last space belongs to what follows, unless it is the only one.
            return if last == at { end } else { last };
        }
        last = end;
        end += len;
    }
    end
}
