//! The methods of strings: a row for each, with its name, its number of arguments and its function.
//!
//! Templates of reasoning models take an answer apart with them: `content.split("</think>")[-1].lstrip("\n")`. Positions
//! count characters, as in Python.

use crate::args::{CallArgs, optional_int, optional_text, required_int, required_text};
use crate::chars::{capitalize, is_alphanumeric, is_letter, is_lower, is_space, is_upper, map_chars, title};
use crate::error::{ErrorKind, Result, error, type_error, unsupported};
use crate::format::pad;
use crate::runtime::Runtime;
use crate::strings::{char_range, split, split_lines};
use crate::value::{Kind, Text, TextBuilder, Value, is_printable};

/// Arguments by position.
type Positional = [Option<Value>; 3];

struct Method {
    name: &'static str,
    action: Action,
}

enum Action {
    /// At most so many arguments, none of them by name.
    Positional(usize, fn(&mut Runtime, &Text, Positional) -> Result<Value>),
    /// Any arguments.
    Free(fn(&mut Runtime, &Text, CallArgs) -> Result<Value>),
    /// A question about the characters.
    Is(fn(&str) -> Result<bool>),
    /// A change of the characters one by one.
    Changed(fn(&Text) -> Text),
}

const fn positional(
    name: &'static str,
    most: usize,
    function: fn(&mut Runtime, &Text, Positional) -> Result<Value>,
) -> Method {
    Method { name, action: Action::Positional(most, function) }
}

const fn free(name: &'static str, function: fn(&mut Runtime, &Text, CallArgs) -> Result<Value>) -> Method {
    Method { name, action: Action::Free(function) }
}

const fn is(name: &'static str, function: fn(&str) -> Result<bool>) -> Method {
    Method { name, action: Action::Is(function) }
}

const fn changed(name: &'static str, function: fn(&Text) -> Text) -> Method {
    Method { name, action: Action::Changed(function) }
}

/// In the order of their names. [`attributes`](crate::attributes) lists these and those of Python that are not supported.
static METHODS: [Method; 44] = [
    changed("capitalize", capitalize),
    free("casefold", casefold),
    positional("center", 2, |runtime, text, args| padded(runtime, "center", text, args, '^')),
    positional("count", 3, count),
    positional("endswith", 3, |runtime, text, args| {
        is_at_end(runtime, "endswith", text, args, |text, part| text.ends_with(part))
    }),
    free("expandtabs", expandtabs),
    positional("find", 3, |runtime, text, args| Ok(found(runtime, "find", text, args)?.unwrap_or(-1).into())),
    free("format", Runtime::str_format),
    free("format_map", format_map),
    positional("index", 3, |runtime, text, args| index(found(runtime, "index", text, args)?)),
    is("isalnum", |text| Ok(!text.is_empty() && text.chars().all(is_alphanumeric))),
    is("isalpha", |text| Ok(!text.is_empty() && text.chars().all(is_letter))),
    is("isascii", |text| Ok(text.is_ascii())),
    is("isdecimal", |text| is_digits("isdecimal", text)),
    is("isdigit", |text| is_digits("isdigit", text)),
    is("isidentifier", |text| Ok(is_identifier(text))),
    is("islower", |text| Ok(is_lower(text))),
    is("isnumeric", |text| is_digits("isnumeric", text)),
    positional("isprintable", 0, isprintable),
    is("isspace", |text| Ok(!text.is_empty() && text.chars().all(is_space))),
    is("istitle", |text| Ok(is_title(text))),
    is("isupper", |text| Ok(is_upper(text))),
    free("join", join),
    positional("ljust", 2, |runtime, text, args| padded(runtime, "ljust", text, args, '<')),
    changed("lower", |text| text.map(str::to_lowercase)),
    positional("lstrip", 1, |runtime, text, args| stripped(runtime, "lstrip", text, args, true, false)),
    positional("partition", 1, |runtime, text, args| partition(runtime, "partition", text, args, false)),
    positional("removeprefix", 1, |_, text, [prefix, ..]| {
        let prefix = required_text("removeprefix", prefix)?;
        Ok(text.part(text.as_str().strip_prefix(prefix.as_str()).unwrap_or(text.as_str())).into())
    }),
    positional("removesuffix", 1, |_, text, [suffix, ..]| {
        let suffix = required_text("removesuffix", suffix)?;
        Ok(text.part(text.as_str().strip_suffix(suffix.as_str()).unwrap_or(text.as_str())).into())
    }),
    positional("replace", 3, replace),
    positional("rfind", 3, |runtime, text, args| {
        Ok(found(runtime, "rfind", text, args)?.unwrap_or(-1).into())
    }),
    positional("rindex", 3, |runtime, text, args| index(found(runtime, "rindex", text, args)?)),
    positional("rjust", 2, |runtime, text, args| padded(runtime, "rjust", text, args, '>')),
    positional("rpartition", 1, |runtime, text, args| partition(runtime, "rpartition", text, args, true)),
    free("rsplit", |runtime, text, args| parts(runtime, "rsplit", text, args)),
    positional("rstrip", 1, |runtime, text, args| stripped(runtime, "rstrip", text, args, false, true)),
    free("split", |runtime, text, args| parts(runtime, "split", text, args)),
    free("splitlines", splitlines),
    positional("startswith", 3, |runtime, text, args| {
        is_at_end(runtime, "startswith", text, args, |text, part| text.starts_with(part))
    }),
    positional("strip", 1, |runtime, text, args| stripped(runtime, "strip", text, args, true, true)),
    changed("swapcase", swapcase),
    changed("title", title),
    changed("upper", |text| text.map(str::to_uppercase)),
    positional("zfill", 1, zfill),
];

