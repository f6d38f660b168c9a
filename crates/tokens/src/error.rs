//! Errors of loading a tokenizer and of encoding a text.

use std::error::Error;

use crate::info::SpecialToken;
use crate::outline::MODEL_TYPES;

/// Maximum number of special tokens listed in an error message.
const LISTED_TOKENS: usize = 20;

/// One end of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SequenceEnd {
    /// Beginning of sequence (BOS).
    Bos,
    /// End of sequence (EOS).
    Eos,
}

impl SequenceEnd {
    pub(crate) fn name(self) -> &'static str {
        match self {
            SequenceEnd::Bos => "BOS",
            SequenceEnd::Eos => "EOS",
        }
    }

    /// Returns the option that names the token.
    pub(crate) fn option(self) -> &'static str {
        match self {
            SequenceEnd::Bos => "`bos_token`",
            SequenceEnd::Eos => "`eos_token`",
        }
    }

    /// Returns the option that adds the token.
    pub(crate) fn adding_option(self) -> &'static str {
        match self {
            SequenceEnd::Bos => "`add_bos`",
            SequenceEnd::Eos => "`add_eos`",
        }
    }
}

/// Error of loading a tokenizer from a file with given options.
///
/// [`Display`](std::fmt::Display) shows the problem, [`source`](Error::source) returns the cause if a library reported
/// one, and [`help`](Self::help) returns a remedy. Messages name fields of
/// [`TokenizerOptions`](crate::TokenizerOptions) in backticks.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file, or a part of it, cannot be parsed or used.
    #[error("{problem}")]
    Malformed {
        /// Description of the problem.
        problem: &'static str,
        /// Error reported by the parser or the reference.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The parser of the reference panicked because parts of the file refer to missing parts. Contains the panic
    /// message.
    #[error("the tokenizer.json is inconsistent, so it cannot be loaded: {0}")]
    Inconsistent(String),
    /// The file has no model.
    #[error("the tokenizer.json has no \"model\"")]
    MissingModel,
    /// The model type is not in [`MODEL_TYPES`](crate::MODEL_TYPES). Contains the type as JSON.
    #[error("the model in the tokenizer.json has the unknown type {0}")]
    UnknownModelType(String),
    /// The model has no vocabulary.
    #[error("the model in the tokenizer.json has no \"vocab\"")]
    MissingVocabulary,
    /// The vocabulary has no tokens.
    #[error("the tokenizer.json has an empty vocabulary")]
    EmptyVocabulary,
    /// A regular expression has more than 256 groups, character classes and repeated quantifiers. Contains its start.
    #[error(
        "a regular expression of the tokenizer.json has more than 256 groups, character classes and repeated \
         quantifiers, and could overflow the stack: {0:?} …"
    )]
    NestedPattern(String),
    /// An added token with `normalized: true` has no characters left after normalization. The reference would find it
    /// everywhere, and panic or allocate memory without end.
    #[error(
        "the added token {0:?} is empty after normalization, and the reference cannot encode with such a token"
    )]
    EmptyAddedToken(String),
    /// [`bos_token`](crate::TokenizerOptions::bos_token) or [`eos_token`](crate::TokenizerOptions::eos_token) is not in
    /// the vocabulary.
    #[error("the tokenizer has no token {token:?}")]
    UnknownToken {
        /// The given name.
        token: String,
        /// The special tokens of the tokenizer.
        special_tokens: Vec<SpecialToken>,
    },
    /// A configuration file beside the tokenizer names a BOS or EOS token that is not in the vocabulary.
    #[error("{file} names the {} token {token:?}, which the tokenizer does not have", end.name())]
    UnknownConfigToken {
        /// BOS or EOS.
        end: SequenceEnd,
        /// Name of the file.
        file: String,
        /// The token.
        token: String,
        /// The special tokens of the tokenizer.
        special_tokens: Vec<SpecialToken>,
    },
    /// BOS or EOS is to be added, but the tokenizer has no token for it.
    #[error("the tokenizer does not define its {} token", end.name())]
    NoSequenceToken {
        /// BOS or EOS.
        end: SequenceEnd,
        /// The special tokens of the tokenizer.
        special_tokens: Vec<SpecialToken>,
    },
    /// BOS or EOS is to be added, but several tokens match.
    #[error("several tokens could be the {} token: {}", end.name(), candidates.join(", "))]
    AmbiguousSequenceToken {
        /// BOS or EOS.
        end: SequenceEnd,
        /// The matching tokens.
        candidates: Vec<String>,
    },
    /// `add_special_tokens` is set together with `add_bos` or `add_eos`.
    #[error("`add_special_tokens` cannot be combined with `add_bos` or `add_eos`")]
    ConflictingOptions,
    /// [`Tokenizer::bytes`](crate::Tokenizer::bytes) does not support an option.
    #[error("the tokenizer \"bytes\" has no special tokens, and its BOS and EOS tokens cannot be chosen")]
    BytesHasNoSpecialTokens,
    /// `add_special_tokens` is set, but the tokens of the post-processor depend on the text.
    #[error("the post-processor of the tokenizer does not add fixed tokens around a sequence")]
    UnclearPostProcessor,
    /// A SentencePiece model is damaged or of an unsupported type. Contains the reason.
    #[error("the SentencePiece model cannot be used: {0}")]
    UnusableModel(String),
    /// A tiktoken file is damaged, or no `tokenizer.json` can produce exactly its ids. Contains the reason.
    #[error("the tiktoken file cannot be used: {0}")]
    UnusableRanks(String),
    /// [`SpecialInText::Parse`](crate::SpecialInText::Parse) is set for a SentencePiece model, which never parses
    /// control symbols in a text.
    #[error("`special_in_text` cannot be parse: SentencePiece models never parse control symbols in a text")]
    ParsedControls,
    /// [`EngineChoice::Fast`](crate::EngineChoice::Fast) is set, but the tokenizer has no fast engine, or its engine
    /// failed the proof. Contains the reason.
    #[error("the fast engine cannot be used with this tokenizer: {0}")]
    NoFastEngine(String),
}

