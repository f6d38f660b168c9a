//! JSON as Python's `json` writes and reads it.

use std::fmt;
use std::sync::Arc;

use super::{
    Kind, MAX_DEPTH, Map, Mark, Source, TEMPLATE, Text, TextBuilder, Value, float_repr, order, sort,
};
use crate::budget::{Budget, VALUE_BYTES};
use crate::error::{Result, type_error};

/// Options of `tojson`.
pub(crate) struct JsonStyle {
    pub(crate) ascii: bool,
    pub(crate) indent: Option<String>,
    pub(crate) sort_keys: bool,
    /// What is written between two items, and between a key and its value.
    pub(crate) separators: (Text, Text),
}

impl JsonStyle {
    /// `json.dumps`. The error names a type that it cannot write.
    pub(crate) fn to_json(&self, value: &Value, budget: &mut Budget) -> Result<Text> {
        let mut out = TextBuilder::default();
        self.write(value, &mut out, TEMPLATE, 1, budget)?;
        Ok(out.finish())
    }

    fn write(
        &self,
        value: &Value,
        out: &mut TextBuilder,
        outer: Source,
        level: usize,
        budget: &mut Budget,
    ) -> Result<()> {
        let within = |source: Source| Mark::of(if source == TEMPLATE { outer } else { source });
        budget.charge(1)?;
        match &value.0 {
            Kind::Str(text) | Kind::Safe(text) => json_string(text, self.ascii, out, budget)?,
            Kind::None(source) => out.push_paid("null", within(*source), budget)?,
            Kind::Bool(value, source) => {
                out.push_paid(if *value { "true" } else { "false" }, within(*source), budget)?;
            }
            Kind::Int(value, source) => out.push_paid(&value.to_string(), within(*source), budget)?,
            Kind::Big(digits, source) => out.push_paid(digits, within(*source), budget)?,
            Kind::Float(value, source) => out.push_paid(&json_float(*value), within(*source), budget)?,
            // Empty containers have no line breaks, whatever the indentation.
            Kind::List(list) | Kind::Tuple(list) => {
                let mark = within(list.source);
                if list.items.is_empty() {
                    return out.push_paid("[]", mark, budget);
                }
                out.push_paid("[", mark, budget)?;
                for (at, item) in list.items.iter().enumerate() {
                    self.separate(at, level, out, mark, budget)?;
                    self.write(item, out, mark.source, level + 1, budget)?;
                }
                self.newline(level - 1, out, mark, budget)?;
                out.push_paid("]", mark, budget)?;
            }
            Kind::Map(map) => {
                let mark = within(map.source);
                if map.is_empty() {
                    return out.push_paid("{}", mark, budget);
                }
                out.push_paid("{", mark, budget)?;
                budget.make_items(map.len())?;
                let mut entries: Vec<_> = map.entries.iter().collect();
                if self.sort_keys {
                    entries = sort(entries, |(a, _), (b, _)| match order(a, b, budget)? {
                        Some(order) => Ok(order),
                        None => type_error("keys of different types cannot be sorted"),
                    })?;
                }
                for (at, (key, value)) in entries.into_iter().enumerate() {
                    self.separate(at, level, out, mark, budget)?;
                    json_string(&json_key(key)?, self.ascii, out, budget)?;
                    out.push_paid(self.separators.1.as_str(), mark, budget)?;
                    self.write(value, out, mark.source, level + 1, budget)?;
                }
                self.newline(level - 1, out, mark, budget)?;
                out.push_paid("}", mark, budget)?;
            }
            _ => {
                return type_error(format!(
                    "a value of type {} cannot be written as JSON",
                    value.type_name()
                ));
            }
        }
        Ok(())
    }

    /// What is before an item: a separator except for the first one, and its line.
    fn separate(
        &self,
        at: usize,
        level: usize,
        out: &mut TextBuilder,
        mark: Mark,
        budget: &mut Budget,
    ) -> Result<()> {
        if at > 0 {
            out.push_paid(self.separators.0.as_str(), mark, budget)?;
        }
        self.newline(level, out, mark, budget)
    }

    /// A line break and the indentation, if there is one.
    fn newline(&self, level: usize, out: &mut TextBuilder, mark: Mark, budget: &mut Budget) -> Result<()> {
        if let Some(indent) = &self.indent {
            out.push_paid("\n", mark, budget)?;
            for _ in 0..level {
                out.push_paid(indent, mark, budget)?;
            }
        }
        Ok(())
    }
}

