//! Selection of the units that one process converts.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::numbers::plural;

/// The units that one process converts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Selection {
    /// All unfinished units.
    #[default]
    All,
    /// Every `count`-th unit, starting with unit `part - 1`: part `part` of `count`, counted from 1. Both numbers may
    /// differ between attempts.
    Part {
        /// Number of the part, from 1 to `count`.
        part: u32,
        /// Number of parts.
        count: u32,
    },
    /// These units.
    Units(Vec<u32>),
}

impl Selection {
    /// Parses part `i` of `N`, written as `i/N`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`](crate::error::ErrorKind::Usage) unless `text` has this form and 1 ≤ `i` ≤ `N`.
    pub fn part(text: &str) -> Result<Self> {
        text.split_once('/')
            .and_then(|(part, count)| Some((part.trim().parse().ok()?, count.trim().parse().ok()?)))
            .filter(|(part, count)| (1..=*count).contains(part))
            .map(|(part, count)| Self::Part { part, count })
            .ok_or_else(|| {
                Error::usage(format!("invalid part {text:?}")).help(
                    "use i/N with 1 ≤ i ≤ N, such as 3/40; in a Slurm array: \
                     `part $SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT` with `sbatch --array=1-N`",
                )
            })
    }

    /// Returns the selected units of a plan with `units` units.
    pub(super) fn of(&self, units: u32) -> Result<Vec<u32>> {
        match self {
            Self::All => Ok((0..units).collect()),
            Self::Part { part, count } => Ok((part - 1..units).step_by(*count as usize).collect()),
            Self::Units(list) => match list.iter().find(|&&unit| unit >= units) {
                None => Ok(list.clone()),
                Some(unit) => Err(Error::usage(format!(
                    "there is no unit {unit}; the plan has {}",
                    plural(units.into(), "unit")
                ))
                .help("units are counted from 0; `dsconvert status` lists the unfinished ones")),
            },
        }
    }
}

/// Formats as `2/8`, `3,7-9` or `all`.
impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Part { part, count } => write!(f, "{part}/{count}"),
            Self::Units(units) => f.write_str(&ranges(units)),
        }
    }
}

/// Parses a list of units, such as `3,7-9`.
impl FromStr for Selection {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = || Error::usage(format!("invalid list of units {text:?}")).help("use the form 3,7-9");
        let mut units = Vec::new();
        for range in text.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let number = |text: &str| text.trim().parse::<u32>().map_err(|_| bad());
            let (first, last) = (number(first)?, number(last)?);
            if first > last || u64::from(last - first) + units.len() as u64 >= 1 << 24 {
                return Err(bad());
            }
            units.extend(first..=last);
        }
        units.sort_unstable();
        units.dedup();
        Ok(Self::Units(units))
    }
}

/// Formats numbers as ranges: `3,7-9`.
pub fn ranges(numbers: &[u32]) -> String {
    ranges_of(numbers).join(",")
}

/// Formats each run of consecutive numbers as a range.
pub(super) fn ranges_of(numbers: &[u32]) -> Vec<String> {
    let runs = numbers.chunk_by(|a, b| a.checked_add(1) == Some(*b));
    runs.map(|run| match run {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_that_the_plan_lacks_is_refused() {
        for (units, expected) in [(1, "there is no unit 7; the plan has 1 unit"), (5, "the plan has 5 units")]
        {
            let error = Selection::Units(vec![0, 7]).of(units).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains("1 units"), "{error}");
        }
    }

    #[test]
    fn every_unit_is_in_exactly_one_part() {
        for units in [0, 1, 7, 40] {
            for count in [1, 3, 50] {
                let part = |part| Selection::part(&format!("{part}/{count}")).unwrap().of(units).unwrap();
                let mut all: Vec<u32> = (1..=count).flat_map(part).collect();
                all.sort_unstable();
                assert_eq!(all, (0..units).collect::<Vec<_>>());
            }
        }
        for wrong in ["", "1", "0/3", "4/3", "1/0", "a/b", "-1/3", "1/3/5"] {
            assert!(Selection::part(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn lists_of_units_are_parsed_and_formatted() {
        let units = |text: &str| match text.parse() {
            Ok(Selection::Units(units)) => Some(units),
            _ => None,
        };
        assert_eq!(units("3,7-9,8"), Some(vec![3, 7, 8, 9]));
        assert_eq!(ranges(&[3, 7, 8, 9]), "3,7-9");
        for wrong in ["", "9-7", "x", "1,,2", "0-4294967295"] {
            assert_eq!(units(wrong), None, "{wrong}");
        }
        assert!(Selection::Units(vec![3]).of(3).is_err());
    }
}
