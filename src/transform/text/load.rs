//! Reading a `tokenizer.json`: what is wrong with it is said in a sentence, what it must not do is switched off.
//!
//! Switched off: truncation, padding, and the dropout of BPE, whose random merges would give other ids every time.

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use tokenizers::models::bpe::BPE;
use tokenizers::models::wordlevel::WordLevel;
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::{
    DecoderWrapper, Model, ModelWrapper, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper,
    TokenizerImpl,
};

use super::unigram_scores::{self, UnigramModel};
use crate::error::{Error, Result};
use crate::panics::caught;

/// Model types that the reference knows.
const MODEL_TYPES: [&str; 4] = ["BPE", "WordPiece", "Unigram", "WordLevel"];

/// What this crate itself reads in a `tokenizer.json`; the reference reads the rest.
#[derive(Debug, Deserialize)]
pub(super) struct Outline {
    model: Option<ModelOutline>,
    /// As written.
    #[serde(default)]
    pub(super) normalizer: Value,
    /// As written.
    #[serde(default)]
    pub(super) pre_tokenizer: Value,
    /// As written.
    #[serde(default)]
    pub(super) post_processor: Value,
}

#[derive(Debug, Deserialize)]
struct ModelOutline {
    #[serde(rename = "type")]
    ty: Option<Value>,
    vocab: Option<IgnoredAny>,
    #[serde(default)]
    unk_id: Option<usize>,
}

/// The parts of a normalizer, in order: none of none, one of one that is no sequence.
pub(super) fn normalizers(normalizer: &Value) -> &[Value] {
    match normalizer.get("normalizers").and_then(Value::as_array) {
        Some(parts) => parts,
        None if normalizer.is_null() => &[],
        None => std::slice::from_ref(normalizer),
    }
}

/// A tokenizer that the reference accepted.
pub(super) struct Loaded {
    pub(super) tokenizer: tokenizers::Tokenizer,
    pub(super) outline: Outline,
}

impl Loaded {
    /// Name of the model type, as in the file format.
    pub(super) fn model_type(&self) -> &'static str {
        match self.tokenizer.get_model() {
            ModelWrapper::BPE(_) => "BPE",
            ModelWrapper::WordPiece(_) => "WordPiece",
            ModelWrapper::WordLevel(_) => "WordLevel",
            ModelWrapper::Unigram(_) => "Unigram",
        }
    }

    /// Index of the unknown token of a Unigram model.
    pub(super) fn unigram_unk_id(&self) -> Option<usize> {
        self.outline.model.as_ref().and_then(|m| m.unk_id)
    }
}

/// Loads the tokenizer in `json`, or says why not.
pub(super) fn load(json: &[u8]) -> Result<Loaded> {
    let outline: Outline = serde_json::from_slice(json).map_err(|e| {
        Error::usage("the tokenizer is not a JSON object of the tokenizer.json kind").caused_by(e)
    })?;
    check(outline.model.as_ref())?;
    // The parsers of some parts index into tables that the file itself provides.
    let ty = outline.model.as_ref().and_then(|model| model.ty.as_ref()).and_then(Value::as_str);
    let mut tokenizer = caught(|| read(json, ty))
        .map_err(|panic| {
            let message = panic.into_message();
            Error::usage(format!("the tokenizer.json contradicts itself: loading it failed ({message})"))
        })?
        .map_err(|e| Error::usage("the tokenizer.json cannot be loaded").caused_by(e))?;
    tokenizer.with_padding(None);
    tokenizer
        .with_truncation(None)
        .map_err(|e| Error::usage("truncation cannot be switched off in this tokenizer.json").caused_by(e))?;
    if let ModelWrapper::BPE(bpe) = tokenizer.get_model()
        && bpe.dropout.is_some()
    {
        let mut bpe = bpe.clone();
        bpe.dropout = None;
        tokenizer.with_model(bpe);
    }
    if tokenizer.get_vocab_size(true) == 0 {
        return Err(Error::usage("the tokenizer.json has an empty vocabulary"));
    }
    Ok(Loaded { tokenizer, outline })
}

