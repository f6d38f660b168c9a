//! Character encodings of text files: byte order marks, and conversion to UTF-8 while a file is read.
//!
//! Everything after this module sees UTF-8, and offsets refer to it. A malformed sequence becomes `MALFORMED`, a byte
//! that never occurs in UTF-8. So readers handle it like any other invalid byte: they reject or replace it.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, ErrorKind, Read};
use std::str::FromStr;

use encoding_rs::{DecoderResult, Encoding, UTF_8, UTF_16BE, UTF_16LE};

use super::compressed_members::MemberStarts;
use crate::error::{Error, Result};
use crate::options::serde_as_text;
use crate::sample::{Reject, RejectCode};

/// Replaces a malformed sequence.
const MALFORMED: u8 = 0xff;
/// Maximum size of a byte order mark, in bytes.
pub const MARK_BYTES: usize = 4;
/// Size of each of the two buffers of a decoder, in bytes.
const BUFFER_BYTES: usize = 32 << 10;
/// Maximum bytes of UTF-8 per byte in any encoding.
pub const MAX_GROWTH: u64 = 3;

/// A character encoding other than UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextEncoding(&'static Encoding);

impl TextEncoding {
    /// Returns the encoding with this name or label of the WHATWG Encoding Standard; `None` for UTF-8.
    ///
    /// # Errors
    ///
    /// Returns an error if there is none.
    pub fn parse(name: &str) -> Result<Option<Self>> {
        let found = Encoding::for_label_no_replacement(name.as_bytes()).ok_or_else(|| {
            Error::usage(format!("unknown encoding {name:?}")).help(
                "use a name such as windows-1252, shift_jis, gb18030, euc-kr or utf-16le; other encodings are converted \
                 with iconv -f NAME -t UTF-8 FILE",
            )
        })?;
        Ok((found != UTF_8).then_some(Self(found)))
    }
}

impl FromStr for TextEncoding {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text).map(|encoding| encoding.unwrap_or(Self(UTF_8)))
    }
}

impl fmt::Display for TextEncoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.name().to_ascii_lowercase())
    }
}

serde_as_text!(TextEncoding);

/// A byte order mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Utf8,
    Utf16(&'static Encoding),
    /// Name of the encoding, which is not supported.
    Utf32(&'static str),
}

impl Mark {
    fn of(head: &[u8]) -> Option<Self> {
        match head {
            [0xef, 0xbb, 0xbf, ..] => Some(Self::Utf8),
            // Before UTF-16LE, with whose mark it starts.
            [0xff, 0xfe, 0, 0, ..] => Some(Self::Utf32("UTF-32LE")),
            [0, 0, 0xfe, 0xff, ..] => Some(Self::Utf32("UTF-32BE")),
            [0xff, 0xfe, ..] => Some(Self::Utf16(UTF_16LE)),
            [0xfe, 0xff, ..] => Some(Self::Utf16(UTF_16BE)),
            _ => None,
        }
    }
}

/// Returns whether content that starts with `head` has a byte order mark of an encoding other than UTF-8.
pub fn is_marked(head: &[u8]) -> bool {
    !matches!(Mark::of(head), None | Some(Mark::Utf8))
}

/// Returns text as UTF-8, whatever the byte order mark at its start says. Without one, it has the encoding `given`, or
/// UTF-8.
///
/// # Errors
///
/// Returns a reject if the encoding is not supported.
pub fn to_utf8(bytes: Vec<u8>, given: Option<TextEncoding>) -> Result<Vec<u8>, Reject> {
    if given.is_none() && !is_marked(&bytes) {
        return Ok(bytes);
    }
    let mut text = Vec::with_capacity(bytes.len());
    match Utf8Reader::new(&bytes[..], given, MemberStarts::default()).read_to_end(&mut text) {
        Ok(_) => Ok(text),
        Err(e) => Err(Reject::new(RejectCode::Unsupported, e.to_string())),
    }
}

/// Returns the content of a text file without the byte order mark that some editors write at its start.
pub fn without_bom(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes)
}

