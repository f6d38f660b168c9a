//! Escaping of file names for display.
//!
//! A file name may contain line breaks and terminal escape sequences. Printed verbatim, they could forge lines of
//! output or alter the terminal, so they are escaped: `\n`, `\u{1b}`.

use std::borrow::Cow;
use std::path::Path;

/// Returns whether `c` is invisible and changes how other characters are displayed.
fn is_control(c: char) -> bool {
    // By Unicode category, line separators and bidirectional formatting characters are not control characters.
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

/// Escapes all control characters in `name`, so it stays on one line.
pub fn printable(name: &str) -> Cow<'_, str> {
    escaped(name, is_control)
}

/// Escapes all control characters in `text` except line breaks and tabs, for multi-line messages.
pub fn printable_text(text: &str) -> Cow<'_, str> {
    escaped(text, |c| is_control(c) && c != '\n' && c != '\t')
}

/// Escapes all control characters in `path`.
pub fn printable_path(path: &Path) -> String {
    printable(&path.to_string_lossy()).into_owned()
}

/// Quotes `path` for a shell command that a message suggests.
pub fn shell_word(path: &Path) -> String {
    let mut text = printable_path(path);
    // Not an option of the command.
    if text.starts_with('-') {
        text.insert_str(0, "./");
    }
    let is_plain = |c: char| c.is_alphanumeric() || "._/-+,:@%".contains(c);
    if text.chars().all(is_plain) && !text.is_empty() {
        text
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
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

    #[test]
    fn paths_are_quoted_for_the_shell() {
        for (path, word) in [
            ("-d", "./-d"),
            ("a/b-1.x", "a/b-1.x"),
            ("my data", "'my data'"),
            ("it's", r"'it'\''s'"),
            ("$x", "'$x'"),
        ] {
            assert_eq!(shell_word(Path::new(path)), word);
        }
    }
}
