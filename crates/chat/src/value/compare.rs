//! How Python compares values.

use std::cmp::Ordering;
use std::rc::Rc;

use super::{Kind, Map, Value, View, range_len};
use crate::budget::Budget;
use crate::error::{Result, type_error, unsupported};

/// How Python compares two values with `==`.
pub(crate) fn equal(left: &Value, right: &Value, budget: &mut Budget) -> Result<bool> {
    use Kind::{Bool, Float, Int};
    budget.charge(1)?;
    Ok(match (&left.0, &right.0) {
        (Kind::Str(a) | Kind::Safe(a), Kind::Str(b) | Kind::Safe(b)) => {
            if a.len() == b.len() {
                budget.read(a.len())?;
            }
            a.as_str() == b.as_str()
        }
        (Kind::Undefined(_), Kind::Undefined(_)) | (Kind::None(_), Kind::None(_)) => true,
        (Bool(a, _), Bool(b, _)) => a == b,
        (Int(a, _), Int(b, _)) => a == b,
        // `True == 1`.
        (Bool(a, _), Int(b, _)) | (Int(b, _), Bool(a, _)) => i64::from(*a) == *b,
        (Float(a, _), Float(b, _)) => a == b,
        (Float(a, _), Int(b, _)) | (Int(b, _), Float(a, _)) => {
            compare_int_float(*b, *a) == Some(Ordering::Equal)
        }
        (Float(a, _), Bool(b, _)) | (Bool(b, _), Float(a, _)) => *a == f64::from(u8::from(*b)),
        (Kind::Big(a, _), Kind::Big(b, _)) => a == b,
        (Kind::List(a), Kind::List(b)) | (Kind::Tuple(a), Kind::Tuple(b)) => {
            if Rc::ptr_eq(a, b) {
                return Ok(true);
            }
            if a.items.len() != b.items.len() {
                return Ok(false);
            }
            for (a, b) in a.items.iter().zip(&b.items) {
                if !equal(a, b, budget)? {
                    return Ok(false);
                }
            }
            true
        }
        (Kind::Map(a), Kind::Map(b)) => Rc::ptr_eq(a, b) || equal_maps(a, b, budget)?,
        (Kind::View(kind, a), Kind::View(other, b)) if kind == other => match kind {
            // Key and item views compare as sets, value views by identity.
            View::Values => false,
            View::Items => Rc::ptr_eq(a, b) || equal_maps(a, b, budget)?,
            View::Keys => {
                if a.len() != b.len() {
                    return Ok(false);
                }
                for (key, _) in &a.entries {
                    if b.get_value(key, budget)?.is_none() {
                        return Ok(false);
                    }
                }
                true
            }
        },
        (Kind::Range(a, b, c), Kind::Range(d, e, f)) => {
            // Ranges are equal if their numbers are.
            let (left, right) = (range_len(*a, *b, *c), range_len(*d, *e, *f));
            left == right && (left == 0 || a == d && (left == 1 || c == f))
        }
        (Kind::Iterator(a), Kind::Iterator(b)) => Rc::ptr_eq(a, b),
        (Kind::Namespace(a), Kind::Namespace(b)) | (Kind::Macro(a), Kind::Macro(b)) => a == b,
        (Kind::Loop(_, a), Kind::Loop(_, b)) => a == b,
        (Kind::Function(a), Kind::Function(b)) => a == b,
        _ => false,
    })
}

