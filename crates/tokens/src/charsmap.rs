//! The compiled character map of a normalizer: a double-array trie of strings and their replacements.
//!
//! The layout is that of Darts-clone 0.32: the size of the trie in bytes as `u32`, its units, then the replacements,
//! each terminated by a zero byte. All numbers are little-endian.

use std::ops::ControlFlow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tokenizers::normalizers::Precompiled;
use unicode_segmentation::UnicodeSegmentation;

/// Maximum size in bytes of a grapheme cluster that the reference looks up as a whole.
const MAPPED_CLUSTER_BYTES: usize = 5;

/// Map from strings to their replacements.
pub(crate) struct Charsmap {
    units: Vec<u32>,
    replacements: Vec<u8>,
}

/// Checks the sizes in all character maps of a `normalizer`. The reference allocates what they state, up to 8 GiB, before
/// it reads the map. The error describes the problem.
pub(crate) fn check_sizes(normalizer: &Value) -> Result<(), String> {
    match normalizer {
        Value::Array(parts) => parts.iter().try_for_each(check_sizes),
        Value::Object(members) => members.iter().try_for_each(|(name, value)| match value {
            Value::String(map) if name == "precompiled_charsmap" => check_size(map),
            _ => check_sizes(value),
        }),
        _ => Ok(()),
    }
}

/// Checks the size in a character map in Base64. The reference reports all other errors.
fn check_size(map: &str) -> Result<(), String> {
    let Ok(blob) = STANDARD.decode(map) else { return Ok(()) };
    match blob.split_first_chunk::<4>() {
        Some((size, rest)) if u32::from_le_bytes(*size) as usize > rest.len() => Err(format!(
            "the character map of its normalizer is damaged: it states a size of {} bytes, but {} follow",
            u32::from_le_bytes(*size),
            rest.len()
        )),
        _ => Ok(()),
    }
}

/// One unit of the double array.
#[derive(Clone, Copy)]
struct Unit(u32);

impl Unit {
    fn has_leaf(self) -> bool {
        self.0 >> 8 & 1 == 1
    }

    fn value(self) -> usize {
        (self.0 & 0x7fff_ffff) as usize
    }

    /// Returns the byte of the unit, or a larger number for a unit that holds a value.
    fn label(self) -> u32 {
        self.0 & 0x8000_00ff
    }

    fn offset(self) -> usize {
        ((self.0 >> 10) << ((self.0 & 1 << 9) >> 6)) as usize
    }
}

impl Charsmap {
    /// Reads the map in `blob`. The error describes the problem.
    pub(crate) fn new(blob: &[u8]) -> Result<Self, String> {
        let broken = || "its character map is damaged".to_owned();
        let (size, rest) = blob.split_first_chunk::<4>().ok_or_else(broken)?;
        let size = u32::from_le_bytes(*size) as usize;
        if size == 0 || !size.is_multiple_of(4) || size >= rest.len() {
            return Err(broken());
        }
        let (trie, replacements) = rest.split_at(size);
        let units = trie.as_chunks::<4>().0.iter().map(|unit| u32::from_le_bytes(*unit)).collect();
        Ok(Self { units, replacements: replacements.to_vec() })
    }

    /// Reads the map of a `Precompiled` normalizer; returns `None` if it is damaged.
    pub(crate) fn of(normalizer: &Precompiled) -> Option<Self> {
        let file = serde_json::to_value(normalizer).ok()?;
        let text = file.get("precompiled_charsmap").and_then(Value::as_str)?;
        Self::new(&STANDARD.decode(text).ok()?).ok()
    }

    /// Returns the size of the longest replacement in bytes.
    pub(crate) fn longest_replacement(&self) -> usize {
        self.replacements.split(|&byte| byte == 0).map(<[u8]>::len).max().unwrap_or(0)
    }

    fn unit(&self, at: usize) -> Option<Unit> {
        self.units.get(at).copied().map(Unit)
    }

    /// Finds the longest mapped string that `text` starts with. Returns its replacement and its length.
    pub(crate) fn longest(&self, text: &[u8]) -> Option<(&[u8], usize)> {
        let mut at = self.unit(0)?.offset();
        let mut found = None;
        for (i, &byte) in text.iter().enumerate() {
            at ^= usize::from(byte);
            let Some(unit) = self.unit(at).filter(|unit| unit.label() == u32::from(byte)) else { break };
            at ^= unit.offset();
            if unit.has_leaf() {
                found = self.unit(at).map(|leaf| (leaf.value(), i + 1));
            }
        }
        let (value, length) = found?;
        let replacement = self.replacements.get(value..)?;
        let end = memchr::memchr(0, replacement).unwrap_or(replacement.len());
        Some((&replacement[..end], length))
    }

    /// Returns the replacement of the *shortest* mapped string that `text` starts with, as the reference does.
    pub(crate) fn shortest(&self, text: &str) -> Option<&str> {
        self.walk(text.as_bytes()).ok().flatten().and_then(|value| self.replacement(value))
    }

