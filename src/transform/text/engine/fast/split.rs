//! The split patterns of byte-level tokenizers, by hand: where the word that begins here ends.
//!
//! Each splitter is the leftmost-first alternation of one regular expression, which the source names. Every character
//! is matched by one of the alternatives, so the words cover the text.

use super::classes::{Classes, LETTER, LINE_END, NUMBER, OTHER, SPACE};

/// The pattern of GPT-2, built into the `ByteLevel` pre-tokenizer.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// The same, as some files write it.
const GPT2_SHORT: &str = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// The pattern of `cl100k_base` and Llama 3.
const CL100K: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The pattern of Qwen 2: single digits.
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// A known split pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pattern {
    /// GPT-2.
    Gpt2,
    /// `cl100k_base`, Llama 3: up to three digits.
    Cl100k,
    /// Qwen 2: one digit.
    Qwen2,
}

impl Pattern {
    /// The pattern written as `regex`, if it is a known one.
    pub(super) fn known(regex: &str) -> Option<Self> {
        match regex {
            GPT2 | GPT2_SHORT => Some(Pattern::Gpt2),
            CL100K => Some(Pattern::Cl100k),
            QWEN2 => Some(Pattern::Qwen2),
            _ => None,
        }
    }
}

/// Where words end.
pub(super) trait Split {
    /// End of the word that begins at `at`, which is a character boundary before the end of `bytes`.
    fn end(classes: Classes, bytes: &[u8], at: usize) -> usize;
}

/// [`Pattern::Gpt2`].
pub(super) struct Gpt2;

impl Split for Gpt2 {
    #[inline(always)]
    fn end(classes: Classes, bytes: &[u8], at: usize) -> usize {
        let Some((class, len)) = classes.at(bytes, at) else { return bytes.len() };
        let first = bytes[at];
        if first == b' ' {
            return match classes.at(bytes, at + 1) {
                Some((LETTER, len)) => classes.letters(bytes, at + 1 + len),
                Some((class, len)) if class < SPACE => classes.run(bytes, at + 1 + len, class),
                _ => spaces(classes, bytes, at + 1, at),
            };
        }
        if class == LETTER {
            return classes.letters(bytes, at + len);
        }
        if class < SPACE {
            if first == b'\''
                && let Some(end) = contraction(bytes, at, false)
            {
                return end;
            }
            return classes.run(bytes, at + len, class);
        }
        spaces(classes, bytes, at + len, at)
    }
}

/// [`Pattern::Cl100k`] and [`Pattern::Qwen2`]: a word takes up to `DIGITS` digits.
pub(super) struct Cl100k<const DIGITS: usize>;

impl<const DIGITS: usize> Split for Cl100k<DIGITS> {
    #[inline(always)]
    fn end(classes: Classes, bytes: &[u8], at: usize) -> usize {
        let Some((class, len)) = classes.at(bytes, at) else { return bytes.len() };
        let first = bytes[at];
        let next = at + len;
        match class {
            LETTER => return classes.letters(bytes, next),
            NUMBER => {
                let mut end = next;
                for _ in 1..DIGITS {
                    match classes.at(bytes, end) {
                        Some((NUMBER, len)) => end += len,
                        _ => break,
                    }
                }
                return end;
            }
            _ => {}
        }
        if first == b'\''
            && let Some(end) = contraction(bytes, at, true)
        {
            return end;
        }
        let following = classes.at(bytes, next);
        if class != LINE_END
            && let Some((LETTER, len)) = following
        {
            return classes.letters(bytes, next + len);
        }
        match (first, following) {
            (b' ', Some((OTHER, len))) => line_ends(bytes, classes.run(bytes, next + len, OTHER)),
            _ if class == OTHER => line_ends(bytes, classes.run(bytes, next, OTHER)),
            _ => spaces_and_lines(classes, bytes, at),
        }
    }
}

