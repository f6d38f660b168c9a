//! Shared parts of the splitters: their trait, and the common parts of their regular expressions.

use crate::engine::fast::block::{AsciiBlock, low};
use crate::engine::fast::classes::{Classes, LINE_END, NUMBER, SPACE};

/// Finds the words of a split pattern.
pub(in super::super) trait Split {
    /// Returns the end of the word that starts at `at`, a character boundary before the end of `bytes`.
    fn end(classes: Classes, bytes: &[u8], at: usize) -> usize;

    /// Returns a mask of the starts of words in `block`, except for the word that starts at byte 0. It includes only
    /// starts that do not depend on the text after the block.
    fn starts(block: &AsciiBlock<'_>) -> u64;
}

/// Returns the starts of words of up to `digits` numbers in the runs of `numbers`.
#[inline(always)]
pub(super) fn first_numbers(numbers: u64, digits: usize) -> u64 {
    // A new word starts after every `digits` digits.
    let longer = (1..=digits).fold(numbers, |run, k| run & numbers << k);
    let mut first = numbers & !(numbers << 1);
    let mut next = first << digits & longer;
    while next != 0 {
        first |= next;
        next = next << digits & longer;
    }
    first
}

/// Returns the end of the word of up to `digits` numbers whose first number ends at `end`.
#[inline(always)]
pub(super) fn end_of_numbers(classes: Classes, bytes: &[u8], mut end: usize, digits: usize) -> usize {
    for _ in 1..digits {
        match classes.at(bytes, end) {
            Some((NUMBER, len)) => end += len,
            _ => break,
        }
    }
    end
}

/// Returns the starts of words of white space, `\s*[\r\n]+|\s+(?!\S)|\s+`. A run is split after its last line end and
/// before its last character. `taken` are the line ends that belong to the preceding word.
#[inline(always)]
pub(super) fn first_white(block: &AsciiBlock<'_>, taken: u64) -> u64 {
    let &AsciiBlock { spaces, blanks, lines, .. } = block;
    let (gaps, white) = (spaces | blanks, spaces | blanks | lines);
    let first = white & !taken & (!(white << 1) | taken << 1);
    let last_gaps = gaps & !(white >> 1) & block.all() >> 1;
    let after_line = gaps & lines << 1 & !before(gaps, lines) & !at_end(block, gaps);
    first | last_gaps | after_line
}

/// Returns the runs of `gaps` that are followed by one of `lines`.
#[inline(always)]
pub(super) fn before(gaps: u64, lines: u64) -> u64 {
    let last = gaps & lines >> 1;
    if last == 0 {
        return 0; // the usual case
    }
    // Adding the lowest bit of a run of ones clears the run. The bits are reversed to add at the other end.
    let (gaps, last) = (gaps.reverse_bits(), last.reverse_bits());
    (gaps & !gaps.wrapping_add(last)).reverse_bits()
}

/// Returns the run of `gaps` at the end of `block`.
#[inline(always)]
pub(super) fn at_end(block: &AsciiBlock<'_>, gaps: u64) -> u64 {
    let len = block.bytes.len();
    let run = gaps.checked_shl(64 - len as u32).unwrap_or(0).leading_ones() as usize;
    block.all() & !low(len - run.min(len))
}

/// Relation of a contraction to its word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Contraction {
    /// The contraction is a whole word.
    Whole,
    /// The contraction is the end of a word of letters.
    Tail,
}

/// Corrects `starts` for the contractions at `apostrophes`. If contractions are whole words, each of these apostrophes
/// starts a word. If they are tails, an apostrophe starts a word only if it is not the start of a contraction after
/// letters.
#[inline(always)]
pub(super) fn contractions(
    block: &AsciiBlock<'_>,
    mut apostrophes: u64,
    mut starts: u64,
    ignore_case: bool,
    kind: Contraction,
) -> u64 {
    let mut last_end = None;
    while apostrophes != 0 {
        let at = apostrophes.trailing_zeros() as usize;
        apostrophes &= apostrophes - 1;
        if kind == Contraction::Tail && last_end == Some(at) {
            // The preceding letters are a contraction themselves.
            continue;
        }
        let certain = low(at + usize::from(kind == Contraction::Whole));
        if at + 3 > block.bytes.len() {
            // The contraction may extend beyond the block.
            starts &= certain;
        } else if let Some(end) = contraction(block.bytes, at, ignore_case) {
            let next = 1u64.checked_shl(end as u32).unwrap_or(0) & block.all();
            starts = starts & !(low(end) & !certain) | next;
            last_end = Some(end);
        }
    }
    starts & !1
}

/// Returns the end of the match of `\s*[\r\n]+|\s+(?!\S)|\s+` at `at`. `next` returns the class and length of a
/// character.
#[inline(always)]
pub(super) fn spaces_and_lines(next: impl Fn(usize) -> Option<(u8, usize)>, at: usize) -> usize {
    let (mut end, mut last) = (at, at);
    let mut after_line = None;
    while let Some((class, len)) = next(end) {
        if class < SPACE {
            return after_line.unwrap_or(if last == at { end } else { last });
        }
        last = end;
        end += len;
        if class == LINE_END {
            after_line = Some(end);
        }
    }
    after_line.unwrap_or(end)
}

/// Returns the end of the match of `[\r\n]*` at `at`.
#[inline]
pub(super) fn line_ends(bytes: &[u8], mut at: usize) -> usize {
    while let Some(b'\r' | b'\n') = bytes.get(at) {
        at += 1;
    }
    at
}

/// Returns the end of the match of `'s|'t|'re|'ve|'m|'ll|'d` at the apostrophe `at`, if any.
#[inline]
pub(super) fn contraction(bytes: &[u8], at: usize, ignore_case: bool) -> Option<usize> {
    let letter = |k: usize| {
        let b = bytes.get(at + k).copied().unwrap_or(0);
        if ignore_case { b.to_ascii_lowercase() } else { b }
    };
    match (letter(1), letter(2)) {
        (b's' | b't' | b'm' | b'd', _) => Some(at + 2),
        (b'r' | b'v', b'e') | (b'l', b'l') => Some(at + 3),
        // U+017F, the long s, matches `s` if case is ignored.
        (0xc5, 0xbf) if ignore_case => Some(at + 3),
        _ => None,
    }
}
