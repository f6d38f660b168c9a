//! Construction of a [`Tokenizer`] for bytes and for SentencePiece models.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::bos_eos::{self, ConfigTokens, DeterminedEnds, FoundToken, SequenceEnds};
use crate::engine::Engine;
use crate::engine::bytes::{BOS_ID, Bytes, EOS_ID};
use crate::error::{LoadError, SequenceEnd};
use crate::id_set::IdSet;
use crate::info::{SpecialToken, TokenizerInfo};
use crate::options::{SpecialInText, TokenizerOptions};
use crate::sentencepiece::SentencePiece;
use crate::special::SpecialTokenFinder;
use crate::tokenizer::{ReferenceEngine, Tokenizer};

/// Model type of [`Tokenizer::bytes`] in [`TokenizerInfo::model`].
pub const BYTES: &str = "bytes";

type Result<T> = std::result::Result<T, LoadError>;

/// Returns the serial number for the next tokenizer.
pub(crate) fn next_serial() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Tokenizer {
    /// Recreates a tokenizer from its stored [`json`](Self::json): a `tokenizer.json`, or `None` for
    /// [`Tokenizer::bytes`].
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Tokenizer::from_json`] and [`Tokenizer::bytes`].
    pub fn stored(json: Option<Vec<u8>>, options: TokenizerOptions) -> Result<Self> {
        match json {
            Some(json) => Self::from_json(json, options),
            None => Self::bytes(options),
        }
    }

    /// Creates a tokenizer whose ids are the bytes of the UTF-8 text, 0 to 255. With
    /// [`add_bos`](TokenizerOptions::add_bos) and [`add_eos`](TokenizerOptions::add_eos), it adds 256 before and 257
    /// after every document.
    ///
    /// # Errors
    ///
    /// If an option needs a `tokenizer.json`: a named BOS or EOS token, or special tokens.
    pub fn bytes(options: TokenizerOptions) -> Result<Self> {
        if options.bos_token.is_some() || options.eos_token.is_some() || options.add_special_tokens {
            return Err(LoadError::BytesHasNoSpecialTokens);
        }
        let engine = Bytes.info();
        let token = |id, token: &str| Some(SpecialToken { id, token: token.to_owned() });
        let info = TokenizerInfo {
            model: BYTES.to_owned(),
            vocab_size: 258,
            max_id: EOS_ID,
            sha256: None,
            reference: engine.clone(),
            engine,
            engine_note: None,
            bos: token(BOS_ID, "<bos>"),
            eos: token(EOS_ID, "<eos>"),
        };
        Ok(Self {
            prefix: if options.add_bos { vec![BOS_ID] } else { Vec::new() },
            suffix: if options.add_eos { vec![EOS_ID] } else { Vec::new() },
            options,
            warnings: Vec::new(),
            json: None,
            info,
            finder: SpecialTokenFinder::Nothing,
            hidden: IdSet::default(),
            reference: ReferenceEngine::Bytes(Bytes),
            fast: None,
            matcher: OnceLock::new(),
            serial: next_serial(),
        })
    }
}

impl Tokenizer {
    /// Creates the tokenizer for the SentencePiece `model` embedded in `json`.
    pub(crate) fn from_embedded(
        json: Vec<u8>,
        mut model: SentencePiece,
        mut options: TokenizerOptions,
        config: &ConfigTokens,
    ) -> Result<Self> {
        if options.special_in_text == SpecialInText::Parse {
            return Err(LoadError::ParsedControls);
        }
        if options.add_special_tokens {
            return Err(LoadError::UnclearPostProcessor);
        }
        let special = model.special_tokens();
        let id_of = |token: &str| model.id(token);
        let in_file = |end| match model.sequence_token(end) {
            Some(token) => FoundToken::Token(token),
            None => bos_eos::find(end, &Value::Null, &special, id_of),
        };
        let ends = DeterminedEnds::new(&options, config, &special, &id_of, in_file)?;
        let prefix = ends.added(SequenceEnd::Bos, &options, &special)?.into_iter().collect();
        let suffix = ends.added(SequenceEnd::Eos, &options, &special)?.into_iter().collect();
        let SequenceEnds { bos, eos, warnings } = ends.store_in(&mut options);
        let info = TokenizerInfo {
            model: model.model_type().to_owned(),
            vocab_size: u64::from(model.vocab_size()),
            max_id: model.vocab_size().saturating_sub(1),
            sha256: Some(sha256(&json)),
            reference: model.info(),
            engine: model.info(),
            engine_note: None,
            bos,
            eos,
        };
        model.max_bytes = options.max_reference_bytes();
        Ok(Self {
            finder: SpecialTokenFinder::of_strings(&special)?,
            reference: ReferenceEngine::SentencePiece(Box::new(model)),
            options,
            warnings,
            json: Some(json.into()),
            info,
            prefix,
            suffix,
            hidden: IdSet::default(),
            fast: None,
            matcher: OnceLock::new(),
            serial: next_serial(),
        })
    }
}

/// Returns the SHA-256 of `bytes` in hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}
