//! The tokenizer: applies the engine, the added BOS and EOS tokens, and the policy for special tokens in texts.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use crate::bos_eos;
use crate::cuts::AddedTokenMatcher;
use crate::engine::Engine;
use crate::engine::bytes::Bytes;
use crate::engine::reference::Reference;
use crate::error::EncodeError;
use crate::id_set::IdSet;
use crate::ids::IdSink;
use crate::info::{SpecialToken, TokenizerInfo};
use crate::options::{SpecialInText, TokenizerOptions};
use crate::outline::Outline;
use crate::scratch::Scratch;
use crate::segments::{SegmentEncoder, cut_between_words};
use crate::sentencepiece::SentencePiece;
use crate::special::SpecialTokenFinder;
use crate::stats::EncodeStats;

/// Encodes texts to token ids.
///
/// A tokenizer is immutable and shared by all threads; each thread has its own [`Scratch`]. See the [crate
/// documentation](crate) for an example.
pub struct Tokenizer {
    pub(crate) options: TokenizerOptions,
    pub(crate) warnings: Vec<String>,
    pub(crate) json: Option<Arc<Vec<u8>>>,
    pub(crate) info: TokenizerInfo,
    /// Ids added before and after every text.
    pub(crate) prefix: Vec<u32>,
    pub(crate) suffix: Vec<u32>,
    pub(crate) finder: SpecialTokenFinder,
    /// Control tokens that a text must not produce.
    pub(crate) hidden: IdSet,
    pub(crate) reference: ReferenceEngine,
    pub(crate) fast: Option<Box<dyn Engine>>,
    /// The added tokens, for [`encode_marked`](Self::encode_marked).
    pub(crate) matcher: OnceLock<Result<AddedTokenMatcher, EncodeError>>,
    /// Distinguishes the scratches of this tokenizer from those of others.
    pub(crate) serial: u64,
}

/// The engine whose ids are correct by definition.
pub(crate) enum ReferenceEngine {
    Bytes(Bytes),
    Reference(Arc<Reference>),
    SentencePiece(Box<SentencePiece>),
}

impl ReferenceEngine {
    pub(crate) fn engine(&self) -> &dyn Engine {
        match self {
            ReferenceEngine::Bytes(bytes) => bytes,
            ReferenceEngine::Reference(reference) => &**reference,
            ReferenceEngine::SentencePiece(model) => &**model,
        }
    }
}

impl Tokenizer {
    /// Returns the exact bytes of the `tokenizer.json`; `None` for [`Tokenizer::bytes`].
    pub fn json(&self) -> Option<&[u8]> {
        self.json.as_deref().map(Vec::as_slice)
    }

    /// Returns the description of the model, the engine, BOS and EOS.
    pub fn info(&self) -> &TokenizerInfo {
        &self.info
    }

    /// Returns the options that the tokenizer was created with, and the tokens that configuration files named.
    pub fn options(&self) -> &TokenizerOptions {
        &self.options
    }

    /// Returns descriptions of contradictions between a configuration file and the tokenizer about an added token.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns the number of ids added around every text.
    pub fn added_per_document(&self) -> usize {
        self.prefix.len() + self.suffix.len()
    }

    /// Returns the tokens that the post-processor puts before a text, whatever the [`options`](Self::options) are.
    pub fn start_tokens(&self) -> Vec<SpecialToken> {
        let outline = self.json.as_deref().and_then(|json| serde_json::from_slice::<Outline>(json).ok());
        let id_of = |token: &str| match &self.reference {
            ReferenceEngine::Reference(reference) => reference.parts().token_to_id(token),
            ReferenceEngine::Bytes(_) | ReferenceEngine::SentencePiece(_) => None,
        };
        outline.map(|outline| bos_eos::start_tokens(&outline.post_processor, id_of)).unwrap_or_default()
    }

    /// Returns the strings of the added tokens of a `tokenizer.json`, in the order of their ids. Empty for
    /// [`Tokenizer::bytes`] and for an embedded SentencePiece model.
    pub fn added_tokens(&self) -> Vec<String> {
        let ReferenceEngine::Reference(reference) = &self.reference else { return Vec::new() };
        let tokens: BTreeMap<_, _> =
            reference.parts().get_added_vocabulary().get_added_tokens_decoder().iter().collect();
        tokens.into_values().map(|token| token.content.clone()).collect()
    }

