//! The fast engine for BPE over characters (Llama 2, Mistral, Gemma). It cuts a text where no merge joins two
//! characters, and caches the ids of the parts.

use std::ops::Range;

use serde_json::Value;

use super::added::AddedTokens;
use super::between_words::between_words;
use super::buffers::Buffers;
use super::cache::WordCache;
use super::char_bpe::{CharBpe, Neighbors};
use super::engine_parts::EngineParts;
use super::lengths::{TokenLengths, WrittenPiece};
use super::metaspace::{Metaspace, Prefix, is_metaspace};
use super::stop::{EngineStop, finish};
use crate::cuts::Trim;
use crate::engine::{Engine, Outcome};
use crate::error::EncodeError;
use crate::info::EngineInfo;
use crate::outline::{METASPACE, steps, type_of};
use crate::scratch::Scratch;

/// Maximum size in bytes of a group of words that are looked up together, with one bit per possible end.
const MAX_GROUP_BYTES: usize = u64::BITS as usize;

/// Metaspace options that have no effect.
const NO_METASPACE: Metaspace = Metaspace { prefix: Prefix::Never, splits: false };

/// The engine for character BPE.
pub(super) struct MetaspaceBpe {
    raw: AddedTokens,
    normalized: AddedTokens,
    spaces: SpaceHandling,
    bpe: CharBpe,
    lengths: TokenLengths,
    trim: Trim,
}

/// Treatment of spaces by the normalizer and the pre-tokenizer.
struct SpaceHandling {
    /// Whether the normalizer replaces spaces by [`METASPACE`].
    replaces: bool,
    /// Whether it also prepends one to each text between the added tokens of raw text.
    prepends: bool,
    by_pre_tokenizer: Metaspace,
    /// Strings that the normalizer also replaces by [`METASPACE`] (`<!dummy-prefix!>` of ChatGLM). The reference encodes
    /// documents with one of them.
    others: Vec<String>,
}

impl MetaspaceBpe {
    /// Creates an engine for the tokenizer. The error states why there is none.
    pub(super) fn new(
        parts: &EngineParts<'_>,
        mut bpe: CharBpe,
        lengths: TokenLengths,
    ) -> Result<Self, String> {
        let spaces = SpaceHandling::new(&parts.outline.normalizer, &parts.outline.pre_tokenizer)
            .ok_or("this combination of normalizer and pre-tokenizer is not supported")?;
        let written = |normalized: &str| match spaces.replaces {
            true => normalized.replace(METASPACE, " "),
            false => normalized.to_owned(),
        };
        let (raw, normalized) =
            AddedTokens::both_written(parts.reference.parts(), parts.parse_special, written)?;
        if spaces.by_pre_tokenizer.splits {
            bpe.neighbors.cut_before_spaces();
        }
        let trim = Trim::of(parts.reference.parts().get_post_processor());
        Ok(Self { raw, normalized, spaces, bpe, lengths, trim })
    }

    /// Appends the ids of a part of the raw text between added tokens. `is_first`: whether it is at the start of the
    /// text.
    fn piece(
        &self,
        piece: &str,
        is_first: bool,
        buffers: &mut Buffers,
        out: &mut Vec<u32>,
    ) -> Result<(), EngineStop> {
        let Buffers { words, normalized, prefixed, .. } = buffers;
        let piece = self.spaces.normalized(piece, normalized)?;
        self.normalized.encode(piece, out, |text, is_at_start, out| {
            let text = self.spaces.prefixed(text, is_first && is_at_start, prefixed);
            self.words(text.as_bytes(), words, out)
        })
    }

    fn words(&self, bytes: &[u8], words: &mut WordCache, out: &mut Vec<u32>) -> Result<(), EngineStop> {
        let mut start = 0;
        while start < bytes.len() {
            let window = bytes.get(start..).and_then(|rest| rest.first_chunk::<MAX_GROUP_BYTES>());
            let ends = window.map_or(0, |window| self.bpe.neighbors.ends_in(window));
            start = match ends {
                0 => self.group(bytes, start, words, out)?,
                ends => words.append_words(&self.bpe, bytes, start, ends, out)?,
            };
        }
        Ok(())
    }

    /// Appends the ids of the words that start at byte `start`: one, or several in [`MAX_GROUP_BYTES`]. Returns their end.
    fn group(
        &self,
        bytes: &[u8],
        start: usize,
        words: &mut WordCache,
        out: &mut Vec<u32>,
    ) -> Result<usize, EngineStop> {
        let neighbors = &self.bpe.neighbors;
        // The bits are the ends of the words, relative to their start.
        let mut ends = 0u64;
        let (mut before, len) = Neighbors::next(bytes, start);
        let mut at = start + len;
        loop {
            let next = (at < bytes.len()).then(|| Neighbors::next(bytes, at));
            if next.is_none_or(|(char, _)| !neighbors.may_join(before, char)) {
                if at - start < MAX_GROUP_BYTES {
                    ends |= 1 << (at - start);
                } else if ends == 0 {
                    words.append(&self.bpe, bytes, start, at, out)?;
                    return Ok(at);
                }
                if next.is_none() || at - start >= MAX_GROUP_BYTES {
                    return Ok(words.append_words(&self.bpe, bytes, start, ends, out)?);
                }
            }
            let Some((char, len)) = next else { return Ok(at) };
            before = char;
            at += len;
        }
    }
}

impl Engine for MetaspaceBpe {
    fn info(&self) -> EngineInfo {
        EngineInfo::fast("character BPE")
    }

