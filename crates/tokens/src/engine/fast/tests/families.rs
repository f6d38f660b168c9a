//! Small tokenizers of every family with a fast engine.

use serde_json::{Value, json};

use crate::engine::fast::split::pattern::{CL100K, DEEPSEEK, O200K, QWEN2, QWEN35, TEKKEN};
use crate::testing::{
    add_token, bpe, bpe_with_pattern, char_bpe, char_bpe_with_metaspace, precompiled, unigram, wordlevel,
    wordpiece,
};

/// `value`, a byte-level BPE tokenizer, without the tokens that contain one of the bytes that `chars` represent.
fn without_bytes(mut value: Value, chars: &str) -> Value {
    let has_gap = |token: &str| token != "<|endoftext|>" && token.contains(|c| chars.contains(c));
    let model = value["model"].as_object_mut().unwrap();
    model["vocab"].as_object_mut().unwrap().retain(|token, _| !has_gap(token));
    let merges = model["merges"].as_array_mut().unwrap();
    merges.retain(|pair| !pair.as_array().unwrap().iter().any(|half| has_gap(half.as_str().unwrap())));
    value
}

/// Byte-level BPE in which some bytes have no token: those of control characters and emoji, carriage return, `x`, and
/// the bytes that never occur.
fn with_gaps() -> Vec<(&'static str, Value)> {
    const GAPS: &str = "\u{100}\u{101}\u{10b}\u{10c}\u{121}\u{c0}\u{c1}\u{f5}\u{ff}\u{f0}\u{10d}x";
    let with = |mut value: Value, settings: Value| {
        value["model"].as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        without_bytes(value, GAPS)
    };
    let never = "\u{c0}\u{c1}\u{f5}\u{f6}\u{f7}\u{f8}\u{f9}\u{fa}\u{fb}\u{fc}\u{fd}\u{fe}\u{ff}";
    // The bytes of the characters that represent them.
    let mut fallback = with(bpe(), json!({"byte_fallback": true, "unk_token": "a", "fuse_unk": true}));
    for byte in [0xc4, 0x80, 0x81, 0x8b, 0x78] {
        let next =
            fallback["model"]["vocab"].as_object().unwrap().values().filter_map(Value::as_u64).max().unwrap()
                + 1;
        fallback["model"]["vocab"][format!("<0x{byte:02X}>")] = json!(next);
    }
    vec![
        ("gaps that never occur", without_bytes(bpe_after(&[digits(true)], true), never)),
        ("gaps dropped", with(bpe_with_pattern(CL100K, false), json!({}))),
        ("gaps of whole words", with(bpe_with_pattern(CL100K, true), json!({"unk_token": "<|endoftext|>"}))),
        ("gaps unknown", with(bpe(), json!({"unk_token": "a", "fuse_unk": false}))),
        ("gaps fused", with(bpe(), json!({"unk_token": "<|endoftext|>", "fuse_unk": true}))),
        ("gaps with fallback", fallback),
        ("gaps at all ends", with(bpe(), json!({"end_of_word_suffix": "</w>"}))),
        ("gaps at ends", with(clip(), json!({"unk_token": "<|endoftext|>"}))),
    ]
}

/// Tokenizers that add a space only at the start of the text, after normalizers that may remove or shorten the start.
pub(super) fn first_after_removal() -> Vec<Value> {
    [
        replace("String", "``", "\""),
        named("StripAccents"),
        named("Nmt"),
        json!({"type": "Strip", "strip_left": true, "strip_right": true}),
    ]
    .map(|normalizer| unigram_after(&[normalizer], metaspace("first")))
    .to_vec()
}

/// [`bpe`] with the pre-tokenizers `steps` before `ByteLevel`.
pub(super) fn bpe_after(steps: &[Value], use_regex: bool) -> Value {
    let mut value = bpe();
    let byte_level =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex});
    let steps: Vec<Value> = steps.iter().cloned().chain([byte_level]).collect();
    value["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": steps});
    value
}

pub(super) fn split(regex: &str, behavior: &str, invert: bool) -> Value {
    json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": invert})
}

