//! Tests (`is …`) whose result depends only on the type of a value, or on a constant.

use crate::value::{Kind, Value};

// `is true` and `is false` are about the constants, as `value is True` in Python: 1 is not true, and neither is "yes".
// The integer 1 is a number but not a boolean, and `True` is both a boolean and a number, but not an integer
// (`jinja2.tests`).
pub(super) fn boolean(value: &Value) -> bool {
    matches!(value.0, Kind::Bool(..))
}

/// An undefined value has a method `__call__`, which raises.
pub(super) fn callable(value: &Value) -> bool {
    matches!(
        value.0,
        Kind::Macro(_) | Kind::Function(_) | Kind::Method(_) | Kind::Loop(..) | Kind::Undefined(_)
    )
}

/// The most frequent test of templates: `message.tool_calls is defined`. A key with the value `null` is defined.
pub(super) fn defined(value: &Value) -> bool {
    !undefined(value)
}

/// Whether the value is `Markup`, which only the filters `safe` and `escape` make here.
pub(super) fn escaped(value: &Value) -> bool {
    matches!(value.0, Kind::Safe(_))
}

pub(super) fn is_false(value: &Value) -> bool {
    value.as_bool() == Some(false)
}

pub(super) fn float(value: &Value) -> bool {
    matches!(value.0, Kind::Float(..))
}

/// `True` is an `int` in Python, but `test_integer` leaves it out.
pub(super) fn integer(value: &Value) -> bool {
    matches!(value.0, Kind::Int(..) | Kind::Big(..))
}

/// `iter(value)` succeeds. Strings are iterable, so templates test `content is string` first.
pub(super) fn iterable(value: &Value) -> bool {
    sequence(value) || matches!(value.0, Kind::View(..) | Kind::Iterator(_) | Kind::Loop(..))
}

/// `collections.abc.Mapping`. A namespace is none.
pub(super) fn mapping(value: &Value) -> bool {
    matches!(value.0, Kind::Map(_))
}

/// `numbers.Number`, which includes `bool`.
pub(super) fn number(value: &Value) -> bool {
    integer(value) || float(value) || boolean(value)
}

/// What has a length and elements.
pub(super) fn sequence(value: &Value) -> bool {
    matches!(
        value.0,
        Kind::Str(_)
            | Kind::Safe(_)
            | Kind::List(_)
            | Kind::Tuple(_)
            | Kind::Map(_)
            | Kind::Range(..)
            | Kind::Undefined(_)
    )
}

/// `Markup` is a string in Python.
pub(super) fn string(value: &Value) -> bool {
    matches!(value.0, Kind::Str(_) | Kind::Safe(_))
}

pub(super) fn is_true(value: &Value) -> bool {
    value.as_bool() == Some(true)
}

/// An undefined value is one of the few that can be tested: nearly everything else with it is an error.
pub(super) fn undefined(value: &Value) -> bool {
    matches!(value.0, Kind::Undefined(_))
}
