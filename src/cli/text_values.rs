//! Values of the options of `dsconvert text`, with their help.

use crate::packing::Packing;
use crate::transform::text::{EngineChoice, Normalize, SpecialInText, Verify};

/// Values of `--invalid-utf8`.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(super) enum Utf8Arg {
    /// Reject them
    Reject,
    /// Replace invalid bytes with U+FFFD
    Replace,
}

/// Values of `--normalize`.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(super) enum NormalizeArg {
    /// No normalization
    None,
    /// NFC, canonical composition
    Nfc,
    /// NFKC, compatibility composition
    Nfkc,
}

impl From<NormalizeArg> for Normalize {
    fn from(arg: NormalizeArg) -> Self {
        match arg {
            NormalizeArg::None => Self::None,
            NormalizeArg::Nfc => Self::Nfc,
            NormalizeArg::Nfkc => Self::Nfkc,
        }
    }
}

/// Values of `--dedup`.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(super) enum DedupArg {
    /// Compare the exact text
    Exact,
}

/// Values of `--packing`.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(super) enum PackingArg {
    /// Concatenate documents; a document may continue in the next row
    Concat,
    /// Best-fit packing, which never cuts a document that fits in a row
    BestFit,
}

impl From<PackingArg> for Packing {
    fn from(arg: PackingArg) -> Self {
        match arg {
            PackingArg::Concat => Self::Concat,
            PackingArg::BestFit => Self::BestFit,
        }
    }
}

/// Values of `--special-in-text`.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(super) enum SpecialArg {
    /// Treat them as ordinary text: documents cannot inject control tokens
    Text,
    /// Parse them as the special token
    Parse,
    /// Reject the document
    Error,
}

impl From<SpecialArg> for SpecialInText {
    fn from(arg: SpecialArg) -> Self {
        match arg {
            SpecialArg::Text => Self::Text,
            SpecialArg::Parse => Self::Parse,
            SpecialArg::Error => Self::Error,
        }
    }
}

/// Values of `--engine`.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(super) enum EngineArg {
    /// A fast engine if it is verified to produce the same ids, otherwise the reference engine
    Auto,
    /// The `tokenizers` crate
    Reference,
    /// A fast engine; it is an error if there is none
    Fast,
}

impl From<EngineArg> for EngineChoice {
    fn from(arg: EngineArg) -> Self {
        match arg {
            EngineArg::Auto => Self::Auto,
            EngineArg::Reference => Self::Reference,
            EngineArg::Fast => Self::Fast,
        }
    }
}

/// Values of `--verify-ids`.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(super) enum VerifyArg {
    /// One document in a thousand, chosen by the hash of its key
    Sample,
    /// Every document
    All,
}

impl From<VerifyArg> for Verify {
    fn from(arg: VerifyArg) -> Self {
        match arg {
            VerifyArg::Sample => Self::Sample,
            VerifyArg::All => Self::All,
        }
    }
}
