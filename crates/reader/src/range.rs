//! Checks options against their ranges.

use std::fmt::Display;
use std::ops::RangeInclusive;

use dsconvert_dataset::error::{Error, Result};

/// Checks that `value` is in `range`; NaN is in none. `name` is that of an option, or several words.
pub(super) fn check_in_range<T: PartialOrd + Display>(
    name: &str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<()> {
    if range.contains(&value) {
        return Ok(());
    }
    let name = if name.contains(' ') { name.to_owned() } else { format!("`{name}`") };
    Err(Error::usage(format!("{name} is {value}, not between {} and {}", range.start(), range.end())))
}
