//! The lengths of tokens in bytes of text, from which the ranges of ids follow.

use std::ops::Range;

use super::bpe::{InverseAlphabet, byte_alphabet};
use super::char_bpe::byte_token;
use crate::bpe_file::ParsedBpe;
use crate::cuts::Trim;
use crate::outline::METASPACE;

/// Tokens with larger ids have no length, so that the table of a file with huge ids stays small.
const MAX_ID: u32 = 1 << 24;

/// The lengths of the tokens of a BPE model, by id; 0 if unknown or above 255 bytes. The table is small because it is
/// read once per id.
#[derive(Debug, Default)]
pub(super) struct TokenLengths(Vec<u8>);

/// A piece of a text, as the model gets it.
pub(super) struct WrittenPiece<'a> {
    pub(super) text: &'a str,
    pub(super) range: Range<usize>,
    /// Whether the piece, which does not start with a space, is written with one before it.
    pub(super) has_prefix: bool,
}

impl TokenLengths {
    /// Returns the lengths for a model over bytes.
    pub(super) fn of_bytes(model: &ParsedBpe) -> Self {
        let byte_of = InverseAlphabet::new(&byte_alphabet());
        Self::new(model, |token| token.chars().map(|c| byte_of.get(Some(c)).map(|_| 1)).sum())
    }

    /// Returns the lengths for a model over characters with byte fallback, whose text has spaces in place of
    /// [`METASPACE`].
    pub(super) fn of_chars(model: &ParsedBpe) -> Self {
        let spaces = |token: &str| token.chars().filter(|c| *c == METASPACE).count();
        let mut lengths =
            Self::new(model, |token| Some(token.len() - spaces(token) * (METASPACE.len_utf8() - 1)));
        for byte in 0..=u8::MAX {
            let id = model.vocab.get(&byte_token(byte));
            if let Some(length) = id.and_then(|id| lengths.0.get_mut(id as usize)) {
                *length = 1;
            }
        }
        lengths
    }

    fn new(model: &ParsedBpe, measure: impl Fn(&str) -> Option<usize>) -> Self {
        let settings = &model.settings;
        if settings.end_of_word_suffix.as_ref().is_some_and(|suffix| !suffix.is_empty()) {
            return Self::default();
        }
        let mut lengths = vec![0; model.vocab.max_id().min(MAX_ID) as usize + 1];
        let mut unknown = Vec::new();
        for (token, id) in model.vocab.iter() {
            let Some(length) = lengths.get_mut(id as usize) else { continue };
            if *length != 0 {
                unknown.push(id);
            }
            *length = measure(token).and_then(|bytes| bytes.try_into().ok()).unwrap_or_default();
        }
        unknown.extend(settings.unk_token.as_ref().and_then(|unk| model.vocab.get(unk)));
        if settings.byte_fallback == Some(true) {
            unknown.extend((0..=u8::MAX).filter_map(|byte| model.vocab.get(&byte_token(byte))));
        }
        for id in unknown {
            if let Some(length) = lengths.get_mut(id as usize) {
                *length = 0;
            }
        }
        Self(lengths)
    }

    /// Appends the ranges of the `ids` of a piece. A token with some of the bytes of a character has the whole
    /// character, and a space before the piece has its first character, as in the reference. Returns false, and appends
    /// nothing, if a length is unknown or they do not add up to the piece.
    pub(super) fn ranges(
        &self,
        piece: &WrittenPiece<'_>,
        trim: Trim,
        ids: &[u32],
        out: &mut Vec<Range<u32>>,
    ) -> bool {
        let WrittenPiece { text, range, has_prefix } = piece;
        let is_inside_char = |at: usize| text.as_bytes().get(at).is_some_and(|byte| byte & 0xc0 == 0x80);
        let (before, prefix) = (out.len(), usize::from(*has_prefix));
        let (mut at, end) = (0, range.len() + prefix);
        out.reserve(ids.len());
        for &id in ids {
            let length = usize::from(self.0.get(id as usize).copied().unwrap_or_default());
            let next = at + length;
            if length == 0 || next > end {
                break;
            }
            let mut token = range.start + at - at.min(prefix)..range.start + (next - prefix).max(1);
            while is_inside_char(token.start) {
                token.start -= 1;
            }
            while is_inside_char(token.end) {
                token.end += 1;
            }
            if trim != Trim::Keeps && at < prefix {
                // The first character of the token is the space before the piece.
                let bytes = text.as_bytes().get(range.start..range.start + (next - prefix));
                let bytes = bytes.unwrap_or_default();
                let spaces = bytes.iter().rev().take_while(|byte| **byte == b' ').count();
                let is_first = token.start == 0;
                token = trim.trimmed(text, token, prefix, spaces + usize::from(bytes.is_empty()), is_first);
            } else {
                token = trim.spaces(text, token);
            }
            out.push(token.start as u32..token.end as u32);
            at = next;
        }
        let is_whole = at == end && out.len() - before == ids.len();
        if !is_whole {
            out.truncate(before);
        }
        is_whole
    }
}
