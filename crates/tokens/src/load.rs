//! Loading of a `tokenizer.json` by the reference, with clearer error messages.
//!
//! Truncation, padding and BPE dropout are switched off; the random merges of dropout would give different ids every
//! time.

use serde::de::DeserializeOwned;
use serde_json::Value;
use tokenizers::models::bpe::BPE;
use tokenizers::models::wordlevel::WordLevel;
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::{
    DecoderWrapper, Model, ModelWrapper, NormalizedString, Normalizer, NormalizerWrapper,
    PostProcessorWrapper, PreTokenizerWrapper, TokenizerImpl,
};

use crate::charsmap;
use crate::error::LoadError;
use crate::outline::{MODEL_TYPES, ModelOutline, Outline};
use crate::panics::caught;
use crate::patterns;
use crate::read_model::ReadModel;
use crate::unigram_scores::{self, UnigramModel};

type Result<T> = std::result::Result<T, LoadError>;

/// A tokenizer loaded by the reference.
pub(crate) struct Loaded {
    pub(crate) tokenizer: tokenizers::Tokenizer,
    pub(crate) outline: Outline,
}

impl Loaded {
    /// Returns the name of the model type, as in the file format.
    pub(crate) fn model_type(&self) -> &'static str {
        match self.tokenizer.get_model() {
            ModelWrapper::BPE(_) => "BPE",
            ModelWrapper::WordPiece(_) => "WordPiece",
            ModelWrapper::WordLevel(_) => "WordLevel",
            ModelWrapper::Unigram(_) => "Unigram",
        }
    }

    /// Returns the index of the unknown token of a Unigram model.
    pub(crate) fn unigram_unk_id(&self) -> Option<usize> {
        self.outline.model.as_ref().and_then(|m| m.unk_id)
    }
}

/// Loads the tokenizer in `json`.
pub(crate) fn load(json: &[u8]) -> Result<Loaded> {
    let outline: Outline = serde_json::from_slice(json).map_err(|e| {
        LoadError::malformed("the tokenizer is not a JSON object in the format of a tokenizer.json", e)
    })?;
    check(outline.model.as_ref())?;
    charsmap::check_sizes(&outline.normalizer)
        .map_err(|why| LoadError::malformed("the tokenizer.json cannot be loaded", why))?;
    patterns::check(&[&outline.normalizer, &outline.pre_tokenizer, &outline.decoder])?;
    // The parsers of some parts index into tables from the file, so they can panic.
    let ty = outline.model.as_ref().and_then(|model| model.ty.as_ref()).and_then(Value::as_str);
    let mut tokenizer = caught(|| read(json, ty))
        .map_err(LoadError::Inconsistent)?
        .map_err(|e| LoadError::malformed("the tokenizer.json cannot be loaded", e))?;
    tokenizer.with_padding(None);
    tokenizer
        .with_truncation(None)
        .map_err(|e| LoadError::malformed("truncation cannot be switched off in this tokenizer.json", e))?;
    if let ModelWrapper::BPE(bpe) = tokenizer.get_model()
        && bpe.dropout.is_some()
    {
        let mut bpe = bpe.clone();
        bpe.dropout = None;
        tokenizer.with_model(bpe);
    }
    if tokenizer.get_vocab_size(true) == 0 {
        return Err(LoadError::EmptyVocabulary);
    }
    check_added_tokens(&tokenizer)?;
    Ok(Loaded { tokenizer, outline })
}

/// Reads the tokenizer in `json`, whose model type is `ty`. The scores of a Unigram model are read by
/// [`unigram_scores`].
///
/// To find the type of a model, the reference's general reader first makes two copies of it. For the file of Llama 3,
/// the copies took a third of the 0.6 s. The reference's readers for specific types, used here, make no such copies.
fn read(json: &[u8], ty: Option<&str>) -> tokenizers::Result<tokenizers::Tokenizer> {
    let known = match ty {
        Some("BPE") => read_as::<ReadModel<BPE>>(json).or_else(|| read_as::<BPE>(json)),
        Some("WordPiece") => read_as::<WordPiece>(json),
        Some("WordLevel") => read_as::<WordLevel>(json),
        Some("Unigram") => read_as::<UnigramModel>(json),
        _ => None,
    };
    if let Some(tokenizer) = known {
        return Ok(tokenizer);
    }
    // The reference's general reader reports errors, and accepts a model without a type.
    let mut tokenizer = tokenizers::Tokenizer::from_bytes(json)?;
    if matches!(tokenizer.get_model(), ModelWrapper::Unigram(_)) {
        tokenizer.with_model(serde_json::from_slice::<unigram_scores::UnigramFile>(json)?.model);
    }
    Ok(tokenizer)
}

