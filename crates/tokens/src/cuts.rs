//! Added tokens in a text of which some parts are content: where the text is cut, and which strings are not tokens.
//!
//! The matches are those of the reference: tokens that are not `normalized` in the raw text, then the others in each
//! normalized part between them; the leftmost match wins, then the longest. Unlike the reference, which parses either
//! all special tokens or none, a match is accepted or refused by its position.

use std::ops::Range;

use aho_corasick::{AhoCorasick, AhoCorasickKind, Input, MatchKind};
use serde_json::Value;
use tokenizers::{NormalizedString, Normalizer as _, PostProcessorWrapper, Tokenizer};

use crate::engine::fast::normalizer::forms::NfcText;
use crate::error::EncodeError;
use crate::options::SpecialInText;
use crate::outline::{steps, type_of};

/// Maximum total size in bytes of tokens that are searched for with a DFA. The 256 tokens of Llama 3 have 7.4 KiB.
const MAX_DFA_BYTES: usize = 8 << 10;

/// The character that byte-level vocabularies write for a space.
pub(crate) const BYTE_LEVEL_SPACE: char = 'Ġ';

/// An added token in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) id: u32,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Cut {
    /// Returns the cut in a text that starts at byte `base` of this one.
    pub(crate) fn relative_to(self, base: usize) -> Self {
        Self { id: self.id, start: self.start - base, end: self.end - base }
    }
}

/// The parts of a text that are content, and the treatment of special tokens in them.
#[derive(Clone, Copy)]
pub(crate) struct Content<'a> {
    /// Sorted, disjoint byte ranges.
    pub(crate) ranges: &'a [Range<usize>],
    pub(crate) special: SpecialInText,
}

impl Content<'_> {
    /// Returns whether a part of the text has a byte of content.
    pub(crate) fn overlaps(&self, part: &Range<usize>) -> bool {
        let first = self.ranges.partition_point(|range| range.end <= part.start);
        let mut from = self.ranges.iter().skip(first).take_while(|range| range.start < part.end);
        from.any(|range| !range.is_empty())
    }
}

/// The added tokens of a tokenizer.
pub(crate) struct AddedTokenMatcher {
    raw: Stage,
    normalized: Stage,
    normalizer: NormalizerKind,
    /// The treatment of the ranges of tokens by the post-processor.
    pub(crate) trim: Trim,
}

/// The normalizer, as far as it decides where tokens of the normalized text are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NormalizerKind {
    None,
    Nfc,
    Other,
}

/// Tokens that are searched for in the same text.
#[derive(Default)]
struct Stage {
    automaton: Option<AhoCorasick>,
    tokens: Vec<StageToken>,
}

struct StageToken {
    id: u32,
    is_special: bool,
    single_word: bool,
    lstrip: bool,
    rstrip: bool,
}

impl AddedTokenMatcher {
    /// Creates a matcher for the added tokens of `tokenizer`.
    pub(crate) fn new(tokenizer: &Tokenizer) -> Result<Self, EncodeError> {
        let unsupported = |e: String| EncodeError::Unsupported(e);
        let added = tokenizer.get_added_vocabulary();
        let mut tokens: Vec<_> = added.get_added_tokens_decoder().iter().collect();
        tokens.sort_unstable_by_key(|(id, _)| **id);
        let (mut raw, mut normalized) = (Vec::new(), Vec::new());
        for (&id, token) in tokens {
            let written = StageToken {
                id,
                is_special: added.is_special_token(&token.content),
                single_word: token.single_word,
                lstrip: token.lstrip,
                rstrip: token.rstrip,
            };
            let mut content = NormalizedString::from(token.content.as_str());
            match tokenizer.get_normalizer() {
                Some(normalizer) if token.normalized => {
                    normalizer.normalize(&mut content).map_err(|e| unsupported(e.to_string()))?;
                }
                _ => {}
            }
            let stage = if token.normalized { &mut normalized } else { &mut raw };
            if !content.is_empty() {
                stage.push((content.get().to_owned(), written));
            }
        }
        let normalizer = match tokenizer.get_normalizer() {
            None => NormalizerKind::None,
            Some(normalizer) if NfcText::is_result_of(normalizer) => NormalizerKind::Nfc,
            Some(_) => NormalizerKind::Other,
        };
        Ok(Self {
            raw: Stage::new(raw).map_err(unsupported)?,
            normalized: Stage::new(normalized).map_err(unsupported)?,
            normalizer,
            trim: Trim::of(tokenizer.get_post_processor()),
        })
    }

    /// Returns the tokens in the raw text, and, if there is no normalizer, the others. Appends the strings of special
    /// tokens that overlap content to `in_content`.
    pub(crate) fn cuts(
        &self,
        text: &str,
        content: Content<'_>,
        in_content: &mut Vec<Range<usize>>,
    ) -> Vec<Cut> {
        let mut cuts = Vec::new();
        self.raw.find(text, content.special, &|part| content.overlaps(&part), &mut cuts, in_content);
        match self.normalizer {
            NormalizerKind::None => self.with_normalized(text, content, cuts, in_content).unwrap_or_default(),
            NormalizerKind::Nfc | NormalizerKind::Other => cuts,
        }
    }

