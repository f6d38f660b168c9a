//! Names of options in messages and help texts.
//!
//! The library writes an option under its library name in backquotes, alone or with a value: `` `max_length` ``,
//! `` `max_length 5` ``, `` `resume=repair` ``. A program with other names for its options replaces them: the command
//! writes `--max-length`, `--max-length 5` and `--resume=repair`.
//!
//! Other text in backquotes, such as `` `dsconvert status` ``, stays unchanged: its first word is not the name of an
//! option. Double quotes protect text that a user chose, so messages quote names of files, fields and classes with
//! `{:?}`. Unquoted text of a user or of another library is not protected: a message that contains it belongs in
//! [`Error::caused_by`](crate::error::Error::caused_by), which is never rewritten.

/// Replaces the option names in `text`. `spelling` returns how to write the option with a library name, or `None` if
/// there is no such option.
pub fn respell_options(text: &str, spelling: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(['`', '"']) {
        let (before, marked) = rest.split_at(start);
        out.push_str(before);
        let is_quoted = marked.starts_with('"');
        let end = if is_quoted { end_of_quoted(marked) } else { end_of_backquoted(marked) };
        let (marked, after) = marked.split_at(end);
        match marked.strip_prefix('`').and_then(|text| text.strip_suffix('`')) {
            Some(inner) if !is_quoted => match respelled(inner, &spelling) {
                Some(option) => out.push_str(&option),
                None => out.push_str(marked),
            },
            _ => out.push_str(marked),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Returns the text between two backquotes with the option at its start respelled.
fn respelled(inner: &str, spelling: impl Fn(&str) -> Option<String>) -> Option<String> {
    let (name, value) = inner.split_at(inner.find([' ', '=']).unwrap_or(inner.len()));
    spelling(name).map(|option| option + value)
}

/// Returns the length of the quoted string at the start of `text`. A string that is not closed ends with the text.
fn end_of_quoted(text: &str) -> usize {
    let mut is_escaped = false;
    let end = text.char_indices().skip(1).find(|&(_, c)| {
        let is_end = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        is_end
    });
    end.map_or(text.len(), |(end, _)| end + 1)
}

/// Returns the length of the backquoted text at the start of `text`, or 1 if it is not closed.
fn end_of_backquoted(text: &str) -> usize {
    text.get(1..).and_then(|inner| inner.find('`')).map_or(1, |end| end + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_a_command_line(text: &str) -> String {
        let options = ["max_length", "resume", "split"];
        respell_options(text, |name| options.contains(&name).then(|| format!("--{}", name.replace('_', "-"))))
    }

    #[test]
    fn options_are_replaced_with_their_values() {
        for (text, expected) in [
            ("`max_length 0`: a record has a token", "--max-length 0: a record has a token"),
            ("leave out `split`, or use `resume=repair`", "leave out --split, or use --resume=repair"),
            (
                "the stride of `split` is above `max_length 5`",
                "the stride of --split is above --max-length 5",
            ),
            ("`split 日本=0.5`日", "--split 日本=0.5日"),
        ] {
            assert_eq!(on_a_command_line(text), expected);
        }
    }

    #[test]
    fn other_text_is_unchanged() {
        for text in [
            "",
            "run `dsconvert status out --split` or `splits` or `max-length` or `Split`",
            "max_length and resume",
            "``split`",
            "`split",
            "a ` b",
            "` split`",
        ] {
            assert_eq!(on_a_command_line(text), text);
        }
    }

    #[test]
    fn text_in_double_quotes_is_unchanged() {
        for name in ["`split`", "a\"`split`", "\\", "\\\"`split`", "`", "\""] {
            let text = format!("no field {name:?}; leave out `split`");
            assert_eq!(on_a_command_line(&text), format!("no field {name:?}; leave out --split"));
        }
        assert_eq!(on_a_command_line("\"not closed `split`"), "\"not closed `split`");
    }
}
