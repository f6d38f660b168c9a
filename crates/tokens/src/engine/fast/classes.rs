//! The Unicode classes that split patterns use: letter, number, white space, and other characters.
//!
//! The tables come from `regex-syntax`. A test compares them with Oniguruma, which runs the reference's regular
//! expressions, for every code point.

use std::sync::LazyLock;

use regex_syntax::hir::{Class, HirKind};

use crate::masks::{HIGH_BITS, ONES};

/// `[^\s\p{L}\p{N}]`.
pub(super) const OTHER: u8 = 0;
/// `\p{L}`.
pub(super) const LETTER: u8 = 1;
/// `\p{N}`.
pub(super) const NUMBER: u8 = 2;
/// `\s`, except for line ends.
pub(super) const SPACE: u8 = 3;
/// `[\r\n]`. The largest class, so that `class >= SPACE` is `\s`.
pub(super) const LINE_END: u8 = 4;

/// Bits of an entry that contain the class; each other bit is a flag.
const CLASS: u8 = 7;
/// Flag of characters that match like uppercase letters, `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`.
pub(super) const AS_UPPER: u8 = 8;
/// Flag of characters that match like lowercase letters, `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`.
pub(super) const AS_LOWER: u8 = 16;
/// `[\p{P}\p{S}]`.
pub(super) const SYMBOL: u8 = 32;
/// `[一-龥぀-ゟ゠-ヿ]`.
pub(super) const EAST: u8 = 64;

/// Variants of the class table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClassTable {
    /// The classes as in Unicode.
    Plain,
    /// `\p{M}` are letters.
    MarksAreLetters,
    /// Characters that are numeric in Rust are numbers. Rust's Unicode tables may be newer.
    NumericAreNumbers,
}

/// Class table with one entry per code point.
static PLAIN: LazyLock<Option<Vec<u8>>> = LazyLock::new(table);
static MARKS_ARE_LETTERS: LazyLock<Option<Vec<u8>>> = LazyLock::new(|| {
    let mut table = PLAIN.clone()?;
    set_class(&mut table, r"\p{M}", LETTER)?;
    Some(table)
});
static NUMERIC_ARE_NUMBERS: LazyLock<Option<Vec<u8>>> = LazyLock::new(|| {
    let mut table = PLAIN.clone()?;
    for (code, entry) in (0..).zip(&mut table) {
        match char::from_u32(code).is_some_and(char::is_numeric) {
            true => *entry = NUMBER,
            // `\p{N}` would match this character, although it is not numeric in Rust.
            false if *entry & CLASS == NUMBER => return None,
            false => {}
        }
    }
    Some(table)
});

