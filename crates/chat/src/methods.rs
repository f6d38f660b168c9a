//! Methods of strings, lists and mappings, and the formatting of strings, as in Python.

use std::ops::RangeInclusive;
use std::sync::{Arc, LazyLock};

use regex_syntax::hir::{Class, Hir, HirKind};

use crate::args::{CallArgs, optional_int, optional_text, required_int, required_text};
use crate::budget::Budget;
use crate::chars::is_space;
use crate::error::{ErrorKind, Result, error, type_error, unsupported};
use crate::eval::Evaluator;
use crate::value::{
    Kind, List, Map, Mark, Number, TEMPLATE, Text, TextBuilder, Value, View, as_int, exponent, float_repr,
    hashable, number,
};

/// What `getattr` finds on a value of a built-in type.
pub(crate) enum Attribute {
    None,
    Method,
    /// The sandbox returns an undefined value.
    Unsafe,
}

/// What `getattr` finds on a mapping.
pub(crate) fn map_attribute(name: &str) -> Attribute {
    match name {
        "copy" | "fromkeys" | "get" | "items" | "keys" | "values" => Attribute::Method,
        "clear" | "pop" | "popitem" | "setdefault" | "update" => Attribute::Unsafe,
        _ => object_attribute(name),
    }
}

pub(crate) fn attribute_kind(object: &Value, name: &str) -> Attribute {
    match (&object.0, name) {
        (Kind::Map(_), _) => map_attribute(name),
        (Kind::Undefined(_) | Kind::Namespace(_), _) => Attribute::None,
        (
            Kind::Str(_) | Kind::Safe(_),
            "capitalize" | "casefold" | "center" | "count" | "encode" | "endswith" | "expandtabs" | "find"
            | "format" | "format_map" | "index" | "isalnum" | "isalpha" | "isascii" | "isdecimal" | "isdigit"
            | "isidentifier" | "islower" | "isnumeric" | "isprintable" | "isspace" | "istitle" | "isupper"
            | "join" | "ljust" | "lower" | "lstrip" | "maketrans" | "partition" | "removeprefix"
            | "removesuffix" | "replace" | "rfind" | "rindex" | "rjust" | "rpartition" | "rsplit" | "rstrip"
            | "split" | "splitlines" | "startswith" | "strip" | "swapcase" | "title" | "translate" | "upper"
            | "zfill",
        ) => Attribute::Method,
        (Kind::List(_), "copy" | "count" | "index") => Attribute::Method,
        (Kind::List(_), "append" | "clear" | "extend" | "insert" | "pop" | "remove" | "reverse" | "sort") => {
            Attribute::Unsafe
        }
        (Kind::Tuple(_) | Kind::Range(..), "count" | "index") => Attribute::Method,
        (Kind::Loop(..), "cycle" | "changed") => Attribute::Method,
        (
            Kind::Int(..) | Kind::Bool(..) | Kind::Big(..),
            "as_integer_ratio" | "bit_count" | "bit_length" | "conjugate" | "denominator" | "from_bytes"
            | "imag" | "numerator" | "real" | "to_bytes",
        ) => Attribute::Method,
        (
            Kind::Float(..),
            "as_integer_ratio" | "conjugate" | "fromhex" | "hex" | "imag" | "is_integer" | "real",
        ) => Attribute::Method,
        (Kind::View(..), "isdisjoint" | "mapping") => Attribute::Method,
        (
            Kind::Macro(_),
            "name" | "arguments" | "catch_kwargs" | "catch_varargs" | "caller" | "explicit_caller",
        ) => Attribute::Method,
        _ => object_attribute(name),
    }
}

/// What `getattr` finds on any object.
fn object_attribute(name: &str) -> Attribute {
    match name {
        _ if !name.starts_with("__") => Attribute::None,
        "__class__" | "__contains__" | "__delattr__" | "__dir__" | "__doc__" | "__eq__" | "__format__"
        | "__ge__" | "__getattribute__" | "__getitem__" | "__gt__" | "__hash__" | "__init__"
        | "__init_subclass__" | "__iter__" | "__le__" | "__len__" | "__lt__" | "__ne__" | "__new__"
        | "__reduce__" | "__reduce_ex__" | "__repr__" | "__sizeof__" | "__str__" => Attribute::Unsafe,
        _ => Attribute::None,
    }
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
fn is_letter(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_alphabetic();
    }
    let first = LETTERS.partition_point(|range| *range.end() < c);
    LETTERS.get(first).is_some_and(|range| range.contains(&c))
}

