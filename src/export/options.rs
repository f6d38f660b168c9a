//! Options of an export.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::options::Choice;

/// Format of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportFormat {
    /// Flat files of token ids.
    Tokens,
    /// Megatron's `.bin` and `.idx`.
    Megatron,
    /// Megatron-Bridge's packed sequences with loss masks, in Parquet.
    MegatronBridge,
    /// Tar files of samples.
    Webdataset,
    /// Parquet files and a card, for `datasets`.
    Hf,
}

/// Layout of flat files of token ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Layout {
    /// nanoGPT: ids only, the end token after each document.
    #[default]
    Nanogpt,
    /// llm.c: a header, the end token before each document.
    Llmc,
    /// OLMo: ids only, the end token after each document, and a list of the documents in a `.csv.gz`.
    Olmo,
}

/// Implements the text form of an enum.
macro_rules! words {
    ($ty:ty, $what:literal: $($variant:ident = $word:literal),+) => {
        impl Choice for $ty {
            const WORDS: &'static [&'static str] = &[$($word),+];
        }

        impl fmt::Display for $ty {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $word),+ })
            }
        }

        impl FromStr for $ty {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self> {
                match text {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(Error::usage(format!("unknown {} {text:?}", $what))
                        .help(format!("expected one of {}", Self::WORDS.join(", ")))),
                }
            }
        }
    };
}

words!(ExportFormat, "format": Tokens = "tokens", Megatron = "megatron", MegatronBridge = "megatron-bridge",
    Webdataset = "webdataset", Hf = "hf");
words!(Layout, "layout": Nanogpt = "nanogpt", Llmc = "llmc", Olmo = "olmo");

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
    }
}