    /// Returns whether [`all_cuts`](Self::all_cuts) finds tokens in the normalized text, too.
    pub(crate) fn finds_normalized(&self) -> bool {
        self.normalizer != NormalizerKind::Other || self.normalized.automaton.is_none()
    }

    /// Adds the tokens in the normalized text to `cuts`, if the normalizer is NFC. The parts between them may then be
    /// normalized one by one. Returns `None` if a token in the normalized text comes from other characters.
    pub(crate) fn all_cuts(
        &self,
        text: &str,
        content: Content<'_>,
        cuts: Vec<Cut>,
        in_content: &mut Vec<Range<usize>>,
    ) -> Option<Vec<Cut>> {
        match self.normalizer {
            NormalizerKind::Nfc => self.with_normalized(text, content, cuts, in_content),
            NormalizerKind::None | NormalizerKind::Other => Some(cuts),
        }
    }

    fn with_normalized(
        &self,
        text: &str,
        content: Content<'_>,
        cuts: Vec<Cut>,
        in_content: &mut Vec<Range<usize>>,
    ) -> Option<Vec<Cut>> {
        if self.normalized.automaton.is_none() {
            return Some(cuts);
        }
        let (mut all, mut start) = (Vec::with_capacity(cuts.len()), 0);
        let (mut tokens, mut found) = (Vec::new(), Vec::new());
        for cut in cuts.into_iter().map(Some).chain([None]) {
            let end = cut.map_or(text.len(), |cut| cut.start);
            let part = text.get(start..end).unwrap_or_default();
            let part = match self.normalizer {
                NormalizerKind::Nfc => NfcText::new(part),
                NormalizerKind::None | NormalizerKind::Other => NfcText::unchanged(part),
            };
            let original = |range: Range<usize>| {
                let range = part.original(range);
                start + range.start..start + range.end
            };
            let is_content = |range| content.overlaps(&original(range));
            self.normalized.find(part.as_str(), content.special, &is_content, &mut tokens, &mut found);
            for token in tokens.drain(..) {
                let range = token.start..token.end;
                if part.is_changed(&range) {
                    return None;
                }
                let range = original(range);
                all.push(Cut { id: token.id, start: range.start, end: range.end });
            }
            in_content.extend(found.drain(..).map(original));
            all.extend(cut);
            start = cut.map_or(text.len(), |cut| cut.end);
        }
        Some(all)
    }

    /// Returns the tokens in a part of the normalized text, which comes from a text that starts at byte `base`. Appends
    /// the original strings of special tokens that overlap content to `in_content`. Finds nothing if there is no
    /// normalizer; [`cuts`](Self::cuts) has then found all tokens.
    pub(crate) fn normalized_cuts(
        &self,
        part: &NormalizedString,
        base: usize,
        content: Content<'_>,
        in_content: &mut Vec<Range<usize>>,
    ) -> Vec<Cut> {
        let (mut cuts, mut found) = (Vec::new(), Vec::new());
        if self.normalizer == NormalizerKind::None {
            return cuts;
        }
        let shift = base + part.offsets_original().0;
        let original = |range: Range<usize>| {
            let range = tokenizers::tokenizer::normalizer::Range::Normalized(range);
            part.convert_offsets(range).map_or(0..0, |range| range.start + shift..range.end + shift)
        };
        let is_content = |range| content.overlaps(&original(range));
        self.normalized.find(part.get(), content.special, &is_content, &mut cuts, &mut found);
        in_content.extend(found.into_iter().map(original));
        cuts
    }
}

impl Stage {
    fn new(tokens: Vec<(String, StageToken)>) -> Result<Self, String> {
        if tokens.is_empty() {
            return Ok(Self::default());
        }
        let bytes: usize = tokens.iter().map(|(string, _)| string.len()).sum();
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .kind((bytes <= MAX_DFA_BYTES).then_some(AhoCorasickKind::DFA))
            .build(tokens.iter().map(|(string, _)| string.as_bytes()))
            .map_err(|e| format!("the added tokens cannot be searched for: {e}"))?;
        Ok(Self { automaton: Some(automaton), tokens: tokens.into_iter().map(|(_, token)| token).collect() })
    }

