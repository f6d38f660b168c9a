//! Lines as nearly all are, without the general parser: members that are strings, whole numbers, booleans and nulls.
//!
//! The text of a document is most of a line, and its escapes are most of the work. Here what stands between two escapes
//! is found eight bytes at a time, and goes once into a buffer that is used for one line after the other. Whatever is
//! not as simple, or not right, is left to the general parser, which also has the words for it.

use std::borrow::Cow;

use super::{Fields, Found};

/// Most digits of a number that is certainly an integer of 64 bits.
const DIGITS: usize = 18;

/// What [`super::parse`] finds in `line`, or `None` when it has to look for itself. `buffer` takes the text if it has
/// escapes.
pub(super) fn parse<'a>(line: &'a str, fields: Fields<'_>, buffer: &'a mut String) -> Option<Found<'a>> {
    if fields.key == Some(fields.text) {
        return None;
    }
    let mut line = Line { line, at: 0 };
    let mut other = String::new();
    let (mut text, mut key) = (None, None);
    line.skip_space();
    line.eat(b'{')?;
    loop {
        line.skip_space();
        line.eat(b'"')?;
        let name = line.string(&mut other)?.unescaped()?;
        line.skip_space();
        line.eat(b':')?;
        line.skip_space();
        let is_key = fields.key == Some(name);
        match line.peek()? {
            b'"' => {
                line.at += 1;
                if name == fields.text {
                    text = Some(line.string(buffer)?);
                } else {
                    let value = line.string(&mut other)?;
                    if is_key {
                        key = Some(value.unescaped().unwrap_or(&other).to_owned());
                    }
                }
            }
            _ if name == fields.text => return None,
            b'-' | b'0'..=b'9' => {
                let number = line.integer()?;
                if is_key {
                    key = Some(number.to_owned());
                }
            }
            _ if is_key => return None,
            b't' => line.word("true")?,
            b'f' => line.word("false")?,
            b'n' => line.word("null")?,
            _ => return None,
        }
        line.skip_space();
        if line.eat(b',').is_none() {
            break;
        }
    }
    line.eat(b'}')?;
    line.skip_space();
    if line.at < line.line.len() || fields.key.is_some() != key.is_some() {
        return None;
    }
    let text = Cow::Borrowed(text?.unescaped().unwrap_or(buffer));
    Some(Found { text, key })
}

/// Where a string is.
enum Content<'a> {
    /// In the line, as it is.
    Line(&'a str),
    /// In the buffer, without its escapes.
    Buffer,
}

impl<'a> Content<'a> {
    fn unescaped(self) -> Option<&'a str> {
        match self {
            Content::Line(content) => Some(content),
            Content::Buffer => None,
        }
    }
}

/// A line that is being read.
struct Line<'a> {
    line: &'a str,
    at: usize,
}

impl<'a> Line<'a> {
    fn peek(&self) -> Option<u8> {
        self.line.as_bytes().get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn word(&mut self, word: &str) -> Option<()> {
        self.line.as_bytes()[self.at..].starts_with(word.as_bytes()).then(|| self.at += word.len())
    }

    /// An integer as JSON writes it.
    fn integer(&mut self) -> Option<&'a str> {
        let begin = self.at;
        let _ = self.eat(b'-');
        let digits = self.line.as_bytes()[self.at..].iter().take_while(|b| b.is_ascii_digit()).count();
        let (first, signed) = (self.peek(), self.at > begin);
        self.at += digits;
        let zero = first == Some(b'0');
        let is_integer = (1..=DIGITS).contains(&digits) && !(zero && (digits > 1 || signed));
        (is_integer && !matches!(self.peek(), Some(b'.' | b'e' | b'E'))).then(|| &self.line[begin..self.at])
    }

