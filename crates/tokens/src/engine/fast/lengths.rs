//! The lengths of tokens in bytes of text, from which the ranges of ids follow.

use std::ops::Range;

use super::bpe::{InverseAlphabet, byte_alphabet};
use super::char_bpe::byte_token;
use crate::bpe_file::ParsedBpe;
use crate::cuts::{BYTE_LEVEL_SPACE, Trim};
use crate::outline::METASPACE;

/// Tokens with larger ids have no length, so that the table of a file with huge ids stays small.
const MAX_ID: u32 = 1 << 24;

/// The length of a token; 0 bytes if it is unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct TokenLength {
    bytes: u16,
    /// Number of spaces at its start and at its end.
    lead: u8,
    trail: u8,
}

/// The lengths of the tokens of a BPE model, by id.
#[derive(Debug, Default)]
pub(super) struct TokenLengths(Vec<TokenLength>);

/// A piece of a text, as the model gets it.
pub(super) struct WrittenPiece<'a> {
    pub(super) text: &'a str,
    pub(super) range: Range<usize>,
    /// Whether the piece is written with a space before it.
    pub(super) has_prefix: bool,
}

impl TokenLengths {
    /// Returns the lengths for a model over bytes.
    pub(super) fn of_bytes(model: &ParsedBpe) -> Self {
        let byte_of = InverseAlphabet::new(&byte_alphabet());
        Self::new(model, |token| {
            let is_space = |c: &char| *c == BYTE_LEVEL_SPACE;
            let bytes = token.chars().map(|c| byte_of.get(Some(c)).map(|_| 1)).sum::<Option<usize>>()?;
            let lead = token.chars().take_while(is_space).count();
            Some((bytes, lead, token.chars().rev().take_while(is_space).count()))
        })
    }

    /// Returns the lengths for a model over characters with byte fallback, whose text has spaces in place of
    /// [`METASPACE`].
    pub(super) fn of_chars(model: &ParsedBpe) -> Self {
        let spaces = |token: &str| token.chars().filter(|c| *c == METASPACE).count();
        let mut lengths =
            Self::new(model, |token| Some((token.len() - spaces(token) * (METASPACE.len_utf8() - 1), 0, 0)));
        for byte in 0..=u8::MAX {
            let id = model.vocab.get(&byte_token(byte));
            if let Some(length) = id.and_then(|id| lengths.0.get_mut(id as usize)) {
                *length = TokenLength { bytes: 1, lead: 0, trail: 0 };
            }
        }
        lengths
    }

    fn new(model: &ParsedBpe, measure: impl Fn(&str) -> Option<(usize, usize, usize)>) -> Self {
        let settings = &model.settings;
        if settings.end_of_word_suffix.as_ref().is_some_and(|suffix| !suffix.is_empty()) {
            return Self::default();
        }
        let mut lengths = vec![TokenLength::default(); model.vocab.max_id().min(MAX_ID) as usize + 1];
        let mut ambiguous = Vec::new();
        for (token, id) in model.vocab.iter() {
            let measured = measure(token).and_then(|(bytes, lead, trail)| {
                let (lead, trail) = (lead.try_into().ok()?, trail.try_into().ok()?);
                Some(TokenLength { bytes: bytes.try_into().ok()?, lead, trail })
            });
            let Some(length) = lengths.get_mut(id as usize) else { continue };
            if *length != TokenLength::default() {
                ambiguous.push(id);
            }
            *length = measured.unwrap_or_default();
        }
        let mut lengths = Self(lengths);
        ambiguous.into_iter().for_each(|id| lengths.forget(id));
        if let Some(id) = settings.unk_token.as_ref().and_then(|unk| model.vocab.get(unk)) {
            lengths.forget(id);
        }
        if settings.byte_fallback == Some(true) {
            (0..=u8::MAX)
                .filter_map(|byte| model.vocab.get(&byte_token(byte)))
                .for_each(|id| lengths.forget(id));
        }
        lengths
    }

    /// Makes the length of a token unknown.
    pub(super) fn forget(&mut self, id: u32) {
        if let Some(length) = self.0.get_mut(id as usize) {
            *length = TokenLength::default();
        }
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
        let (before, prefix) = (out.len(), usize::from(*has_prefix));
        let (mut at, end) = (0, range.len() + prefix);
        out.reserve(ids.len());
        for &id in ids {
            let length = self.0.get(id as usize).copied().unwrap_or_default();
            let next = at + usize::from(length.bytes);
            if length.bytes == 0 || next > end {
                break;
            }
            let mut start = range.start + at.saturating_sub(prefix);
            let mut stop = range.start + next.saturating_sub(prefix).max(1);
            if !text.is_char_boundary(start) {
                start = text.floor_char_boundary(start);
            }
            if !text.is_char_boundary(stop) {
                stop = text.ceil_char_boundary(stop);
            }
            let mut token = start..stop;
            if length.lead | length.trail != 0 {
                token = trim.trimmed(text, token, length.lead.into(), length.trail.into(), start == 0);
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
