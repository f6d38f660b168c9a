//! The words that denote splits, in options and in names of folders and files.

/// Words that denote splits, and the splits they denote.
const WORDS: [(&str, &str); 10] = [
    ("train", "train"),
    ("training", "train"),
    ("validation", "validation"),
    ("valid", "validation"),
    ("val", "validation"),
    ("dev", "validation"),
    ("test", "test"),
    ("testing", "test"),
    ("eval", "test"),
    ("evaluation", "test"),
];

/// Returns the split that `name` denotes as a whole.
pub fn split_named(name: &str) -> Option<&'static str> {
    WORDS.iter().find(|(word, _)| word.eq_ignore_ascii_case(name)).map(|(_, split)| *split)
}