/// Python's `isalnum` of a character.
pub(crate) fn is_alphanumeric(c: char) -> bool {
    is_letter(c) || c.is_numeric()
}

impl Evaluator<'_> {
    pub(crate) fn call_method(&mut self, object: &Value, name: &Arc<str>, args: CallArgs) -> Result<Value> {
        match &object.0 {
            Kind::Str(text) => {
                self.budget.read(text.len())?;
                self.str_method(text, name, args)
            }
            Kind::Map(map) => match &**name {
                "items" | "keys" | "values" => {
                    let [] = args.bind(name, [], 0)?;
                    let view = match &**name {
                        "items" => View::Items,
                        "keys" => View::Keys,
                        _ => View::Values,
                    };
                    Ok(Kind::View(view, map.clone()).into())
                }
                "get" => {
                    let [key, default] = args.bind(name, ["key", "default"], 1)?;
                    let key = key.unwrap_or_else(Value::none);
                    hashable(&key, &mut self.budget)?;
                    Ok(map
                        .get_value(&key, &mut self.budget)?
                        .cloned()
                        .or(default)
                        .unwrap_or_else(Value::none))
                }
                "copy" => {
                    let [] = args.bind(name, [], 0)?;
                    self.budget.make_entries(map.len())?;
                    let mut copy = Map::clone(map);
                    copy.message = map.message;
                    self.new_map(copy)
                }
                _ => {
                    let [keys, value] = args.bind(name, ["keys", "value"], 1)?;
                    let keys = self.iterate(&keys.unwrap_or_else(Value::none))?;
                    let mut map = Map::new();
                    for key in keys {
                        self.insert(&mut map, key, value.clone().unwrap_or_else(Value::none))?;
                    }
                    self.new_map(map)
                }
            },
            Kind::List(list) | Kind::Tuple(list) => {
                self.budget.charge(1)?;
                self.list_method(list, name, args)
            }
            Kind::Range(..) => {
                let items = self.iterate(object)?;
                self.list_method(&List::new(items, TEMPLATE), name, args)
            }
            Kind::Loop(at, serial) => self.call_loop_method(*at, *serial, name, args),
            Kind::Float(value, _) if **name == *"is_integer" => Ok((value.fract() == 0.0).into()),
            _ => unsupported(format!("the method `{name}` of {} is not supported", object.type_name())),
        }
    }

    fn list_method(&mut self, list: &List, name: &str, args: CallArgs) -> Result<Value> {
        if name == "copy" {
            self.budget.make_items(list.items.len())?;
            return self.new_list(list.items.clone(), false);
        }
        let value = args.one(name, "value")?;
        if name == "count" {
            let (mut count, mut rest) = (0, list.items.as_slice());
            while let Some(at) = self.position(rest, &value)? {
                count += 1;
                rest = rest.get(at + 1..).unwrap_or_default();
            }
            return Ok(Value::int(count));
        }
        match self.position(&list.items, &value)? {
            Some(at) => Ok(Value::int(at)),
            None => error(ErrorKind::Value, "`index` does not find the value in the list"),
        }
    }

    fn str_method(&mut self, text: &Text, name: &str, args: CallArgs) -> Result<Value> {
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

    /// `format % values`.
    pub(crate) fn percent_format(&mut self, format: &Text, values: &Value) -> Result<Value> {
        let items = match &values.0 {
            Kind::Tuple(list) => list.items.as_slice(),
            _ => std::slice::from_ref(values),
        };
        let may_be_unused = matches!(values.0, Kind::Map(_) | Kind::List(_));
        let mut out = TextBuilder::default();
        let mut used = 0;
        let mut at = 0;
        let string = format.as_str();
        let bytes = string.as_bytes();
        self.budget.make_text(format)?;
        self.budget.read(format.len())?;
        let incomplete = || error(ErrorKind::Value, "incomplete format after `%`");
        while let Some(found) = string[at..].find('%') {
            out.push_text(&format.slice(at..at + found));
            at += found + 1;
            let mut argument = None;
            if bytes.get(at) == Some(&b'(') {
                let Some(end) = string[at..].find(')') else { return incomplete() };
                let key = &string[at + 1..at + end];
                at += end + 1;
                let Kind::Map(map) = &values.0 else {
                    return type_error("a format with names needs a mapping");
                };
                match map.get(key) {
                    Some(value) => argument = Some(value.clone()),
                    None => {
                        return error(
                            ErrorKind::Value,
                            format!("the mapping of a format has no key `{key}`"),
                        );
                    }
                }
            }
            let mut spec = FormatSpec { fill: ' ', align: '>', ..FormatSpec::default() };
            let mut left = false;
            while let Some(flag) = bytes.get(at) {
                match flag {
                    b'-' => left = true,
                    b'+' => spec.sign = '+',
                    b' ' if spec.sign != '+' => spec.sign = ' ',
                    b' ' => {}
                    b'#' => spec.alternate = true,
                    b'0' => spec.zero = true,
                    _ => break,
                }
                at += 1;
            }
            let next = |used: &mut usize| -> Result<Value> {
                let value = items.get(*used).cloned();
                *used += 1;
                match value {
                    Some(value) => Ok(value),
                    None => type_error("not enough values for a format"),
                }
            };
            if bytes.get(at) == Some(&b'*') {
                at += 1;
                let width = as_int(&next(&mut used)?).unwrap_or(0);
                left |= width < 0;
                spec.width = usize::try_from(width.unsigned_abs()).unwrap_or(usize::MAX);
            } else {
                spec.width = read_digits(string, &mut at)?.unwrap_or(0);
            }
            if bytes.get(at) == Some(&b'.') {
                at += 1;
                if bytes.get(at) == Some(&b'*') {
                    at += 1;
                    spec.precision = usize::try_from(as_int(&next(&mut used)?).unwrap_or(0)).ok();
                } else {
                    spec.precision = Some(read_digits(string, &mut at)?.unwrap_or(0));
                }
            }
            while let Some(b'h' | b'l' | b'L') = bytes.get(at) {
                at += 1;
            }
            let Some(conversion) = string[at..].chars().next() else { return incomplete() };
            at += conversion.len_utf8();
            if conversion == '%' {
                out.push("%", format.first_mark());
                continue;
            }
            let value = match argument {
                Some(value) => value,
                None => next(&mut used)?,
            };
            self.make_number(&spec)?;
            if left {
                spec.align = '<';
                spec.zero = false;
            }
            let text = match conversion {
                's' | 'r' | 'a' => {
                    let text = match conversion {
                        's' => self.printed(&value)?,
                        _ => self.repr(&value)?,
                    };
                    let text = spec.shortened(&text);
                    pad(&text, spec.width as i64, " ", if left { '<' } else { '>' }, false)
                }
                'd' | 'i' | 'u' | 'x' | 'X' | 'o' | 'e' | 'E' | 'f' | 'F' | 'g' | 'G' => {
                    let mark = Mark::of(value.source());
                    spec.kind = if matches!(conversion, 'i' | 'u') { 'd' } else { conversion };
                    if let (Kind::Float(..), 'x' | 'X' | 'o') = (&value.0, spec.kind) {
                        return type_error(format!("the format `%{conversion}` needs an integer"));
                    }
                    if spec.kind == 'd' {
                        // In a format with `%`, the precision of an integer is a number of digits.
                        let digits = spec.precision.take().unwrap_or(0);
                        let int = match number(&value) {
                            Some(Number::Int(int)) => int,
                            Some(Number::Float(float)) if float.is_finite() => float.trunc() as i64,
                            Some(Number::Float(_)) => 0,
                            None => {
                                return type_error(format!("the format `%{conversion}` needs a number"));
                            }
                        };
                        let sign = if int < 0 { "-" } else { spec.sign_of_positive() };
                        let number = int.unsigned_abs().to_string();
                        let zeros = "0".repeat(digits.saturating_sub(number.len()));
                        spec.pad_number(&format!("{sign}{zeros}{number}"), mark)
                    } else {
                        spec.number(&value, mark)?
                    }
                }
                'c' => match (&value.0, as_int(&value)) {
                    (Kind::Str(text), _) if text.chars() == 1 => text.clone(),
                    (_, Some(code)) => match u32::try_from(code).ok().and_then(char::from_u32) {
                        Some(c) => Text::new(c.to_string(), value.source()),
                        None => return type_error("the format `%c` needs a character"),
                    },
                    _ => return type_error("the format `%c` needs a character"),
                },
                other => {
                    return error(ErrorKind::Value, format!("unknown format `%{other}`"));
                }
            };
            self.budget.make_text(&text)?;
            out.push_text(&text);
        }
        out.push_text(&format.slice(at..format.len()));
        if used < items.len() && !may_be_unused {
            return type_error("a format does not use all values");
        }
        Ok(out.finish().into())
    }

    pub(crate) fn repr(&mut self, value: &Value) -> Result<Text> {
        value.repr(&mut self.budget)
    }

    fn str_format(&mut self, format: &Text, args: CallArgs) -> Result<Value> {
        let mut out = TextBuilder::default();
        let mut automatic = Fields::Unknown;
        self.format_into(format, &args, &mut automatic, 3, &mut out)?;
        Ok(out.finish().into())
    }

    fn format_into(
        &mut self,
        format: &Text,
        args: &CallArgs,
        automatic: &mut Fields,
        depth: u32,
        out: &mut TextBuilder,
    ) -> Result<()> {
        if depth == 0 {
            return error(ErrorKind::Value, "a format is nested too deeply");
        }
        let string = format.as_str();
        self.budget.make_text(format)?;
        self.budget.charge(format.len() / 4)?;
        let mut at = 0;
        while let Some(found) = string[at..].find(['{', '}']) {
            let open = at + found;
            out.push_text(&format.slice(at..open));
            let brace = string.as_bytes()[open];
            if string.as_bytes().get(open + 1) == Some(&brace) {
                out.push_text(&format.slice(open..open + 1));
                at = open + 2;
                continue;
            }
            if brace == b'}' {
                return error(ErrorKind::Value, "a single `}` in a format");
            }
            let mut level = 1;
            let close = string[open + 1..].char_indices().find_map(|(at, c)| {
                match c {
                    '{' => level += 1,
                    '}' => level -= 1,
                    _ => {}
                }
                (level == 0).then_some(open + 1 + at)
            });
            let Some(close) = close else { return error(ErrorKind::Value, "a single `{` in a format") };
            let field = &string[open + 1..close];
            at = close + 1;
            // A bracket may hold `:` and `!`.
            let mut bracket = false;
            let name_end = field
                .char_indices()
                .find_map(|(at, c)| {
                    bracket = c == '[' || bracket && c != ']';
                    (!bracket && matches!(c, ':' | '!')).then_some(at)
                })
                .unwrap_or(field.len());
            let name = &field[..name_end];
            let (conversion, spec) = match field[name_end..].strip_prefix('!') {
                Some(rest) => {
                    let conversion = rest.chars().next();
                    let rest = &rest[conversion.map_or(0, char::len_utf8)..];
                    match (conversion, rest.strip_prefix(':')) {
                        (Some(conversion), Some(spec)) => (Some(conversion), spec),
                        (Some(conversion), None) if rest.is_empty() => (Some(conversion), ""),
                        _ => return error(ErrorKind::Value, "expected `:` after the conversion of a format"),
                    }
                }
                None => (None, field[name_end..].strip_prefix(':').unwrap_or("")),
            };
            let value = self.format_value(name, args, automatic)?;
            let value = match conversion {
                None => value,
                Some('s') => self.printed(&value)?.into(),
                Some('r') => self.repr(&value)?.into(),
                Some(other) => {
                    return unsupported(format!("the conversion `!{other}` of a format is not supported"));
                }
            };
            let mut nested = TextBuilder::default();
            self.format_into(&spec.into(), args, automatic, depth - 1, &mut nested)?;
            let text = self.format_one(&value, &nested.text)?;
            self.budget.make_text(&text)?;
            out.push_text(&text);
        }
        out.push_text(&format.slice(at..format.len()));
        Ok(())
    }

    fn format_value(&mut self, name: &str, args: &CallArgs, automatic: &mut Fields) -> Result<Value> {
        let first_end = name.find(['.', '[']).unwrap_or(name.len());
        let (first, mut rest) = name.split_at(first_end);
        let mut value = if first.is_empty() || first.bytes().all(|byte| byte.is_ascii_digit()) {
            // Numbered and unnumbered fields cannot be mixed.
            let mixed = match *automatic {
                Fields::Unknown => false,
                Fields::Automatic(_) => !first.is_empty(),
                Fields::Manual => first.is_empty(),
            };
            if mixed {
                return error(ErrorKind::Value, "a format has fields with and without numbers");
            }
            let at = if first.is_empty() {
                let next = if let Fields::Automatic(next) = *automatic { next } else { 0 };
                *automatic = Fields::Automatic(next + 1);
                next
            } else {
                *automatic = Fields::Manual;
                first.parse().unwrap_or(usize::MAX)
            };
            match args.positional.get(at) {
                Some(value) => value.clone(),
                None => return error(ErrorKind::Value, format!("a format has no argument number {at}")),
            }
        } else {
            self.budget.charge(args.keyword.len() / 8)?;
            match args.keyword.iter().find(|(known, _)| **known == *first) {
                Some((_, value)) => value.clone(),
                None => return error(ErrorKind::Value, format!("a format has no argument `{first}`")),
            }
        };
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('.') {
                let end = after.find(['.', '[']).unwrap_or(after.len());
                value = self.attribute(&value, &after[..end].into())?;
                rest = &after[end..];
            } else {
                let Some((key, after)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) else {
                    return error(ErrorKind::Value, "a `[` without `]` in a format");
                };
                let key = match key.parse::<i64>() {
                    Ok(at) if key.bytes().all(|byte| byte.is_ascii_digit()) => at.into(),
                    _ => Value::str(key, TEMPLATE),
                };
                value = self.item(&value, &key)?;
                rest = after;
            }
        }
        Ok(value)
    }

    /// `format(value, spec)`.
    fn format_one(&mut self, value: &Value, spec: &str) -> Result<Text> {
        if spec.is_empty() {
            return self.printed(value);
        }
        let spec = FormatSpec::parse(spec)?;
        self.make_number(&spec)?;
        if let Kind::Str(text) = &value.0 {
            self.make_padded(text, spec.width, spec.fill.len_utf8())?;
        }
        match &value.0 {
            Kind::Str(text) => {
                if !matches!(spec.kind, '\0' | 's')
                    || spec.sign != '\0'
                    || spec.grouping != '\0'
                    || spec.alternate
                {
                    return error(ErrorKind::Value, "invalid format of a string");
                }
                let align = if spec.align == '\0' { '<' } else { spec.align };
                let fill = if spec.zero && spec.fill == ' ' { '0' } else { spec.fill };
                Ok(pad(&spec.shortened(text), spec.width as i64, &fill.to_string(), align, false))
            }
            Kind::Int(..) | Kind::Float(..) | Kind::Bool(..) => spec.number(value, Mark::of(value.source())),
            _ => type_error(format!("a value of type {} has no format", value.type_name())),
        }
    }
}