pub(super) fn digits(individual: bool) -> Value {
    json!({"type": "Digits", "individual_digits": individual})
}

/// A `Replace` normalizer of this kind.
pub(crate) fn replace(kind: &str, pattern: &str, content: &str) -> Value {
    json!({"type": "Replace", "pattern": {kind: pattern}, "content": content})
}

/// A `Sequence` of normalizers.
pub(crate) fn in_order(steps: &[Value]) -> Value {
    json!({"type": "Sequence", "normalizers": steps})
}

/// `value` with other pre-tokenizers.
pub(super) fn pre_tokenized(mut value: Value, steps: &[Value]) -> Value {
    value["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": steps});
    value
}

fn named(name: &str) -> Value {
    json!({"type": name})
}

/// [`unigram`] with the given normalizers and pre-tokenizer.
fn unigram_after(normalizers: &[Value], pre_tokenizer: Value) -> Value {
    let mut value = unigram();
    value["normalizer"] = in_order(normalizers);
    value["pre_tokenizer"] = pre_tokenizer;
    value
}

fn metaspace(scheme: &str) -> Value {
    json!({"type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": scheme, "split": true})
}

/// Byte-level BPE with an `end_of_word_suffix`, like CLIP.
fn clip() -> Value {
    let mut value = bpe();
    let model = value["model"].as_object_mut().unwrap();
    model["end_of_word_suffix"] = json!("</w>");
    let vocab = model["vocab"].as_object_mut().unwrap();
    // Half of the merges also get a variant for ends of words.
    let tokens: Vec<String> = vocab.keys().cloned().collect();
    for token in tokens {
        let next = vocab.len();
        vocab.insert(format!("{token}</w>"), json!(next));
    }
    let merges = model["merges"].as_array_mut().unwrap();
    let ends: Vec<Value> = merges
        .iter()
        .step_by(2)
        .map(|pair| json!([pair[0], format!("{}</w>", pair[1].as_str().unwrap())]))
        .collect();
    merges.extend(ends);
    value["normalizer"] = in_order(&[named("NFC"), replace("Regex", r"\s+", " "), named("Lowercase")]);
    let pattern = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+";
    let byte_level = value["pre_tokenizer"].take();
    pre_tokenized(value, &[split(pattern, "Removed", true), byte_level])
}

