//! Strings: how they are split, replaced and padded.

use crate::args::optional_int;
use crate::budget::Budget;
use crate::chars::is_space;
use crate::error::{ErrorKind, Result, error};
use crate::format::byte_of_char;
use crate::runtime::Runtime;
use crate::value::{Text, TextBuilder, Value};

impl Runtime {
    /// Pays for a text whose characters change one by one.
    pub(crate) fn make_changed(&mut self, text: &Text) -> Result<()> {
        self.budget.make_text(text)?;
        self.budget.make_chars(text.len())
    }

    /// `str.replace`; `count` below zero: all.
    pub(crate) fn replace(&mut self, text: &Text, old: &Text, new: &Text, count: i64) -> Result<Text> {
        // A negative number does not fit: no limit.
        let limit = usize::try_from(count).unwrap_or(usize::MAX);
        let string = text.as_str();
        self.budget.read(text.len())?;
        self.budget.read(old.len())?;
        if limit == 0 || !old.is_empty() && !string.contains(old.as_str()) {
            return Ok(text.clone());
        }
        let mut out = TextBuilder::default();
        let mut copied = 0;
        for (at, found) in string.match_indices(old.as_str()).take(limit) {
            let kept = text.slice(copied..at);
            self.budget.make_text(&kept)?;
            self.budget.make_text(new)?;
            out.push_text(&kept);
            out.push_text(new);
            copied = at + found.len();
        }
        let kept = text.slice(copied..text.len());
        self.budget.make_text(&kept)?;
        out.push_text(&kept);
        Ok(out.finish())
    }

    /// Pays for a text of `width` characters.
    pub(crate) fn make_padded(&mut self, text: &Text, width: usize, fill: usize) -> Result<()> {
        self.budget.make_text(text)?;
        self.budget.make(width.saturating_mul(fill))?;
        self.budget.read(text.len())
    }

    /// Removes white space or characters of a set from the ends.
    pub(crate) fn strip(
        &mut self,
        text: &Text,
        chars: Option<&Text>,
        left: bool,
        right: bool,
    ) -> Result<Text> {
        self.budget.read(text.len())?;
        if let Some(chars) = chars {
            // Each character of the text that is removed is looked for.
            self.budget.charge(text.len().saturating_mul(chars.len()) / 16)?;
        }
        Ok(strip(text, chars.map(Text::as_str), left, right))
    }
}

/// The bytes of `text[start:end]`; none if the start is after the end.
pub(crate) fn char_range(
    text: &Text,
    callee: &str,
    start: Option<Value>,
    end: Option<Value>,
) -> Result<Option<std::ops::Range<usize>>> {
    let not_none = |value: Option<Value>| value.filter(|value| !value.is_none());
    let (start, end) = (optional_int(callee, not_none(start))?, optional_int(callee, not_none(end))?);
    if start.is_none() && end.is_none() {
        return Ok(Some(0..text.len()));
    }
    // Python counts characters, so a bound needs all characters before it.
    let length = i64::try_from(text.chars()).unwrap_or(i64::MAX);
    let index = |bound: i64| if bound < 0 { bound.saturating_add(length).max(0) } else { bound };
    let (start, end) = (start.map_or(0, index), end.map_or(length, index).min(length));
    if start > end {
        return Ok(None);
    }
    let byte = |at: i64| byte_of_char(text.as_str(), usize::try_from(at).unwrap_or(0));
    Ok(Some(byte(start)..byte(end)))
}

/// The part that is left shares the characters of the text, with their marks.
fn strip(text: &Text, chars: Option<&str>, left: bool, right: bool) -> Text {
    let matches = |c: char| chars.map_or_else(|| is_space(c), |chars| chars.contains(c));
    let mut string = text.as_str();
    if left {
        string = string.trim_start_matches(matches);
    }
    if right {
        string = string.trim_end_matches(matches);
    }
    if string.is_empty() { text.slice(0..0) } else { text.part(string) }
}

/// The parts of a text between separators, or between white space. They share its characters.
pub(crate) fn split(
    text: &Text,
    separator: Option<&str>,
    limit: usize,
    from_right: bool,
    budget: &mut Budget,
) -> Result<Vec<Text>> {
    let mut parts = Vec::new();
    budget.charge(text.len() / 4)?;
    // Without a separator, runs of white space separate, and those at the ends make no empty parts.
    let Some(separator) = separator else {
        let mut rest = text.as_str();
        loop {
            rest =
                if from_right { rest.trim_end_matches(is_space) } else { rest.trim_start_matches(is_space) };
            if rest.is_empty() {
                break;
            }
            budget.make_items(1)?;
            if parts.len() == limit {
                parts.push(text.part(rest));
                break;
            }
            if from_right {
                let start = rest
                    .char_indices()
                    .rev()
                    .find(|(_, c)| is_space(*c))
                    .map_or(0, |(at, c)| at + c.len_utf8());
                parts.push(text.part(&rest[start..]));
                rest = &rest[..start];
            } else {
                let end = rest.find(is_space).unwrap_or(rest.len());
                parts.push(text.part(&rest[..end]));
                rest = &rest[end..];
            }
        }
        if from_right {
            parts.reverse();
        }
        return Ok(parts);
    };
    if separator.is_empty() {
        return error(ErrorKind::Value, "the separator is empty");
    }
    let string = text.as_str();
    // The standard library counts parts, and Python separators.
    let parts_limit = limit.saturating_add(1);
    if from_right {
        for part in string.rsplitn(parts_limit, separator) {
            budget.make_items(1)?;
            parts.push(text.part(part));
        }
        parts.reverse();
    } else {
        for part in string.splitn(parts_limit, separator) {
            budget.make_items(1)?;
            parts.push(text.part(part));
        }
    }
    Ok(parts)
}

/// The lines of a text. Python has more line breaks than `\n` and `\r\n`.
pub(crate) fn split_lines(text: &Text, keep: bool, budget: &mut Budget) -> Result<Vec<Text>> {
    budget.charge(text.len() / 4)?;
    let is_break = |c: char| {
        matches!(c, '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}')
    };
    let string = text.as_str();
    let mut lines = Vec::new();
    let mut start = 0;
    while start < string.len() {
        budget.make_items(1)?;
        let Some((end, c)) = string[start..].char_indices().find(|(_, c)| is_break(*c)) else {
            lines.push(text.slice(start..string.len()));
            break;
        };
        let end = start + end;
        // A carriage return with a line feed is one line break.
        let next = end + if string[end..].starts_with("\r\n") { 2 } else { c.len_utf8() };
        lines.push(text.slice(start..if keep { next } else { end }));
        start = next;
    }
    Ok(lines)
}