    /// Appends the tokens in `text` to `cuts`, and the strings of special tokens that overlap content to `in_content`.
    ///
    /// A refused string hides other tokens as in the reference, but only those in the content: before and behind it,
    /// the search goes on.
    fn find(
        &self,
        text: &str,
        special: SpecialInText,
        is_content: &dyn Fn(Range<usize>) -> bool,
        cuts: &mut Vec<Cut>,
        in_content: &mut Vec<Range<usize>>,
    ) {
        let Some(automaton) = &self.automaton else { return };
        // The end of the last token, and the part of the text that is searched next. If it ends before the text, the
        // search goes on at `behind`.
        let (mut last, mut from, mut to, mut behind) = (0, 0, text.len(), 0);
        loop {
            let Some(found) = automaton.find(Input::new(text).span(from..to)) else {
                if to == text.len() {
                    return;
                }
                (from, to) = (behind, text.len());
                continue;
            };
            let Some(token) = self.tokens.get(found.pattern().as_usize()) else { return };
            let (mut start, mut end) = (found.start(), found.end());
            from = end;
            if token.is_special && is_content(start..end) {
                in_content.push(start..end);
                if special != SpecialInText::Parse {
                    let mut chars = text.get(start..end).unwrap_or_default().char_indices();
                    let mut is_at_content =
                        |(at, c): &(usize, char)| is_content(start + at..start + at + c.len_utf8());
                    let first = chars.find(&mut is_at_content).map_or(start, |(at, _)| start + at);
                    let next = chars.find(|char| !is_at_content(char)).map_or(end, |(at, _)| start + at);
                    (from, to, behind) =
                        if first > start { (start, first, next) } else { (next, to, behind) };
                    continue;
                }
            }
            let is_word = |c: Option<char>| {
                c.is_some_and(|c| regex_syntax::try_is_word_character(c).unwrap_or_default())
            };
            let (before, after) =
                (text.get(..start).unwrap_or_default(), text.get(end..).unwrap_or_default());
            if token.single_word && (is_word(before.chars().next_back()) || is_word(after.chars().next())) {
                continue;
            }
            if token.lstrip {
                start = before.trim_end().len().max(last);
            }
            if token.rstrip {
                end += after.len() - after.trim_start().len();
            }
            cuts.push(Cut { id: token.id, start, end });
            last = end;
        }
    }
}

/// The treatment of the range of a token that starts or ends with white space, by the post-processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trim {
    Keeps,
    /// White space is removed from the range.
    Trims {
        /// Whether a single space at the start of the text stays in the range.
        add_prefix_space: bool,
    },
    /// Only the reference knows.
    Unknown,
}

impl Trim {
    pub(crate) fn of(post_processor: Option<&PostProcessorWrapper>) -> Self {
        let value = serde_json::to_value(post_processor).unwrap_or_default();
        let mut trim = Trim::Keeps;
        for step in steps(&value, "processors") {
            let flag = |name| step.get(name).and_then(Value::as_bool);
            match (type_of(step), flag("trim_offsets"), flag("add_prefix_space")) {
                (Some("TemplateProcessing" | "BertProcessing"), ..)
                | (Some("ByteLevel" | "RobertaProcessing"), Some(false), _) => {}
                (Some("ByteLevel" | "RobertaProcessing"), Some(true), Some(add_prefix_space))
                    if trim == Trim::Keeps =>
                {
                    trim = Trim::Trims { add_prefix_space };
                }
                _ => return Trim::Unknown,
            }
        }
        trim
    }

    /// Returns the range of a token that is a string of the text.
    pub(crate) fn cut(self, text: &str, cut: &Cut, is_first: bool) -> Range<usize> {
        let range = cut.start..cut.end;
        if self == Trim::Keeps {
            return range;
        }
        let string = text.get(range.clone()).unwrap_or_default();
        let is_space = |c: &char| *c == BYTE_LEVEL_SPACE || c.is_whitespace();
        let lead = string.chars().take_while(is_space).count();
        let trail = string.chars().rev().take_while(is_space).count();
        self.trimmed(text, range, lead, trail, is_first)
    }

    /// Returns the `range` of a token of a byte-level model, without the spaces at its ends.
    #[inline]
    pub(crate) fn spaces(self, text: &str, range: Range<usize>) -> Range<usize> {
        let Trim::Trims { add_prefix_space } = self else { return range };
        let bytes = text.as_bytes().get(range.clone()).unwrap_or_default();
        let is_space = |byte: &&u8| **byte == b' ';
        let lead = bytes.iter().take_while(is_space).count();
        let trail = bytes.iter().rev().take_while(is_space).count();
        let is_added = range.start == 0 && add_prefix_space && lead == 1;
        let start = if is_added { range.start } else { range.start + lead };
        start..(range.end - trail).max(start)
    }

    /// Returns the `range` of a token whose string starts with `lead` and ends with `trail` characters of white space.
    /// The reference counts characters.
    pub(crate) fn trimmed(
        self,
        text: &str,
        range: Range<usize>,
        lead: usize,
        trail: usize,
        is_first: bool,
    ) -> Range<usize> {
        let Trim::Trims { add_prefix_space } = self else { return range };
        let Range { mut start, mut end } = range;
        let is_added = (is_first || start == 0) && add_prefix_space && lead == 1;
        if !is_added {
            let inside = text.get(start..end).unwrap_or_default();
            start = inside.char_indices().nth(lead).map_or(end, |(at, _)| start + at);
        }
        if trail > 0 {
            let before = text.get(..end).unwrap_or_default();
            end = before.char_indices().nth_back(trail - 1).map_or(end, |(at, _)| at.max(start));
        }
        start..end
    }
}