/// Python writes numbers, truth values and `None` as keys, too.
fn json_key(key: &Value) -> Result<Text> {
    let mark = Mark::of(key.source());
    let text = match &key.0 {
        Kind::Str(text) => return Ok(text.clone()),
        Kind::None(_) => "null".to_owned(),
        Kind::Bool(value, _) => value.to_string(),
        Kind::Int(value, _) => value.to_string(),
        Kind::Big(digits, _) => digits.to_string(),
        Kind::Float(value, _) => json_float(*value),
        _ => return type_error(format!("keys of JSON must be strings, not {}", key.type_name())),
    };
    Ok(Text::marked(text.into(), mark))
}

/// NaN and the infinities are not JSON, but Python writes and reads them.
fn json_float(value: f64) -> String {
    match float_repr(value).as_str() {
        "nan" => "NaN".to_owned(),
        "inf" => "Infinity".to_owned(),
        "-inf" => "-Infinity".to_owned(),
        text => text.to_owned(),
    }
}

/// A string of JSON. Only what must be escaped is, unless everything outside of ASCII is asked for.
fn json_string(text: &Text, ascii: bool, out: &mut TextBuilder, budget: &mut Budget) -> Result<()> {
    budget.make_text(text)?;
    budget.read(text.len())?;
    let mark = text.first_mark();
    out.push("\"", mark);
    let mut last = mark;
    for (piece, mark) in text.pieces() {
        last = mark;
        let mut plain = 0;
        let special = |byte: u8| byte < 0x20 || byte == b'"' || byte == b'\\' || ascii && byte >= 0x7f;
        while let Some(found) = piece.as_bytes()[plain..].iter().position(|byte| special(*byte)) {
            let at = plain + found;
            out.push(&piece[plain..at], mark);
            let Some(c) = piece[at..].chars().next() else { break };
            plain = at + c.len_utf8();
            match c {
                '"' => out.push_paid("\\\"", mark, budget)?,
                '\\' => out.push_paid("\\\\", mark, budget)?,
                '\n' => out.push_paid("\\n", mark, budget)?,
                '\r' => out.push_paid("\\r", mark, budget)?,
                '\t' => out.push_paid("\\t", mark, budget)?,
                '\u{8}' => out.push_paid("\\b", mark, budget)?,
                '\u{c}' => out.push_paid("\\f", mark, budget)?,
                c => {
                    // Characters outside of the basic plane are pairs of surrogates.
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        out.push_paid(&format!("\\u{unit:04x}"), mark, budget)?;
                    }
                }
            }
        }
        out.push(&piece[plain..], mark);
    }
    out.push("\"", last);
    Ok(())
}

/// Why a text is not JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonError {
    /// The byte at which reading stopped.
    pub offset: usize,
    /// What is wrong.
    pub message: &'static str,
}

impl JsonError {
    pub(crate) const TOO_LARGE: &'static str = "the lists and objects hold too many values";
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {} of the JSON", self.message, self.offset)
    }
}

impl std::error::Error for JsonError {}

impl Value {
    /// Reads JSON as Python's `json` does: keys keep their order, the last of several equal keys decides, integers of any
    /// size are exact, `NaN` and `Infinity` are read. Everything is marked as [`TEMPLATE`] until [`Value::mark`].
    pub fn from_json(text: &str) -> std::result::Result<Value, JsonError> {
        Value::from_json_within(text, &mut Budget::new(u64::MAX, u64::MAX))
    }

    /// As [`from_json`](Value::from_json); what the values take is paid for.
    pub(crate) fn from_json_within(text: &str, budget: &mut Budget) -> Parsed<Value> {
        let mut reader = JsonReader { text, shared: None, at: 0, budget };
        if u32::try_from(text.len()).is_err() {
            return Err(reader.error("more than 4 GiB of text"));
        }
        let value = reader.value(0)?;
        reader.skip_space();
        if reader.at < text.len() { Err(reader.error("unexpected text after the value")) } else { Ok(value) }
    }
}

type Parsed<T> = std::result::Result<T, JsonError>;

/// Returns the position of the first byte that is not plain text of a JSON string.
fn end_of_plain(bytes: &[u8]) -> Option<usize> {
    let is_end = |byte: u8| (byte == b'"') | (byte == b'\\') | (byte < 0x20);
    // Blocks without branches are vectorized.
    let is_plain = |block: &&[u8]| !block.iter().fold(false, |found, byte| found | is_end(*byte));
    let mut plain = bytes.chunks_exact(32).take_while(is_plain).count() * 32;
    let (words, rest) = bytes.get(plain..)?.as_chunks();
    for word in words {
        let ends = ends_in(*word);
        if ends != 0 {
            return Some(plain + ends.trailing_zeros() as usize / 8);
        }
        plain += word.len();
    }
    rest.iter().position(|byte| is_end(*byte)).map(|at| plain + at)
}

