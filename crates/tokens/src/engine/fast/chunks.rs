//! The fast engine for models whose pre-tokenizer cuts at spaces. It caches the ids of chunks of text.
//!
//! The ids of a text are the concatenated ids of its chunks, provided that no part of the tokenizer depends on both
//! sides of a cut. So the text is cut only where that is certain:
//!
//! * **BERT** (`BertPreTokenizer`, with or without `BertNormalizer`): at spaces, tabs and line ends, which are always
//!   dropped; around ASCII punctuation, where each character is always a separate word; and around Chinese characters
//!   if the normalizer puts spaces there. Normalization works character by character, except for canonical
//!   decomposition, which reorders marks but never across one of these.
//! * **Metaspace** (SentencePiece models: T5, XLM-R) and pre-tokenizers that drop white space: at a single space
//!   between two stable characters, or at several spaces if they are collapsed or dropped. A stable character joins no
//!   neighbor in a grapheme cluster (the unit of the `Precompiled` normalizer), and its normalized form neither starts
//!   nor ends with a space. The text after the space starts a word, as the start of a text usually does; if the latter
//!   does not, the first chunk is not cached.
//!
//! The ids of a chunk come from the engine's own [`Normalizer`], [`Words`] and model. Languages written without spaces
//! have long chunks, for which only these parts save time.

use std::ops::Range;
use std::sync::Arc;

use serde_json::Value;
use tokenizers::tokenizer::normalizer::Range as NormalizedRange;
use tokenizers::{Model as _, ModelWrapper, NormalizedString, Normalizer as _};

use super::added::AddedTokens;
use super::between_words::between_words;
use super::cache::{WordCache, WordEncoder};
use super::classes::decode;
use super::engine_parts::EngineParts;
use super::metaspace::Prefix;
use super::normalizer::bert::is_chinese;
use super::normalizer::{Normalizer, NormalizerBuffers, Run};
use super::spaces::Spaces;
use super::stop::{EngineStop, finish};
use super::unigram::Unigram;
use super::word_bpe::WordBpe;
use super::wordpiece::WordPiece;
use super::words::Words;
use crate::engine::reference::Reference;
use crate::engine::{Engine, Outcome};
use crate::error::EncodeError;
use crate::info::EngineInfo;
use crate::outline::{METASPACE, steps, type_of};
use crate::panics::guarded;
use crate::scratch::Scratch;

/// Bytes of a text that are normalized to find out what becomes of its first character.
const FIRST_BYTES: usize = 64;

/// Rule for the positions at which a text is cut.
enum CutRule {
    /// At white space and punctuation; with `chinese`, also around Chinese characters, which the normalizer isolates.
    Bert {
        chinese: bool,
    },
    Spaces(Spaces),
}

/// The engine for cached chunks.
pub(super) struct CachedChunks {
    raw: AddedTokens,
    cut: CutRule,
    encoder: ChunkEncoder,
}

/// Encodes a chunk as if it were the whole text.
struct ChunkEncoder {
    /// Added tokens searched for in the normalized text.
    normalized: AddedTokens,
    normalizer: Normalizer,
    words: Words,
    model: WordModel,
    reference: Arc<Reference>,
}

impl ChunkEncoder {
    /// Appends the ids of a chunk that follows `before`.
    fn encode(&self, chunk: &str, before: Before, out: &mut Vec<u32>) -> Result<(), EncodeError> {
        if !self.reference.admits(chunk) {
            return Err(EncodeError::too_large(chunk, self.reference.max_bytes()));
        }
        let mut buffers = NormalizerBuffers::default();
        let text = self.normalizer.normalize(chunk, &mut buffers)?;
        let words = |text: &str, is_after_space: bool, out: &mut Vec<u32>| {
            self.words.each(text, is_after_space, &mut |word| self.model.encode(word, out))
        };
        if self.normalized.is_empty() {
            return words(text, before != Before::Nothing, out);
        }
        if before == Before::Space && self.normalized.is_at_start(text) {
            words(" ", false, out)?;
        }
        let result = self.normalized.encode(text, out, |part, is_first, out| {
            Ok(words(part, is_first && before != Before::Nothing, out)?)
        });
        match result {
            Err(EngineStop::Failed(error)) => Err(error),
            // Cannot occur, because no token depends on its neighbors.
            Ok(()) | Err(EngineStop::NeedsReference) => Ok(()),
        }
    }
}

/// Context before a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    /// White space after another chunk.
    Space,
    /// The start of a text that is encoded as if a space preceded it.
    AddedSpace,
    /// The start of any other text.
    Nothing,
}

impl WordEncoder for ChunkEncoder {
    fn encode_word(&self, chunk: &[u8], out: &mut Vec<u32>) -> Result<(), EncodeError> {
        let chunk = std::str::from_utf8(chunk).map_err(|_| EncodeError::SplitCharacter("a chunk of text"))?;
        self.encode(chunk, Before::Space, out)
    }
}

