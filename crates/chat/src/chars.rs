//! Characters as Python classifies and changes them.

use std::ops::RangeInclusive;
use std::sync::LazyLock;

use regex_syntax::hir::{Class, Hir, HirKind};

use crate::value::{Text, TextBuilder};

/// Whitespace as Python's `str.isspace` and `\s` define it.
pub(crate) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

/// The characters of the categories of letters. The standard library also counts vowel signs and others as alphabetic.
static LETTERS: LazyLock<Vec<RangeInclusive<char>>> =
    LazyLock::new(|| match regex_syntax::parse(r"\p{L}").map(Hir::into_kind) {
        Ok(HirKind::Class(Class::Unicode(letters))) => {
            letters.ranges().iter().map(|range| range.start()..=range.end()).collect()
        }
        _ => Vec::new(),
    });

/// Python's `isalpha` of a character.
pub(crate) fn is_letter(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_alphabetic();
    }
    let first = LETTERS.partition_point(|range| *range.end() < c);
    LETTERS.get(first).is_some_and(|range| range.contains(&c))
}

/// Python's `isalnum` of a character.
/// `is_numeric` covers what `isdecimal`, `isdigit` or `isnumeric` of Python accept together.
pub(crate) fn is_alphanumeric(c: char) -> bool {
    is_letter(c) || c.is_numeric()
}

/// Replaces characters one by one.
/// The marks stay: a changed character still belongs to whoever wrote it, even if it becomes several (`ß` becomes
/// `SS`).
pub(crate) fn map_chars(text: &Text, mut change: impl FnMut(char, &mut String)) -> Text {
    let mut out = TextBuilder::default();
    let mut buffer = String::new();
    for (piece, mark) in text.pieces() {
        buffer.clear();
        piece.chars().for_each(|c| change(c, &mut buffer));
        out.push(&buffer, mark);
    }
    out.finish()
}

/// A character at the start of a word, as `str.title` and `str.capitalize` write it. The standard library has upper
/// case, but no title case.
fn push_title(c: char, out: &mut String) {
    // Letters that have a third form for titles.
    let digraph = match c {
        'Ǆ'..='ǆ' => Some('ǅ'),
        'Ǉ'..='ǉ' => Some('ǈ'),
        'Ǌ'..='ǌ' => Some('ǋ'),
        'Ǳ'..='ǳ' => Some('ǲ'),
        _ => None,
    };
    if let Some(c) = digraph {
        out.push(c);
        return;
    }
    let mut upper = c.to_uppercase();
    out.extend(upper.next());
    // `ß` at the start of a word becomes `Ss`.
    upper.for_each(|c| out.extend(c.to_lowercase()));
}

/// `str.capitalize`, also the filter `capitalize` (`do_capitalize`): everything after the first character becomes lower
/// case.
pub(crate) fn capitalize(text: &Text) -> Text {
    let mut first = true;
    map_chars(text, |c, out| {
        if first {
            push_title(c, out);
        } else {
            out.extend(c.to_lowercase());
        }
        first = false;
    })
}

/// `str.title`.
pub(crate) fn title(text: &Text) -> Text {
    let mut cased = false;
    map_chars(text, |c, out| {
        let is_cased = c.is_lowercase() || c.is_uppercase();
        if cased {
            out.extend(c.to_lowercase());
        } else if is_cased {
            push_title(c, out);
        } else {
            out.push(c);
        }
        cased = is_cased;
    })
}

/// `str.islower`: some cased character, and none in upper case. The test `is lower` has the same rule.
pub(crate) fn is_lower(text: &str) -> bool {
    text.chars().any(char::is_lowercase) && !text.chars().any(char::is_uppercase)
}

/// `str.isupper`.
pub(crate) fn is_upper(text: &str) -> bool {
    text.chars().any(char::is_uppercase) && !text.chars().any(char::is_lowercase)
}
