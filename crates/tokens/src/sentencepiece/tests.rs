//! Tests with small handmade models and with damaged ones. `tests/python` compares the ids of trained models with those
//! of the package `sentencepiece`.

use super::proto::{NormalizerSpec, PieceProto, TrainerSpec};
use super::*;
use crate::options::{SpecialInText, TokenizerOptions};
use crate::tokenizer::Tokenizer;

const UNIGRAM: &[(&str, f32, PieceType)] = &[
    ("<unk>", 0.0, PieceType::Unknown),
    ("<s>", 0.0, PieceType::Control),
    ("</s>", 0.0, PieceType::Control),
    ("\u{2581}", -2.0, PieceType::Normal),
    ("a", -3.0, PieceType::Normal),
    ("b", -3.5, PieceType::Normal),
    ("ab", -4.0, PieceType::Normal),
    ("\u{2581}a", -3.0, PieceType::Normal),
    ("<x>", 0.0, PieceType::UserDefined),
];

fn proto(pieces: &[(&str, f32, PieceType)], model_type: ModelType) -> ModelProto {
    let piece = |(piece, score, kind): &(&str, f32, PieceType)| PieceProto {
        piece: Some((*piece).to_owned()),
        score: Some(*score),
        kind: Some(*kind as i32),
    };
    ModelProto {
        pieces: pieces.iter().map(piece).collect(),
        trainer: Some(TrainerSpec { model_type: Some(model_type as i32), ..TrainerSpec::default() }),
        normalizer: Some(NormalizerSpec::default()),
    }
}

fn tokenizer(proto: &ModelProto, options: TokenizerOptions) -> Tokenizer {
    let json = sentencepiece_to_json(&proto.encode_to_vec()).unwrap();
    Tokenizer::from_json(json, options).unwrap()
}

fn ids(proto: &ModelProto, text: &str) -> Vec<u32> {
    let tokenizer = tokenizer(proto, TokenizerOptions::default());
    let mut ids = Vec::new();
    tokenizer.encode(text, &mut tokenizer.scratch(), &mut ids).unwrap();
    ids
}

fn why(proto: &ModelProto) -> String {
    sentencepiece_to_json(&proto.encode_to_vec()).unwrap_err().to_string()
}

#[test]
fn the_best_path_is_taken_and_unknown_characters_are_joined() {
    let model = proto(UNIGRAM, ModelType::Unigram);
    assert_eq!(ids(&model, "ab  b"), [3, 6, 3, 5]);
    assert_eq!(ids(&model, " aézb "), [7, 0, 5]);
    assert_eq!(ids(&model, "a<x>a"), [7, 8, 4]);
    // Control symbols in a text are encoded as ordinary characters.
    assert_eq!(ids(&model, "</s>"), [3, 0]);
    assert_eq!(ids(&model, "  "), [0; 0]);
}

#[test]
fn a_long_text_is_encoded_as_a_short_one() {
    let model = proto(UNIGRAM, ModelType::Unigram);
    let text = "ab b<x>é ".repeat(5000);
    let one = ids(&model, "ab b<x>é");
    assert_eq!(ids(&model, &text), one.repeat(5000));
}

#[test]
fn bpe_pieces_are_merged_by_score_and_unused_ones_are_divided_again() {
    let mut pieces = UNIGRAM.to_vec();
    assert_eq!(ids(&proto(&pieces, ModelType::Bpe), "abab"), [7, 5, 6]);
    pieces[7].2 = PieceType::Unused;
    assert_eq!(ids(&proto(&pieces, ModelType::Bpe), "abab a<x>b"), [3, 4, 5, 6, 3, 4, 8, 5]);
}

#[test]
fn unknown_characters_become_bytes() {
    let bytes: Vec<String> = (0..=255).map(|byte| format!("<0x{byte:02X}>")).collect();
    let mut pieces = UNIGRAM.to_vec();
    pieces.extend(bytes.iter().map(|piece| (piece.as_str(), 0.0, PieceType::Byte)));
    for model_type in [ModelType::Unigram, ModelType::Bpe] {
        let mut model = proto(&pieces, model_type);
        model.trainer.as_mut().unwrap().byte_fallback = Some(true);
        assert_eq!(ids(&model, "aéé"), [7, 9 + 0xc3, 9 + 0xa9, 9 + 0xc3, 9 + 0xa9]);
    }
}

