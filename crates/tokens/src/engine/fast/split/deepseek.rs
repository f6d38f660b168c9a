//! Splitter for the patterns of DeepSeek V3, which are applied one after the other: numbers, kana and Han, and the
//! rest. Each piece is split independently.

use super::steps::{Split, end_of_numbers, first_numbers, first_white, line_ends, spaces_and_lines};
use crate::engine::fast::block::{AsciiBlock, low};
use crate::engine::fast::classes::{Classes, EAST, LETTER, LINE_END, NUMBER, OTHER, SPACE, SYMBOL};

/// [`Pattern::DeepSeek`](super::pattern::Pattern::DeepSeek), over
/// [`ClassTable::MarksAreLetters`](crate::engine::fast::classes::ClassTable::MarksAreLetters).
pub(in super::super) struct DeepSeek;

/// Maximum number of digits in a word.
const DIGITS: usize = 3;

impl Split for DeepSeek {
    #[inline(always)]
    fn end(classes: Classes, bytes: &[u8], at: usize) -> usize {
        let Some((first, len)) = CharKind::at(classes, bytes, at) else { return bytes.len() };
        let next = at + len;
        if first.class == NUMBER {
            return end_of_numbers(classes, bytes, next, DIGITS);
        }
        let piece = CurrentPiece { classes, bytes, is_east: first.is_east };
        let run = |end, kind: fn(CharKind) -> bool| piece.run(end, kind);
        let following = piece.at(next);
        if bytes[at].is_ascii_punctuation() && bytes.get(next).is_some_and(u8::is_ascii_alphabetic) {
            let letters = bytes[next..].iter().take_while(|byte| byte.is_ascii_alphabetic());
            return next + letters.count();
        }
        let is_letter = |kind: CharKind| kind.class == LETTER;
        if is_letter(first) {
            return run(next, is_letter);
        }
        if first.class != LINE_END && !first.is_symbol && following.is_some_and(|(kind, _)| is_letter(kind)) {
            return run(next, is_letter);
        }
        let is_symbol = |kind: CharKind| kind.is_symbol;
        if first.is_symbol || bytes[at] == b' ' && following.is_some_and(|(kind, _)| kind.is_symbol) {
            let end = run(next, is_symbol);
            return if first.is_east { end } else { line_ends(bytes, end) };
        }
        if first.class < SPACE {
            return piece.unmatched(next);
        }
        spaces_and_lines(|at| piece.at(at).map(|(kind, len)| (kind.class, len)), at)
    }

    #[inline(always)]
    fn starts(block: &AsciiBlock<'_>) -> u64 {
        let &AsciiBlock { letters, numbers, spaces, blanks, lines, controls, .. } = block;
        let (gaps, white) = (spaces | blanks, spaces | blanks | lines);
        let symbols = block.all() & !(letters | numbers | white | controls);
        // A run of symbols includes a space before it and line ends after it.
        let first_symbols = symbols & !(symbols << 1) & !(spaces << 1);
        let after_symbols = lines & symbols << 1;
        let taken = lines & !lines.wrapping_add(after_symbols);
        // Letters include one character before them: a gap, or a single symbol.
        let prefixes = gaps | first_symbols & !(symbols >> 1);
        let first_letters = letters & !(letters << 1) & !(prefixes << 1);
        // White space ends before a number, and none of it is part of the number's word.
        let before_numbers = gaps & gaps << 1 & numbers >> 1 & !(lines << 1);
        let first_white = first_white(block, taken) & !before_numbers;
        let starts = first_symbols | first_letters | first_numbers(numbers, DIGITS) | first_white;
        // A character that no alternative matches starts a word of unknown length.
        let first_control = controls & controls.wrapping_neg();
        let known = if controls == 0 { u64::MAX } else { low(controls.trailing_zeros() as usize + 1) };
        (starts | first_control) & known & !1
    }
}

/// The properties of a character that the patterns distinguish.
#[derive(Clone, Copy)]
struct CharKind {
    /// [`LETTER`] also for marks.
    class: u8,
    is_symbol: bool,
    is_east: bool,
}

impl CharKind {
    #[inline(always)]
    fn at(classes: Classes, bytes: &[u8], at: usize) -> Option<(Self, usize)> {
        let (class, flags, len) = classes.both_at(bytes, at)?;
        Some((Self { class, is_symbol: flags & SYMBOL != 0, is_east: flags & EAST != 0 }, len))
    }
}

/// A text limited to the current piece, which ends at a number or at a change to or from kana and Han.
struct CurrentPiece<'a> {
    classes: Classes,
    bytes: &'a [u8],
    is_east: bool,
}

impl CurrentPiece<'_> {
    /// Returns the character at `at`, if it is in the piece.
    #[inline(always)]
    fn at(&self, at: usize) -> Option<(CharKind, usize)> {
        let found = CharKind::at(self.classes, self.bytes, at);
        found.filter(|(kind, _)| kind.class != NUMBER && kind.is_east == self.is_east)
    }

    /// Returns the end of the run that starts at `at`.
    #[inline(always)]
    fn run(&self, mut at: usize, is: impl Fn(CharKind) -> bool) -> usize {
        while let Some((kind, len)) = self.at(at)
            && is(kind)
        {
            at += len;
        }
        at
    }

    /// Returns the end of a run of characters that no alternative matches. The run is a single word.
    #[inline]
    fn unmatched(&self, mut at: usize) -> usize {
        while let Some((kind, len)) = self.at(at)
            && kind.class == OTHER
            && !kind.is_symbol
            && self.at(at + len).is_none_or(|(kind, _)| kind.class != LETTER)
        {
            at += len;
        }
        at
    }
}