/// Calls the method `name` of a string.
pub(crate) fn call(runtime: &mut Runtime, text: &Text, name: &str, args: CallArgs) -> Result<Value> {
    let method = METHODS.binary_search_by_key(&name, |method| method.name).ok();
    let Some(method) = method.and_then(|at| METHODS.get(at)) else { return not_supported(name) };
    match method.action {
        Action::Free(function) => function(runtime, text, args),
        Action::Positional(most, function) => {
            let arguments = by_position(name, most, args)?;
            function(runtime, text, arguments)
        }
        Action::Is(function) => {
            by_position(name, 0, args)?;
            runtime.budget.charge(text.len() / 4)?;
            Ok(function(text.as_str())?.into())
        }
        Action::Changed(function) => {
            by_position(name, 0, args)?;
            runtime.make_changed(text)?;
            Ok(function(text).into())
        }
    }
}

fn not_supported<T>(name: &str) -> Result<T> {
    unsupported(format!("the method `{name}` of strings is not supported"))
}

/// The methods of `str` are functions of C in Python, most of which take no arguments by name.
fn by_position(name: &str, most: usize, args: CallArgs) -> Result<Positional> {
    if !args.keyword.is_empty() {
        return type_error(format!("`{name}` takes no keyword arguments"));
    }
    if args.positional.len() > most {
        return type_error(format!("`{name}` takes at most {most} arguments"));
    }
    let mut arguments = args.positional.into_iter();
    Ok(std::array::from_fn(|_| arguments.next()))
}

// Parts

/// `str.split` and `str.rsplit`: `content.split("</think>")[-1]` takes an answer without its reasoning.
fn parts(runtime: &mut Runtime, name: &str, text: &Text, args: CallArgs) -> Result<Value> {
    let [separator, count] = args.bind(name, ["sep", "maxsplit"], 0)?;
    let separator = optional_text(name, separator)?;
    let count = optional_int(name, count)?.unwrap_or(-1);
    let limit = usize::try_from(count).unwrap_or(usize::MAX);
    runtime.budget.read(separator.as_ref().map_or(0, Text::len))?;
    let separator = separator.as_ref().map(Text::as_str);
    let parts = split(text, separator, limit, name == "rsplit", &mut runtime.budget)?;
    runtime.new_list(parts.into_iter().map(Value::from).collect(), false)
}

/// `str.splitlines`.
fn splitlines(runtime: &mut Runtime, text: &Text, args: CallArgs) -> Result<Value> {
    let [keep] = args.bind("splitlines", ["keepends"], 0)?;
    let keep = match keep {
        Some(keep) => runtime.truth(&keep)?,
        None => false,
    };
    let lines = split_lines(text, keep, &mut runtime.budget)?;
    runtime.new_list(lines.into_iter().map(Value::from).collect(), false)
}

/// `str.partition` and `str.rpartition`.
fn partition(
    runtime: &mut Runtime,
    name: &str,
    text: &Text,
    [separator, ..]: Positional,
    last: bool,
) -> Result<Value> {
    let separator = required_text(name, separator)?;
    runtime.budget.read(separator.len())?;
    if separator.is_empty() {
        return error(ErrorKind::Value, "the separator is empty");
    }
    let (string, part) = (text.as_str(), separator.as_str());
    let found = if last { string.rfind(part) } else { string.find(part) };
    let empty = || Text::from("");
    let parts = match found {
        Some(at) => {
            let end = at + separator.len();
            [text.slice(0..at), text.slice(at..end), text.slice(end..text.len())]
        }
        None if last => [empty(), empty(), text.clone()],
        None => [text.clone(), empty(), empty()],
    };
    Ok(Value::tuple(parts.into_iter().map(Value::from).collect()))
}

