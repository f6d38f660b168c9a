//! BPE tables, built from the `tokenizer.json` while the reference loads the same file.

use serde_json::Value;

use super::bpe::Bpe;
use super::char_bpe::CharBpe;
use super::classes::{ClassTable, Classes};
use super::word_bpe::WordBpe;
use crate::bpe_file::BpeFile;
use crate::id_set::IdSet;
use crate::outline::type_of;

/// The BPE tables of a `tokenizer.json`. For a large vocabulary, building them is much of the work of loading. They do
/// not depend on the reference, so both are loaded in parallel.
pub(crate) struct Draft {
    pub(super) tables: Tables,
    max_id: u32,
}

/// The tables for merging bytes or characters.
pub(super) enum Tables {
    Bytes(Box<Bpe>),
    /// Every character has tokens.
    Chars(Box<CharBpe>),
    /// A character may have no token.
    Words(Box<WordBpe>),
}

impl Draft {
    /// Builds the draft for the BPE model in `file`. The error states why there is none.
    pub(crate) fn new(file: &BpeFile<'_>) -> Result<Self, String> {
        let model = &file.model;
        let settings = &model.settings;
        let filled = |part: &Option<String>| part.as_ref().is_some_and(|s| !s.is_empty());
        if filled(&settings.continuing_subword_prefix) {
            return Err("the model marks the parts of words".to_owned());
        }
        let tables = if has_byte_level(&file.value("pre_tokenizer")) {
            // Builds the class table, which is needed in any case.
            Classes::get(ClassTable::Plain);
            Tables::Bytes(Bpe::new(model)?.into())
        } else if settings.ignore_merges == Some(true) {
            return Err("a text that is a token is not merged".to_owned());
        } else if settings.byte_fallback != Some(true) {
            Tables::Words(WordBpe::new(model)?.into())
        } else if filled(&settings.end_of_word_suffix) {
            return Err("the model marks the ends of words".to_owned());
        } else {
            Tables::Chars(CharBpe::new(model)?.into())
        };
        Ok(Self { tables, max_id: model.vocab.max_id() })
    }

    /// Removes the ids in `hidden`, which no merge produces, from the draft.
    pub(crate) fn without(mut self, hidden: &IdSet) -> Self {
        if let Tables::Bytes(bpe) = &mut self.tables
            && !hidden.is_empty()
        {
            bpe.hide(|id| hidden.contains(id));
        }
        self
    }

    /// Returns the largest id of the vocabulary.
    pub(crate) fn max_id(&self) -> u32 {
        self.max_id
    }
}

/// Returns whether a pre-tokenizer maps bytes to printable characters.
fn has_byte_level(pre_tokenizer: &Value) -> bool {
    let parts = pre_tokenizer.get("pretokenizers").and_then(Value::as_array);
    type_of(pre_tokenizer) == Some("ByteLevel") || parts.is_some_and(|parts| parts.iter().any(has_byte_level))
}
