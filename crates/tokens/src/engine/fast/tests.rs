//! Every fast engine against the reference, on small tokenizers and nasty texts.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::split::pattern::{CL100K, DEEPSEEK, O200K, QWEN2, QWEN35, TEKKEN};
use crate::engine::Outcome;
use crate::segments::SEGMENT_BYTES;
use crate::testing::{
    PAGE, add_token, bpe, bpe_with_pattern, bytes, char_bpe, char_bpe_behind_metaspace, precompiled, tricky,
    unigram, wordlevel, wordpiece,
};
use crate::{EngineChoice, SpecialInText, Tokenizer, TokenizerOptions};

/// The vocabulary of [`bpe`] behind these steps and `ByteLevel`.
fn bpe_behind(steps: &[Value], use_regex: bool) -> Value {
    let mut value = bpe();
    let byte_level =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex});
    let steps: Vec<Value> = steps.iter().cloned().chain([byte_level]).collect();
    value["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": steps});
    value
}

fn split(regex: &str, behavior: &str, invert: bool) -> Value {
    json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": invert})
}

fn digits(individual: bool) -> Value {
    json!({"type": "Digits", "individual_digits": individual})
}

/// Tokenizers that have a fast engine, with a name for messages.
fn values() -> Vec<(&'static str, Value)> {
    let mut neox = bpe();
    neox["normalizer"] = json!({"type": "NFC"});
    for spaces in ["   ", "  ", "e\u{301}", "\n\n"] {
        add_token(&mut neox, spaces, false, true);
    }
    add_token(&mut neox, "<dog>", false, false);
    let mut across = bpe();
    add_token(&mut across, "lazy dog", false, false);
    let mut roberta = bpe();
    roberta["pre_tokenizer"]["add_prefix_space"] = json!(true);
    add_token(&mut roberta, "<dog>", false, false);
    add_token(&mut roberta, "<|endof", false, false);
    let mut strips = bpe();
    add_token(&mut strips, "<dog>", false, false);
    strips["added_tokens"].as_array_mut().unwrap().last_mut().unwrap()["lstrip"] = json!(true);

    let mut cased = wordpiece();
    cased["normalizer"]["lowercase"] = json!(false);
    cased["model"]["max_input_chars_per_word"] = json!(6);
    let mut accents = wordpiece();
    accents["normalizer"] = json!({"type": "BertNormalizer", "clean_text": false, "handle_chinese_chars": false,
        "strip_accents": false, "lowercase": true});
    let mut bare = wordpiece();
    bare["normalizer"] = Value::Null;
    add_token(&mut bare, "<dog>", false, false);
    let mut levels = wordlevel();
    levels["pre_tokenizer"] = json!({"type": "BertPreTokenizer"});

    let map =
        [("\n", " "), ("\t", " "), ("½", " 1/2"), ("Ａ", "A"), ("\u{200b}", ""), ("ß", "ss "), ("é", "e")];
    let collapse = json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "});
    let mut t5 = unigram();
    t5["normalizer"] = json!({"type": "Sequence", "normalizers": [precompiled(&map), collapse]});
    let mut xlmr = unigram();
    xlmr["normalizer"] = precompiled(&map);
    xlmr["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"},
        {"type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": "always", "split": true}]});
    let mut fallback = unigram();
    fallback["model"]["byte_fallback"] = json!(true);
    let vocab = fallback["model"]["vocab"].as_array_mut().unwrap();
    vocab.extend((0..=255).map(|b| json!([format!("<0x{b:02X}>"), -20.0])));
    vocab.push(json!(["語語", -3.0]));
    let mut unigram_across = unigram();
    add_token(&mut unigram_across, " dog", false, false);
    let mut stripped = unigram();
    stripped["normalizer"] = json!({"type": "Sequence", "normalizers": [
        {"type": "NFKC"}, {"type": "Strip", "strip_left": false, "strip_right": true}]});

    let replaced = |crosses| {
        let mut value = char_bpe(crosses);
        value["normalizer"] = value["normalizer"]["normalizers"][1].take();
        value
    };
    let mut gemma = replaced(false);
    gemma["pre_tokenizer"] = json!({"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
        "invert": false});
    add_token(&mut gemma, "\n\n", false, false);
    let mut beside_spaces = unigram();
    add_token(&mut beside_spaces, "quick", false, false);
    let mut normalized_tokens = char_bpe(false);
    let mut replaced_tokens = replaced(false);
    let mut behind_tokens = char_bpe_behind_metaspace("first", false, false);
    for value in [&mut normalized_tokens, &mut replaced_tokens, &mut behind_tokens] {
        add_token(value, "<dog>", false, true);
        add_token(value, " owner", false, true);
        add_token(value, "\u{2581}the", false, true);
    }
    let mut first = char_bpe_behind_metaspace("first", false, false);
    add_token(&mut first, "<dog>", false, false);
    let mut first_across = char_bpe_behind_metaspace("first", false, false);
    add_token(&mut first_across, "dog", false, false);

    let deepseek = DEEPSEEK.map(|regex| split(regex, "Isolated", false));

    vec![
        ("gpt2", bpe()),
        ("neox", neox),
        ("across", across),
        ("roberta", roberta),
        ("strips", strips),
        ("llama3", bpe_with_pattern(CL100K, true)),
        ("qwen2", bpe_with_pattern(QWEN2, false)),
        ("qwen3.5", bpe_with_pattern(QWEN35, false)),
        ("o200k", bpe_with_pattern(O200K, true)),
        ("tekken", bpe_with_pattern(TEKKEN, true)),
        ("starcoder", bpe_behind(&[digits(true)], true)),
        ("refact", bpe_behind(&[split(r"\p{N}", "Isolated", false)], true)),
        ("runs of digits", bpe_behind(&[digits(false)], true)),
        ("deepseek", bpe_behind(&deepseek, false)),
        ("bloom", bpe_behind(&[split(r" ?[^(\s|[.,!?…。，、।۔،])]+", "Isolated", false)], false)),
        ("words alone", bpe_behind(&[split(r"\w+", "Removed", true), digits(true)], false)),
        ("all but words", bpe_behind(&[split(r"\w+", "Removed", false)], true)),
        ("not split", bpe_behind(&[], false)),
        ("bert", wordpiece()),
        ("bert cased", cased),
        ("bert accents", accents),
        ("bert bare", bare),
        ("word level", levels),
        ("unigram", unigram()),
        ("t5", t5),
        ("xlmr", xlmr),
        ("byte fallback", fallback),
        ("stripped", stripped),
        ("unigram across", unigram_across),
        ("beside spaces", beside_spaces),
        ("llama2", char_bpe(false)),
        ("gemma", gemma),
        ("first", first),
        ("first across", first_across),
        ("normalized tokens", normalized_tokens),
        ("replaced tokens", replaced_tokens),
        ("behind tokens", behind_tokens),
        ("never", char_bpe_behind_metaspace("never", false, false)),
        ("always", char_bpe_behind_metaspace("always", true, false)),
        ("spaces inside", char_bpe(true)),
        ("spaces inside and replaced", replaced(true)),
        ("spaces inside but split", char_bpe_behind_metaspace("always", true, true)),
    ]
}

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
fn a_long_text_is_divided_where_the_engine_knows_how() {
    let text = PAGE.repeat(3 * SEGMENT_BYTES / PAGE.len());
    let mut divided = Vec::new();
    for (name, tokenizer) in &*TOKENIZERS {
        let engine = tokenizer.fast.as_deref().unwrap();
        if engine.divide(&text, SEGMENT_BYTES).is_none() {
            continue;
        }
        divided.push(*name);
        let (mut scratch, mut whole, mut ids) = (tokenizer.scratch(), Vec::new(), Vec::new());
        assert_eq!(engine.encode(&text, &mut scratch, &mut whole).unwrap(), Outcome::Done);
        for idle in [0, 2] {
            let mut scratch = tokenizer.scratch().with_idle(Arc::new(AtomicUsize::new(idle)));
            ids.clear();
            tokenizer.encode(&text, &mut scratch, &mut ids).unwrap();
            assert!(ids == whole, "{name}");
        }
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
        "unigram",
        "t5",
        "xlmr",
        "byte fallback",
        "llama2",
        "gemma",
        "first",
        "never",
        "always",
    ] {
        assert!(divided.contains(&name), "{divided:?}");
    }
    for name in ["unigram across", "beside spaces", "first across", "bloom", "words alone", "not split"] {
        assert!(!divided.contains(&name), "{divided:?}");
    }
}

