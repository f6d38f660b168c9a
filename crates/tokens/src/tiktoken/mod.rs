//! Files of tiktoken as `tokenizer.json`.

mod encodings;
mod ranks;
#[cfg(test)]
mod tests;

use serde::Serialize;
use serde_json::{Value, json};

pub use self::encodings::{RankFile, TiktokenEncoding};
use self::ranks::Ranks;
use crate::bpe_model::BpeModel;
use crate::error::LoadError;

/// The bytes of a `tokenizer.json` for a tiktoken `file`, for [`Tokenizer::from_json`](crate::Tokenizer::from_json). `encoding` has what
/// the file does not say; the file is one of tokens in Base64, or as [`TiktokenEncoding::file`] says.
///
/// The ids are those of `encode_ordinary` of the package `tiktoken`. With
/// [`SpecialInText::Parse`](crate::SpecialInText::Parse), they are those of `encode` with all special tokens allowed.
///
/// # Errors
///
/// The file is not one of ranks, it has an id that the encoding gives to a special token, or no list of merges has exactly its ids,
/// which does not happen to ranks that were trained.
pub fn tiktoken_to_json(file: &[u8], encoding: &TiktokenEncoding) -> Result<Vec<u8>, LoadError> {
    convert(file, encoding).map_err(LoadError::UnusableRanks)
}

/// Whether `file` begins like a file of tokens in Base64 and their ranks.
pub fn is_rank_file(file: &[u8]) -> bool {
    let line = file.split(|&byte| byte == b'\n').next().unwrap_or_default();
    line.len() < 1 << 13 && ranks::base64_line(line.trim_ascii()).is_some()
}

fn convert(file: &[u8], encoding: &TiktokenEncoding) -> Result<Vec<u8>, String> {
    let kind = if is_rank_file(file) { RankFile::Base64 } else { encoding.file };
    let ranks = Ranks::read(file, kind)?;
    let mut vocab: Vec<(String, u32)> =
        ranks.tokens().iter().map(|(token, rank)| (printable(token), *rank)).collect();
    let mut added_tokens = Vec::new();
    for (token, id) in encoding.special_tokens {
        // Sorted so far, by rank.
        if vocab.binary_search_by_key(id, |(_, id)| *id).is_ok() {
            let name = encoding.name;
            return Err(format!("it has a token of rank {id}, which is {token} in {name}"));
        }
        if vocab.iter().any(|(other, _)| other == token) {
            return Err(format!("it has the special token {token}"));
        }
        added_tokens.push(json!({"id": id, "content": token, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": true}));
    }
    // In the vocabulary, too: the reference numbers other added tokens itself.
    vocab.extend(encoding.special_tokens.iter().map(|(token, id)| ((*token).to_owned(), *id)));
    vocab.sort_by_key(|(_, id)| *id);
    let merges = ranks.merges()?.into_iter().map(|(left, right)| (printable(left), printable(right)));
    let file = File {
        version: "1.0",
        truncation: None,
        padding: None,
        added_tokens,
        normalizer: None,
        pre_tokenizer: json!({"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern(encoding, &ranks)}, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]}),
        post_processor: None,
        decoder: json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}),
        model: BpeModel {
            dropout: None,
            unk_token: None,
            continuing_subword_prefix: None,
            end_of_word_suffix: None,
            fuse_unk: false,
            byte_fallback: false,
            // tiktoken, too, looks a whole word up before it merges.
            ignore_merges: true,
            merges: merges.collect(),
            vocab,
        },
    };
    serde_json::to_vec(&file).map_err(|e| format!("the tokenizer.json cannot be written: {e}"))
}

#[derive(Serialize)]
struct File {
    version: &'static str,
    truncation: Option<()>,
    padding: Option<()>,
    added_tokens: Vec<Value>,
    normalizer: Option<()>,
    pre_tokenizer: Value,
    post_processor: Option<()>,
    decoder: Value,
    model: BpeModel<String>,
}

/// The usual pattern where it makes the same ids, because the fast engines know it; otherwise that of tiktoken.
///
/// At the end of a text, the usual pattern may divide white space after its last line break. That changes no ids unless a token has
/// white space after a line break.
fn pattern(encoding: &TiktokenEncoding, ranks: &Ranks) -> &'static str {
    let pattern = encoding.pattern;
    let begins_space =
        |byte: u8| matches!(byte, b' ' | b'\t' | 0x0b | 0x0c | 0x1c..=0x1f | 0xc2 | 0xe1..=0xe3);
    let crosses = |(token, _): &(Vec<u8>, u32)| {
        token.windows(2).any(|two| matches!(two[0], b'\r' | b'\n') && begins_space(two[1]))
    };
    match pattern.is_split_at_the_end && ranks.tokens().iter().any(crosses) {
        true => pattern.tiktoken,
        false => pattern.usual,
    }
}

/// The bytes of a token as a `tokenizer.json` writes them.
fn printable(token: &[u8]) -> String {
    token.iter().map(|byte| byte_char(*byte)).collect()
}

/// The printable character that encodes a byte: itself, or, where that is white space or invisible, one from U+0100 on.
fn byte_char(byte: u8) -> char {
    let is_printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    match is_printable(byte) {
        true => char::from(byte),
        false => {
            let before = (0..byte).filter(|&other| !is_printable(other)).count() as u32;
            char::from_u32(0x100 + before).unwrap_or(char::REPLACEMENT_CHARACTER)
        }
    }
}
