//! Test helpers: small tokenizers of every kind, trained on a page of text.

use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::prelude::*;
use serde_json::{Value, json};
use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::models::unigram::{Unigram, UnigramTrainer};
use tokenizers::models::wordlevel::{WordLevel, WordLevelTrainer};
use tokenizers::models::wordpiece::{WordPiece, WordPieceTrainer};
use tokenizers::normalizers::{BertNormalizer, NormalizerWrapper, Precompiled};
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};
use tokenizers::pre_tokenizers::whitespace::WhitespaceSplit;
use tokenizers::{AddedToken, Model, Tokenizer};

/// Training text of the tokenizers.
pub(crate) const PAGE: &str = "The quick brown fox jumps over the lazy dog; the dog's owner isn't pleased, they've \
    said. Don't I'll we're 1234 5678 90 numbers: 3.14159, 2026-11-20.\n\tdef encode(text):\n        return text\r\n\r\n \
    Größe naïve café über straße. Привет, мир! Это предложение написано по-русски. 日本語のテキスト、中文文本。 한국어 문장. \
    नमस्ते दुनिया. שלום עולם. مرحبا بالعالم. 👩‍👩‍👧 🇫🇷 e\u{301} x\u{0}y \u{a0}\u{2003}\u{200b} the the the and and of of to";

fn trained(tokenizer: Tokenizer, trainer: impl Into<TrainerWrapper>) -> Value {
    let trainer = trainer.into();
    let train = || {
        let (mut tokenizer, mut trainer) = (tokenizer.clone(), trainer.clone());
        tokenizer.train(&mut trainer, std::iter::repeat_n(PAGE, 3)).unwrap();
        tokenizer.to_string(false).unwrap()
    };
    // The trainer of Unigram takes words in the order of a hash map, and with some orders, its suffix array (esaxx-rs
    // 0.1.10) panics.
    let json = (0..10).find_map(|_| catch_unwind(AssertUnwindSafe(train)).ok()).unwrap();
    serde_json::from_str(&json).unwrap()
}

fn special(names: &[&str]) -> Vec<AddedToken> {
    names.iter().map(|n| AddedToken::from(*n, true)).collect()
}

/// Byte-level BPE like GPT-2, with `<|endoftext|>`.
pub(crate) fn bpe() -> Value {
    let mut tokenizer = Tokenizer::new(BPE::default());
    tokenizer.with_pre_tokenizer(Some(ByteLevel::new(false, true, true)));
    let trainer = BpeTrainer::builder()
        .show_progress(false)
        .vocab_size(600)
        .min_frequency(1)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .special_tokens(special(&["<|endoftext|>"]))
        .build();
    trained(tokenizer, trainer)
}

/// [`bpe`] with the split pattern `pattern`.
pub(crate) fn bpe_with_pattern(pattern: &str, ignore_merges: bool) -> Value {
    let mut value = bpe();
    value["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false},
        {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]});
    value["model"]["ignore_merges"] = json!(ignore_merges);
    value
}

/// Character BPE like Llama 2: spaces become `▁`, unknown characters become bytes. With `crosses`, tokens may have
/// spaces in the middle.
pub(crate) fn char_bpe(crosses: bool) -> Value {
    let mut tokenizer = Tokenizer::new(BPE::default());
    tokenizer.with_pre_tokenizer(Some(Metaspace::new('\u{2581}', PrependScheme::Always, !crosses)));
    let trainer = BpeTrainer::builder()
        .show_progress(false)
        .vocab_size(500)
        .min_frequency(1)
        .special_tokens(special(&["<unk>", "<s>", "</s>"]))
        .build();
    let mut value = trained(tokenizer, trainer);
    let vocab = value["model"]["vocab"].as_object_mut().unwrap();
    // Adds byte tokens, and a token for two spaces, which the trainer's merges do not produce.
    let bytes = (0..=255).map(|byte| format!("<0x{byte:02X}>"));
    for token in bytes.chain(["\u{2581}\u{2581}".to_owned()]) {
        let next = vocab.len();
        vocab.entry(token).or_insert(json!(next));
    }
    let merges = value["model"]["merges"].as_array_mut().unwrap();
    merges.push(json!(["\u{2581}", "\u{2581}"]));
    for (name, of) in
        [("byte_fallback", json!(true)), ("fuse_unk", json!(true)), ("unk_token", json!("<unk>"))]
    {
        value["model"][name] = of;
    }
    value["normalizer"] = json!({"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "\u{2581}"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"}]});
    value["pre_tokenizer"] = Value::Null;
    value
}

