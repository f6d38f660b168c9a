//! Filters of numbers.

use std::sync::Arc;

use crate::args::{Bound, optional_int, optional_text};
use crate::chars::is_space;
use crate::error::{ErrorKind, Result, error, overflow, unsupported};
use crate::runtime::Runtime;
use crate::value::{Kind, Number, TEMPLATE, Value, number};

impl Runtime {
    /// Pays for reading a number from a text.
    fn read_number(&mut self, value: &Value) -> Result<()> {
        match &value.0 {
            Kind::Str(text) | Kind::Safe(text) => self.make_changed(text),
            _ => Ok(()),
        }
    }
}

/// An integer, or the default where Python's `int()` fails.
/// `do_int`. A string such as "3.7" becomes 3, because it is read as a float where `int()` fails.
pub(super) fn int(runtime: &mut Runtime, value: Value, [default, base, ..]: Bound) -> Result<Value> {
    let base = optional_int("int", base)?.unwrap_or(10);
    runtime.read_number(&value)?;
    Ok(match to_int(&value, base)? {
        Some(value) => value,
        None => default.unwrap_or_else(|| 0.into()),
    })
}

/// A float, or the default where Python's `float()` fails.
/// `do_float`.
pub(super) fn float(runtime: &mut Runtime, value: Value, [default, ..]: Bound) -> Result<Value> {
    runtime.read_number(&value)?;
    Ok(match to_float(&value)? {
        Some(value) => value.into(),
        None => default.unwrap_or_else(|| 0.0.into()),
    })
}

/// The size of a number.
pub(super) fn abs(runtime: &mut Runtime, value: Value, _: Bound) -> Result<Value> {
    Ok(match number(&value) {
        Some(Number::Int(int)) => match int.checked_abs() {
            Some(int) => int.into(),
            None => return overflow(),
        },
        Some(Number::Float(float)) => float.abs().into(),
        None => return runtime.bad_operand("abs", &value),
    })
}

/// Rounds as Python does: the exact value, and half to even.
pub(super) fn round(runtime: &mut Runtime, value: Value, [precision, method, ..]: Bound) -> Result<Value> {
    let precision = optional_int("round", precision)?.unwrap_or(0);
    let method = optional_text("round", method)?.unwrap_or_else(|| "common".into());
    let Some(found) = number(&value) else { return runtime.bad_operand("round", &value) };
    let float = found.to_f64();
    if !(-300..=300).contains(&precision) {
        return unsupported("`round` to so many digits is not supported");
    }
    // `do_round` scales for `ceil` and `floor`, and calls `round()` for `common`.
    let factor = 10f64.powi(i32::try_from(precision).unwrap_or(0));
    Ok(match method.as_str() {
        "common" => match found {
            // `round(int, 0)` is the integer itruntime.
            Number::Int(int) if precision >= 0 => int.into(),
            Number::Int(_) => return unsupported("`round` of an integer to tens is not supported"),
            Number::Float(_) if !float.is_finite() => float.into(),
            // Python rounds the exact value, half to even, as the format of a float does.
            Number::Float(_) if precision >= 0 => {
                let digits = usize::try_from(precision).unwrap_or(0);
                format!("{float:.digits$}").parse().unwrap_or(float).into()
            }
            Number::Float(_) => ((float * factor).round_ties_even() / factor).into(),
        },
        "ceil" | "floor" => {
            let scaled = float * factor;
            let rounded = if method.as_str() == "ceil" { scaled.ceil() } else { scaled.floor() };
            (rounded / factor).into()
        }
        _ => return error(ErrorKind::Value, "the method of `round` must be common, ceil or floor"),
    })
}

/// A size with its unit.
/// `do_filesizeformat`.
pub(super) fn filesizeformat(runtime: &mut Runtime, value: Value, [binary, ..]: Bound) -> Result<Value> {
    runtime.read_number(&value)?;
    let Some(bytes) = to_float(&value)? else { return runtime.bad_operand("filesizeformat", &value) };
    Ok(Value::str(file_size(bytes, runtime.flag(binary)?), TEMPLATE))
}