    /// Returns the id of the token with this string; `None` if there is none, or if it is not known.
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        let is_named = |special: &&SpecialToken| special.token == token;
        match &self.reference {
            ReferenceEngine::Reference(reference) => reference.parts().token_to_id(token),
            ReferenceEngine::Bytes(_) | ReferenceEngine::SentencePiece(_) => {
                let SpecialToken { id, .. } = self.info.bos.iter().chain(&self.info.eos).find(is_named)?;
                Some(*id)
            }
        }
    }

    /// Creates the buffers and the word cache for one thread. Reuse them for all texts.
    pub fn scratch(&self) -> Scratch {
        Scratch::new(self.serial)
    }

    /// Appends the ids of `text` to `out`, with the tokens that [`options`](Self::options) add around it.
    ///
    /// # Errors
    ///
    /// If the text cannot be encoded; `out` is then unchanged. See [`EncodeError`] for the reasons.
    pub fn encode(
        &self,
        text: &str,
        scratch: &mut Scratch,
        out: &mut impl IdSink,
    ) -> Result<EncodeStats, EncodeError> {
        self.encode_by(self.fast.as_deref(), text, scratch, out)
    }

    /// Like [`encode`](Self::encode), but uses the slow reference.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`encode`](Self::encode).
    pub fn encode_reference(
        &self,
        text: &str,
        scratch: &mut Scratch,
        out: &mut impl IdSink,
    ) -> Result<EncodeStats, EncodeError> {
        self.encode_by(None, text, scratch, out)
    }

    fn encode_by(
        &self,
        fast: Option<&dyn Engine>,
        text: &str,
        scratch: &mut Scratch,
        out: &mut impl IdSink,
    ) -> Result<EncodeStats, EncodeError> {
        scratch.claim(self.serial);
        let special_in_text = self.special_in_text(text)?;
        let encoder = SegmentEncoder { prefix: &self.prefix, suffix: &self.suffix, hidden: &self.hidden };
        let before = out.count();
        let mut encode = |engine| {
            let encoded = encoder.encode(engine, text, scratch, out);
            if !matches!(encoded, Ok(Some(_))) {
                out.truncate(before);
            }
            encoded
        };
        let (ends, by_reference) = match fast.map(&mut encode).transpose()?.flatten() {
            Some(ends) => (ends, false),
            None => (encode(self.reference.engine())?.unwrap_or_default(), true),
        };
        Ok(EncodeStats {
            special_in_text,
            doubled_bos: self.prefix.last().is_some_and(|id| ends.first == Some(*id)),
            doubled_eos: self.suffix.first().is_some_and(|id| ends.last == Some(*id)),
            by_reference,
            segments: ends.segments,
        })
    }

    /// Returns whether `text` is short enough for the reference.
    pub(crate) fn is_for_reference(&self, text: &str) -> bool {
        match &self.reference {
            ReferenceEngine::Bytes(_) | ReferenceEngine::SentencePiece(_) => true,
            ReferenceEngine::Reference(reference) => reference.admits(text),
        }
    }

    /// Counts the special-token strings in the text, or returns an error if the policy forbids them.
    fn special_in_text(&self, text: &str) -> Result<u64, EncodeError> {
        let (count, first) = match (&self.finder, &self.reference) {
            (SpecialTokenFinder::Strings(automaton, tokens), _) => {
                let mut count = 0;
                let mut first = None;
                for found in automaton.find_iter(text) {
                    count += 1;
                    first = first.or_else(|| tokens.get(found.pattern().as_usize()).map(|t| t.token.clone()));
                    if self.options.special_in_text == SpecialInText::Error {
                        break;
                    }
                }
                (count, first)
            }
            (SpecialTokenFinder::Normalized { cores: Some(cores), .. }, _) if !cores.is_match(text) => {
                (0, None)
            }
            (
                SpecialTokenFinder::Normalized { finder, within_words, .. },
                ReferenceEngine::Reference(reference),
            ) => {
                let (mut count, mut first) = (0, None);
                // With a fast engine, the normalizer treats the two sides of a division between words independently.
                let divides = *within_words && self.fast.is_some();
                for part in cut_between_words(text, divides) {
                    let found = match finder {
                        Some(finder) => finder.find(reference.max_bytes(), part)?,
                        None => None,
                    };
                    let found = found.map_or_else(|| reference.special_tokens_in(part), Ok)?;
                    count += found.len() as u64;
                    first = first.or(found.first().copied());
                }
                (count, first.and_then(|id| reference.parts().id_to_token(id)))
            }
            _ => (0, None),
        };
        if count > 0 && self.options.special_in_text == SpecialInText::Error {
            return Err(EncodeError::SpecialToken(first.unwrap_or_default()));
        }
        Ok(count)
    }
}