/// [`char_bpe`] with a Metaspace pre-tokenizer and its prepend scheme `scheme`.
pub(crate) fn char_bpe_with_metaspace(scheme: &str, split: bool, crosses: bool) -> Value {
    let mut value = char_bpe(crosses);
    value["normalizer"] = Value::Null;
    value["pre_tokenizer"] =
        json!({"type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": scheme, "split": split});
    value
}

/// WordPiece like BERT.
pub(crate) fn wordpiece() -> Value {
    let mut tokenizer = Tokenizer::new(WordPiece::builder().build().unwrap());
    tokenizer.with_normalizer(Some(BertNormalizer::default())).unwrap();
    tokenizer.with_pre_tokenizer(Some(BertPreTokenizer));
    let trainer = WordPieceTrainer::builder()
        .show_progress(false)
        .vocab_size(300)
        .special_tokens(special(&["[UNK]", "[CLS]", "[SEP]"]))
        .build();
    let mut value = trained(tokenizer, trainer);
    value["post_processor"] = json!({"type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                   {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [1], "tokens": ["[CLS]"]},
                           "[SEP]": {"id": "[SEP]", "ids": [2], "tokens": ["[SEP]"]}}});
    value
}

/// WordLevel with splits at white space.
pub(crate) fn wordlevel() -> Value {
    let model = WordLevel::builder().unk_token("[UNK]".to_owned()).build().unwrap();
    let mut tokenizer = Tokenizer::new(model);
    tokenizer.with_pre_tokenizer(Some(WhitespaceSplit));
    let mut trainer = WordLevelTrainer::builder();
    trainer.show_progress(false).special_tokens(special(&["[UNK]", "[CLS]", "[SEP]"]));
    trained(tokenizer, trainer.build().unwrap())
}

/// Unigram like T5.
pub(crate) fn unigram() -> Value {
    let mut tokenizer = Tokenizer::new(Unigram::default());
    tokenizer.with_pre_tokenizer(Some(Metaspace::default()));
    let trainer = UnigramTrainer::builder()
        .show_progress(false)
        .vocab_size(300)
        .unk_token(Some("<unk>".to_owned()))
        .special_tokens(special(&["<pad>", "</s>", "<unk>"]))
        .build()
        .unwrap();
    trained(tokenizer, trainer)
}

impl crate::Tokenizer {
    /// Returns whether the reference produces exactly `ids` for `text`; false if it returns an error.
    pub(crate) fn matches_reference(
        &self,
        text: &str,
        ids: impl IntoIterator<Item = u32>,
        scratch: &mut crate::Scratch,
    ) -> bool {
        let mut expected = Vec::new();
        self.encode_reference(text, scratch, &mut expected).is_ok() && ids.into_iter().eq(expected)
    }
}

/// Serializes a tokenizer to its file.
pub(crate) fn bytes(value: &Value) -> Vec<u8> {
    serde_json::to_vec(value).unwrap()
}

/// Adds a token to `added_tokens`. Returns its id: that of the existing token, or else the next free id.
pub(crate) fn add_token(value: &mut Value, content: &str, special: bool, normalized: bool) -> u32 {
    let tokenizer: Tokenizer = serde_json::from_value(value.clone()).unwrap();
    let id = tokenizer.token_to_id(content).unwrap_or_else(|| {
        u32::try_from(tokenizer.get_vocab_size(true).max(tokenizer.get_model().get_vocab_size())).unwrap()
    });
    value["added_tokens"]
        .as_array_mut()
        .unwrap()
        .push(json!({"id": id, "content": content, "single_word": false,
        "lstrip": false, "rstrip": false, "normalized": normalized, "special": special}));
    id
}

