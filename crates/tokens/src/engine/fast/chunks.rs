//! The fast engine for models whose pre-tokenizer cuts at spaces: a cache from chunks of text to their ids.
//!
//! The ids of a text are the ids of its chunks, concatenated, as long as no part of the tokenizer looks across a cut. So the
//! text is cut only where that is certain:
//!
//! * **BERT** (`BertPreTokenizer`, with or without `BertNormalizer`): at space, tab and line ends, which are dropped in
//!   any case, around ASCII punctuation, which is always a word of its own, and around Chinese characters where the
//!   normalizer puts spaces there. Normalization goes character by character, except for canonical decomposition, which
//!   reorders marks but never across one of these.
//! * **Metaspace** (SentencePiece models: T5, XLM-R) and what drops white space: at a single space (or several, where they
//!   make one or are dropped) between two characters that stay themselves: they join no neighbour in a grapheme cluster (the
//!   unit of the `Precompiled` normalizer) and do not become something that begins or ends with a space. What follows the
//!   space begins a word, as the start of a text usually does; where it does not, the first chunk is not cached.
//!
//! The ids of a chunk come from the engine's own [`Normalizer`], [`Words`] and model. A language that writes no spaces has
//! long chunks, which gain only by these.

use std::ops::Range;
use std::sync::Arc;

use serde_json::Value;

use super::added::AddedTokens;
use super::between_words::between_words;
use super::cache::{WordCache, WordEncoder};
use super::chinese::is_chinese;
use super::classes::decode;
use super::metaspace::Prefix;
use super::normalizer::{Normalizer, NormalizerBuffers, Run};
use super::parts::EngineParts;
use super::spaces::Spaces;
use super::stop::{Stop, finish};
use super::word_model::WordModel;
use super::words::Words;
use crate::engine::reference::Reference;
use crate::engine::{Engine, Outcome};
use crate::error::EncodeError;
use crate::info::EngineInfo;
use crate::outline::{METASPACE, normalizers, type_of};
use crate::scratch::Scratch;

/// Where a text is cut.
enum Cut {
    /// `chinese`: the normalizer isolates Chinese characters.
    Bert {
        chinese: bool,
    },
    Spaces(Spaces),
}

/// The engine.
pub(super) struct Chunks {
    raw: AddedTokens,
    cut: Cut,
    encoder: ChunkEncoder,
}

/// Encodes a chunk as if it were the whole text.
struct ChunkEncoder {
    /// Added tokens that are searched for in the normalized text.
    normalized: AddedTokens,
    normalizer: Normalizer,
    words: Words,
    model: WordModel,
    reference: Arc<Reference>,
}

impl ChunkEncoder {
    /// Appends the ids of a chunk that comes after `before`.
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
        let result = self.normalized.encode_parts(text, out, |part, is_first, out| {
            Ok(words(part, is_first && before != Before::Nothing, out)?)
        });
        match result {
            Err(Stop::Failed(error)) => Err(error),
            // No token needs it.
            Ok(()) | Err(Stop::NeedsReference) => Ok(()),
        }
    }
}

/// What a chunk comes after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    /// White space between it and another chunk.
    Space,
    /// The beginning of a text that is encoded as if there were a space.
    AddedSpace,
    /// The beginning of any other text.
    Nothing,
}

impl WordEncoder for ChunkEncoder {
    fn encode_word(&self, chunk: &[u8], out: &mut Vec<u32>) -> Result<(), EncodeError> {
        let chunk = std::str::from_utf8(chunk).map_err(|_| EncodeError::SplitCharacter("a chunk of text"))?;
        self.encode(chunk, Before::Space, out)
    }
}

