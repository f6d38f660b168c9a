//! Conversion of file names to text.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Returns `name` as UTF-8. A name that is not UTF-8 is percent-encoded: every byte that is not an ASCII letter, digit
/// or one of `-._~` becomes `%XX`.
pub fn portable_name(name: &OsStr) -> String {
    if let Some(text) = name.to_str() {
        return text.to_owned();
    }
    let mut out = String::new();
    for &byte in name.as_bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Returns `name` without `extension`, whatever its case; `None` if it has another extension.
pub(in crate::source) fn strip_extension<'a>(name: &'a str, extension: &str) -> Option<&'a str> {
    let (stem, end) = name.split_at_checked(name.len().checked_sub(extension.len())?)?;
    end.eq_ignore_ascii_case(extension).then_some(stem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_are_stripped_in_any_case() {
        assert_eq!(strip_extension("a.b.ZIP", ".zip"), Some("a.b"));
        assert_eq!(strip_extension(".zip", ".zip"), Some(""));
        for other in ["a.tar", "zip", "", "ä", "aäip"] {
            assert_eq!(strip_extension(other, ".zip"), None, "{other}");
        }
    }

    #[test]
    fn only_names_that_are_not_utf8_are_encoded() {
        assert_eq!(portable_name(OsStr::new("ä b%.jpg")), "ä b%.jpg");
        assert_eq!(portable_name(OsStr::from_bytes(b"a\xff b.jpg")), "a%FF%20b.jpg");
    }
}