impl CachedChunks {
    /// Creates an engine for the tokenizer; `bpe` is its BPE model, if there are tables for it. The error states why
    /// there is none.
    pub(super) fn new(parts: &EngineParts<'_>, bpe: Option<Box<WordBpe>>) -> Result<Self, String> {
        let tokenizer = parts.reference.parts();
        let (raw, normalized) = AddedTokens::both(tokenizer, parts.parse_special)?;
        if !normalized.are_in_words() {
            return Err("added tokens in the normalized text depend on their neighbors".to_owned());
        }
        let (normalizer, pre_tokenizer) = (&parts.outline.normalizer, &parts.outline.pre_tokenizer);
        let words = Words::read(pre_tokenizer).ok_or("the pre-tokenizer is not supported")?;
        if !steps(normalizer, "normalizers").iter().all(keeps_spaces) {
            return Err("the normalizer is not supported".to_owned());
        }
        // Normalized tokens may contain punctuation, at which `CutRule::Bert` cuts.
        let is_bert = type_of(pre_tokenizer) == Some("BertPreTokenizer") && normalized.is_empty();
        let cut = match type_of(normalizer) {
            Some("BertNormalizer") if is_bert => {
                let chinese = normalizer.get("handle_chinese_chars").and_then(Value::as_bool);
                CutRule::Bert { chinese: chinese.ok_or("the normalizer is not supported")? }
            }
            None if is_bert => CutRule::Bert { chinese: false },
            _ => CutRule::Spaces(Spaces::new(Arc::clone(parts.reference), &words)),
        };
        let encoder = ChunkEncoder {
            normalized,
            normalizer: Normalizer::new(tokenizer.get_normalizer()),
            words,
            model: WordModel::new(parts.reference, parts.unigram_unk, bpe)?,
            reference: Arc::clone(parts.reference),
        };
        Ok(Self { raw, cut, encoder })
    }

    /// Returns whether the text after a space has the same ids as on its own.
    fn divides_at_spaces(&self) -> bool {
        let ChunkEncoder { words, normalized, .. } = &self.encoder;
        words.prefix() != Prefix::Never && ![&self.raw, normalized].iter().any(|tokens| tokens.at_spaces)
    }

    /// Returns whether the first character of the normalized text comes from the first one of `text`. Only then does the
    /// reference add a space at the start.
    fn keeps_first_char(&self, text: &str) -> bool {
        let Some(normalizer) = self.encoder.reference.parts().get_normalizer() else { return true };
        let mut start = NormalizedString::from(&text[..text.floor_char_boundary(FIRST_BYTES)]);
        if text.is_empty() || normalizer.normalize(&mut start).is_err() {
            return text.is_empty();
        }
        let first = start.get().chars().next().map(|char| NormalizedRange::Normalized(0..char.len_utf8()));
        first.and_then(|first| start.convert_offsets(first)).is_some_and(|original| original.start == 0)
    }

    /// Appends the ids of a part of the text between added tokens. `is_first`: whether it is at the start of the text.
    fn piece(
        &self,
        text: &str,
        is_first: bool,
        words: &mut WordCache,
        out: &mut Vec<u32>,
    ) -> Result<(), EngineStop> {
        let ChunkEncoder { words: pre_tokenizer, normalized, .. } = &self.encoder;
        if is_first && pre_tokenizer.prefix() == Prefix::MissingFirst && !self.keeps_first_char(text) {
            return Err(EngineStop::NeedsReference);
        }
        let before = match pre_tokenizer.prefix() {
            Prefix::Missing => Before::AddedSpace,
            Prefix::MissingFirst if is_first => Before::AddedSpace,
            Prefix::MissingFirst | Prefix::Never => Before::Nothing,
        };
        // The first chunk has the same ids as in other positions, so it is cached.
        let is_as_others = before == Before::AddedSpace && normalized.is_empty();
        let chunk = |start, end| {
            if start == 0 && !is_as_others {
                return Ok(self.encoder.encode(&text[..end], before, out)?);
            }
            Ok(words.append(&self.encoder, text.as_bytes(), start, end, out)?)
        };
        match &self.cut {
            CutRule::Bert { chinese } => cut_for_bert(text.as_bytes(), *chinese, chunk),
            CutRule::Spaces(spaces) => spaces.cut(text, chunk),
        }
    }
}

impl Engine for CachedChunks {
    fn info(&self) -> EngineInfo {
        EngineInfo::fast("cached chunks")
    }

    fn encode(&self, text: &str, scratch: &mut Scratch, out: &mut Vec<u32>) -> Result<Outcome, EncodeError> {
        let before = out.len();
        let words = &mut scratch.buffers().words;
        let result =
            self.raw.encode(text, out, |piece, is_first, out| self.piece(piece, is_first, words, out));
        finish(result, before, out)
    }

