//! What is exported: the records of splits, and the tokenizer that made their token ids.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::reader::{Dataset, Mixture, MixtureEpoch, RecordSource, Split};
use crate::report::Vocabulary;
use crate::schema::{ASSISTANT_MASKS, CU_SEQLENS, PIECE_STARTS, Schema};
use crate::tokenizer_files::stored_tokenizer;

/// The records of one split.
#[derive(Debug, Clone)]
pub struct ExportSplit {
    /// Name, from which those of the files follow.
    pub name: String,
    /// The records.
    pub source: Arc<dyn RecordSource>,
    /// Stored bytes of the records, for the default number of files and the progress.
    pub bytes: u64,
}

/// What is exported.
#[derive(Debug)]
pub struct ExportInput {
    /// The splits, all with the same schema and at least one record each.
    pub splits: Vec<ExportSplit>,
    /// Identifier of the records.
    pub fingerprint: String,
    /// The tokenizer that made the token ids.
    pub tokenizer: TokenizerFacts,
    /// Number of documents that are divided among several packed rows.
    pub cut_documents: u64,
    /// The datasets of a mixture, their weights, and what determines the order of the records.
    pub mixture: Option<Value>,
    /// The selected fields, if not all are exported.
    pub fields: Option<Vec<String>>,
}

/// What is known about the tokenizer that made the token ids.
#[derive(Debug, Default)]
pub struct TokenizerFacts {
    /// Number of tokens, with added ones.
    pub(crate) vocab_size: Option<u64>,
    /// Largest id, with added tokens.
    pub(crate) max_id: Option<u32>,
    /// The EOS token: id and string.
    pub(crate) eos: Option<(u32, String)>,
    /// The EOS token of another dataset of the same tokenizer, if it differs.
    pub(crate) other_eos: Option<String>,
    /// Whether the EOS token follows each document already.
    pub(crate) adds_eos: bool,
    /// The token that pads batches, if the tokenizer names one.
    pub(crate) pad_id: Option<u32>,
    vocabulary: Option<Vocabulary>,
}

impl ExportInput {
    /// Describes the splits of `dataset` with the names `splits`, or all splits that have records, with the fields that
    /// [`ExportInput::select`] keeps.
    ///
    /// # Errors
    ///
    /// If there is no such split or field, a split has no records, or the stored tokenizer cannot be read.
    pub fn of(dataset: &Dataset, splits: &[String], fields: Option<&[String]>) -> Result<Self> {
        let selected: Vec<Split> = match splits {
            [] => dataset.splits().filter(|split| !split.is_empty()).collect(),
            names => names.iter().map(|name| dataset.split(name)).collect::<Result<_>>()?,
        };
        let empty = selected.iter().find(|split| split.is_empty());
        if empty.is_some() || selected.is_empty() {
            let what = match empty {
                Some(split) => format!("split {:?} has no records", split.name()),
                None => "the dataset has no records".to_owned(),
            };
            return Err(Error::usage(what).at_path(dataset.path()).help("name a split with records"));
        }
        let of_split = |split: Split| {
            Ok::<_, Error>(ExportSplit {
                name: split.name().to_owned(),
                bytes: split.info().map_or(0, |info| info.bytes),
                source: Self::select(&split, fields)?.into(),
            })
        };
        Ok(Self {
            splits: selected.into_iter().map(of_split).collect::<Result<_>>()?,
            fingerprint: dataset.fingerprint(),
            tokenizer: TokenizerFacts::of(dataset)?,
            cut_documents: cut_documents(dataset),
            mixture: None,
            fields: fields.map(<[String]>::to_vec),
        })
    }

    /// Returns `split` with the fields that every record has, those on which the meaning of its tokens depends, and those with
    /// the names `fields`; without any, all fields.
    ///
    /// # Errors
    ///
    /// If there is no such field.
    pub fn select(split: &Split, fields: Option<&[String]>) -> Result<Split> {
        let Some(fields) = fields else { return Ok(split.clone()) };
        let schema = split.schema();
        let of_tokens = [ASSISTANT_MASKS, CU_SEQLENS, PIECE_STARTS];
        let always: Vec<&str> = schema.layout().built_in.iter().copied().chain(of_tokens).collect();
        let stored = schema.fields.iter().map(|field| field.name.as_str());
        let kept = stored.filter(|name| always.contains(name) || fields.iter().any(|field| field == name));
        let unknown = fields.iter().map(String::as_str).filter(|name| schema.index_of(name).is_none());
        let names: Vec<&str> = kept.chain(unknown).collect();
        split.select(&names).map_err(|error| error.of_option("fields"))
    }

