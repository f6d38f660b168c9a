//! Unicode normalization of whole documents.
//!
//! The tables are those of the reference tokenizer (Unicode 9.0). A text that is normalized here is therefore unchanged
//! by a `tokenizer.json` with the same normalizer.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use unicode_normalization_alignments::{IsNormalized, UnicodeNormalization, is_nfc_quick, is_nfkc_quick};

use crate::sample::{Reject, RejectCode};

/// A Unicode normalization form (UAX #15).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Normalize {
    /// No normalization.
    #[default]
    None,
    /// Canonical composition.
    Nfc,
    /// Compatibility composition.
    Nfkc,
}

impl Normalize {
    /// Returns `text` in the normalization form.
    ///
    /// # Errors
    ///
    /// [`RejectCode::TooLarge`] if the result has more than `max_bytes` bytes: one character can expand to eighteen.
    pub fn apply(self, text: &str, max_bytes: u64) -> Result<Cow<'_, str>, Reject> {
        if self == Normalize::None || text.is_ascii() {
            return Ok(Cow::Borrowed(text));
        }
        let is_normal = match self {
            Normalize::Nfkc => is_nfkc_quick(text.chars()),
            _ => is_nfc_quick(text.chars()),
        };
        if is_normal == IsNormalized::Yes {
            return Ok(Cow::Borrowed(text));
        }
        let mut normal = String::with_capacity(text.len());
        let mut push = |c: char| {
            normal.push(c);
            normal.len() as u64 <= max_bytes
        };
        let fits = match self {
            Normalize::Nfkc => text.nfkc().all(|(c, _)| push(c)),
            _ => text.nfc().all(|(c, _)| push(c)),
        };
        if fits {
            return Ok(Cow::Owned(normal));
        }
        let message = format!("the document has more than {max_bytes} bytes after `normalize`");
        Err(Reject::new(RejectCode::TooLarge, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_forms_are_those_of_the_standard() {
        let apply = |form: Normalize, text: &'static str| form.apply(text, 100).unwrap();
        for (text, nfc, nfkc) in [
            ("plain", "plain", "plain"),
            ("e\u{301}", "é", "é"),
            ("\u{212b}", "\u{c5}", "\u{c5}"),
            ("\u{fb01}\u{2460}", "\u{fb01}\u{2460}", "fi1"),
            ("한", "한", "한"),
            ("\u{1e9b}\u{323}", "\u{1e9b}\u{323}", "\u{1e69}"),
        ] {
            assert_eq!(apply(Normalize::Nfc, text), nfc);
            assert_eq!(apply(Normalize::Nfkc, text), nfkc);
            assert!(matches!(apply(Normalize::None, text), Cow::Borrowed(same) if same == text));
        }
        assert!(matches!(apply(Normalize::Nfc, "déjà"), Cow::Borrowed(_)));
        assert_eq!(Normalize::Nfkc.apply("\u{fdfa}", 20).unwrap_err().code, RejectCode::TooLarge);
    }
}
