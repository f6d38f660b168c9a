//! Unicode normalization forms, applied only to the parts of a text that may change.
//!
//! The tables come from the same version of the crate that the reference uses. They are old (Unicode 9.0), and newer
//! tables would give different characters. This module only finds the parts that need them.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::LazyLock;

use tokenizers::normalizers::NormalizerWrapper;
use unicode_normalization_alignments::{IsNormalized, UnicodeNormalization, char as table, is_nfc_quick};

use super::Normalizer;
use crate::engine::fast::classes::decode;

/// No character below this one changes or composes with the one before it.
const FIRST_COMBINING: u32 = 0x300;

/// Whether each character of the Basic Multilingual Plane is inert.
static INERT: LazyLock<Vec<bool>> =
    LazyLock::new(|| (0..0x1_0000).map(|code| char::from_u32(code).is_some_and(is_inert)).collect());

/// Returns whether `c` is a starter that NFC never changes or composes with the character before it.
fn is_inert(c: char) -> bool {
    table::canonical_combining_class(c) == 0 && matches!(is_nfc_quick(std::iter::once(c)), IsNormalized::Yes)
}

fn inert(code: u32) -> bool {
    match INERT.get(code as usize) {
        Some(&inert) => inert,
        None => char::from_u32(code).is_some_and(is_inert),
    }
}

/// A normalization form other than NFC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Nfd,
    Nfkc,
    Nfkd,
}

impl Form {
    /// Appends `text` in this form to `out`, unless it is all ASCII, which never changes. Returns whether it did.
    pub(super) fn write(self, text: &str, out: &mut String) -> bool {
        let bytes = text.as_bytes();
        let Some(mut at) = bytes.iter().position(|byte| !byte.is_ascii()) else { return false };
        let mut copied = 0;
        while at < bytes.len() {
            // ASCII is never decomposed or reordered, but may be composed with the mark after it.
            let start = if self == Form::Nfkc { at.saturating_sub(1).max(copied) } else { at };
            let end = bytes[at..].iter().position(u8::is_ascii).map_or(bytes.len(), |length| at + length);
            out.push_str(&text[copied..start]);
            let stretch = &text[start..end];
            match self {
                Form::Nfd => out.extend(stretch.nfd().map(|(c, _)| c)),
                Form::Nfkc => out.extend(stretch.nfkc().map(|(c, _)| c)),
                Form::Nfkd => out.extend(stretch.nfkd().map(|(c, _)| c)),
            }
            copied = end;
            let next = bytes[end..].iter().position(|byte| !byte.is_ascii());
            at = next.map_or(bytes.len(), |length| end + length);
        }
        out.push_str(&text[copied..]);
        true
    }
}

/// Appends `text` in NFC to `out`, unless nothing in it may change. Returns whether it did.
pub(super) fn write_nfc(text: &str, out: &mut String) -> bool {
    let mut copied = 0;
    each_unstable(text, |range| {
        out.push_str(&text[copied..range.start]);
        out.extend(text[range.clone()].nfc().map(|(c, _)| c));
        copied = range.end;
    });
    if copied == 0 {
        return false;
    }
    out.push_str(&text[copied..]);
    true
}

/// Calls `each` with the ranges of `text` that NFC may change, in order. Each is normalized independently of the rest.
fn each_unstable(text: &str, mut each: impl FnMut(Range<usize>)) {
    if text.is_ascii() {
        return;
    }
    let bytes = text.as_bytes();
    let mut at = 0;
    // Start of the character before `at`, which may be part of a composition.
    let mut previous = 0;
    while let Some(&first) = bytes.get(at) {
        if first < 0x80 {
            previous = at;
            at += 1;
            continue;
        }
        let (code, len) = decode(bytes, at, first);
        if code < FIRST_COMBINING || inert(code) {
            previous = at;
            at += len;
            continue;
        }
        let mut end = at + len;
        while let Some(&first) = bytes.get(end) {
            if first < 0x80 {
                break;
            }
            let (code, len) = decode(bytes, end, first);
            if inert(code) {
                break;
            }
            end += len;
        }
        each(previous..end);
        previous = end;
        at = end;
    }
}

/// A part of a text that NFC has normalized.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(in crate::engine::fast) struct ComposedPart {
    /// Start in the normalized text.
    start: usize,
    /// The part of the original text.
    original: Range<usize>,
    /// For each byte of the normalized part, the character of the original text that the reference aligns it with.
    origins: Vec<Range<usize>>,
}

/// Returns the parts of `text` that NFC may change, in order.
pub(super) fn composed_parts(text: &str) -> Vec<ComposedPart> {
    let mut parts: Vec<ComposedPart> = Vec::new();
    each_unstable(text, |original| {
        let between = original.start - parts.last().map_or(0, |part| part.original.end);
        let start = parts.last().map_or(0, |part| part.start + part.origins.len()) + between;
        let mut origins = Vec::with_capacity(original.len());
        let base = original.start;
        let mut chars =
            text[original.clone()].char_indices().map(|(at, c)| base + at..base + at + c.len_utf8());
        // As `NormalizedString::transform`: a new character belongs to the one before it, and a composed one to its first.
        let mut last = base..base;
        for (c, change) in text[original.clone()].nfc() {
            if change <= 0 {
                last = chars.next().unwrap_or(last);
            }
            origins.extend(std::iter::repeat_n(last.clone(), c.len_utf8()));
            for removed in chars.by_ref().take(change.min(0).unsigned_abs()) {
                last = removed;
            }
        }
        parts.push(ComposedPart { start, original, origins });
    });
    parts
}

