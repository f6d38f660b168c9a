//! The reference: the `tokenizers` crate, whose ids are correct by definition.
//!
//! Its errors, and panics due to a broken `tokenizer.json`, become an [`EncodeError`] of the text. Its regular
//! expressions are run by Oniguruma, as in the published package, and panic if a match needs more than ten million
//! backtracking steps.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use std::ops::Range;

use tokenizers::tokenizer::normalizer::Range as NormalizedRange;
use tokenizers::{
    AddedVocabulary, Model as _, ModelWrapper, NormalizedString, Normalizer as _, OffsetReferential,
    OffsetType, PreTokenizedString, PreTokenizer as _, Token,
};

use super::{Engine, Outcome};
use crate::cuts::{AddedTokenMatcher, Content, Cut};
use crate::error::{EncodeError, LoadError};
use crate::growth::Growth;
use crate::info::EngineInfo;
use crate::marked::MarkedIds;
use crate::panics::{caught, guarded};
use crate::scratch::Scratch;

/// Version of the reference, pinned in `Cargo.toml` and checked by a test.
pub const REFERENCE_VERSION: &str = "0.23.2";

/// Maximum size in bytes of a text that several threads may encode at the same time.
const SHARED_BYTES: usize = 256 << 10;

/// A loaded tokenizer that does not truncate, pad or add special tokens.
pub(crate) struct Reference {
    /// The tokenizer. Its model is complete if `complete` is `None`.
    tokenizer: tokenizers::Tokenizer,
    complete: Option<Complete>,
    /// The same added tokens, but with special tokens matched, to find them in normalized text.
    added: AddedVocabulary,
    growth: Growth,
    max_bytes: u64,
    /// Held while a long text is encoded, because two at once would need too much memory.
    long_text: Mutex<()>,
}

/// Loads the complete tokenizer.
pub(crate) type LoadComplete = Box<dyn Fn() -> Result<tokenizers::Tokenizer, LoadError> + Send + Sync>;

/// The complete tokenizer, loaded when a text needs it.
struct Complete {
    load: LoadComplete,
    parse_special: bool,
    tokenizer: OnceLock<Result<tokenizers::Tokenizer, EncodeError>>,
}

impl Complete {
    fn get(&self) -> Result<&tokenizers::Tokenizer, EncodeError> {
        let load = || match caught(&self.load) {
            Ok(Ok(mut tokenizer)) => {
                tokenizer.set_encode_special_tokens(!self.parse_special);
                Ok(tokenizer)
            }
            Ok(Err(error)) => Err(EncodeError::Unsupported(error.to_string())),
            Err(panic) => Err(EncodeError::Panicked(panic)),
        };
        self.tokenizer.get_or_init(load).as_ref().map_err(Clone::clone)
    }
}

impl Reference {
    /// Creates the reference. `parse_special`: whether the strings of special tokens in a text are encoded as those
    /// tokens. `max_bytes`: the maximum size of a text, before and after normalization.
    pub(crate) fn new(mut tokenizer: tokenizers::Tokenizer, parse_special: bool, max_bytes: u64) -> Self {
        let mut added = tokenizer.get_added_vocabulary().clone();
        added.set_encode_special_tokens(false);
        tokenizer.set_encode_special_tokens(!parse_special);
        let growth = Growth::new(tokenizer.get_normalizer());
        Self { tokenizer, complete: None, added, growth, max_bytes, long_text: Mutex::default() }
    }

    /// Like [`new`](Self::new), for a `tokenizer` whose model is sufficient only for the [proof](super::proof). `load`
    /// loads the complete tokenizer, when a text needs it.
    pub(crate) fn partial(
        tokenizer: tokenizers::Tokenizer,
        parse_special: bool,
        max_bytes: u64,
        load: LoadComplete,
    ) -> Self {
        let complete = Complete { load, parse_special, tokenizer: OnceLock::new() };
        Self { complete: Some(complete), ..Self::new(tokenizer, parse_special, max_bytes) }
    }