/// Tokenizers for the engine with cached chunks.
fn chunked() -> Vec<(&'static str, Value)> {
    let map = || {
        precompiled(&[
            ("\n", " "),
            ("\t", " "),
            ("½", " 1/2"),
            ("Ａ", "A"),
            ("\u{200b}", ""),
            ("e\u{301}", "é"),
        ])
    };
    let strip = |left: bool| json!({"type": "Strip", "strip_left": left, "strip_right": true});
    let collapse = |content: &str| replace("Regex", " {2,}", content);
    let quotes = || [replace("String", "``", "\""), replace("String", "''", "\"")];
    let [open, close] = quotes();
    let albert =
        [open, close, named("NFKD"), named("StripAccents"), named("Lowercase"), map(), collapse(" ")];
    let xlm_r = |metaspace: Value| json!({"type": "Sequence", "pretokenizers": [named("WhitespaceSplit"), metaspace]});
    let punctuation = |behavior: &str| json!({"type": "Punctuation", "behavior": behavior});
    let in_order_of = |steps: &[Value]| json!({"type": "Sequence", "pretokenizers": steps});
    let by_punctuation = |metaspace: Value| in_order_of(&[punctuation("Isolated"), metaspace]);
    let mut bigbird = char_bpe_with_metaspace("always", true, false);
    bigbird["model"]["byte_fallback"] = json!(false);
    bigbird["normalizer"] = collapse(" ");
    // The same with every unknown character as a token of its own, without an unknown token, and with marked ends.
    let [mut unfused, mut drops, mut marked] = [(); 3].map(|()| bigbird.clone());
    unfused["model"]["fuse_unk"] = json!(false);
    drops["model"]["unk_token"] = Value::Null;
    marked["model"]["end_of_word_suffix"] = json!("</w>");
    for token in ["e", "s", "ing", "語"] {
        let next = marked["model"]["vocab"].as_object().unwrap().len();
        marked["model"]["vocab"][format!("{token}</w>")] = json!(next);
    }
    marked["model"]["merges"].as_array_mut().unwrap().insert(0, json!(["e", "s</w>"]));
    let next = marked["model"]["vocab"].as_object().unwrap().len();
    marked["model"]["vocab"]["es</w>"] = json!(next);
    // The model of the reference encodes words.
    let mut whole_words = bigbird.clone();
    whole_words["model"]["ignore_merges"] = json!(true);
    let mut nllb = bigbird.clone();
    nllb["normalizer"] = in_order(&[map(), collapse(" ")]);
    for token in ["eng_Latn", "kab_Latn", "Ａ_Latn"] {
        add_token(&mut nllb, token, true, true);
    }
    let added = nllb["added_tokens"].as_array_mut().unwrap();
    added.iter_mut().for_each(|token| token["normalized"] = json!(true));
    let mut gpt1 = clip();
    gpt1["normalizer"] = json!({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
        "strip_accents": null, "lowercase": true});
    gpt1["pre_tokenizer"] = named("BertPreTokenizer");
    gpt1["model"]["unk_token"] = json!("<|endoftext|>");
    let mut cleaned = wordpiece();
    cleaned["normalizer"] = in_order(&[named("NFKC"), named("Lowercase"), strip(true)]);
    cleaned["pre_tokenizer"] = named("Whitespace");
    let mut chinese = wordpiece();
    chinese["pre_tokenizer"] = named("WhitespaceSplit");
    let mut lower = wordlevel();
    lower["normalizer"] = in_order(&[named("NFD"), named("Lowercase"), named("StripAccents")]);
    let lower = pre_tokenized(
        lower,
        &[named("Whitespace"), json!({"type": "Punctuation", "behavior": "Contiguous"}), digits(true)],
    );
    let mut other = unigram_after(&[map(), strip(false)], metaspace("always"));
    other["model"]["byte_fallback"] = json!(true);
    // Adds tokens that are searched for in the normalized text.
    let with_tokens = |mut value: Value| {
        for token in ["<Dog>", "quick", "é!", "''"] {
            add_token(&mut value, token, false, true);
        }
        value
    };
    let first = unigram_after(&[map(), collapse(" ")], metaspace("first"));
    vec![
        ("albert with tokens", with_tokens(unigram_after(&albert, metaspace("always")))),
        ("xlmr with tokens", with_tokens(unigram_after(&albert[..4], xlm_r(metaspace("always"))))),
        ("first with tokens", with_tokens(first)),
        ("bert with tokens", with_tokens(wordpiece())),
        ("words with tokens", with_tokens(lower.clone())),
        ("bge-m3", unigram_after(&[map(), strip(false), collapse("\u{2581}")], metaspace("always"))),
        ("deberta", unigram_after(&[strip(true), map(), collapse(" ")], xlm_r(metaspace("always")))),
        (
            "deberta by punctuation",
            unigram_after(&[strip(true), map(), collapse(" ")], by_punctuation(metaspace("always"))),
        ),
        (
            "first cut",
            unigram_after(
                &[map()],
                in_order_of(&[digits(true), punctuation("Contiguous"), metaspace("never")]),
            ),
        ),
        ("cut with tokens", with_tokens(unigram_after(&albert, by_punctuation(metaspace("always"))))),
        ("albert", unigram_after(&albert, xlm_r(metaspace("always")))),
        ("xlnet", unigram_after(&albert[..4], metaspace("always"))),
        ("nmt", unigram_after(&[named("Nmt"), named("NFKC"), collapse(" ")], metaspace("always"))),
        ("unigram first", unigram_after(&[map(), collapse(" ")], metaspace("first"))),
        ("unigram never", unigram_after(&[map()], metaspace("never"))),
        ("no prefix", unigram_after(&[map(), collapse("\u{2581}")], xlm_r(metaspace("never")))),
        ("no fallback", other),
        ("bigbird", bigbird),
        ("bigbird unfused", unfused),
        ("bigbird drops", drops),
        ("bigbird marked", marked),
        ("bigbird whole words", whole_words),
        ("nllb", nllb),
        ("gpt1", gpt1),
        ("cleaned", cleaned),
        ("chinese", chinese),
        ("words", wordlevel()),
        ("lower words", lower),
        ("words and punctuation", pre_tokenized(wordlevel(), &[digits(false), named("BertPreTokenizer")])),
    ]
}

