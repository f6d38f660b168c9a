//! Tests that quick and complete loading result in the same tokenizer.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::engine::fast::tests::families;
use crate::engine::reference::Reference;
use crate::engine::{Engine, Outcome};
use crate::error::{EncodeError, LoadError};
use crate::info::EngineInfo;
use crate::options::DEFAULT_MAX_REFERENCE_BYTES;
use crate::scratch::Scratch;
use crate::testing::{PAGE, add_token, bpe, bpe_with_pattern, bytes, char_bpe, tricky};
use crate::tokenizer::ReferenceEngine;
use crate::{ConfigTokens, SpecialInText, Tokenizer, TokenizerOptions, Verify};

/// Loads the tokenizer in `json` completely.
fn load_complete(json: &[u8], options: TokenizerOptions) -> Result<Tokenizer, LoadError> {
    let json = Arc::new(json.to_vec());
    Tokenizer::load_complete(&json, BpeFile::parse(&json), options, &ConfigTokens::default())
}

fn reference(tokenizer: &Tokenizer) -> &Reference {
    let ReferenceEngine::Reference(reference) = &tokenizer.reference else { panic!("another kind") };
    reference
}

/// Returns the reference of the tokenizer in `json`, if it can be loaded quickly.
fn partial(json: &[u8], parse_special: bool) -> Option<Reference> {
    let file = BpeFile::parse(json).ok()?;
    let Partial { loaded, .. } = Partial::load(&file, &excerpt(&file)?, parse_special)?;
    let complete = complete(Arc::new(json.to_vec()), parse_special);
    Some(Reference::partial(loaded.tokenizer, parse_special, u64::MAX, complete))
}

/// A tokenizer as converted from tiktoken: it looks up whole words, and control tokens are in its vocabulary.
fn tiktoken() -> Value {
    let mut value = bpe_with_pattern(r"\S+|\s+", true);
    for token in ["<dog>", "<|quick|>", "\u{0}\u{10FFFF}control token 0\u{10FFFF}\u{0}"] {
        let next = value["model"]["vocab"].as_object().unwrap().len();
        value["model"]["vocab"][token] = json!(next);
        add_token(&mut value, token, true, false);
    }
    value
}

/// Tokenizers that can be loaded quickly, and some that cannot.
fn tokenizers() -> Vec<(&'static str, Value)> {
    let mut bigbird = char_bpe(false);
    bigbird["model"]["byte_fallback"] = json!(false);
    let mut added = bpe();
    for token in ["<new>", "the", "dog", "\u{2581}", "NEW"] {
        add_token(&mut added, token, token == "the", token == "NEW");
    }
    let mut lines = bpe();
    let line = |pair: &Value| json!(format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap()));
    let merges: Vec<Value> = lines["model"]["merges"].as_array().unwrap().iter().map(line).collect();
    lines["model"]["merges"] = json!(merges);
    let mut dropout = bpe();
    dropout["model"]["dropout"] = json!(0.5);
    let mut tokenizers = families::values();
    tokenizers.extend([
        ("tiktoken", tiktoken()),
        ("no byte fallback", bigbird),
        ("added", added),
        ("lines", lines),
        ("dropout", dropout),
    ]);
    tokenizers
}

#[test]
fn the_excerpt_gives_the_ids_of_the_whole_model_for_the_texts_of_the_proof() {
    let mut quick = Vec::new();
    for (name, value) in tokenizers() {
        for parse_special in [false, true] {
            let Some(reference) = partial(&bytes(&value), parse_special) else { continue };
            quick.push(name);
            let added = reference.parts().get_added_vocabulary().get_added_tokens_decoder();
            let probes = PROBES.map(str::to_owned);
            for text in proof::texts(added).chain(probes) {
                let (mut whole, mut excerpt) = (Vec::new(), Vec::new());
                let expected = reference.encode_within(DEFAULT_MAX_REFERENCE_BYTES, &text, &mut whole);
                let result = reference.encode_for_proof(DEFAULT_MAX_REFERENCE_BYTES, &text, &mut excerpt);
                assert_eq!((result, excerpt), (expected, whole), "{name} {text:?}");
            }
        }
    }
    for name in
        ["gpt2", "llama3", "falcon", "lowercase", "llama2", "gemma", "first", "always", "bigbird", "tiktoken"]
    {
        assert_eq!(quick.iter().filter(|other| **other == name).count(), 2, "{name}");
    }
    for name in ["clip", "bert", "unigram", "word level"] {
        assert!(!quick.contains(&name), "{name}");
    }
}

