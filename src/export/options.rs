//! Options of an export.

use std::path::PathBuf;

use crate::error::Error;
use crate::options::{Choice, word_choice};

word_choice! {
    /// Format of an export.
    ExportFormat, text => unknown("format", text, Self::WORDS);
    /// Flat files of token ids.
    Tokens = "tokens",
    /// Megatron's `.bin` and `.idx`.
    Megatron = "megatron",
    /// Megatron-Bridge's packed sequences with loss masks, in Parquet.
    MegatronBridge = "megatron-bridge",
    /// Tar files of samples.
    Webdataset = "webdataset",
    /// Parquet files and a card, for `datasets`.
    Hf = "hf",
}

word_choice! {
    /// Layout of flat files of token ids.
    #[derive(Default)]
    Layout, text => unknown("layout", text, Self::WORDS);
    /// nanoGPT: ids only, the end token after each document.
    #[default]
    Nanogpt = "nanogpt",
    /// llm.c: a header, the end token before each document.
    Llmc = "llmc",
    /// OLMo: ids only, the end token after each document, and a list of the documents in a `.csv.gz`.
    Olmo = "olmo",
}

word_choice! {
    /// Columns of token ids in the format `hf`.
    #[derive(Default)]
    Columns, text => unknown("columns", text, Self::WORDS);
    /// All fields of the dataset, as they are stored.
    #[default]
    Stored = "stored",
    /// `input_ids`, `attention_mask` and `labels`: what axolotl, LLaMA-Factory, TRL and Unsloth read as already tokenized.
    Labels = "labels",
    /// `input_ids`, `attention_mask` and `loss_mask`, as SkyRL reads them.
    LossMask = "loss-mask",
    /// `chosen_ids` and `rejected_ids` of pairs, each with its prompt, and `margin`: what the reward trainer of TRL reads.
    Reward = "reward",
    /// All fields of prompts, with messages and other JSON as lists and structs: what GRPO in TRL, and verl, read.
    Nested = "nested",
}

fn unknown(what: &str, text: &str, words: &[&str]) -> Error {
    Error::usage(format!("unknown {what} {text:?}")).help(format!("expected one of {}", words.join(", ")))
}

/// The token that separates documents.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum EndOfDocument {
    /// The EOS token of the tokenizer that is recorded in the dataset.
    #[default]
    Auto,
    /// Documents are written as they are.
    None,
    /// The token with this string or id.
    Token(String),
}

impl From<&str> for EndOfDocument {
    fn from(text: &str) -> Self {
        match text {
            "auto" => Self::Auto,
            "none" => Self::None,
            token => Self::Token(token.to_owned()),
        }
    }
}

/// Options of an export.
#[derive(Debug, Clone)]
pub struct ExportOptions {
    /// Format.
    pub format: ExportFormat,
    /// Layout of the format `tokens`; `None` for its default.
    pub layout: Option<Layout>,
    /// Columns of the format `hf`; `None`: [`Columns::Nested`] of prompts, otherwise [`Columns::Stored`].
    pub columns: Option<Columns>,
    /// Token that separates documents, for formats of token ids; `None` for [`EndOfDocument::Auto`].
    pub eod: Option<EndOfDocument>,
    /// Number of files, or of groups of files, of each split; `None` for the default of the format.
    pub parts: Option<u64>,
    /// Output directory or URL.
    pub out: PathBuf,
    /// Directory for files waiting to be uploaded.
    pub scratch: Option<PathBuf>,
    /// Number of threads.
    pub threads: usize,
    /// Whether an interrupted export is finished.
    pub resume: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_parses_and_displays_as_itself() {
        fn check<T: Choice>() {
            for word in T::WORDS {
                assert_eq!(word.parse::<T>().unwrap().to_string(), *word);
            }
            assert!("no such word".parse::<T>().is_err());
        }
        check::<ExportFormat>();
        check::<Layout>();
        check::<Columns>();
    }
}
