//! Splitter for the patterns of `o200k_base` and related encodings, in which words end where their case changes.

use super::steps::{
    Contraction, Split, contraction, contractions, end_of_numbers, first_numbers, first_white,
    spaces_and_lines,
};
use crate::engine::fast::block::AsciiBlock;
use crate::engine::fast::classes::{AS_LOWER, AS_UPPER, Classes, LETTER, LINE_END, NUMBER, OTHER};

/// [`Pattern::O200k`](super::pattern::Pattern::O200k) and [`Pattern::Tekken`](super::pattern::Pattern::Tekken): a word
/// of numbers has up to `DIGITS` of them; with `CONTRACTIONS`, a word of letters includes a contraction after it.
pub(in super::super) struct O200k<const DIGITS: usize, const CONTRACTIONS: bool>;

impl<const DIGITS: usize, const CONTRACTIONS: bool> Split for O200k<DIGITS, CONTRACTIONS> {
    #[inline(always)]
    fn end(classes: Classes, bytes: &[u8], at: usize) -> usize {
        let Some((class, len)) = classes.at(bytes, at) else { return bytes.len() };
        let next = at + len;
        if class == NUMBER {
            return end_of_numbers(classes, bytes, next, DIGITS);
        }
        // Letters after a prefix character take precedence over letters that start here, possibly with a mark.
        let letters =
            |at, may_be: bool| if may_be { Letters::at(classes, bytes, at) } else { Letters::default() };
        let after_prefix = letters(next, !matches!(class, LETTER | LINE_END));
        let here = letters(at, after_prefix.with_lower.is_none() && matches!(class, LETTER | OTHER));
        if let Some(end) =
            after_prefix.with_lower.or(here.with_lower).or(after_prefix.all_upper).or(here.all_upper)
        {
            let is_contraction = CONTRACTIONS && bytes.get(end) == Some(&b'\'');
            return is_contraction.then(|| contraction(bytes, end, true)).flatten().unwrap_or(end);
        }
        match (bytes[at], classes.at(bytes, next)) {
            (b' ', Some((OTHER, len))) => tail(bytes, classes.run(bytes, next + len, OTHER)),
            _ if class == OTHER => tail(bytes, classes.run(bytes, next, OTHER)),
            _ => spaces_and_lines(|at| classes.at(bytes, at), at),
        }
    }

    #[inline(always)]
    fn starts(block: &AsciiBlock<'_>) -> u64 {
        let &AsciiBlock { letters, capitals, numbers, spaces, blanks, lines, apostrophes, slashes, .. } =
            block;
        let (gaps, white) = (spaces | blanks, spaces | blanks | lines);
        let other = block.all() & !(letters | numbers | white);
        // Line ends after other characters belong to them, as do slashes after these line ends. Adding a bit to a run
        // of ones clears the run from that bit on. A second bit added to the same run stays set, so it is restored
        // afterwards.
        let (after_other, tails) = (lines & other << 1, lines | slashes);
        let taken = tails & !tails.wrapping_add(after_other) | after_other;
        let other = other & !taken;
        let first_other = other & !(other << 1) & !(spaces << 1);
        // Letters include one character before them: a gap, or a single other character.
        let prefixes = gaps | first_other & !(other >> 1);
        let first_letters = letters & !(letters << 1) & !(prefixes << 1);
        let changes = capitals & (letters & !capitals) << 1;
        let starts = first_other
            | first_letters
            | changes
            | first_numbers(numbers, DIGITS)
            | first_white(block, taken);
        let apostrophes = if CONTRACTIONS { apostrophes & letters << 1 } else { 0 };
        contractions(block, apostrophes, starts, true, Contraction::Tail)
    }
}

/// Ends of the two letter alternatives at a position.
#[derive(Default)]
struct Letters {
    /// `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+`
    with_lower: Option<usize>,
    /// `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+`
    all_upper: Option<usize>,
}

impl Letters {
    #[inline(always)]
    fn at(classes: Classes, bytes: &[u8], at: usize) -> Self {
        let (mut end, mut with_lower) = (at, None);
        // Matches as many uppercase letters as possible. If no lowercase letter follows, the last one that also matches
        // as lowercase is the lowercase part.
        while let Some((_, case, len)) = classes.both_at(bytes, end)
            && case & AS_UPPER != 0
        {
            end += len;
            if case & AS_LOWER != 0 {
                with_lower = Some(end);
            }
        }
        let all_upper = (end > at).then_some(end);
        while let Some((_, case, len)) = classes.both_at(bytes, end)
            && case & AS_LOWER != 0
        {
            end += len;
            with_lower = Some(end);
        }
        Self { with_lower, all_upper }
    }
}

/// Returns the end of the match of `[\r\n/]*` at `at`.
#[inline]
fn tail(bytes: &[u8], mut at: usize) -> usize {
    while let Some(b'\r' | b'\n' | b'/') = bytes.get(at) {
        at += 1;
    }
    at
}
