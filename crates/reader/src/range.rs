//! Checks options against their ranges.

use std::fmt::Display;
use std::ops::RangeInclusive;

use dsconvert_dataset::error::{Error, Result};

/// Checks that `value` is in `range`; NaN is in none.
pub(super) fn check_in_range<T: PartialOrd + Display>(
    name: &str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<()> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(Error::usage(format!("{name} is {value}, not between {} and {}", range.start(), range.end())))
}
