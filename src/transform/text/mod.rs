//! Token ids: a document goes in as `&str`, ids come out.
//!
//! A [`Tokenizer`] is shared by all threads; each thread has its own [`Scratch`]. What the ids are is decided by the
//! *reference*, the `tokenizers` crate at one pinned version: no truncation, no padding, no special tokens unless asked
//! for. A faster engine is used where it is proved to give the same ids. `docs/explanation/tokenizer-engines.md` explains
//! the proof, `docs/reference/text.md` the options.

mod build;
mod ends;
mod engine;
mod growth;
mod info;
mod load;
mod normalize;
mod options;
mod pieces;
mod special;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod unigram_scores;
mod verify;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use engine::Engine;
pub use engine::EngineInfo;
use engine::bytes::Bytes;
use engine::fast::Buffers;
use engine::reference::Reference;
pub use info::{EncodeStats, TokenizerInfo};
pub use normalize::Normalize;
pub use options::{
    DEFAULT_MAX_REFERENCE_BYTES, EngineChoice, SpecialInText, TokenizerOptions, VERIFY_PER_MILLION, Verify,
};
pub use pieces::{IdSink, Piece};
pub use special::SpecialToken;
use special::{Finder, IdSet};
pub use verify::Verified;

use crate::sample::{Reject, RejectCode};
use crate::schema::IdWidth;

/// Name of the tokenizer that needs no file.
pub const BYTES: &str = "bytes";

/// Turns documents into token ids.
pub struct Tokenizer {
    options: TokenizerOptions,
    json: Option<Vec<u8>>,
    info: TokenizerInfo,
    /// Ids before and after every document.
    prefix: Vec<u32>,
    suffix: Vec<u32>,
    finder: Finder,
    /// Control tokens that text must not become.
    hidden: IdSet,
    reference: Base,
    fast: Option<Box<dyn Engine>>,
    /// Tells the scratch of this tokenizer from that of another.
    serial: u64,
}

/// What decides the ids.
enum Base {
    Bytes(Bytes),
    Reference(Arc<Reference>),
}

impl Base {
    fn engine(&self) -> &dyn Engine {
        match self {
            Base::Bytes(bytes) => bytes,
            Base::Reference(reference) => &**reference,
        }
    }
}

/// Buffers and caches of one thread. Made by [`Tokenizer::scratch`]; using one with another tokenizer empties it.
pub struct Scratch {
    serial: u64,
    buffers: Option<Box<Buffers>>,
    /// Ids as they are made.
    ids: Vec<u32>,
    /// How many other threads have nothing to do.
    idle: Arc<AtomicUsize>,
}

impl Scratch {
    fn new(serial: u64) -> Self {
        Self { serial, buffers: None, ids: Vec::new(), idle: Arc::default() }
    }

    /// Has a long document encoded by as many more threads as `idle` says have nothing to do.
    #[must_use]
    pub fn with_idle(mut self, idle: Arc<AtomicUsize>) -> Self {
        self.idle = idle;
        self
    }

    /// Replaces buffers that a panic may have left half changed.
    pub fn renew(&mut self) {
        *self = Self::new(self.serial).with_idle(Arc::clone(&self.idle));
    }

    /// Made when an engine first wants them.
    fn buffers(&mut self) -> &mut Buffers {
        self.buffers.get_or_insert_with(|| Box::new(Buffers::new()))
    }
}

impl Tokenizer {
    /// The exact bytes of the `tokenizer.json`, to be kept beside the ids; `None` for `bytes`.
    pub fn json(&self) -> Option<&[u8]> {
        self.json.as_deref()
    }

    /// The narrowest width that holds every id this tokenizer can produce: by its largest id, not by its vocabulary
    /// size.
    pub fn id_width(&self) -> IdWidth {
        IdWidth::for_max_id(self.info.max_id)
    }

    /// What the manifest says of it.
    pub fn info(&self) -> &TokenizerInfo {
        &self.info
    }

    /// The options it was made with.
    pub fn options(&self) -> &TokenizerOptions {
        &self.options
    }

    /// How many ids are added around every document.
    pub fn added_per_document(&self) -> usize {
        self.prefix.len() + self.suffix.len()
    }

    /// Buffers and caches for one thread.
    pub fn scratch(&self) -> Scratch {
        Scratch::new(self.serial)
    }

    /// Appends the ids of `text` to `out`, with what is to be added around it.
    ///
    /// # Errors
    ///
    /// A reject, and then `out` is as it was: [`SpecialToken`](RejectCode::SpecialToken) by policy,
    /// [`Unsupported`](RejectCode::Unsupported) when the tokenizer has no way to encode this text (an unknown word and no
    /// unknown token).
    pub fn encode(
        &self,
        text: &str,
        scratch: &mut Scratch,
        out: &mut impl IdSink,
    ) -> Result<EncodeStats, Reject> {
        self.encode_by(self.fast.as_deref(), text, scratch, out)
    }

    /// The same, by the reference.
    ///
    /// # Errors
    ///
    /// As [`encode`](Self::encode).
    pub fn encode_reference(
        &self,
        text: &str,
        scratch: &mut Scratch,
        out: &mut impl IdSink,
    ) -> Result<EncodeStats, Reject> {
        self.encode_by(None, text, scratch, out)
    }

    fn encode_by(
        &self,
        fast: Option<&dyn Engine>,
        text: &str,
        scratch: &mut Scratch,
        out: &mut impl IdSink,
    ) -> Result<EncodeStats, Reject> {
        if scratch.serial != self.serial {
            *scratch = self.scratch().with_idle(Arc::clone(&scratch.idle));
        }
        let special_in_text = self.special_in_text(text)?;
        let before = out.count();
        let mut encode = |engine| {
            let encoded = self.encode_whole_or_pieces(engine, text, scratch, out);
            if !matches!(encoded, Ok(Some(_))) {
                out.cut_back(before);
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
            pieces: ends.pieces,
        })
    }

    /// Whether `text` is so short that the reference may encode it.
    fn is_for_reference(&self, text: &str) -> bool {
        match &self.reference {
            Base::Bytes(_) => true,
            Base::Reference(reference) => reference.admits(text),
        }
    }

    /// How many strings of special tokens stand in the text, or the reject that the policy asks for.
    fn special_in_text(&self, text: &str) -> Result<u64, Reject> {
        let (count, first) = match (&self.finder, &self.reference) {
            (Finder::Strings(automaton, tokens), _) => {
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
            (Finder::AskReference { cores: Some(cores), .. }, _) if !cores.is_match(text) => (0, None),
            (Finder::AskReference { within_words, .. }, Base::Reference(reference)) => {
                let (mut count, mut first) = (0, None);
                // Behind the normalizers that fast engines know, the text between two words has no effect on them.
                let divides = *within_words && self.fast.is_some();
                for piece in pieces::between_words(text, divides) {
                    let found = reference.special_tokens_in(piece)?;
                    count += found.len() as u64;
                    first = first.or(found.first().copied());
                }
                (count, first.and_then(|id| reference.tokenizer().id_to_token(id)))
            }
            _ => (0, None),
        };
        if count > 0 && self.options.special_in_text == SpecialInText::Error {
            let name = first.unwrap_or_default();
            return Err(Reject::new(
                RejectCode::SpecialToken,
                format!("the text contains the special token {name:?}"),
            ));
        }
        Ok(count)
    }
}
