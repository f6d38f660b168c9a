//! Tests (`is …`) whose result depends only on the type of a value, or on a constant.

use crate::value::{Kind, Value};

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

pub(super) fn defined(value: &Value) -> bool {
    !undefined(value)
}

pub(super) fn escaped(value: &Value) -> bool {
    matches!(value.0, Kind::Safe(_))
}

pub(super) fn is_false(value: &Value) -> bool {
    value.as_bool() == Some(false)
}

pub(super) fn float(value: &Value) -> bool {
    matches!(value.0, Kind::Float(..))
}

pub(super) fn integer(value: &Value) -> bool {
    matches!(value.0, Kind::Int(..) | Kind::Big(..))
}

pub(super) fn iterable(value: &Value) -> bool {
    sequence(value) || matches!(value.0, Kind::View(..) | Kind::Iterator(_) | Kind::Loop(..))
}

pub(super) fn mapping(value: &Value) -> bool {
    matches!(value.0, Kind::Map(_))
}

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

pub(super) fn string(value: &Value) -> bool {
    matches!(value.0, Kind::Str(_) | Kind::Safe(_))
}

pub(super) fn is_true(value: &Value) -> bool {
    value.as_bool() == Some(true)
}

pub(super) fn undefined(value: &Value) -> bool {
    matches!(value.0, Kind::Undefined(_))
}
