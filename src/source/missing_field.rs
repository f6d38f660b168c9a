//! Errors about missing fields and columns.

use crate::error::Error;

/// Maximum number of names that a message lists.
const SHOWN_NAMES: usize = 20;

/// Returns the error for `option`, which names a column that the table does not have.
pub(crate) fn no_column(option: &'static str, wanted: &str, there: &[&str]) -> Error {
    Error::usage(format!("there is no column {wanted:?}; there are {}", quoted(there)))
        .of_option(option)
        .help(suggestion(wanted, there))
}

/// Returns the quoted names. Beyond [`SHOWN_NAMES`], the rest is counted.
pub(crate) fn quoted(names: &[&str]) -> String {
    let mut text =
        names.iter().take(SHOWN_NAMES).map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN_NAMES {
        text.push_str(&format!(" and {} more", names.len() - SHOWN_NAMES));
    }
    text
}

/// Returns a suggestion of the name in `there` that was probably meant.
pub(crate) fn suggestion(wanted: &str, there: &[&str]) -> String {
    let near = there.iter().map(|name| (distance(wanted, name), name)).min();
    match near.filter(|(distance, _)| *distance <= 1 + wanted.chars().count() / 4) {
        Some((_, name)) => format!("did you mean {name:?}?"),
        None => "name one of these".to_owned(),
    }
}

/// Returns the Levenshtein distance between `a` and `b`, ignoring case.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.to_lowercase().chars().collect();
    // Distances between the characters of `a` so far and each prefix of `b`.
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, c) in a.to_lowercase().chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, d) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(c != *d);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_those_of_levenshtein() {
        for (a, b, expected) in
            [("", "", 0), ("", "ab", 2), ("kitten", "sitting", 3), ("Text", "text", 0), ("ab", "ba", 2)]
        {
            assert_eq!((distance(a, b), distance(b, a)), (expected, expected), "{a} {b}");
        }
    }

    #[test]
    fn many_names_are_listed_and_the_rest_is_counted() {
        assert_eq!(quoted(&["a", "b"]), "\"a\", \"b\"");
        assert!(quoted(&["x"; 25]).ends_with("\"x\" and 5 more"));
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