/// Returns a `Precompiled` normalizer that replaces each key by its value.
///
/// A SentencePiece character map consists of a byte count, a double array of 32-bit units, and the values, each
/// terminated by a NUL. The lowest byte of a unit is its label, and bit 8 is set if it has a value. From bit 10 on, it
/// contains the number to XOR with its own index to get the index of its children. Child 0 contains the offset of the
/// value.
pub(crate) fn precompiled(map: &[(&str, &str)]) -> Value {
    const BLOCK: usize = 256;
    let mut units = vec![0u32; 2 * BLOCK];
    let mut values = Vec::new();
    units[0] = (BLOCK << 10) as u32;
    for (key, value) in map {
        let mut block = BLOCK;
        for (i, byte) in key.bytes().enumerate() {
            let at = block + byte as usize;
            if units[at] == 0 {
                let child = units.len();
                units.resize(child + BLOCK, 0);
                units[at] = u32::from(byte) | ((at ^ child) << 10) as u32;
            }
            block = at ^ (units[at] >> 10) as usize;
            if i + 1 == key.len() {
                units[at] |= 1 << 8;
                units[block] = values.len() as u32;
            }
        }
        values.extend_from_slice(value.as_bytes());
        values.push(0);
    }
    let mut bytes = (units.len() as u32 * 4).to_le_bytes().to_vec();
    bytes.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
    bytes.extend(values);
    serde_json::to_value(NormalizerWrapper::Precompiled(Precompiled::from(&bytes).unwrap())).unwrap()
}

/// Strategy for texts made of pieces that split patterns, normalizers and models treat differently.
pub(crate) fn tricky() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        " ",
        "  ",
        "   ",
        "\n",
        "\r\n",
        "\t",
        "\u{a0}",
        "\u{2028}",
        "\u{3000}",
        "\u{85}",
        "\u{b}",
        "'",
        "'s",
        "'S",
        "'re",
        "'LL",
        "'ve",
        "'d",
        "'\u{17f}",
        "'\u{212a}",
        "a",
        "Z",
        "é",
        "ſ",
        "я",
        "Σ",
        "語",
        "中",
        "한",
        "ก",
        "\u{e31}",
        "\u{e33}",
        "\u{301}",
        "\u{327}",
        "\u{338}",
        "\u{93c}",
        "क",
        "\u{1100}",
        "\u{1161}",
        "\u{11a8}",
        "\u{212b}",
        "0",
        "12",
        "٣",
        "½",
        "Ⅷ",
        "!",
        "...",
        "-",
        "_",
        "=",
        "👩\u{200d}👧",
        "\u{fe0f}",
        "🇫🇷",
        "\u{200b}",
        "\u{200d}",
        "\u{feff}",
        "\u{0}",
        "\u{ad}",
        "\u{600}",
        "\u{1d173}",
        "\u{1e4d0}",
        "\u{10ec2}",
        "\u{10FFFF}",
        "\u{2581}",
        "the",
        " the",
        " dog",
        "quick",
        " owner",
        "x1",
        "axb",
        "\u{1}",
        "<!dummy-prefix!>",
        "<s>",
        "</s>",
        "[CLS]",
        "[cls]",
        "<|endoftext|>",
        "<|endof",
        "<dog>",
        "Ａ",
        "ing",
        "\u{130}",
        "ß",
    ]);
    prop_oneof![
        8 => prop::collection::vec(pieces, 0..24).prop_map(|v| v.concat()),
        2 => any::<String>(),
        1 => ("[ab \u{e9}]{1,4}", 1usize..200).prop_map(|(word, times)| word.repeat(times)),
    ]
}