impl Chunks {
    /// An engine for the tokenizer, or why there is none.
    pub(super) fn new(parts: &EngineParts<'_>) -> Result<Self, String> {
        let tokenizer = parts.reference.tokenizer();
        let (raw, normalized) = AddedTokens::both(tokenizer, parts.parse_special)?;
        if !normalized.are_in_words() {
            return Err("added tokens in the normalized text depend on what is around them".to_owned());
        }
        let (normalizer, pre_tokenizer) = (&parts.outline.normalizer, &parts.outline.pre_tokenizer);
        let words = Words::read(pre_tokenizer).ok_or("the pre-tokenizer is not a known one")?;
        if !normalizers(normalizer).iter().all(keeps_spaces) {
            return Err("the normalizer is not a known one".to_owned());
        }
        // A token may contain punctuation, where the other way cuts.
        let is_bert = type_of(pre_tokenizer) == Some("BertPreTokenizer") && normalized.is_empty();
        let cut = match type_of(normalizer) {
            Some("BertNormalizer") if is_bert => {
                let chinese = normalizer.get("handle_chinese_chars").and_then(Value::as_bool);
                Cut::Bert { chinese: chinese.ok_or("the normalizer is not a known one")? }
            }
            None if is_bert => Cut::Bert { chinese: false },
            _ => Cut::Spaces(Spaces::new(Arc::clone(parts.reference), &words)),
        };
        let encoder = ChunkEncoder {
            normalized,
            normalizer: Normalizer::new(tokenizer.get_normalizer()),
            words,
            model: WordModel::new(parts.reference, parts.unigram_unk),
            reference: Arc::clone(parts.reference),
        };
        Ok(Self { raw, cut, encoder })
    }

    /// Whether what follows a space has the ids that it has as a text of its own.
    fn divides_at_spaces(&self) -> bool {
        let ChunkEncoder { words, normalized, .. } = &self.encoder;
        words.prefix() != Prefix::Never && ![&self.raw, normalized].iter().any(|tokens| tokens.is_at_spaces())
    }

    /// Appends the ids of a part of the text between added tokens. `is_first`: the text begins with it.
    fn piece(
        &self,
        text: &str,
        is_first: bool,
        words: &mut WordCache,
        out: &mut Vec<u32>,
    ) -> Result<(), Stop> {
        let ChunkEncoder { words: pre_tokenizer, normalized, .. } = &self.encoder;
        let before = match pre_tokenizer.prefix() {
            Prefix::Missing => Before::AddedSpace,
            Prefix::MissingFirst if is_first => Before::AddedSpace,
            Prefix::MissingFirst | Prefix::Never => Before::Nothing,
        };
        // The first chunk has the ids of any other, and is cached.
        let is_as_others = before == Before::AddedSpace && normalized.is_empty();
        let chunk = |start, end| {
            if start == 0 && !is_as_others {
                return Ok(self.encoder.encode(&text[..end], before, out)?);
            }
            Ok(words.append(&self.encoder, text.as_bytes(), start, end, out)?)
        };
        match &self.cut {
            Cut::Bert { chinese } => bert(text.as_bytes(), *chinese, chunk),
            Cut::Spaces(spaces) => spaces.cut(text, chunk),
        }
    }
}

impl Engine for Chunks {
    fn info(&self) -> EngineInfo {
        EngineInfo::fast("cached chunks")
    }

    fn encode(&self, text: &str, scratch: &mut Scratch, out: &mut Vec<u32>) -> Result<Outcome, EncodeError> {
        let before = out.len();
        let words = &mut scratch.buffers().words;
        let result = self.raw.encode(text, out, |piece, out| {
            // Whatever came before would have become a token.
            let is_first = out.len() == before;
            self.piece(piece, is_first, words, out)
        });
        finish(result, before, out)
    }

    fn divide(&self, text: &str, from: usize) -> Option<Range<usize>> {
        match &self.cut {
            Cut::Bert { .. } if !self.raw.is_across_words() => between_words(text, from).map(|at| at..at),
            // What follows the space begins as a text does; a text with the space before it would not.
            Cut::Spaces(spaces) if self.divides_at_spaces() => {
                between_words(text, from).map(|at| at..at + 1).filter(|space| spaces.is_cut(text, space))
            }
            Cut::Bert { .. } | Cut::Spaces(_) => None,
        }
    }
}

/// Whether a single space between two ordinary characters is out of reach of this step of a normalizer.
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
                        // Several of them could double a text many times.
                        && content.len() <= pattern.len()
                }
                (_, Some(Run::Spaces), Some(content)) => content == " " || content.chars().eq([METASPACE]),
                (_, Some(Run::Whitespace), Some(content)) => content == " ",
                _ => false,
            }
        }
        Some("Sequence") => normalizers(value).iter().all(keeps_spaces),
        _ => false,
    }
}

/// Calls `chunk` with the bounds of each chunk for a `BertPreTokenizer`.
fn bert(
    bytes: &[u8],
    chinese: bool,
    mut chunk: impl FnMut(usize, usize) -> Result<(), Stop>,
) -> Result<(), Stop> {
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
