//! Special tokens: finding their strings in raw text, and preventing text from producing them.
//!
//! A document could produce a control token in three ways:
//!
//! 1. A string matches an added token. The reference does not match special added tokens while
//!    `encode_special_tokens` is set (the match still hides shorter added tokens inside it).
//! 2. A string matches a control token in the model's own vocabulary: `</s>` is an ordinary piece for a Unigram model,
//!    and `[CLS]` is a whole word for a WordLevel model. [`hide_controls`] renames such entries to a name that text
//!    does not contain.
//! 3. A document contains that name. [`IdSet`] detects the id afterwards, and the text is refused.
//!
//! Tokens that the merges of a BPE model produce from ordinary characters are allowed, because some tokenizers mark
//! plain words as special. So is the unknown token, which any text may produce.

use std::collections::{HashMap, HashSet};

use ahash::AHashMap;
use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::Value;
use tokenizers::models::bpe::BPE;
use tokenizers::models::unigram::Unigram;
use tokenizers::models::wordlevel::WordLevel;
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::{AddedVocabulary, Model, ModelWrapper};

use crate::engine::fast::normalized_finder::NormalizedFinder;
use crate::error::LoadError;
use crate::id_set::IdSet;
use crate::info::SpecialToken;
use crate::load::Loaded;
use crate::outline::{METASPACE, steps};

type Result<T> = std::result::Result<T, LoadError>;

/// Returns the special added tokens, sorted by id.
pub(crate) fn special_tokens(added: &AddedVocabulary) -> Vec<SpecialToken> {
    let mut tokens: Vec<_> = added
        .get_added_tokens_decoder()
        .iter()
        .filter(|(_, t)| added.is_special_token(&t.content))
        .map(|(&id, t)| SpecialToken { id, token: t.content.clone() })
        .collect();
    tokens.sort_unstable();
    tokens
}

/// Finds the strings of special tokens in raw text.
pub(crate) enum SpecialTokenFinder {
    /// There are no special tokens.
    Nothing,
    /// The strings can be searched for in the raw text.
    Strings(Box<AhoCorasick>, Vec<SpecialToken>),
    /// Some strings match only after normalization.
    Normalized {
        /// Every text with a token contains one of these strings. `None` if every text must be searched.
        cores: Option<Box<AhoCorasick>>,
        /// Searches most texts; the reference searches the others.
        finder: Option<Box<NormalizedFinder>>,
        /// Whether no token extends from one word to the next one.
        within_words: bool,
    },
}

impl SpecialTokenFinder {
    /// Creates a finder for the special tokens of a tokenizer.
    pub(crate) fn new(loaded: &Loaded) -> Result<Self> {
        let Loaded { tokenizer, outline } = loaded;
        let added = tokenizer.get_added_vocabulary();
        let tokens = special_tokens(added);
        if tokens.is_empty() {
            return Ok(SpecialTokenFinder::Nothing);
        }
        let normalized = |t: &SpecialToken| {
            added.get_added_tokens_decoder().get(&t.id).is_some_and(|added| added.normalized)
        };
        if tokenizer.get_normalizer().is_some() && tokens.iter().any(normalized) {
            let cores: Option<Vec<&str>> =
                tokens.iter().map(|token| unchanged_part(&token.token, &outline.normalizer)).collect();
            let cores = cores.map(|cores| automaton(&cores)).transpose()?.map(Box::new);
            let is_space = |c: char| c.is_whitespace() || c == METASPACE;
            let has_spaces = tokens.iter().any(|token| token.token.contains(is_space));
            let finder = NormalizedFinder::new(tokenizer).map(Box::new);
            let within_words = !has_spaces && finder.as_ref().is_some_and(|finder| finder.is_within_words());
            return Ok(SpecialTokenFinder::Normalized { cores, finder, within_words });
        }
        Self::of_strings(&tokens)
    }