/// `int()` of a string: digits with single underscores between them, and spaces around.
/// The rules of `int(text, base)`: a prefix such as `0x` is read if the base is that of the prefix, or 0.
fn parse_int(text: &str, base: i64) -> Result<Option<Value>> {
    let text = text.trim_matches(is_space);
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_ascii_lowercase();
    let prefixes = [("0b", 2), ("0o", 8), ("0x", 16)];
    let prefix =
        prefixes.iter().find(|(prefix, radix)| lower.starts_with(prefix) && (base == *radix || base == 0));
    let (radix, digits) = match prefix {
        Some((_, radix)) => (*radix, lower[2..].strip_prefix('_').unwrap_or(&lower[2..]).to_owned()),
        // Python refuses zeros before a number without a base, which would be octal in C.
        None if base == 0
            && lower.starts_with('0')
            && lower.bytes().any(|byte| matches!(byte, b'1'..=b'9')) =>
        {
            return Ok(None);
        }
        None => (if base == 0 { 10 } else { base }, lower),
    };
    if !(2..=36).contains(&radix) {
        return error(ErrorKind::Value, "the base of `int` must be 0 or 2 to 36");
    }
    let radix = u32::try_from(radix).unwrap_or(10);
    // Python reads the digits of all scripts. They are too rare in templates for a table of them.
    if digits.chars().any(|c| !c.is_ascii() && c.is_numeric()) {
        return unsupported("digits other than 0 to 9 are not supported");
    }
    if digits.is_empty() || digits.starts_with('_') || digits.ends_with('_') || digits.contains("__") {
        return Ok(None);
    }
    let digits = digits.replace('_', "");
    if !digits.chars().all(|c| c.is_digit(radix)) {
        return Ok(None);
    }
    match i64::from_str_radix(&format!("{}{digits}", if negative { "-" } else { "" }), radix) {
        Ok(value) => Ok(Some(value.into())),
        // As `int()` of Python, which reads no more of them.
        Err(_) if radix == 10 && digits.len() > 4300 => {
            error(ErrorKind::Value, "an integer of more than 4,300 digits")
        }
        // Too large for 64 bits: kept as digits, which can still be printed and compared.
        Err(_) if radix == 10 => {
            let digits = digits.trim_start_matches('0');
            let text: Arc<str> = format!("{}{digits}", if negative { "-" } else { "" }).into();
            Ok(Some(Kind::Big(text, TEMPLATE).into()))
        }
        Err(_) => overflow(),
    }
}

/// `float()` of a string.
/// The standard library reads what Python reads, apart from underscores: also "inf", "nan" and "1e5".
fn parse_float(text: &str) -> Option<f64> {
    let text = text.trim_matches(is_space);
    if text.contains('_') {
        let bytes = text.as_bytes();
        let valid = bytes.iter().enumerate().all(|(at, byte)| {
            let digit = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
            *byte != b'_' || digit(at.checked_sub(1)) && digit(Some(at + 1))
        });
        return if valid { text.replace('_', "").parse().ok() } else { None };
    }
    text.parse().ok()
}

/// `float()`.
fn to_float(value: &Value) -> Result<Option<f64>> {
    Ok(match &value.0 {
        Kind::Str(text) | Kind::Safe(text) => parse_float(text.as_str()),
        Kind::Undefined(missing) => return error(ErrorKind::Undefined, missing.to_string()),
        Kind::Big(digits, _) => digits.parse().ok(),
        _ => number(value).map(Number::to_f64),
    })
}

/// `int()`, which truncates floats.
fn to_int(value: &Value, base: i64) -> Result<Option<Value>> {
    let truncate = |float: f64| -> Result<Option<Value>> {
        if !float.is_finite() {
            return Ok(None);
        }
        // Below 2^63, so that the conversion is exact; Python would make a large integer.
        if float.abs() >= 9.2e18 {
            return overflow();
        }
        Ok(Some((float.trunc() as i64).into()))
    };
    match &value.0 {
        Kind::Str(text) | Kind::Safe(text) => match parse_int(text.as_str(), base)? {
            Some(value) => Ok(Some(value)),
            None => parse_float(text.as_str()).map_or(Ok(None), truncate),
        },
        Kind::Undefined(missing) => error(ErrorKind::Undefined, missing.to_string()),
        Kind::Big(..) => Ok(Some(value.clone())),
        // `int(inf)` raises an error that the filter does not catch.
        Kind::Float(float, _) if float.is_infinite() => error(ErrorKind::Value, "infinity is not an integer"),
        _ => match number(value) {
            Some(Number::Int(int)) => Ok(Some(int.into())),
            Some(Number::Float(float)) => truncate(float),
            None => Ok(None),
        },
    }
}

/// A number of bytes with a unit.
fn file_size(bytes: f64, binary: bool) -> String {
    let base: f64 = if binary { 1024.0 } else { 1000.0 };
    let prefixes = if binary {
        ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"]
    } else {
        ["kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"]
    };
    if bytes == 1.0 {
        return "1 Byte".to_owned();
    }
    if bytes < base {
        return format!("{} Bytes", bytes.trunc() as i64);
    }
    let mut unit = base;
    for (at, prefix) in prefixes.iter().enumerate() {
        unit *= base;
        if bytes < unit || at + 1 == prefixes.len() {
            return format!("{:.1} {prefix}", base * bytes / unit);
        }
    }
    String::new()
}
