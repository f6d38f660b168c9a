//! The lengths of tokens in bytes of text, from which the ranges of ids follow.

use std::ops::Range;

use super::bpe::{InverseAlphabet, byte_alphabet};
use super::char_bpe::byte_token;
use super::normalizer::forms::{ByteOrigin, ComposedPart, normalized_len, origin};
use crate::bpe_file::ParsedBpe;
use crate::cuts::{BYTE_LEVEL_SPACE, Trim};
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
    /// The parts of the piece that the normalizer changes.
    pub(super) changes: Vec<ComposedPart>,
}

impl TokenLengths {
    /// Returns the lengths for a model over bytes.
    pub(super) fn of_bytes(model: &ParsedBpe) -> Self {
        let byte_of = InverseAlphabet::new(&byte_alphabet());
        Self::new(model, |token| {
            // Most tokens are a word of ASCII after a space.
            let (space, word) = token.strip_prefix(BYTE_LEVEL_SPACE).map_or((0, token), |word| (1, word));
            match word.bytes().all(|byte| byte.is_ascii_graphic()) {
                true => Some(space + word.len()),
                false => token.chars().map(|c| byte_of.get(Some(c)).map(|_| 1)).sum(),
            }
        })
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
        let WrittenPiece { text, range, has_prefix, changes } = piece;
        let (before, prefix) = (out.len(), usize::from(*has_prefix));
        let bytes = text.as_bytes();
        let is_ascii = bytes.get(range.clone()).is_some_and(<[u8]>::is_ascii);
        let is_inside = |at: usize| bytes.get(at).is_some_and(|byte| byte & 0xc0 == 0x80);
        let floor = |at| if is_inside(at) { text.floor_char_boundary(at) } else { at };
        let ceil = |at| if is_inside(at) { text.ceil_char_boundary(at) } else { at };
        // Positions in the text of a token that starts and ends at these bytes of the piece as the model gets it.
        let start = |at: usize| range.start + at.saturating_sub(prefix);
        let end = |at: usize| range.start + at.saturating_sub(prefix).max(1);
        let length = match changes.is_empty() {
            true if is_ascii => self.consecutive(ids, out, start, end),
            true => self.consecutive(ids, out, |at| floor(start(at)), |at| ceil(end(at))),
            false => {
                let start = |at: usize| match origin(changes, at.saturating_sub(prefix)) {
                    ByteOrigin::Byte(at) => floor(range.start + at),
                    ByteOrigin::Char(char) => range.start + char.start,
                };
                let end = |at: usize| match origin(changes, at.saturating_sub(prefix + 1)) {
                    ByteOrigin::Byte(at) => ceil(range.start + at + 1),
                    ByteOrigin::Char(char) => range.start + char.end,
                };
                self.consecutive(ids, out, start, end)
            }
        };
        if length != Some(prefix + normalized_len(changes, range.len())) {
            out.truncate(before);
            return false;
        }
        if trim != Trim::Keeps {
            for (at, token) in out.iter_mut().skip(before).enumerate() {
                let range = token.start as usize..token.end as usize;
                let trimmed = match ids.first() {
                    // Its first character is the space before the piece.
                    Some(&first) if at < prefix => {
                        let is_only_space = self.0.get(first as usize) == Some(&1);
                        let bytes = bytes.get(range.clone()).unwrap_or_default();
                        let spaces = bytes.iter().rev().take_while(|byte| **byte == b' ').count();
                        let spaces = if is_only_space { 1 } else { spaces };
                        let is_first = range.start == 0;
                        trim.trimmed(text, range, prefix, spaces, is_first)
                    }
                    _ => trim.spaces(text, range),
                };
                *token = trimmed.start as u32..trimmed.end as u32;
            }
        }
        true
    }

    /// Appends the ranges of the `ids` of a piece. `start_of` and `end_of` map the bytes at which a token starts and ends to
    /// positions in the text. Returns the length of the piece; `None` if that of a token is unknown.
    #[inline(always)]
    fn consecutive(
        &self,
        ids: &[u32],
        out: &mut Vec<Range<u32>>,
        start_of: impl Fn(usize) -> usize,
        end_of: impl Fn(usize) -> usize,
    ) -> Option<usize> {
        let (mut at, mut is_known) = (0, true);
        out.extend(ids.iter().map(|&id| {
            let length = self.0.get(id as usize).copied().unwrap_or_default();
            is_known &= length != 0;
            let start = start_of(at);
            at += usize::from(length);
            start as u32..end_of(at) as u32
        }));
        is_known.then_some(at)
    }
}