    /// Returns the loaded tokenizer, for all parts except its model, which may be partial.
    pub(crate) fn parts(&self) -> &tokenizers::Tokenizer {
        &self.tokenizer
    }

    /// Returns the model, unless it is partial.
    pub(crate) fn model(&self) -> Option<&ModelWrapper> {
        self.complete.is_none().then(|| self.tokenizer.get_model())
    }

    /// Returns whether the complete tokenizer has been loaded.
    #[cfg(test)]
    pub(crate) fn is_complete(&self) -> bool {
        self.complete.as_ref().is_none_or(|complete| complete.tokenizer.get().is_some())
    }

    /// Returns the maximum size of a text in bytes, before and after normalization.
    pub(crate) fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// Returns whether `text` is short enough to be encoded, before and after normalization.
    pub(crate) fn admits(&self, text: &str) -> bool {
        self.fits(text, self.max_bytes)
    }

    fn fits(&self, text: &str, max_bytes: u64) -> bool {
        // If measuring panics, encoding panics as well and reports it.
        guarded(|| Ok(self.growth.fits(text, self.tokenizer.get_added_vocabulary(), max_bytes)))
            .unwrap_or(true)
    }

    /// Checks that `text` is short enough. For a long text, returns a guard to hold while it is encoded.
    fn admit(&self, text: &str, max_bytes: u64) -> Result<Option<MutexGuard<'_, ()>>, EncodeError> {
        let guard = || self.long_text.lock().unwrap_or_else(PoisonError::into_inner);
        let guard = (text.len() > SHARED_BYTES).then(guard);
        if self.fits(text, max_bytes) { Ok(guard) } else { Err(EncodeError::too_large(text, max_bytes)) }
    }

    /// Appends the ids of `text`, which has at most `max_bytes` bytes before and after normalization.
    pub(crate) fn encode_within(
        &self,
        max_bytes: u64,
        text: &str,
        out: &mut Vec<u32>,
    ) -> Result<(), EncodeError> {
        let _alone = self.admit(text, max_bytes)?;
        let tokenizer = self.complete.as_ref().map_or(Ok(&self.tokenizer), Complete::get)?;
        append_ids(tokenizer, text, out)
    }

    /// Like [`encode_within`](Self::encode_within), but never loads the complete tokenizer. Only for the texts of the
    /// [proof](super::proof).
    pub(crate) fn encode_for_proof(
        &self,
        max_bytes: u64,
        text: &str,
        out: &mut Vec<u32>,
    ) -> Result<(), EncodeError> {
        let _alone = self.admit(text, max_bytes)?;
        append_ids(&self.tokenizer, text, out)
    }

    /// Appends the ids of `text`, and their ranges, with `base` added. `cuts` are the added tokens that were found in it;
    /// `matcher` finds others in the normalized text. The steps are those of the reference, which itself cannot treat
    /// special tokens by their position.
    pub(crate) fn encode_cut(
        &self,
        text: &str,
        base: usize,
        (matcher, cuts): (Option<&AddedTokenMatcher>, &[Cut]),
        content: Content<'_>,
        out: &mut MarkedIds,
    ) -> Result<(), EncodeError> {
        let _alone = self.admit(text, self.max_bytes)?;
        let tokenizer = self.complete.as_ref().map_or(Ok(&self.tokenizer), Complete::get)?;
        let mut in_content = Vec::new();
        let encoding = guarded(|| {
            let mut parts = PreTokenizedString::from(text);
            parts.split(|_, part| at_cuts(&part, cuts))?;
            parts.split(|_, mut part| {
                if let Some(normalizer) = tokenizer.get_normalizer() {
                    // The reference ignores the error.
                    let _ = normalizer.normalize(&mut part);
                }
                let cuts =
                    matcher.map(|matcher| matcher.normalized_cuts(&part, base, content, &mut in_content));
                at_cuts(&part, &cuts.unwrap_or_default())
            })?;
            if let Some(pre_tokenizer) = tokenizer.get_pre_tokenizer() {
                pre_tokenizer.pre_tokenize(&mut parts)?;
            }
            tokenizer.get_model().tokenize_in_pretokenized(&mut parts, None)?;
            // The post-processor counts characters, as for the published package.
            let unit = if text.is_ascii() { OffsetType::Byte } else { OffsetType::Char };
            tokenizer.post_process(parts.into_encoding(None, 0, unit)?, None, false)
        })?;
        let starts: Vec<usize> = match text.is_ascii() {
            true => Vec::new(),
            false => text.char_indices().map(|(at, _)| at).collect(),
        };
        let byte = |at: usize| match text.is_ascii() {
            true => at.min(text.len()),
            false => starts.get(at).copied().unwrap_or(text.len()),
        };
        let place = |at: usize| (base + byte(at)) as u32;
        out.ids.extend_from_slice(encoding.get_ids());
        out.ranges.extend(encoding.get_offsets().iter().map(|(start, end)| place(*start)..place(*end)));
        out.special_in_content.extend(in_content.iter().map(|found| found.start as u32..found.end as u32));
        Ok(())
    }

    /// Returns the special tokens that the reference would parse in the text.
    pub(crate) fn special_tokens_in(&self, text: &str) -> Result<Vec<u32>, EncodeError> {
        let _alone = self.admit(text, self.max_bytes)?;
        let normalizer = self.tokenizer.get_normalizer();
        let splits = guarded(|| Ok(self.added.extract_and_normalize(normalizer, text)))?;
        let decoder = self.added.get_added_tokens_decoder();
        Ok(splits
            .get_splits(OffsetReferential::Original, OffsetType::None)
            .into_iter()
            .filter_map(|(_, _, tokens)| tokens.as_ref().and_then(|t| t.first()).map(|t| t.id))
            .filter(|id| decoder.get(id).is_some_and(|t| t.special))
            .collect())
    }
}

