//! Vocabulary of a `tokenizer.json`: decodes token ids to the bytes of their text.
//!
//! Decoding needs only the strings of the file, so no tokenizer engine is loaded. Each token is decoded separately, as
//! the part of the text that it covers. Decoder steps that work across tokens (clean-up of spaces, joining of byte
//! tokens) are left out.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::reader::Dataset;
use crate::tokenizer_files::stored_tokenizer;

/// How the string of a token encodes its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Scheme {
    /// Every id is a byte.
    Bytes,
    /// Every character stands for a byte, as in GPT-2.
    ByteLevel,
    /// `▁` is a space; `<0x0A>` is a byte.
    Metaspace,
    /// Pieces that continue a word start with this prefix.
    Continuing(String),
    /// Pieces that end a word end with this suffix.
    Ending(String),
    /// The string is the text.
    Plain,
}

/// A token in the form in which it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownToken {
    /// Bytes of the token's text, or the name of a special token.
    pub bytes: Vec<u8>,
    /// Whether it is a special token, which represents no text.
    pub special: bool,
}

/// The tokens of a tokenizer by id.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    scheme: Scheme,
    tokens: HashMap<u32, String>,
    added: HashMap<u32, (String, bool)>,
}

#[derive(Deserialize)]
struct TokenizerJson {
    model: TokenizerModel,
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
    #[serde(default)]
    decoder: Value,
    #[serde(default)]
    pre_tokenizer: Value,
}

#[derive(Deserialize)]
struct TokenizerModel {
    vocab: Vocab,
    #[serde(default)]
    continuing_subword_prefix: Option<String>,
    #[serde(default)]
    end_of_word_suffix: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Vocab {
    Ids(HashMap<String, u32>),
    /// Unigram: the index in the list is the id.
    Scores(Vec<(String, f64)>),
}

#[derive(Deserialize)]
struct AddedToken {
    id: u32,
    content: String,
    #[serde(default)]
    special: bool,
}

impl Vocabulary {
    /// Returns the vocabulary of bytes: every byte is its own id, 256 is BOS and 257 is EOS.
    pub(crate) fn bytes() -> Self {
        let ends = [(256, ("<bos>".to_owned(), true)), (257, ("<eos>".to_owned(), true))];
        Self { scheme: Scheme::Bytes, tokens: HashMap::new(), added: HashMap::from(ends) }
    }

    /// Reads the vocabulary of a `tokenizer.json`.
    pub(crate) fn from_json(json: &[u8]) -> Result<Self> {
        let file: TokenizerJson = serde_json::from_slice(json)
            .map_err(|e| Error::usage("cannot read the vocabulary of the tokenizer.json").caused_by(e))?;
        let scheme = scheme(&file);
        let tokens = match file.model.vocab {
            Vocab::Ids(ids) => ids.into_iter().map(|(token, id)| (id, token)).collect(),
            Vocab::Scores(scores) => (0..).zip(scores).map(|(id, (token, _))| (id, token)).collect(),
        };
        let added = file.added_tokens.into_iter().map(|a| (a.id, (a.content, a.special))).collect();
        Ok(Self { scheme, tokens, added })
    }

    /// Returns the vocabulary of the tokenizer that made the ids of `dataset`. It is read from `given`, the bytes of a
    /// `tokenizer.json`, or else from the dataset. The inner error is the reason why there is no usable vocabulary.
    ///
    /// # Errors
    ///
    /// If `given` is not the tokenizer that made the ids, or if they are bytes.
    pub(crate) fn of(dataset: &Dataset, given: Option<&[u8]>) -> Result<Result<Self, String>> {
        let manifest = dataset.manifest();
        let member = |name: &str| manifest.tokenizer.as_ref()?.get(name)?.as_str();
        if member("model") == Some(crate::transform::text::BYTES) {
            return match given {
                None => Ok(Ok(Self::bytes())),
                Some(_) => Err(Error::usage(
                    "the ids of this dataset are bytes, and were made without a tokenizer.json",
                )
                .help("leave out `tokenizer`")),
            };
        }
        let expected = member("sha256");
        let is_expected = |json: &[u8]| expected == Some(crate::storage::hex(&Sha256::digest(json)).as_str());
        if let Some(json) = given {
            return match is_expected(json) {
                true => Ok(Ok(Self::from_json(json)?)),
                false => Err(Error::usage("the tokenizer is not the one that made the ids of this dataset")
                    .help(match expected {
                        Some(sha256) => format!("its SHA-256 must be {sha256}"),
                        None => "the manifest does not record the SHA-256 of its tokenizer".to_owned(),
                    })),
            };
        }
        let read = || -> Result<Option<Self>> {
            let Some(json) = stored_tokenizer(dataset)? else { return Ok(None) };
            if !is_expected(&json) {
                return Err(Error::corrupt(
                    "the tokenizer.json of the dataset is not the one that made its ids",
                ));
            }
            Self::from_json(&json).map(Some)
        };
        Ok(match read() {
            Ok(Some(vocabulary)) => Ok(vocabulary),
            Ok(None) => {
                Err("the dataset does not contain its tokenizer; name the file with `tokenizer`".to_owned())
            }
            Err(error) => Err(format!("{error}; if you have a copy of the file, name it with `tokenizer`")),
        })
    }

