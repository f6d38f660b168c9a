//! The reference without its model: in its place, a model that contains only the added tokens and records the words it
//! gets.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use ahash::AHashSet;
use serde::{Deserialize, Serialize};
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::{
    DecoderWrapper, Model, ModelWrapper, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper, Token,
    TokenizerImpl,
};

use crate::bpe_file::BpeFile;

/// The reference with [`KnownTokens`] as its model.
pub(super) type Skeleton =
    TokenizerImpl<KnownTokens, NormalizerWrapper, PreTokenizerWrapper, PostProcessorWrapper, DecoderWrapper>;

/// Stands in for the model while the reference loads the other parts. It contains what they look up: the number of
/// tokens, which determines the ids of added tokens, and the ids of added tokens that are also in the vocabulary.
#[derive(Serialize, Deserialize)]
pub(super) struct KnownTokens {
    vocab_size: usize,
    ids: HashMap<String, u32>,
    #[serde(skip)]
    words: Mutex<AHashSet<String>>,
}

impl KnownTokens {
    /// Returns the words recorded so far; `None` if a panic interrupted the recording.
    pub(super) fn take_words(&self) -> Option<Vec<String>> {
        let mut words = self.words.lock().ok()?;
        Some(words.drain().collect())
    }
}

impl From<KnownTokens> for ModelWrapper {
    fn from(_: KnownTokens) -> Self {
        BPE::default().into()
    }
}

impl Model for KnownTokens {
    type Trainer = BpeTrainer;

    fn tokenize(&self, word: &str) -> tokenizers::Result<Vec<Token>> {
        let mut words = self.words.lock().map_err(|_| "a panic interrupted the recording")?;
        if !words.contains(word) {
            words.insert(word.to_owned());
        }
        Ok(Vec::new())
    }

    fn token_to_id(&self, token: &str) -> Option<u32> {
        self.ids.get(token).copied()
    }

    fn id_to_token(&self, _: u32) -> Option<String> {
        None
    }

    fn get_vocab(&self) -> HashMap<String, u32> {
        self.ids.clone()
    }

    fn get_vocab_size(&self) -> usize {
        self.vocab_size
    }

    fn save(&self, _: &Path, _: Option<&str>) -> tokenizers::Result<Vec<PathBuf>> {
        Ok(Vec::new())
    }

    fn get_trainer(&self) -> BpeTrainer {
        BpeTrainer::default()
    }
}

/// An entry of `added_tokens`.
#[derive(Deserialize)]
struct AddedContent {
    content: String,
}

/// Loads all parts of the tokenizer except for the model. Returns `None` if a part cannot be loaded.
pub(super) fn skeleton(file: &BpeFile<'_>) -> Option<Skeleton> {
    let vocab = &file.model.vocab;
    let added: Vec<AddedContent> = match file.parts.iter().any(|(name, _)| name == "added_tokens") {
        true => file.part("added_tokens")?,
        false => Vec::new(),
    };
    let id = |AddedContent { content }| vocab.get(&content).map(|id| (content, id));
    let known = KnownTokens {
        vocab_size: vocab.len() as usize,
        ids: added.into_iter().filter_map(id).collect(),
        words: Mutex::default(),
    };
    let mut json = String::from("{");
    for (name, part) in &file.parts {
        json += &serde_json::to_string(name).ok()?;
        json.push(':');
        json += part.get();
        json.push(',');
    }
    json += &format!("\"model\":{}}}", serde_json::to_string(&known).ok()?);
    let mut skeleton: Skeleton = serde_json::from_str(&json).ok()?;
    skeleton.with_padding(None);
    skeleton.with_truncation(None).ok()?;
    Some(skeleton)
}