/// Returns the text of the small file `what`, whose encoding is UTF-8 unless its byte order mark says otherwise.
///
/// # Errors
///
/// Returns a reject if the bytes are not valid in this encoding, or it is not supported.
pub fn small_text<'a>(what: &str, bytes: &'a [u8]) -> Result<Cow<'a, str>, Reject> {
    let not_utf8 = |e| Reject::not_utf8(what, &e);
    if !is_marked(bytes) {
        return std::str::from_utf8(without_bom(bytes)).map(Cow::Borrowed).map_err(not_utf8);
    }
    let decoded = to_utf8(bytes.to_vec(), None);
    let decoded =
        decoded.map_err(|reject| Reject::new(reject.code, format!("{what}: {}", reject.message)))?;
    std::str::from_utf8(without_bom(&decoded)).map(|text| Cow::Owned(text.to_owned())).map_err(not_utf8)
}

/// Reader of text as UTF-8.
pub(super) struct Utf8Reader<R> {
    input: R,
    given: Option<TextEncoding>,
    state: DecoderState,
    /// Encoded bytes that were read; those up to `decoded` are done.
    encoded: Vec<u8>,
    decoded: usize,
    /// Bytes to return; those up to `returned` are done.
    text: Vec<u8>,
    returned: usize,
    /// The starts of compressed members, which refer to encoded bytes.
    members: MemberStarts,
}

enum DecoderState {
    Start,
    /// The text is UTF-8.
    Unchanged,
    /// `is_last`: all of the input was read, but not all of it decoded.
    Decoding {
        decoder: Box<encoding_rs::Decoder>,
        is_last: bool,
    },
    Ended,
}

impl<R: Read> Utf8Reader<R> {
    pub(in crate::source) fn new(input: R, given: Option<TextEncoding>, members: MemberStarts) -> Self {
        let (encoded, text) = (Vec::new(), Vec::new());
        Self { input, given, state: DecoderState::Start, encoded, decoded: 0, text, returned: 0, members }
    }

    /// Reads the byte order mark, and chooses the decoder.
    fn start(&mut self) -> io::Result<DecoderState> {
        let mut head = [0; MARK_BYTES];
        while self.encoded.len() < MARK_BYTES {
            match self.input.read(&mut head[self.encoded.len()..]) {
                Ok(0) => break,
                Ok(read) => {
                    let start = self.encoded.len();
                    self.encoded.extend_from_slice(&head[start..start + read]);
                }
                Err(e) => return Err(e),
            }
        }
        let encoding = match (Mark::of(&self.encoded), self.given) {
            (Some(Mark::Utf32(name)), _) => {
                let message = format!(
                    "the text is {name}, which is not supported: convert it with `iconv -f UTF-32 -t UTF-8 FILE > NEW`"
                );
                return Err(io::Error::new(ErrorKind::Unsupported, message));
            }
            (Some(Mark::Utf16(encoding)), _) => {
                self.encoded.drain(..2);
                encoding
            }
            (None, Some(TextEncoding(encoding))) if encoding != UTF_8 => encoding,
            (Some(Mark::Utf8) | None, _) => {
                self.text = std::mem::take(&mut self.encoded);
                return Ok(DecoderState::Unchanged);
            }
        };
        self.members.ignore_more();
        let decoder = Box::new(encoding.new_decoder_without_bom_handling());
        Ok(DecoderState::Decoding { decoder, is_last: false })
    }

    /// Decodes more text. At the end, there may be none.
    fn decode(&mut self) -> io::Result<()> {
        let DecoderState::Decoding { decoder, is_last } = &mut self.state else { return Ok(()) };
        if !*is_last && self.decoded == self.encoded.len() {
            self.encoded.resize(BUFFER_BYTES, 0);
            self.decoded = 0;
            let read = self.input.read(&mut self.encoded);
            self.encoded.truncate(*read.as_ref().unwrap_or(&0));
            *is_last = read? == 0;
        }
        let is_last = *is_last;
        self.text.resize(BUFFER_BYTES, 0);
        self.returned = 0;
        let encoded = &self.encoded[self.decoded..];
        let (result, read, written) =
            decoder.decode_to_utf8_without_replacement(encoded, &mut self.text, is_last);
        self.decoded += read;
        self.text.truncate(written);
        match result {
            DecoderResult::Malformed(..) => self.text.push(MALFORMED),
            DecoderResult::InputEmpty if is_last => self.state = DecoderState::Ended,
            DecoderResult::InputEmpty | DecoderResult::OutputFull => {}
        }
        Ok(())
    }
}

