//! Search for special tokens in normalized text, with the normalizers of the fast engines.

use tokenizers::Tokenizer;

use super::added::AddedTokens;
use super::normalizer::{Normalizer, NormalizerBuffers};
use super::stop::EngineStop;
use crate::error::EncodeError;

/// Finds the special tokens of a tokenizer in texts.
pub(crate) struct NormalizedFinder {
    raw: AddedTokens,
    normalized: AddedTokens,
    normalizer: Normalizer,
    /// The ids of the special tokens, sorted.
    special: Vec<u32>,
}

impl NormalizedFinder {
    /// Creates a finder for the tokens of `tokenizer`. Returns `None` if only the reference can search for them.
    pub(crate) fn new(tokenizer: &Tokenizer) -> Option<Self> {
        let (raw, normalized) = AddedTokens::both(tokenizer, true).ok()?;
        let added = tokenizer.get_added_vocabulary().get_added_tokens_decoder();
        let mut special: Vec<u32> =
            added.iter().filter(|(_, token)| token.special).map(|(id, _)| *id).collect();
        special.sort_unstable();
        let normalizer = Normalizer::new(tokenizer.get_normalizer());
        Some(Self { raw, normalized, normalizer, special })
    }

    /// Returns whether a text may be divided at a space between two ASCII letters, provided that no special token in
    /// its unchanged form has a space.
    pub(crate) fn is_within_words(&self) -> bool {
        !self.raw.across_words && !self.normalized.across_normalized_words
    }

