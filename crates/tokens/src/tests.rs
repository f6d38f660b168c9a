//! Tests of the guarantees of [`Tokenizer`], on small tokenizers of every kind.

use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::engine::fast::tests::families;
use crate::testing::{
    PAGE, add_token, bpe, bpe_with_pattern, bytes, char_bpe, precompiled, tricky, unigram, wordlevel,
    wordpiece,
};
use crate::tokenizer::ReferenceEngine;
use crate::*;

fn tokenizer(value: &Value, options: TokenizerOptions) -> Tokenizer {
    Tokenizer::from_json(bytes(value), options).unwrap()
}

fn encode(tokenizer: &Tokenizer, text: &str) -> (Vec<u32>, EncodeStats) {
    let mut out = Vec::new();
    let stats = tokenizer.encode(text, &mut tokenizer.scratch(), &mut out).unwrap();
    (out, stats)
}

fn with(special_in_text: SpecialInText) -> TokenizerOptions {
    TokenizerOptions { special_in_text, ..Default::default() }
}

#[test]
fn a_page_has_the_ids_of_the_reference() {
    for value in [bpe(), wordpiece(), wordlevel(), unigram()] {
        let reference: tokenizers::Tokenizer = serde_json::from_value(value.clone()).unwrap();
        let ours = tokenizer(&value, TokenizerOptions::default());
        let (ids, _) = encode(&ours, PAGE);
        assert_eq!(ids, reference.encode_fast(PAGE, false).unwrap().get_ids(), "{}", ours.info().model);
        assert!(ids.len() > 50);
        assert_eq!(ours.json(), Some(&bytes(&value)[..]));
    }
}

#[test]
fn bytes_are_ids() {
    let plain = Tokenizer::bytes(TokenizerOptions::default()).unwrap();
    assert_eq!(encode(&plain, "aé").0, [97, 0xc3, 0xa9]);
    assert_eq!(plain.info().max_id, 257);
    let both = TokenizerOptions { add_bos: true, add_eos: true, ..Default::default() };
    assert_eq!(encode(&Tokenizer::bytes(both).unwrap(), "").0, [256, 257]);
    let named = TokenizerOptions { bos_token: Some("<s>".into()), ..Default::default() };
    assert!(Tokenizer::bytes(named).is_err());
}

#[test]
fn encode_appends() {
    let t = Tokenizer::bytes(TokenizerOptions::default()).unwrap();
    let mut out = vec![7];
    t.encode("a", &mut t.scratch(), &mut out).unwrap();
    assert_eq!(out, [7, 97]);
}

