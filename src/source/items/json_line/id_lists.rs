//! Lists of token ids in a line of JSON.

use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};
use serde_json::value::RawValue;

use super::members::MemberPath;
use super::not_an_object;
use crate::sample::{Reject, RejectCode};
use crate::source::items::text::token_row::{IdFields, TokenRow};
use crate::source::table::number_lists::{Integers, ListItems, RowList};

/// Reads a row of token ids from a line. `paths` are those of the fields.
pub(super) fn row(line: &str, ids: &IdFields, paths: &[MemberPath]) -> Result<TokenRow, Reject> {
    let members: HashMap<String, &RawValue> = serde_json::from_str(line).map_err(|e| not_an_object(&e))?;
    ids.row(|at, field| {
        let Some(json) = paths.get(at).and_then(|path| path.text_in(&members)) else { return Ok(None) };
        let found = match field.items {
            ListItems::Flags => integers::<Flag>(json),
            ListItems::Integers => integers::<Integer>(json),
            ListItems::Numbers => numbers(json),
        };
        found.map_err(|e| {
            // Without the position, which is one in the list.
            let what = e.to_string();
            let what = what.split(" at line ").next().unwrap_or_default();
            let items = if field.items == ListItems::Numbers { "numbers" } else { "integers" };
            Reject::new(
                RejectCode::WrongType,
                format!("the field {:?} is not a list of {items}: {what}", field.name),
            )
        })
    })
}

/// Reads a list of integers; `None` if it is null.
fn integers<'a, T: Deserialize<'a> + Into<i64>>(
    json: &'a str,
) -> serde_json::Result<Option<RowList<'static>>> {
    let list: Option<Vec<T>> = serde_json::from_str(json)?;
    let integers = list.map(|list| list.into_iter().map(Into::into).collect());
    Ok(integers.map(|list| RowList::Integers(Integers::I64(list))))
}

/// Reads a list of numbers; `None` if it is null.
fn numbers(json: &str) -> serde_json::Result<Option<RowList<'static>>> {
    let list: Option<Vec<f64>> = serde_json::from_str(json)?;
    Ok(list.map(|list| RowList::Numbers(list.into_iter().map(|number| number as f32).collect())))
}

struct Integer(i64);

impl From<Integer> for i64 {
    fn from(Integer(number): Integer) -> Self {
        number
    }
}

impl<'de> Deserialize<'de> for Integer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        i64::deserialize(deserializer).map(Self)
    }
}

/// An integer, or a boolean as 0 or 1.
struct Flag(i64);

impl From<Flag> for i64 {
    fn from(Flag(number): Flag) -> Self {
        number
    }
}

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FlagVisitor)
    }
}

struct FlagVisitor;

impl Visitor<'_> for FlagVisitor {
    type Value = Flag;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an integer or a boolean")
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Flag, E> {
        Ok(Flag(i64::from(flag)))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Flag, E> {
        Ok(Flag(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Flag, E> {
        Ok(Flag(i64::try_from(number).unwrap_or(i64::MAX)))
    }
}
