//! Pre-tokenizers that cut at white space. They split a chunk of text into the words for the model.

use regex::Regex;
use serde_json::Value;

use super::metaspace::{Metaspace, Prefix};
use super::wordpiece::is_punctuation;
use crate::error::EncodeError;
use crate::outline::{METASPACE, type_of};

/// Maximum number of steps of a pre-tokenizer: engines apply them recursively. With more, the reference is used.
pub(super) const MAX_STEPS: usize = 64;

/// Regular expression of the words of `Whitespace`, which the reference runs with `regex`, not with Oniguruma.
const WORDS: &str = r"\w+|[^\w\s]+";

/// A pre-tokenizer, as a list of steps.
pub(super) struct Words {
    steps: Vec<PreTokenizerStep>,
    /// Whether white space is dropped before any Metaspace step.
    drops: bool,
}

enum PreTokenizerStep {
    /// Cuts at white space and drops it.
    Whitespace,
    /// Keeps only the matches.
    Matches(Regex),
    Chars(CharCut),
    Metaspace(Metaspace),
}

/// Cuts out numeric characters or punctuation, either each character or whole runs.
pub(super) struct CharCut {
    is_cut_out: fn(char) -> bool,
    each: bool,
}

impl CharCut {
    /// Parses a `Punctuation` or `Digits`; `None` if it is anything else, or not supported.
    pub(super) fn read(value: &Value) -> Option<Self> {
        let (is_cut_out, each): (fn(char) -> bool, bool) = match type_of(value)? {
            "Punctuation" => match value.get("behavior").map_or(Some("Isolated"), Value::as_str)? {
                "Isolated" => (is_punctuation, true),
                "Contiguous" => (is_punctuation, false),
                _ => return None,
            },
            "Digits" => (char::is_numeric, value.get("individual_digits")?.as_bool()?),
            _ => return None,
        };
        Some(Self { is_cut_out, each })
    }

    /// Calls `piece` with what is cut out of `text`, and the parts between.
    pub(super) fn pieces<E>(
        &self,
        text: &str,
        mut piece: impl FnMut(&str) -> Result<(), E>,
    ) -> Result<(), E> {
        // The position of the last cut, and whether the character after it is cut out.
        let (mut start, mut is_out) = (0, false);
        for (at, c) in text.char_indices() {
            let is_cut_out = (self.is_cut_out)(c);
            if at > 0 && (is_cut_out != is_out || is_cut_out && self.each) {
                piece(&text[start..at])?;
                start = at;
            }
            is_out = is_cut_out;
        }
        if start < text.len() { piece(&text[start..]) } else { Ok(()) }
    }
}

/// Callback for each word.
type Each<'a> = &'a mut dyn FnMut(&str) -> Result<(), EncodeError>;

impl Words {
    /// Parses a pre-tokenizer of a `tokenizer.json`; `None` if a part is not supported, or if its words extend across
    /// spaces.
    pub(super) fn read(value: &Value) -> Option<Self> {
        let mut words = Self { steps: Vec::new(), drops: false };
        words.push(value)?;
        let is_metaspace = |step: &PreTokenizerStep| matches!(step, PreTokenizerStep::Metaspace(_));
        (words.drops || words.steps.iter().any(is_metaspace)).then_some(words)
    }

    fn push(&mut self, value: &Value) -> Option<()> {
        let step = match type_of(value)? {
            "Sequence" => {
                return value.get("pretokenizers")?.as_array()?.iter().try_for_each(|part| self.push(part));
            }
            "WhitespaceSplit" => PreTokenizerStep::Whitespace,
            "BertPreTokenizer" => {
                self.push_step(PreTokenizerStep::Whitespace)?;
                PreTokenizerStep::Chars(CharCut { is_cut_out: is_punctuation, each: true })
            }
            "Whitespace" => PreTokenizerStep::Matches(Regex::new(WORDS).ok()?),
            "Metaspace" => PreTokenizerStep::Metaspace(Metaspace::read(value)?),
            _ => PreTokenizerStep::Chars(CharCut::read(value)?),
        };
        self.push_step(step)
    }

