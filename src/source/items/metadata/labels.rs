//! Classes from a column of labels.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Error, Result};
use crate::sample::Reject;
use crate::source::names::labels::{class_ordinals, unknown_class};

/// Maximum number of classes for integer labels.
const MAX_CLASSES: i64 = 1 << 20;

/// The classes, and the mapping of labels to classes.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct Labels {
    names: Vec<String>,
    by_name: BTreeMap<String, u32>,
    /// Whether labels are ordinals of classes.
    by_ordinal: bool,
}

impl Labels {
    /// Returns the mapping to the classes `names`; with `by_ordinal`, labels are ordinals.
    ///
    /// # Errors
    ///
    /// Returns an error if `names` lists a class twice.
    pub fn new(names: Vec<String>, by_ordinal: bool) -> Result<Self> {
        let by_name = class_ordinals(&names)?;
        Ok(Self { names, by_name, by_ordinal })
    }

    /// Determines the classes of `labels`. If all labels are integers, they are ordinals, unless one of them is a name
    /// in `classes`. Otherwise labels are names, sorted as text.
    ///
    /// # Errors
    ///
    /// Returns an error if an integer is too large to be an ordinal, or `classes` lists a class twice.
    pub fn of<'a>(labels: impl Iterator<Item = &'a str>, classes: Option<&[String]>) -> Result<Self> {
        let distinct: BTreeSet<&str> = labels.collect();
        let numbers: Option<BTreeSet<i64>> = distinct.iter().map(|l| integer(l)).collect();
        let named = |numbers: &BTreeSet<i64>, list: &[String]| {
            list.iter()
                .any(|c| distinct.contains(c.as_str()) || integer(c).is_some_and(|n| numbers.contains(&n)))
        };
        let numbers = numbers.filter(|n| !n.is_empty() && !classes.is_some_and(|list| named(n, list)));
        let names = match (classes, &numbers) {
            (Some(given), _) => given.to_vec(),
            (None, None) => distinct.into_iter().map(str::to_owned).collect(),
            (None, Some(numbers)) => {
                let largest = numbers.last().copied().unwrap_or_default();
                if largest >= MAX_CLASSES {
                    return Err(Error::usage(format!("the label {largest} is too large to be a class"))
                        .help(format!(
                            "integer labels lie below {MAX_CLASSES}; rename the column to keep it as a number"
                        )));
                }
                (0..=largest).map(|n| n.to_string()).collect()
            }
        };
        Self::new(names, numbers.is_some())
    }

    /// Returns the ordinal of the class that `label` denotes.
    ///
    /// # Errors
    ///
    /// Returns a reject if there is no such class.
    pub fn ordinal(&self, label: &str) -> Result<u32, Reject> {
        let found = if self.by_ordinal { self.at(integer(label)) } else { self.named(label) };
        found.ok_or_else(|| unknown_class(label))
    }

    /// Returns the ordinal of the class with the name or, if there is none, the ordinal `label`.
    ///
    /// # Errors
    ///
    /// Returns a reject if there is no such class.
    pub fn name_or_ordinal(&self, label: &str) -> Result<u32, Reject> {
        let found = self.by_name.get(label).copied().or_else(|| self.at(label.parse().ok()));
        found.ok_or_else(|| unknown_class(label))
    }

    fn named(&self, label: &str) -> Option<u32> {
        let as_integer = || self.by_name.get(&integer(label)?.to_string());
        self.by_name.get(label).or_else(as_integer).copied()
    }

    fn at(&self, ordinal: Option<i64>) -> Option<u32> {
        u32::try_from(ordinal?).ok().filter(|&n| (n as usize) < self.names.len())
    }

    /// Returns whether labels are ordinals of classes.
    pub fn by_ordinal(&self) -> bool {
        self.by_ordinal
    }

    /// Returns the names of the classes.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the names of the classes.
    pub fn into_names(self) -> Vec<String> {
        self.names
    }
}

/// Parses an integer in its canonical form, so that `007` stays a name. `7.0` is one too, because pandas writes a column
/// of integers as floats if a value is missing.
fn integer(text: &str) -> Option<i64> {
    let text = text.strip_suffix(".0").unwrap_or(text);
    text.parse().ok().filter(|n: &i64| n.to_string() == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordinals(labels: &[&str], classes: Option<&[&str]>) -> Result<(Vec<String>, Vec<Option<u32>>)> {
        let classes: Option<Vec<String>> = classes.map(|c| c.iter().map(|&n| n.to_owned()).collect());
        let found = Labels::of(labels.iter().copied(), classes.as_deref())?;
        let ordinals = labels.iter().map(|l| found.ordinal(l).ok()).collect();
        Ok((found.into_names(), ordinals))
    }

    #[test]
    fn names_sort_and_integers_stay() {
        let names = |n: &[&str]| n.iter().map(|&n| n.to_owned()).collect::<Vec<_>>();
        assert_eq!(
            ordinals(&["dog", "10", "cat"], None).unwrap(),
            (names(&["10", "cat", "dog"]), vec![Some(2), Some(0), Some(1)])
        );
        assert_eq!(
            ordinals(&["2", "0", "-1"], None).unwrap(),
            (names(&["0", "1", "2"]), vec![Some(2), Some(0), None])
        );
        assert_eq!(ordinals(&["1", "2"], Some(&["a", "b"])).unwrap().1, [Some(1), None]);
        assert_eq!(ordinals(&["3", "0"], Some(&["7", "3"])).unwrap().1, [Some(1), None]);
        assert_eq!(ordinals(&["b", "x"], Some(&["b", "a"])).unwrap().1, [Some(0), None]);
        assert_eq!(ordinals(&["007"], None).unwrap().0, ["007"]);
        assert_eq!(
            ordinals(&["10.0", "2.0", "1"], None).unwrap().1,
            [Some(10), Some(2), Some(1)],
            "pandas writes integers as floats"
        );
        assert_eq!(ordinals(&["1.0", "1.5"], None).unwrap().0, ["1.0", "1.5"]);
        assert_eq!(ordinals(&["2.0", "1.0"], Some(&["2.0", "1.0"])).unwrap().1, [Some(0), Some(1)]);
        assert_eq!(
            ordinals(&["2.0", "1.0", "0.0"], Some(&["1", "2", "3"])).unwrap().1,
            [Some(1), Some(0), None],
            "the names are integers too"
        );
        assert_eq!(ordinals(&["cat", "1"], Some(&["cat", "dog"])).unwrap().1, [Some(0), None]);
        assert_eq!(ordinals(&[], None).unwrap().0, names(&[]));
        assert!(ordinals(&["1048576"], None).is_err());
        assert!(ordinals(&["a"], Some(&["a", "a"])).is_err());
    }
}
