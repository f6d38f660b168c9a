//! NFC, only for the stretches of a text that are not in NFC already.
//!
//! The composition is that of the crate which the reference uses, at the same version: its Unicode tables are old (9.0)
//! and newer ones would give other characters. This module only finds the stretches that need it.

use std::sync::LazyLock;

use unicode_normalization_alignments::{IsNormalized, UnicodeNormalization, char as table, is_nfc_quick};

use super::classes::decode;

/// Below this, no character changes or composes with the one before it.
const FIRST_COMBINING: u32 = 0x300;

/// Whether each character of the basic plane is inert.
static INERT: LazyLock<Vec<bool>> =
    LazyLock::new(|| (0..0x1_0000).map(|code| char::from_u32(code).is_some_and(is_inert)).collect());

/// A starter that NFC never changes and never joins with the character before it.
fn is_inert(c: char) -> bool {
    table::canonical_combining_class(c) == 0 && matches!(is_nfc_quick(std::iter::once(c)), IsNormalized::Yes)
}

fn inert(code: u32) -> bool {
    match INERT.get(code as usize) {
        Some(&inert) => inert,
        None => char::from_u32(code).is_some_and(is_inert),
    }
}

/// `text` in NFC: itself, or what is put into `buffer`.
pub(super) fn nfc<'a>(text: &'a str, buffer: &'a mut String) -> &'a str {
    let bytes = text.as_bytes();
    let (mut at, mut copied) = (0, 0);
    // Where the character before `at` begins: it may take part in a composition.
    let mut previous = 0;
    buffer.clear();
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
        buffer.push_str(&text[copied..previous]);
        buffer.extend(text[previous..end].nfc().map(|(c, _)| c));
        copied = end;
        previous = end;
        at = end;
    }
    if copied == 0 {
        return text;
    }
    buffer.push_str(&text[copied..]);
    buffer
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn whole(text: &str) -> String {
        text.nfc().map(|(c, _)| c).collect()
    }

    #[test]
    fn stretches_are_composed() {
        let mut buffer = String::new();
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
            assert_eq!(nfc(text, &mut buffer), whole(text));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1024))]

        #[test]
        fn composing_stretches_is_composing_the_whole(
            text in prop_oneof![
                any::<String>(),
                "[ae\u{e9}\u{300}-\u{330}\u{591}-\u{5a0}\u{1100}\u{1161}\u{11a8}\u{ac00}\u{9bc}-\u{9d7}\u{fb1d}\u{958}\u{212b}\u{1d15e}\u{110ba}\u{2126} ]{0,12}",
            ],
        ) {
            let mut buffer = String::new();
            prop_assert_eq!(nfc(&text, &mut buffer), whole(&text));
        }
    }
}
