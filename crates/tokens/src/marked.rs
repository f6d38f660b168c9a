//! Texts of which some parts are content, such as rendered chats: special tokens by position, the range of the text
//! that each id stands for, and loss masks.
//!
//! A text is cut at its added tokens ([`crate::cuts`]). The fast engine encodes the pieces between them, and determines
//! the ranges of their ids from the lengths of tokens. Where it cannot, the reference encodes the piece.

use std::ops::Range;

use crate::cuts::{AddedTokenMatcher, Content, Cut, Trim};
use crate::engine::reference::Reference;
use crate::engine::{Engine, Outcome};
use crate::error::EncodeError;
use crate::id_set::IdSet;
use crate::info::EngineInfo;
use crate::options::SpecialInText;
use crate::scratch::Scratch;
use crate::segments::{SEGMENT_BYTES, SegmentEncoder};
use crate::special::{HIDDEN_MARK, SpecialTokenFinder};
use crate::stats::EncodeStats;
use crate::tokenizer::{ReferenceEngine, Tokenizer};
use crate::verify::Verified;

/// Target size in bytes of the windows of a long piece that the reference encodes. Small in tests.
const WINDOW_BYTES: usize = if cfg!(test) { 1 << 10 } else { 4 * SEGMENT_BYTES };
/// Minimum size in bytes of the text before a window that the reference encodes with it.
const CONTEXT_BYTES: usize = WINDOW_BYTES / 256;

/// Number of positions near which a window may end.
const DIVISIONS_TRIED: usize = 4;

/// Ids, and what they stand for. Filled by [`Tokenizer::encode_marked`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MarkedIds {
    /// The ids.
    pub ids: Vec<u32>,
    /// For each id, the byte range of the text that it stands for. A token with some of the bytes of a character has
    /// the range of the whole character.
    pub ranges: Vec<Range<u32>>,
    /// The byte ranges of the strings of special tokens that overlap content, in order.
    pub special_in_content: Vec<Range<u32>>,
}

impl MarkedIds {
    /// Removes all ids. Keeps the memory.
    pub fn clear(&mut self) {
        self.truncate((0, 0));
    }

    fn counts(&self) -> (usize, usize) {
        (self.ids.len(), self.special_in_content.len())
    }

    fn truncate(&mut self, (ids, special): (usize, usize)) {
        self.ids.truncate(ids);
        self.ranges.truncate(ids);
        self.special_in_content.truncate(special);
    }
}

/// Returns, for each token, whether one of `spans` trains it (1) or not (0), exactly as `transformers` decides it in
/// `apply_chat_template` with `return_assistant_tokens_mask=True`.
///
/// `ranges` are those of [`MarkedIds`], and `spans` are byte ranges of the same text. From the first token that has the
/// first character of a span, all tokens up to the first one that has its last character are trained; if that is the
/// first token, all tokens after the start are.
///
/// `None` if no token has the first or the last character of a span, because a normalizer or `trim_offsets` removed it.
/// `transformers` then trains none of the spans that follow, or everything.
pub fn mask(ranges: &[Range<u32>], spans: &[Range<usize>]) -> Option<Vec<u8>> {
    let mut mask = vec![0; ranges.len()];
    let token_at = token_finder(ranges);
    for span in spans {
        let (first, last) = (token_at(span.start)?, token_at(span.end.checked_sub(1)?)?);
        let end = if last > 0 { last + 1 } else { ranges.len() };
        if let Some(tokens) = mask.get_mut(first..end) {
            tokens.fill(1);
        }
    }
    Some(mask)
}

/// Returns a function that finds the first token with the character at a byte.
fn token_finder(ranges: &[Range<u32>]) -> impl Fn(usize) -> Option<usize> {
    let is_sorted = is_sorted(ranges);
    move |at| {
        let contains = |range: &Range<u32>| (range.start as usize..range.end as usize).contains(&at);
        if !is_sorted {
            return ranges.iter().position(contains);
        }
        let first = ranges.partition_point(|range| range.end as usize <= at);
        ranges.get(first).filter(|range| contains(range)).map(|_| first)
    }
}

/// Like [`mask`], but a token is trained if and only if it overlaps a span, or has no range and is between two such
/// tokens. Both agree where each character has one token.
pub fn overlap_mask(ranges: &[Range<u32>], spans: &[Range<usize>]) -> Vec<u8> {
    let mut mask = vec![0; ranges.len()];
    let is_sorted = is_sorted(ranges);
    for span in spans.iter().filter(|span| !span.is_empty()) {
        let (mut first, mut end) = (0, ranges.len());
        if is_sorted {
            first = ranges.partition_point(|range| range.end as usize <= span.start);
            end = ranges.partition_point(|range| (range.start as usize) < span.end);
        }
        let tokens = mask.get_mut(first..end).unwrap_or_default();
        if is_sorted {
            tokens.fill(1);
            continue;
        }
        for (value, range) in tokens.iter_mut().zip(ranges) {
            let overlaps = (range.start as usize) < span.end && range.end as usize > span.start;
            *value |= u8::from(overlaps);
        }
    }
    mask
}

