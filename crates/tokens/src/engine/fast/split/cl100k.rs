//! Splitter for the patterns of `cl100k_base` and related encodings.

use super::steps::{
    Contraction, Split, contraction, contractions, end_of_numbers, first_numbers, first_white, line_ends,
    spaces_and_lines,
};
use crate::engine::fast::block::AsciiBlock;
use crate::engine::fast::classes::{Classes, LETTER, LINE_END, NUMBER, OTHER};

/// [`Pattern::Cl100k`](super::pattern::Pattern::Cl100k) and [`Pattern::Qwen2`](super::pattern::Pattern::Qwen2): a word
/// has up to `DIGITS` digits.
pub(in super::super) struct Cl100k<const DIGITS: usize>;

impl<const DIGITS: usize> Split for Cl100k<DIGITS> {
    #[inline(always)]
    fn end(classes: Classes, bytes: &[u8], at: usize) -> usize {
        let Some((class, len)) = classes.at(bytes, at) else { return bytes.len() };
        let first = bytes[at];
        let next = at + len;
        match class {
            LETTER => return classes.letters(bytes, next),
            NUMBER => return end_of_numbers(classes, bytes, next, DIGITS),
            _ => {}
        }
        if first == b'\''
            && let Some(end) = contraction(bytes, at, true)
        {
            return end;
        }
        let following = classes.at(bytes, next);
        if class != LINE_END
            && let Some((LETTER, len)) = following
        {
            return classes.letters(bytes, next + len);
        }
        match (first, following) {
            (b' ', Some((OTHER, len))) => line_ends(bytes, classes.run(bytes, next + len, OTHER)),
            _ if class == OTHER => line_ends(bytes, classes.run(bytes, next, OTHER)),
            _ => spaces_and_lines(|at| classes.at(bytes, at), at),
        }
    }

    #[inline(always)]
    fn starts(block: &AsciiBlock<'_>) -> u64 {
        let &AsciiBlock { letters, numbers, spaces, blanks, lines, apostrophes, .. } = block;
        let (gaps, white) = (spaces | blanks, spaces | blanks | lines);
        let other = block.all() & !(letters | numbers | white);
        // A run of other characters includes a space before it and line ends after it.
        let first_other = other & !(other << 1) & !(spaces << 1);
        let after_other = lines & other << 1;
        let taken = lines & !lines.wrapping_add(after_other);
        // Letters include one character before them: a gap, or a single other character.
        let prefixes = gaps | first_other & !(other >> 1);
        let first_letters = letters & !(letters << 1) & !(prefixes << 1);
        let starts = first_other | first_letters | first_numbers(numbers, DIGITS) | first_white(block, taken);
        contractions(block, apostrophes & first_other, starts, true, Contraction::Whole)
    }
}