/// `str.strip`, `str.lstrip` and `str.rstrip`. The argument is a set of characters, not a prefix.
fn stripped(
    runtime: &mut Runtime,
    name: &str,
    text: &Text,
    [chars, ..]: Positional,
    left: bool,
    right: bool,
) -> Result<Value> {
    let chars = optional_text(name, chars)?;
    Ok(runtime.strip(text, chars.as_ref(), left, right)?.into())
}

// Searches

/// `str.startswith` and `str.endswith`, with a string or a tuple of strings.
fn is_at_end(
    runtime: &mut Runtime,
    name: &str,
    text: &Text,
    [first, start, end]: Positional,
    matches: fn(&str, &str) -> bool,
) -> Result<Value> {
    let Some(range) = char_range(text, name, start, end)? else { return Ok(false.into()) };
    let string = text.as_str().get(range).unwrap_or_default();
    match first.as_ref().map(|first| &first.0) {
        Some(Kind::Str(part)) => Ok(matches(string, part.as_str()).into()),
        Some(Kind::Tuple(parts)) => {
            let mut found = false;
            for part in &parts.items {
                runtime.budget.read(part.as_text().map_or(0, Text::len).min(text.len()))?;
                match part.as_str() {
                    Some(part) => found |= matches(string, part),
                    None => return type_error(format!("`{name}` needs strings")),
                }
            }
            Ok(found.into())
        }
        _ => type_error(format!("`{name}` needs a string or a tuple of strings")),
    }
}

/// Pays for a search: the part is prepared, and characters are counted.
fn pay_search(runtime: &mut Runtime, text: &Text, part: &Text) -> Result<()> {
    runtime.budget.read(part.len())?;
    runtime.budget.read(text.len().saturating_mul(2))
}

/// `str.count`: of occurrences that do not overlap; an empty part is before each character and at the end.
fn count(runtime: &mut Runtime, text: &Text, [part, start, end]: Positional) -> Result<Value> {
    let part = required_text("count", part)?;
    pay_search(runtime, text, &part)?;
    let range = char_range(text, "count", start, end)?;
    Ok(Value::int(match range.and_then(|range| text.as_str().get(range)) {
        Some(string) if part.is_empty() => string.chars().count() + 1,
        Some(string) => string.matches(part.as_str()).count(),
        None => 0,
    }))
}

/// The position of a part in characters: the last one of methods whose names start with `r`.
fn found(
    runtime: &mut Runtime,
    name: &str,
    text: &Text,
    [part, start, end]: Positional,
) -> Result<Option<i64>> {
    let part = required_text(name, part)?;
    pay_search(runtime, text, &part)?;
    let Some(range) = char_range(text, name, start, end)? else { return Ok(None) };
    let string = text.as_str().get(range.clone()).unwrap_or_default();
    let at = if name.starts_with('r') { string.rfind(part.as_str()) } else { string.find(part.as_str()) };
    let chars = at.and_then(|at| text.as_str().get(..range.start + at)).map(|before| before.chars().count());
    Ok(chars.and_then(|chars| i64::try_from(chars).ok()))
}

/// `str.index` raises where `str.find` returns -1.
fn index(found: Option<i64>) -> Result<Value> {
    match found {
        Some(at) => Ok(at.into()),
        None => error(ErrorKind::Value, "`index` does not find the text"),
    }
}

// Questions about the characters