impl Evaluator<'_> {
    /// Pays for a text of `width` characters.
    fn make_padded(&mut self, text: &Text, width: usize, fill: usize) -> Result<()> {
        self.budget.make_text(text)?;
        self.budget.make(width.saturating_mul(fill))?;
        self.budget.read(text.len())
    }

    /// Pays for a number, which may be grouped and padded.
    fn make_number(&mut self, spec: &FormatSpec) -> Result<()> {
        let digits = spec.width.saturating_add(spec.precision.unwrap_or(0));
        self.budget.make(digits.saturating_mul(spec.fill.len_utf8() + 3))?;
        self.budget.charge(digits / 4)
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

fn read_digits(text: &str, at: &mut usize) -> Result<Option<usize>> {
    let digits = text[*at..].bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        return Ok(None);
    }
    let number = text[*at..*at + digits].parse();
    *at += digits;
    match number {
        Ok(number) => Ok(Some(number)),
        Err(_) => error(ErrorKind::Value, "a number in a format is too large"),
    }
}

/// How the fields of a format are numbered.
enum Fields {
    Unknown,
    Automatic(usize),
    Manual,
}

/// The parts of a format. A character that is missing is NUL.
#[derive(Default)]
struct FormatSpec {
    fill: char,
    align: char,
    sign: char,
    alternate: bool,
    zero: bool,
    width: usize,
    grouping: char,
    precision: Option<usize>,
    kind: char,
}

