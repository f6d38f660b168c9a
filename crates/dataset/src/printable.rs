//! Escaping of file names for display.
//!
//! A file name may contain line breaks and terminal escape sequences. Printed verbatim, they could forge lines of
//! output or alter the terminal, so they are escaped: `\n`, `\u{1b}`.

use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt;
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

/// Quotes `path` for a shell command that a message suggests. Names that cannot be printed as they are have the form
/// `$'…'` of bash, zsh and ksh.
pub fn shell_word(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    // Not an option of the command.
    let prefix = if bytes.starts_with(b"-") { "./" } else { "" };
    let is_plain = |c: char| c.is_alphanumeric() || "._/-+,:@%".contains(c);
    match std::str::from_utf8(bytes) {
        Ok(text) if text.contains(is_control) => format!("$'{prefix}{}'", ansi_c_escaped(bytes)),
        Ok(text) if text.chars().all(is_plain) && !text.is_empty() => format!("{prefix}{text}"),
        Ok(text) => format!("'{prefix}{}'", text.replace('\'', "'\\''")),
        Err(_) => format!("$'{prefix}{}'", ansi_c_escaped(bytes)),
    }
}

/// Escapes `bytes` between `$'` and `'`. Three octal digits end an escape, whatever follows.
fn ansi_c_escaped(bytes: &[u8]) -> String {
    let octal = |bytes: &[u8]| bytes.iter().map(|byte| format!("\\{byte:03o}")).collect::<String>();
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' | '\'' => out.extend(['\\', c]),
                '\n' => out.push_str("\\n"),
                c if is_control(c) => out.push_str(&octal(c.encode_utf8(&mut [0; 4]).as_bytes())),
                c => out.push(c),
            }
        }
        out.push_str(&octal(chunk.invalid()));
    }
    out
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

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
            ("a\nb", r"$'a\nb'"),
            ("-\u{1b}7 it's\\", r"$'./-\0337 it\'s\\'"),
            ("ä\u{202e}", r"$'ä\342\200\256'"),
            ("", "''"),
        ] {
            assert_eq!(shell_word(Path::new(path)), word);
        }
        assert_eq!(shell_word(Path::new(OsStr::from_bytes(b"n\xff1"))), r"$'n\3771'");
    }
}
