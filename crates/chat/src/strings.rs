//! Methods of strings.

use crate::args::{CallArgs, optional_int, optional_text, required_int, required_text};
use crate::budget::Budget;
use crate::chars::{capitalize, is_alphanumeric, is_letter, is_lower, is_space, is_upper, map_chars, title};
use crate::error::{ErrorKind, Result, error, type_error, unsupported};
use crate::format::{byte_of_char, pad};
use crate::runtime::Runtime;
use crate::value::{Kind, Text, TextBuilder, Value};

impl Runtime {
    /// Pays for a text whose characters change one by one.
    pub(crate) fn make_changed(&mut self, text: &Text) -> Result<()> {
        self.budget.make_text(text)?;
        self.budget.make_chars(text.len())
    }

    pub(crate) fn str_method(&mut self, text: &Text, name: &str, args: CallArgs) -> Result<Value> {
        let string = text.as_str();
        match name {
            "format" => return self.str_format(text, args),
            "format_map" => {
                let map = args.one(name, "mapping")?;
                let mut args = CallArgs::default();
                if let Kind::Map(map) = &map.0 {
                    self.budget.make_entries(map.len())?;
                    let entries = map.iter().map(|(name, value)| (name.into(), value.clone()));
                    args.keyword = entries.collect();
                }
                return self.str_format(text, args);
            }
            "split" | "rsplit" => {
                let [separator, count] = args.bind(name, ["sep", "maxsplit"], 0)?;
                let separator = optional_text(name, separator)?;
                let count = optional_int(name, count)?.unwrap_or(-1);
                let limit = usize::try_from(count).unwrap_or(usize::MAX);
                self.budget.read(separator.as_ref().map_or(0, Text::len))?;
                let separator = separator.as_ref().map(Text::as_str);
                let parts = split(text, separator, limit, name == "rsplit", &mut self.budget)?;
                return self.new_list(parts.into_iter().map(Value::from).collect(), false);
            }
            "splitlines" => {
                let [keep] = args.bind(name, ["keepends"], 0)?;
                let keep = match keep {
                    Some(keep) => self.truth(&keep)?,
                    None => false,
                };
                let lines = split_lines(text, keep, &mut self.budget)?;
                return self.new_list(lines.into_iter().map(Value::from).collect(), false);
            }
            "join" => {
                let items = self.iterate(&args.one(name, "iterable")?)?;
                let mut out = TextBuilder::default();
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        self.budget.make_text(text)?;
                        out.push_text(text);
                    }
                    match item.as_text() {
                        Some(item) => {
                            self.budget.make_text(item)?;
                            out.push_text(item);
                        }
                        None => return type_error(format!("`join` needs strings, not {}", item.type_name())),
                    }
                }
                return Ok(out.finish().into());
            }
            _ => {}
        }
        let CallArgs { positional, keyword } = args;
        if let Some((keyword, _)) = keyword.first()
            && !matches!((name, &**keyword), ("expandtabs", "tabsize") | ("encode", _))
        {
            return type_error(format!("`{name}` takes no keyword arguments"));
        }
        let most = match name {
            "strip" | "lstrip" | "rstrip" | "removeprefix" | "removesuffix" | "partition" | "rpartition"
            | "zfill" => 1,
            "expandtabs" | "encode" => 2,
            "center" | "ljust" | "rjust" => 2,
            "replace" | "startswith" | "endswith" | "find" | "rfind" | "index" | "rindex" | "count" => 3,
            _ => 0,
        };
        if positional.len() > most {
            return type_error(format!("`{name}` takes at most {most} arguments"));
        }
        let mut arguments = positional.into_iter();
        let (first, second, third) = (arguments.next(), arguments.next(), arguments.next());
        match name {
            "lower" | "upper" | "casefold" | "capitalize" | "title" | "swapcase" => {
                self.make_changed(text)?
            }
            _ if name.starts_with("is") => self.budget.charge(text.len() / 4)?,
            _ => {}
        }
        Ok(match name {
            "strip" | "lstrip" | "rstrip" => {
                let chars = optional_text(name, first)?;
                self.strip(text, chars.as_ref(), name != "rstrip", name != "lstrip")?.into()
            }
            "replace" => {
                let (old, new) = (required_text(name, first)?, required_text(name, second)?);
                let count = optional_int(name, third)?.unwrap_or(-1);
                self.replace(text, &old, &new, count)?.into()
            }
            "startswith" | "endswith" => {
                let Some(range) = char_range(text, name, second, third)? else { return Ok(false.into()) };
                let string = string.get(range).unwrap_or_default();
                let matches = |part: &str| {
                    if name == "startswith" { string.starts_with(part) } else { string.ends_with(part) }
                };
                match first.as_ref().map(|first| &first.0) {
                    Some(Kind::Str(part)) => matches(part.as_str()).into(),
                    Some(Kind::Tuple(parts)) => {
                        let mut found = false;
                        for part in &parts.items {
                            self.budget.read(part.as_text().map_or(0, Text::len).min(text.len()))?;
                            match part.as_str() {
                                Some(part) => found |= matches(part),
                                None => return type_error(format!("`{name}` needs strings")),
                            }
                        }
                        found.into()
                    }
                    _ => return type_error(format!("`{name}` needs a string or a tuple of strings")),
                }
            }
            "find" | "rfind" | "index" | "rindex" | "count" => {
                let part = required_text(name, first)?;
                // The part is prepared, and characters are counted.
                self.budget.read(part.len())?;
                self.budget.read(text.len().saturating_mul(2))?;
                let range = char_range(text, name, second, third)?;
                let string_range = range.clone().and_then(|range| string.get(range));
                if name == "count" {
                    let count = match string_range {
                        Some(string) if part.is_empty() => string.chars().count() + 1,
                        Some(string) => string.matches(part.as_str()).count(),
                        None => 0,
                    };
                    return Ok(Value::int(count));
                }
                let found = string_range.and_then(|string| {
                    if name.starts_with('r') {
                        string.rfind(part.as_str())
                    } else {
                        string.find(part.as_str())
                    }
                });
                match (found, range) {
                    (Some(at), Some(range)) => Value::int(string[..range.start + at].chars().count()),
                    _ if name.ends_with("find") => (-1).into(),
                    _ => return error(ErrorKind::Value, "`index` does not find the text"),
                }
            }
            "lower" => text.map(str::to_lowercase).into(),
            "upper" => text.map(str::to_uppercase).into(),
            "casefold" if string.is_ascii() => text.map(str::to_lowercase).into(),
            "capitalize" => capitalize(text).into(),
            "title" => title(text).into(),
            "swapcase" => map_chars(text, |c, out| {
                if c.is_uppercase() {
                    out.extend(c.to_lowercase());
                } else {
                    out.extend(c.to_uppercase());
                }
            })
            .into(),
            "removeprefix" | "removesuffix" => {
                let part = required_text(name, first)?;
                let rest = match name {
                    "removeprefix" => string.strip_prefix(part.as_str()),
                    _ => string.strip_suffix(part.as_str()),
                };
                text.part(rest.unwrap_or(string)).into()
            }
            "partition" | "rpartition" => {
                let part = required_text(name, first)?;
                self.budget.read(part.len())?;
                if part.is_empty() {
                    return error(ErrorKind::Value, "the separator is empty");
                }
                let last = name == "rpartition";
                let found = if last { string.rfind(part.as_str()) } else { string.find(part.as_str()) };
                let empty = || Text::from("");
                let parts = match found {
                    Some(at) => {
                        let end = at + part.len();
                        [text.slice(0..at), text.slice(at..end), text.slice(end..text.len())]
                    }
                    None if last => [empty(), empty(), text.clone()],
                    None => [text.clone(), empty(), empty()],
                };
                Value::tuple(parts.into_iter().map(Value::from).collect())
            }
            "center" | "ljust" | "rjust" => {
                let width = required_int(name, first)?;
                let fill = optional_text(name, second)?.unwrap_or_else(|| " ".into());
                if fill.chars() != 1 {
                    return type_error("the fill character must be one character");
                }
                let align = match name {
                    "center" => '^',
                    "ljust" => '<',
                    _ => '>',
                };
                self.make_padded(text, usize::try_from(width).unwrap_or(0), fill.len())?;
                pad(text, width, fill.as_str(), align, true).into()
            }
            "zfill" => {
                let width = required_int(name, first)?;
                self.make_padded(text, usize::try_from(width).unwrap_or(0), 1)?;
                let sign = usize::from(string.starts_with(['+', '-']));
                let missing = usize::try_from(width).unwrap_or(0).saturating_sub(text.chars());
                let mut out = TextBuilder::default();
                out.push_text(&text.slice(0..sign));
                out.push(&"0".repeat(missing), text.first_mark());
                out.push_text(&text.slice(sign..text.len()));
                out.finish().into()
            }
            "isspace" => (!string.is_empty() && string.chars().all(is_space)).into(),
            "isascii" => string.is_ascii().into(),
            "isdigit" | "isdecimal" | "isnumeric" => {
                // Digits of other scripts are rare enough to be refused instead of guessed.
                if string.chars().any(|c| !c.is_ascii() && c.is_numeric()) {
                    return unsupported(format!("`{name}` with digits other than 0 to 9 is not supported"));
                }
                (!string.is_empty() && string.bytes().all(|byte| byte.is_ascii_digit())).into()
            }
            "isalpha" => (!string.is_empty() && string.chars().all(is_letter)).into(),
            "isalnum" => (!string.is_empty() && string.chars().all(is_alphanumeric)).into(),
            "islower" => is_lower(string).into(),
            "isupper" => is_upper(string).into(),
            "istitle" => {
                let (mut cased, mut any, mut valid) = (false, false, true);
                for c in string.chars() {
                    if c.is_uppercase() {
                        valid &= !cased;
                        (cased, any) = (true, true);
                    } else if c.is_lowercase() {
                        valid &= cased;
                        any = true;
                    } else {
                        cased = false;
                    }
                }
                (any && valid).into()
            }
            "isidentifier" => {
                let mut chars = string.chars();
                let start = chars.next().is_some_and(|c| c == '_' || c.is_alphabetic());
                (start && chars.all(|c| c == '_' || c.is_alphanumeric())).into()
            }
            "isprintable" => {
                self.budget.charge(text.len())?;
                string.chars().all(crate::value::is_printable).into()
            }
            "expandtabs" => {
                let size = keyword.into_iter().next().map(|(_, value)| value).or(first);
                let size = optional_int(name, size)?.unwrap_or(8);
                let size = usize::try_from(size).unwrap_or(0);
                self.budget.make(string.matches('\t').count().saturating_mul(size))?;
                self.make_changed(text)?;
                let mut column = 0;
                let mut out = TextBuilder::default();
                for (piece, mark) in text.pieces() {
                    for c in piece.chars() {
                        match c {
                            '\t' if size > 0 => {
                                let width = size - column % size;
                                out.push(&" ".repeat(width), mark);
                                column += width;
                            }
                            '\t' => {}
                            '\n' | '\r' => {
                                out.push_char(c, mark);
                                column = 0;
                            }
                            c => {
                                out.push_char(c, mark);
                                column += 1;
                            }
                        }
                    }
                }
                out.finish().into()
            }
            _ => return unsupported(format!("the method `{name}` of strings is not supported")),
        })
    }

    /// `str.replace`; `count` below zero: all.
    pub(crate) fn replace(&mut self, text: &Text, old: &Text, new: &Text, count: i64) -> Result<Text> {
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
fn char_range(
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
    let length = i64::try_from(text.chars()).unwrap_or(i64::MAX);
    let index = |bound: i64| if bound < 0 { bound.saturating_add(length).max(0) } else { bound };
    let (start, end) = (start.map_or(0, index), end.map_or(length, index).min(length));
    if start > end {
        return Ok(None);
    }
    let byte = |at: i64| byte_of_char(text.as_str(), usize::try_from(at).unwrap_or(0));
    Ok(Some(byte(start)..byte(end)))
}

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

fn split(
    text: &Text,
    separator: Option<&str>,
    limit: usize,
    from_right: bool,
    budget: &mut Budget,
) -> Result<Vec<Text>> {
    let mut parts = Vec::new();
    budget.charge(text.len() / 4)?;
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
        let next = end + if string[end..].starts_with("\r\n") { 2 } else { c.len_utf8() };
        lines.push(text.slice(start..if keep { next } else { end }));
        start = next;
    }
    Ok(lines)
}
