//! Formatting of strings: `%` and `str.format`.
//!
//! Templates of models hardly format anything; a test compares the results with those of Python.

mod spec;

use self::spec::{FormatSpec, read_digits};
pub(crate) use self::spec::{byte_of_char, pad};
use crate::args::CallArgs;
use crate::error::{ErrorKind, Result, error, type_error, unsupported};
use crate::runtime::Runtime;
use crate::value::{Kind, Mark, Number, TEMPLATE, Text, TextBuilder, Value, as_int, number};

/// How the fields of a format are numbered.
/// Python refuses a format that mixes `{}` and `{0}`.
enum Fields {
    Unknown,
    Automatic(usize),
    Manual,
}

impl Runtime {
    /// `format % values`.
    pub(crate) fn percent_format(&mut self, format: &Text, values: &Value) -> Result<Value> {
        // A tuple has one value per conversion; anything else is a single value, also a list.
        let items = match &values.0 {
            Kind::Tuple(list) => list.items.as_slice(),
            _ => std::slice::from_ref(values),
        };
        // `"text" % mapping` is no error, so that a format may use only some of the keys.
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
            // `%[(key)][flags][width][.precision][length]conversion`, as in `printf` of C. Lengths are ignored.
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
            // May be any character, so it is not read as a byte.
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
            // As in C, `-` wins over `0`.
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
                            // `"%d" % 3.7` is "3".
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

    /// `str.format`.
    pub(crate) fn str_format(&mut self, format: &Text, args: CallArgs) -> Result<Value> {
        let mut out = TextBuilder::default();
        let mut automatic = Fields::Unknown;
        self.format_into(format, &args, &mut automatic, 3, &mut out)?;
        Ok(out.finish().into())
    }

    /// Writes a format with its fields replaced. The specification of a field may have fields itself.
    ///
    /// The sandbox of Jinja2 has a formatter of its own (`SandboxedFormatter`), which looks attributes up as templates
    /// do; otherwise, this is `string.Formatter.vformat`.
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
            // `{{` and `}}` are braces.
            if string.as_bytes().get(open + 1) == Some(&brace) {
                out.push_text(&format.slice(open..open + 1));
                at = open + 2;
                continue;
            }
            if brace == b'}' {
                return error(ErrorKind::Value, "a single `}` in a format");
            }
            // The specification may have fields itself, such as `{:{width}}`.
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
                // `!a`, which escapes everything outside of ASCII, is refused.
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

    /// The value of a field: an argument by number or name, and its attributes and elements.
    /// `get_field` of `string.Formatter`.
    fn format_value(&mut self, name: &str, args: &CallArgs, automatic: &mut Fields) -> Result<Value> {
        // `{0.role}` and `{messages[0]}`: what follows the first `.` or `[` is looked up in the argument.
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
                // Only digits are an index; `[-1]` is the key "-1", as in Python.
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
        // Without a specification, `format()` is `str()`, for values of any type.
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

    /// Pays for a number, which may be grouped and padded.
    fn make_number(&mut self, spec: &FormatSpec) -> Result<()> {
        let digits = spec.width.saturating_add(spec.precision.unwrap_or(0));
        self.budget.make(digits.saturating_mul(spec.fill.len_utf8() + 3))?;
        self.budget.charge(digits / 4)
    }
}
