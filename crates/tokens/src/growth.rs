//! A limit on the size of normalized texts, checked before each step of the reference's normalizer allocates.
//!
//! A `Replace` step may write kilobytes for each character, and several of them multiply. Most documents are so short
//! that even the worst case fits. The others are normalized an extra time, with the same added tokens and steps, and
//! the result of every step that can grow a text a lot is measured in advance.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::Value;
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::utils::SysRegex;
use tokenizers::{AddedVocabulary, NormalizedString, Normalizer};
use unicode_normalization_alignments::UnicodeNormalization;

use crate::charsmap::Charsmap;

/// Maximum growth factors in bytes of UTF-8, for canonical and compatibility normal forms (UAX #15), and for steps that
/// change characters one at a time.
pub(crate) const CANONICAL: u64 = 3;
pub(crate) const COMPATIBILITY: u64 = 11;
pub(crate) const CHARACTERS: u64 = 9;

/// The steps of a normalizer, with the data to measure their results.
pub(crate) struct Growth {
    steps: Vec<GrowthStep>,
}

struct GrowthStep {
    normalizer: NormalizerWrapper,
    kind: StepKind,
}

enum StepKind {
    Replace {
        pattern: Pattern,
        content_bytes: u64,
    },
    Prepend(u64),
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
    Precompiled {
        /// `None` if the map is damaged.
        map: Option<Charsmap>,
        longest: u64,
    },
    ByteLevel,
    /// Changes characters one at a time, so its growth is bounded and its result is measured afterwards.
    Characters,
}

enum Pattern {
    String(String),
    Regex(SysRegex),
}

impl Growth {
    /// Collects the steps of a normalizer.
    pub(crate) fn new(normalizer: Option<&NormalizerWrapper>) -> Self {
        let mut steps = Vec::new();
        if let Some(normalizer) = normalizer {
            collect(normalizer, &mut steps);
        }
        Self { steps }
    }

    /// Returns whether `text` has at most `most` bytes, before the first step and after each step. `added` splits it as
    /// in the reference.
    pub(crate) fn fits(&self, text: &str, added: &AddedVocabulary, most: u64) -> bool {
        if text.len() as u64 > most {
            return false;
        }
        if self.worst_case(text.len() as u64) <= most {
            return true;
        }
        let normalizer =
            MeasuringNormalizer { steps: &self.steps, most, done: 0.into(), exceeded: false.into() };
        added.extract_and_normalize(Some(&normalizer), text);
        !normalizer.exceeded.into_inner()
    }

    /// Returns an upper bound on the size of a text of `bytes` bytes after any of the steps.
    fn worst_case(&self, bytes: u64) -> u64 {
        // The text may be split at added tokens, and each part is normalized.
        let parts = bytes.saturating_add(1);
        let worst = |bytes: u64, step: &GrowthStep| match &step.kind {
            StepKind::Replace { pattern: Pattern::String(pattern), content_bytes } if !pattern.is_empty() => {
                bytes.saturating_mul(content_bytes.div_ceil(pattern.len() as u64).max(1))
            }
            StepKind::Replace { content_bytes, .. } => {
                bytes.saturating_add(bytes.saturating_add(parts).saturating_mul(*content_bytes))
            }
            StepKind::Prepend(more) => bytes.saturating_add(parts.saturating_mul(*more)),
            StepKind::Nfc | StepKind::Nfd => bytes.saturating_mul(CANONICAL),
            StepKind::Nfkc | StepKind::Nfkd => bytes.saturating_mul(COMPATIBILITY),
            StepKind::Precompiled { longest, .. } => bytes.saturating_mul(*longest),
            StepKind::ByteLevel => bytes.saturating_mul(2),
            StepKind::Characters => bytes.saturating_mul(CHARACTERS),
        };
        self.steps.iter().fold(bytes, |bytes, step| worst(bytes, step).max(bytes))
    }
}