/// Returns whether ranges start and end in order.
fn is_sorted(ranges: &[Range<u32>]) -> bool {
    let is_before = |a: &Range<u32>, b: &Range<u32>| (a.start <= b.start) & (a.end <= b.end);
    // Without branches, the loop is vectorized.
    ranges.iter().zip(ranges.iter().skip(1)).fold(true, |sorted, (a, b)| sorted & is_before(a, b))
}

impl Tokenizer {
    /// Appends the ids of `text`, and for each id the range of `text` that it stands for, as the reference's
    /// `Encoding::get_offsets` in bytes.
    ///
    /// Strings of special tokens that lie wholly outside of `content`, sorted and disjoint byte ranges, are those tokens.
    /// Strings that overlap `content` are treated by
    /// [`special_in_text`](crate::TokenizerOptions::special_in_text). Added tokens that are not special match everywhere.
    /// Nothing is added around the text, whatever the options say.
    ///
    /// If no special token overlaps `content`, the ids are those of `apply_chat_template(tokenize=True)` in
    /// `transformers` for the rendered text.
    ///
    /// # Errors
    ///
    /// If the text cannot be encoded; `out` is then unchanged. SentencePiece models that a `tokenizer.json` embeds are
    /// not supported, because they parse no special tokens.
    pub fn encode_marked(
        &self,
        text: &str,
        content: &[Range<usize>],
        scratch: &mut Scratch,
        out: &mut MarkedIds,
    ) -> Result<EncodeStats, EncodeError> {
        self.encode_marked_by(self.fast.as_deref(), text, content, scratch, out)
    }

    /// Returns whether [`encode_marked`](Self::encode_marked) supports this tokenizer.
    ///
    /// # Errors
    ///
    /// The error of each text if it does not.
    pub fn check_marked(&self) -> Result<(), EncodeError> {
        let mut scratch = self.scratch();
        self.append_marked(self.fast.as_deref(), "", &[], &mut scratch, &mut MarkedIds::default()).map(drop)
    }

    /// Like [`encode_marked`](Self::encode_marked), but uses the slow reference.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`encode_marked`](Self::encode_marked).
    pub fn encode_marked_reference(
        &self,
        text: &str,
        content: &[Range<usize>],
        scratch: &mut Scratch,
        out: &mut MarkedIds,
    ) -> Result<EncodeStats, EncodeError> {
        self.encode_marked_by(None, text, content, scratch, out)
    }

    /// Compares `marked` with the reference. `marked` and `stats` are the results of
    /// [`encode_marked`](Self::encode_marked) for `text` and `content`.
    ///
    /// [`TokenizerOptions::verify`](crate::TokenizerOptions::verify) and `key_hash`, 64 well-mixed bits that identify
    /// the text, select whether it is compared. Texts above
    /// [`max_reference_bytes`](crate::TokenizerOptions::max_reference_bytes) are not.
    pub fn verify_marked(
        &self,
        key_hash: u64,
        text: &str,
        content: &[Range<usize>],
        marked: &MarkedIds,
        stats: &EncodeStats,
        scratch: &mut Scratch,
    ) -> Verified {
        let mut verified = Verified { bytes: 0, too_long: false, is_right: true };
        if !stats.by_reference && self.should_verify(key_hash) && verified.admit(self, text) {
            let mut expected = MarkedIds::default();
            let encoded = self.encode_marked_reference(text, content, scratch, &mut expected).map(drop);
            verified.compare(text, encoded, || *marked == expected);
        }
        verified
    }

    fn encode_marked_by(
        &self,
        fast: Option<&dyn Engine>,
        text: &str,
        content: &[Range<usize>],
        scratch: &mut Scratch,
        out: &mut MarkedIds,
    ) -> Result<EncodeStats, EncodeError> {
        scratch.claim(self.serial);
        let before = out.counts();
        let result = self.append_marked(fast, text, content, scratch, out);
        if result.is_err() {
            out.truncate(before);
        }
        result
    }

