//! Lines as nearly all are, without the general parser: members that are strings, whole numbers, booleans and nulls.
//!
//! The text of a document is most of a line, and its escapes are most of the work. Here what stands between two escapes
//! is found 64 bytes at a time, which go into a buffer before it is known where the next one stands; the buffer is used
//! for one line after the other. Whatever is not as simple, or not right, is left to the general parser, which also has
//! the words for it.

use std::borrow::Cow;

use super::{Fields, LineFields};
use dsconvert_simd::{ByteMasks, Kernel, WINDOW, dispatch};

/// Most digits of a number that is certainly an integer of 64 bits.
const DIGITS: usize = 18;

/// What [`super::parse`] finds in `line`, or `None` when it has to look for itself. `buffer` takes the text if it has
/// escapes.
///
/// That the line is UTF-8 is seen string by string: outside of strings it is ASCII, and an escape is whole characters.
pub(super) fn parse<'a>(
    line: &'a [u8],
    fields: Fields<'_>,
    buffer: &'a mut Vec<u8>,
) -> Option<LineFields<'a>> {
    if fields.key == Some(fields.text) {
        return None;
    }
    let mut line = Line { bytes: line, at: 0 };
    let mut other = Vec::new();
    let (mut text, mut key) = (None, None);
    line.skip_space();
    line.eat(b'{')?;
    loop {
        line.skip_space();
        line.eat(b'"')?;
        let name = match line.string(&mut other)? {
            Content::Line(name) => std::str::from_utf8(name).ok()?,
            Content::Buffer(_) => return None,
        };
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
                    let value = line.string(&mut other)?.text(&other)?;
                    if is_key {
                        key = Some(value.to_owned());
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
    if line.at < line.bytes.len() || fields.key.is_some() != key.is_some() {
        return None;
    }
    Some(LineFields { text: Cow::Borrowed(text?.text(buffer)?), key })
}

/// Where a string is.
enum Content<'a> {
    /// In the line, as it is.
    Line(&'a [u8]),
    /// In the buffer, without its escapes: so many bytes.
    Buffer(usize),
}

impl<'a> Content<'a> {
    fn text(self, buffer: &'a [u8]) -> Option<&'a str> {
        let content = match self {
            Content::Line(content) => content,
            Content::Buffer(len) => buffer.get(..len)?,
        };
        std::str::from_utf8(content).ok()
    }
}

/// A line that is being read.
struct Line<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Line<'a> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
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
        self.bytes[self.at..].starts_with(word.as_bytes()).then(|| self.at += word.len())
    }

    /// An integer as JSON writes it.
    fn integer(&mut self) -> Option<&'a str> {
        let begin = self.at;
        let _ = self.eat(b'-');
        let digits = self.bytes[self.at..].iter().take_while(|b| b.is_ascii_digit()).count();
        let (first, signed) = (self.peek(), self.at > begin);
        self.at += digits;
        let zero = first == Some(b'0');
        let is_integer = (1..=DIGITS).contains(&digits) && !(zero && (digits > 1 || signed));
        (is_integer && !matches!(self.peek(), Some(b'.' | b'e' | b'E')))
            .then(|| std::str::from_utf8(&self.bytes[begin..self.at]).ok())
            .flatten()
    }

    /// The rest of a string whose quote was eaten.
    fn string(&mut self, buffer: &mut Vec<u8>) -> Option<Content<'a>> {
        let (content, at) = dispatch(InString { bytes: self.bytes, begin: self.at, buffer })?;
        self.at = at;
        Some(content)
    }

    /// The character of the escape `\u` whose digits begin here.
    fn by_number(&mut self) -> Option<char> {
        let first = self.four_digits()?;
        if !(0xd800..0xe000).contains(&first) {
            return char::from_u32(first);
        }
        self.word("\\u")?;
        let second = self.four_digits()?;
        let is_pair = first < 0xdc00 && (0xdc00..0xe000).contains(&second);
        is_pair.then(|| 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)).and_then(char::from_u32)
    }

    fn four_digits(&mut self) -> Option<u32> {
        let digits = self.bytes.get(self.at..self.at + 4)?;
        self.at += 4;
        digits.iter().try_fold(0, |number, &digit| Some(number << 4 | char::from(digit).to_digit(16)?))
    }
}

/// The character that each letter behind a backslash stands for; 0 where it is another, or none.
const ESCAPES: [u8; 256] = {
    let mut escapes = [0; 256];
    let pairs = *b"\"\"\\\\//n\nt\tr\rb\x08f\x0c";
    let mut i = 0;
    while i < pairs.len() {
        escapes[pairs[i] as usize] = pairs[i + 1];
        i += 2;
    }
    escapes
};

/// Reads a string that begins at `begin`, behind its quote, and says where it is and where what follows its end begins.
struct InString<'a, 'b> {
    bytes: &'a [u8],
    begin: usize,
    buffer: &'b mut Vec<u8>,
}