fn collect(normalizer: &NormalizerWrapper, steps: &mut Vec<GrowthStep>) {
    let kind = match normalizer {
        NormalizerWrapper::Sequence(parts) => {
            return parts.as_ref().iter().for_each(|part| collect(part, steps));
        }
        NormalizerWrapper::Replace(replace) => StepKind::Replace {
            pattern: pattern(&serde_json::to_value(replace).unwrap_or_default()),
            content_bytes: replace.content.len() as u64,
        },
        NormalizerWrapper::Prepend(prepend) => StepKind::Prepend(prepend.prepend.len() as u64),
        NormalizerWrapper::NFC(_) => StepKind::Nfc,
        NormalizerWrapper::NFD(_) => StepKind::Nfd,
        NormalizerWrapper::NFKC(_) => StepKind::Nfkc,
        NormalizerWrapper::NFKD(_) => StepKind::Nfkd,
        NormalizerWrapper::Precompiled(map) => {
            let map = Charsmap::of(map);
            let longest = map.as_ref().map_or(u64::MAX, |map| map.longest_replacement().max(1) as u64);
            StepKind::Precompiled { map, longest }
        }
        NormalizerWrapper::ByteLevel(_) => StepKind::ByteLevel,
        NormalizerWrapper::BertNormalizer(_)
        | NormalizerWrapper::StripNormalizer(_)
        | NormalizerWrapper::StripAccents(_)
        | NormalizerWrapper::Lowercase(_)
        | NormalizerWrapper::Nmt(_) => StepKind::Characters,
    };
    steps.push(GrowthStep { normalizer: normalizer.clone(), kind });
}

/// Reads the pattern of a `Replace`. An unreadable pattern counts as the empty string, the worst case: nothing matches
/// more often.
fn pattern(replace: &Value) -> Pattern {
    let of = |kind: &str| replace.get("pattern")?.get(kind)?.as_str();
    let regex = of("Regex").and_then(|regex| SysRegex::new(regex).ok());
    regex.map_or_else(|| Pattern::String(of("String").unwrap_or_default().to_owned()), Pattern::Regex)
}

/// Normalizer that measures each step. Once the limit is exceeded, it makes every text empty.
struct MeasuringNormalizer<'a> {
    steps: &'a [GrowthStep],
    most: u64,
    /// Bytes of the parts of the document that are already normalized.
    done: AtomicU64,
    exceeded: AtomicBool,
}

impl MeasuringNormalizer<'_> {
    /// Returns whether a part of `bytes` bytes fits in addition to the others, and records it if not.
    fn check(&self, bytes: u64) -> bool {
        let fits = self.done.load(Ordering::Relaxed).saturating_add(bytes) <= self.most;
        if !fits {
            self.exceeded.store(true, Ordering::Relaxed);
        }
        fits
    }
}

