//! Conversion of tiktoken files to `tokenizer.json`.

mod encodings;
mod ranks;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};

pub use self::encodings::{RankFile, TiktokenEncoding};
use self::ranks::Ranks;
use crate::engine::fast::bpe::byte_alphabet;
use crate::error::LoadError;
use crate::tokenizer_json::{BpeModel, TokenizerJson};

/// Converts a tiktoken `file` to a `tokenizer.json` for [`Tokenizer::from_json`](crate::Tokenizer::from_json).
/// `encoding` provides what the file does not contain. The file lists tokens in Base64, or has the format
/// [`TiktokenEncoding::file`].
///
/// The ids are those of `encode_ordinary` in the package `tiktoken`. With
/// [`SpecialInText::Parse`](crate::SpecialInText::Parse), they are those of `encode` with all special tokens allowed.
///
/// # Errors
///
/// If the file is not a rank file, if it contains the id or the string of a special token of the encoding, or if no
/// list of merges produces exactly its ids. The last does not happen with ranks that were trained.
pub fn tiktoken_to_json(file: &[u8], encoding: &TiktokenEncoding) -> Result<Vec<u8>, LoadError> {
    convert(file, encoding).map_err(LoadError::UnusableRanks)
}

/// Returns whether `file` starts like a file of tokens in Base64 and their ranks.
pub fn is_rank_file(file: &[u8]) -> bool {
    let line = file.split(|&byte| byte == b'\n').next().unwrap_or_default();
    line.len() < 1 << 13 && ranks::base64_line(line.trim_ascii()).is_some()
}

fn convert(file: &[u8], encoding: &TiktokenEncoding) -> Result<Vec<u8>, String> {
    let kind = if is_rank_file(file) { RankFile::Base64 } else { encoding.file };
    let ranks = Ranks::read(file, kind)?;
    let alphabet = byte_alphabet();
    let printable =
        |token: &[u8]| -> String { token.iter().map(|byte| alphabet[usize::from(*byte)]).collect() };
    let mut vocab: Vec<(String, u32)> =
        ranks.tokens.iter().map(|(token, rank)| (printable(token), *rank)).collect();
    let mut added_tokens = Vec::new();
    for (token, id) in encoding.special_tokens {
        // `vocab` is still sorted by rank here.
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
    // Special tokens are also added to the vocabulary, because the reference numbers other added tokens itself.
    vocab.extend(encoding.special_tokens.iter().map(|(token, id)| ((*token).to_owned(), *id)));
    vocab.sort_by_key(|(_, id)| *id);
    let merges = ranks.merges()?.into_iter().map(|(left, right)| (printable(left), printable(right)));
    let file = TokenizerJson {
        version: "1.0",
        truncation: None,
        padding: None,
        added_tokens,
        normalizer: Value::Null,
        pre_tokenizer: json!({"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern(encoding, &ranks)}, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]}),
        post_processor: None,
        decoder: json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}),
        model: BpeModel {
            // Like tiktoken, look up whole words before merging.
            ignore_merges: true,
            merges: merges.collect(),
            vocab,
            ..BpeModel::default()
        },
    };
    serde_json::to_vec(&file).map_err(|e| format!("the tokenizer.json cannot be written: {e}"))
}

/// Returns the usual pattern if it produces the same ids, because the fast engines support it; otherwise tiktoken's
/// pattern, in the syntax of Oniguruma.
///
/// At the end of a text, the usual pattern may split white space after its last line break. That changes no ids unless
/// a token contains white space after a line break.
fn pattern(encoding: &TiktokenEncoding, ranks: &Ranks) -> String {
    let pattern = encoding.pattern;
    let starts_space =
        |byte: u8| matches!(byte, b' ' | b'\t' | 0x0b | 0x0c | 0x1c..=0x1f | 0xc2 | 0xe1..=0xe3);
    let crosses = |(token, _): &(Vec<u8>, u32)| {
        token.windows(2).any(|two| matches!(two[0], b'\r' | b'\n') && starts_space(two[1]))
    };
    match pattern.splits_final_white_space && ranks.tokens.iter().any(crosses) {
        // In Oniguruma, `{1,3}+` repeats what `{1,3}` matches, and `$` also matches before a line end.
        true => pattern.tiktoken.replace("{1,3}+", "{1,3}").replace('$', r"\z"),
        false => pattern.usual.to_owned(),
    }
}