impl FormatSpec {
    fn parse(text: &str) -> Result<FormatSpec> {
        let mut spec = FormatSpec { fill: ' ', ..FormatSpec::default() };
        let mut rest = text;
        let is_align = |c: Option<char>| c.is_some_and(|c| matches!(c, '<' | '>' | '^' | '='));
        let mut chars = rest.chars();
        let (first, second) = (chars.next(), chars.next());
        if let (Some(fill), Some(align), true) = (first, second, is_align(second)) {
            (spec.fill, spec.align) = (fill, align);
            rest = &rest[fill.len_utf8() + 1..];
        } else if let (Some(align), true) = (first, is_align(first)) {
            spec.align = align;
            rest = &rest[1..];
        }
        if let Some(sign @ ('+' | '-' | ' ')) = rest.chars().next() {
            spec.sign = if sign == '-' { '\0' } else { sign };
            rest = &rest[1..];
        }
        if let Some(after) = rest.strip_prefix('#') {
            spec.alternate = true;
            rest = after;
        }
        if let Some(after) = rest.strip_prefix('0') {
            spec.zero = true;
            rest = after;
        }
        let mut at = 0;
        spec.width = read_digits(rest, &mut at)?.unwrap_or(0);
        rest = &rest[at..];
        if let Some(grouping @ (',' | '_')) = rest.chars().next() {
            spec.grouping = grouping;
            rest = &rest[1..];
        }
        if let Some(after) = rest.strip_prefix('.') {
            let mut at = 0;
            spec.precision = read_digits(after, &mut at)?;
            if spec.precision.is_none() {
                return error(ErrorKind::Value, "a format has no digits after the point");
            }
            rest = &after[at..];
        }
        if let Some(kind) = rest.chars().next() {
            spec.kind = kind;
            rest = &rest[kind.len_utf8()..];
        }
        if rest.is_empty() { Ok(spec) } else { error(ErrorKind::Value, format!("invalid format `{text}`")) }
    }