    fn encode(&self, text: &str, scratch: &mut Scratch, out: &mut Vec<u32>) -> Result<Outcome, EncodeError> {
        let before = out.len();
        let buffers = scratch.buffers();
        let result =
            self.raw.encode(text, out, |piece, is_first, out| self.piece(piece, is_first, buffers, out));
        buffers.trim();
        finish(result, before, out)
    }

    fn encode_piece(
        &self,
        piece: &str,
        is_first: bool,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) -> Result<Outcome, EncodeError> {
        let before = out.len();
        let buffers = scratch.buffers();
        let result = match self.spaces.replaces {
            true => self.piece(piece, is_first, buffers, out),
            false => {
                let text = self.spaces.prefixed(piece, is_first, &mut buffers.prefixed);
                self.words(text.as_bytes(), &mut buffers.words, out)
            }
        };
        buffers.trim();
        finish(result, before, out)
    }

    fn ranges(
        &self,
        text: &str,
        range: Range<usize>,
        ids: &[u32],
        _: &mut Scratch,
        out: &mut Vec<Range<u32>>,
    ) -> bool {
        let piece = text.get(range.clone()).unwrap_or_default();
        let &SpaceHandling { replaces, prepends, by_pre_tokenizer, .. } = &self.spaces;
        // A space may be prepended after each added token in the piece.
        let may_add_spaces =
            replaces && by_pre_tokenizer.prefix != Prefix::Never && !self.normalized.is_empty();
        if self.trim != Trim::Keeps || may_add_spaces || piece.contains(METASPACE) {
            return false;
        }
        let has_prefix = prepends || self.spaces.needs_prefix(piece, range.start == 0);
        let piece = WrittenPiece { text, range, has_prefix, changes: Vec::new() };
        self.lengths.ranges(&piece, self.trim, ids, out)
    }

    fn divide(&self, text: &str, from: usize) -> Option<Range<usize>> {
        let at = between_words(text, from)?;
        if self.bpe.neighbors.may_join(u32::from(text.as_bytes()[at - 1]), u32::from(b' ')) {
            return None;
        }
        let stages = [&self.raw, &self.normalized];
        match self.spaces.prepends_space() {
            false => stages.iter().all(|stage| !stage.across_words).then_some(at..at),
            // The next part gets a prepended space, which replaces the one between the parts.
            true => stages.iter().all(|stage| !stage.at_spaces).then_some(at..at + 1),
        }
    }
}

impl SpaceHandling {
    /// Parses the normalizer and the pre-tokenizer. `None` if they do anything else.
    fn new(normalizer: &Value, pre_tokenizer: &Value) -> Option<Self> {
        let parts = steps(normalizer, "normalizers");
        let (mut replaces, mut prepends, mut others) = (false, false, Vec::new());
        for part in parts {
            match type_of(part)? {
                "Replace" if is_metaspace(part.get("content")) => match string_pattern(part)? {
                    " " => replaces = true,
                    other if other.is_empty() || other.contains([' ', METASPACE]) => return None,
                    other => others.push(other.to_owned()),
                },
                "Prepend" if is_metaspace(part.get("prepend")) && !prepends => prepends = true,
                _ => return None,
            }
        }
        if !parts.is_empty() && !replaces {
            return None;
        }
        let by_pre_tokenizer = match type_of(pre_tokenizer) {
            None if pre_tokenizer.is_null() && replaces => NO_METASPACE,
            // The normalizer leaves nothing to split at.
            Some("Split")
                if replaces
                    && string_pattern(pre_tokenizer).is_some_and(|pattern| {
                        pattern == " " || others.iter().any(|other| other == pattern)
                    }) =>
            {
                NO_METASPACE
            }
            _ => Metaspace::read(pre_tokenizer)?,
        };
        Some(Self { replaces, prepends, by_pre_tokenizer, others })
    }

    /// Returns whether a document that starts with a letter gets a space before it.
    fn prepends_space(&self) -> bool {
        self.prepends || self.by_pre_tokenizer.prefix != Prefix::Never
    }

    /// Normalizes a piece, but writes every [`METASPACE`] as a space: the tables treat both alike.
    fn normalized<'a>(&self, piece: &'a str, buffer: &'a mut String) -> Result<&'a str, EngineStop> {
        if !self.replaces {
            return Ok(piece);
        }
        if self.others.iter().any(|other| piece.contains(other)) {
            return Err(EngineStop::NeedsReference);
        }
        let is_written = piece.contains(METASPACE);
        if !self.prepends && !is_written {
            return Ok(piece);
        }
        buffer.clear();
        if self.prepends {
            buffer.push(' ');
        }
        let mut rest = piece;
        while let Some((before, after)) = rest.split_once(METASPACE) {
            buffer.push_str(before);
            buffer.push(' ');
            rest = after;
        }
        buffer.push_str(rest);
        Ok(buffer)
    }

    /// Applies Metaspace to a text between added tokens, but does not replace its spaces.
    fn prefixed<'a>(&self, text: &'a str, is_first: bool, buffer: &'a mut String) -> &'a str {
        if !self.needs_prefix(text, is_first) {
            return text;
        }
        buffer.clear();
        buffer.push(' ');
        buffer.push_str(text);
        buffer
    }

    /// Returns whether Metaspace prepends a space to a text between added tokens.
    fn needs_prefix(&self, text: &str, is_first: bool) -> bool {
        let may_need = match self.by_pre_tokenizer.prefix {
            Prefix::Never => false,
            Prefix::Missing => true,
            Prefix::MissingFirst => is_first,
        };
        may_need && !text.starts_with([' ', METASPACE])
    }
}

/// Returns the string that a normalizer replaces or a pre-tokenizer splits at.
fn string_pattern(value: &Value) -> Option<&str> {
    value.pointer("/pattern/String").and_then(Value::as_str)
}
