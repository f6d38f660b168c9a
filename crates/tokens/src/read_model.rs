//! Deserialization of the reference's models in place of its own readers, which are slower or less exact.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use ahash::AHashMap;
use serde::Deserialize;
use serde::de::{Deserializer, Error};
use tokenizers::models::bpe::BPE;
use tokenizers::{Model, ModelWrapper, Token};

use crate::bpe_file::{BpeSettings, MergeStrings};

/// A model of the reference, with its own deserialization. It implements [`Model`] only so that the reference's file
/// reader accepts it.
pub(crate) struct ReadModel<M>(pub(crate) M);

impl<M: Into<ModelWrapper>> From<ReadModel<M>> for ModelWrapper {
    fn from(model: ReadModel<M>) -> Self {
        model.0.into()
    }
}

impl<M: Model> Model for ReadModel<M> {
    type Trainer = M::Trainer;

    fn tokenize(&self, sequence: &str) -> tokenizers::Result<Vec<Token>> {
        self.0.tokenize(sequence)
    }

    fn token_to_id(&self, token: &str) -> Option<u32> {
        self.0.token_to_id(token)
    }

    fn id_to_token(&self, id: u32) -> Option<String> {
        self.0.id_to_token(id)
    }

    fn get_vocab(&self) -> HashMap<String, u32> {
        self.0.get_vocab()
    }

    fn get_vocab_size(&self) -> usize {
        self.0.get_vocab_size()
    }

    fn save(&self, folder: &Path, prefix: Option<&str>) -> tokenizers::Result<Vec<PathBuf>> {
        self.0.save(folder, prefix)
    }

    fn get_trainer(&self) -> M::Trainer {
        self.0.get_trainer()
    }
}

/// A BPE model as stored in a `tokenizer.json`.
#[derive(Deserialize)]
struct StoredBpe<'a> {
    dropout: Option<f32>,
    unk_token: Option<String>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    fuse_unk: Option<bool>,
    byte_fallback: Option<bool>,
    ignore_merges: Option<bool>,
    vocab: AHashMap<String, u32>,
    #[serde(borrow)]
    merges: Vec<MergeStrings<'a>>,
}

/// The reference's reader copies every merge to determine whether merges are pairs or lines. For the 280,000 merges of
/// Llama 3, that is a fifth of the loading time. This reader refuses models that it does not support; the caller then
/// falls back to the reference's reader.
impl<'de> Deserialize<'de> for ReadModel<BPE> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let stored = StoredBpe::deserialize(deserializer)?;
        let pair = |merge| match merge {
            MergeStrings::Pair(left, right) => Ok((left.into_string(), right.into_string())),
            MergeStrings::Line(_) => Err(D::Error::custom("merges are lines")),
        };
        let merges = stored.merges.into_iter().map(pair).collect::<Result<Vec<_>, _>>()?;
        let settings = BpeSettings {
            dropout: stored.dropout,
            unk_token: stored.unk_token,
            continuing_subword_prefix: stored.continuing_subword_prefix,
            end_of_word_suffix: stored.end_of_word_suffix,
            fuse_unk: stored.fuse_unk,
            byte_fallback: stored.byte_fallback,
            ignore_merges: stored.ignore_merges,
        };
        settings.build(stored.vocab, merges).map(Self).map_err(D::Error::custom)
    }
}
