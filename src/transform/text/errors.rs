//! Conversion of tokenizer failures to errors and rejects.

use dsconvert_tokens::{EncodeError, LoadError};

use crate::error::Error;
use crate::sample::{Reject, RejectCode};

/// Returns the usage error for a tokenizer that cannot be loaded.
pub fn usage_error(error: LoadError) -> Error {
    let help = match &error {
        LoadError::NoFastEngine(_) => Some("use `engine auto` or `engine reference`".to_owned()),
        error => error.help(),
    };
    let usage = Error::usage(error.to_string());
    let usage = match error {
        LoadError::Malformed { source, .. } => usage.caused_by(source),
        _ => usage,
    };
    match help {
        Some(help) => usage.help(help),
        None => usage,
    }
}

/// Returns the reject for a document that cannot be encoded.
pub(crate) fn rejected(error: EncodeError) -> Reject {
    let code = match error {
        EncodeError::SpecialToken(_) | EncodeError::HiddenName => RejectCode::SpecialToken,
        EncodeError::TooLarge { .. } | EncodeError::WordTooLong => RejectCode::TooLarge,
        EncodeError::SplitCharacter(_) => RejectCode::InvalidUtf8,
        EncodeError::Panicked(message) => {
            let message = format!("a panic in the code for this item: {message}");
            return Reject::new(RejectCode::DecoderPanicked, message);
        }
        _ => RejectCode::Unsupported,
    };
    Reject::new(code, error.to_string())
}

#[cfg(test)]
mod tests {
    use dsconvert_tokens::SequenceEnd;

    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn errors_name_the_options_in_backquotes() {
        let error = usage_error(LoadError::ConflictingOptions);
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert_eq!(error.to_string(), "`add_special_tokens` cannot be combined with `add_bos` or `add_eos`");
        let missing = LoadError::NoSequenceToken { end: SequenceEnd::Eos, special_tokens: Vec::new() };
        let help = "name it with `eos_token`; it has no special tokens";
        assert_eq!(usage_error(missing).remedy(), Some(help));
        let broken =
            dsconvert_tokens::Tokenizer::from_json(b"[1".to_vec(), Default::default()).err().unwrap();
        let error = usage_error(broken);
        assert!(error.to_string().starts_with("the tokenizer is not a JSON object in the format"), "{error}");
        assert!(error.to_string().contains("expected"), "{error}");
    }

    #[test]
    fn every_failure_of_a_document_has_its_reject_code() {
        for (error, code, message) in [
            (EncodeError::SpecialToken("<s>".into()), RejectCode::SpecialToken, "\"<s>\""),
            (EncodeError::HiddenName, RejectCode::SpecialToken, "internal name"),
            (
                EncodeError::TooLarge { bytes: 7, limit: 5 },
                RejectCode::TooLarge,
                "; `max_reference_bytes` is 5,",
            ),
            (EncodeError::WordTooLong, RejectCode::TooLarge, "2^32"),
            (EncodeError::SplitCharacter("a word"), RejectCode::InvalidUtf8, "a word was cut"),
            (EncodeError::Unsupported("why".into()), RejectCode::Unsupported, "cannot encode this text: why"),
            (
                EncodeError::PatternLimit("why".into()),
                RejectCode::Unsupported,
                "too many steps for this text (why)",
            ),
            (EncodeError::Refused("too wide".into()), RejectCode::Unsupported, "too wide"),
            (
                EncodeError::Panicked("bad".into()),
                RejectCode::DecoderPanicked,
                "a panic in the code for this item: bad",
            ),
        ] {
            let reject = rejected(error);
            assert_eq!(reject.code, code);
            assert!(reject.message.contains(message), "{}", reject.message);
        }
    }
}