impl<R: Read> Read for Utf8Reader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            let text = &self.text[self.returned..];
            if !text.is_empty() {
                let count = text.len().min(buffer.len());
                buffer[..count].copy_from_slice(&text[..count]);
                self.returned += count;
                return Ok(count);
            }
            match self.state {
                DecoderState::Start => self.state = self.start()?,
                DecoderState::Unchanged => return self.input.read(buffer),
                DecoderState::Ended => return Ok(0),
                DecoderState::Decoding { .. } => self.decode()?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns a few bytes at a time.
    struct Parts<'a>(&'a [u8], std::iter::Cycle<std::vec::IntoIter<usize>>);

    impl Read for Parts<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.1.next().unwrap_or(1).min(self.0.len()).min(buffer.len());
            let (part, rest) = self.0.split_at(count);
            buffer[..count].copy_from_slice(part);
            self.0 = rest;
            Ok(count)
        }
    }

    fn utf16(text: &str, is_big: bool) -> Vec<u8> {
        let unit = |unit: u16| if is_big { unit.to_be_bytes() } else { unit.to_le_bytes() };
        std::iter::once(0xfeff).chain(text.encode_utf16()).flat_map(unit).collect()
    }

    fn text(bytes: &[u8], given: Option<&str>) -> Vec<u8> {
        to_utf8(bytes.to_vec(), given.and_then(|name| TextEncoding::parse(name).unwrap())).unwrap()
    }

    proptest! {
        #[test]
        fn any_division_gives_the_same_text(
            found in "([^\\x00].{0,40})?", is_big: bool, parts in prop::collection::vec(1usize..4, 1..8), room in 1usize..9,
        ) {
            let bytes = utf16(&found, is_big);
            let parts = Parts(&bytes, parts.into_iter().cycle());
            let mut reader = Utf8Reader::new(parts, None, MemberStarts::default());
            let (mut all, mut buffer) = (Vec::new(), vec![0; room]);
            while let read @ 1.. = reader.read(&mut buffer).unwrap() {
                all.extend_from_slice(&buffer[..read]);
            }
            prop_assert_eq!(all, found.as_bytes());
        }

        #[test]
        fn malformed_text_has_invalid_bytes_exactly_where_it_is_malformed(
            units in prop::collection::vec(prop_oneof![Just(0xd800u16), Just(0xdc00), Just(0x61), Just(0x20ac)], 0..50),
        ) {
            let bytes: Vec<u8> = [0xfeff].iter().chain(&units).flat_map(|unit| unit.to_le_bytes()).collect();
            let found = text(&bytes, None);
            prop_assert_eq!(String::from_utf8_lossy(&found), String::from_utf16_lossy(&units));
        }
    }

    #[test]
    fn the_mark_decides_before_the_option() {
        assert_eq!(text("\u{feff}é".as_bytes(), Some("windows-1252")), "\u{feff}é".as_bytes());
        assert_eq!(text(&utf16("é", true), Some("windows-1252")), "é".as_bytes());
        assert_eq!(text(b"caf\xe9 \x80", Some("windows-1252")), "café €".as_bytes());
        assert_eq!(text(b"\x83e\x83X\x83g", Some("Shift_JIS")), "テスト".as_bytes());
        assert_eq!(text(b"h\0i\0", Some("utf-16le")), b"hi");
        assert_eq!(text(b"caf\xe9", None), b"caf\xe9");
        assert_eq!(text(b"h\0i\0x", Some("utf-16le")), b"hi\xff");
        for short in [&b""[..], b"\xff", b"\xef\xbb", b"\0\0\xfe"] {
            assert_eq!(text(short, None), short);
        }
        assert_eq!(text(b"\xff\xfe", None), b"");
    }

    #[test]
    fn utf32_is_refused() {
        for bytes in [&b"\xff\xfe\0\0a\0\0\0"[..], b"\0\0\xfe\xff\0\0\0a"] {
            let reject = to_utf8(bytes.to_vec(), None).unwrap_err();
            assert_eq!(reject.code, RejectCode::Unsupported);
            assert!(reject.message.contains("iconv -f UTF-32"), "{}", reject.message);
        }
        assert!(TextEncoding::parse("utf-32").is_err() && TextEncoding::parse("iso-2022-kr").is_err());
        assert_eq!(TextEncoding::parse("UTF8").unwrap(), None);
        let latin: TextEncoding = serde_json::from_str("\"latin1\"").unwrap();
        assert_eq!(serde_json::to_string(&latin).unwrap(), "\"windows-1252\"");
    }
}
