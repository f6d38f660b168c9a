//! The fast engines, written for the tokenizers that most data is made with.
//!
//! [`build`] looks at the parts of a tokenizer and takes an engine only if it knows every one of them:
//!
//! * [`byte_level`]: byte-level BPE, split by hand behind a known pattern (GPT-2, Llama 3, GPT-4o, Qwen, StarCoder, …) and by
//!   the regular expressions of the reference behind others.
//! * [`metaspace_bpe`]: BPE over characters, spaces written as one of them (Llama 2, Mistral, Gemma).
//! * [`chunks`]: any model whose pre-tokenizer never joins what stands on both sides of certain spaces (BERT's WordPiece,
//!   T5's Unigram): the answers for the chunks between such spaces, cached. They are made by [`wordpiece`] or [`unigram`],
//!   otherwise by the reference.
//!
//! Whether an engine is used is decided by [`super::proof`], not here.

mod added;
mod block;
mod bpe;
mod byte_level;
mod byte_pairs;
mod bytemap;
pub(crate) mod cache;
mod char_bpe;
mod chunks;
mod classes;
mod draft;
mod merges;
mod metaspace;
mod metaspace_bpe;
mod normal;
mod pre_tokenizer;
mod spaces;
mod split;
#[cfg(test)]
mod tests;
mod unigram;
mod wordpiece;

use std::sync::Arc;

use added::NeedsReference;
use cache::WordCache;
pub(crate) use draft::Draft;
use draft::Tables;
pub(in crate::transform::text) use metaspace::METASPACE;
use serde_json::Value;
use tokenizers::ModelWrapper;

use super::reference::Reference;
use super::{Engine, EngineInfo, Outcome};
use crate::sample::Reject;
use crate::transform::text::load::Outline;

/// Buffers that grew over a long document are given back above this size in bytes.
const KEEP_BUFFER: usize = 16 << 20;

/// What an engine is built from.
pub(crate) struct Build<'a> {
    /// The tokenizer, control tokens hidden where that is the policy.
    pub(crate) reference: &'a Arc<Reference>,
    pub(crate) outline: &'a Outline,
    pub(crate) parse_special: bool,
    /// Index of the unknown token of a Unigram model.
    pub(crate) unigram_unk: Option<usize>,
}

/// The buffers and the cache that an engine needs per thread.
pub(crate) struct Buffers {
    words: WordCache,
    normalized: String,
    prefixed: String,
}

impl Buffers {
    pub(crate) fn new() -> Self {
        Self { words: WordCache::new(), normalized: String::new(), prefixed: String::new() }
    }

    fn trim(&mut self) {
        for buffer in [&mut self.normalized, &mut self.prefixed] {
            if buffer.capacity() > KEEP_BUFFER {
                *buffer = String::new();
            }
        }
    }
}

/// The engine for a tokenizer, or why there is none. `draft` is for a model of BPE.
pub(crate) fn build(build: &Build<'_>, draft: Result<Draft, String>) -> Result<Box<dyn Engine>, String> {
    let ModelWrapper::BPE(model) = build.reference.tokenizer().get_model() else {
        return Ok(Box::new(chunks::Chunks::new(build)?));
    };
    let filled = |part: &Option<String>| part.as_ref().is_some_and(|s| !s.is_empty());
    if filled(&model.continuing_subword_prefix) || filled(&model.end_of_word_suffix) {
        return Err("the model marks the parts of words".to_owned());
    }
    match draft?.tables {
        Tables::Bytes(bpe) => Ok(Box::new(byte_level::ByteLevel::new(build, *bpe)?)),
        Tables::Chars(_) if !model.byte_fallback => Err("a character may have no token".to_owned()),
        Tables::Chars(bpe) => Ok(Box::new(metaspace_bpe::MetaspaceBpe::new(build, *bpe)?)),
    }
}

/// The type of a part of a `tokenizer.json`.
fn type_of(part: &Value) -> Option<&str> {
    part.get("type").and_then(Value::as_str)
}

/// The first place from `from` on between a letter and a space that another letter follows, all of ASCII; it is before
/// the space. No engine that asks for it has a word or a chunk across it or looks across it, no normalizer changes what is on
/// one side because of the other, and an added token lies across it only if it has such a place itself.
pub(in crate::transform::text) fn between_words(text: &str, from: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let is_letter = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_alphabetic);
    let spaces = memchr::memchr_iter(b' ', bytes.get(from..)?);
    spaces.map(|at| from + at).find(|&at| at > 0 && is_letter(at - 1) && is_letter(at + 1))
}

fn engine_info(name: &str) -> EngineInfo {
    EngineInfo { name: format!("dsconvert {name}"), version: env!("CARGO_PKG_VERSION").to_owned() }
}

/// What came of a document; `out` is cut back to `before` unless it is done.
fn finish(result: Result<(), Stop>, before: usize, out: &mut Vec<u32>) -> Result<Outcome, Reject> {
    match result {
        Ok(()) => Ok(Outcome::Done),
        Err(stop) => {
            out.truncate(before);
            match stop {
                Stop::NeedsReference => Ok(Outcome::Declined),
                Stop::Reject(reject) => Err(reject),
            }
        }
    }
}

/// Why an engine stopped in the middle of a document.
pub(super) enum Stop {
    NeedsReference,
    Reject(Reject),
}

impl From<NeedsReference> for Stop {
    fn from(_: NeedsReference) -> Self {
        Stop::NeedsReference
    }
}

impl From<Reject> for Stop {
    fn from(reject: Reject) -> Self {
        Stop::Reject(reject)
    }
}