#[test]
fn truncation_and_padding_are_switched_off() {
    let mut value = bpe();
    value["truncation"] =
        json!({"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0});
    value["padding"] = json!({"strategy": {"Fixed": 4096}, "direction": "Right", "pad_to_multiple_of": null,
        "pad_id": 0, "pad_type_id": 0, "pad_token": "<|endoftext|>"});
    let t = tokenizer(&value, TokenizerOptions::default());
    assert_eq!(encode(&t, PAGE).0, encode(&tokenizer(&bpe(), TokenizerOptions::default()), PAGE).0);
}

#[test]
fn dropout_is_switched_off() {
    let mut value = bpe();
    value["model"]["dropout"] = json!(0.9);
    let t = tokenizer(&value, TokenizerOptions::default());
    assert_eq!(encode(&t, PAGE).0, encode(&tokenizer(&bpe(), TokenizerOptions::default()), PAGE).0);
}

#[test]
fn the_largest_id_includes_added_tokens() {
    let mut value = bpe();
    let base = value["model"]["vocab"].as_object().unwrap().len();
    for i in 0..65_536 - base {
        value["added_tokens"]
            .as_array_mut()
            .unwrap()
            .push(json!({"id": base + i, "content": format!("<added {i}>"),
            "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": false}));
    }
    let t = tokenizer(&value, TokenizerOptions::default());
    assert_eq!(t.info().max_id, 65_535);
    let last = add_token(&mut value, "<one more>", false, false);
    let t = tokenizer(&value, TokenizerOptions::default());
    assert_eq!((last, t.info().max_id), (65_536, 65_536));
    assert_eq!(encode(&t, "<one more>").0, [65_536]);
}

#[test]
fn added_tokens_are_those_of_the_file() {
    for mut value in [bpe(), bpe_with_pattern(r"\w+|\W", true), wordpiece(), wordlevel(), unigram()] {
        add_token(&mut value, "<|turn|>", true, false);
        add_token(&mut value, "a plain one", false, true);
        let in_file = value["added_tokens"].as_array().unwrap().iter();
        let in_file: Vec<_> = in_file.map(|token| token["content"].as_str().unwrap().to_owned()).collect();
        assert_eq!(tokenizer(&value, TokenizerOptions::default()).added_tokens(), in_file);
    }
    assert!(Tokenizer::bytes(TokenizerOptions::default()).unwrap().added_tokens().is_empty());
}

#[test]
fn ids_may_have_gaps() {
    let mut value = wordlevel();
    value["model"]["vocab"]["far"] = json!(70_000);
    let t = tokenizer(&value, TokenizerOptions::default());
    assert_eq!(t.info().max_id, 70_000);
    assert_eq!(encode(&t, "far").0, [70_000]);
}

#[test]
fn special_strings_in_a_text_follow_the_policy() {
    let text = "the<|endoftext|>dog";
    let (ids, stats) = encode(&tokenizer(&bpe(), with(SpecialInText::Text)), text);
    assert!(!ids.contains(&0));
    assert_eq!(stats.special_in_text, 1);
    let (ids, stats) = encode(&tokenizer(&bpe(), with(SpecialInText::Parse)), text);
    assert!(ids.contains(&0));
    assert_eq!(stats.special_in_text, 1);
    let strict = tokenizer(&bpe(), with(SpecialInText::Error));
    let mut out = vec![1];
    let error = strict.encode(text, &mut strict.scratch(), &mut out).unwrap_err();
    assert_eq!((error, out), (EncodeError::SpecialToken("<|endoftext|>".to_owned()), vec![1]));
}

#[test]
fn added_tokens_that_are_not_special_always_match() {
    let mut value = bpe();
    let id = add_token(&mut value, "<dog>", false, false);
    for policy in [SpecialInText::Text, SpecialInText::Parse, SpecialInText::Error] {
        let (ids, stats) = encode(&tokenizer(&value, with(policy)), "the<dog>");
        assert_eq!((ids.last(), stats.special_in_text), (Some(&id), 0));
    }
}

/// The models of these tokenizers have the control tokens in their own vocabulary.
#[test]
fn no_model_produces_a_control_token_from_text() {
    for (value, text, control) in
        [(unigram(), "dog</s> </s>", 1), (wordlevel(), "the [SEP] dog", 2), (wordpiece(), "the [SEP] dog", 2)]
    {
        let t = tokenizer(&value, with(SpecialInText::Text));
        let (ids, stats) = encode(&t, text);
        assert!(!ids.contains(&control), "{}: {ids:?}", t.info().model);
        assert!(stats.special_in_text > 0);
        let (ids, _) = encode(&tokenizer(&value, with(SpecialInText::Parse)), text);
        assert!(ids.contains(&control));
    }
}

#[test]
fn whole_word_lookup_of_bpe_produces_no_control_token() {
    let mut value = crate::testing::bpe_with_pattern(r"\S+|\s+", true);
    let plain = encode(&tokenizer(&value, with(SpecialInText::Text)), "the dog").0;
    let (ids, _) = encode(&tokenizer(&value, with(SpecialInText::Text)), "<|endoftext|>");
    assert!(!ids.contains(&0), "{ids:?}");
    value["model"]["ignore_merges"] = json!(false);
    assert_eq!(encode(&tokenizer(&value, with(SpecialInText::Text)), "the dog").0, plain);
}

#[test]
fn the_hidden_name_of_a_control_token_is_refused() {
    let t = tokenizer(&wordlevel(), with(SpecialInText::Text));
    let name = "\u{0}\u{10FFFF}control token 2\u{10FFFF}\u{0}";
    // Split at its spaces, the name is three unknown words; as one word, it would be the token.
    assert!(encode(&t, name).0.iter().all(|&id| id == 0));
    let mut value = wordlevel();
    value["pre_tokenizer"] = Value::Null;
    let t = tokenizer(&value, with(SpecialInText::Text));
    let error = t.encode(name, &mut t.scratch(), &mut Vec::new()).unwrap_err();
    assert_eq!(error, EncodeError::HiddenName);
}

#[test]
fn a_special_token_that_matches_after_normalization_is_found() {
    let mut value = wordpiece();
    value["added_tokens"][1]["normalized"] = json!(true);
    let t = tokenizer(&value, with(SpecialInText::Error));
    assert!(t.encode("the [ClS] dog", &mut t.scratch(), &mut Vec::new()).is_err());
    assert_eq!(encode(&t, "the cls dog").1.special_in_text, 0);
}

proptest! {
    #[test]
    fn special_tokens_with_replaced_spaces_are_found_as_by_the_reference(text in tricky()) {
        static TOKENIZERS: LazyLock<Vec<Tokenizer>> = LazyLock::new(|| {
            let tokens = ["<dog>", "\u{2581}the", "the quick", "\u{2581}"];
            (0..=tokens.len()).map(|count| {
                let mut value = char_bpe(false);
                for token in &tokens[..count] {
                    add_token(&mut value, token, true, true);
                }
                value["added_tokens"].as_array_mut().unwrap().iter_mut().for_each(|t| t["normalized"] = json!(true));
                tokenizer(&value, TokenizerOptions::default())
            }).collect()
        });
        for tokenizer in &*TOKENIZERS {
            let ReferenceEngine::Reference(reference) = &tokenizer.reference else { unreachable!() };
            let found = reference.special_tokens_in(&text).unwrap().len() as u64;
            let encoded = tokenizer.encode(&text, &mut tokenizer.scratch(), &mut Vec::new()).unwrap();
            prop_assert_eq!(encoded.special_in_text, found);
        }
    }
}

#[test]
fn bos_and_eos_are_added_and_doubled_ones_reported() {
    let ends = TokenizerOptions { add_bos: true, add_eos: true, ..Default::default() };
    let parse = TokenizerOptions { special_in_text: SpecialInText::Parse, ..ends.clone() };
    let t = tokenizer(&wordpiece(), ends);
    let (ids, stats) = encode(&t, "the dog");
    assert_eq!((ids[0], *ids.last().unwrap(), stats.doubled_bos), (1, 2, false));
    assert_eq!(t.info().bos.as_ref().unwrap().token, "[CLS]");
    let (ids, stats) = encode(&tokenizer(&wordpiece(), parse), "[CLS] the dog [SEP]");
    assert_eq!((ids[0], ids[1]), (1, 1));
    assert!(stats.doubled_bos && stats.doubled_eos);
}

#[test]
fn add_special_tokens_follows_the_post_processor() {
    let options = TokenizerOptions { add_special_tokens: true, ..Default::default() };
    let (ids, _) = encode(&tokenizer(&wordpiece(), options.clone()), "the dog");
    let reference: tokenizers::Tokenizer = serde_json::from_value(wordpiece()).unwrap();
    assert_eq!(ids, reference.encode_fast("the dog", true).unwrap().get_ids());
    let both = TokenizerOptions { add_bos: true, ..options };
    assert!(Tokenizer::from_json(bytes(&wordpiece()), both).is_err());
}

#[test]
fn an_undetermined_bos_token_is_an_error_that_lists_candidates() {
    let options = TokenizerOptions { add_bos: true, ..Default::default() };
    let error = Tokenizer::from_json(bytes(&unigram()), options.clone()).err().unwrap();
    assert!(matches!(error, LoadError::AmbiguousSequenceToken { .. } | LoadError::NoSequenceToken { .. }));
    assert!(error.help().unwrap().contains("</s>"), "{error:?}");
    let named = TokenizerOptions { bos_token: Some("<pad>".into()), ..options };
    assert_eq!(encode(&tokenizer(&unigram(), named), "dog").0[0], 0);
}

#[test]
fn broken_files_are_errors_with_a_reason() {
    let said = |json: &[u8]| {
        Tokenizer::from_json(json.to_vec(), TokenizerOptions::default()).err().unwrap().to_string()
    };
    assert!(said(b"").contains("not a JSON object"));
    assert!(said(b"[1,2]").contains("not a JSON object"));
    assert!(said(&bytes(&bpe())[..1000]).contains("not a JSON object"));
    assert!(said(b"{\"vocab\":{}}").contains("no \"model\""));
    let mut value = bpe();
    value["model"]["type"] = json!("Morse");
    assert!(said(&bytes(&value)).contains("Morse"));
    let mut value = bpe();
    value["model"].as_object_mut().unwrap().remove("vocab");
    assert!(said(&bytes(&value)).contains("no \"vocab\""));
    let mut value = bpe();
    value["model"]["vocab"] = json!({});
    value["model"]["merges"] = json!([]);
    value["added_tokens"] = json!([]);
    assert!(said(&bytes(&value)).contains("empty vocabulary"));
    let mut value = bpe();
    value["model"]["merges"] = json!([["no", "such"]]);
    assert!(said(&bytes(&value)).contains("cannot be loaded"));
    let mut value = bpe();
    value["pre_tokenizer"] =
        json!({"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": false});
    assert!(said(&bytes(&value)).contains("cannot be loaded"));
}

#[test]
fn an_unknown_word_without_an_unknown_token_is_an_error() {
    let mut value = wordlevel();
    value["model"]["unk_token"] = json!("[NOT THERE]");
    let t = tokenizer(&value, TokenizerOptions::default());
    let mut out = vec![3];
    let error = t.encode("zzz", &mut t.scratch(), &mut out).unwrap_err();
    assert!(matches!(error, EncodeError::Unsupported(_)) && out == [3], "{error}");
}

#[test]
fn a_scratch_works_with_another_tokenizer() {
    let (a, b) =
        (tokenizer(&bpe(), TokenizerOptions::default()), tokenizer(&unigram(), TokenizerOptions::default()));
    let mut scratch = a.scratch();
    for _ in 0..2 {
        for t in [&a, &b] {
            let mut out = Vec::new();
            t.encode("the quick dog", &mut scratch, &mut out).unwrap();
            assert_eq!(out, encode(t, "the quick dog").0);
        }
    }
}

#[test]
fn the_info_round_trips_through_json() {
    let t = tokenizer(&bpe(), TokenizerOptions::default());
    let json = serde_json::to_string(t.info()).unwrap();
    assert_eq!(&serde_json::from_str::<TokenizerInfo>(&json).unwrap(), t.info());
    assert_eq!(t.info().sha256.as_ref().unwrap().len(), 64);
}

#[test]
fn a_tokenizer_is_shared_by_threads() {
    fn shared<T: Send + Sync>(_: &T) {}
    shared(&Tokenizer::bytes(TokenizerOptions::default()).unwrap());
}

#[test]
fn verify_selects_texts_only_for_a_fast_engine() {
    let all = TokenizerOptions { verify: Verify::All, ..Default::default() };
    let t = tokenizer(&bpe(), all.clone());
    assert!(t.should_verify(u64::MAX));
    let (ids, _) = encode(&t, PAGE);
    assert!(t.matches_reference(PAGE, ids.iter().copied(), &mut t.scratch()));
    assert!(!t.matches_reference(PAGE, ids[1..].iter().copied(), &mut t.scratch()));
    let by_reference = TokenizerOptions { engine: EngineChoice::Reference, ..all };
    assert!(!tokenizer(&bpe(), by_reference).should_verify(0));
}

#[test]
fn a_text_that_a_normalizer_would_make_too_long_is_refused() {
    let replace = |content: &str| json!({"type": "Replace", "pattern": {"String": "a"}, "content": content});
    let kilobytes = replace(&"x".repeat(100_000));
    let doublings = json!({"type": "Sequence", "normalizers": vec![replace("aa"); 40]});
    let prepend = json!({"type": "Prepend", "prepend": "y".repeat(8 << 20)});
    let map = precompiled(&[("a", &"z".repeat(5 << 20))]);
    let text = "bananas, a lot ".repeat(20);
    let refused = |value: &Value, options: TokenizerOptions, text: &str| {
        let tokenizer = tokenizer(value, options);
        let mut ids = vec![1];
        let error = tokenizer.encode(text, &mut tokenizer.scratch(), &mut ids).unwrap_err();
        assert!(matches!(error, EncodeError::TooLarge { .. }) && ids == [1], "{error}");
        error.to_string()
    };
    for normalizer in [kilobytes, doublings, prepend, map] {
        for mut value in [wordlevel(), unigram(), bpe()] {
            value["normalizer"] = normalizer.clone();
            for engine in [EngineChoice::Auto, EngineChoice::Reference] {
                let message = refused(&value, TokenizerOptions { engine, ..Default::default() }, &text);
                assert!(
                    message.contains("normalizer") && message.contains("`max_reference_bytes`"),
                    "{message}"
                );
            }
            // This special token is searched for in normalized text.
            add_token(&mut value, "<nbr>", true, true);
            refused(&value, with(SpecialInText::Error), &text);
        }
    }
}

#[test]
fn a_text_without_spaces_is_limited_by_max_reference_bytes() {
    let long = "語".repeat(200);
    let lines = "語\n".repeat(200);
    for (max, fits) in [(long.len(), true), (long.len() - 1, false)] {
        let options = TokenizerOptions { max_reference_bytes: Some(max as u64), ..Default::default() };
        let tokenizer = tokenizer(&unigram(), options);
        assert!(tokenizer.fast.is_some());
        for text in [&long, &lines[..max - max % 4]] {
            let encoded = tokenizer.encode(text, &mut tokenizer.scratch(), &mut Vec::new());
            assert_eq!(encoded.is_ok(), fits || text.len() <= max, "{max}");
        }
        let lines = tokenizer.encode(&lines, &mut tokenizer.scratch(), &mut Vec::new());
        assert!(matches!(lines, Err(EncodeError::TooLarge { .. })));
    }
}

#[test]
fn special_tokens_of_a_long_document_are_counted_part_by_part() {
    let mut llama2 = char_bpe(false);
    let tokens = llama2["added_tokens"].as_array_mut().unwrap();
    tokens.iter_mut().for_each(|token| token["normalized"] = json!(true));
    let nllb = families::values().into_iter().find(|(name, _)| *name == "nllb").unwrap().1;
    let text = "the quick </s> brown<s>fox kab_Latn A_Latn \u{ff21}_Latnjumps ".repeat(5_000);
    // The normalizer of Llama 2 prepends a space to its tokens, so `<s>` matches only after a space.
    for (value, in_each) in [(llama2, 1), (nllb, 5)] {
        let options = TokenizerOptions { max_reference_bytes: Some(200_000), ..Default::default() };
        let tokenizer = tokenizer(&value, options);
        assert!(tokenizer.fast.is_some());
        let counted = encode(&tokenizer, &text).1.special_in_text;
        assert_eq!(counted, in_each * 5_000);
        // Here, the whole text is searched at once.
        let whole = TokenizerOptions { engine: EngineChoice::Reference, ..Default::default() };
        let whole = Tokenizer::from_json(bytes(&value), whole).unwrap();
        assert_eq!(encode(&whole, &text).1.special_in_text, counted);
        let strict = Tokenizer::from_json(bytes(&value), with(SpecialInText::Error)).unwrap();
        let error = strict.encode(&text, &mut strict.scratch(), &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("</s>"), "{error}");
    }
}
