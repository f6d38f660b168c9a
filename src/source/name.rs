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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_are_not_utf8_are_encoded() {
        assert_eq!(portable_name(OsStr::new("ä b%.jpg")), "ä b%.jpg");
        assert_eq!(portable_name(OsStr::from_bytes(b"a\xff b.jpg")), "a%FF%20b.jpg");
    }
}