impl LoadError {
    pub(crate) fn malformed(problem: &'static str, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        LoadError::Malformed { problem, source: source.into() }
    }

    /// Returns a remedy, if there is one.
    pub fn help(&self) -> Option<String> {
        Some(match self {
            LoadError::MissingModel => {
                "pass the tokenizer.json of a fast tokenizer, not tokenizer_config.json or vocab.json"
                    .to_owned()
            }
            LoadError::EmptyAddedToken(_) => {
                "set \"normalized\": false for this token in \"added_tokens\" of the tokenizer.json, or remove it"
                    .to_owned()
            }
            LoadError::UnknownModelType(_) => format!("known types: {}", MODEL_TYPES.join(", ")),
            LoadError::UnknownToken { special_tokens, .. } => listed(special_tokens),
            LoadError::NoSequenceToken { end, special_tokens } => {
                format!("name it with {}; {}", end.option(), listed(special_tokens))
            }
            LoadError::UnknownConfigToken { end, special_tokens, .. } => {
                format!("name another token with {}; {}", end.option(), listed(special_tokens))
            }
            LoadError::AmbiguousSequenceToken { end, .. } => {
                format!("name one of them with {}", end.option())
            }
            LoadError::BytesHasNoSpecialTokens => "use `add_bos` (id 256) and `add_eos` (id 257)".to_owned(),
            LoadError::UnclearPostProcessor => "use `add_bos` and `add_eos`".to_owned(),
            LoadError::NoFastEngine(_) => "use the engine `Auto` or `Reference`".to_owned(),
            LoadError::ParsedControls => "use text or error, or convert the model as transformers does: python -c \"from \
                transformers import AutoTokenizer; AutoTokenizer.from_pretrained('FOLDER').save_pretrained('OUT')\""
                .to_owned(),
            LoadError::Malformed { .. }
            | LoadError::UnusableModel(_)
            | LoadError::UnusableRanks(_)
            | LoadError::Inconsistent(_)
            | LoadError::MissingVocabulary
            | LoadError::NestedPattern(_)
            | LoadError::EmptyVocabulary
            | LoadError::ConflictingOptions => return None,
        })
    }
}

fn listed(special: &[SpecialToken]) -> String {
    if special.is_empty() {
        return "it has no special tokens".to_owned();
    }
    let names: Vec<&str> = special.iter().take(LISTED_TOKENS).map(|t| t.token.as_str()).collect();
    let more = if special.len() > LISTED_TOKENS { ", …" } else { "" };
    format!("its special tokens are {}{more}", names.join(" "))
}

/// Error of encoding a text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The text contains the string of a special token, and [`SpecialInText::Error`](crate::SpecialInText::Error) is
    /// set.
    #[error("the text contains the special token {0:?}")]
    SpecialToken(String),
    /// The text contains the internal name of a control token; see [`SpecialInText::Text`](crate::SpecialInText::Text).
    #[error("the text contains the internal name of a control token")]
    HiddenName,
    /// Only the reference can encode the text, but the text is longer than
    /// [`max_reference_bytes`](crate::TokenizerOptions::max_reference_bytes) before or after normalization.
    #[error("{}", too_large(*bytes, *limit))]
    TooLarge {
        /// Size of the text in bytes.
        bytes: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A word of the text has 4 GiB or more.
    #[error("the document has a word of more than 2^32 - 1 bytes")]
    WordTooLong,
    /// The reference returned an error, for example for a word that is not in the vocabulary of a tokenizer without an
    /// unknown token. Contains its message.
    #[error("the tokenizer cannot encode this text: {0}")]
    Unsupported(String),
    /// A regular expression of the tokenizer needs more steps or memory than Oniguruma allows for one match, 10,000,000
    /// backtracking steps. The published package panics on such a text. Contains the message of Oniguruma.
    #[error(
        "a regular expression of the tokenizer takes too many steps for this text ({0}), also in the Python package \
         `tokenizers`"
    )]
    PatternLimit(String),
    /// The [`IdSink`](crate::IdSink) refused the ids. Contains its reason.
    #[error("{0}")]
    Refused(String),
    /// An engine cut a text inside a character, which is a bug in this crate. Contains what was cut.
    #[error("{0} was cut inside a character")]
    SplitCharacter(&'static str),
    /// The reference or an engine panicked. Contains the panic message.
    #[error("encoding the text panicked: {0}")]
    Panicked(String),
}

impl EncodeError {
    pub(crate) fn too_large(text: &str, limit: u64) -> Self {
        EncodeError::TooLarge { bytes: text.len() as u64, limit }
    }
}

fn too_large(bytes: u64, limit: u64) -> String {
    let what = match bytes > limit {
        true => format!("only the reference tokenizer can encode a text of {bytes} bytes"),
        false => {
            format!("the normalizer of the tokenizer turns a text of {bytes} bytes into more than {limit}")
        }
    };
    format!(
        "{what}; `max_reference_bytes` is {limit}, because the reference needs 80 to 500 bytes of memory per byte"
    )
}