    /// Returns whether `text` starts with a mapped string, or a mapped string starts with `text`.
    pub(crate) fn is_prefix(&self, text: &str) -> bool {
        self.walk(text.as_bytes()).is_ok()
    }

    /// Returns the offset of the replacement of the shortest mapped string that `text` starts with, or `None` if `text`
    /// ends before such a string does. The error means that no mapped string matches.
    fn walk(&self, text: &[u8]) -> Result<Option<usize>, ()> {
        let mut at = self.unit(0).ok_or(())?.offset();
        for &byte in text.iter().take_while(|&&byte| byte != 0) {
            at ^= usize::from(byte);
            let unit = self.unit(at).filter(|unit| unit.label() == u32::from(byte)).ok_or(())?;
            at ^= unit.offset();
            if unit.has_leaf() {
                return self.unit(at).map(|leaf| Some(leaf.value())).ok_or(());
            }
        }
        Ok(None)
    }

    fn replacement(&self, value: usize) -> Option<&str> {
        let replacement = self.replacements.get(value..)?;
        let end = memchr::memchr(0, replacement).unwrap_or(replacement.len());
        std::str::from_utf8(&replacement[..end]).ok()
    }

    /// Calls `each` with the parts of the mapped `text`. Like the reference, it looks up short grapheme clusters as a
    /// whole, and the characters of all other clusters one by one.
    pub(crate) fn map_clusters<B>(
        &self,
        text: &str,
        mut each: impl FnMut(&str) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        for cluster in text.graphemes(true) {
            if cluster.len() <= MAPPED_CLUSTER_BYTES
                && let Some(mapped) = self.shortest(cluster)
            {
                each(mapped)?;
                continue;
            }
            for (at, c) in cluster.char_indices() {
                let part = cluster.get(at..at + c.len_utf8()).unwrap_or_default();
                each(self.shortest(part).unwrap_or(part))?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Returns whether a mapped string starts with `byte`.
    pub(crate) fn has_root(&self, byte: u8) -> bool {
        let unit = self.unit(0).and_then(|root| self.unit(root.offset() ^ usize::from(byte)));
        unit.is_some_and(|unit| unit.label() == u32::from(byte))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokenizers::normalizers::NormalizerWrapper;

    use super::*;
    use crate::testing::{precompiled, tricky};

    fn normalizer(pairs: &[(&str, &str)]) -> Precompiled {
        match serde_json::from_value(precompiled(pairs)).unwrap() {
            NormalizerWrapper::Precompiled(map) => map,
            other => panic!("another normalizer: {other:?}"),
        }
    }

    proptest! {
        #[test]
        fn a_character_map_maps_like_the_reference(text in tricky()) {
            let pairs = [("\n", " "), ("½", " 1/2"), ("e\u{301}", "é"), ("ß", ""), ("👩", "woman"), ("a", "b"), ("ab", "c")];
            let normalizer = normalizer(&pairs);
            let map = Charsmap::of(&normalizer).unwrap();
            let mut ours = String::new();
            let _ = map.map_clusters::<()>(&text, |part| {
                ours.push_str(part);
                ControlFlow::Continue(())
            });
            prop_assert_eq!(ours, normalizer.normalize_string(&text));
            for (at, _) in text.char_indices() {
                prop_assert_eq!(map.shortest(&text[at..]), normalizer.transform(&text[at..]));
            }
        }
    }

    #[test]
    fn sizes_above_the_size_of_the_map_are_refused() {
        let file = |size: u32, more: usize| {
            let blob = [&size.to_le_bytes()[..], &vec![0; more]].concat();
            let map =
                serde_json::json!({"type": "Precompiled", "precompiled_charsmap": STANDARD.encode(blob)});
            serde_json::json!({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Sequence", "normalizers": [map]}]})
        };
        for (size, more) in [(u32::MAX, 8), (1 << 31, 8), (12, 8), (9, 8), (4, 0)] {
            let error = check_sizes(&file(size, more)).unwrap_err();
            assert!(error.contains(&format!("{size} bytes, but {more} follow")), "{error}");
        }
        assert!([(8, 8), (0, 0), (4, 9)].iter().all(|&(size, more)| check_sizes(&file(size, more)).is_ok()));
        assert!(check_sizes(&precompiled(&[("a", "b")])).is_ok());
    }

    #[test]
    fn prefixes_of_mapped_strings_are_recognized() {
        let map = Charsmap::of(&normalizer(&[("e\u{301}", "é"), ("½", "1/2")])).unwrap();
        for (text, is_prefix) in [("e", true), ("e\u{301}", true), ("½x", true), ("f", false), ("ex", false)]
        {
            assert_eq!(map.is_prefix(text), is_prefix, "{text}");
        }
    }

    #[test]
    fn the_longest_replacement_is_found() {
        let longest =
            |pairs: &[(&str, &str)]| Charsmap::of(&normalizer(pairs)).unwrap().longest_replacement();
        assert_eq!(longest(&[("a", ""), ("b", "")]), 0);
        assert_eq!(longest(&[("a", "bcd"), ("\u{fdfa}", "صلى الله"), ("c", "d")]), 15);
    }
}