    fn push_step(&mut self, step: PreTokenizerStep) -> Option<()> {
        match &step {
            // After a Metaspace step, spaces are ordinary symbols.
            PreTokenizerStep::Whitespace | PreTokenizerStep::Matches(_) => {
                self.drops |= self.steps.iter().all(PreTokenizerStep::is_for_chars)
            }
            // The step would need the position of each word in the text.
            PreTokenizerStep::Metaspace(metaspace)
                if metaspace.prefix == Prefix::MissingFirst && !self.steps.is_empty() =>
            {
                return None;
            }
            PreTokenizerStep::Metaspace(metaspace) if !self.drops => {
                // It must be the step that cuts at spaces.
                if !metaspace.splits || self.writes_metaspace() {
                    return None;
                }
            }
            PreTokenizerStep::Metaspace(_) | PreTokenizerStep::Chars(_) => {}
        }
        // Steps are applied recursively.
        if self.steps.len() == MAX_STEPS {
            return None;
        }
        self.steps.push(step);
        Some(())
    }

    /// Returns whether white space only separates words.
    pub(super) fn drops_whitespace(&self) -> bool {
        self.drops
    }

    /// Returns whether a space becomes [`METASPACE`] or is followed by it.
    pub(super) fn writes_metaspace(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, PreTokenizerStep::Metaspace(_)))
    }

    /// Returns which texts that do not follow a space get one. If that makes no difference, returns
    /// [`Prefix::Missing`].
    pub(super) fn prefix(&self) -> Prefix {
        match self.steps.first() {
            Some(PreTokenizerStep::Metaspace(metaspace)) => metaspace.prefix,
            // A space before a character that is cut out is a word.
            _ if self.cuts_before_metaspace() => Prefix::Never,
            _ => Prefix::Missing,
        }
    }

    /// Returns whether characters are cut out before Metaspace cuts at spaces (DeBERTa with `split_by_punct`).
    fn cuts_before_metaspace(&self) -> bool {
        let starts_with_cut = self.steps.first().is_some_and(PreTokenizerStep::is_for_chars);
        !self.drops && starts_with_cut && self.writes_metaspace()
    }

    /// Calls `each` with the words of the normalized `text`. `is_after_space`: whether a space precedes it or the
    /// tokenizer prepends one.
    pub(super) fn each(&self, text: &str, is_after_space: bool, each: Each<'_>) -> Result<(), EncodeError> {
        if is_after_space && self.cuts_before_metaspace() {
            return apply(&self.steps, &format!(" {text}"), false, each);
        }
        apply(&self.steps, text, is_after_space && !self.drops, each)
    }
}

fn apply(
    steps: &[PreTokenizerStep],
    text: &str,
    is_after_space: bool,
    each: Each<'_>,
) -> Result<(), EncodeError> {
    if text.is_empty() {
        return Ok(());
    }
    let Some((step, rest)) = steps.split_first() else { return each(text) };
    match step {
        PreTokenizerStep::Whitespace => {
            text.split(char::is_whitespace).try_for_each(|word| apply(rest, word, is_after_space, each))
        }
        PreTokenizerStep::Matches(regex) => {
            regex.find_iter(text).try_for_each(|word| apply(rest, word.as_str(), is_after_space, each))
        }
        PreTokenizerStep::Chars(cut) => cut.pieces(text, |piece| apply(rest, piece, is_after_space, each)),
        PreTokenizerStep::Metaspace(metaspace) => {
            let has_prefix = is_after_space || metaspace.prefix == Prefix::Missing;
            let mut written = String::with_capacity(text.len() + 2 * METASPACE.len_utf8());
            if has_prefix && !text.starts_with([' ', METASPACE]) {
                written.push(METASPACE);
            }
            written.extend(text.chars().map(|c| if c == ' ' { METASPACE } else { c }));
            if !metaspace.splits {
                return apply(rest, &written, false, each);
            }
            let mut start = 0;
            for (at, _) in written.match_indices(METASPACE) {
                apply(rest, &written[start..at], false, each)?;
                start = at;
            }
            apply(rest, &written[start..], false, each)
        }
    }
}

