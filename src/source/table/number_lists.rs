//! Lists of numbers in the types in which files have them.

use std::borrow::Cow;
use std::ops::Range;

use crate::sample::{Reject, RejectCode};

/// What the values of a list are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListItems {
    /// Integers.
    Integers,
    /// Integers, or booleans as 0 and 1.
    Flags,
    /// Any numbers.
    Numbers,
}

/// A list of integers, as a file has them.
#[derive(Debug, Clone, PartialEq)]
pub enum Integers<'a> {
    /// Signed, 8 bits.
    I8(&'a [i8]),
    /// Signed, 16 bits.
    I16(&'a [i16]),
    /// Signed, 32 bits.
    I32(&'a [i32]),
    /// Signed, 64 bits.
    I64(Cow<'a, [i64]>),
    /// Unsigned, 8 bits.
    U8(Cow<'a, [u8]>),
    /// Unsigned, 16 bits.
    U16(&'a [u16]),
    /// Unsigned, 32 bits.
    U32(&'a [u32]),
}

/// Evaluates `$body` with the numbers of a list.
macro_rules! with_integers {
    ($list:expr, $numbers:ident => $body:expr) => {
        match $list {
            Integers::I8($numbers) => $body,
            Integers::I16($numbers) => $body,
            Integers::I32($numbers) => $body,
            Integers::I64($numbers) => $body,
            Integers::U8($numbers) => $body,
            Integers::U16($numbers) => $body,
            Integers::U32($numbers) => $body,
        }
    };
}

impl Integers<'_> {
    /// Returns the number of values.
    pub fn len(&self) -> usize {
        with_integers!(self, numbers => numbers.len())
    }

    /// Returns the numbers in `range` as 64 bits.
    pub fn wide(&self, range: Range<usize>) -> Vec<i64> {
        with_integers!(self, numbers => {
            numbers.get(range).unwrap_or_default().iter().map(|&number| i64::from(number)).collect()
        })
    }

    /// Returns all numbers, rounded to 32 bits.
    pub fn rounded(&self) -> Vec<f32> {
        with_integers!(self, numbers => numbers.iter().map(|&number| number as f32).collect())
    }

    /// Returns the ids in `range`.
    ///
    /// # Errors
    ///
    /// Returns a reject if one does not fit in 32 bits without a sign.
    pub fn ids(&self, range: Range<usize>) -> Result<Vec<u32>, Reject> {
        with_integers!(self, numbers => {
            let ids = numbers.get(range).unwrap_or_default();
            // No branch for each id.
            let all = ids.iter().fold(0, |all, &id| all | i64::from(id));
            match u32::try_from(all) {
                Ok(_) => Ok(ids.iter().map(|&id| id as u32).collect()),
                Err(_) => Err(wrong_id(ids.iter().map(|&id| i64::from(id)))),
            }
        })
    }

    /// Returns the flags in `range`, which are 0 or 1; otherwise, the first other value, and its position in the list.
    ///
    /// # Errors
    ///
    /// Returns that value.
    pub fn flags(&self, range: Range<usize>) -> Result<Vec<u8>, (usize, i64)> {
        with_integers!(self, numbers => {
            let all = numbers.iter().fold(0, |all, &flag| all | i64::from(flag));
            match all & !1 {
                0 => Ok(numbers.get(range).unwrap_or_default().iter().map(|&flag| flag as u8).collect()),
                _ => {
                    let mut wide = numbers.iter().map(|&flag| i64::from(flag)).enumerate();
                    Err(wide.find(|(_, flag)| *flag != 0 && *flag != 1).unwrap_or_default())
                }
            }
        })
    }
}

/// A list of a row.
#[derive(Debug, Clone, PartialEq)]
pub enum RowList<'a> {
    /// Integers, or booleans as 0 and 1.
    Integers(Integers<'a>),
    /// Any numbers.
    Numbers(Vec<f32>),
}

impl<'a> RowList<'a> {
    /// Returns the number of values.
    pub fn len(&self) -> usize {
        match self {
            Self::Integers(integers) => integers.len(),
            Self::Numbers(numbers) => numbers.len(),
        }
    }

    /// Returns the integers.
    pub fn integers(self) -> Option<Integers<'a>> {
        match self {
            Self::Integers(integers) => Some(integers),
            Self::Numbers(_) => None,
        }
    }

    /// Returns the numbers.
    pub fn numbers(self) -> Option<Vec<f32>> {
        match self {
            Self::Integers(_) => None,
            Self::Numbers(numbers) => Some(numbers),
        }
    }
}

/// Returns the reject for ids of which one is negative or too large.
fn wrong_id(ids: impl Iterator<Item = i64>) -> Reject {
    let wrong = ids.enumerate().find(|(_, id)| u32::try_from(*id).is_err());
    let (at, id) = wrong.unwrap_or_default();
    let message = match id {
        ..0 => format!("the id {id} of token {at} is negative"),
        _ => format!("the id {id} of token {at} does not fit in 32 bits"),
    };
    Reject::new(RejectCode::InvalidValue, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_every_type_are_ids_and_flags() {
        let ids = |list: Integers<'_>| list.ids(1..3).map_err(|reject| reject.message);
        assert_eq!(ids(Integers::I8(&[1, 2, 127])), Ok(vec![2, 127]));
        assert_eq!(ids(Integers::I16(&[1, 2, 300])), Ok(vec![2, 300]));
        assert_eq!(ids(Integers::I32(&[-1, 2, 70_000])), Ok(vec![2, 70_000]));
        assert_eq!(ids(Integers::I64(vec![1, 0, (1 << 32) - 1].into())), Ok(vec![0, u32::MAX]));
        assert_eq!(ids(Integers::U8(vec![1, 0, 255].into())), Ok(vec![0, 255]));
        assert_eq!(ids(Integers::U16(&[1, 0, 65_535])), Ok(vec![0, 65_535]));
        assert_eq!(ids(Integers::U32(&[1, 0, u32::MAX])), Ok(vec![0, u32::MAX]));
        assert_eq!(ids(Integers::I32(&[1, 2, -5])), Err("the id -5 of token 1 is negative".to_owned()));
        let large = ids(Integers::I64(vec![1, 1 << 40, 1].into())).unwrap_err();
        assert_eq!(large, "the id 1099511627776 of token 0 does not fit in 32 bits");
        assert_eq!(Integers::I8(&[1, 0, 1]).flags(1..3), Ok(vec![0, 1]));
        assert_eq!(Integers::I64(vec![1, -100, 1].into()).flags(0..3), Err((1, -100)));
        assert_eq!(Integers::U16(&[1, 2]).flags(0..2), Err((1, 2)));
    }
}
