//! Classes from a column of labels.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Error, Result};
use crate::sample::Reject;
use crate::source::labels::{class_ordinals, unknown_class};

/// Maximum number of classes for integer labels.
const MAX_CLASSES: i64 = 1 << 20;

/// The classes, and the mapping of labels to classes.
pub(in crate::source) struct Labels {
    names: Vec<String>,
    by_name: BTreeMap<String, u32>,
    /// Whether labels are ordinals of classes.
    by_ordinal: bool,
}

impl Labels {
    /// Determines the classes of `labels`. If all labels are integers, they are ordinals, unless one of them is a name
    /// in `classes`. Otherwise labels are names, sorted as text.
    ///
    /// # Errors
    ///
    /// Returns an error if an integer is too large to be an ordinal, or `classes` lists a class twice.
    pub(in crate::source) fn of<'a>(
        labels: impl Iterator<Item = &'a str>,
        classes: Option<&[String]>,
    ) -> Result<Self> {
        let distinct: BTreeSet<&str> = labels.collect();
        let numbers: Option<Vec<i64>> = distinct.iter().map(|l| integer(l)).collect();
        let named = |list: &[String]| list.iter().any(|c| distinct.contains(c.as_str()));
        let numbers = numbers.filter(|n| !n.is_empty() && !classes.is_some_and(named));
        let names = match (classes, &numbers) {
            (Some(given), _) => given.to_vec(),
            (None, None) => distinct.into_iter().map(str::to_owned).collect(),
            (None, Some(numbers)) => {
                let largest = numbers.iter().copied().max().unwrap_or_default();
                if largest >= MAX_CLASSES {
                    return Err(Error::usage(format!("the label {largest} is too large to be a class"))
                        .help(format!(
                            "integer labels lie below {MAX_CLASSES}; rename the column to keep it as a number"
                        )));
                }
                (0..=largest).map(|n| n.to_string()).collect()
            }
        };
        let by_name = class_ordinals(&names)?;
        Ok(Self { names, by_name, by_ordinal: numbers.is_some() })
    }

    /// Returns the ordinal of the class that `label` denotes.
    ///
    /// # Errors
    ///
    /// Returns a reject if there is no such class.
    pub(super) fn ordinal(&self, label: &str) -> Result<u32, Reject> {
        let found = if self.by_ordinal {
            let ordinal = integer(label).and_then(|n| u32::try_from(n).ok());
            ordinal.filter(|&n| (n as usize) < self.names.len())
        } else {
            self.by_name.get(label).copied()
        };
        found.ok_or_else(|| unknown_class(label))
    }

    pub(in crate::source) fn into_names(self) -> Vec<String> {
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
        assert_eq!(ordinals(&[], None).unwrap().0, names(&[]));
        assert!(ordinals(&["1048576"], None).is_err());
        assert!(ordinals(&["a"], Some(&["a", "a"])).is_err());
    }
}
