//! Tests of the conversion of tiktoken files.

use super::*;
use crate::options::TokenizerOptions;
use crate::tokenizer::Tokenizer;

/// A rank file with all single bytes, then `tokens`.
fn file(tokens: &[&str]) -> Vec<u8> {
    use base64::Engine as _;
    let bytes = (0..=255u8).map(|byte| vec![byte]);
    let all = bytes.chain(tokens.iter().map(|token| token.as_bytes().to_vec()));
    let line = |(rank, token): (usize, Vec<u8>)| {
        format!("{} {rank}\n", base64::engine::general_purpose::STANDARD.encode(token))
    };
    all.enumerate().map(line).collect::<String>().into_bytes()
}

fn cl100k() -> &'static TiktokenEncoding {
    TiktokenEncoding::named("cl100k_base").unwrap()
}

fn ids(tokens: &[&str], text: &str) -> Vec<u32> {
    let json = tiktoken_to_json(&file(tokens), cl100k()).unwrap();
    let tokenizer = Tokenizer::from_json(json, TokenizerOptions::default()).unwrap();
    let mut ids = Vec::new();
    tokenizer.encode(text, &mut tokenizer.scratch(), &mut ids).unwrap();
    ids
}

#[test]
fn tokens_are_merged_by_rank_and_found_as_whole_words() {
    assert_eq!(ids(&["ab", "abc", "bc"], "abc bc"), [257, 32, 258]);
    // "xyz" is not the concatenation of two tokens, so it is only produced for a word that is exactly "xyz".
    assert_eq!(ids(&["xyz"], "xyz wxyz"), [256, 32, 119, 120, 121, 122]);
    assert_eq!(ids(&["ab"], "<|endoftext|>").len(), "<|endoftext|>".len());
}

#[test]
fn ranks_without_equivalent_merges_are_refused() {
    // "abc" can only be merged from "a" and "bc", but its rank is lower than that of "bc": tiktoken produces it after
    // "bc".
    let error = tiktoken_to_json(&file(&["abc", "bc"]), cl100k()).unwrap_err();
    assert!(error.to_string().contains("the token of rank 256 can be merged, but not by"), "{error}");
    assert!(tiktoken_to_json(&file(&["bc", "abc"]), cl100k()).is_ok());
}

#[test]
fn damaged_files_are_refused_with_the_reason() {
    for (damaged, why) in [
        (b"YQ== 0\nnonsense\n".to_vec(), "line 2 is not a token in Base64 and a rank"),
        (b"YQ== 0\n".to_vec(), "no token is the single byte 0x00"),
        ([file(&[]), b"YQ== 300\n".to_vec()].concat(), "the ranks 97 and 300 are of the same token"),
        ([file(&[]), b"YWI= 97\n".to_vec()].concat(), "two tokens have the rank 97"),
        (
            [file(&[]), b"YWI= 100257\n".to_vec()].concat(),
            "it has a token of rank 100257, which is <|endoftext|> in cl",
        ),
    ] {
        let error = tiktoken_to_json(&damaged, cl100k()).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn special_tokens_keep_their_ids_and_eos_is_detected() {
    let json = tiktoken_to_json(&file(&["ab"]), cl100k()).unwrap();
    let options = TokenizerOptions { add_eos: true, ..TokenizerOptions::default() };
    let tokenizer = Tokenizer::from_json(json, options).unwrap();
    assert_eq!(tokenizer.info().eos.as_ref().map(|token| token.id), Some(100_257));
    assert_eq!(tokenizer.info().max_id, 100_276);
    assert_eq!(tokenizer.info().engine_note, None);
}

#[test]
fn the_usual_pattern_is_used_unless_a_token_crosses_the_end_of_a_line() {
    let pattern_of =
        |tokens: &[&str]| pattern(cl100k(), &Ranks::read(&file(tokens), RankFile::Base64).unwrap());
    assert_eq!(pattern_of(&["\n\n", " \n"]), cl100k().pattern.usual);
    assert_eq!(
        pattern_of(&["\n "]),
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++\z|\s*[\r\n]|\s+(?!\S)|\s"
    );
    assert_eq!(ids(&["\n "], "a\n "), [97, 256]);
}

#[test]
fn the_merges_of_gpt_2_are_ranks() {
    let tokens =
        Ranks::read("#version: 0.2\n\u{120} t\nh e\n\u{120}t he\n".as_bytes(), RankFile::VocabBpe).unwrap();
    let last: Vec<_> = tokens.tokens[255..].iter().map(|(token, rank)| (token.as_slice(), *rank)).collect();
    assert_eq!(last, [(&[0xad][..], 255), (b" t", 256), (b"he", 257), (b" the", 258)]);
    assert_eq!(tokens.tokens[0].0, b"!");
}
