//! The tables of the BPE engines, built from the `tokenizer.json` while the reference loads the same file.

use serde_json::Value;

use super::bpe::Bpe;
use super::char_bpe::CharBpe;
use super::classes::{ClassTable, Classes};
use super::lengths::TokenLengths;
use super::word_bpe::WordBpe;
use crate::bpe_file::BpeFile;
use crate::id_set::IdSet;
use crate::outline::type_of;

/// The tables for the BPE model of a `tokenizer.json`. For a large vocabulary, building them is a large part of the
/// loading time. They do not depend on the reference, so both are loaded in parallel.
pub(crate) struct BpeTables {
    pub(super) model: FastBpe,
    /// The largest id of the vocabulary.
    pub(crate) max_id: u32,
}

/// A BPE model of the fast engines, by its initial symbols.
pub(super) enum FastBpe {
    /// Bytes.
    Bytes(Box<Bpe>, TokenLengths),
    /// Characters, with byte fallback for those without a token.
    Chars(Box<CharBpe>, TokenLengths),
    /// The characters of one word, some of which may have no token.
    Words(Box<WordBpe>),
}

impl BpeTables {
    /// Builds the tables for the BPE model in `file`. The error states why the engines do not support it.
    pub(crate) fn new(file: &BpeFile<'_>) -> Result<Self, String> {
        let model = &file.model;
        let settings = &model.settings;
        let filled = |part: &Option<String>| part.as_ref().is_some_and(|s| !s.is_empty());
        if filled(&settings.continuing_subword_prefix) {
            return Err("the model has a continuing_subword_prefix".to_owned());
        }
        let fast = if has_byte_level(&file.value("pre_tokenizer")) {
            // Builds the class table, which is needed in any case.
            Classes::get(ClassTable::Plain);
            FastBpe::Bytes(Bpe::new(model)?.into(), TokenLengths::of_bytes(model))
        } else if settings.ignore_merges == Some(true) {
            return Err("the model has ignore_merges".to_owned());
        } else if settings.byte_fallback != Some(true) {
            FastBpe::Words(WordBpe::new(model)?.into())
        } else if filled(&settings.end_of_word_suffix) {
            return Err("the model has both byte_fallback and an end_of_word_suffix".to_owned());
        } else {
            FastBpe::Chars(CharBpe::new(model)?.into(), TokenLengths::of_chars(model))
        };
        Ok(Self { model: fast, max_id: model.vocab.max_id() })
    }

    /// Removes the ids in `hidden`, which no merge produces, from the lookup of whole words.
    pub(crate) fn without(mut self, hidden: &IdSet) -> Self {
        if let FastBpe::Bytes(bpe, _) = &mut self.model
            && !hidden.is_empty()
        {
            bpe.hide(|id| hidden.contains(id));
        }
        self
    }
}

/// Returns whether a pre-tokenizer maps bytes to printable characters.
fn has_byte_level(pre_tokenizer: &Value) -> bool {
    let parts = pre_tokenizer.get("pretokenizers").and_then(Value::as_array);
    type_of(pre_tokenizer) == Some("ByteLevel") || parts.is_some_and(|parts| parts.iter().any(has_byte_level))
}