#[test]
fn quick_and_complete_loading_give_the_same_tokenizer() {
    let ends = TokenizerOptions { add_bos: true, eos_token: Some("the".to_owned()), ..Default::default() };
    // Each tokenizer with three of the nine combinations, to save time.
    for (first, (name, value)) in tokenizers().into_iter().enumerate() {
        let json = bytes(&value);
        for (i, special_in_text) in
            [SpecialInText::Text, SpecialInText::Parse, SpecialInText::Error].into_iter().enumerate()
        {
            let options = match (first + i) % 3 {
                0 => TokenizerOptions { special_in_text, ..Default::default() },
                1 => TokenizerOptions { special_in_text, add_special_tokens: true, ..Default::default() },
                _ => TokenizerOptions { special_in_text, ..ends.clone() },
            };
            let load = Tokenizer::from_json(json.clone(), options.clone());
            let (quick, whole) = match (load, load_complete(&json, options)) {
                (Ok(quick), Ok(whole)) => (quick, whole),
                (Err(quick), Err(whole)) => {
                    assert_eq!(quick.to_string(), whole.to_string(), "{name}");
                    continue;
                }
                _ => panic!("{name}"),
            };
            assert_eq!(quick.info(), whole.info(), "{name}");
            assert_eq!((&quick.prefix, &quick.suffix), (&whole.prefix, &whole.suffix), "{name}");
            assert_eq!(quick.hidden, whole.hidden, "{name}");
            let encode = |tokenizer: &Tokenizer| {
                let mut ids = Vec::new();
                let text = format!("{PAGE} <dog> <s> <|endoftext|>");
                (
                    tokenizer.encode(&text, &mut tokenizer.scratch(), &mut ids).map(|_| ids),
                    reference(tokenizer).max_bytes(),
                )
            };
            assert_eq!(encode(&quick), encode(&whole), "{name}");
        }
    }
}

#[test]
fn the_complete_reference_is_loaded_when_a_text_needs_it() {
    let load = |value: &Value, verify| {
        Tokenizer::from_json(bytes(value), TokenizerOptions { verify, ..Default::default() }).unwrap()
    };
    let encode = |tokenizer: &Tokenizer, text: &str| {
        let mut ids = Vec::new();
        let stats = tokenizer.encode(text, &mut tokenizer.scratch(), &mut ids).unwrap();
        (ids, stats)
    };
    let mut strips = bpe();
    add_token(&mut strips, "<dog>", false, false);
    strips["added_tokens"].as_array_mut().unwrap().last_mut().unwrap()["lstrip"] = json!(true);
    for value in [bpe(), char_bpe(false), tiktoken(), strips.clone()] {
        for verify in [Verify::Sample, Verify::All] {
            let tokenizer = load(&value, verify);
            let (ids, stats) = encode(&tokenizer, PAGE);
            tokenizer.check_marked().unwrap();
            assert!(!reference(&tokenizer).is_complete());
            let verified = tokenizer.verify(u64::MAX, PAGE, &ids[..], &stats, &mut tokenizer.scratch());
            assert!(verified.is_right);
            assert_eq!(reference(&tokenizer).is_complete(), verify == Verify::All);
            assert!(tokenizer.matches_reference(PAGE, ids, &mut tokenizer.scratch()));
        }
    }
    let tokenizer = load(&strips, Verify::Sample);
    assert!(encode(&tokenizer, "a <dog>").1.by_reference && reference(&tokenizer).is_complete());
}