/// The classes of all characters.
#[derive(Clone, Copy)]
pub(super) struct Classes(&'static [u8]);

impl Classes {
    /// Returns the table, which is built at the first call. `None` if `regex-syntax` does not support the classes,
    /// which its own tests rule out.
    pub(super) fn get(table: ClassTable) -> Option<Self> {
        let table = match table {
            ClassTable::Plain => &PLAIN,
            ClassTable::MarksAreLetters => &MARKS_ARE_LETTERS,
            ClassTable::NumericAreNumbers => &NUMERIC_ARE_NUMBERS,
        };
        table.as_deref().map(Self)
    }

    /// Returns the class of a code point.
    #[inline(always)]
    pub(super) fn of(self, code: u32) -> u8 {
        self.entry(code) & CLASS
    }

    #[inline(always)]
    fn entry(self, code: u32) -> u8 {
        self.0.get(code as usize).copied().unwrap_or(OTHER)
    }

    /// Returns the class, flags and length of the character at `at`; `None` at the end.
    #[inline(always)]
    pub(super) fn both_at(self, bytes: &[u8], at: usize) -> Option<(u8, u8, usize)> {
        let &first = bytes.get(at)?;
        let (code, len) = if first < 0x80 { (u32::from(first), 1) } else { decode(bytes, at, first) };
        let entry = self.entry(code);
        Some((entry & CLASS, entry & !CLASS, len))
    }

    /// Returns the class and length of the character at `at`; `None` at the end.
    #[inline(always)]
    pub(super) fn at(self, bytes: &[u8], at: usize) -> Option<(u8, usize)> {
        let &first = bytes.get(at)?;
        if first < 0x80 {
            return Some((self.of(u32::from(first)), 1));
        }
        let (code, len) = decode(bytes, at, first);
        Some((self.of(code), len))
    }

    /// Returns the end of the run of letters that starts at `at`.
    #[inline(always)]
    pub(super) fn letters(self, bytes: &[u8], mut at: usize) -> usize {
        loop {
            // Tests eight bytes at once, without a branch per letter. Nearly every word ends in the first eight.
            if let Some(window) = bytes.get(at..at + 8).and_then(|w| w.first_chunk::<8>()) {
                let run = ascii_letters(u64::from_le_bytes(*window));
                at += run;
                if run == 8 {
                    continue;
                }
            }
            match self.at(bytes, at) {
                Some((LETTER, len)) => at += len,
                _ => return at,
            }
        }
    }

    /// Returns the end of the run of characters of `class` that starts at `at`.
    #[inline(always)]
    pub(super) fn run(self, bytes: &[u8], mut at: usize, class: u8) -> usize {
        while let Some((c, len)) = self.at(bytes, at)
            && c == class
        {
            at += len;
        }
        at
    }
}

/// Returns the number of ASCII letters before the first other byte, among eight bytes from the lowest.
#[inline(always)]
fn ascii_letters(window: u64) -> usize {
    let lower = (window | (0x20 * ONES)) & !HIGH_BITS;
    // The high bits mark bytes of at least 'a', and above 'z'. No byte carries into the next.
    let from_a = lower + (0x80 - b'a' as u64) * ONES;
    let after_z = lower + (0x7f - b'z' as u64) * ONES;
    let letters = from_a & !after_z & !window & HIGH_BITS;
    ((letters ^ HIGH_BITS).trailing_zeros() / 8) as usize
}

/// Returns the code point and length of the non-ASCII character at `at`, whose first byte is `first`. `bytes` must be
/// valid UTF-8.
#[inline]
pub(super) fn decode(bytes: &[u8], at: usize, first: u8) -> (u32, usize) {
    let next = |k: usize| u32::from(bytes.get(at + k).copied().unwrap_or(0) & 0x3f);
    let first = u32::from(first);
    match first {
        0..0xe0 => ((first & 0x1f) << 6 | next(1), 2),
        0xe0..0xf0 => ((first & 0x0f) << 12 | next(1) << 6 | next(2), 3),
        _ => ((first & 0x07) << 18 | next(1) << 12 | next(2) << 6 | next(3), 4),
    }
}

fn table() -> Option<Vec<u8>> {
    let mut table = vec![OTHER; char::MAX as usize + 1];
    for (pattern, class) in [(r"\p{L}", LETTER), (r"\p{N}", NUMBER), (r"\s", SPACE), (r"[\r\n]", LINE_END)] {
        set_class(&mut table, pattern, class)?;
    }
    for (pattern, bit) in [
        (r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", AS_UPPER),
        (r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]", AS_LOWER),
        (r"[\p{P}\p{S}]", SYMBOL),
        ("[一-龥぀-ゟ゠-ヿ]", EAST),
    ] {
        change(&mut table, pattern, |entry| entry | bit)?;
    }
    Some(table)
}

fn set_class(table: &mut [u8], pattern: &str, class: u8) -> Option<()> {
    change(table, pattern, |entry| entry & !CLASS | class)
}

/// Applies `to` to the entries of all characters that match `pattern`.
fn change(table: &mut [u8], pattern: &str, to: impl Fn(u8) -> u8) -> Option<()> {
    let hir = regex_syntax::parse(pattern).ok()?;
    let HirKind::Class(Class::Unicode(ranges)) = hir.kind() else { return None };
    for range in ranges.iter() {
        let range = table.get_mut(range.start() as usize..=range.end() as usize)?;
        range.iter_mut().for_each(|entry| *entry = to(*entry));
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_found_eight_bytes_at_a_time() {
        let classes = Classes::get(ClassTable::Plain).unwrap();
        for byte in 0..=255u8 {
            for place in 0..8 {
                let mut window = *b"aZqAzmMx";
                window[place] = byte;
                let expected = if byte.is_ascii_alphabetic() { 8 } else { place };
                assert_eq!(ascii_letters(u64::from_le_bytes(window)), expected, "{byte} at {place}");
            }
        }
        for text in ["", "a", "words.", "straße in der", "abcdefghijk lm", "Привет мир", "abcdefg\u{301}"]
        {
            assert_eq!(
                classes.letters(text.as_bytes(), 0),
                classes.run(text.as_bytes(), 0, LETTER),
                "{text}"
            );
        }
    }

    #[test]
    fn every_code_point_has_the_classes_of_the_regular_expressions() {
        let all: String = ('\0'..=char::MAX).collect();
        let check = |table, pattern: &str, is_in: fn(u8, u8) -> bool| {
            let classes = Classes::get(table).unwrap();
            let regex = onig::Regex::new(pattern).unwrap();
            let matched: String = regex.find_iter(&all).map(|(start, end)| &all[start..end]).collect();
            let expected: String = all
                .chars()
                .filter(|c| {
                    let (class, flags, _) = classes.both_at(c.to_string().as_bytes(), 0).unwrap();
                    is_in(class, flags)
                })
                .collect();
            assert!(matched == expected, "{pattern}");
        };
        let plain = ClassTable::Plain;
        check(plain, r"\p{L}+", |class, _| class == LETTER);
        check(plain, r"\p{N}+", |class, _| class == NUMBER);
        check(plain, r"\s+", |class, _| class >= SPACE);
        check(plain, r"[^\s\p{L}\p{N}]+", |class, _| class == OTHER);
        check(plain, r"[^\r\n\p{L}\p{N}]+", |class, _| !matches!(class, LETTER | NUMBER | LINE_END));
        check(plain, r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+", |_, flags| flags & AS_UPPER != 0);
        check(plain, r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]+", |_, flags| flags & AS_LOWER != 0);
        check(plain, r"[\p{P}\p{S}]+", |_, flags| flags & SYMBOL != 0);
        check(plain, "[一-龥぀-ゟ゠-ヿ]+", |_, flags| flags & EAST != 0);
        check(ClassTable::MarksAreLetters, r"[\p{L}\p{M}]+", |class, _| class == LETTER);
        check(ClassTable::MarksAreLetters, r"[^\s\p{L}\p{M}\p{N}]+", |class, _| class == OTHER);
        // The only other characters in contractions are those that match `s` without case.
        let contraction = onig::Regex::new("(?i:'s|'t|'re|'ve|'m|'ll|'d)").unwrap();
        let others = ('\u{80}'..=char::MAX)
            .filter(|c| ["", "e", "l"].iter().any(|end| contraction.find(&format!("'{c}{end}")).is_some()));
        assert_eq!(others.collect::<String>(), "\u{17f}");
    }

    #[test]
    fn characters_are_decoded_and_classified() {
        let classes = Classes::get(ClassTable::Plain).unwrap();
        for c in
            ['a', 'é', 'я', '語', '𝔸', '😀', '٣', '½', ' ', '\u{a0}', '\u{2028}', '\u{10FFFF}', '\u{300}']
        {
            let text = c.to_string();
            let (class, len) = classes.at(text.as_bytes(), 0).unwrap();
            assert_eq!(len, c.len_utf8());
            let expected = match c {
                _ if c.is_whitespace() => SPACE,
                '٣' | '½' => NUMBER,
                '😀' | '\u{10FFFF}' | '\u{300}' => OTHER,
                _ => LETTER,
            };
            assert_eq!(class, expected, "{c:?}");
            if c.len_utf8() > 1 {
                assert_eq!(decode(text.as_bytes(), 0, text.as_bytes()[0]).0, u32::from(c));
            }
        }
        assert_eq!((classes.of(10), classes.of(13), classes.of(9)), (LINE_END, LINE_END, SPACE));
    }
}
