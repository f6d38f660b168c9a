//! The fast engine for models whose pre-tokenizer cuts at spaces: a cache from chunks of text to their ids.
//!
//! The ids of a text are the ids of its chunks, concatenated, as long as no part of the tokenizer looks across a cut. So the
//! text is cut only where that is certain:
//!
//! * **BERT** (`BertPreTokenizer`, with or without `BertNormalizer`): at space, tab and line ends, which are dropped in
//!   any case, around ASCII punctuation, which is always a word of its own, and around Chinese characters where the
//!   normalizer puts spaces there. Normalization goes character by character, except for canonical decomposition, which
//!   reorders marks but never across one of these.
//! * **Metaspace** (SentencePiece models: T5, XLM-R): at a single space (or several, where the normalizer makes one of
//!   them) between two characters that stay themselves: they join no neighbour in a grapheme cluster (the unit of the
//!   `Precompiled` normalizer) and do not become something that begins or ends with a space. What follows the space begins
//!   a word, as the start of a text does.
//!
//! A language that writes no spaces has long chunks and gains nothing here.

use std::ops::Range;
use std::sync::Arc;

use super::added::AddedTokens;
use super::between_words::between_words;
use super::cache::{WordCache, WordEncoder};
use super::chinese::is_chinese;
use super::classes::decode;
use super::metaspace::{Metaspace, Prefix};
use super::parts::EngineParts;
use super::spaces::Spaces;
use super::stop::{Stop, finish};
use super::unigram::Unigram;
use super::wordpiece::WordPiece;
use crate::engine::reference::Reference;
use crate::engine::{Engine, Outcome};
use crate::error::EncodeError;
use crate::info::EngineInfo;
use crate::outline::type_of;
use crate::scratch::Scratch;
use serde_json::Value;

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
    model: ChunkModel,
    reference: Arc<Reference>,
}

/// Models that this crate implements, because the reference spends most of its time on offsets.
enum ChunkModel {
    WordPiece(WordPiece),
    Unigram(Unigram),
    Reference,
}

impl WordEncoder for ChunkEncoder {
    fn encode_word(&self, chunk: &[u8], out: &mut Vec<u32>) -> Result<(), EncodeError> {
        let chunk = std::str::from_utf8(chunk).map_err(|_| EncodeError::SplitCharacter("a chunk of text"))?;
        let done = match &self.model {
            ChunkModel::WordPiece(model) => {
                model.encode(chunk, out);
                true
            }
            ChunkModel::Unigram(model) => model.encode(chunk, out)?,
            ChunkModel::Reference => false,
        };
        if done { Ok(()) } else { self.reference.encode_part(chunk, out) }
    }
}

impl Chunks {
    /// An engine for the tokenizer, or why there is none.
    pub(super) fn new(parts: &EngineParts<'_>) -> Result<Self, String> {
        let (raw, normalized) = AddedTokens::both(parts.reference.tokenizer(), parts.parse_special)?;
        if !normalized.is_empty() {
            return Err("added tokens are searched for in the normalized text".to_owned());
        }
        let (normalizer, pre_tokenizer) = (&parts.outline.normalizer, &parts.outline.pre_tokenizer);
        let cut = if type_of(pre_tokenizer) == Some("BertPreTokenizer") {
            match type_of(normalizer) {
                Some("BertNormalizer") => {
                    let chinese = normalizer.get("handle_chinese_chars").and_then(Value::as_bool);
                    Cut::Bert { chinese: chinese.ok_or("the normalizer is not a known one")? }
                }
                None if normalizer.is_null() => Cut::Bert { chinese: false },
                _ => return Err("the normalizer is not a known one".to_owned()),
            }
        } else if is_metaspace(pre_tokenizer) {
            if !keeps_spaces(normalizer) {
                return Err("the normalizer is not a known one".to_owned());
            }
            Cut::Spaces(Spaces::new(Arc::clone(parts.reference)))
        } else {
            return Err("the pre-tokenizer is not a known one".to_owned());
        };
        let tokenizer = parts.reference.tokenizer();
        let model = match &cut {
            Cut::Bert { .. } => WordPiece::new(tokenizer).map(ChunkModel::WordPiece),
            Cut::Spaces(_) => {
                let max_bytes = parts.reference.max_bytes();
                Unigram::new(tokenizer, parts.unigram_unk, max_bytes).map(ChunkModel::Unigram)
            }
        };
        let encoder = ChunkEncoder {
            model: model.unwrap_or(ChunkModel::Reference),
            reference: Arc::clone(parts.reference),
        };
        Ok(Self { raw, cut, encoder })
    }

    fn piece(&self, text: &str, words: &mut WordCache, out: &mut Vec<u32>) -> Result<(), Stop> {
        let chunk = |start, end| Ok(words.append(&self.encoder, text.as_bytes(), start, end, out)?);
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
        let buffers = scratch.buffers();
        let result = self.raw.encode(text, out, |piece, out| self.piece(piece, &mut buffers.words, out));
        finish(result, before, out)
    }

    fn divide(&self, text: &str, from: usize) -> Option<Range<usize>> {
        match &self.cut {
            Cut::Bert { .. } if !self.raw.is_across_words() => between_words(text, from).map(|at| at..at),
            // What follows the space begins as a text does; a text with the space before it would not.
            Cut::Spaces(spaces) if !self.raw.is_at_spaces() => {
                between_words(text, from).map(|at| at..at + 1).filter(|space| spaces.is_cut(text, space))
            }
            Cut::Bert { .. } | Cut::Spaces(_) => None,
        }
    }
}

/// Metaspace that begins every piece with a space and cuts at each, alone or after a split at white space.
fn is_metaspace(value: &Value) -> bool {
    match type_of(value) {
        Some("Sequence") => match value.get("pretokenizers").and_then(Value::as_array).map(Vec::as_slice) {
            Some([only]) => is_metaspace(only),
            Some([first, second]) => type_of(first) == Some("WhitespaceSplit") && is_metaspace(second),
            _ => false,
        },
        _ => Metaspace::read(value) == Some(Metaspace { prefix: Prefix::Missing, splits: true }),
    }
}

/// Whether a single space between two ordinary characters is out of reach of this normalizer.
fn keeps_spaces(value: &Value) -> bool {
    match type_of(value) {
        None => value.is_null(),
        Some("Precompiled" | "Strip" | "NFC" | "NFKC" | "Lowercase" | "Nmt") => true,
        Some("Replace") => {
            value.pointer("/pattern/Regex").and_then(Value::as_str) == Some(" {2,}")
                && value.get("content").and_then(Value::as_str) == Some(" ")
        }
        Some("Sequence") => value
            .get("normalizers")
            .and_then(Value::as_array)
            .is_some_and(|list| list.iter().all(keeps_spaces)),
        Some(_) => false,
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
