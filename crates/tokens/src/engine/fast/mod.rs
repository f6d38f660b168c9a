//! The fast engines, which support the tokenizers of most models.
//!
//! [`build`] inspects the parts of a tokenizer and returns an engine only if the engine supports all of them:
//!
//! * [`byte_level`]: byte-level BPE. Known split patterns (GPT-2, Llama 3, GPT-4o, Qwen, StarCoder, …) are
//!   hand-written; others use the regular expressions of the reference.
//! * [`metaspace_bpe`]: BPE over characters with spaces written as `▁` (Llama 2, Mistral, Gemma).
//! * [`chunks`]: any model whose pre-tokenizer never looks across certain spaces (BERT's WordPiece, T5's Unigram). The
//!   ids of the chunks between such spaces are cached.
//!
//! An engine is used only if it passes [`super::proof`].
//!
//! The modules in this folder form layers; none uses this file. At the bottom are tables and data structures
//! (`classes`, `block`, `byte_pairs`, `cache`, `bytemap`, `merges`, `stop`, `parts`), above them the models (`bpe`,
//! `char_bpe`, `unigram`, `wordpiece`, `word_model`), pre-tokenizers (`split`, `pre_tokenizer`, `spaces`, `metaspace`,
//! `words`) and the `normalizer`, then the three engines.

mod added;
pub(crate) mod between_words;
mod block;
mod bpe;
pub(crate) mod buffers;
mod byte_level;
mod byte_pairs;
mod byte_words;
mod bytemap;
pub(super) mod cache;
mod char_bpe;
mod chinese;
mod chunks;
mod classes;
pub(crate) mod draft;
mod merges;
mod metaspace;
mod metaspace_bpe;
mod normalizer;
pub(crate) mod parts;
mod pre_tokenizer;
mod spaces;
pub(crate) mod split;
mod stop;
#[cfg(test)]
pub(crate) mod tests;
mod unigram;
mod word_model;
mod wordpiece;
mod words;

use tokenizers::ModelWrapper;
use tokenizers::models::bpe::BPE;

use self::draft::{Draft, Tables};
use self::parts::EngineParts;
use super::Engine;

/// Builds the engine for a tokenizer. The error states why there is none. `draft` is used for BPE models.
pub(crate) fn build(
    parts: &EngineParts<'_>,
    draft: Result<Draft, String>,
) -> Result<Box<dyn Engine>, String> {
    let ModelWrapper::BPE(model) = parts.reference.parts().get_model() else {
        return Ok(Box::new(chunks::CachedChunks::new(parts)?));
    };
    // If the BPE engines do not support the model, cached chunks may.
    bpe(parts, model, draft).or_else(|why| match chunks::CachedChunks::new(parts) {
        Ok(chunks) => Ok(Box::new(chunks)),
        Err(_) => Err(why),
    })
}

fn bpe(
    parts: &EngineParts<'_>,
    model: &BPE,
    draft: Result<Draft, String>,
) -> Result<Box<dyn Engine>, String> {
    let filled = |part: &Option<String>| part.as_ref().is_some_and(|s| !s.is_empty());
    if filled(&model.continuing_subword_prefix) {
        return Err("the model marks the parts of words".to_owned());
    }
    match draft?.tables {
        Tables::Chars(_) if filled(&model.end_of_word_suffix) => {
            Err("the model marks the ends of words".to_owned())
        }
        Tables::Bytes(bpe) => Ok(Box::new(byte_level::ByteLevel::new(parts, *bpe)?)),
        Tables::Chars(_) if !model.byte_fallback => Err("a character may have no token".to_owned()),
        Tables::Chars(bpe) => Ok(Box::new(metaspace_bpe::MetaspaceBpe::new(parts, *bpe)?)),
    }
}
