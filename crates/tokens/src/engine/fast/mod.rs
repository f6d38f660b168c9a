//! The fast engines, which support the tokenizers of most models.
//!
//! [`build`] inspects the parts of a tokenizer and returns an engine only if the engine supports all of them:
//!
//! * [`byte_level`]: byte-level BPE. Known split patterns (GPT-2, Llama 3, GPT-4o, Qwen, StarCoder, …) are
//!   hand-written; others use the regular expressions of the reference.
//! * [`metaspace_bpe`]: BPE over characters with spaces written as `▁` (Llama 2, Mistral, Gemma).
//! * [`chunks`]: any model for which the words on both sides of certain spaces are independent (BERT's WordPiece, T5's
//!   Unigram). The ids of the chunks between such spaces are cached.
//!
//! An engine is used only if it passes [`super::proof`].
//!
//! The modules in this folder form layers; none uses this file. At the bottom are tables and data structures
//! (`classes`, `block`, `byte_pairs`, `cache`, `bytemap`, `merges`, `char_tokens`, `unknown`, `stop`, `engine_parts`), above them the
//! models (`bpe`, `char_bpe`, `word_bpe`, `unigram`, `wordpiece`), pre-tokenizers (`split`,
//! `pre_tokenizer`, `spaces`, `metaspace`, `words`) and the `normalizer`, then the three engines.

mod added;
pub(crate) mod between_words;
mod block;
pub(crate) mod bpe;
pub(crate) mod bpe_tables;
pub(crate) mod buffers;
mod byte_level;
mod byte_pairs;
mod bytemap;
mod cache;
mod char_bpe;
mod char_tokens;
mod chunks;
mod classes;
pub(crate) mod engine_parts;
mod lengths;
mod merges;
mod metaspace;
mod metaspace_bpe;
pub(crate) mod normalized_finder;
pub(crate) mod normalizer;
mod pair_table;
mod pre_tokenizer;
mod regex;
mod spaces;
pub(crate) mod split;
mod stop;
#[cfg(test)]
pub(crate) mod tests;
mod unigram;
mod unknown;
mod word_bpe;
mod wordpiece;
mod words;

use tokenizers::ModelWrapper;

use self::bpe_tables::{BpeTables, FastBpe};
use self::engine_parts::EngineParts;
use super::Engine;

/// Builds the engine for a tokenizer; `tables` are those of a BPE model. The error states why there is no engine.
pub(crate) fn build(
    parts: &EngineParts<'_>,
    tables: Result<BpeTables, String>,
) -> Result<Box<dyn Engine>, String> {
    let chunks =
        |words| chunks::CachedChunks::new(parts, words).map(|engine| Box::new(engine) as Box<dyn Engine>);
    if !matches!(parts.reference.parts().get_model(), ModelWrapper::BPE(_)) {
        return chunks(None);
    }
    let engine: Result<Box<dyn Engine>, String> = match tables.map(|tables| tables.model) {
        Ok(FastBpe::Words(words)) => return chunks(Some(words)),
        Ok(FastBpe::Bytes(bpe, lengths)) => {
            byte_level::ByteLevel::new(parts, *bpe, lengths).map(|engine| Box::new(engine) as _)
        }
        Ok(FastBpe::Chars(bpe, lengths)) => {
            metaspace_bpe::MetaspaceBpe::new(parts, *bpe, lengths).map(|engine| Box::new(engine) as _)
        }
        Err(why) => Err(why),
    };
    // If the BPE engines do not support the model, cached chunks may.
    engine.or_else(|why| chunks(None).map_err(|_| why))
}
