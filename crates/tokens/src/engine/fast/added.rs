//! Added tokens: splits a text at the strings that are tokens before the model runs.
//!
//! As in the reference, tokens that are not `normalized` are first searched for in the raw text, then the others in
//! each normalized piece between them. Among several matches, the leftmost wins, then the longest. A special token that
//! is not parsed still counts as a match, so that no shorter token inside it matches. Tokens that depend on their
//! neighbors (`single_word`, `lstrip`, `rstrip`) are rare; the reference encodes documents that contain one.

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use tokenizers::{NormalizedString, Normalizer};

use super::byte_pairs::BytePairs;
use super::stop::EngineStop;
use crate::outline::METASPACE;

/// Maximum total size in bytes of the tokens of a stage. A normalizer may make them long.
const MAX_BYTES: usize = 2 << 20;

/// Maximum total size in bytes of tokens that are searched for with a DFA, which is faster than an NFA and needs up to a
/// kilobyte per byte. By default, only up to 100 tokens get a DFA.
const MAX_DFA_BYTES: usize = 4 << 10;

/// Action for a matched string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    /// Append this token.
    Token(u32),
    /// Treat the string as ordinary text.
    Skip,
    /// Leave the text to the reference.
    Decline,
}

/// The added tokens of one stage, raw or normalized text. Usually there are none.
#[derive(Default)]
pub(super) struct AddedTokens {
    tokens: Option<(AhoCorasick, Vec<Action>)>,
    /// Whether a token may extend from an ASCII letter to the space after it.
    pub(super) across_words: bool,
    /// Whether a space between two ASCII letters may be part of a token or adjacent to one.
    pub(super) at_spaces: bool,
    /// Whether a token contains white space or [`METASPACE`].
    has_spaces: bool,
    /// Whether a token of the normalized text may begin in one word of the text and end in the next one.
    pub(super) across_normalized_words: bool,
    /// Pairs of adjacent bytes in tokens.
    inside: BytePairs,
}

impl AddedTokens {
    /// Creates the stages for raw and for normalized text. The error states why the tokens cannot be searched for.
    pub(super) fn both(
        tokenizer: &tokenizers::Tokenizer,
        parse_special: bool,
    ) -> Result<(Self, Self), String> {
        Self::both_written(tokenizer, parse_special, str::to_owned)
    }

    /// Like [`both`](Self::both), for an engine whose normalized text is transformed by `write`.
    pub(super) fn both_written(
        tokenizer: &tokenizers::Tokenizer,
        parse_special: bool,
        write: impl Fn(&str) -> String,
    ) -> Result<(Self, Self), String> {
        // Not `token.special`: of a token that is listed twice, the reference uses the first entry.
        let is_special = |content: &str| tokenizer.get_added_vocabulary().is_special_token(content);
        let mut tokens: Vec<_> = tokenizer.get_added_tokens_decoder().into_iter().collect();
        tokens.sort_unstable_by_key(|(id, _)| *id);
        let (mut raw, mut normalized) = (Vec::new(), Vec::new());
        for (id, token) in tokens {
            let action = if is_special(&token.content) && !parse_special {
                Action::Skip
            } else if token.single_word || token.lstrip || token.rstrip {
                Action::Decline
            } else {
                Action::Token(id)
            };
            if !token.normalized {
                raw.push((token.content, action));
                continue;
            }
            let mut content = NormalizedString::from(token.content.as_str());
            if let Some(normalizer) = tokenizer.get_normalizer() {
                normalizer
                    .normalize(&mut content)
                    .map_err(|e| format!("an added token cannot be normalized: {e}"))?;
            }
            normalized.push((write(content.get()), action));
        }
        Ok((Self::new(raw)?, Self::new(normalized)?))
    }