    fn append_marked(
        &self,
        fast: Option<&dyn Engine>,
        text: &str,
        content: &[Range<usize>],
        scratch: &mut Scratch,
        out: &mut MarkedIds,
    ) -> Result<EncodeStats, EncodeError> {
        if u32::try_from(text.len()).is_err() {
            return Err(EncodeError::Unsupported("it has 4 GiB or more".to_owned()));
        }
        let reference = match &self.reference {
            ReferenceEngine::Reference(reference) => reference,
            ReferenceEngine::Bytes(_) => {
                append_bytes(text, out);
                return Ok(EncodeStats { by_reference: true, ..Default::default() });
            }
            ReferenceEngine::SentencePiece(_) => {
                return Err(EncodeError::Unsupported(
                    "a SentencePiece model parses no special tokens; use the `tokenizer.json` of the model"
                        .to_owned(),
                ));
            }
        };
        let matcher = self.matcher.get_or_init(|| AddedTokenMatcher::new(reference.parts()));
        let matcher = matcher.as_ref().map_err(Clone::clone)?;
        let content = Content { ranges: content, special: self.options.special_in_text };
        let (first_id, first_special) = out.counts();
        let mut in_content = Vec::new();
        let cuts = matcher.cuts(text, content, &mut in_content);
        let fast = fast.filter(|_| matcher.trim != Trim::Unknown);
        let fast = fast.and_then(|engine| {
            let found = in_content.len();
            let cuts = matcher.all_cuts(text, content, cuts.clone(), &mut in_content);
            if cuts.is_none() {
                in_content.truncate(found);
            }
            Some((engine, cuts?))
        });
        out.special_in_content.extend(in_content.iter().map(|found| found.start as u32..found.end as u32));
        let finder = if matcher.finds_normalized() { &SpecialTokenFinder::Nothing } else { &self.finder };
        let mut marking = Marking { text, content, matcher, finder, reference, scratch, out };
        let by_reference = fast.is_none();
        match fast {
            Some((engine, cuts)) => marking.pieces(engine, &cuts)?,
            None => reference.encode_cut(text, 0, (Some(matcher), &cuts), content, marking.out)?,
        }
        let special = out.special_in_content.get_mut(first_special..).unwrap_or_default();
        special.sort_unstable_by_key(|found| found.start);
        if let (SpecialInText::Error, Some(found)) = (content.special, special.first()) {
            let string = text.get(found.start as usize..found.end as usize).unwrap_or_default();
            return Err(EncodeError::SpecialToken(string.to_owned()));
        }
        let special_in_text = special.len() as u64;
        if !self.hidden.is_empty() {
            // The id of a hidden token is allowed where the token was parsed.
            let mut ids = out.ids.iter().zip(&out.ranges).skip(first_id);
            let is_name = |range: &Range<u32>| {
                text.get(range.start as usize..range.end as usize)
                    .is_some_and(|name| name.contains(HIDDEN_MARK))
            };
            if ids.any(|(id, range)| self.hidden.contains(*id) && is_name(range)) {
                return Err(EncodeError::HiddenName);
            }
        }
        Ok(EncodeStats { special_in_text, by_reference, ..Default::default() })
    }
}

/// Appends the bytes of `text`. Each has the range of its character.
fn append_bytes(text: &str, out: &mut MarkedIds) {
    out.ids.extend(text.bytes().map(u32::from));
    for (at, c) in text.char_indices() {
        let range = at as u32..(at + c.len_utf8()) as u32;
        out.ranges.extend(std::iter::repeat_n(range, c.len_utf8()));
    }
}

/// A text that is being encoded.
struct Marking<'a, 's> {
    text: &'a str,
    content: Content<'a>,
    matcher: &'a AddedTokenMatcher,
    /// Finds special tokens that the matcher finds only in the text that the reference normalizes.
    finder: &'a SpecialTokenFinder,
    reference: &'a Reference,
    scratch: &'s mut Scratch,
    out: &'s mut MarkedIds,
}

impl Marking<'_, '_> {
    /// Appends the added tokens and the pieces between them.
    fn pieces(&mut self, engine: &dyn Engine, cuts: &[Cut]) -> Result<(), EncodeError> {
        let (mut start, mut before) = (0, None);
        let is_at_start = self.out.ids.len();
        for cut in cuts.iter().map(Some).chain([None]) {
            let end = cut.map_or(self.text.len(), |cut| cut.start);
            if start < end {
                self.piece(engine, before, start..end)?;
            }
            let Some(cut) = cut else { break };
            let is_first = self.out.ids.len() == is_at_start;
            let range = self.matcher.trim.cut(self.text, cut, is_first);
            self.out.ids.push(cut.id);
            self.out.ranges.push(range.start as u32..range.end as u32);
            (start, before) = (cut.end, Some(cut));
        }
        Ok(())
    }

    /// Appends the ids of a piece, which follows the added token `before`, if any.
    fn piece(
        &mut self,
        engine: &dyn Engine,
        before: Option<&Cut>,
        range: Range<usize>,
    ) -> Result<(), EncodeError> {
        let piece = self.text.get(range.clone()).unwrap_or_default();
        if self.may_have_normalized_special(piece)? {
            return self.by_reference(None, before, range);
        }
        let Self { text, scratch, out, .. } = self;
        let (first, is_first) = (out.ids.len(), range.start == 0);
        let is_done = if piece.len() <= SEGMENT_BYTES {
            engine.encode_piece(piece, is_first, scratch, &mut out.ids)? == Outcome::Done
        } else {
            let encoder = SegmentEncoder { prefix: &[], suffix: &[], hidden: &IdSet::default() };
            let engine = PieceEngine { engine, piece, is_first };
            encoder.encode(&engine, piece, scratch, &mut out.ids)?.is_some()
        };
        let ids = out.ids.get(first..).unwrap_or_default();
        if is_done && engine.ranges(text, range.clone(), ids, scratch, &mut out.ranges) {
            return Ok(());
        }
        out.ids.truncate(first);
        self.by_reference(Some(engine), before, range)
    }