#[test]
fn a_document_of_which_a_piece_is_declined_goes_to_the_reference() {
    let page = PAGE.repeat(SEGMENT_BYTES / PAGE.len());
    let text = format!("{page} {page} <dog> {page}");
    let (_, tokenizer) = TOKENIZERS.iter().find(|(name, _)| *name == "strips").unwrap();
    let mut scratch = tokenizer.scratch().with_idle(Arc::new(AtomicUsize::new(2)));
    let mut ids = vec![7];
    let stats = tokenizer.encode(&text, &mut scratch, &mut ids).unwrap();
    assert!(stats.by_reference && ids.remove(0) == 7);
    assert!(tokenizer.matches_reference(&text, ids, &mut scratch));
}

#[test]
fn a_page_has_the_ids_of_the_reference_and_hardly_anything_is_declined() {
    check(PAGE).unwrap();
    for (name, tokenizer) in &*TOKENIZERS {
        let stats = tokenizer.encode(PAGE, &mut tokenizer.scratch(), &mut Vec::new()).unwrap();
        assert!(!stats.by_reference, "{name}");
    }
}

#[test]
fn a_token_that_looks_at_its_neighbours_goes_to_the_reference() {
    let (_, tokenizer) = TOKENIZERS.iter().find(|(name, _)| *name == "strips").unwrap();
    let stats = tokenizer.encode("the  <dog>", &mut tokenizer.scratch(), &mut Vec::new()).unwrap();
    assert!(stats.by_reference);
}