    /// Creates a finder for tokens whose strings are searched for in the raw text.
    pub(crate) fn of_strings(tokens: &[SpecialToken]) -> Result<Self> {
        if tokens.is_empty() {
            return Ok(SpecialTokenFinder::Nothing);
        }
        let strings: Vec<&str> = tokens.iter().map(|token| token.token.as_str()).collect();
        Ok(SpecialTokenFinder::Strings(Box::new(automaton(&strings)?), tokens.to_vec()))
    }
}

fn automaton(strings: &[&str]) -> Result<AhoCorasick> {
    let built = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(strings);
    built.map_err(|e| LoadError::malformed("the special tokens of the tokenizer cannot be searched for", e))
}

/// Returns the longest part of `token` that the normalizer leaves unchanged. A text contains it if `token` is found in
/// the normalized text. `None` if there is no such part, or if the normalizer does anything other than replace spaces
/// and prepend strings, as those of SentencePiece models do.
fn unchanged_part<'t>(token: &'t str, normalizer: &Value) -> Option<&'t str> {
    let mut written = " ".to_owned();
    for part in steps(normalizer, "normalizers") {
        let string = |at: &str| part.pointer(at).and_then(Value::as_str);
        match string("/type")? {
            "Prepend" => written.push_str(string("/prepend")?),
            "Replace" if string("/pattern/String")? == " " => written.push_str(string("/content")?),
            _ => return None,
        }
    }
    let parts = token.split(|c| written.contains(c));
    parts.max_by_key(|part| part.len()).filter(|part| !part.is_empty())
}

/// A character of each name that [`hidden_name`] returns.
pub(crate) const HIDDEN_MARK: char = '\u{10FFFF}';

/// Returns a name that no document contains by accident.
pub(crate) fn hidden_name(i: usize) -> String {
    format!("\u{0}{HIDDEN_MARK}control token {i}{HIDDEN_MARK}\u{0}")
}

/// Renames the control tokens in the model's own vocabulary to names that text does not contain, and returns their ids.
pub(crate) fn hide_controls(loaded: &mut Loaded, json: &[u8]) -> Result<IdSet> {
    let tokens = special_tokens(loaded.tokenizer.get_added_vocabulary());
    let in_model: Vec<_> = tokens
        .into_iter()
        .filter(|t| loaded.tokenizer.get_model().token_to_id(&t.token) == Some(t.id))
        .map(|t| t.token)
        .collect();
    if in_model.is_empty() {
        return Ok(IdSet::default());
    }
    let unigram_unk = loaded.unigram_unk_id();
    let (model, hidden) = match loaded.tokenizer.get_model() {
        ModelWrapper::BPE(bpe) => match without_controls_bpe(bpe, &in_model, json)? {
            Some(found) => found,
            None => return Ok(IdSet::default()),
        },
        ModelWrapper::WordPiece(m) => without_controls_wordpiece(m, in_model)?,
        ModelWrapper::WordLevel(m) => without_controls_wordlevel(m, in_model)?,
        ModelWrapper::Unigram(m) => without_controls_unigram(m, in_model, unigram_unk)?,
    };
    loaded.tokenizer.with_model(model);
    Ok(IdSet::new(&hidden))
}

type Hidden = (ModelWrapper, Vec<u32>);

/// Renames `tokens` in `vocab`. Returns the new vocabulary and the ids of the tokens.
fn rename(vocab: HashMap<String, u32>, tokens: Vec<String>) -> (AHashMap<String, u32>, Vec<u32>) {
    let tokens: HashSet<String> = tokens.into_iter().collect();
    let mut ids = Vec::new();
    let rename = |(token, id)| {
        if tokens.contains(&token) {
            ids.push(id);
            (hidden_name(id as usize), id)
        } else {
            (token, id)
        }
    };
    let vocab = vocab.into_iter().map(rename).collect();
    (vocab, ids)
}

fn rebuilt<M: Into<ModelWrapper>>(model: tokenizers::Result<M>) -> Result<ModelWrapper> {
    model
        .map(Into::into)
        .map_err(|e| LoadError::malformed("the vocabulary of the tokenizer cannot be rebuilt", e))
}