#[test]
fn texts_that_a_normalizer_makes_long_are_not_recorded() {
    let mut value = bpe();
    for (times, is_quick) in [(2, true), (1000, false)] {
        let content = "grown ".repeat(times);
        value["normalizer"] = json!({"type": "Replace", "pattern": {"String": "a"}, "content": content});
        assert_eq!(partial(&bytes(&value), false).is_some(), is_quick, "{times}");
    }
}

/// An engine that drops the last id of the texts that contain a word.
struct Faulty<'a>(&'a Reference, &'static str);

impl Engine for Faulty<'_> {
    fn info(&self) -> EngineInfo {
        EngineInfo::fast("faulty")
    }

    fn encode(&self, text: &str, _: &mut Scratch, out: &mut Vec<u32>) -> Result<Outcome, EncodeError> {
        self.0.encode_within(u64::MAX, text, out)?;
        if text.contains(self.1) {
            out.pop();
        }
        Ok(Outcome::Done)
    }
}

#[test]
fn the_proof_detects_a_wrong_engine_with_an_excerpt() {
    let scratch = || Scratch::new(0);
    let load = |value: &Value| partial(&bytes(value), true).unwrap();
    let mut nfc = bpe();
    nfc["normalizer"] = json!({"type": "NFC"});
    // Another order of two merges changes the ids of a few words.
    let mut reordered = bpe();
    let merges = reordered["model"]["merges"].as_array_mut().unwrap();
    let last = merges.len() - 1;
    (0..20).for_each(|at| merges.swap(at, last - at));
    let right = load(&bpe());
    assert_eq!(proof::check(&Faulty(&right, "no text has this"), &right, &mut scratch()), Ok(()));
    for word in ["unterbeamten", "日本語", "\u{1e4d0}", "==="] {
        assert!(proof::check(&Faulty(&right, word), &right, &mut scratch()).is_err(), "{word}");
    }
    for wrong in [nfc, reordered, char_bpe(false)] {
        assert!(proof::check(&Faulty(&load(&wrong), "no text has this"), &right, &mut scratch()).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// The result is the same for a damaged file, also if it is an error.
    #[test]
    fn quick_and_complete_loading_agree_on_damaged_files(
        number in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        len in 0usize..12,
        by in prop::sample::select(vec![
            "", " ", ",", "\"", "0", "}", "]", "[", "null", "true", "\"BPE\"", "\"a\"", "\"a\":0,", "\\u0000", "\\", "é",
            "\"unk_token\":\"a\",", "\"ignore_merges\":true,", "\"model\":{},", "1e999",
        ]),
        in_front in any::<bool>(),
        text in tricky(),
    ) {
        let values = [bpe(), char_bpe(false), tiktoken()];
        let mut json = bytes(number.get(&values));
        // Half of the places are in the first 3000 bytes, where most parts other than the model are.
        let places = if in_front { json.len().min(3000) } else { json.len() };
        let at = at.index(places);
        json.splice(at..(at + len).min(places), by.bytes());
        let quick = Tokenizer::from_json(json.clone(), TokenizerOptions::default());
        match (quick, load_complete(&json, TokenizerOptions::default())) {
            (Ok(quick), Ok(whole)) => {
                prop_assert_eq!(quick.info(), whole.info());
                let ids = |tokenizer: &Tokenizer| {
                    let mut ids = Vec::new();
                    tokenizer.encode(&text, &mut tokenizer.scratch(), &mut ids).map(|_| ids)
                };
                prop_assert_eq!(ids(&quick), ids(&whole));
            }
            (Err(quick), Err(whole)) => prop_assert_eq!(quick.to_string(), whole.to_string()),
            (quick, whole) => prop_assert!(false, "{:?} {:?}", quick.err(), whole.err()),
        }
    }
}
