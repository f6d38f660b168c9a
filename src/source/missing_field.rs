//! Errors about missing fields and columns.

use crate::error::Error;
use crate::suggest::did_you_mean;

/// Maximum number of names that a message lists.
const SHOWN_NAMES: usize = 20;
/// Maximum number of characters of a name in such a list.
const SHOWN_CHARACTERS: usize = 100;

/// Returns the error for `option`, which names a column that the table does not have.
pub(crate) fn no_column(option: &'static str, wanted: &str, there: &[&str]) -> Error {
    Error::usage(format!("there is no column {wanted:?}; there are {}", quoted(there)))
        .of_option(option)
        .help(suggestion(wanted, there))
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

/// Returns a suggestion of the name in `there` that was probably meant.
pub(crate) fn suggestion(wanted: &str, there: &[&str]) -> String {
    did_you_mean(wanted, there).unwrap_or_else(|| "name one of these".to_owned())
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
        assert_eq!(suggestion("contnet", &there), "did you mean \"content\"?");
        assert_eq!(suggestion("text", &there), "name one of these");
        assert_eq!(suggestion("langs", &there), "did you mean \"lang\"?");
        assert_eq!(suggestion("x", &[]), "name one of these");
    }
}