/// Returns the length of the normalized text, given that of the original one.
pub(in crate::engine::fast) fn normalized_len(parts: &[ComposedPart], original: usize) -> usize {
    parts.last().map_or(original, |last| last.start + last.origins.len() + original - last.original.end)
}

/// The origin of a byte of a normalized text.
pub(in crate::engine::fast) enum ByteOrigin {
    /// This byte of the original text.
    Byte(usize),
    /// This character of the original text.
    Char(Range<usize>),
}

/// Returns the origin of the byte `at` of a normalized text with these `parts`.
pub(in crate::engine::fast) fn origin(parts: &[ComposedPart], at: usize) -> ByteOrigin {
    let before = parts.partition_point(|part| part.start <= at);
    let Some(part) = before.checked_sub(1).and_then(|last| parts.get(last)) else {
        return ByteOrigin::Byte(at);
    };
    match part.origins.get(at - part.start) {
        Some(char) => ByteOrigin::Char(char.clone()),
        None => ByteOrigin::Byte(at - part.start - part.origins.len() + part.original.end),
    }
}

/// A text in NFC, with the origin of its bytes.
pub(crate) struct NfcText<'a> {
    text: Cow<'a, str>,
    parts: Vec<ComposedPart>,
}

impl<'a> NfcText<'a> {
    /// Returns whether `normalizer` does nothing but NFC.
    pub(crate) fn is_result_of(normalizer: &NormalizerWrapper) -> bool {
        Normalizer::new(Some(normalizer)).is_nfc()
    }

    /// Normalizes `text`.
    pub(crate) fn new(text: &'a str) -> Self {
        let parts = composed_parts(text);
        let mut out = String::new();
        let text = if write_nfc(text, &mut out) { out.into() } else { text.into() };
        Self { text, parts }
    }

    /// Returns `text` as it is.
    pub(crate) fn unchanged(text: &'a str) -> Self {
        Self { text: text.into(), parts: Vec::new() }
    }

    /// Returns the normalized text.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the range of the original text that the reference aligns with a range of characters.
    pub(crate) fn original(&self, range: Range<usize>) -> Range<usize> {
        let Some(last) = range.end.checked_sub(1).filter(|last| *last >= range.start) else { return 0..0 };
        let start = match origin(&self.parts, range.start) {
            ByteOrigin::Byte(at) => at,
            ByteOrigin::Char(char) => char.start,
        };
        let end = match origin(&self.parts, last) {
            ByteOrigin::Byte(at) => at + 1,
            ByteOrigin::Char(char) => char.end,
        };
        start..end
    }

    /// Returns whether NFC may have changed a character in a range, or have joined it with one outside.
    pub(crate) fn is_changed(&self, range: &Range<usize>) -> bool {
        let first = self.parts.partition_point(|part| part.start + part.origins.len() <= range.start);
        self.parts.get(first).is_some_and(|part| part.start < range.end)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokenizers::NormalizedString;
    use tokenizers::tokenizer::normalizer::Range as NormalizedRange;

    use super::*;

    fn whole(text: &str) -> String {
        text.nfc().map(|(c, _)| c).collect()
    }

    fn nfc(text: &str) -> String {
        let mut out = String::new();
        if write_nfc(text, &mut out) { out } else { text.to_owned() }
    }

    fn form(form: Form, text: &str) -> String {
        let mut out = String::new();
        if form.write(text, &mut out) { out } else { text.to_owned() }
    }

    #[test]
    fn changed_stretches_are_composed() {
        for text in [
            "",
            "plain",
            "e\u{301}",
            "xe\u{301}y",
            "\u{301}",
            "\u{1100}\u{1161}\u{11a8}",
            "가\u{11a8}",
            "क\u{93c}",
        ] {
            assert_eq!(nfc(text), whole(text));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1024))]

        #[test]
        fn partial_normalization_equals_whole_normalization_with_the_same_origins(
            text in prop_oneof![
                any::<String>(),
                "[ae\u{e9}\u{300}-\u{330}\u{591}-\u{5a0}\u{1100}\u{1161}\u{11a8}\u{ac00}\u{9bc}-\u{9d7}\u{fb1d}\u{958}\u{212b}\u{1d15e}\u{110ba}\u{2126} ]{0,12}",
            ],
        ) {
            prop_assert_eq!(nfc(&text), whole(&text));
            let mut reference = NormalizedString::from(text.as_str());
            reference.nfc();
            let parts = composed_parts(&text);
            for at in 0..reference.len() {
                let expected = reference.convert_offsets(NormalizedRange::Normalized(at..at + 1)).unwrap();
                let found = match origin(&parts, at) {
                    ByteOrigin::Char(char) => char,
                    ByteOrigin::Byte(at) => text.floor_char_boundary(at)..text.ceil_char_boundary(at + 1),
                };
                prop_assert_eq!(found, expected, "{} of {:?}", at, text);
            }
            prop_assert_eq!(form(Form::Nfd, &text), text.nfd().map(|(c, _)| c).collect::<String>());
            prop_assert_eq!(form(Form::Nfkc, &text), text.nfkc().map(|(c, _)| c).collect::<String>());
            prop_assert_eq!(form(Form::Nfkd, &text), text.nfkd().map(|(c, _)| c).collect::<String>());
        }
    }
}