/// Sets the high bit of the first byte that is not plain text of a JSON string, and perhaps of some after it.
fn ends_in(word: [u8; 8]) -> u64 {
    let word = u64::from_le_bytes(word);
    let all = |byte: u8| u64::from_le_bytes([byte; 8]);
    // A borrow reaches only bytes after the first one below the bound.
    let below = |word: u64, bound: u8| word.wrapping_sub(all(bound)) & !word & all(0x80);
    below(word, 0x20) | below(word ^ all(b'"'), 1) | below(word ^ all(b'\\'), 1)
}

/// A reader of its own, because `serde_json` would not keep the order of keys with the last of equal ones, integers of
/// any size, and `NaN` at once, and because strings share the text instead of being copied.
struct JsonReader<'a, 'b> {
    text: &'a str,
    /// A copy of the text, which the strings without escapes share.
    shared: Option<Arc<str>>,
    at: usize,
    budget: &'b mut Budget,
}

/// Values that a list or an object has room for at first, with its own size.
const LIST_VALUES: usize = 4;
const OBJECT_VALUES: usize = 6;

impl JsonReader<'_, '_> {
    /// Pays for values before they are made. A text of brackets takes many times its length.
    fn pay(&mut self, values: usize) -> Parsed<()> {
        self.budget.make(values * VALUE_BYTES).map_err(|_| self.error(JsonError::TOO_LARGE))
    }

    fn error(&self, message: &'static str) -> JsonError {
        JsonError { offset: self.at, message }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    /// Moves over `literal`, if it is next.
    fn literal(&mut self, literal: &str) -> bool {
        let found = self.text[self.at..].starts_with(literal);
        if found {
            self.at += literal.len();
        }
        found
    }

    fn value(&mut self, depth: u16) -> Parsed<Value> {
        if depth > MAX_DEPTH {
            return Err(self.error("lists and objects are nested too deeply"));
        }
        self.pay(1)?;
        self.skip_space();
        match self.peek() {
            Some(b'"') => Ok(self.string()?.into()),
            Some(b'{') => {
                self.at += 1;
                self.pay(OBJECT_VALUES)?;
                let mut map = Map::new();
                self.skip_space();
                if self.literal("}") {
                    return Ok(map.into());
                }
                loop {
                    self.skip_space();
                    if self.peek() != Some(b'"') {
                        return Err(self.error("expected a key in quotes"));
                    }
                    let key = self.string()?;
                    self.skip_space();
                    if !self.literal(":") {
                        return Err(self.error("expected `:`"));
                    }
                    // Large objects have an index.
                    self.pay(if map.len() < OBJECT_VALUES { 1 } else { 3 })?;
                    let value = self.value(depth + 1)?;
                    map.insert_text(key, value);
                    self.skip_space();
                    if self.literal("}") {
                        return Ok(map.into());
                    }
                    if !self.literal(",") {
                        return Err(self.error("expected `,` or `}`"));
                    }
                }
            }
            Some(b'[') => {
                self.at += 1;
                self.pay(LIST_VALUES)?;
                let mut items = Vec::new();
                self.skip_space();
                if self.literal("]") {
                    return Ok(Value::list(items));
                }
                loop {
                    items.push(self.value(depth + 1)?);
                    self.skip_space();
                    if self.literal("]") {
                        return Ok(Value::list(items));
                    }
                    if !self.literal(",") {
                        return Err(self.error("expected `,` or `]`"));
                    }
                }
            }
            Some(b'-' | b'0'..=b'9') if !self.text[self.at..].starts_with("-I") => self.number(),
            _ if self.literal("null") => Ok(Value::none()),
            _ if self.literal("true") => Ok(true.into()),
            _ if self.literal("false") => Ok(false.into()),
            _ if self.literal("NaN") => Ok(f64::NAN.into()),
            _ if self.literal("Infinity") => Ok(f64::INFINITY.into()),
            _ if self.literal("-Infinity") => Ok(f64::NEG_INFINITY.into()),
            None => Err(self.error("the text ends early")),
            _ => Err(self.error("expected a value")),
        }
    }

    /// Moves over digits, and returns their number.
    fn digits(&mut self) -> usize {
        let digits = self.text.as_bytes()[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += digits;
        digits
    }

    /// A number with a point or an exponent is a float, and any other an integer, as in Python.
    fn number(&mut self) -> Parsed<Value> {
        let start = self.at;
        self.literal("-");
        if !self.literal("0") && self.digits() == 0 {
            return Err(self.error("expected a digit"));
        }
        let mut float = false;
        if self.peek() == Some(b'.') {
            self.at += 1;
            float = true;
            if self.digits() == 0 {
                return Err(self.error("expected a digit"));
            }
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            float = true;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            if self.digits() == 0 {
                return Err(self.error("expected a digit"));
            }
        }
        let text = &self.text[start..self.at];
        if float {
            return text.parse().map(|value: f64| value.into()).map_err(|_| self.error("invalid number"));
        }
        match text.parse::<i64>() {
            Ok(value) => Ok(value.into()),
            // `int()` of Python reads at most this many digits.
            Err(_) if text.trim_start_matches('-').len() > 4300 => {
                Err(self.error("integer of more than 4,300 digits"))
            }
            Err(_) => Ok(Kind::Big(text.into(), TEMPLATE).into()),
        }
    }

    /// A string without escapes, which most are, is a slice of the whole text.
    fn string(&mut self) -> Parsed<Text> {
        self.at += 1;
        let start = self.at;
        let mut owned: Option<String> = None;
        loop {
            let rest = &self.text[self.at..];
            let Some(end) = end_of_plain(rest.as_bytes()) else {
                self.at = self.text.len();
                return Err(self.error("a string has no end"));
            };
            let plain = &rest[..end];
            self.at += end;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(match owned {
                        Some(mut text) => {
                            text.push_str(plain);
                            text.as_str().into()
                        }
                        None => {
                            let shared = self.shared.get_or_insert_with(|| self.text.into()).clone();
                            Text::marked(shared, Mark::TEMPLATE).slice(start..start + plain.len())
                        }
                    });
                }
                Some(b'\\') => {
                    let text = owned.get_or_insert_default();
                    text.push_str(plain);
                    self.at += 1;
                    let escape = self.peek();
                    self.at += 1;
                    let c = match escape {
                        Some(b'n') => '\n',
                        Some(b't') => '\t',
                        Some(b'r') => '\r',
                        Some(b'b') => '\u{8}',
                        Some(b'f') => '\u{c}',
                        Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
                        Some(b'u') => self.unicode()?,
                        _ => {
                            self.at = self.text.len().min(self.at - 1);
                            return Err(self.error("invalid escape"));
                        }
                    };
                    owned.get_or_insert_default().push(c);
                }
                // `strict=True`, the default of Python.
                _ => return Err(self.error("a control character in a string")),
            }
        }
    }

