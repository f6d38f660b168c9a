//! BPE of words over characters, for models in which a character may have no token (BigBird, NLLB, GPT-1).

use super::char_tokens::CharTokens;
use super::merges::{Merges, NO_TOKEN, Symbols};
use super::unknown::{SymbolWriter, Unk};
use crate::bpe_file::ParsedBpe;
use crate::error::EncodeError;

/// A BPE model without byte fallback, whose initial symbols are the characters of a word.
pub(super) struct WordBpe {
    inner: CharTokens,
    /// The tokens of the last character of a word, if the model has an `end_of_word_suffix`.
    last: Option<CharTokens>,
    unk: Unk,
    merges: Merges,
}

impl WordBpe {
    /// Creates a model from the one in a `tokenizer.json`, which has no byte fallback, no `continuing_subword_prefix`
    /// and no `ignore_merges`. The error states why it is not supported.
    pub(super) fn new(model: &ParsedBpe) -> Result<Self, String> {
        let ParsedBpe { vocab, settings, .. } = model;
        let unk = Unk::new(model)?;
        let mut merges = Merges::new(model)?;
        // The string of the unknown token has more characters than symbols, and so do strings with a suffix.
        merges.forget_lengths();
        let suffix = settings.end_of_word_suffix.as_deref().unwrap_or_default();
        let last = (!suffix.is_empty()).then(|| CharTokens::new(vocab, suffix));
        Ok(Self { inner: CharTokens::new(vocab, ""), last, unk, merges })
    }

    /// Appends the ids of `word`.
    pub(super) fn encode(&self, word: &str, out: &mut Vec<u32>) -> Result<(), EncodeError> {
        self.merges.merge_word(self, word, out)
    }
}

impl Symbols for WordBpe {
    fn symbols(&self, word: &str, mut each: impl FnMut(u32)) {
        let mut symbols = SymbolWriter::new(self.unk, &mut each);
        let mut chars = word.chars();
        while let Some(char) = chars.next() {
            let tokens = match &self.last {
                Some(last) if chars.as_str().is_empty() => last,
                _ => &self.inner,
            };
            match tokens.get(char) {
                NO_TOKEN => symbols.unknown(),
                token => symbols.token(token),
            }
        }
        symbols.finish();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokenizers::Model;

    use super::*;
    use crate::engine::fast::merges::vocabulary;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2048))]

        /// Merges may join the unknown token, and produce strings with and without the suffix.
        #[test]
        fn words_have_the_ids_of_the_reference(
            rules in prop::collection::vec(("([abé<]|<u>|)[abé]{0,3}", "([abé]{0,3}|<u>)(</w>|[abé]|[u>]{1,2})"), 0..80),
            unk in prop::sample::select(vec![None, Some("<u>"), Some("a")]),
            fuse_unk: Option<bool>,
            is_marked: bool,
            words in prop::collection::vec("[abé語ß<u>]{1,60}", 1..6),
        ) {
            let symbols = ["a", "b", "é", "<", "u", ">", "<u>", "a</w>", "é</w>", "</w>"];
            let mut model = vocabulary(symbols.map(str::to_owned), &rules);
            model.settings.unk_token = unk.map(str::to_owned);
            model.settings.fuse_unk = fuse_unk;
            model.settings.end_of_word_suffix = is_marked.then(|| "</w>".to_owned());
            let token = |number| model.vocab.token(number).to_owned();
            let tokens = model.vocab.iter().map(|(token, id)| (token.to_owned(), id)).collect();
            let merges = model.merges.iter().map(|merge| (token(merge.left), token(merge.right))).collect();
            let reference = model.settings.build(tokens, merges).unwrap();
            let ours = WordBpe::new(&model).unwrap();
            for word in &words {
                let expected: Vec<u32> = reference.tokenize(word).unwrap().iter().map(|token| token.id).collect();
                let mut ids = Vec::new();
                ours.encode(word, &mut ids).unwrap();
                prop_assert_eq!(ids, expected, "{:?}", word);
            }
        }
    }

    #[test]
    fn unknown_characters_are_dropped_or_fused() {
        let ids = |unk: Option<&str>, fuse_unk: bool, word: &str| {
            let rule = |left: &str, right: &str| (left.to_owned(), right.to_owned());
            let mut model =
                vocabulary(["?", "a", "b"].map(str::to_owned), &[rule("a", "b"), rule("ab", "?")]);
            model.settings.unk_token = unk.map(str::to_owned);
            model.settings.fuse_unk = Some(fuse_unk);
            let mut ids = Vec::new();
            WordBpe::new(&model).unwrap().encode(word, &mut ids).unwrap();
            ids
        };
        // ? a b ab ab?
        assert_eq!(ids(None, false, "語a語b語"), [3]);
        assert_eq!(ids(Some("?"), false, "語語b語a"), [0, 0, 2, 0, 1]);
        assert_eq!(ids(Some("?"), true, "語語b語a"), [0, 2, 0, 1]);
        assert_eq!(ids(Some("?"), true, "ab語語?"), [4, 0]);
        assert!(ids(None, false, "語").is_empty());
    }

    #[test]
    fn other_models_are_refused() {
        let why = |tokens: &[(&str, u32)], unk: Option<&str>| {
            let mut model = ParsedBpe::of(tokens.iter().copied(), []).unwrap();
            model.settings.unk_token = unk.map(str::to_owned);
            WordBpe::new(&model).err()
        };
        assert_eq!(why(&[("a", 0), ("b", 1)], Some("b")), None);
        assert!(why(&[("a", 0), ("b", 1)], Some("c")).unwrap().contains("unknown token"));
        assert!(why(&[("a", 0), ("b", 0)], None).unwrap().contains("same id"));
        assert_eq!(why(&[("a", 0), ("", 1)], Some("a")), None);
        assert!(why(&[("a", 0), ("", 1)], Some("")).unwrap().contains("empty"));
    }
}