/// `\s+(?!\S)|\s+`, after the first character of it, which began at `at`.
#[inline]
fn spaces(classes: Classes, bytes: &[u8], mut end: usize, at: usize) -> usize {
    let mut last = at;
    while let Some((class, len)) = classes.at(bytes, end) {
        if class < SPACE {
            // The last space belongs to what follows, unless it is the only one.
            return if last == at { end } else { last };
        }
        last = end;
        end += len;
    }
    end
}

/// `\s*[\r\n]+|\s+(?!\S)|\s+`.
#[inline]
fn spaces_and_lines(classes: Classes, bytes: &[u8], at: usize) -> usize {
    let (mut end, mut last) = (at, at);
    let mut after_line = None;
    while let Some((class, len)) = classes.at(bytes, end) {
        if class < SPACE {
            return after_line.unwrap_or(if last == at { end } else { last });
        }
        last = end;
        end += len;
        if class == LINE_END {
            after_line = Some(end);
        }
    }
    after_line.unwrap_or(end)
}

/// `[\r\n]*`.
#[inline]
fn line_ends(bytes: &[u8], mut at: usize) -> usize {
    while let Some(b'\r' | b'\n') = bytes.get(at) {
        at += 1;
    }
    at
}

/// End of `'s|'t|'re|'ve|'m|'ll|'d` at the apostrophe `at`.
#[inline]
fn contraction(bytes: &[u8], at: usize, ignore_case: bool) -> Option<usize> {
    let letter = |k: usize| {
        let b = bytes.get(at + k).copied().unwrap_or(0);
        if ignore_case { b.to_ascii_lowercase() } else { b }
    };
    match (letter(1), letter(2)) {
        (b's' | b't' | b'm' | b'd', _) => Some(at + 2),
        (b'r' | b'v', b'e') | (b'l', b'l') => Some(at + 3),
        // U+017F, the long s, is an s when case does not count.
        (0xc5, 0xbf) if ignore_case => Some(at + 3),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokenizers::pre_tokenizers::split::{Split as ReferenceSplit, SplitPattern};
    use tokenizers::{
        OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer, SplitDelimiterBehavior,
    };

    use super::*;
    use crate::transform::text::testing::tricky;

    fn words<S: Split>(text: &str) -> Vec<&str> {
        let classes = Classes::get().unwrap();
        let (mut at, mut words) = (0, Vec::new());
        while at < text.len() {
            let end = S::end(classes, text.as_bytes(), at);
            words.push(&text[at..end]);
            at = end;
        }
        words
    }

    fn expected(split: &ReferenceSplit, text: &str) -> Vec<String> {
        let mut pieces = PreTokenizedString::from(text);
        split.pre_tokenize(&mut pieces).unwrap();
        let splits = pieces.get_splits(OffsetReferential::Original, OffsetType::Byte);
        splits.into_iter().map(|(s, _, _)| s.to_owned()).collect()
    }

    fn reference(regex: &str) -> ReferenceSplit {
        ReferenceSplit::new(SplitPattern::Regex(regex.into()), SplitDelimiterBehavior::Isolated, false)
            .unwrap()
    }

    #[test]
    fn known_patterns_are_known_as_written() {
        assert_eq!(Pattern::known(GPT2), Some(Pattern::Gpt2));
        assert_eq!(Pattern::known(CL100K), Some(Pattern::Cl100k));
        assert_eq!(Pattern::known(QWEN2), Some(Pattern::Qwen2));
        assert_eq!(Pattern::known(r"\s+"), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn words_end_where_the_regular_expression_says(text in tricky()) {
            prop_assert_eq!(words::<Gpt2>(&text), expected(&reference(GPT2), &text));
            prop_assert_eq!(words::<Gpt2>(&text), expected(&reference(GPT2_SHORT), &text));
            prop_assert_eq!(words::<Cl100k<3>>(&text), expected(&reference(CL100K), &text));
            prop_assert_eq!(words::<Cl100k<1>>(&text), expected(&reference(QWEN2), &text));
        }
    }
}
