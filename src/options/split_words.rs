//! The words that denote splits, in options and in names of folders and files.
//!
//! The words and their separators are those of the Hugging Face Hub (`datasets/data_files.py`).

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

/// Words that add nothing to the word of a split: `train_images`, `test set`. So do words of up to two letters.
const FILLERS: [&str; 23] = [
    "set", "sets", "data", "dataset", "split", "subset", "part", "shard", "image", "images", "img", "imgs",
    "photo", "photos", "pictures", "pics", "jpg", "jpeg", "png", "text", "txt", "folder", "files",
];

/// Returns the split that `name` denotes as a whole.
pub fn split_named(name: &str) -> Option<&'static str> {
    WORDS.iter().find(|(word, _)| word.eq_ignore_ascii_case(name)).map(|(_, split)| *split)
}

/// A name that contains the word of a split.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SplitName<'a> {
    pub(crate) split: &'static str,
    /// The word, as written.
    pub(crate) word: &'a str,
    /// The other words.
    pub(crate) others: Vec<&'a str>,
}

impl<'a> SplitName<'a> {
    /// Returns the first word of `name` that denotes a split.
    pub(crate) fn of(name: &'a str) -> Option<Self> {
        let mut found = None;
        let mut others = Vec::new();
        for word in words(name).filter(|word| !word.is_empty()) {
            match split_named(word).filter(|_| found.is_none()) {
                Some(split) => found = Some((split, word)),
                None => others.push(word),
            }
        }
        found.map(|(split, word)| Self { split, word, others })
    }

    /// Returns the split in the name of a file. As on the Hub, something must follow its word, if only the extension.
    pub(crate) fn of_file(name: &'a str) -> Option<Self> {
        let last = words(name).next_back().unwrap_or_default();
        Self::of(&name[..name.len() - last.len()])
    }

    /// Returns whether there are no other words: `train`, `val2017`.
    pub(crate) fn is_exact(&self) -> bool {
        self.others.is_empty()
    }

    /// Returns whether the other words have no meaning: `train_images`.
    pub(crate) fn is_plain(&self) -> bool {
        self.meaningful().next().is_none()
    }

    /// Returns the other words with a meaning.
    pub(crate) fn meaningful(&self) -> impl Iterator<Item = &'a str> + '_ {
        let is_filler = |word: &str| word.len() < 3 || FILLERS.iter().any(|f| f.eq_ignore_ascii_case(word));
        self.others.iter().copied().filter(move |word| !is_filler(word))
    }

    /// Returns whether the name contains words of several splits: `train_val`.
    pub(crate) fn is_ambiguous(&self) -> bool {
        self.others.iter().any(|word| split_named(word).is_some_and(|split| split != self.split))
    }
}

/// Start or end of a name that is the word of a split, but not a whole word of the name: `trainA`, `testset`.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Affix {
    /// The rest of the name, in lower case.
    pub(crate) rest: String,
    is_start: bool,
}

/// Returns the splits that `name`, which contains no word of a split, starts or ends with.
pub(crate) fn split_affixes(name: &str) -> Vec<(&'static str, Affix)> {
    let name = name.to_ascii_lowercase();
    let affix = |rest: &str, is_start| Affix { rest: rest.to_owned(), is_start };
    let of_word = |(word, split): &(&str, &'static str)| {
        let start = name.strip_prefix(word).map(|rest| (*split, affix(rest, true)));
        let end = name.strip_suffix(word).map(|rest| (*split, affix(rest, false)));
        [start, end]
    };
    WORDS.iter().flat_map(of_word).flatten().collect()
}

/// Divides a name at the word separators of the Hub.
fn words(name: &str) -> impl DoubleEndedIterator<Item = &str> {
    name.split(|c: char| "-._ ".contains(c) || c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_words_denote_splits() {
        for (name, split) in [
            ("train", "train"),
            ("val2017", "validation"),
            ("DIV2K_train_HR", "train"),
            ("my test.set", "test"),
            ("test-dev2017", "test"),
        ] {
            assert_eq!(SplitName::of(name).unwrap().split, split, "{name}");
        }
        for name in ["contest", "trainA", "training+", "", "valley", "2017"] {
            assert_eq!(SplitName::of(name), None, "{name}");
        }
        assert_eq!(SplitName::of_file("a_test.jpg").unwrap().split, "test");
        for name in ["a_test", "a.test", "latest.jpg"] {
            assert_eq!(SplitName::of_file(name), None, "{name}");
        }
    }

    #[test]
    fn other_words_may_change_the_meaning() {
        let of = |name| SplitName::of(name).unwrap();
        assert!(of("train-00").is_exact() && of("train_images").is_plain() && !of("train_images").is_exact());
        assert!(!of("train_station").is_plain());
        assert!(of("train_val2018").is_ambiguous() && !of("train_station").is_ambiguous());
        let a = || Affix { rest: "a".to_owned(), is_start: true };
        assert_eq!(split_affixes("trainA"), [("train", a())]);
        assert_eq!(split_affixes("TestA"), [("test", a())]);
        assert_eq!(split_affixes("airplane"), []);
    }
}