/// Tokenizers with a fast engine, and names for messages.
pub(crate) fn values() -> Vec<(&'static str, Value)> {
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

    let punctuation = |behavior: &str| json!({"type": "Punctuation", "behavior": behavior});
    let mut falcon = bpe_after(&[punctuation("Contiguous")], true);
    let after = [digits(false), split("[0-9][0-9][0-9]", "Isolated", false)];
    falcon["pre_tokenizer"]["pretokenizers"].as_array_mut().unwrap().extend(after);
    let mut lowercase = bpe();
    lowercase["normalizer"] = in_order(&[named("NFKD"), named("StripAccents"), named("Lowercase")]);
    add_token(&mut lowercase, "<Dog>", false, true);

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
    let mut chatglm = replaced(false);
    let dummy = "<!dummy-prefix!>";
    chatglm["normalizer"] = in_order(&[replace("String", dummy, "\u{2581}"), chatglm["normalizer"].take()]);
    chatglm["pre_tokenizer"] =
        json!({"type": "Split", "pattern": {"String": dummy}, "behavior": "MergedWithNext", "invert": false});
    let mut beside_spaces = unigram();
    add_token(&mut beside_spaces, "quick", false, false);
    let mut normalized_tokens = char_bpe(false);
    let mut replaced_tokens = replaced(false);
    let mut metaspace_tokens = char_bpe_with_metaspace("first", false, false);
    for value in [&mut normalized_tokens, &mut replaced_tokens, &mut metaspace_tokens] {
        add_token(value, "<dog>", false, true);
        add_token(value, " owner", false, true);
        add_token(value, "\u{2581}the", false, true);
    }
    let mut first = char_bpe_with_metaspace("first", false, false);
    add_token(&mut first, "<dog>", false, false);
    let mut first_across = char_bpe_with_metaspace("first", false, false);
    add_token(&mut first_across, "dog", false, false);

    let deepseek = DEEPSEEK.map(|regex| split(regex, "Isolated", false));

    let mut tokenizers = vec![
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
        ("starcoder", bpe_after(&[digits(true)], true)),
        ("refact", bpe_after(&[split(r"\p{N}", "Isolated", false)], true)),
        ("runs of digits", bpe_after(&[digits(false)], true)),
        ("deepseek", bpe_after(&deepseek, false)),
        ("bloom", bpe_after(&[split(r" ?[^(\s|[.,!?…。，、।۔،])]+", "Isolated", false)], false)),
        ("words alone", bpe_after(&[split(r"\w+", "Removed", true), digits(true)], false)),
        ("all but words", bpe_after(&[split(r"\w+", "Removed", false)], true)),
        ("not split", bpe_after(&[], false)),
        ("punctuation", bpe_after(&[punctuation("Isolated")], true)),
        ("falcon", falcon),
        ("clip", clip()),
        ("lowercase", lowercase),
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
        ("chatglm", chatglm),
        ("first", first),
        ("first across", first_across),
        ("normalized tokens", normalized_tokens),
        ("replaced tokens", replaced_tokens),
        ("metaspace tokens", metaspace_tokens),
        ("never", char_bpe_with_metaspace("never", false, false)),
        ("always", char_bpe_with_metaspace("always", true, false)),
        ("spaces inside", char_bpe(true)),
        ("spaces inside and replaced", replaced(true)),
        ("spaces inside but split", char_bpe_with_metaspace("always", true, true)),
    ];
    tokenizers.extend(chunked());
    tokenizers.extend(with_gaps());
    tokenizers
}