impl PreTokenizerStep {
    fn is_for_chars(&self) -> bool {
        !matches!(self, PreTokenizerStep::Metaspace(_))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;
    use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer, PreTokenizerWrapper};

    use super::*;
    use crate::testing::tricky;

    fn metaspace(scheme: &str, split: bool) -> Value {
        json!({"type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": scheme, "split": split})
    }

    fn in_order(parts: &[Value]) -> Value {
        json!({"type": "Sequence", "pretokenizers": parts})
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn texts_have_the_words_of_the_reference(text in tricky()) {
            let whitespace = || json!({"type": "WhitespaceSplit"});
            let punctuation = |behavior: &str| json!({"type": "Punctuation", "behavior": behavior});
            for value in [
                whitespace(),
                json!({"type": "Whitespace"}),
                json!({"type": "BertPreTokenizer"}),
                metaspace("always", true),
                metaspace("first", true),
                in_order(&[metaspace("always", true)]),
                in_order(&[whitespace(), metaspace("always", true)]),
                in_order(&[whitespace(), metaspace("always", false), punctuation("Isolated")]),
                in_order(&[punctuation("Isolated"), metaspace("always", true)]),
                in_order(&[json!({"type": "Digits", "individual_digits": true}), punctuation("Contiguous"), metaspace("never", true)]),
                in_order(&[whitespace(), metaspace("never", true)]),
                in_order(&[json!({"type": "Whitespace"}), punctuation("Contiguous"), json!({"type": "Digits", "individual_digits": true})]),
                in_order(&[json!({"type": "Digits", "individual_digits": false}), whitespace(), punctuation("Contiguous")]),
            ] {
                let reference: PreTokenizerWrapper = serde_json::from_value(value.clone()).unwrap();
                let mut pieces = PreTokenizedString::from(text.as_str());
                reference.pre_tokenize(&mut pieces).unwrap();
                let splits = pieces.get_splits(OffsetReferential::Normalized, OffsetType::None);
                let expected: Vec<String> = splits.into_iter().map(|(word, _, _)| word.to_owned()).collect();
                let mut words = Vec::new();
                let ours = Words::read(&value).unwrap();
                ours.each(&text, !ours.cuts_before_metaspace(), &mut |word| {
                    words.push(word.to_owned());
                    Ok(())
                }).unwrap();
                prop_assert_eq!(words, expected, "{}", value);
            }
        }
    }

    #[test]
    fn pre_tokenizers_with_words_across_spaces_are_refused() {
        let whitespace = json!({"type": "WhitespaceSplit"});
        let punctuation = json!({"type": "Punctuation", "behavior": "Isolated"});
        for value in [
            metaspace("always", false),
            punctuation.clone(),
            in_order(&[]),
            in_order(&[punctuation.clone(), metaspace("always", false)]),
            in_order(&[punctuation.clone(), metaspace("first", true)]),
            in_order(&[punctuation.clone(), metaspace("always", true), metaspace("always", true)]),
            in_order(&[metaspace("always", true), metaspace("always", true)]),
            in_order(&[whitespace, metaspace("first", true)]),
            json!({"type": "Punctuation", "behavior": "MergedWithNext"}),
            json!({"type": "CharDelimiterSplit", "delimiter": "-"}),
            json!({"type": "UnicodeScripts"}),
        ] {
            assert!(Words::read(&value).is_none(), "{value}");
        }
        let value = in_order(&[json!({"type": "WhitespaceSplit"}), metaspace("never", true), punctuation]);
        assert!(Words::read(&value).is_some_and(|words| words.drops_whitespace()));
    }
}
