//! The `Precompiled` normalizer, applied only to the parts of a text that its character map may change.
//!
//! The reference splits a text into grapheme clusters and looks each of them up in the map, which takes most of its
//! time. Nearly all characters are clusters of their own and start no mapped string. Each character is classified only
//! once.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU8, Ordering};

use unicode_segmentation::UnicodeSegmentation;

use crate::charsmap::Charsmap;
use crate::engine::fast::classes::decode;

/// Set once the other bits have been determined.
const KNOWN: u8 = 1;
/// The character is a grapheme cluster of its own next to another such character.
const ALONE: u8 = 2;
/// The map changes a cluster that starts with the character.
const CHANGES: u8 = 4;
/// A mapped string starts with the character.
const STARTS: u8 = 8;

/// A `Precompiled` normalizer.
pub(super) struct Precompiled {
    map: Charsmap,
    /// Maximum factor by which the map makes a text longer.
    pub(super) growth: u64,
    /// Class bits of each character in the Basic Multilingual Plane. All threads compute the same values, so no lock is
    /// needed.
    known: Vec<AtomicU8>,
}

impl Precompiled {
    pub(super) fn new(map: Charsmap) -> Self {
        let growth = map.longest_replacement().max(1) as u64;
        Self { map, growth, known: (0..0x1_0000).map(|_| AtomicU8::new(0)).collect() }
    }

    /// Returns the class bits and the length in bytes of the character at `at`; `None` at the end.
    #[inline]
    fn class_at(&self, text: &str, at: usize) -> Option<(u8, usize)> {
        let bytes = text.as_bytes();
        let first = *bytes.get(at)?;
        let (code, len) = if first < 0x80 { (u32::from(first), 1) } else { decode(bytes, at, first) };
        // Characters outside the plane are always looked up in the map.
        let Some(known) = self.known.get(code as usize) else { return Some((STARTS, len)) };
        let class = match known.load(Ordering::Relaxed) {
            0 => {
                let class = self.classify(text.get(at..at + len).unwrap_or_default());
                known.store(class, Ordering::Relaxed);
                class
            }
            class => class,
        };
        Some((class, len))
    }

    /// Determines the class bits of the character `c`.
    fn classify(&self, c: &str) -> u8 {
        // A carriage return joins a following line feed. The remaining classes (control characters, Hangul syllables,
        // and characters without a rule) never join each other (UAX #29).
        let apart = |text: String| text.graphemes(true).count() == 2;
        let is_alone = c != "\r"
            && [format!("a{c}"), format!("{c}a"), format!("{c}{c}"), format!("가{c}"), format!("{c}가")]
                .into_iter()
                .all(apart);
        let mut class = KNOWN;
        for (bit, is_set) in
            [(ALONE, is_alone), (CHANGES, self.map.shortest(c).is_some()), (STARTS, self.map.is_prefix(c))]
        {
            if is_set {
                class |= bit;
            }
        }
        class
    }

    /// Appends the mapped `text` to `out`, unless the map does not change it. Returns whether it did.
    pub(super) fn write(&self, text: &str, out: &mut String) -> bool {
        let (mut at, mut copied) = (0, 0);
        // Start of the character before `at`, which the one at `at` may join.
        let mut previous = 0;
        while let Some((class, len)) = self.class_at(text, at) {
            let end = at + len;
            if class & ALONE != 0 {
                let is_cluster = class & CHANGES != 0
                    && self.class_at(text, end).is_none_or(|(next, _)| next & ALONE != 0);
                if is_cluster {
                    out.push_str(&text[copied..at]);
                    out.push_str(self.map.shortest(&text[at..end]).unwrap_or_default());
                    copied = end;
                }
                previous = at;
                at = end;
                continue;
            }
            // A sequence of clusters, from the previous character to one that the next does not join.
            let start = previous;
            let mut class = self.class_at(text, start).map_or(0, |(class, _)| class) | class;
            (previous, at) = (at, end);
            while let Some((next, len)) = self.class_at(text, at) {
                class |= next;
                (previous, at) = (at, at + len);
                if next & ALONE != 0 && self.class_at(text, at).is_none_or(|(after, _)| after & ALONE != 0) {
                    break;
                }
            }
            if class & STARTS != 0 {
                out.push_str(&text[copied..start]);
                let _ = self.map.map_clusters::<()>(&text[start..at], |part| {
                    out.push_str(part);
                    ControlFlow::Continue(())
                });
                copied = at;
            }
        }
        if copied == 0 {
            return false;
        }
        out.push_str(&text[copied..]);
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokenizers::normalizers::NormalizerWrapper;

    use super::*;
    use crate::testing::{precompiled, tricky};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2048))]

        #[test]
        fn partial_mapping_equals_whole_mapping(
            text in prop_oneof![
                tricky(),
                "[ae\r\n\u{e9}½Ａ\u{300}-\u{303}\u{600}\u{93c}\u{915}\u{94d}\u{1100}\u{1161}\u{11a8}가각\u{200d}👩🇫🇷\u{fe0f}\u{0} ]{0,10}",
            ],
        ) {
            let pairs = [
                ("\n", " "), ("½", " 1/2"), ("Ａ", "A"), ("e\u{301}", "é"), ("ß", ""), ("👩", "woman"), ("가\u{11a8}", "각"),
                ("a\u{300}", "à"), ("\u{915}", "k"), ("\u{200d}", ""), ("\u{303}", "~"), ("\r\n", "|"), ("x\u{301}", "y"),
            ];
            let normalizer = match serde_json::from_value(precompiled(&pairs)).unwrap() {
                NormalizerWrapper::Precompiled(normalizer) => normalizer,
                other => panic!("another normalizer: {other:?}"),
            };
            let ours = Precompiled::new(Charsmap::of(&normalizer).unwrap());
            for _ in 0..2 {
                let mut out = String::new();
                let out = if ours.write(&text, &mut out) { &out } else { &text };
                prop_assert_eq!(out, &normalizer.normalize_string(&text));
            }
        }
    }

    /// Tests a sample of pairs of characters from all classes that determine cluster boundaries.
    #[test]
    fn single_character_clusters_never_join_each_other() {
        let ours = Precompiled::new(Charsmap::new(&[4, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap());
        let mut alone = Vec::new();
        for c in (0..0x1_0000).filter_map(char::from_u32) {
            let class = ours.class_at(&c.to_string(), 0).unwrap().0;
            if class & ALONE != 0 && (c as u32).is_multiple_of(29) || "\n\t a가각語\u{a9}\u{915}".contains(c)
            {
                alone.push(c);
            }
        }
        assert!(alone.len() > 1000);
        for (number, left) in alone.iter().enumerate() {
            for right in alone.iter().skip(number % 7).step_by(7) {
                assert_eq!(format!("{left}{right}").graphemes(true).count(), 2, "{left:?} {right:?}");
            }
        }
    }
}
