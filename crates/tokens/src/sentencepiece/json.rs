//! Conversion of a SentencePiece model to a `tokenizer.json`.
//!
//! In other libraries, the file gives nearly the ids of the model, and decodes them. A member that they ignore contains
//! the model itself.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::{Value, json};

use super::pieces::{Pieces, VocabPiece};
use super::proto::{ModelType, NormalizerSpec, PieceType};
use super::{MEMBER, SentencePiece, parse};
use crate::error::LoadError;
use crate::tokenizer_json::{BpeModel, TokenizerJson};

/// Converts a SentencePiece `.model` file to a `tokenizer.json` for
/// [`Tokenizer::from_json`](crate::Tokenizer::from_json). The ids are those of the package `sentencepiece`.
///
/// # Errors
///
/// If the file is not a SentencePiece model, is inconsistent, or is of the type word or char.
pub fn sentencepiece_to_json(model: &[u8]) -> Result<Vec<u8>, LoadError> {
    let proto = parse(model)?;
    SentencePiece::new(&proto)?;
    let trainer = proto.trainer.clone().unwrap_or_default();
    let spec = proto.normalizer.clone().unwrap_or_default();
    let pieces = Pieces::new(&proto, trainer.byte_fallback()).map_err(LoadError::UnusableModel)?;
    let prefix = spec.add_dummy_prefix() && !trainer.treat_whitespace_as_suffix();
    let model_part = match trainer.model_type {
        Some(ty) if ty == ModelType::Bpe as i32 => ModelPart::bpe(&pieces),
        _ => ModelPart::unigram(&pieces),
    };
    let file = TokenizerJson {
        version: "1.0",
        truncation: None,
        padding: None,
        added_tokens: added_tokens(&pieces),
        normalizer: normalizer(&spec),
        pre_tokenizer: json!({"type": "Metaspace", "replacement": "\u{2581}",
            "prepend_scheme": if prefix { "first" } else { "never" }, "split": false}),
        post_processor: None,
        decoder: decoder(prefix, model),
        model: model_part,
    };
    serde_json::to_vec(&file).map_err(|e| LoadError::malformed("the tokenizer.json cannot be written", e))
}

#[derive(Serialize)]
struct AddedToken<'a> {
    id: u32,
    content: &'a str,
    single_word: bool,
    lstrip: bool,
    rstrip: bool,
    normalized: bool,
    special: bool,
}

/// Returns the added tokens: control symbols and the unknown piece are special, user-defined symbols are not.
fn added_tokens(pieces: &Pieces) -> Vec<AddedToken<'_>> {
    (0u32..)
        .zip(&pieces.all)
        .filter_map(|(id, piece)| {
            let special = matches!(piece.kind, PieceType::Control | PieceType::Unknown);
            (special || piece.kind == PieceType::UserDefined).then_some(AddedToken {
                id,
                content: &piece.text,
                single_word: false,
                lstrip: false,
                rstrip: false,
                normalized: false,
                special,
            })
        })
        .collect()
}

fn normalizer(spec: &NormalizerSpec) -> Value {
    let mut steps = Vec::new();
    let blob = spec.precompiled_charsmap();
    if !blob.is_empty() {
        steps.push(json!({"type": "Precompiled", "precompiled_charsmap": STANDARD.encode(blob)}));
    }
    if spec.remove_extra_whitespaces() {
        for (pattern, content) in [("^ +| +$", ""), (" {2,}", " ")] {
            steps.push(json!({"type": "Replace", "pattern": {"Regex": pattern}, "content": content}));
        }
    }
    match steps.is_empty() {
        true => Value::Null,
        false => json!({"type": "Sequence", "normalizers": steps}),
    }
}

fn decoder(prefix: bool, model: &[u8]) -> Value {
    let mut steps = vec![
        json!({"type": "Replace", "pattern": {"String": "\u{2581}"}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if prefix {
        steps.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    json!({"type": "Sequence", "decoders": steps, (MEMBER): STANDARD.encode(model)})
}

#[derive(Serialize)]
#[serde(untagged)]
enum ModelPart<'a> {
    Unigram(UnigramModel<'a>),
    Bpe(BpeModel<&'a str>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "Unigram")]
struct UnigramModel<'a> {
    unk_id: u32,
    vocab: Vec<(&'a str, f64)>,
    byte_fallback: bool,
}

impl<'a> ModelPart<'a> {
    fn unigram(pieces: &'a Pieces) -> Self {
        let vocab = pieces.all.iter().map(|piece| (piece.text.as_str(), f64::from(piece.score)));
        ModelPart::Unigram(UnigramModel {
            unk_id: pieces.unknown,
            vocab: vocab.collect(),
            byte_fallback: pieces.bytes.is_some(),
        })
    }

    fn bpe(pieces: &'a Pieces) -> Self {
        let vocab: Vec<(&str, u32)> =
            (0u32..).zip(&pieces.all).map(|(id, piece)| (piece.text.as_str(), id)).collect();
        let unknown = pieces.get(pieces.unknown).map_or("<unk>", |piece| piece.text.as_str());
        ModelPart::Bpe(BpeModel {
            unk_token: Some(unknown),
            fuse_unk: true,
            byte_fallback: pieces.bytes.is_some(),
            vocab,
            merges: merges(pieces),
            ..BpeModel::default()
        })
    }
}

/// Returns every pair of pieces whose concatenation is a piece, highest score first.
fn merges(pieces: &Pieces) -> Vec<(&str, &str)> {
    let normal = |piece: &&VocabPiece| piece.kind == PieceType::Normal;
    let known: HashMap<&str, f32> =
        pieces.all.iter().filter(normal).map(|piece| (piece.text.as_str(), piece.score)).collect();
    let mut by_score: Vec<&VocabPiece> = pieces.all.iter().filter(normal).collect();
    by_score.sort_by(|a, b| b.score.total_cmp(&a.score));
    by_score
        .into_iter()
        .flat_map(|piece| piece.text.char_indices().skip(1).map(|(at, _)| piece.text.split_at(at)))
        .filter(|(left, right)| known.contains_key(left) && known.contains_key(right))
        .collect()
}