impl<'a> Kernel for InString<'a, '_> {
    type Output = Option<(Content<'a>, usize)>;

    #[inline(always)]
    fn run(self, masks: impl ByteMasks) -> Self::Output {
        let Self { bytes, begin, buffer } = self;
        let mut at = begin;
        // As long as there is no escape, nothing has to be copied.
        let first = loop {
            let special = special(masks, &window(bytes, at));
            if special != 0 {
                at += special.trailing_zeros() as usize;
                break *bytes.get(at)?;
            }
            at += WINDOW;
        };
        if first == b'"' {
            return Some((Content::Line(bytes.get(begin..at)?), at + 1));
        }
        let mut len = at - begin;
        make_room(buffer, len);
        buffer.get_mut(..len)?.copy_from_slice(bytes.get(begin..at)?);
        loop {
            match *bytes.get(at)? {
                b'"' => return Some((Content::Buffer(len), at + 1)),
                b'\\' => {}
                // A control character, which JSON wants escaped.
                _ => return None,
            }
            let kind = *bytes.get(at + 1)?;
            at += 2;
            match ESCAPES[kind as usize] {
                0 if kind == b'u' => {
                    let mut line = Line { bytes, at };
                    let char = line.by_number()?;
                    at = line.at;
                    len += char.encode_utf8(buffer.get_mut(len..)?).len();
                }
                0 => return None,
                char => {
                    *buffer.get_mut(len)? = char;
                    len += 1;
                }
            }
            loop {
                let window = window(bytes, at);
                let special = special(masks, &window);
                make_room(buffer, len);
                *buffer.get_mut(len..)?.first_chunk_mut()? = window;
                let plain = special.trailing_zeros() as usize;
                (at, len) = (at + plain, len + plain);
                if special != 0 {
                    break;
                }
            }
        }
    }
}

/// Has `buffer` hold a window behind `len` bytes, all of which may count, and an escaped character behind that.
#[inline(always)]
fn make_room(buffer: &mut Vec<u8>, len: usize) {
    const AHEAD: usize = 4 << 10;
    if buffer.len() < len + 2 * WINDOW {
        buffer.resize(len + AHEAD, 0);
    }
}

/// The bytes from `at` on; after the end they are 0, which is not in any string.
#[inline(always)]
fn window(bytes: &[u8], at: usize) -> [u8; WINDOW] {
    let rest = bytes.get(at..).unwrap_or_default();
    match rest.first_chunk() {
        Some(window) => *window,
        None => {
            let mut window = [0; WINDOW];
            window[..rest.len()].copy_from_slice(rest);
            window
        }
    }
}

/// The quotes, backslashes and control characters among the bytes.
#[inline(always)]
fn special(masks: impl ByteMasks, bytes: &[u8; WINDOW]) -> u64 {
    let window = masks.load(bytes);
    masks.equal(window, b'"') | masks.equal(window, b'\\') | masks.in_range(window, 0, 0x20)
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
            let mut buffer = b"left over".to_vec();
            if let Some(found) = parse(line.as_bytes(), fields, &mut buffer) {
                prop_assert_eq!(Ok(found), general(&line, fields), "{:?}", line);
            }
        }

        #[test]
        fn what_is_found_is_what_a_line_of_utf8_holds(
            line in lines(),
            bytes in prop::collection::vec((any::<prop::sample::Index>(), 0x7fu8..), 0..3),
        ) {
            let mut line = line.into_bytes();
            for (at, byte) in bytes {
                line.insert(at.index(line.len() + 1), byte);
            }
            let mut buffer = Vec::new();
            if let Some(found) = parse(&line, FIELDS, &mut buffer) {
                let line = std::str::from_utf8(&line);
                prop_assert!(line.is_ok());
                prop_assert_eq!(line.ok().map(|line| general(line, FIELDS)), Some(Ok(found)));
            }
        }

        #[test]
        fn strings_are_read_as_they_were_written(text: String, key: String, other: String) {
            let line = serde_json::json!({ "text": text, "id": key, "other": other, "n": 1, "b": true }).to_string();
            let mut buffer = Vec::new();
            let found = parse(line.as_bytes(), FIELDS, &mut buffer);
            prop_assert_eq!(found, Some(LineFields { text: text.into(), key: Some(key) }));
        }

        #[test]
        fn strings_longer_than_a_window_are_read_as_they_were_written(
            pieces in prop::collection::vec(
                prop::sample::select(vec!["a", "\n", "\"", "\\", "é", "😀", "\u{1}", "/", "more than a few plain letters "]),
                0..100,
            ),
            escape_all: bool,
        ) {
            let text = pieces.concat();
            let mut written = serde_json::json!(text).to_string();
            if escape_all {
                // As writers do that know ASCII only.
                let units = text.encode_utf16().map(|unit| format!("\\u{unit:04x}"));
                written = format!("\"{}\"", units.collect::<String>());
            }
            let line = format!("{{\"id\": 7, \"text\": {written}, \"n\": 1}}");
            let mut buffer = Vec::new();
            let found = parse(line.as_bytes(), FIELDS, &mut buffer);
            prop_assert_eq!(found, Some(LineFields { text: text.into(), key: Some("7".to_owned()) }));
        }
    }
}