impl Normalizer for MeasuringNormalizer<'_> {
    fn normalize(&self, text: &mut NormalizedString) -> tokenizers::Result<()> {
        if self.exceeded.load(Ordering::Relaxed) {
            text.clear();
            return Ok(());
        }
        for GrowthStep { normalizer, kind } in self.steps {
            if !self.check(kind.bytes_after(text.get(), self.most)) {
                text.clear();
                return Ok(());
            }
            // On an error, the reference continues with the current text.
            if normalizer.normalize(text).is_err() {
                break;
            }
            if !self.check(text.len() as u64) {
                text.clear();
                return Ok(());
            }
        }
        self.done.fetch_add(text.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}

impl StepKind {
    /// Returns the size of `text` in bytes after the step, or any number above `most` if it is larger than that. For
    /// [`StepKind::Characters`], it returns the size before the step; the result may be up to [`CHARACTERS`] times as
    /// long.
    fn bytes_after(&self, text: &str, most: u64) -> u64 {
        let before = text.len() as u64;
        if before == 0 {
            return 0;
        }
        match self {
            StepKind::Replace { pattern: Pattern::String(pattern), content_bytes } => {
                let count = text.matches(pattern.as_str()).count() as u64;
                before - count * pattern.len() as u64 + count.saturating_mul(*content_bytes)
            }
            StepKind::Replace { pattern: Pattern::Regex(regex), content_bytes } => {
                let (count, matched) =
                    regex.find_iter(text).fold((0u64, 0u64), |(count, bytes), (start, end)| {
                        (count + 1, bytes + (end - start) as u64)
                    });
                before.saturating_sub(matched).saturating_add(count.saturating_mul(*content_bytes))
            }
            StepKind::Prepend(more) => before.saturating_add(*more),
            StepKind::Nfc => bytes_of(text.nfc(), most),
            StepKind::Nfd => bytes_of(text.nfd(), most),
            StepKind::Nfkc => bytes_of(text.nfkc(), most),
            StepKind::Nfkd => bytes_of(text.nfkd(), most),
            // The map is damaged, so the reference's result is measured afterwards.
            StepKind::Precompiled { map: None, .. } => before,
            StepKind::Precompiled { map: Some(map), .. } => {
                let mut bytes = 0;
                let _ = map.map_clusters(text, |part| {
                    bytes += part.len() as u64;
                    if bytes <= most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                });
                bytes
            }
            StepKind::ByteLevel => text.bytes().map(|byte| if byte.is_ascii_graphic() { 1 } else { 2 }).sum(),
            StepKind::Characters => before,
        }
    }
}

/// Returns the size in bytes of the characters of a normalized text, or any number above `most`.
fn bytes_of(chars: impl Iterator<Item = (char, isize)>, most: u64) -> u64 {
    let mut bytes = 0;
    let is_within = |(c, _): &(char, isize)| {
        bytes += c.len_utf8() as u64;
        bytes <= most
    };
    chars.take_while(is_within).for_each(drop);
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::testing::{precompiled, tricky};

    fn normalizer(parts: &Value) -> NormalizerWrapper {
        serde_json::from_value(json!({"type": "Sequence", "normalizers": parts})).unwrap()
    }

    fn replace(pattern: &str, content: &str) -> Value {
        json!({"type": "Replace", "pattern": {"String": pattern}, "content": content})
    }

    fn regex(pattern: &str, content: &str) -> Value {
        json!({"type": "Replace", "pattern": {"Regex": pattern}, "content": content})
    }

    fn normalizers() -> Vec<NormalizerWrapper> {
        let map =
            precompiled(&[("\n", " "), ("½", " 1/2"), ("Ａ", "A"), ("é", "e\u{301}e\u{301}"), ("ß", "")]);
        let list = [
            json!([]),
            json!([replace("a", "bbb"), replace("b", "ccccc"), replace("the", "")]),
            json!([regex(r"\s+", "\u{2581}\u{2581}"), regex("[a-z]", "\u{1f1eb}"), regex("", "-")]),
            json!([replace("", "xy"), {"type": "Prepend", "prepend": "\u{2581}"}]),
            json!([{"type": "NFD"}, replace("e", "éé"), {"type": "NFC"}]),
            json!([{"type": "NFKC"}, {"type": "NFKD"}, {"type": "StripAccents"}, replace(" ", "\u{2581}")]),
            json!([map, regex(" {2,}", " "), {"type": "Lowercase"}, {"type": "Nmt"}]),
            json!([{"type": "Strip", "strip_left": true, "strip_right": true}, {"type": "ByteLevel"}]),
            json!([{"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                "strip_accents": null, "lowercase": true}]),
        ];
        list.iter().map(normalizer).collect()
    }

    fn longest_form(steps: &[GrowthStep], text: &str) -> u64 {
        let mut text = NormalizedString::from(text);
        let mut longest = text.len() as u64;
        for step in steps {
            step.normalizer.normalize(&mut text).unwrap();
            longest = longest.max(text.len() as u64);
        }
        longest
    }

    proptest! {
        #[test]
        fn a_text_fits_exactly_up_to_its_longest_form(text in tricky()) {
            let none = AddedVocabulary::new();
            for normalizer in normalizers() {
                let growth = Growth::new(Some(&normalizer));
                let longest = longest_form(&growth.steps, &text);
                prop_assert!(growth.worst_case(text.len() as u64) >= longest, "{:?}", normalizer);
                prop_assert!(growth.fits(&text, &none, longest), "{:?}", normalizer);
                prop_assert!(longest == 0 || !growth.fits(&text, &none, longest - 1), "{:?}", normalizer);
            }
        }
    }

    #[test]
    fn excessive_growth_is_detected_before_it_happens() {
        let doublings: Vec<Value> = (0..60).map(|_| replace("a", "aa")).collect();
        let chapters: Vec<Value> = (0..4).map(|_| regex(".", &"x".repeat(1 << 20))).collect();
        let map = precompiled(&[("a", &"b".repeat(1 << 20))]);
        for parts in [json!(doublings), json!(chapters), json!([map, {"type": "NFC"}])] {
            let growth = Growth::new(Some(&normalizer(&parts)));
            assert!(!growth.fits("aaaaaaaa", &AddedVocabulary::new(), 4 << 20));
            assert!(growth.fits("", &AddedVocabulary::new(), 4 << 20));
        }
    }
}
