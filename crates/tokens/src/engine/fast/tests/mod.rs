//! Tests of every fast engine against the reference, on small tokenizers and difficult texts.

pub(crate) mod families;

use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::{Value, json};

use self::families::{bpe_after, digits, in_order, pre_tokenized, replace, split, values};
use super::split::pattern::{CL100K, QWEN2};
use crate::engine::Outcome;
use crate::segments::SEGMENT_BYTES;
use crate::testing::{PAGE, add_token, bpe, bpe_with_pattern, bytes, tricky, unigram, wordlevel, wordpiece};
use crate::{EncodeError, EngineChoice, SpecialInText, Tokenizer, TokenizerOptions};

static TOKENIZERS: LazyLock<Vec<(&str, Tokenizer)>> = LazyLock::new(|| {
    let mut tokenizers = Vec::new();
    for (name, value) in values() {
        for special_in_text in [SpecialInText::Text, SpecialInText::Parse] {
            let options =
                TokenizerOptions { special_in_text, engine: EngineChoice::Fast, ..Default::default() };
            let tokenizer = Tokenizer::from_json(bytes(&value), options);
            tokenizers.push((name, tokenizer.unwrap_or_else(|e| panic!("{name}: {e}"))));
        }
    }
    tokenizers
});

fn check(text: &str) -> Result<(), TestCaseError> {
    for (name, tokenizer) in &*TOKENIZERS {
        let mut scratch = tokenizer.scratch();
        let mut expected = Vec::new();
        let reference = tokenizer.encode_reference(text, &mut scratch, &mut expected);
        for _ in 0..2 {
            let mut ids = Vec::new();
            let fast = tokenizer.encode(text, &mut scratch, &mut ids);
            prop_assert_eq!(&ids, &expected, "{} {:?}", name, text);
            prop_assert_eq!(fast.is_ok(), reference.is_ok());
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_engine_gives_the_ids_of_the_reference(text in tricky()) {
        check(&text)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_parts_of_a_divided_text_have_its_ids(texts in prop::collection::vec(tricky(), 1..4), from in 0usize..200) {
        for between in ["a b", " a bc ", "x y\u{301}", "'s t", "a b'", "я!", "a\n", "漢。", "o1"] {
            let text = texts.join(between);
            for (name, tokenizer) in &*TOKENIZERS {
                let engine = tokenizer.fast.as_deref().unwrap();
                let Some(gap) = engine.divide(&text, from) else { continue };
                prop_assert!(gap.start >= from && gap.start > 0);
                let mut scratch = tokenizer.scratch();
                let mut ids = |text: &str| {
                    let mut ids = Vec::new();
                    let done = engine.encode(text, &mut scratch, &mut ids);
                    (done.is_ok_and(|done| done == Outcome::Done)).then_some(ids)
                };
                let parts = (ids(&text[..gap.start]), ids(&text[gap.end..]));
                let joined = match parts {
                    (Some(left), Some(right)) => Some([left, right].concat()),
                    _ => None,
                };
                prop_assert_eq!(joined, ids(&text), "{} {:?} at {:?}", name, text, gap);
            }
        }
    }
}

#[test]
fn long_texts_are_divided_without_changing_the_ids() {
    let text = PAGE.repeat(3 * SEGMENT_BYTES / PAGE.len());
    let mut divided = Vec::new();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    for (name, tokenizer) in &*TOKENIZERS {
        let engine = tokenizer.fast.as_deref().unwrap();
        if engine.divide(&text, SEGMENT_BYTES).is_none() {
            continue;
        }
        divided.push(*name);
        let (mut scratch, mut whole, mut ids) = (tokenizer.scratch(), Vec::new(), Vec::new());
        assert_eq!(engine.encode(&text, &mut scratch, &mut whole).unwrap(), Outcome::Done);
        let mut encode = || {
            ids.clear();
            tokenizer.encode(&text, &mut tokenizer.scratch(), &mut ids).unwrap();
            assert!(ids == whole, "{name}");
        };
        encode();
        pool.install(encode);
    }
    for name in [
        "gpt2",
        "neox",
        "across",
        "roberta",
        "llama3",
        "o200k",
        "starcoder",
        "deepseek",
        "runs of digits",
        "bert",
        "falcon",
        "unigram",
        "t5",
        "xlmr",
        "bge-m3",
        "albert",
        "unigram first",
        "bigbird",
        "words",
        "byte fallback",
        "llama2",
        "gemma",
        "first",
        "never",
        "always",
    ] {
        assert!(divided.contains(&name), "{divided:?}");
    }
    for name in [
        "unigram across",
        "beside spaces",
        "first across",
        "bloom",
        "words alone",
        "not split",
        "clip",
        "unigram never",
    ] {
        assert!(!divided.contains(&name), "{divided:?}");
    }
}

#[test]
fn a_document_with_a_declined_segment_uses_the_reference() {
    let page = PAGE.repeat(SEGMENT_BYTES / PAGE.len());
    let text = format!("{page} {page} <dog> {page}");
    let (_, tokenizer) = TOKENIZERS.iter().find(|(name, _)| *name == "strips").unwrap();
    let mut scratch = tokenizer.scratch();
    let mut ids = vec![7];
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    let stats = pool.install(|| tokenizer.encode(&text, &mut scratch, &mut ids)).unwrap();
    assert!(stats.by_reference && ids.remove(0) == 7);
    assert!(tokenizer.matches_reference(&text, ids, &mut scratch));
}

#[test]
fn a_page_is_never_declined_and_has_the_ids_of_the_reference() {
    check(PAGE).unwrap();
    for (name, tokenizer) in &*TOKENIZERS {
        let stats = tokenizer.encode(PAGE, &mut tokenizer.scratch(), &mut Vec::new()).unwrap();
        assert!(!stats.by_reference, "{name}");
    }
}

#[test]
fn tokens_that_depend_on_their_neighbors_use_the_reference() {
    let (_, tokenizer) = TOKENIZERS.iter().find(|(name, _)| *name == "strips").unwrap();
    let stats = tokenizer.encode("the  <dog>", &mut tokenizer.scratch(), &mut Vec::new()).unwrap();
    assert!(stats.by_reference);
}

#[test]
fn documents_with_very_long_runs_of_spaces_are_not_declined() {
    for name in ["llama3", "bloom"] {
        let (_, tokenizer) = TOKENIZERS.iter().find(|(other, _)| *other == name).unwrap();
        let spaces = " ".repeat(1_200_000);
        for text in [format!("{spaces}x"), format!("y\n{spaces}x"), format!("y\t{spaces}")] {
            let (mut scratch, mut ids) = (tokenizer.scratch(), Vec::new());
            let stats = tokenizer.encode(&text, &mut scratch, &mut ids).unwrap();
            assert!(!stats.by_reference && tokenizer.matches_reference(&text, ids, &mut scratch), "{name}");
        }
    }
}

#[test]
fn a_text_that_needs_too_many_steps_of_a_regular_expression_is_an_error() {
    let tokenizer = Tokenizer::from_json(
        bytes(&bpe_after(&[split("(a|a)*1", "Isolated", false)], false)),
        Default::default(),
    );
    let tokenizer = tokenizer.unwrap();
    let encode = |text: &str| tokenizer.encode(text, &mut tokenizer.scratch(), &mut Vec::new());
    assert!(!encode("aa1 aaaa1").unwrap().by_reference);
    let error = encode(&format!("{} 1", "a".repeat(60))).err();
    assert_eq!(error, Some(EncodeError::PatternLimit("retry-limit-in-match over".to_owned())));
}

#[test]
fn a_space_is_added_only_before_the_first_character_of_the_text() {
    for value in families::first_after_removal() {
        let tokenizer = Tokenizer::from_json(bytes(&value), TokenizerOptions::default()).unwrap();
        for text in [
            "``the dog\" the",
            "\u{301}the",
            "\u{1}the dog",
            "  the dog",
            "the dog",
            "The ``dog",
            "\u{1}",
            "",
        ] {
            let (mut scratch, mut ids) = (tokenizer.scratch(), Vec::new());
            tokenizer.encode(text, &mut scratch, &mut ids).unwrap();
            assert!(tokenizer.matches_reference(text, ids, &mut scratch), "{} {text:?}", value["normalizer"]);
        }
    }
}

#[test]
fn a_token_listed_twice_is_special_if_its_first_entry_is() {
    let mut value = wordpiece();
    for i in 0..40 {
        add_token(&mut value, &format!("<{i}>"), true, false);
    }
    add_token(&mut value, "<mid>", true, false);
    add_token(&mut value, "<mid>", false, false);
    for i in 40..80 {
        add_token(&mut value, &format!("<{i}>"), true, false);
    }
    let tokenizer = Tokenizer::from_json(bytes(&value), TokenizerOptions::default()).unwrap();
    let (mut scratch, mut ids) = (tokenizer.scratch(), Vec::new());
    tokenizer.encode("the <mid> dog", &mut scratch, &mut ids).unwrap();
    assert!(tokenizer.matches_reference("the <mid> dog", ids, &mut scratch));
}

#[test]
fn a_pre_tokenizer_of_many_steps_does_not_overflow_the_stack() {
    let digits = vec![digits(false); 20_000];
    for value in [
        bpe_after(&digits, true),
        pre_tokenized(wordpiece(), &[&[json!({"type": "WhitespaceSplit"})][..], &digits].concat()),
    ] {
        let tokenizer = Tokenizer::from_json(bytes(&value), TokenizerOptions::default()).unwrap();
        tokenizer.encode("a 1", &mut tokenizer.scratch(), &mut Vec::new()).unwrap();
    }
}

/// Neither the fast engines nor the reference give up on long words other than white space.
#[test]
fn long_words_have_the_ids_of_the_reference() {
    for name in ["gpt2", "llama3", "qwen2", "o200k", "tekken", "starcoder", "deepseek"] {
        let (_, tokenizer) = TOKENIZERS.iter().find(|(other, _)| *other == name).unwrap();
        for unit in ["thedog", "THEDOG", "ʰ", "7", "-=!", "я", "\r\n"] {
            let text = format!("a {} b", unit.repeat(300_000 / unit.len()));
            let (mut scratch, mut ids) = (tokenizer.scratch(), Vec::new());
            let stats = tokenizer.encode(&text, &mut scratch, &mut ids).unwrap();
            assert!(!stats.by_reference, "{name} {unit}");
            assert!(tokenizer.matches_reference(&text, ids, &mut scratch), "{name} {unit}");
        }
    }
}

#[test]
fn unsupported_tokenizers_use_the_reference_and_state_the_reason() {
    let mut empty_unknown = bpe();
    empty_unknown["model"]["vocab"].as_object_mut().unwrap().remove("Ā");
    empty_unknown["model"]["unk_token"] = json!("");
    let mut same_ids = bpe();
    same_ids["model"]["vocab"]["the same"] = json!(7);
    let mut grows = bpe();
    grows["normalizer"] = replace("String", "a", "aaaa");
    let mut spaces = unigram();
    spaces["normalizer"] = in_order(&[replace("String", "a b", "c")]);
    let mut removes = unigram();
    removes["normalizer"] = replace("String", "a", "");
    let first = pre_tokenized(
        unigram(),
        &[
            json!({"type": "WhitespaceSplit"}),
            json!({"type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": "first", "split": true}),
        ],
    );
    let mut normalized = wordpiece();
    add_token(&mut normalized, "the Dog", false, true);
    let scripts = pre_tokenized(wordlevel(), &[json!({"type": "UnicodeScripts"})]);
    let merged = bpe_after(&[json!({"type": "Punctuation", "behavior": "MergedWithPrevious"})], true);
    let mut prefixed = bpe_after(&[digits(true)], true);
    prefixed["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = json!(true);
    for value in [
        merged,
        prefixed,
        bpe_after(&[split(r"\w+", "MergedWithNext", false)], false),
        empty_unknown,
        same_ids,
        grows,
        spaces,
        removes,
        first,
        normalized,
        scripts,
    ] {
        let auto = Tokenizer::from_json(bytes(&value), TokenizerOptions::default()).unwrap();
        assert!(auto.info().engine_note.is_some(), "{}", auto.info().engine.name);
        assert_eq!(auto.info().engine, auto.info().reference);
        let fast = TokenizerOptions { engine: EngineChoice::Fast, ..Default::default() };
        assert!(Tokenizer::from_json(bytes(&value), fast).is_err());
    }
}

#[test]
fn the_proof_detects_a_wrong_engine() {
    use crate::engine::reference::Reference;
    use crate::engine::{Engine, proof};
    use crate::scratch::Scratch;

    let scratch = || Scratch::new(0);
    let reference =
        |value: &Value| Reference::new(serde_json::from_value(value.clone()).unwrap(), true, u64::MAX);
    let right = reference(&bpe());
    assert_eq!(proof::check(&right as &dyn Engine, &right, &mut scratch()), Ok(()));
    // The pairs differ in the number of digits per word, in normalization, and in the pattern.
    let (llama3, qwen2) = (bpe_with_pattern(CL100K, true), bpe_with_pattern(QWEN2, true));
    let mut nfc = bpe();
    nfc["normalizer"] = json!({"type": "NFC"});
    for (a, b) in [(&llama3, &qwen2), (&bpe(), &nfc), (&bpe(), &llama3)] {
        let (a, b) = (reference(a), reference(b));
        let why = proof::check(&a as &dyn Engine, &b, &mut scratch()).unwrap_err();
        assert!(why.contains("differ"), "{why}");
    }
}
