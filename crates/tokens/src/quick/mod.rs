//! Quick loading of BPE tokenizers: the reference's own model is built only if a text needs it.
//!
//! For a large vocabulary, the reference spends most of its loading time on its maps of tokens and merges. The
//! [proof](crate::engine::proof) encodes a fixed list of texts, and few tokens and merges can occur in them. So it runs
//! against the reference with an [`excerpt`](self::excerpt) of its model that gives the same ids for these texts.
//!
//! A file that is unusual in any way is loaded completely; quick loading never reports an error itself.

mod excerpt;
mod skeleton;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use ahash::AHashSet;

use self::excerpt::Excerpt;
use self::skeleton::{Skeleton, skeleton};
use crate::bpe_file::{BpeFile, ParsedBpe};
use crate::charsmap;
use crate::engine::proof;
use crate::engine::reference::LoadComplete;
use crate::growth::Growth;
use crate::id_set::IdSet;
use crate::info::SpecialToken;
use crate::load::{Loaded, load};
use crate::outline::Outline;
use crate::panics::caught;
use crate::patterns;
use crate::special::{hide_controls, special_tokens};

/// Short texts that are encoded to determine the tokens of the post-processor.
pub(crate) const PROBES: [&str; 5] = ["a", "the", "0", "\u{2581}", " "];

/// Maximum size in bytes of a text of the proof after normalization; the longest one has a few kilobytes. The words of
/// all texts are in memory at the same time, so a tokenizer whose normalizer makes them much longer is loaded
/// completely, which encodes no text unless an engine supports the normalizer.
const MAX_NORMALIZED_BYTES: u64 = 256 << 10;

/// A quickly loaded tokenizer.
pub(crate) struct Partial {
    /// The reference with an excerpt of its model. It gives the right ids for the texts of the proof and for
    /// [`PROBES`].
    pub(crate) loaded: Loaded,
    /// Number of distinct tokens, including added tokens.
    pub(crate) vocab_size: u64,
    /// The control tokens that are hidden, as by [`hide_controls`].
    pub(crate) hidden: IdSet,
}

impl Partial {
    /// Loads the tokenizer in `file`, whose model has an `excerpt`. Returns `None` if it must be loaded completely.
    pub(crate) fn load(file: &BpeFile<'_>, excerpt: &Excerpt<'_>, parse_special: bool) -> Option<Self> {
        // The parsers of some parts can panic.
        caught(|| Self::try_load(file, excerpt, parse_special)).ok().flatten()
    }

    fn try_load(file: &BpeFile<'_>, excerpt: &Excerpt<'_>, parse_special: bool) -> Option<Self> {
        let vocab = &file.model.vocab;
        let outline = Outline {
            model: None,
            normalizer: file.value("normalizer"),
            pre_tokenizer: file.value("pre_tokenizer"),
            post_processor: file.value("post_processor"),
            decoder: file.value("decoder"),
        };
        charsmap::check_sizes(&outline.normalizer).ok()?;
        patterns::check(&[&outline.normalizer, &outline.pre_tokenizer, &outline.decoder]).ok()?;
        let mut skeleton = skeleton(file)?;
        let words = words(&mut skeleton, parse_special)?;

        let added = skeleton.get_added_vocabulary();
        let only_added = added.get_vocab().keys().filter(|token| vocab.number(token).is_none()).count();
        let special = special_tokens(added);
        let hidden = match file.model.settings.ignore_merges {
            Some(true) if !parse_special => hidden(file, &special),
            _ => AHashSet::new(),
        };
        let model = excerpt.build(&words, &hidden)?;
        let hidden: Vec<u32> = hidden.into_iter().map(|number| vocab.id(number)).collect();
        let mut tokenizer: tokenizers::Tokenizer = skeleton.into();
        tokenizer.with_model(model);
        Some(Self {
            loaded: Loaded { tokenizer, outline },
            vocab_size: u64::from(vocab.len()) + only_added as u64,
            hidden: IdSet::new(&hidden),
        })
    }
}

/// Returns the model from which an excerpt is made. Returns `None` if the file must be loaded completely.
pub(crate) fn excerpt<'a>(file: &'a BpeFile<'_>) -> Option<Excerpt<'a>> {
    if file.is_plain && file.model.vocab.len() > 0 { Excerpt::new(&file.model) } else { None }
}

/// Returns a function that loads the reference in `json` with its whole model.
pub(crate) fn complete(json: Arc<Vec<u8>>, parse_special: bool) -> LoadComplete {
    Box::new(move || {
        let mut loaded = load(&json)?;
        if !parse_special {
            hide_controls(&mut loaded, &json)?;
        }
        Ok(loaded.tokenizer)
    })
}

/// Returns all words that the model gets for the texts of the proof and [`PROBES`]. Returns `None` if the normalizer makes
/// a text too long.
fn words(skeleton: &mut Skeleton, parse_special: bool) -> Option<Vec<String>> {
    let growth = Growth::new(skeleton.get_normalizer());
    let record = |skeleton: &Skeleton, text: &str| {
        let fits = growth.fits(text, skeleton.get_added_vocabulary(), MAX_NORMALIZED_BYTES);
        // On an error, the model gets no words of this text.
        fits.then(|| _ = skeleton.encode_fast(text, false))
    };
    for probe in PROBES {
        record(skeleton, probe)?;
    }
    skeleton.set_encode_special_tokens(!parse_special);
    for text in proof::texts(skeleton.get_added_vocabulary().get_added_tokens_decoder()) {
        record(skeleton, &text)?;
    }
    skeleton.set_encode_special_tokens(false);
    skeleton.get_model().take_words()
}

/// Returns the numbers of the control tokens that the lookup of whole words would produce, as
/// [`hide_controls`] selects them.
fn hidden(file: &BpeFile<'_>, special: &[SpecialToken]) -> AHashSet<u32> {
    let ParsedBpe { vocab, merges, settings, .. } = &file.model;
    let number = |token: &SpecialToken| {
        let is_hidden =
            token.token.chars().nth(1).is_some() && settings.unk_token.as_ref() != Some(&token.token);
        vocab.number(&token.token).filter(|number| is_hidden && vocab.id(*number) == token.id)
    };
    let mut hidden: AHashSet<u32> = special.iter().filter_map(number).collect();
    if !hidden.is_empty() {
        for merge in merges {
            for number in [merge.left, merge.right, merge.result] {
                hidden.remove(&number);
            }
        }
    }
    hidden
}
