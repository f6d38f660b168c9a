//! Names of files as they are shown to people.
//!
//! A file name may hold line ends and terminal escape sequences. Printed as they are, they would forge lines of output or
//! change the terminal, so they are shown as escapes: `\n`, `\u{1b}`.

use std::borrow::Cow;
use std::path::Path;

/// Whether `c` changes how other characters are shown instead of being shown itself.
fn is_control(c: char) -> bool {
    // Line separators and marks of writing direction are no control characters by category.
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\n' | '\r' | '\t' | '\0' if is_escaped(c) => out.extend(c.escape_debug()),
            c if is_escaped(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// `name` with all control characters escaped: it stays on one line.
pub fn printable(name: &str) -> Cow<'_, str> {
    escaped(name, is_control)
}

/// `text` with all control characters escaped but line ends and tabs, for messages of several lines.
pub fn printable_text(text: &str) -> Cow<'_, str> {
    escaped(text, |c| is_control(c) && c != '\n' && c != '\t')
}

/// `path` with all control characters escaped.
pub fn printable_path(path: &Path) -> String {
    printable(&path.to_string_lossy()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_control_characters_are_escaped() {
        assert_eq!(printable("ä b\\n'\"日本"), "ä b\\n'\"日本");
        assert_eq!(printable("a\nb\r\u{1b}[31m\0\u{9b}\u{202e}"), r"a\nb\r\u{1b}[31m\0\u{9b}\u{202e}");
        assert_eq!(printable_text("a\n\tb\r\u{7f}"), "a\n\tb\\r\\u{7f}");
        assert_eq!(printable_path(Path::new("x\ny")), r"x\ny");
    }
}