    fn divide(&self, text: &str, from: usize) -> Option<Range<usize>> {
        match &self.cut {
            CutRule::Bert { .. } if !self.raw.across_words => between_words(text, from).map(|at| at..at),
            // The space belongs to neither part, because a part that starts with it would not be encoded like a text.
            CutRule::Spaces(spaces) if self.divides_at_spaces() => {
                between_words(text, from).map(|at| at..at + 1).filter(|space| spaces.is_cut(text, space))
            }
            CutRule::Bert { .. } | CutRule::Spaces(_) => None,
        }
    }
}

/// Returns whether a normalizer step keeps a single space between two ordinary characters, and treats the text on each
/// side of it separately.
fn keeps_spaces(value: &Value) -> bool {
    let has_space = |text: &str| text.contains(|c: char| c.is_whitespace() || c == METASPACE);
    match type_of(value) {
        Some(
            "Precompiled" | "Strip" | "NFC" | "NFD" | "NFKC" | "NFKD" | "Lowercase" | "StripAccents" | "Nmt"
            | "BertNormalizer",
        ) => true,
        Some("Replace") => {
            let of = |kind: &str| value.get("pattern")?.get(kind)?.as_str();
            match (
                of("String"),
                of("Regex").and_then(Run::read),
                value.get("content").and_then(Value::as_str),
            ) {
                (Some(pattern), _, Some(content)) => {
                    ![pattern, content].iter().any(|text| text.is_empty() || has_space(text))
                        // Several growing steps could double a text many times.
                        && content.len() <= pattern.len()
                }
                (_, Some(Run::Spaces), Some(content)) => content == " " || content.chars().eq([METASPACE]),
                (_, Some(Run::Whitespace), Some(content)) => content == " ",
                _ => false,
            }
        }
        Some("Sequence") => steps(value, "normalizers").iter().all(keeps_spaces),
        _ => false,
    }
}

/// Calls `chunk` with the bounds of each chunk for a `BertPreTokenizer`.
fn cut_for_bert(
    bytes: &[u8],
    chinese: bool,
    mut chunk: impl FnMut(usize, usize) -> Result<(), EngineStop>,
) -> Result<(), EngineStop> {
    let (mut start, mut at) = (0, 0);
    while let Some(&first) = bytes.get(at) {
        let (alone, len) = if first < 0x80 {
            if !first.is_ascii_punctuation() && !matches!(first, b' ' | b'\t' | b'\n' | b'\r') {
                at += 1;
                continue;
            }
            (first.is_ascii_punctuation(), 1)
        } else {
            let (code, len) = decode(bytes, at, first);
            if !(chinese && is_chinese(code)) {
                at += len;
                continue;
            }
            (true, len)
        };
        if start < at {
            chunk(start, at)?;
        }
        if alone {
            chunk(at, at + len)?;
        }
        at += len;
        start = at;
    }
    if start < at { chunk(start, at) } else { Ok(()) }
}

/// A model that encodes single words.
enum WordModel {
    WordPiece(WordPiece),
    Unigram(Unigram),
    Bpe(Box<WordBpe>),
    /// The reference's model, without its normalizer and pre-tokenizer. Fast enough for words that are not in the
    /// cache.
    Reference(Arc<Reference>),
}

impl WordModel {
    /// Creates the model of `reference`. `unigram_unk` is the index of the unknown token of a Unigram model, and `bpe`
    /// the BPE model, if it is supported. The error states why there is none.
    fn new(
        reference: &Arc<Reference>,
        unigram_unk: Option<usize>,
        bpe: Option<Box<WordBpe>>,
    ) -> Result<Self, String> {
        if let Some(bpe) = bpe {
            return Ok(Self::Bpe(bpe));
        }
        let known = match reference.model().ok_or("the model of the reference is not loaded")? {
            ModelWrapper::WordPiece(model) => WordPiece::new(model).map(Self::WordPiece),
            ModelWrapper::Unigram(model) => Unigram::new(model, unigram_unk).map(Self::Unigram),
            ModelWrapper::BPE(_) | ModelWrapper::WordLevel(_) => None,
        };
        Ok(known.unwrap_or_else(|| Self::Reference(Arc::clone(reference))))
    }

    /// Appends the ids of the non-empty `word`.
    fn encode(&self, word: &str, out: &mut Vec<u32>) -> Result<(), EncodeError> {
        match self {
            Self::WordPiece(model) => model.encode(word, out),
            Self::Unigram(model) => model.encode(word, out),
            Self::Bpe(model) => model.encode(word, out)?,
            Self::Reference(reference) => {
                let tokens = guarded(|| reference.parts().get_model().tokenize(word))?;
                out.extend(tokens.iter().map(|token| token.id));
            }
        }
        Ok(())
    }
}