fn without_controls_wordpiece(model: &WordPiece, mut tokens: Vec<String>) -> Result<Hidden> {
    tokens.retain(|t| *t != model.unk_token);
    let (vocab, ids) = rename(model.get_vocab(), tokens);
    let built = WordPiece::builder()
        .vocab(vocab)
        .unk_token(model.unk_token.clone())
        .continuing_subword_prefix(model.continuing_subword_prefix.clone())
        .max_input_chars_per_word(model.max_input_chars_per_word)
        .build();
    Ok((rebuilt(built)?, ids))
}

fn without_controls_wordlevel(model: &WordLevel, mut tokens: Vec<String>) -> Result<Hidden> {
    tokens.retain(|t| *t != model.unk_token);
    let (vocab, ids) = rename(model.get_vocab(), tokens);
    let built = WordLevel::builder().vocab(vocab).unk_token(model.unk_token.clone()).build();
    Ok((rebuilt(built)?, ids))
}

fn without_controls_unigram(model: &Unigram, tokens: Vec<String>, unk: Option<usize>) -> Result<Hidden> {
    let tokens: HashSet<String> = tokens.into_iter().collect();
    let mut ids = Vec::new();
    let pieces = model
        .iter()
        .enumerate()
        .map(|(i, (piece, score))| {
            if tokens.contains(piece) && Some(i) != unk {
                ids.extend(u32::try_from(i));
                (hidden_name(i), *score)
            } else {
                (piece.clone(), *score)
            }
        })
        .collect();
    Ok((rebuilt(Unigram::from(pieces, unk, model.byte_fallback()))?, ids))
}

/// Hides control tokens of a BPE model. A model can produce a control token without merging only if it looks up whole
/// words first (`ignore_merges`); other models stay unchanged.
fn without_controls_bpe(model: &BPE, tokens: &[String], json: &[u8]) -> Result<Option<Hidden>> {
    if !model.ignore_merges {
        return Ok(None);
    }
    let malformed = |e| LoadError::malformed("the model of the tokenizer.json is malformed", e);
    let mut file: Value = serde_json::from_slice(json).map_err(malformed)?;
    let Some(mut value) = file.get_mut("model").map(Value::take) else { return Ok(None) };
    let mut hide: HashSet<String> = tokens.iter().filter(|t| t.chars().nth(1).is_some()).cloned().collect();
    if let Some(unk) = &model.unk_token {
        hide.remove(unk);
    }
    for merge in value.get("merges").and_then(Value::as_array).into_iter().flatten() {
        let parts: Vec<&str> = match merge {
            Value::String(both) => both.split(' ').collect(),
            Value::Array(two) => two.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        hide.remove(&parts.concat());
        for part in parts {
            hide.remove(part);
        }
    }
    let Some(Value::Object(vocab)) = value.get_mut("vocab") else { return Ok(None) };
    let mut ids = Vec::new();
    *vocab = std::mem::take(vocab)
        .into_iter()
        .map(|(token, id)| match id.as_u64().and_then(|id| u32::try_from(id).ok()) {
            Some(number) if hide.contains(&token) => {
                ids.push(number);
                (hidden_name(number as usize), id)
            }
            _ => (token, id),
        })
        .collect();
    if let Some(object) = value.as_object_mut() {
        object.insert("dropout".to_owned(), Value::Null);
    }
    let rebuilt: ModelWrapper = serde_json::from_value(value).map_err(malformed)?;
    Ok(Some((rebuilt, ids)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_normalizer_of_spaces_leaves_a_part_of_a_token_unchanged() {
        let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"});
        let both = json!({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "_"}, replace]});
        assert_eq!(unchanged_part("<s>", &replace), Some("<s>"));
        assert_eq!(unchanged_part("the quick\u{2581}dog", &replace), Some("quick"));
        assert_eq!(unchanged_part(" _", &replace), Some("_"));
        assert_eq!(unchanged_part("a_bc", &both), Some("bc"));
        assert_eq!(unchanged_part(" _\u{2581}", &both), None);
        for other in [
            json!({"type": "Lowercase"}),
            json!({"type": "Replace", "pattern": {"Regex": " "}, "content": ""}),
        ] {
            assert_eq!(unchanged_part("<s>", &other), None);
        }
    }
}