    /// A string of at most as many characters as the precision.
    fn shortened(&self, text: &Text) -> Text {
        let end = self.precision.map_or(text.len(), |precision| byte_of_char(text.as_str(), precision));
        text.slice(0..end)
    }

    fn sign_of_positive(&self) -> &'static str {
        match self.sign {
            '+' => "+",
            ' ' => " ",
            _ => "",
        }
    }

    fn number(&self, value: &Value, mark: Mark) -> Result<Text> {
        let (negative, digits) = match number(value) {
            Some(Number::Int(int)) if !matches!(self.kind, 'e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%') => {
                let size = int.unsigned_abs();
                if self.precision.is_some() {
                    return error(ErrorKind::Value, "the format of an integer has no precision");
                }
                let (prefix, digits) = match self.kind {
                    '\0' | 'd' | 'n' => ("", size.to_string()),
                    'x' => ("0x", format!("{size:x}")),
                    'X' => ("0X", format!("{size:X}")),
                    'o' => ("0o", format!("{size:o}")),
                    'b' => ("0b", format!("{size:b}")),
                    'c' => match u32::try_from(int).ok().and_then(char::from_u32) {
                        Some(c) => ("", c.to_string()),
                        None => return error(ErrorKind::Value, "the format `c` needs a character"),
                    },
                    other => {
                        return error(ErrorKind::Value, format!("unknown format `{other}` of an integer"));
                    }
                };
                let prefix = if self.alternate { prefix } else { "" };
                (int < 0, format!("{prefix}{}", self.group(&digits)))
            }
            Some(found) => {
                let float = found.to_f64();
                (float.is_sign_negative() && !float.is_nan(), self.float(float.abs())?)
            }
            None => return type_error(format!("a value of type {} is not a number", value.type_name())),
        };
        let sign = if negative { "-" } else { self.sign_of_positive() };
        Ok(self.pad_number(&format!("{sign}{digits}"), mark))
    }

    fn float(&self, value: f64) -> Result<String> {
        let upper = self.kind.is_ascii_uppercase();
        if !value.is_finite() {
            let text = if value.is_nan() { "nan" } else { "inf" };
            return Ok(if upper { text.to_uppercase() } else { text.to_owned() });
        }
        let precision = self.precision.unwrap_or(6);
        let text = match self.kind {
            'f' | 'F' => fixed(value, precision),
            'e' | 'E' => exponent(&scientific(value, precision)),
            '%' => fixed(value * 100.0, precision) + "%",
            '\0' if self.precision.is_none() => float_repr(value),
            'g' | 'G' | 'n' | '\0' => {
                let precision = precision.max(1);
                let scientific = scientific(value, precision - 1);
                let power: i64 =
                    scientific.split_once('e').and_then(|(_, power)| power.parse().ok()).unwrap_or(0);
                let limit = precision as i64 - i64::from(self.kind == '\0');
                let trim = |text: &str| -> String {
                    if self.alternate || !text.contains('.') {
                        return text.to_owned();
                    }
                    text.trim_end_matches('0').trim_end_matches('.').to_owned()
                };
                if (-4..limit).contains(&power) {
                    let decimals = usize::try_from(precision as i64 - 1 - power).unwrap_or(0);
                    let text = trim(&fixed(value, decimals));
                    if self.kind == '\0' && !text.contains('.') { text + ".0" } else { text }
                } else {
                    let (digits, power) = scientific.split_once('e').unwrap_or((&scientific, "0"));
                    exponent(&format!("{}e{power}", trim(digits)))
                }
            }
            other => return error(ErrorKind::Value, format!("unknown format `{other}` of a float")),
        };
        let text = if upper { text.to_uppercase() } else { text };
        Ok(match text.find(['.', 'e', 'E', '%']) {
            Some(end) => format!("{}{}", self.group(&text[..end]), &text[end..]),
            None => self.group(&text),
        })
    }

    fn group(&self, digits: &str) -> String {
        if self.grouping == '\0' {
            return digits.to_owned();
        }
        let size = if matches!(self.kind, 'x' | 'X' | 'o' | 'b') { 4 } else { 3 };
        let mut out = String::new();
        for (at, c) in digits.chars().enumerate() {
            if at > 0 && (digits.len() - at).is_multiple_of(size) {
                out.push(self.grouping);
            }
            out.push(c);
        }
        out
    }

    fn pad_number(&self, text: &str, mark: Mark) -> Text {
        let number = Text::marked(text.into(), mark);
        if self.zero && self.align != '<' && (self.align == '\0' || self.fill == ' ') || self.align == '=' {
            let fill = if self.zero && self.fill == ' ' { '0' } else { self.fill };
            let sign = usize::from(text.starts_with(['-', '+', ' ']));
            let has_prefix =
                self.alternate && text[sign..].starts_with('0') && matches!(self.kind, 'x' | 'X' | 'o' | 'b');
            let prefix = if has_prefix { sign + 2 } else { sign };
            let missing = self.width.saturating_sub(text.chars().count());
            let filling: String = std::iter::repeat_n(fill, missing).collect();
            return Text::marked(format!("{}{filling}{}", &text[..prefix], &text[prefix..]).into(), mark);
        }
        let align = if self.align == '\0' { '>' } else { self.align };
        pad(&number, self.width as i64, &self.fill.to_string(), align, false)
    }
}