#[test]
fn bos_and_eos_come_from_the_model() {
    let mut model = proto(UNIGRAM, ModelType::Unigram);
    let options = TokenizerOptions { add_bos: true, add_eos: true, ..TokenizerOptions::default() };
    let made = tokenizer(&model, options.clone());
    let mut ids = Vec::new();
    made.encode("a", &mut made.scratch(), &mut ids).unwrap();
    assert_eq!((ids, made.info().vocab_size, made.info().max_id), (vec![1, 7, 2], 9, 8));
    model.trainer.as_mut().unwrap().bos_piece = Some("</s>".to_owned());
    assert_eq!(tokenizer(&model, options).info().bos.as_ref().map(|token| token.id), Some(2));
}

#[test]
fn control_symbols_in_a_text_are_found_and_never_parsed() {
    let model = proto(UNIGRAM, ModelType::Unigram);
    let with = |special_in_text| TokenizerOptions { special_in_text, ..TokenizerOptions::default() };
    let strict = tokenizer(&model, with(SpecialInText::Error));
    let error = strict.encode("a </s> b", &mut strict.scratch(), &mut Vec::new()).unwrap_err();
    assert_eq!(error, EncodeError::SpecialToken("</s>".to_owned()));
    let json = sentencepiece_to_json(&model.encode_to_vec()).unwrap();
    let refused = Tokenizer::from_json(json, with(SpecialInText::Parse)).err().unwrap();
    assert!(matches!(refused, LoadError::ParsedControls), "{refused}");
}

#[test]
fn other_libraries_read_the_converted_file() {
    for model_type in [ModelType::Unigram, ModelType::Bpe] {
        let json = sentencepiece_to_json(&proto(UNIGRAM, model_type).encode_to_vec()).unwrap();
        let other = tokenizers::Tokenizer::from_bytes(&json).unwrap();
        let ids = other.encode_fast("ab  a<x>", false).unwrap().get_ids().to_vec();
        assert_eq!(other.decode(&ids, false).unwrap(), "ab a<x>", "{model_type:?}");
        assert_eq!(other.token_to_id("<x>"), Some(8));
    }
}

#[test]
fn damaged_and_unsupported_models_are_refused_with_the_reason() {
    let replaced = |at: usize, piece: (&'static str, f32, PieceType)| {
        let mut pieces = UNIGRAM.to_vec();
        pieces[at] = piece;
        why(&proto(&pieces, ModelType::Unigram))
    };
    assert!(replaced(4, ("", 0.0, PieceType::Normal)).contains("its piece 4 is empty"));
    assert!(replaced(4, ("b", 0.0, PieceType::Normal)).contains("it has the piece \"b\" twice"));
    assert!(replaced(4, ("?", 0.0, PieceType::Unknown)).contains("two pieces for unknown"));
    assert!(replaced(0, ("?", 0.0, PieceType::Normal)).contains("no piece for unknown"));
    assert!(replaced(4, ("<0x41>", 0.0, PieceType::Byte)).contains("unexpected byte piece"));
    assert!(why(&proto(UNIGRAM, ModelType::Word)).contains("its type is word"));
    assert!(why(&proto(UNIGRAM, ModelType::Char)).contains("its type is char"));
    let mut model = proto(UNIGRAM, ModelType::Unigram);
    model.trainer.as_mut().unwrap().byte_fallback = Some(true);
    assert!(why(&model).contains("no piece for the byte 0x00"));
    model = proto(UNIGRAM, ModelType::Unigram);
    for damaged in [&[1, 0][..], &[9, 0, 0, 0, 1], &[255; 40], &[0; 40]] {
        model.normalizer.as_mut().unwrap().precompiled_charsmap = Some(damaged.to_vec());
        assert!(why(&model).contains("its character map is damaged"), "{damaged:?}");
    }
    assert!(sentencepiece_to_json(b"{}").unwrap_err().to_string().contains("not a SentencePiece model"));
    assert!(sentencepiece_to_json(b"").unwrap_err().to_string().contains("it has 0 pieces"));
}

#[test]
fn lookups_in_a_malformed_character_map_stay_in_bounds() {
    // Offsets may point outside the array, and replacements outside the blob.
    for seed in 0..200u32 {
        let mut blob = 64u32.to_le_bytes().to_vec();
        blob.extend(
            (0..16u32).flat_map(|i| (seed.wrapping_mul(2_654_435_761).rotate_left(i) ^ i << 9).to_le_bytes()),
        );
        blob.extend(b"x\0y");
        let mut model = proto(UNIGRAM, ModelType::Unigram);
        model.normalizer.as_mut().unwrap().precompiled_charsmap = Some(blob);
        ids(&model, "ab \u{0}\u{1}é日 🙂 zz");
    }
}