/// The tokenizer in `json`, whose model says that it is of type `ty`. The scores of a Unigram model are those of
/// [`unigram_scores`].
///
/// Reading a model of any type, the reference makes two copies of it first, to look at its type: of 0.6 s that the file of
/// Llama 3 took, these were a third. The readers of each type do without, and are its own too.
fn read(json: &[u8], ty: Option<&str>) -> tokenizers::Result<tokenizers::Tokenizer> {
    let known = match ty {
        Some("BPE") => read_as::<BPE>(json),
        Some("WordPiece") => read_as::<WordPiece>(json),
        Some("WordLevel") => read_as::<WordLevel>(json),
        Some("Unigram") => read_as::<UnigramModel>(json),
        _ => None,
    };
    if let Some(tokenizer) = known {
        return Ok(tokenizer);
    }
    // The reference's own reader says what is wrong with a file, and accepts one whose model has no type.
    let mut tokenizer = tokenizers::Tokenizer::from_bytes(json)?;
    if matches!(tokenizer.get_model(), ModelWrapper::Unigram(_)) {
        tokenizer.with_model(serde_json::from_slice::<unigram_scores::File>(json)?.model);
    }
    Ok(tokenizer)
}

fn read_as<M: DeserializeOwned + Model + Into<ModelWrapper>>(json: &[u8]) -> Option<tokenizers::Tokenizer> {
    type Of<M> =
        TokenizerImpl<M, NormalizerWrapper, PreTokenizerWrapper, PostProcessorWrapper, DecoderWrapper>;
    serde_json::from_slice::<Of<M>>(json).ok().map(Into::into)
}

/// The mistakes that deserve a better sentence than the reference's.
fn check(model: Option<&ModelOutline>) -> Result<()> {
    let Some(model) = model else {
        return Err(Error::usage("the tokenizer.json has no \"model\"")
            .help("pass the tokenizer.json of a fast tokenizer, not tokenizer_config.json or vocab.json"));
    };
    match &model.ty {
        // Files from before the type was written: the reference tells by the fields.
        None => {}
        Some(Value::String(ty)) if MODEL_TYPES.contains(&ty.as_str()) => {}
        Some(ty) => {
            return Err(Error::usage(format!("the tokenizer.json has a model of the unknown type {ty}"))
                .help(format!("known types: {}", MODEL_TYPES.join(", "))));
        }
    }
    if model.vocab.is_none() {
        return Err(Error::usage("the model in the tokenizer.json has no \"vocab\""));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::transform::text::testing::{add_token, bpe, bytes, unigram, wordlevel, wordpiece};

    #[test]
    fn a_model_of_a_known_type_is_read_as_the_usual_way_reads_it() {
        for mut file in [bpe(), wordpiece(), wordlevel(), unigram()] {
            add_token(&mut file, "<dog>", true, false);
            let ty = file["model"]["type"].as_str().unwrap().to_owned();
            if ty == "Unigram" {
                // Numbers that every parser reads alike.
                for (number, piece) in file["model"]["vocab"].as_array_mut().unwrap().iter_mut().enumerate() {
                    piece[1] = json!(-0.25 * number as f64);
                }
            }
            let json = bytes(&file);
            let written = |tokenizer: &tokenizers::Tokenizer| tokenizer.to_string(false).unwrap();
            let usual = tokenizers::Tokenizer::from_bytes(&json).unwrap();
            assert_eq!(written(&read(&json, Some(&ty)).unwrap()), written(&usual), "{ty}");
            let quick = match ty.as_str() {
                "BPE" => read_as::<BPE>(&json),
                "WordPiece" => read_as::<WordPiece>(&json),
                "WordLevel" => read_as::<WordLevel>(&json),
                _ => read_as::<UnigramModel>(&json),
            };
            assert_eq!(quick.map(|quick| written(&quick)), Some(written(&usual)), "{ty}");
            // The same words for what is wrong.
            file["model"]["vocab"] = json!(7);
            let json = bytes(&file);
            let why = |result: tokenizers::Result<tokenizers::Tokenizer>| result.unwrap_err().to_string();
            assert_eq!(why(read(&json, Some(&ty))), why(tokenizers::Tokenizer::from_bytes(&json)), "{ty}");
        }
    }

    #[test]
    fn scores_are_those_of_the_package_with_and_without_a_type() {
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