    /// The rest of a string whose quote was eaten.
    fn string(&mut self, buffer: &mut String) -> Option<Content<'a>> {
        let begin = self.at;
        self.at += before_special(&self.line.as_bytes()[begin..]);
        if self.eat(b'"').is_some() {
            return Some(Content::Line(&self.line[begin..self.at - 1]));
        }
        buffer.clear();
        buffer.push_str(&self.line[begin..self.at]);
        loop {
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    return Some(Content::Buffer);
                }
                b'\\' => buffer.push(self.escaped()?),
                // A control character, which JSON wants escaped.
                _ => return None,
            }
            let begin = self.at;
            self.at += before_special(&self.line.as_bytes()[begin..]);
            buffer.push_str(&self.line[begin..self.at]);
        }
    }

    /// The character of an escape.
    fn escaped(&mut self) -> Option<char> {
        let kind = *self.line.as_bytes().get(self.at + 1)?;
        self.at += 2;
        Some(match kind {
            b'"' | b'\\' | b'/' => char::from(kind),
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'u' => {
                let first = self.four_digits()?;
                if !(0xd800..0xe000).contains(&first) {
                    return char::from_u32(first);
                }
                self.word("\\u")?;
                let second = self.four_digits()?;
                let is_pair = first < 0xdc00 && (0xdc00..0xe000).contains(&second);
                return is_pair
                    .then(|| 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00))
                    .and_then(char::from_u32);
            }
            _ => return None,
        })
    }

    fn four_digits(&mut self) -> Option<u32> {
        let digits = self.line.as_bytes().get(self.at..self.at + 4)?;
        self.at += 4;
        digits.iter().try_fold(0, |number, &digit| Some(number << 4 | char::from(digit).to_digit(16)?))
    }
}

/// How many bytes come before the first quote, backslash or control character.
#[inline]
fn before_special(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    let (words, rest) = bytes.as_chunks::<8>();
    for (i, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        // The high bit of each byte that is less than `limit`, and possibly of bytes above such a one.
        let below = |word: u64, limit: u8| word.wrapping_sub(ONES * u64::from(limit)) & !word;
        let is = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
        let found = (is(b'"') | is(b'\\') | below(word, 0x20)) & HIGH;
        if found != 0 {
            return i * 8 + (found.trailing_zeros() / 8) as usize;
        }
    }
    let special = rest.iter().position(|&b| b == b'"' || b == b'\\' || b < 0x20);
    words.len() * 8 + special.unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::general;
    use super::*;

    const FIELDS: Fields<'_> = Fields { text: "text", key: Some("id") };

    /// Pieces that make lines, whole and broken.
    fn lines() -> impl Strategy<Value = String> {
        let piece = prop::sample::select(vec![
            "{",
            "}",
            "\"",
            ",",
            ":",
            " ",
            "\t",
            "\r",
            "\"text\":",
            "\"id\":",
            "\"other\": ",
            "\"text\"",
            "\"id\"",
            "\"\\u0074ext\":",
            "null",
            "true",
            "fals",
            "[1]",
            "{}",
            "0",
            "-",
            "-0",
            "01",
            "7",
            "-12",
            "1.5",
            "1e3",
            "123456789012345678",
            "1234567890123456789012",
            "\\n",
            "\\\\",
            "\\\"",
            "\\/",
            "\\b\\f\\r\\t",
            "\\u00e9",
            "\\ud83d\\ude00",
            "\\ud83d",
            "\\ude00",
            "\\u12",
            "\\x",
            "\u{1}",
            "\u{1f}",
            "é",
            "日本",
            "😀",
            "a",
            "plain text",
            "\"value\"",
            "\"id\": \"k\", ",
            "\"text\": \"some \\\"text\\\"\"",
            "\u{7f}",
            "\u{80}",
        ]);
        prop_oneof![
            prop::collection::vec(piece.clone(), 0..12).prop_map(|pieces| pieces.concat()),
            (prop::collection::vec(piece.clone(), 0..8), prop::collection::vec(piece, 0..3)).prop_map(
                |(text, value)| format!(
                    "{{\"id\": {}, \"text\": \"{}\"}}",
                    if value.is_empty() { "5".to_owned() } else { value.concat() },
                    text.concat()
                )
            ),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn what_is_found_is_what_the_general_parser_finds(line in lines(), with_key: bool) {
            let fields = Fields { key: FIELDS.key.filter(|_| with_key), ..FIELDS };
            let mut buffer = "left over".to_owned();
            if let Some(found) = parse(&line, fields, &mut buffer) {
                prop_assert_eq!(Ok(found), general(&line, fields), "{:?}", line);
            }
        }

        #[test]
        fn strings_are_read_as_they_were_written(text: String, key: String, other: String) {
            let line = serde_json::json!({ "text": text, "id": key, "other": other, "n": 1, "b": true }).to_string();
            let mut buffer = String::new();
            let found = parse(&line, FIELDS, &mut buffer);
            prop_assert_eq!(found, Some(Found { text: text.into(), key: Some(key) }));
        }

        #[test]
        fn special_bytes_are_found(bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'a')], 0..40)) {
            let special = |b: &u8| *b == b'"' || *b == b'\\' || *b < 0x20;
            prop_assert_eq!(before_special(&bytes), bytes.iter().position(special).unwrap_or(bytes.len()));
        }
    }
}