/// Digits after the point with which every float is exact. The standard library refuses more than 65,535.
const EXACT_DIGITS: usize = 1100;

/// A number with so many digits after the point.
fn fixed(value: f64, digits: usize) -> String {
    let exact = digits.min(EXACT_DIGITS);
    format!("{value:.exact$}") + &"0".repeat(digits - exact)
}

/// The same with one digit before the point, and a power of ten.
fn scientific(value: f64, digits: usize) -> String {
    let exact = digits.min(EXACT_DIGITS);
    let text = format!("{value:.exact$e}");
    match text.split_once('e') {
        Some((number, power)) => format!("{number}{}e{power}", "0".repeat(digits - exact)),
        None => text,
    }
}

fn byte_of_char(text: &str, chars: usize) -> usize {
    text.char_indices().nth(chars).map_or(text.len(), |(at, _)| at)
}

fn pad(text: &Text, width: i64, fill: &str, align: char, method: bool) -> Text {
    let missing = usize::try_from(width).unwrap_or(0).saturating_sub(text.chars());
    if missing == 0 {
        return text.clone();
    }
    let left = match align {
        '<' => 0,
        // The method puts the odd character elsewhere than the format.
        '^' if method => missing / 2 + (missing & usize::try_from(width).unwrap_or(0) & 1),
        '^' => missing / 2,
        _ => missing,
    };
    let mut out = TextBuilder::default();
    out.push(&fill.repeat(left), Mark::TEMPLATE);
    out.push_text(text);
    out.push(&fill.repeat(missing - left), Mark::TEMPLATE);
    out.finish()
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

/// Replaces characters one by one.
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
    upper.for_each(|c| out.extend(c.to_lowercase()));
}

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