fn read_as<M: DeserializeOwned + Model + Into<ModelWrapper>>(json: &[u8]) -> Option<tokenizers::Tokenizer> {
    type Of<M> =
        TokenizerImpl<M, NormalizerWrapper, PreTokenizerWrapper, PostProcessorWrapper, DecoderWrapper>;
    serde_json::from_slice::<Of<M>>(json).ok().map(Into::into)
}

/// Checks for errors that need a clearer message than the reference's.
fn check(model: Option<&ModelOutline>) -> Result<()> {
    let Some(model) = model else {
        return Err(LoadError::MissingModel);
    };
    match &model.ty {
        // Old files have no type; the reference determines it from the fields.
        None => {}
        Some(Value::String(ty)) if MODEL_TYPES.contains(&ty.as_str()) => {}
        Some(ty) => return Err(LoadError::UnknownModelType(ty.to_string())),
    }
    if model.vocab.is_none() {
        return Err(LoadError::MissingVocabulary);
    }
    Ok(())
}

/// Refuses added tokens that are empty after normalization. A search for them and another token does not end.
fn check_added_tokens(tokenizer: &tokenizers::Tokenizer) -> Result<()> {
    let Some(normalizer) = tokenizer.get_normalizer() else { return Ok(()) };
    let added = tokenizer.get_added_vocabulary().get_added_tokens_decoder().values();
    for token in added.filter(|token| token.normalized) {
        let mut content = NormalizedString::from(token.content.as_str());
        let normalized = caught(|| normalizer.normalize(&mut content)).map_err(LoadError::Inconsistent)?;
        normalized.map_err(|e| LoadError::malformed("an added token cannot be normalized", e))?;
        if content.is_empty() {
            return Err(LoadError::EmptyAddedToken(token.content.clone()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{add_token, bpe, bytes, unigram, wordlevel, wordpiece};

    #[test]
    fn added_tokens_without_characters_are_refused() {
        let strip = json!({"type": "Strip", "strip_left": true, "strip_right": true});
        for mut file in [bpe(), wordpiece(), wordlevel(), unigram()] {
            file["normalizer"] = strip.clone();
            add_token(&mut file, "<tool>", false, true);
            assert!(load(&bytes(&file)).is_ok());
            let mut kept = file.clone();
            add_token(&mut kept, "\n", false, false);
            assert!(load(&bytes(&kept)).is_ok());
            add_token(&mut file, "\n", false, true);
            let error = load(&bytes(&file)).err().unwrap();
            assert!(matches!(&error, LoadError::EmptyAddedToken(token) if token == "\n"), "{error}");
            assert!(error.help().unwrap().contains("\"normalized\": false"));
        }
    }

    #[test]
    fn readers_for_specific_types_agree_with_the_general_reader() {
        for mut file in [bpe(), wordpiece(), wordlevel(), unigram()] {
            add_token(&mut file, "<dog>", true, false);
            let ty = file["model"]["type"].as_str().unwrap().to_owned();
            if ty == "Unigram" {
                // All parsers read these numbers alike.
                for (number, piece) in file["model"]["vocab"].as_array_mut().unwrap().iter_mut().enumerate() {
                    piece[1] = json!(-0.25 * number as f64);
                }
            }
            let json = bytes(&file);
            let written = |tokenizer: &tokenizers::Tokenizer| tokenizer.to_string(false).unwrap();
            let usual = tokenizers::Tokenizer::from_bytes(&json).unwrap();
            assert_eq!(written(&read(&json, Some(&ty)).unwrap()), written(&usual), "{ty}");
            let quick = match ty.as_str() {
                "BPE" => read_as::<ReadModel<BPE>>(&json),
                "WordPiece" => read_as::<WordPiece>(&json),
                "WordLevel" => read_as::<WordLevel>(&json),
                _ => read_as::<UnigramModel>(&json),
            };
            assert_eq!(quick.map(|quick| written(&quick)), Some(written(&usual)), "{ty}");
            // The error messages are the same.
            file["model"]["vocab"] = json!(7);
            let json = bytes(&file);
            let why = |result: tokenizers::Result<tokenizers::Tokenizer>| result.unwrap_err().to_string();
            assert_eq!(why(read(&json, Some(&ty))), why(tokenizers::Tokenizer::from_bytes(&json)), "{ty}");
        }
    }

    #[test]
    fn scores_equal_those_of_the_package_with_and_without_a_type() {
        let mut file = unigram();
        for piece in file["model"]["vocab"].as_array_mut().unwrap() {
            piece[1] = json!(-2.848_354_339_599_609_4);
        }
        for ty in [Some("Unigram"), None] {
            if ty.is_none() {
                file["model"].as_object_mut().unwrap().remove("type");
            }
            let tokenizer = read(&bytes(&file), ty).unwrap();
            let ModelWrapper::Unigram(model) = tokenizer.get_model() else { panic!("another model") };
            assert!(model.iter().all(|(_, score)| *score == -2.848_354_339_599_61), "{ty:?}");
        }
    }
}