    fn new(patterns: Vec<(String, Action)>) -> Result<Self, String> {
        // No token can match, so no search is needed.
        if patterns.iter().all(|(_, action)| *action == Action::Skip) {
            return Ok(Self::default());
        }
        if patterns.iter().any(|(string, _)| string.is_empty()) {
            return Err("an added token is empty after normalization".to_owned());
        }
        let bytes: usize = patterns.iter().map(|(string, _)| string.len()).sum();
        if bytes > MAX_BYTES {
            return Err("the added tokens are too long".to_owned());
        }
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .kind((bytes <= MAX_DFA_BYTES).then_some(AhoCorasickKind::DFA))
            .build(patterns.iter().map(|(string, _)| string.as_bytes()))
            .map_err(|e| format!("the added tokens cannot be searched for: {e}"))?;
        let is_letter = |byte: Option<u8>| byte.is_none_or(|byte| byte.is_ascii_alphabetic());
        let spaces = |string: &str| -> Vec<(Option<u8>, Option<u8>)> {
            let at = |at: Option<usize>| string.as_bytes().get(at?).copied();
            string.match_indices(' ').map(|(i, _)| (at(i.checked_sub(1)), at(Some(i + 1)))).collect()
        };
        let spaces: Vec<_> = patterns.iter().flat_map(|(string, _)| spaces(string)).collect();
        let across_words = spaces.iter().any(|(before, _)| before.is_some() && is_letter(*before));
        let edges = |string: &str| [string.bytes().next(), string.bytes().next_back()];
        let at_spaces = spaces.iter().any(|(before, after)| is_letter(*before) && is_letter(*after))
            || patterns.iter().any(|(string, _)| edges(string).into_iter().any(is_letter));
        let mut inside = BytePairs::default();
        for pair in patterns.iter().flat_map(|(string, _)| string.as_bytes().windows(2)) {
            inside.insert(pair[0], pair[1]);
        }
        let is_space = |c: char| c.is_whitespace() || c == METASPACE;
        let has_spaces = patterns.iter().any(|(string, _)| string.contains(is_space));
        let across_normalized_words = patterns.iter().any(|(string, _)| {
            let rest = string.trim_start_matches(is_space);
            rest.contains(is_space) || rest.len() < string.len() && is_letter(rest.bytes().next())
        });
        let actions = patterns.into_iter().map(|(_, action)| action).collect();
        let tokens = Some((automaton, actions));
        Ok(Self { tokens, across_words, at_spaces, has_spaces, across_normalized_words, inside })
    }

    /// Returns whether `text` starts with a token.
    pub(super) fn is_at_start(&self, text: &str) -> bool {
        let Some((automaton, actions)) = &self.tokens else { return false };
        let first = automaton.find(text).filter(|found| found.start() == 0);
        first.is_some_and(|found| actions.get(found.pattern().as_usize()) != Some(&Action::Skip))
    }

    /// Returns whether nothing can match.
    pub(super) fn is_empty(&self) -> bool {
        self.tokens.is_none()
    }

    /// Returns whether every token lies inside a word and does not depend on its neighbors.
    pub(super) fn are_in_words(&self) -> bool {
        let declines = |actions: &[Action]| actions.contains(&Action::Decline);
        self.tokens.as_ref().is_none_or(|(_, actions)| !self.has_spaces && !declines(actions))
    }

    /// Returns whether a token may extend from the byte `left` to the byte `right` after it.
    pub(super) fn is_across(&self, left: u8, right: u8) -> bool {
        self.inside.contains(left, right)
    }

    /// Appends the ids of `text`: the matched tokens, and the ids that `encode` appends for each non-empty text between
    /// them; it also receives whether this is at the start of `text`. Stops at the first error of `encode`.
    #[inline]
    pub(super) fn encode(
        &self,
        text: &str,
        out: &mut Vec<u32>,
        mut encode: impl FnMut(&str, bool, &mut Vec<u32>) -> Result<(), EngineStop>,
    ) -> Result<(), EngineStop> {
        let mut start = 0;
        if let Some((automaton, actions)) = &self.tokens {
            for found in automaton.find_iter(text) {
                match actions.get(found.pattern().as_usize()) {
                    Some(Action::Token(id)) => {
                        if start < found.start() {
                            encode(&text[start..found.start()], start == 0, out)?;
                        }
                        out.push(*id);
                        start = found.end();
                    }
                    Some(Action::Skip) => {}
                    Some(Action::Decline) | None => return Err(EngineStop::NeedsReference),
                }
            }
        }
        if start < text.len() {
            encode(&text[start..], start == 0, out)?;
        }
        Ok(())
    }
}
