//! Elements and slices of sequences.

use std::rc::Rc;

use crate::budget::Budget;
use crate::error::{ErrorKind, Result, error, type_error};
use crate::value::{Kind, List, Text, TextBuilder, Value, as_int, range_len};

/// `object[start:stop:step]`.
pub(crate) fn slice(
    object: &Value,
    [start, stop, step]: [Option<i64>; 3],
    budget: &mut Budget,
) -> Result<Value> {
    let step = step.unwrap_or(1);
    if step == 0 {
        return error(ErrorKind::Value, "the step of a slice is zero");
    }
    match &object.0 {
        Kind::Undefined(missing) => error(ErrorKind::Undefined, missing.to_string()),
        Kind::List(list) | Kind::Tuple(list) => {
            // Paid for before it is made.
            let (first, last) = slice_indices(list.items.len(), start, stop, step);
            budget.make_items(range_len(first, last, step))?;
            let positions = slice_positions(list.items.len(), start, stop, step);
            let items = positions.filter_map(|at| list.items.get(at).cloned()).collect();
            let list = Rc::new(List::new(items, list.source));
            Ok(if matches!(object.0, Kind::Tuple(_)) { Kind::Tuple(list) } else { Kind::List(list) }.into())
        }
        Kind::Str(text) => {
            budget.read(text.len())?;
            if step == 1 {
                return Ok(slice_text(text, start, stop).into());
            }
            budget.make_items(text.len())?;
            // `text[::-1]`: single characters, each with its own mark.
            let chars: Vec<(usize, char)> = text.as_str().char_indices().collect();
            let mut out = TextBuilder::default();
            let positions = slice_positions(chars.len(), start, stop, step);
            for (at, c) in positions.filter_map(|at| chars.get(at)) {
                out.push_text(&text.slice(*at..*at + c.len_utf8()));
            }
            Ok(out.finish().into())
        }
        // A slice of a range is a range.
        Kind::Range(first, last, width) => {
            let length = range_len(*first, *last, *width);
            let (from, to) = slice_indices(length, start, stop, step);
            let at = |index: i64| first.saturating_add(index.saturating_mul(*width));
            Ok(Kind::Range(at(from), at(to), width.saturating_mul(step)).into())
        }
        _ => type_error(format!("a value of type {} has no slices", object.type_name())),
    }
}

/// The position that a Python index stands for.
pub(crate) fn position(index: &Value, length: usize) -> Option<usize> {
    let index = as_int(index)?;
    let length = i64::try_from(length).ok()?;
    let at = if index < 0 { index.checked_add(length)? } else { index };
    (0..length).contains(&at).then(|| usize::try_from(at).ok()).flatten()
}

pub(crate) fn char_at(text: &Text, index: &Value) -> Option<Text> {
    let index = as_int(index)?;
    let chars = text.as_str().char_indices();
    let found = if index < 0 {
        let back = usize::try_from(index.checked_neg()? - 1).ok()?;
        chars.rev().nth(back)
    } else {
        let mut chars = chars;
        chars.nth(usize::try_from(index).ok()?)
    };
    found.map(|(at, c)| text.slice(at..at + c.len_utf8()))
}

/// A bound of a slice. `None` is the same as leaving it out.
pub(crate) fn slice_bound(value: &Value) -> Result<Option<i64>> {
    match as_int(value) {
        Some(bound) => Ok(Some(bound)),
        None if value.is_none() => Ok(None),
        None => type_error(format!("a slice needs integers, not {}", value.type_name())),
    }
}

/// The first index of a slice, and the one after its last in the direction of the step.
fn slice_indices(length: usize, start: Option<i64>, stop: Option<i64>, step: i64) -> (i64, i64) {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    // As `slice.indices` of Python: with a negative step, the position before the first item is a bound, too.
    let (low, high) = if step > 0 { (0, length) } else { (-1, length - 1) };
    let (first, last) = if step > 0 { (low, high) } else { (high, low) };
    let clamp = |bound: i64| {
        let bound = if bound < 0 { bound.saturating_add(length) } else { bound };
        bound.clamp(low, high)
    };
    (start.map_or(first, clamp), stop.map_or(last, clamp))
}

/// The positions of the items of a slice, in order.
fn slice_positions(
    length: usize,
    start: Option<i64>,
    stop: Option<i64>,
    step: i64,
) -> impl Iterator<Item = usize> {
    let (start, stop) = slice_indices(length, start, stop, step);
    (0..).take(range_len(start, stop, step)).filter_map(move |at| usize::try_from(start + at * step).ok())
}

/// `text[start:stop]` without reading more characters than needed.
fn slice_text(text: &Text, start: Option<i64>, stop: Option<i64>) -> Text {
    let string = text.as_str();
    let offset = |bound: i64| -> usize {
        if bound >= 0 {
            let count = usize::try_from(bound).unwrap_or(usize::MAX);
            string.char_indices().nth(count).map_or(string.len(), |(at, _)| at)
        } else {
            let back = usize::try_from(bound.unsigned_abs()).unwrap_or(usize::MAX);
            string.char_indices().rev().nth(back - 1).map_or(0, |(at, _)| at)
        }
    };
    let start = start.map_or(0, offset);
    let stop = stop.map_or(string.len(), offset);
    text.slice(start..stop.max(start))
}
