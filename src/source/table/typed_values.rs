//! Conversion of cell text and JSON to values of declared types.

use std::str::FromStr;

use crate::sample::{Reject, RejectCode, Value};
use crate::schema::FieldType;

/// Parses `text` as a value of the type `ty` in the column `name`.
///
/// # Errors
///
/// Returns a reject if the value does not fit the type.
pub(crate) fn from_text(name: &str, ty: FieldType, text: &str) -> Result<Value, Reject> {
    let value = match ty {
        FieldType::String => Some(Value::Text(text.into())),
        FieldType::Json => {
            serde_json::from_str::<serde_json::Value>(text).ok().map(|_| Value::Text(text.into()))
        }
        FieldType::Bool => match text {
            "true" | "True" | "TRUE" | "1" => Some(Value::Bool(true)),
            "false" | "False" | "FALSE" | "0" => Some(Value::Bool(false)),
            _ => None,
        },
        FieldType::Int32 => parsed::<i32>(text).map(|n| Value::Int(n.into())),
        FieldType::Int64 => parsed(text).map(Value::Int),
        FieldType::UInt32 => parsed::<u32>(text).map(|n| Value::UInt(n.into())),
        FieldType::UInt64 => parsed(text).map(Value::UInt),
        FieldType::Float32 => parsed::<f32>(text)
            .filter(|x| may_be_infinite(text, x.is_infinite()))
            .map(|x| Value::Float(x.into())),
        FieldType::Float64 => {
            parsed::<f64>(text).filter(|x| may_be_infinite(text, x.is_infinite())).map(Value::Float)
        }
        _ => None,
    };
    value.ok_or_else(|| invalid_value(name, ty, text))
}

/// Converts `json` to a value of the type `ty` in the column `name`.
///
/// # Errors
///
/// Returns a reject if the value does not fit the type.
pub(in crate::source) fn from_json(
    name: &str,
    ty: FieldType,
    json: &serde_json::Value,
) -> Result<Value, Reject> {
    match json {
        serde_json::Value::Null => Ok(Value::Null),
        json if ty == FieldType::Json => Ok(Value::Text(json.to_string().into())),
        serde_json::Value::String(text) => from_text(name, ty, text),
        serde_json::Value::Array(_) | serde_json::Value::Object(_) => {
            Err(invalid_value(name, ty, &json.to_string()))
        }
        scalar => from_text(name, ty, &scalar.to_string()),
    }
}

/// Converts a JSON text to a value of the type `ty` in the column `name`, as [`from_json`], but keeps the digits of
/// integers of more than 64 bits. A `json` value is the text itself.
///
/// # Errors
///
/// Returns a reject if the value does not fit the type.
pub(in crate::source) fn from_exact_json(name: &str, ty: FieldType, json: &str) -> Result<Value, Reject> {
    match ty {
        FieldType::Json => Ok(Value::Text(json.into())),
        _ if is_large_integer(json) => from_text(name, ty, json),
        _ => from_json(name, ty, &serde_json::from_str(json).unwrap_or_default()),
    }
}

/// Returns a value of type `ty` as JSON. Numbers that JSON cannot represent become null.
pub(in crate::source) fn as_json(ty: FieldType, value: &Value) -> String {
    match value {
        Value::Text(text) if ty == FieldType::Json => text.as_str().to_owned(),
        Value::Text(text) => serde_json::Value::from(text.as_str()).to_string(),
        Value::Bool(value) => value.to_string(),
        Value::Int(number) => number.to_string(),
        Value::UInt(number) => number.to_string(),
        Value::Float(number) if !number.is_finite() => "null".to_owned(),
        Value::Float(number) if ty == FieldType::Float32 => (*number as f32).to_string(),
        Value::Float(number) => number.to_string(),
        Value::Null
        | Value::Bytes(_)
        | Value::Ids(_)
        | Value::Array(_)
        | Value::Texts(_)
        | Value::Files(_) => "null".to_owned(),
    }
}

fn parsed<T: FromStr>(text: &str) -> Option<T> {
    text.trim().parse().ok()
}

/// Returns whether a number may be infinite: only infinity itself, not a number too large for its type.
fn may_be_infinite(text: &str, infinite: bool) -> bool {
    !infinite || text.to_ascii_lowercase().contains("inf")
}

fn invalid_value(name: &str, ty: FieldType, text: &str) -> Reject {
    /// Maximum number of characters of a value that a message shows.
    const SHOWN: usize = 40;
    let shown: String = text.chars().take(SHOWN).collect();
    Reject::new(RejectCode::InvalidValue, format!("the field {name:?} is no {}: {shown:?}", ty.name()))
}

/// Returns whether the text of a value is an integer that 64 bits cannot hold.
pub(in crate::source) fn is_large_integer(json: &str) -> bool {
    let digits = json.strip_prefix('-').unwrap_or(json);
    let is_integer = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_integer && json.parse::<i64>().is_err() && json.parse::<u64>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fit_their_type_or_are_refused() {
        for (ty, text, value) in [
            (FieldType::Int32, "-7", Some(Value::Int(-7))),
            (FieldType::Int32, "2147483648", None),
            (FieldType::UInt64, "18446744073709551615", Some(Value::UInt(u64::MAX))),
            (FieldType::UInt32, "-1", None),
            (FieldType::Int64, "1.0", None),
            (FieldType::Float32, "1e39", None),
            (FieldType::Float64, "-inf", Some(Value::Float(f64::NEG_INFINITY))),
            (FieldType::Float64, "2.5", Some(Value::Float(2.5))),
            (FieldType::Bool, "True", Some(Value::Bool(true))),
            (FieldType::Bool, "yes", None),
            (FieldType::Json, "[1, 2]", Some(Value::Text("[1, 2]".into()))),
            (FieldType::Json, "[1", None),
            (FieldType::String, " x ", Some(Value::Text(" x ".into()))),
        ] {
            assert_eq!(from_text("f", ty, text).ok(), value, "{ty:?} {text}");
        }
    }

    #[test]
    fn json_values_become_values() {
        let value = |ty, json: &str| from_json("f", ty, &serde_json::from_str(json).unwrap()).ok();
        assert_eq!(value(FieldType::String, "1.50"), Some(Value::Text("1.5".into())));
        assert_eq!(value(FieldType::String, "[1]"), None);
        assert_eq!(
            value(FieldType::Json, "[1, {\"a\": null}]"),
            Some(Value::Text("[1,{\"a\":null}]".into()))
        );
        assert_eq!(value(FieldType::Json, "\"x\""), Some(Value::Text("\"x\"".into())));
        assert_eq!(value(FieldType::Bool, "true"), Some(Value::Bool(true)));
        assert_eq!(value(FieldType::Int64, "null"), Some(Value::Null));
    }
}
