//! Files called `tokenizer.json`.

use dsconvert::transform::text::{Tokenizer, TokenizerOptions};
use serde_json::json;

use super::{Input, Target, Verdict, files, fixture};
use crate::Result;

/// Texts that every loaded tokenizer encodes.
const TEXTS: [&str; 4] = [
    "",
    "Hello, world! It's 2024 – naïve café.\n\n  def f(x):\n\treturn x ** 2\r\n",
    "東京 日本語 한국어 नमस्ते עִבְרִית \u{1f9d1}\u{200d}\u{1f680} \u{0301}\u{fffd}",
    "<s></s><unk>[CLS][SEP]<|endoftext|> aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
];

pub(super) struct Tokenizers {
    inputs: Vec<Input>,
}

impl Tokenizers {
    pub(super) fn new() -> Result<Self> {
        let mut inputs = files(&fixture("tokenizers"))?;
        // Small tokenizers take less time, and a mutation is more likely to matter.
        for i in 0..3 {
            inputs
                .insert(0, Input { name: format!("tiny-{i}.json"), bytes: tiny(i).to_string().into_bytes() });
        }
        Ok(Self { inputs })
    }
}

fn tiny(kind: usize) -> serde_json::Value {
    let pieces =
        ["<unk>", "h", "e", "l", "o", "w", "r", "d", " ", "he", "ll", "hell", "hello", "##lo", "▁w", "▁"];
    let vocab: serde_json::Map<_, _> =
        pieces.iter().enumerate().map(|(i, p)| ((*p).to_owned(), json!(i))).collect();
    let added = json!([{ "id": 16, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": true }]);
    let model = match kind {
        0 => json!({ "type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocab, "merges": [["h", "e"], ["l", "l"], ["he", "ll"], ["hell", "o"]] }),
        1 => json!({ "type": "WordPiece", "unk_token": "<unk>", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": vocab }),
        _ => json!({ "type": "Unigram", "unk_id": 0, "byte_fallback": false,
            "vocab": pieces.iter().enumerate().map(|(i, p)| json!([p, -(i as f64)])).collect::<Vec<_>>() }),
    };
    let (normalizer, splitter) = match kind {
        0 => (
            json!({ "type": "NFC" }),
            json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
            "use_regex": true }),
        ),
        1 => (
            json!({ "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
            "strip_accents": null, "lowercase": true }),
            json!({ "type": "BertPreTokenizer" }),
        ),
        _ => (
            json!({ "type": "NFKC" }),
            json!({ "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always",
            "split": true }),
        ),
    };
    json!({ "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": normalizer,
        "pre_tokenizer": splitter, "post_processor": null, "decoder": null, "model": model })
}

impl Target for Tokenizers {
    fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    /// Ids are wrong if they exceed the largest reported id, or differ from those of the reference engine.
    fn check(&mut self, _input: usize, bytes: &[u8]) -> Verdict {
        let Ok(tokenizer) = Tokenizer::from_json(bytes.to_vec(), TokenizerOptions::default()) else {
            return Verdict::Refused;
        };
        let (mut scratch, mut ids, mut reference) = (tokenizer.scratch(), Vec::new(), Vec::new());
        for text in TEXTS {
            ids.clear();
            reference.clear();
            let fast = tokenizer.encode(text, &mut scratch, &mut ids);
            let slow = tokenizer.encode_reference(text, &mut scratch, &mut reference);
            match (fast, slow) {
                (Ok(_), Ok(_)) if ids != reference => {
                    return Verdict::Wrong(format!("the engines give different ids for {text:?}"));
                }
                (Ok(_), Ok(_)) | (Err(_), Err(_)) => {}
                _ => return Verdict::Wrong(format!("one engine rejects {text:?}")),
            }
            if ids.iter().any(|&id| id > tokenizer.info().max_id) {
                return Verdict::Wrong(format!("an id above the largest for {text:?}"));
            }
        }
        Verdict::Accepted
    }
}
