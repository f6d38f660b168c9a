//! Unicode normalization forms, applied only to the parts of a text that may change.
//!
//! The tables come from the same version of the crate that the reference uses. They are old (Unicode 9.0), and newer
//! tables would give different characters. This module only finds the parts that need them.

use std::sync::LazyLock;

use unicode_normalization_alignments::{IsNormalized, UnicodeNormalization, char as table, is_nfc_quick};

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
    let bytes = text.as_bytes();
    let (mut at, mut copied) = (0, 0);
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
        out.push_str(&text[copied..previous]);
        out.extend(text[previous..end].nfc().map(|(c, _)| c));
        copied = end;
        previous = end;
        at = end;
    }
    if copied == 0 {
        return false;
    }
    out.push_str(&text[copied..]);
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
        fn partial_normalization_equals_whole_normalization(
            text in prop_oneof![
                any::<String>(),
                "[ae\u{e9}\u{300}-\u{330}\u{591}-\u{5a0}\u{1100}\u{1161}\u{11a8}\u{ac00}\u{9bc}-\u{9d7}\u{fb1d}\u{958}\u{212b}\u{1d15e}\u{110ba}\u{2126} ]{0,12}",
            ],
        ) {
            prop_assert_eq!(nfc(&text), whole(&text));
            prop_assert_eq!(form(Form::Nfd, &text), text.nfd().map(|(c, _)| c).collect::<String>());
            prop_assert_eq!(form(Form::Nfkc, &text), text.nfkc().map(|(c, _)| c).collect::<String>());
            prop_assert_eq!(form(Form::Nfkd, &text), text.nfkd().map(|(c, _)| c).collect::<String>());
        }
    }
}