/// Mappings are equal if they have the same keys and values in any order.
fn equal_maps(a: &Map, b: &Map, budget: &mut Budget) -> Result<bool> {
    if a.len() != b.len() {
        return Ok(false);
    }
    for (key, value) in &a.entries {
        match b.get_value(key, budget)? {
            Some(other) if equal(value, other, budget)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// Whether two values are equal strings, numbers, truth values or `None`, which are compared at a constant price: strings
/// are short. `None` for other values.
pub(crate) fn equal_atoms(left: &Value, right: &Value) -> Option<bool> {
    const SHORT: usize = 64;
    match (&left.0, &right.0) {
        (Kind::Str(a), Kind::Str(b)) => {
            (a.len() != b.len() || a.len() <= SHORT).then(|| a.as_str() == b.as_str())
        }
        (Kind::Bool(a, _), Kind::Bool(b, _)) => Some(a == b),
        (Kind::Int(a, _), Kind::Int(b, _)) => Some(a == b),
        (Kind::None(_), Kind::None(_)) => Some(true),
        (Kind::Str(_), Kind::None(_)) | (Kind::None(_), Kind::Str(_)) => Some(false),
        _ => None,
    }
}

/// Compares as Python does, which does not convert the integer to a float.
pub(crate) fn compare_int_float(int: i64, float: f64) -> Option<Ordering> {
    // 2^63, the first float above all integers of 64 bits.
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if float.is_nan() {
        return None;
    }
    if float >= LIMIT {
        return Some(Ordering::Less);
    }
    if float < -LIMIT {
        return Some(Ordering::Greater);
    }
    let whole = float.trunc();
    Some(int.cmp(&(whole as i64)).then_with(|| 0.0.partial_cmp(&(float - whole)).unwrap_or(Ordering::Equal)))
}

/// A number for arithmetic. Booleans are numbers in Python.
#[derive(Clone, Copy)]
pub(crate) enum Number {
    Int(i64),
    Float(f64),
}

impl Number {
    pub(crate) fn to_f64(self) -> f64 {
        match self {
            Number::Int(int) => int as f64,
            Number::Float(float) => float,
        }
    }
}

/// A number, if the value is one.
pub(crate) fn number(value: &Value) -> Option<Number> {
    match value.0 {
        Kind::Int(value, _) => Some(Number::Int(value)),
        Kind::Bool(value, _) => Some(Number::Int(i64::from(value))),
        Kind::Float(value, _) => Some(Number::Float(value)),
        _ => None,
    }
}

/// An integer, if the value is one.
pub(crate) fn as_int(value: &Value) -> Option<i64> {
    match number(value) {
        Some(Number::Int(value)) => Some(value),
        _ => None,
    }
}

/// The order of two numbers; none with NaN.
pub(crate) fn compare_numbers(a: Number, b: Number) -> Option<Ordering> {
    match (a, b) {
        (Number::Int(a), Number::Int(b)) => Some(a.cmp(&b)),
        (Number::Float(a), Number::Float(b)) => a.partial_cmp(&b),
        (Number::Int(a), Number::Float(b)) => compare_int_float(a, b),
        (Number::Float(a), Number::Int(b)) => compare_int_float(b, a).map(Ordering::reverse),
    }
}

/// The order of two values in `sorted`; none if Python cannot compare them.
pub(crate) fn order(left: &Value, right: &Value, budget: &mut Budget) -> Result<Option<Ordering>> {
    budget.charge(1)?;
    if let (Some(a), Some(b)) = (number(left), number(right)) {
        return match compare_numbers(a, b) {
            Some(order) => Ok(Some(order)),
            None => unsupported("the order of NaN is not supported"),
        };
    }
    match (&left.0, &right.0) {
        // By code points, whose order is that of their bytes in UTF-8.
        (Kind::Str(a) | Kind::Safe(a), Kind::Str(b) | Kind::Safe(b)) => {
            budget.read(a.len().min(b.len()))?;
            Ok(Some(a.as_str().cmp(b.as_str())))
        }
        (Kind::List(a), Kind::List(b)) | (Kind::Tuple(a), Kind::Tuple(b)) => {
            for (a, b) in a.items.iter().zip(&b.items) {
                if !equal(a, b, budget)? {
                    return order(a, b, budget);
                }
            }
            Ok(Some(a.items.len().cmp(&b.items.len())))
        }
        _ => Ok(None),
    }
}

/// Sorts, stable, by comparisons that may fail: those of the standard library may not.
pub(crate) fn sort<T>(items: Vec<T>, mut compare: impl FnMut(&T, &T) -> Result<Ordering>) -> Result<Vec<T>> {
    // Merge sort from the bottom, so that depth does not grow with the length.
    let mut runs: Vec<Vec<T>> = items.into_iter().map(|item| vec![item]).collect();
    while runs.len() > 1 {
        let mut merged = Vec::with_capacity(runs.len().div_ceil(2));
        let mut pairs = runs.into_iter();
        while let Some(left) = pairs.next() {
            merged.push(match pairs.next() {
                Some(right) => merge(left, right, &mut compare)?,
                None => left,
            });
        }
        runs = merged;
    }
    Ok(runs.pop().unwrap_or_default())
}

/// One step of the sort.
fn merge<T>(
    left: Vec<T>,
    right: Vec<T>,
    compare: &mut impl FnMut(&T, &T) -> Result<Ordering>,
) -> Result<Vec<T>> {
    let mut merged = Vec::with_capacity(left.len() + right.len());
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        // On a tie, the item from the left comes first: Python sorts stably.
        let next = if compare(b, a)?.is_lt() { right.next() } else { left.next() };
        merged.extend(next);
    }
    merged.extend(left);
    merged.extend(right);
    Ok(merged)
}

/// Refuses a value that cannot be a key of a mapping.
pub(crate) fn hashable(value: &Value, budget: &mut Budget) -> Result<()> {
    budget.charge(1)?;
    match &value.0 {
        // Mutable in Python.
        Kind::List(_) | Kind::Map(_) => {
            type_error(format!("a value of type {} cannot be a key of a mapping", value.type_name()))
        }
        Kind::Tuple(list) => list.items.iter().try_for_each(|item| hashable(item, budget)),
        _ => Ok(()),
    }
}
