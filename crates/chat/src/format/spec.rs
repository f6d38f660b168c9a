//! `FormatSpec`: the width, the sign and the kind of a number or a string in a format.

use crate::error::{ErrorKind, Result, error, type_error};
use crate::value::{Mark, Number, Text, TextBuilder, Value, exponent, float_repr, number};

/// Digits at a position, which moves behind them.
pub(super) fn read_digits(text: &str, at: &mut usize) -> Result<Option<usize>> {
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

/// The parts of a format. A character that is missing is NUL.
#[derive(Default)]
pub(super) struct FormatSpec {
    pub(super) fill: char,
    /// `<`, `>`, `^`, or `=`, which puts the filling between the sign and the digits.
    pub(super) align: char,
    /// `+` or a space, for numbers that are not negative.
    pub(super) sign: char,
    /// `#`: prefixes such as `0x`, and a point that is always written.
    pub(super) alternate: bool,
    /// A zero before the width fills numbers with zeros.
    pub(super) zero: bool,
    pub(super) width: usize,
    /// `,` or `_` between groups of digits.
    pub(super) grouping: char,
    /// Digits after the point, significant digits with `g`, or characters of a string.
    pub(super) precision: Option<usize>,
    /// The type of the presentation, such as `d` or `f`.
    pub(super) kind: char,
}

impl FormatSpec {
    /// Reads `[[fill]align][sign][#][0][width][grouping][.precision][kind]`.
    pub(super) fn parse(text: &str) -> Result<FormatSpec> {
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
    pub(super) fn shortened(&self, text: &Text) -> Text {
        let end = self.precision.map_or(text.len(), |precision| byte_of_char(text.as_str(), precision));
        text.slice(0..end)
    }

    /// What is written before a number that is not negative.
    pub(super) fn sign_of_positive(&self) -> &'static str {
        match self.sign {
            '+' => "+",
            ' ' => " ",
            _ => "",
        }
    }

    /// A number with its sign.
    pub(super) fn number(&self, value: &Value, mark: Mark) -> Result<Text> {
        let (negative, digits) = match number(value) {
            // An integer with a kind of floats is formatted as one.
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

    /// A float that is not negative.
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
            // Without kind and precision: `repr()`.
            '\0' if self.precision.is_none() => float_repr(value),
            // `g` chooses the notation by the exponent, after rounding to the precision. Without a kind, a float keeps
            // a digit after the point.
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

    /// Digits with separators.
    /// Only the digits before the point are grouped.
    fn group(&self, digits: &str) -> String {
        if self.grouping == '\0' {
            return digits.to_owned();
        }
        // PEP 515: hexadecimal, octal and binary digits are in groups of four.
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

    /// A number with its padding: zeros are between the sign and the digits.
    pub(super) fn pad_number(&self, text: &str, mark: Mark) -> Text {
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
    // Further digits of a binary fraction are zeros.
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

/// The byte at which a character starts.
pub(crate) fn byte_of_char(text: &str, chars: usize) -> usize {
    text.char_indices().nth(chars).map_or(text.len(), |(at, _)| at)
}

/// A text with padding on its sides.
pub(crate) fn pad(text: &Text, width: i64, fill: &str, align: char, method: bool) -> Text {
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