fn title(text: &Text) -> Text {
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

pub(crate) fn is_lower(text: &str) -> bool {
    text.chars().any(char::is_lowercase) && !text.chars().any(char::is_uppercase)
}

pub(crate) fn is_upper(text: &str) -> bool {
    text.chars().any(char::is_uppercase) && !text.chars().any(char::is_lowercase)
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// `strftime` of the UTC time `now`, in seconds since 1970, as in the C locale.
pub(crate) fn strftime(format: &Text, now: i64) -> Result<Value> {
    let (days, second) = (now.div_euclid(86_400), now.rem_euclid(86_400));
    // The date of a day count, after Howard Hinnant.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    // `day_of_year` counts from the first of March.
    let yearday = if month > 2 { day_of_year + 60 + i64::from(leap) } else { day_of_year - 305 };
    let weekday = (days + 4).rem_euclid(7);
    let name =
        |names: &[&'static str], at: i64| names.get(usize::try_from(at).unwrap_or(0)).copied().unwrap_or("");
    let (month_name, weekday_name) = (name(&MONTHS, month - 1), name(&DAYS, weekday));
    let short = |name: &'static str| name.get(..3).unwrap_or(name);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let hour12 = if hour % 12 == 0 { 12 } else { hour % 12 };
    let time = format!("{hour:02}:{minute:02}:{second:02}");
    let mut out = String::new();
    let mut chars = format.as_str().chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut code = chars.next();
        let unpadded = code == Some('-');
        if unpadded {
            code = chars.next();
        }
        let padded = |value: i64, text: String| if unpadded { value.to_string() } else { text };
        let two = |value: i64| padded(value, format!("{value:02}"));
        let text = match code {
            Some('Y') => year.to_string(),
            Some('y') => two(year.rem_euclid(100)),
            Some('m') => two(month),
            Some('d') => two(day),
            Some('e') => padded(day, format!("{day:2}")),
            Some('j') => padded(yearday, format!("{yearday:03}")),
            Some('H') => two(hour),
            Some('I') => two(hour12),
            Some('M') => two(minute),
            Some('S') => two(second),
            Some('f') => "000000".to_owned(),
            Some('p') => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            Some('B') => month_name.to_owned(),
            Some('b' | 'h') => short(month_name).to_owned(),
            Some('A') => weekday_name.to_owned(),
            Some('a') => short(weekday_name).to_owned(),
            Some('w') => weekday.to_string(),
            Some('u') => if weekday == 0 { 7 } else { weekday }.to_string(),
            Some('F') => format!("{year}-{month:02}-{day:02}"),
            Some('T' | 'X') => time.clone(),
            Some('R') => format!("{hour:02}:{minute:02}"),
            Some('D' | 'x') => format!("{month:02}/{day:02}/{:02}", year.rem_euclid(100)),
            Some('c') => format!("{} {} {day:2} {time} {year}", short(weekday_name), short(month_name)),
            Some('Z' | 'z') => String::new(),
            Some('n') => "\n".to_owned(),
            Some('t') => "\t".to_owned(),
            Some('%') => "%".to_owned(),
            other => {
                let other = other.map(String::from).unwrap_or_default();
                return unsupported(format!("`%{other}` in the format of a date is not supported"));
            }
        };
        out.push_str(&text);
    }
    Ok(Value::str(out, format.first_mark().source))
}
