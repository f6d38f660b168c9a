#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod bos_eos;
mod bpe_file;
mod build;
mod charsmap;
mod cuts;
mod engine;
mod error;
// Not in release builds. A feature would compile this crate twice for tests.
#[cfg(debug_assertions)]
mod faults;
mod from_json;
mod growth;
mod id_set;
mod ids;
mod info;
mod load;
mod marked;
mod masks;
mod options;
mod outline;
mod panics;
mod patterns;
mod quick;
mod read_model;
mod scratch;
mod segments;
mod sentencepiece;
mod special;
mod stats;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod tiktoken;
mod tokenizer;
mod tokenizer_json;
mod unigram_scores;
mod verify;

pub use bos_eos::{ConfigToken, ConfigTokens};
pub use build::BYTES;
pub use engine::reference::REFERENCE_VERSION;
pub use error::{EncodeError, LoadError, SequenceEnd};
pub use ids::{IdSink, IdSource};
pub use info::{EngineInfo, SpecialToken, TokenizerInfo};
pub use marked::{MarkedIds, mask, overlap_mask};
pub use options::{
    DEFAULT_MAX_REFERENCE_BYTES, EngineChoice, SpecialInText, TokenizerOptions, VERIFY_PER_MILLION, Verify,
};
pub use outline::MODEL_TYPES;
pub use panics::is_panic_contained;
pub use patterns::pattern_of_older_ids;
pub use scratch::Scratch;
pub use sentencepiece::sentencepiece_to_json;
pub use stats::{EncodeStats, Segment};
pub use tiktoken::{RankFile, TiktokenEncoding, is_rank_file, tiktoken_to_json};
pub use tokenizer::Tokenizer;
pub use verify::Verified;
