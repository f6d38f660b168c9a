//! The `BertNormalizer`, without tracking of the origin of characters.

use tokenizers::normalizers::BertNormalizer;
use unicode_categories::UnicodeCategories;
use unicode_normalization_alignments::UnicodeNormalization;

use super::write_lowercase;

/// A `BertNormalizer` with its options.
#[derive(Clone, Copy)]
pub(super) struct Bert {
    clean: bool,
    chinese: bool,
    strip: bool,
    lowercase: bool,
}

impl Bert {
    pub(super) fn new(normalizer: &BertNormalizer) -> Self {
        Self {
            clean: normalizer.clean_text,
            chinese: normalizer.handle_chinese_chars,
            strip: normalizer.strip_accents.unwrap_or(normalizer.lowercase),
            lowercase: normalizer.lowercase,
        }
    }

    /// Appends the normalized `text` to `out`, unless it is already normalized. Returns whether it did.
    pub(super) fn write(self, text: &str, out: &mut String) -> bool {
        if text.bytes().all(|b| b.is_ascii_graphic()) {
            // Nothing to clean, isolate or strip.
            return self.lowercase && write_lowercase(text, out);
        }
        let mut cleaned = String::with_capacity(text.len() + 8);
        for c in text.chars() {
            if self.clean && (c == '\0' || c == '\u{fffd}' || is_control(c)) {
                continue;
            }
            let c = if self.clean && c.is_whitespace() { ' ' } else { c };
            if self.chinese && is_chinese(u32::from(c)) {
                cleaned.extend([' ', c, ' ']);
            } else {
                cleaned.push(c);
            }
        }
        if self.strip {
            cleaned = cleaned.nfd().map(|(c, _)| c).filter(|c| !c.is_mark_nonspacing()).collect();
        }
        if self.lowercase {
            // Maps character by character, so a final sigma is not special.
            out.extend(cleaned.chars().flat_map(char::to_lowercase));
        } else {
            out.push_str(&cleaned);
        }
        true
    }
}

/// Returns whether `c` is an unassigned, control, format or private-use character in the reference's old Unicode
/// tables.
fn is_control(c: char) -> bool {
    !matches!(c, '\t' | '\n' | '\r') && c.is_other()
}

/// Returns whether `BertNormalizer` puts spaces around the character `code`.
pub(in crate::engine::fast) fn is_chinese(code: u32) -> bool {
    matches!(
        code,
        0x4E00..=0x9FFF
            | 0x3400..=0x4DBF
            | 0x20000..=0x2A6DF
            | 0x2A700..=0x2B73F
            | 0x2B740..=0x2B81F
            | 0x2B920..=0x2CEAF
            | 0xF900..=0xFAFF
            | 0x2F800..=0x2FA1F
    )
}