/// From about a million characters on, the reference takes the rest of the text as one word.
#[test]
fn a_run_of_spaces_that_the_reference_stumbles_over_goes_to_it() {
    let (_, tokenizer) = TOKENIZERS.iter().find(|(name, _)| *name == "llama3").unwrap();
    for (run, by_reference) in [(1 << 15, false), (1_200_000, true)] {
        for text in [format!("{}x", " ".repeat(run)), format!("y\n{}x", " ".repeat(run))] {
            let (mut scratch, mut ids) = (tokenizer.scratch(), Vec::new());
            let stats = tokenizer.encode(&text, &mut scratch, &mut ids).unwrap();
            assert_eq!(stats.by_reference, by_reference);
            assert!(tokenizer.matches_reference(&text, ids, &mut scratch));
        }
    }
}

/// Neither gives up on anything else.
#[test]
fn long_words_have_the_ids_of_the_reference() {
    for name in ["gpt2", "llama3", "qwen2", "o200k", "tekken", "starcoder", "deepseek"] {
        let (_, tokenizer) = TOKENIZERS.iter().find(|(other, _)| *other == name).unwrap();
        for unit in ["thedog", "THEDOG", "ʰ", "7", "-=!", "я", "\r\n"] {
            let text = format!("a {} b", unit.repeat(1_200_000 / unit.len()));
            let (mut scratch, mut ids) = (tokenizer.scratch(), Vec::new());
            let stats = tokenizer.encode(&text, &mut scratch, &mut ids).unwrap();
            assert_eq!(stats.by_reference, unit == "\r\n", "{name} {unit}");
            assert!(tokenizer.matches_reference(&text, ids, &mut scratch), "{name} {unit}");
        }
    }
}

#[test]
fn what_is_not_known_is_left_to_the_reference_and_says_why() {
    let mut dropped = bpe();
    dropped["model"]["vocab"].as_object_mut().unwrap().remove("Ã");
    dropped["model"]["merges"] = json!([]);
    let mut lower = bpe();
    lower["normalizer"] = json!({"type": "Lowercase"});
    let mut suffix = bpe();
    suffix["model"]["end_of_word_suffix"] = json!("</w>");
    let mut first = unigram();
    first["pre_tokenizer"]["prepend_scheme"] = json!("first");
    let mut normalized = wordpiece();
    add_token(&mut normalized, "Dog", false, true);
    let punctuation = bpe_behind(&[json!({"type": "Punctuation", "behavior": "Isolated"})], true);
    let mut prefixed = bpe_behind(&[digits(true)], true);
    prefixed["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = json!(true);
    for value in [
        punctuation,
        prefixed,
        bpe_behind(&[split(r"\w+", "MergedWithNext", false)], false),
        dropped,
        lower,
        suffix,
        first,
        normalized,
        wordlevel(),
    ] {
        let auto = Tokenizer::from_json(bytes(&value), TokenizerOptions::default()).unwrap();
        assert!(auto.info().engine_note.is_some(), "{}", auto.info().engine.name);
        assert_eq!(auto.info().engine, auto.info().reference);
        let fast = TokenizerOptions { engine: EngineChoice::Fast, ..Default::default() };
        assert!(Tokenizer::from_json(bytes(&value), fast).is_err());
    }
}

/// A wrong engine is found out by the built-in texts.
#[test]
fn an_engine_that_is_wrong_is_not_used() {
    use crate::engine::reference::Reference;
    use crate::engine::{Engine, proof};
    use crate::scratch::Scratch;

    let scratch = || Scratch::new(0);
    let reference =
        |value: &Value| Reference::new(serde_json::from_value(value.clone()).unwrap(), true, u64::MAX);
    let right = reference(&bpe());
    assert_eq!(proof::check(&right as &dyn Engine, &right, &mut scratch()), Ok(()));
    // The same but for single digits; another normal form; another pattern.
    let (llama3, qwen2) = (bpe_with_pattern(CL100K, true), bpe_with_pattern(QWEN2, true));
    let mut nfc = bpe();
    nfc["normalizer"] = json!({"type": "NFC"});
    for (a, b) in [(&llama3, &qwen2), (&bpe(), &nfc), (&bpe(), &llama3)] {
        let (a, b) = (reference(a), reference(b));
        let why = proof::check(&a as &dyn Engine, &b, &mut scratch()).unwrap_err();
        assert!(why.contains("differ"), "{why}");
    }
}
