//! Escapes strings of a dataset for HTML and SVG.

use std::fmt::Write;

/// Escapes text for HTML and SVG, in elements and in quoted attributes. Invisible characters (controls, marks of
/// writing direction, zero-width characters, noncharacters) become visible escapes, so that no string reorders or hides
/// the text around it.
///
/// ```
/// use dsconvert::report::escape;
///
/// assert_eq!(escape("<b>'\u{202e}\n"), r"&lt;b&gt;&#39;\u{202e}\n");
/// ```
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    push_escaped(&mut out, text);
    out
}

/// Appends [`escape`]d text.
pub(super) fn push_escaped(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if is_invisible(c) => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            }
            c => out.push(c),
        }
    }
}

/// Escapes at most `max` characters, and appends an ellipsis if text is left out.
pub(super) fn clipped(text: &str, max: usize) -> String {
    let mut out = String::new();
    match text.char_indices().nth(max) {
        Some((at, _)) => {
            push_escaped(&mut out, text.get(..at).unwrap_or_default());
            out.push('…');
        }
        None => push_escaped(&mut out, text),
    }
    out
}

/// Returns whether `c` is invisible or changes how other characters are shown.
fn is_invisible(c: char) -> bool {
    let code = u32::from(c);
    c.is_control()
        || code & 0xfffe == 0xfffe
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{fdd0}'..='\u{fdef}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn markup_controls_and_direction_marks_are_escaped() {
        let hostile = "</script><img src=x onerror='x'>\"&\0\u{1b}[2J\u{202e}\u{200f}\u{feff}\u{ffff}";
        let expected = "&lt;/script&gt;&lt;img src=x onerror=&#39;x&#39;&gt;&quot;&amp;\\u{0}\\u{1b}[2J\\u{202e}\
                        \\u{200f}\\u{feff}\\u{ffff}";
        assert_eq!(escape(hostile), expected);
        assert_eq!(escape("größer 日本 e\u{301} 🦀"), "größer 日本 e\u{301} 🦀");
    }

    #[test]
    fn long_text_is_clipped_between_characters() {
        assert_eq!(clipped("日本語", 2), "日本…");
        assert_eq!(clipped("<<<", 3), "&lt;&lt;&lt;");
        assert_eq!(clipped("", 0), "");
    }

    proptest! {
        #[test]
        fn escaped_text_contains_no_markup(text in any::<String>()) {
            let escaped = escape(&text);
            prop_assert!(!escaped.contains(['<', '>', '"', '\'']));
            prop_assert!(!escaped.chars().any(is_invisible));
        }
    }
}