    /// Decodes `ids` to text, with the names of special tokens. An id that is not in the vocabulary becomes `<7>`.
    pub(crate) fn text(&self, ids: impl Iterator<Item = u32>) -> String {
        let mut bytes = Vec::new();
        for id in ids {
            match self.token(id) {
                Some(token) => bytes.extend_from_slice(&token.bytes),
                None => bytes.extend_from_slice(format!("<{id}>").as_bytes()),
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns the id of the token with the string `name`, as the tokenizer file has it.
    pub(crate) fn id_of(&self, name: &str) -> Option<u32> {
        let added = self.added.iter().find(|(_, (content, _))| content == name).map(|(id, _)| *id);
        added.or_else(|| self.tokens.iter().find(|(_, token)| *token == name).map(|(id, _)| *id))
    }

    /// Returns whether `id` is an added token, such as the end of a turn.
    pub(crate) fn is_added(&self, id: u32) -> bool {
        self.added.contains_key(&id)
    }

    /// Returns whether `id` is a special token.
    pub(crate) fn is_special(&self, id: u32) -> bool {
        self.added.get(&id).is_some_and(|(_, special)| *special)
    }

    /// Returns whether the text of `id` is white space.
    pub(crate) fn is_white_space(&self, id: u32) -> bool {
        self.token(id).is_some_and(|token| !token.special && token.bytes.trim_ascii().is_empty())
    }

    /// Returns the text of `id`, or `None` if it is not in the vocabulary.
    pub(super) fn token(&self, id: u32) -> Option<ShownToken> {
        if let Some((content, special)) = self.added.get(&id) {
            return Some(ShownToken { bytes: content.clone().into_bytes(), special: *special });
        }
        let text = |bytes| Some(ShownToken { bytes, special: false });
        if self.scheme == Scheme::Bytes {
            return text(vec![u8::try_from(id).ok()?]);
        }
        let token = self.tokens.get(&id)?;
        text(match &self.scheme {
            Scheme::ByteLevel => {
                let bytes: Option<Vec<u8>> = token.chars().map(byte_of).collect();
                bytes.unwrap_or_else(|| token.clone().into_bytes())
            }
            Scheme::Metaspace => match byte_token(token) {
                Some(byte) => vec![byte],
                None => token.replace('▁', " ").into_bytes(),
            },
            Scheme::Continuing(prefix) => match token.strip_prefix(prefix.as_str()) {
                Some(rest) => rest.as_bytes().to_vec(),
                None => format!(" {token}").into_bytes(),
            },
            Scheme::Ending(suffix) => match token.strip_suffix(suffix.as_str()) {
                Some(word) => format!("{word} ").into_bytes(),
                None => token.clone().into_bytes(),
            },
            Scheme::Bytes | Scheme::Plain => token.clone().into_bytes(),
        })
    }
}

/// Returns the type of a decoder or pre-tokenizer, or the types of the members of a sequence.
fn types(part: &Value) -> Vec<&str> {
    let inner = ["decoders", "pretokenizers"].iter().find_map(|name| part.get(name)?.as_array());
    let parts = inner.map_or_else(|| std::slice::from_ref(part), Vec::as_slice);
    parts.iter().filter_map(|part| part.get("type")?.as_str()).collect()
}

fn scheme(file: &TokenizerJson) -> Scheme {
    let (decoder, pre_tokenizer) = (types(&file.decoder), types(&file.pre_tokenizer));
    let either = |name: &str| decoder.contains(&name) || pre_tokenizer.contains(&name);
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    if either("ByteLevel") {
        Scheme::ByteLevel
    } else if either("Metaspace") || decoder.contains(&"ByteFallback") || decoder.contains(&"Replace") {
        Scheme::Metaspace
    } else if decoder.contains(&"WordPiece") || given(&file.model.continuing_subword_prefix).is_some() {
        let prefix = file.decoder.get("prefix").and_then(Value::as_str).map(str::to_owned);
        Scheme::Continuing(
            given(&prefix)
                .or_else(|| given(&file.model.continuing_subword_prefix))
                .unwrap_or_else(|| "##".to_owned()),
        )
    } else if let Some(suffix) = given(&file.model.end_of_word_suffix) {
        Scheme::Ending(suffix)
    } else {
        Scheme::Plain
    }
}

/// Returns the byte of `c` in byte-level vocabularies: printable bytes stand for themselves, and the others are
/// numbered from U+0100.
fn byte_of(c: char) -> Option<u8> {
    let is_printable = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    match u32::from(c) {
        code @ 0..=0xff => u8::try_from(code).ok().filter(|b| is_printable(*b)),
        code => (0..=u8::MAX).filter(|b| !is_printable(*b)).nth(usize::try_from(code - 0x100).ok()?),
    }
}

/// Parses a byte token such as `<0x0A>`.
fn byte_token(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() == 2 { u8::from_str_radix(digits, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vocabulary(value: &Value) -> Vocabulary {
        Vocabulary::from_json(value.to_string().as_bytes()).unwrap()
    }

    fn text(vocabulary: &Vocabulary, ids: &[u32]) -> String {
        let bytes: Vec<u8> = ids.iter().flat_map(|id| vocabulary.token(*id).unwrap().bytes).collect();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn each_scheme_decodes_to_the_text() {
        let byte_level = vocabulary(&json!({
            "model": {"type": "BPE", "vocab": {"Hi": 0, "Ġyou": 1, "Ċ": 2, "Ã": 3, "¤": 4}},
            "added_tokens": [{"id": 9, "content": "<|end|>", "special": true}],
            "decoder": {"type": "ByteLevel"},
        }));
        assert_eq!(text(&byte_level, &[0, 1, 2, 3, 4]), "Hi you\nä");
        assert_eq!(byte_level.token(9), Some(ShownToken { bytes: b"<|end|>".to_vec(), special: true }));
        assert_eq!(byte_level.token(77), None);
        assert_eq!(byte_level.text([0, 9, 77, 1].into_iter()), "Hi<|end|><77> you");

        let metaspace = vocabulary(&json!({
            "model": {"type": "Unigram", "vocab": [["<unk>", 0.0], ["▁a", -1.0], ["<0xC3>", -2.0], ["<0xA4>", -2.0]]},
            "decoder": {"type": "Sequence", "decoders": [{"type": "Replace"}, {"type": "ByteFallback"}]},
        }));
        assert_eq!(text(&metaspace, &[1, 2, 3]), " aä");

        let word_piece = vocabulary(&json!({
            "model": {"type": "WordPiece", "vocab": {"play": 0, "##ing": 1}, "continuing_subword_prefix": "##"},
        }));
        assert_eq!(text(&word_piece, &[0, 1]), " playing");

        let ending = vocabulary(&json!({
            "model": {"type": "BPE", "vocab": {"lo": 0, "w</w>": 1}, "end_of_word_suffix": "</w>"},
        }));
        assert_eq!(text(&ending, &[0, 1]), "low ");
        assert_eq!(text(&Vocabulary::bytes(), &[0xc3, 0xa4]), "ä");
        assert_eq!(Vocabulary::bytes().token(300), None);
    }

    #[test]
    fn every_byte_has_one_character() {
        let mut bytes: Vec<u8> = (0..0x200).filter_map(char::from_u32).filter_map(byte_of).collect();
        bytes.sort_unstable();
        assert!(bytes.into_iter().eq(0..=u8::MAX));
        assert_eq!((byte_of('Ġ'), byte_of('Ċ'), byte_of('Ń')), (Some(b' '), Some(b'\n'), Some(0xad)));
    }

    #[test]
    fn other_json_is_rejected() {
        for json in ["", "{}", "[]", r#"{"model": {"vocab": 7}}"#] {
            assert!(Vocabulary::from_json(json.as_bytes()).is_err(), "{json}");
        }
    }
}