    /// Describes one epoch of `mixture`, whose sources are `splits`, in the order in which the records are drawn with `seed`.
    ///
    /// # Errors
    ///
    /// If the mixture does not draw records one by one, the stored tokenizers cannot be read, or rows were packed in
    /// different ways.
    pub fn of_mixture(mixture: &Mixture, splits: &[(Dataset, Split)], seed: u64) -> Result<Self> {
        let records = mixture.records(seed)?;
        let mut tokenizer: Option<TokenizerFacts> = None;
        let (mut bytes, mut described) = (0u64, Vec::new());
        let weights = &mixture.options().weights;
        for (((dataset, split), drawn), (_, weight)) in splits.iter().zip(records.counts()).zip(weights) {
            let own = TokenizerFacts::of(dataset)?;
            tokenizer = Some(match tokenizer {
                Some(known)
                    if known.adds_eos != own.adds_eos && records.properties().packed_length.is_some() =>
                {
                    return Err(Error::usage("some rows were packed with `add_eos`, and others without")
                        .at_path(dataset.path())
                        .help("mix rows that were packed alike, or convert without `pack`"));
                }
                Some(known) => known.with(own),
                None => own,
            });
            let stored = split.info().map_or(0, |info| info.bytes);
            bytes += (u128::from(stored) * u128::from(drawn) / u128::from(split.len().max(1))) as u64;
            described.push(json!({
                "fingerprint": dataset.manifest().fingerprint,
                "split": split.name(),
                "weight": weight,
                "records": drawn,
            }));
        }
        let options = mixture.options();
        let (epoch_tokens, epoch_steps) = match options.epoch {
            Some(MixtureEpoch::Tokens(tokens)) => (Some(tokens), None),
            Some(MixtureEpoch::Steps(steps)) => (None, Some(steps)),
            None => (None, None),
        };
        let fingerprint = records.fingerprint();
        let name = splits.first().map_or("", |(_, split)| split.name()).to_owned();
        Ok(Self {
            splits: vec![ExportSplit { name, source: Arc::new(records), bytes }],
            fingerprint,
            tokenizer: tokenizer.unwrap_or_default(),
            cut_documents: splits.iter().map(|(dataset, _)| cut_documents(dataset)).sum(),
            mixture: Some(json!({
                "datasets": described,
                "unit": options.unit,
                "exhausted": options.exhausted,
                "epoch_tokens": epoch_tokens,
                "epoch_steps": epoch_steps,
                "seed": seed,
            })),
            fields: None,
        })
    }

    /// Returns the schema of the records.
    pub(super) fn schema(&self) -> Result<&Schema> {
        let first = self.splits.first().map(|split| split.source.schema());
        first.ok_or_else(|| Error::usage("there is no split to export"))
    }

    /// Returns whether records are rows of several documents.
    pub(super) fn is_packed(&self) -> Result<bool> {
        let has_ends = self.schema()?.index_of(CU_SEQLENS).is_some();
        Ok(has_ends && self.splits.iter().any(|split| split.source.properties().packed_length.is_some()))
    }
}

/// Returns the number of documents of `dataset` that are divided among several packed rows.
fn cut_documents(dataset: &Dataset) -> u64 {
    dataset.manifest().notes.get("packed_documents_cut").copied().unwrap_or(0)
}

impl TokenizerFacts {
    /// Joins what two datasets record about one tokenizer.
    fn with(self, other: Self) -> Self {
        let differs = |eos: &&(u32, String)| self.eos.as_ref().is_some_and(|own| own != *eos);
        let other_eos = other.eos.as_ref().filter(differs).map(|(_, name)| name.clone());
        Self {
            vocab_size: self.vocab_size.max(other.vocab_size),
            max_id: self.max_id.max(other.max_id),
            other_eos: self.other_eos.or(other_eos),
            eos: self.eos.or(other.eos),
            pad_id: self.pad_id.or(other.pad_id),
            vocabulary: self.vocabulary.or(other.vocabulary),
            adds_eos: self.adds_eos,
        }
    }

    fn of(dataset: &Dataset) -> Result<Self> {
        let manifest = dataset.manifest();
        let Some(tokenizer) = &manifest.tokenizer else { return Ok(Self::default()) };
        let small = |value: &Value| u32::try_from(value.as_u64()?).ok();
        let eos = tokenizer
            .get("eos")
            .and_then(|eos| Some((small(eos.get("id")?)?, eos.get("token")?.as_str()?.to_owned())));
        Ok(Self {
            vocab_size: tokenizer.get("vocab_size").and_then(Value::as_u64),
            max_id: tokenizer.get("max_id").and_then(small),
            eos,
            other_eos: None,
            adds_eos: manifest.options.pointer("/tokenization/add_eos").and_then(Value::as_bool)
                == Some(true),
            pad_id: stored_tokenizer(dataset)?.and_then(|json| pad_id(&json)),
            vocabulary: Vocabulary::of(dataset, None)?.ok(),
        })
    }

    /// Returns the id of the token with the string `token`, or with that id.
    pub(crate) fn id_of(&self, token: &str) -> Option<u32> {
        let by_name = self.vocabulary.as_ref().and_then(|vocabulary| vocabulary.id_of(token));
        let by_eos = || self.eos.as_ref().filter(|(_, name)| name == token).map(|(id, _)| *id);
        by_name.or_else(by_eos).or_else(|| token.parse().ok())
    }

    /// Returns the number of ids that may occur, if it is known: the largest id and one.
    pub(crate) fn cardinality(&self) -> Option<u64> {
        let by_id = self.max_id.map(|id| u64::from(id) + 1);
        by_id.into_iter().chain(self.vocab_size).max()
    }
}

/// Returns the id that a `tokenizer.json` pads with, or the id of a special token with a name such as `<pad>`.
fn pad_id(json: &[u8]) -> Option<u32> {
    #[derive(Deserialize)]
    struct File {
        #[serde(default)]
        padding: Option<Padding>,
        #[serde(default)]
        added_tokens: Vec<Added>,
    }
    #[derive(Deserialize)]
    struct Padding {
        pad_id: u32,
    }
    #[derive(Deserialize)]
    struct Added {
        id: u32,
        content: String,
        #[serde(default)]
        special: bool,
    }
    let file: File = serde_json::from_slice(json).ok()?;
    let named = |token: &&Added| {
        let letters: String = token.content.chars().filter(char::is_ascii_alphabetic).collect();
        token.special && letters.eq_ignore_ascii_case("pad")
    };
    let by_name = || file.added_tokens.iter().find(named).map(|token| token.id);
    file.padding.map(|padding| padding.pad_id).or_else(by_name)
}