    /// Returns whether a piece may contain a special token that is found only in the normalized text.
    fn may_have_normalized_special(&self, piece: &str) -> Result<bool, EncodeError> {
        let SpecialTokenFinder::Normalized { cores, finder, .. } = self.finder else { return Ok(false) };
        if cores.as_ref().is_some_and(|cores| !cores.is_match(piece)) {
            return Ok(false);
        }
        let found =
            finder.as_ref().map(|finder| finder.find(self.reference.max_bytes(), piece)).transpose()?;
        Ok(found.flatten().is_none_or(|found| !found.is_empty()))
    }

    /// Like [`piece`](Self::piece), by the reference. A long piece is encoded in windows, where `engine` can divide it.
    /// As the start of a window may look like the start of a text, the reference also encodes what precedes it: the
    /// added token, or a few words.
    fn by_reference(
        &mut self,
        engine: Option<&dyn Engine>,
        before: Option<&Cut>,
        piece: Range<usize>,
    ) -> Result<(), EncodeError> {
        let mut window = MarkedIds::default();
        // Start of the window, and the number of its first ids that are appended already.
        let (mut from, mut skip) = before.map_or((piece.start, 0), |cut| (cut.start, 1));
        let mut cuts: Vec<Cut> = before.map(|cut| cut.relative_to(from)).into_iter().collect();
        loop {
            let next = engine.and_then(|engine| self.next_window(engine, from.max(piece.start)..piece.end));
            let end = next.as_ref().map_or(piece.end, |next| next.end);
            self.encode_window(from..end, &cuts, &mut window)?;
            self.out.ids.extend(window.ids.iter().skip(skip));
            self.out.ranges.extend(window.ranges.iter().skip(skip).cloned());
            if engine.is_none() {
                self.out.special_in_content.append(&mut window.special_in_content);
            }
            let Some(context) = next else { return Ok(()) };
            cuts.clear();
            from = context.start;
            self.encode_window(context, &cuts, &mut window)?;
            skip = window.ids.len();
        }
    }

    /// Returns the text before the next window, with which this window ends. `None` if this is the last one.
    fn next_window(&self, engine: &dyn Engine, rest: Range<usize>) -> Option<Range<usize>> {
        if rest.len() <= WINDOW_BYTES {
            return None;
        }
        // An engine may find no place near one position although there is one near another.
        let divide = |from: usize, bytes: usize| {
            let text = self.text.get(from..rest.end)?;
            (1..=DIVISIONS_TRIED).find_map(|times| engine.divide(text, times * bytes))
        };
        let start = rest.start + divide(rest.start, WINDOW_BYTES)?.end;
        Some(start..start + divide(start, CONTEXT_BYTES)?.start)
    }

    /// Encodes a part of the text by the reference.
    fn encode_window(
        &self,
        part: Range<usize>,
        cuts: &[Cut],
        window: &mut MarkedIds,
    ) -> Result<(), EncodeError> {
        window.clear();
        let text = self.text.get(part.clone()).unwrap_or_default();
        let matcher = (!self.matcher.finds_normalized()).then_some(self.matcher);
        self.reference.encode_cut(text, part.start, (matcher, cuts), self.content, window)
    }
}

/// Encodes the segments of a piece.
struct PieceEngine<'a> {
    engine: &'a dyn Engine,
    piece: &'a str,
    is_first: bool,
}

