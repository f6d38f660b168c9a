//! Errors about missing fields and columns.

use crate::error::Error;
use crate::suggest::did_you_mean;

/// Maximum number of names that a message lists.
const SHOWN_NAMES: usize = 20;
/// Maximum number of characters of a name in such a list.
const SHOWN_CHARACTERS: usize = 100;

/// Returns the error for `option`, which names a column that the table does not have.
pub(crate) fn no_column(option: &'static str, wanted: &str, there: &[&str]) -> Error {
    missing("column", option, wanted, there)
}

/// Returns the error for `option`, which names a `what`, such as a column, that is not `there`.
pub(crate) fn missing(what: &str, option: &'static str, wanted: &str, there: &[&str]) -> Error {
    let there_are = if there.is_empty() { "no others".to_owned() } else { quoted(there) };
    Error::usage(format!("there is no {what} {wanted:?}; there are {there_are}"))
        .of_option(option)
        .help(suggestion(option, wanted, there))
}

/// Returns the quoted names. Beyond [`SHOWN_NAMES`], the rest is counted. Long names are shortened.
pub(crate) fn quoted(names: &[impl AsRef<str>]) -> String {
    let shown = |name: &str| match name.char_indices().nth(SHOWN_CHARACTERS) {
        Some((at, _)) => format!("{:?}…", name.get(..at).unwrap_or_default()),
        None => format!("{name:?}"),
    };
    let mut text =
        names.iter().take(SHOWN_NAMES).map(|name| shown(name.as_ref())).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN_NAMES {
        text.push_str(&format!(" and {} more", names.len() - SHOWN_NAMES));
    }
    text
}

/// Returns a suggestion of the name in `there` that was probably meant by `wanted`, the value of `option`.
pub(crate) fn suggestion(option: &str, wanted: &str, there: &[&str]) -> String {
    if let Some(meant) = did_you_mean(wanted, there) {
        return meant;
    }
    match there {
        [] => format!("add the column to the table, or leave out `{option}`"),
        [only] if let Some(separator) = separator_in(only) => format!(
            "the columns seem to be separated by {separator}, but a .csv file has commas and a .tsv file tabs: rename or \
             convert the file"
        ),
        [only] if is_plain(only) => format!("add `{option} {only}`"),
        _ => "name one of these".to_owned(),
    }
}

/// Returns the separator of columns in `name`, which seems to be a whole header.
fn separator_in(name: &str) -> Option<&'static str> {
    [('\t', "tabs"), (';', "semicolons"), ('|', "vertical bars"), (',', "commas")]
        .into_iter()
        .find(|(separator, _)| name.split(*separator).filter(|part| !part.trim().is_empty()).count() > 1)
        .map(|(_, name)| name)
}

/// Returns whether a shell takes `name` literally.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_names_are_listed_and_the_rest_is_counted() {
        assert_eq!(quoted(&["a", "b"]), "\"a\", \"b\"");
        assert!(quoted(&["x"; 25]).ends_with("\"x\" and 5 more"));
        assert_eq!(quoted(&["é".repeat(101)]), format!("\"{}\"…", "é".repeat(100)));
    }

    #[test]
    fn only_a_similar_name_is_suggested() {
        let there = ["content", "id", "lang"];
        let suggestion = |wanted: &str, there: &[&str]| suggestion("text_field", wanted, there);
        assert_eq!(suggestion("contnet", &there), "did you mean \"content\"?");
        assert_eq!(suggestion("text", &there), "name one of these");
        assert_eq!(suggestion("langs", &there), "did you mean \"lang\"?");
        assert_eq!(suggestion("x", &[]), "add the column to the table, or leave out `text_field`");
        assert_eq!(suggestion("text", &["content"]), "add `text_field content`");
        assert_eq!(suggestion("text", &["the content"]), "name one of these");
        for (header, separator) in [
            ("id;text", "semicolons"),
            ("id\ttext", "tabs"),
            ("id|text", "vertical bars"),
            ("id,text", "commas"),
        ] {
            assert!(suggestion("text", &[header]).contains(separator), "{header}");
        }
    }
}
