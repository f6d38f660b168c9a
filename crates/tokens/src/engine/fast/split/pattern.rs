//! The supported split patterns, as written in a `tokenizer.json`.

use crate::engine::fast::classes::ClassTable;

/// The pattern of GPT-2, built into the `ByteLevel` pre-tokenizer.
pub(crate) const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// The pattern of GPT-2, as written in some files.
pub(crate) const GPT2_SHORT: &str =
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// The pattern of `cl100k_base` and Llama 3.
pub(crate) const CL100K: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The pattern of Qwen 2: single digits.
pub(crate) const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The pattern of Qwen 3.5: marks are part of words.
pub(crate) const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The pattern of `o200k_base` (GPT-4o, gpt-oss, Llama 4).
pub(crate) const O200K: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The pattern of Tekken (Mistral NeMo, Apertus).
pub(crate) const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The patterns of DeepSeek V3, applied one after the other.
pub(crate) const DEEPSEEK: [&str; 3] = [
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
];

/// A supported split pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Pattern {
    /// GPT-2.
    Gpt2,
    /// GPT-2 between digits, each of which is a separate word (StarCoder, SmolLM).
    Gpt2BetweenNumbers,
    /// `cl100k_base`, Llama 3: up to three digits.
    Cl100k,
    /// Qwen 2: one digit.
    Qwen2,
    /// `o200k_base`: up to three digits, contractions.
    O200k,
    /// Tekken: one digit, no contractions.
    Tekken,
    /// DeepSeek V3, [`DEEPSEEK`].
    DeepSeek,
    /// No split: each piece is one word.
    Whole,
}

impl Pattern {
    /// Returns the pattern written as `regex` and its class table, if it is supported.
    pub(in super::super) fn known(regex: &str) -> Option<(Self, ClassTable)> {
        match regex {
            GPT2 | GPT2_SHORT => Some((Pattern::Gpt2, ClassTable::Plain)),
            CL100K => Some((Pattern::Cl100k, ClassTable::Plain)),
            QWEN2 => Some((Pattern::Qwen2, ClassTable::Plain)),
            QWEN35 => Some((Pattern::Qwen2, ClassTable::MarksAreLetters)),
            O200K => Some((Pattern::O200k, ClassTable::Plain)),
            TEKKEN => Some((Pattern::Tekken, ClassTable::Plain)),
            _ => None,
        }
    }
}