impl Engine for PieceEngine<'_> {
    fn info(&self) -> EngineInfo {
        self.engine.info()
    }

    fn encode(&self, text: &str, scratch: &mut Scratch, out: &mut Vec<u32>) -> Result<Outcome, EncodeError> {
        // Where a piece is divided, the second part is encoded like the start of a text.
        let is_first = self.is_first || !std::ptr::eq(text.as_ptr(), self.piece.as_ptr());
        self.engine.encode_piece(text, is_first, scratch, out)
    }

    fn divide(&self, text: &str, from: usize) -> Option<Range<usize>> {
        self.engine.divide(text, from)
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "one range of a text")]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::engine::fast::tests::families;
    use crate::testing::{
        PAGE, add_token, bpe, bytes, char_bpe, char_bpe_with_metaspace, tricky, unigram, wordpiece,
    };
    use crate::{EngineChoice, TokenizerOptions, Verify};

    /// A tokenizer, and the published one for the same file.
    struct Family {
        name: String,
        tokenizer: Tokenizer,
        published: tokenizers::Tokenizer,
    }

    fn with(value: &Value, special_in_text: SpecialInText) -> Tokenizer {
        let options = TokenizerOptions { special_in_text, ..Default::default() };
        Tokenizer::from_json(bytes(value), options).unwrap()
    }

    /// `value` with a token that has these flags.
    fn flagged(value: &Value, content: &str, flags: &[&str]) -> Value {
        let mut value = value.clone();
        add_token(&mut value, content, !flags.contains(&"ordinary"), flags.contains(&"normalized"));
        let token = value["added_tokens"].as_array_mut().unwrap().last_mut().unwrap();
        for flag in ["lstrip", "rstrip", "single_word"] {
            token[flag] = json!(flags.contains(&flag));
        }
        value
    }

    /// Tokenizers with tokens of all kinds, and with post-processors that change ranges.
    fn variants() -> Vec<(&'static str, Value)> {
        let level = |trim: bool, prefix: bool| {
            let mut value = bpe();
            value["pre_tokenizer"]["add_prefix_space"] = json!(prefix);
            value["post_processor"] = json!({"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": trim, "use_regex": true});
            value
        };
        let mut twice = level(true, false);
        let processor = twice["post_processor"].clone();
        twice["post_processor"] = json!({"type": "Sequence", "processors": [processor, processor]});
        let mut nfc = level(true, false);
        nfc["normalizer"] = json!({"type": "NFC"});
        let all = |value: &Value| {
            let value = flagged(value, "<end>", &["rstrip"]);
            let value = flagged(&value, "<mask>", &["lstrip"]);
            let value = flagged(&value, "<word>", &["single_word"]);
            let value = flagged(&value, "<end><s>", &[]);
            let value = flagged(&value, "<\u{3000}>", &["lstrip", "rstrip"]);
            flagged(&value, "end>", &["ordinary"])
        };
        let normalized = |value: &Value| {
            let value = flagged(value, "<end>", &["normalized", "rstrip"]);
            let value = flagged(&value, "<mask>", &["normalized", "lstrip"]);
            let value = flagged(&value, "<word>", &["normalized", "single_word"]);
            let value = flagged(&value, "a\u{301}K>", &["normalized"]);
            flagged(&value, "<dog>", &["normalized", "ordinary"])
        };
        let mut prefixed_nfc = level(true, true);
        prefixed_nfc["normalizer"] = json!({"type": "NFC"});
        let mut lowercase = bpe();
        lowercase["normalizer"] = json!({"type": "Lowercase"});
        vec![
            ("trimmed", level(true, false)),
            ("trimmed after a space", level(true, true)),
            ("trimmed twice", twice),
            ("trimmed nfc", all(&nfc)),
            ("all tokens, bytes", all(&level(false, false))),
            ("all tokens, prefixed", all(&level(true, true))),
            ("all tokens, characters", all(&char_bpe(false))),
            ("all tokens, first", all(&char_bpe_with_metaspace("first", true, false))),
            ("all tokens, never", all(&char_bpe_with_metaspace("never", true, false))),
            ("all tokens, unigram", all(&unigram())),
            ("all tokens, words", all(&wordpiece())),
            ("normalized tokens, bytes", normalized(&bpe())),
            ("normalized tokens, nfc", normalized(&nfc)),
            ("normalized tokens, prefixed nfc", normalized(&prefixed_nfc)),
            ("normalized tokens, lowercase", normalized(&lowercase)),
            ("normalized tokens, characters", normalized(&char_bpe(false))),
            ("normalized tokens, words", normalized(&wordpiece())),
        ]
    }

    static FAMILIES: LazyLock<Vec<Family>> = LazyLock::new(|| {
        let mut families = Vec::new();
        for (name, value) in families::values().into_iter().chain(variants()) {
            for special in [SpecialInText::Text, SpecialInText::Parse] {
                let published = tokenizers::Tokenizer::from_bytes(bytes(&value)).unwrap();
                let name = format!("{name} {special:?}");
                families.push(Family { name, tokenizer: with(&value, special), published });
            }
        }
        families
    });

    fn marked(
        tokenizer: &Tokenizer,
        text: &str,
        content: &[Range<usize>],
        by_reference: bool,
    ) -> Result<MarkedIds, EncodeError> {
        let (mut scratch, mut out) = (tokenizer.scratch(), MarkedIds::default());
        match by_reference {
            true => tokenizer.encode_marked_reference(text, content, &mut scratch, &mut out)?,
            false => tokenizer.encode_marked(text, content, &mut scratch, &mut out)?,
        };
        Ok(out)
    }

    /// The ids and the ranges in bytes of the published tokenizer, which parses special tokens.
    fn published(tokenizer: &tokenizers::Tokenizer, text: &str) -> Option<(Vec<u32>, Vec<Range<u32>>)> {
        let encoding = tokenizer.encode_char_offsets(text, false).ok()?;
        let starts: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        let range = |(start, end): &(usize, usize)| starts[*start] as u32..starts[*end] as u32;
        Some((encoding.get_ids().to_vec(), encoding.get_offsets().iter().map(range).collect()))
    }

    /// Texts with special tokens, and the end of each of their parts.
    fn parts() -> impl Strategy<Value = (String, Vec<usize>)> {
        let tokens = prop::sample::select(vec![
            "<|endoftext|>",
            "<s>",
            "</s>",
            "[CLS]",
            "[SEP]",
            "[cls]",
            "<unk>",
            "<pad>",
            "<dog>",
            "<end>",
            "end>",
            "<mask>",
            "<word>",
            "<end><s>",
            "<\u{3000}>",
            "\n",
            " ",
            "  the dog",
            "<|endof",
            "text|>",
            "<e",
            "é",
            "a\u{301}K>",
            "\u{e1}\u{212a}>",
            "<END>",
            "\u{338}",
        ]);
        let part = prop_oneof![2 => tokens.prop_map(str::to_owned), 1 => tricky()];
        prop::collection::vec(part, 0..10).prop_map(|parts| {
            let ends = parts.iter().scan(0, |end, part| {
                *end += part.len();
                Some(*end)
            });
            (parts.concat(), ends.collect())
        })
    }

    /// Every part of a text whose bit is set is content.
    fn content(ends: &[usize], bits: u32) -> Vec<Range<usize>> {
        let starts = [0].into_iter().chain(ends.iter().copied());
        let all = starts.zip(ends.iter().copied()).enumerate();
        all.filter(|(i, _)| bits >> i & 1 == 1).map(|(_, (start, end))| start..end).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn ids_and_ranges_without_content_are_those_of_the_published_tokenizer((text, _) in parts()) {
            for Family { name, tokenizer, published: theirs } in &*FAMILIES {
                let ours = marked(tokenizer, &text, &[], false).ok();
                let theirs = published(theirs, &text);
                prop_assert_eq!(ours.map(|ours| (ours.ids, ours.ranges)), theirs, "{} {:?}", name, text);
            }
        }

        #[test]
        fn ids_and_ranges_with_content_are_those_of_the_reference((text, ends) in parts(), bits: u32) {
            let content = content(&ends, bits);
            for Family { name, tokenizer, .. } in &*FAMILIES {
                let [ours, theirs] = [false, true].map(|by| marked(tokenizer, &text, &content, by));
                prop_assert_eq!(ours, theirs, "{} {:?} {:?}", name, text, content);
            }
        }

        #[test]
        fn a_text_of_content_alone_has_its_usual_ids((text, _) in parts()) {
            for Family { name, tokenizer, .. } in &*FAMILIES {
                let mut ids = Vec::new();
                let whole = [0..text.len()];
                let usual = tokenizer.encode(&text, &mut tokenizer.scratch(), &mut ids);
                let ours = marked(tokenizer, &text, &whole, false);
                prop_assert_eq!(usual.is_ok(), ours.is_ok(), "{} {:?}", name, text);
                if let Ok(ours) = ours {
                    prop_assert_eq!(ours.ids, ids, "{} {:?}", name, text);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn masks_are_those_of_transformers(
            ranges in prop::collection::vec((0u32..30, 0u32..4), 0..12),
            sorts: bool,
            spans in prop::collection::vec((0usize..32, 1usize..6), 0..4),
        ) {
            let mut ranges: Vec<Range<u32>> = ranges.into_iter().map(|(at, len)| at..at + len).collect();
            if sorts {
                ranges.sort_unstable_by_key(|range| (range.start, range.end));
            }
            let mut spans: Vec<Range<usize>> = spans.into_iter().map(|(at, len)| at..at + len).collect();
            spans.sort_unstable_by_key(|span| span.start);
            // `transformers.tokenization_utils_base.apply_chat_template`, line by line.
            let char_to_token = |at: usize| {
                ranges.iter().position(|range| at >= range.start as usize && at < range.end as usize)
            };
            let mut expected = vec![0; ranges.len()];
            let mut has_ends = true;
            for span in &spans {
                let start_token = char_to_token(span.start);
                let end_token = char_to_token(span.end - 1);
                has_ends &= start_token.is_some() && end_token.is_some();
                let Some(start_token) = start_token else { break };
                let end = if end_token.is_some_and(|end| end != 0) { end_token.unwrap() + 1 } else { ranges.len() };
                (start_token..end).for_each(|token| expected[token] = 1);
            }
            prop_assert_eq!(mask(&ranges, &spans), has_ends.then_some(expected));
        }
    }

    #[test]
    fn masks_of_characters_with_several_tokens() {
        // `a`, an emoji with three tokens, `b` with the space before it trimmed, and the end.
        let ranges = [0..1, 1..5, 1..5, 1..5, 6..7, 7..8];
        let one = |span| mask(&ranges, &[span]).unwrap();
        assert_eq!(one(1..8), [0, 1, 1, 1, 1, 1]);
        // Only the first token of the last character, as in `transformers`.
        assert_eq!(one(0..5), [1, 1, 0, 0, 0, 0]);
        assert_eq!(overlap_mask(&ranges, &[0..5]), [1, 1, 1, 1, 0, 0]);
        // No token has the first character.
        assert_eq!(mask(&ranges, &[5..7, 7..8]), None);
        assert_eq!(overlap_mask(&ranges, &[5..7]), [0, 0, 0, 0, 1, 0]);
        // No token has the last one.
        assert_eq!(mask(&ranges, &[0..6]), None);
        // The last one is in the first token.
        assert_eq!(one(0..1), [1; 6]);
        assert_eq!(overlap_mask(&ranges, &[0..1, 7..8]), [1, 0, 0, 0, 0, 1]);
        assert_eq!((mask(&[], &[0..1]), overlap_mask(&[], &[0..1])), (None, vec![]));
    }

    #[test]
    fn spans_without_tokens_at_their_ends_have_no_mask() {
        let span = 2..5;
        for (ranges, expected) in
            [(vec![0..2, 2..5], true), (vec![0..2, 3..5], false), (vec![0..3, 3..4], false)]
        {
            assert_eq!(mask(&ranges, std::slice::from_ref(&span)).is_some(), expected, "{ranges:?}");
        }
    }

    #[test]
    fn special_tokens_are_treated_by_their_position() {
        let mut value = bpe();
        let [start, end] =
            ["<|im_start|>", "<|im_end|>"].map(|token| add_token(&mut value, token, true, false));
        let think = add_token(&mut value, "<think>", false, false);
        let text = "<|im_start|>the<think><|im_end|>dog<|im_end|>";
        let content = [12..text.len() - 10];
        let t = with(&value, SpecialInText::Text);
        let of = |t: &Tokenizer, text: &str, content: &[Range<usize>]| {
            let (mut scratch, mut out) = (t.scratch(), MarkedIds::default());
            let stats = t.encode_marked(text, content, &mut scratch, &mut out).unwrap();
            assert_eq!(stats.special_in_text, out.special_in_content.len() as u64);
            (out, stats)
        };
        let count = |ids: &[u32], id: u32| ids.iter().filter(|other| **other == id).count();
        let (out, stats) = of(&t, text, &content);
        assert_eq!((out.ids.first(), out.ids.last()), (Some(&start), Some(&end)));
        assert_eq!((count(&out.ids, end), count(&out.ids, think), stats.special_in_text), (1, 1, 1));
        assert_eq!(out.special_in_content, [22..32]);
        assert!(!stats.by_reference);
        // The same tokenizer encodes texts as before.
        let mut ids = Vec::new();
        t.encode(text, &mut t.scratch(), &mut ids).unwrap();
        assert_eq!((count(&ids, start), count(&ids, end), count(&ids, think)), (0, 0, 1));

        let (out, stats) = of(&with(&value, SpecialInText::Parse), text, &content);
        assert_eq!((count(&out.ids, end), stats.special_in_text), (2, 1));
        let strict = with(&value, SpecialInText::Error);
        let mut out = MarkedIds { ids: vec![7], ranges: vec![0..1], special_in_content: Vec::new() };
        let before = out.clone();
        let error = strict.encode_marked(text, &content, &mut strict.scratch(), &mut out).unwrap_err();
        assert_eq!((error, &out), (EncodeError::SpecialToken("<|im_end|>".to_owned()), &before));
        assert_eq!(of(&strict, text, &[12..15]).0.ids, of(&t, text, &[]).0.ids);

        // Content that begins or ends inside a special token.
        let text = "<|im_start|<|im_end|>";
        assert_eq!(of(&t, text, &[0..11]).0.ids.last(), Some(&end));
        let text = "<|im_end|><|im_end|>";
        for content in [0..9, 0..10, 3..4, 9..10] {
            let (out, _) = of(&t, text, &[content]);
            assert_eq!((count(&out.ids, end), out.ids.last()), (1, Some(&end)));
        }
        assert_eq!(count(&of(&t, text, &[9..11]).0.ids, end), 0);
        assert_eq!(count(&of(&t, text, &[0..0, 4..4, 10..10, 20..20]).0.ids, end), 2);
    }

    #[test]
    fn texts_with_normalized_special_tokens_are_encoded_fast() {
        let mut value = bpe();
        value["normalizer"] = json!({"type": "NFC"});
        let end = add_token(&mut value, "<|im_end|>", true, true);
        let t = with(&value, SpecialInText::Text);
        let by_reference = |text: &str, content: Range<usize>| {
            let content = [content];
            let (mut scratch, mut out) = (t.scratch(), MarkedIds::default());
            let stats = t.encode_marked(text, &content, &mut scratch, &mut out).unwrap();
            assert_eq!(out, marked(&t, text, &content, true).unwrap());
            let found = out.ids.iter().filter(|id| **id == end).count();
            (stats.by_reference, found, out.special_in_content.len())
        };
        let text = "the e\u{301}<|im_end|>dog<|im_end|>";
        assert_eq!(by_reference(text, 0..0), (false, 2, 0));
        assert_eq!(by_reference(text, 0..text.len() - 10), (false, 1, 1));
        // The last character of the token is composed with the next one; it is no token.
        assert_eq!(by_reference("dog<|im_end|>\u{338}", 0..0), (false, 0, 0));
        // The normalizer writes it.
        let mut value = bpe();
        value["normalizer"] = json!({"type": "NFC"});
        let end = add_token(&mut value, "<K>", true, true);
        let t = with(&value, SpecialInText::Text);
        let (mut scratch, mut out) = (t.scratch(), MarkedIds::default());
        let stats = t.encode_marked("<\u{212a}>", &[], &mut scratch, &mut out).unwrap();
        assert_eq!((stats.by_reference, out.ids), (true, vec![end]));
        // Other normalizers: pieces without such tokens, and those with them.
        let mut value = bpe();
        value["normalizer"] = json!({"type": "Lowercase"});
        add_token(&mut value, "<|start|>", true, false);
        let end = add_token(&mut value, "<END>", true, true);
        let t = with(&value, SpecialInText::Text);
        let text = "The<|start|>dog<end><|start|>DOG <End>";
        let content = [0..3, text.len() - 5..text.len()];
        let (mut scratch, mut out) = (t.scratch(), MarkedIds::default());
        let stats = t.encode_marked(text, &content, &mut scratch, &mut out).unwrap();
        assert!(!stats.by_reference);
        assert_eq!(out, marked(&t, text, &content, true).unwrap());
        assert_eq!(out.ids.iter().filter(|id| **id == end).count(), 1);
        assert_eq!(out.special_in_content.len(), 1);
    }

    #[test]
    fn a_refused_string_hides_no_token_of_the_template() {
        let mut value = bpe();
        let [a, b, both] = ["<a>", "<b>", "<a><b>"].map(|token| add_token(&mut value, token, true, false));
        let hidden = add_token(&mut value, "a>", false, false);
        let t = with(&value, SpecialInText::Text);
        let added = |content: Range<usize>| {
            let [ours, theirs] =
                [false, true].map(|by| marked(&t, "<a><b>", std::slice::from_ref(&content), by).unwrap());
            assert_eq!(ours, theirs);
            let is_added = |id: &u32| [a, b, both, hidden].contains(id);
            ours.ids.into_iter().filter(is_added).collect::<Vec<u32>>()
        };
        assert_eq!(added(0..0), [both]);
        assert_eq!(added(0..3), [b]);
        assert_eq!(added(3..6), [a]);
        assert_eq!(added(0..6), [0; 0]);
        assert_eq!(added(4..5), [a]);
    }

    #[test]
    fn bytes_have_the_ranges_of_their_characters() {
        let t = Tokenizer::bytes(TokenizerOptions { add_bos: true, ..Default::default() }).unwrap();
        let out = marked(&t, "aé", &[], false).unwrap();
        assert_eq!((out.ids, out.ranges), (vec![97, 0xc3, 0xa9], vec![0..1, 1..3, 1..3]));
    }

    #[test]
    fn the_hidden_name_of_a_control_token_is_refused() {
        let mut value = unigram();
        value["pre_tokenizer"] = Value::Null;
        let t = with(&value, SpecialInText::Text);
        // The token of the template has the id of the hidden piece.
        assert_eq!(marked(&t, "the</s>", &[], false).unwrap().ids.last(), Some(&1));
        let name = format!("</s>{}", crate::special::hidden_name(1));
        for by_reference in [false, true] {
            assert_eq!(marked(&t, &name, &[4..name.len()], by_reference), Err(EncodeError::HiddenName));
        }
    }

    #[test]
    fn samples_are_compared_with_the_reference() {
        let options = TokenizerOptions { verify: Verify::All, ..Default::default() };
        let t = Tokenizer::from_json(bytes(&bpe()), options).unwrap();
        let (text, mut scratch, mut out) = ("the<|endoftext|>dog é", t.scratch(), MarkedIds::default());
        let stats = t.encode_marked(text, &[], &mut scratch, &mut out).unwrap();
        let mut is_right =
            |out: &MarkedIds| t.verify_marked(1, text, &[], out, &stats, &mut scratch).is_right;
        assert!(is_right(&out));
        let mut wrong = out.clone();
        wrong.ids[0] ^= 1;
        assert!(!is_right(&wrong));
        out.ranges[1].end -= 1;
        assert!(!is_right(&out));
    }

    #[test]
    fn long_pieces_are_encoded_in_segments_and_windows() {
        let piece = PAGE.repeat(SEGMENT_BYTES / PAGE.len() + 1);
        let text = format!("{piece}<|endoftext|></s>[SEP]{piece}");
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let names = ["gpt2", "neox", "roberta", "llama3", "llama2", "first", "always", "gemma", "t5", "bert"];
        for Family { name, tokenizer, .. } in &*FAMILIES {
            if !names.iter().any(|chosen| *name == format!("{chosen} Text")) {
                continue;
            }
            let [ours, theirs] =
                [false, true].map(|by| pool.install(|| marked(tokenizer, &text, &[], by)).unwrap());
            assert!(ours == theirs, "{name}");
        }
        // Without a limit on its size, because the reference never gets the whole text.
        let options = TokenizerOptions {
            engine: EngineChoice::Fast,
            max_reference_bytes: Some(WINDOW_BYTES as u64 * 2),
            ..Default::default()
        };
        for value in [bpe(), unigram()] {
            let t = Tokenizer::from_json(bytes(&value), options.clone()).unwrap();
            assert!(marked(&t, &text, &[], false).is_ok());
            assert!(matches!(marked(&t, &text, &[], true), Err(EncodeError::TooLarge { .. })));
        }
    }
}