    /// The four digits of a `\u` escape: a unit of UTF-16.
    fn unit(&mut self) -> Parsed<u32> {
        let digits = self
            .text
            .get(self.at..self.at + 4)
            .filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        let unit = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let unit = unit.ok_or_else(|| self.error("invalid `\\u` escape"))?;
        self.at += 4;
        Ok(unit)
    }

    /// Python reads half of a pair of surrogates as a character of its own, which no UTF-8 can hold: it is refused.
    fn unicode(&mut self) -> Parsed<char> {
        let first = self.unit()?;
        if let 0xD800..=0xDBFF = first
            && self.literal("\\u")
        {
            let second = self.unit()?;
            if let 0xDC00..=0xDFFF = second {
                let code = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
                return char::from_u32(code).ok_or_else(|| self.error("invalid surrogate pair"));
            }
        }
        char::from_u32(first).ok_or_else(|| self.error("half of a surrogate pair"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_end_of_plain_text_is_the_first_special_byte(
            bytes in prop::collection::vec(prop_oneof![40 => 0x20u8..=255, 1 => any::<u8>()], 0..100),
        ) {
            let expected = bytes.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f));
            prop_assert_eq!(end_of_plain(&bytes), expected);
        }
    }

    #[test]
    fn strings_of_json_have_their_characters() {
        let value = Value::from_json(
            r#"{"a": ["plain", "é\n\u00e9", ""], "long key \t": "0123456789abcdef\\0123456789"}"#,
        );
        let value = value.unwrap();
        let map = value.as_map().unwrap();
        let strings: Vec<_> = map.get("a").unwrap().as_list().unwrap().iter().map(Value::as_str).collect();
        assert_eq!(strings, [Some("plain"), Some("é\né"), Some("")]);
        assert_eq!(map.get("long key \t").unwrap().as_str(), Some("0123456789abcdef\\0123456789"));
    }
}