    /// Returns the special tokens that the reference would parse in `text`. Returns `None` if the reference has to
    /// search for them: a token in the text depends on its neighbors, or a step of the normalizer might produce more
    /// than `most` bytes.
    ///
    /// # Errors
    ///
    /// If the reference panics.
    pub(crate) fn find(&self, most: u64, text: &str) -> Result<Option<Vec<u32>>, EncodeError> {
        let (mut found, mut buffers) = (Vec::new(), NormalizerBuffers::default());
        let result = self.raw.encode(text, &mut found, |piece, _, found| {
            match self.normalizer.normalize_within(most, piece, &mut buffers)? {
                Some(piece) => self.normalized.encode(piece, found, |_, _, _| Ok(())),
                None => Err(EngineStop::NeedsReference),
            }
        });
        match result {
            Ok(()) => {
                found.retain(|id| self.special.binary_search(id).is_ok());
                Ok(Some(found))
            }
            Err(EngineStop::NeedsReference) => Ok(None),
            Err(EngineStop::Failed(error)) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::engine::fast::tests::families;
    use crate::engine::reference::Reference;
    use crate::options::DEFAULT_MAX_REFERENCE_BYTES;
    use crate::testing::{add_token, bytes, tricky};

    /// Tokens that overlap, that normalizers change, and that contain spaces; whether they are special and normalized.
    const TOKENS: [(&str, bool, bool); 9] = [
        ("<Dog>", true, true),
        ("<Dog", true, true),
        ("quick", true, false),
        ("quick<", false, true),
        ("the", true, true),
        ("É", false, true),
        ("½", true, true),
        (" \u{301}", true, false),
        ("...-", true, true),
    ];

    /// Tokenizers of all families with special tokens of every kind. `neighbors`: also those that depend on their
    /// neighbors.
    fn finders(neighbors: bool) -> Vec<(&'static str, Reference, NormalizedFinder)> {
        let mut values = families::values();
        // Normalizers that make texts longer, and one that the fast engines do not implement.
        let (_, bare) = values.iter().find(|(name, _)| *name == "bert bare").cloned().unwrap();
        let replace = |content: &str| families::replace("String", "a", content);
        for (name, steps) in [
            ("longer", vec![replace("aaa"), json!({"type": "NFKD"}), replace("ae")]),
            ("prepended", vec![json!({"type": "Prepend", "prepend": "the"})]),
            ("regex", vec![families::replace("Regex", "[a-d]", "<Dog>"), json!({"type": "Lowercase"})]),
        ] {
            let mut value = bare.clone();
            value["normalizer"] = families::in_order(&steps);
            values.push((name, value));
        }
        let with_tokens = |(name, mut value): (&'static str, Value)| {
            let before = value["added_tokens"].as_array().map_or(0, Vec::len);
            for (token, special, normalized) in TOKENS {
                add_token(&mut value, token, special, normalized);
            }
            let added = value["added_tokens"].as_array_mut().unwrap();
            added.iter_mut().take(2).for_each(|token| token["normalized"] = json!(true));
            if neighbors {
                for (at, flag) in [(0, "lstrip"), (2, "single_word"), (4, "single_word"), (6, "rstrip")] {
                    added[before + at][flag] = json!(true);
                }
            }
            // Two tokens with the same normalized form are refused.
            let tokenizer = Tokenizer::from_bytes(bytes(&value)).ok()?;
            let finder = NormalizedFinder::new(&tokenizer).unwrap();
            Some((name, Reference::new(tokenizer, false, u64::MAX), finder))
        };
        values.into_iter().filter_map(with_tokens).collect()
    }

    #[test]
    fn most_tokenizers_are_searched_without_the_reference() {
        let mut names = Vec::new();
        for (name, reference, finder) in finders(false) {
            let text = "the <Dog>s quick<dog> x½ É...- <s>";
            if let Some(found) = finder.find(DEFAULT_MAX_REFERENCE_BYTES, text).unwrap() {
                assert_eq!(found, reference.special_tokens_in(text).unwrap(), "{name}");
                assert!(found.len() > 3, "{name}");
                names.push(name);
            }
        }
        for name in ["gpt2", "bert", "t5", "xlmr", "albert", "gemma", "bigbird", "lowercase", "longer"] {
            assert!(names.contains(&name), "{name} {names:?}");
        }
        assert!(!names.contains(&"prepended") && !names.contains(&"regex"));
    }

    #[test]
    fn texts_that_may_grow_too_much_are_left_to_the_reference() {
        let finders = finders(false);
        let (_, _, finder) = finders.iter().find(|(name, ..)| *name == "longer").unwrap();
        let found = |most: u64| finder.find(most, "the baa").unwrap();
        // 7 bytes; 11 after the first step, at most 121 after NFKD.
        assert!(found(121).is_some() && found(120).is_none());
    }

    #[test]
    fn tokens_across_words_are_detected_raw_and_normalized() {
        let is_within = |token: &str, normalized: bool, normalizer: Value| {
            let mut value = crate::testing::bpe();
            value["normalizer"] = normalizer;
            add_token(&mut value, token, false, normalized);
            NormalizedFinder::new(&Tokenizer::from_bytes(bytes(&value)).unwrap()).unwrap().is_within_words()
        };
        let replace = || families::replace("String", "_", " ");
        assert!(is_within("<a_b>", false, replace()) && is_within("<a_b>", true, Value::Null));
        assert!(!is_within("<a_b>", true, replace()));
        assert!(!is_within("a b", false, Value::Null));
        assert!(is_within("\n\n", false, Value::Null));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn the_finder_and_the_reference_find_the_same_tokens(
            texts in prop::collection::vec(tricky(), 1..3),
            added in prop::collection::vec(prop::sample::select(TOKENS.map(|(token, ..)| token).to_vec()), 0..3),
            most in prop_oneof![0u64..400, Just(DEFAULT_MAX_REFERENCE_BYTES)],
        ) {
            static FINDERS: LazyLock<Vec<(&str, Reference, NormalizedFinder)>> =
                LazyLock::new(|| [false, true].into_iter().flat_map(finders).collect());
            let text = format!("{}{}", texts.join(&added.concat()), added.concat());
            for (name, reference, finder) in &*FINDERS {
                if let Some(found) = finder.find(most, &text).unwrap() {
                    prop_assert_eq!(found, reference.special_tokens_in(&text).unwrap(), "{} {:?}", name, text);
                }
            }
        }
    }
}