fn is_digits(name: &str, text: &str) -> Result<bool> {
    // Digits of other scripts are rare enough to be refused instead of guessed.
    if text.chars().any(|c| !c.is_ascii() && c.is_numeric()) {
        return unsupported(format!("`{name}` with digits other than 0 to 9 is not supported"));
    }
    Ok(!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// `str.istitle`: upper case only after characters without case, lower case only after cased ones.
fn is_title(text: &str) -> bool {
    let (mut cased, mut any, mut valid) = (false, false, true);
    for c in text.chars() {
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
    any && valid
}

/// `str.isidentifier`, by the classes of the standard library.
fn is_identifier(text: &str) -> bool {
    let mut chars = text.chars();
    let start = chars.next().is_some_and(|c| c == '_' || c.is_alphabetic());
    start && chars.all(|c| c == '_' || c.is_alphanumeric())
}

/// `str.isprintable`.
fn isprintable(runtime: &mut Runtime, text: &Text, _: Positional) -> Result<Value> {
    // Each character is looked up.
    runtime.budget.charge(text.len() / 4)?;
    runtime.budget.charge(text.len())?;
    Ok(text.as_str().chars().all(is_printable).into())
}

// Changes

/// `str.casefold`. For ASCII, it is `lower`; other characters have foldings of their own.
fn casefold(runtime: &mut Runtime, text: &Text, args: CallArgs) -> Result<Value> {
    by_position("casefold", 0, args)?;
    runtime.make_changed(text)?;
    match text.as_str().is_ascii() {
        true => Ok(text.map(str::to_lowercase).into()),
        false => not_supported("casefold"),
    }
}

/// `str.swapcase`.
fn swapcase(text: &Text) -> Text {
    map_chars(text, |c, out| {
        if c.is_uppercase() {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
    })
}

/// `str.replace`, which takes strings only, unlike the filter.
fn replace(runtime: &mut Runtime, text: &Text, [old, new, count]: Positional) -> Result<Value> {
    let (old, new) = (required_text("replace", old)?, required_text("replace", new)?);
    let count = optional_int("replace", count)?.unwrap_or(-1);
    Ok(runtime.replace(text, &old, &new, count)?.into())
}

/// `str.join`, which takes strings only, unlike the filter.
fn join(runtime: &mut Runtime, text: &Text, args: CallArgs) -> Result<Value> {
    let items = runtime.iterate(&args.one("join", "iterable")?)?;
    let mut out = TextBuilder::default();
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            runtime.budget.make_text(text)?;
            out.push_text(text);
        }
        match item.as_text() {
            Some(item) => {
                runtime.budget.make_text(item)?;
                out.push_text(item);
            }
            None => return type_error(format!("`join` needs strings, not {}", item.type_name())),
        }
    }
    Ok(out.finish().into())
}

/// `str.format_map`. The names are those of the fields in the format.
fn format_map(runtime: &mut Runtime, text: &Text, args: CallArgs) -> Result<Value> {
    let map = args.one("format_map", "mapping")?;
    let mut args = CallArgs::default();
    if let Kind::Map(map) = &map.0 {
        runtime.budget.make_entries(map.len())?;
        let entries = map.iter().map(|(name, value)| (name.into(), value.clone()));
        args.keyword = entries.collect();
    }
    runtime.str_format(text, args)
}

/// `str.center`, `str.ljust` and `str.rjust`.
fn padded(
    runtime: &mut Runtime,
    name: &str,
    text: &Text,
    [width, fill, ..]: Positional,
    align: char,
) -> Result<Value> {
    let width = required_int(name, width)?;
    let fill = optional_text(name, fill)?.unwrap_or_else(|| " ".into());
    if fill.chars() != 1 {
        return type_error("the fill character must be one character");
    }
    runtime.make_padded(text, usize::try_from(width).unwrap_or(0), fill.len())?;
    Ok(pad(text, width, fill.as_str(), align, true).into())
}

/// `str.zfill`: zeros after the sign.
fn zfill(runtime: &mut Runtime, text: &Text, [width, ..]: Positional) -> Result<Value> {
    let width = usize::try_from(required_int("zfill", width)?).unwrap_or(0);
    runtime.make_padded(text, width, 1)?;
    let sign = usize::from(text.as_str().starts_with(['+', '-']));
    let missing = width.saturating_sub(text.chars());
    let mut out = TextBuilder::default();
    out.push_text(&text.slice(0..sign));
    out.push(&"0".repeat(missing), text.first_mark());
    out.push_text(&text.slice(sign..text.len()));
    Ok(out.finish().into())
}

/// `str.expandtabs`: up to the next multiple of the size, counted from the last line break.
fn expandtabs(runtime: &mut Runtime, text: &Text, args: CallArgs) -> Result<Value> {
    let [size] = args.bind("expandtabs", ["tabsize"], 0)?;
    let size = optional_int("expandtabs", size)?.unwrap_or(8);
    let size = usize::try_from(size).unwrap_or(0);
    runtime.budget.make(text.as_str().matches('\t').count().saturating_mul(size))?;
    runtime.make_changed(text)?;
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
    Ok(out.finish().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::{Attribute, attribute_kind};

    #[test]
    fn rows_are_in_order_and_attributes_of_strings() {
        assert!(METHODS.is_sorted_by(|a, b| a.name < b.name));
        let string = Value::from(Text::from(""));
        for method in &METHODS {
            assert!(matches!(attribute_kind(&string, method.name), Attribute::Method), "{}", method.name);
        }
    }
}
