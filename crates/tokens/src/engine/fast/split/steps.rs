//! What the splitters share: the trait, and the parts that their regular expressions have in common.

use crate::engine::fast::block::{Block, low};
use crate::engine::fast::classes::{Classes, LINE_END, NUMBER, SPACE};

/// Where words end.
pub(in super::super) trait Split {
    /// End of the word that begins at `at`, which is a character boundary before the end of `bytes`.
    fn end(classes: Classes, bytes: &[u8], at: usize) -> usize;

    /// Where words begin in `block`, of which one begins at byte 0: a bit for each but that one. Those only that begin
    /// there whatever follows the block.
    fn starts(block: &Block<'_>) -> u64;
}

/// Where, among runs of `numbers`, words of up to `digits` of them begin.
#[inline(always)]
pub(super) fn first_numbers(numbers: u64, digits: usize) -> u64 {
    // After every `digits` digits another word begins.
    let longer = (1..=digits).fold(numbers, |run, k| run & numbers << k);
    let mut first = numbers & !(numbers << 1);
    let mut next = first << digits & longer;
    while next != 0 {
        first |= next;
        next = next << digits & longer;
    }
    first
}

/// End of the word of up to `digits` numbers of which the first ends at `end`.
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

/// Where white space begins words, `\s*[\r\n]+|\s+(?!\S)|\s+`: up to its last line end, then up to its last character, then
/// that. `taken` are line ends that belong to the word before them.
#[inline(always)]
pub(super) fn first_white(block: &Block<'_>, taken: u64) -> u64 {
    let &Block { spaces, blanks, lines, .. } = block;
    let (gaps, white) = (spaces | blanks, spaces | blanks | lines);
    let first = white & !taken & (!(white << 1) | taken << 1);
    let last_gaps = gaps & !(white >> 1) & block.all() >> 1;
    let after_line = gaps & lines << 1 & !before(gaps, lines) & !at_end(block, gaps);
    first | last_gaps | after_line
}

/// The runs of `gaps` that are followed by one of `lines`.
#[inline(always)]
pub(super) fn before(gaps: u64, lines: u64) -> u64 {
    let last = gaps & lines >> 1;
    if last == 0 {
        return 0; // nearly always
    }
    // Adding to the lowest bit of a run of ones clears the run: here from the other side.
    let (gaps, last) = (gaps.reverse_bits(), last.reverse_bits());
    (gaps & !gaps.wrapping_add(last)).reverse_bits()
}

/// The run of `gaps` at the end of `block`.
#[inline(always)]
pub(super) fn at_end(block: &Block<'_>, gaps: u64) -> u64 {
    let len = block.bytes.len();
    let run = gaps.checked_shl(64 - len as u32).unwrap_or(0).leading_ones() as usize;
    block.all() & !low(len - run.min(len))
}

/// What a contraction is to the word it belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Contraction {
    /// All of it.
    Whole,
    /// Its end, after letters.
    Tail,
}

/// Corrects `starts` for the contractions that begin at some of `apostrophes`: where they are a whole word, one begins at
/// each of these in any case; where they are a tail, one begins there only if no letter is before it.
#[inline(always)]
pub(super) fn contractions(
    block: &Block<'_>,
    mut apostrophes: u64,
    mut starts: u64,
    ignore_case: bool,
    kind: Contraction,
) -> u64 {
    let mut behind = None;
    while apostrophes != 0 {
        let at = apostrophes.trailing_zeros() as usize;
        apostrophes &= apostrophes - 1;
        if kind == Contraction::Tail && behind == Some(at) {
            // The word before is a contraction itself.
            continue;
        }
        let certain = low(at + usize::from(kind == Contraction::Whole));
        if at + 3 > block.bytes.len() {
            // What follows is not in this block.
            starts &= certain;
        } else if let Some(end) = contraction(block.bytes, at, ignore_case) {
            let next = 1u64.checked_shl(end as u32).unwrap_or(0) & block.all();
            starts = starts & !(low(end) & !certain) | next;
            behind = Some(end);
        }
    }
    starts & !1
}

/// `\s*[\r\n]+|\s+(?!\S)|\s+`, in a text of which `next` gives the class and the length of a character.
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

/// `[\r\n]*`.
#[inline]
pub(super) fn line_ends(bytes: &[u8], mut at: usize) -> usize {
    while let Some(b'\r' | b'\n') = bytes.get(at) {
        at += 1;
    }
    at
}

/// End of `'s|'t|'re|'ve|'m|'ll|'d` at the apostrophe `at`.
#[inline]
pub(super) fn contraction(bytes: &[u8], at: usize, ignore_case: bool) -> Option<usize> {
    let letter = |k: usize| {
        let b = bytes.get(at + k).copied().unwrap_or(0);
        if ignore_case { b.to_ascii_lowercase() } else { b }
    };
    match (letter(1), letter(2)) {
        (b's' | b't' | b'm' | b'd', _) => Some(at + 2),
        (b'r' | b'v', b'e') | (b'l', b'l') => Some(at + 3),
        // U+017F, the long s, is an s when case does not count.
        (0xc5, 0xbf) if ignore_case => Some(at + 3),
        _ => None,
    }
}