/// Splits a part of a text at added tokens.
fn at_cuts(
    part: &NormalizedString,
    cuts: &[Cut],
) -> tokenizers::Result<Vec<(NormalizedString, Option<Vec<Token>>)>> {
    let slice = |range: Range<usize>| {
        part.slice(NormalizedRange::Normalized(range)).ok_or("a text was cut inside a character")
    };
    let (mut parts, mut start) = (Vec::with_capacity(2 * cuts.len() + 1), 0);
    for cut in cuts {
        if start < cut.start {
            parts.push((slice(start..cut.start)?, None));
        }
        let token = slice(cut.start..cut.end)?;
        let (value, len) = (token.get().to_owned(), token.len());
        parts.push((token, Some(vec![Token::new(cut.id, value, (0, len))])));
        start = cut.end;
    }
    if start != part.len() {
        parts.push((slice(start..part.len())?, None));
    }
    Ok(parts)
}

fn append_ids(tokenizer: &tokenizers::Tokenizer, text: &str, out: &mut Vec<u32>) -> Result<(), EncodeError> {
    let encoding = guarded(|| tokenizer.encode_fast(text, false))?;
    out.extend_from_slice(encoding.get_ids());
    Ok(())
}

impl Engine for Reference {
    fn info(&self) -> EngineInfo {
        EngineInfo { name: "tokenizers".to_owned(), version: REFERENCE_VERSION.to_owned() }
    }

    fn encode(&self, text: &str, _: &mut Scratch, out: &mut Vec<u32>) -> Result<Outcome, EncodeError> {
        self.encode_within(self.max_bytes, text, out).map(|()| Outcome::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_pinned_one() {
        let manifest = include_str!("../../Cargo.toml");
        assert!(manifest.contains(&format!("\"={REFERENCE_VERSION}\"")));
    }
}
