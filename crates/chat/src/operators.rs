//! Operators and numbers.
//!
//! Jinja2 hands operators to Python, so these are the rules of Python for the types that a template can have. Integers
//! outside of 64 bits, complex numbers and strings from `safe` are refused.

use std::cmp::Ordering;
use std::rc::Rc;

use crate::error::{ErrorKind, Result, error, overflow, type_error, unsupported};
use crate::runtime::Runtime;
use crate::value::{
    Kind, List, Number, TEMPLATE, Text, TextBuilder, Value, View, as_int, compare_numbers, equal, hashable,
    number, order,
};

/// The arithmetic of Python. `~` is no operator of Python, and has a node of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    Rem,
    Pow,
}

/// The comparisons of Python, and those of tests such as `is eq` and `is in`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompareOp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    In,
    NotIn,
}

impl Runtime {
    /// An operator between two values. The result of arithmetic belongs to the chat if one of the numbers does.
    pub(crate) fn binary(&mut self, operator: BinaryOp, left: Value, right: Value) -> Result<Value> {
        use BinaryOp::{Add, Div, FloorDiv, Mul, Pow, Rem, Sub};
        self.budget.charge(1)?;
        let symbol = match operator {
            Add => "+",
            Sub => "-",
            Mul => "*",
            Div => "/",
            FloorDiv => "//",
            Rem => "%",
            Pow => "**",
        };
        match (operator, &left.0, &right.0) {
            // `Undefined` of Jinja2 raises in every operator. transformers uses this class, not `ChainableUndefined` or
            // a lenient one.
            (_, Kind::Undefined(missing), _) => return error(ErrorKind::Undefined, missing.to_string()),
            // Before the right side is tested: an undefined value can be formatted, as an empty text.
            (Rem, Kind::Str(format), _) => return self.percent_format(format, &right),
            (_, _, Kind::Undefined(missing)) => return error(ErrorKind::Undefined, missing.to_string()),
            (_, Kind::Safe(_), _) | (_, _, Kind::Safe(_)) => {
                return unsupported(format!(
                    "`{symbol}` with a string from `safe` or `escape` is not supported"
                ));
            }
            (Add, Kind::Str(a), Kind::Str(b)) => {
                // Without a copy: templates add strings that are often empty.
                if b.is_empty() {
                    return Ok(left);
                }
                if a.is_empty() {
                    return Ok(right);
                }
                self.budget.make_text(a)?;
                self.budget.make_text(b)?;
                let mut out = TextBuilder::default();
                out.text.reserve_exact(a.len() + b.len());
                out.push_text(a);
                out.push_text(b);
                return Ok(out.finish().into());
            }
            (Add, Kind::List(a), Kind::List(b)) | (Add, Kind::Tuple(a), Kind::Tuple(b)) => {
                self.budget.make_items(a.items.len() + b.items.len())?;
                let items: Vec<Value> = a.items.iter().chain(&b.items).cloned().collect();
                return self.new_list(items, matches!(left.0, Kind::Tuple(_)));
            }
            // `"=" * 20`, and lists: a number below one gives nothing.
            (Mul, Kind::Str(text), Kind::Int(..) | Kind::Bool(..)) => return self.repeat_text(text, &right),
            (Mul, Kind::Int(..) | Kind::Bool(..), Kind::Str(text)) => return self.repeat_text(text, &left),
            (Mul, Kind::List(list) | Kind::Tuple(list), Kind::Int(..) | Kind::Bool(..)) => {
                return self.repeat_list(list, &right, matches!(left.0, Kind::Tuple(_)));
            }
            (Mul, Kind::Int(..) | Kind::Bool(..), Kind::List(list) | Kind::Tuple(list)) => {
                return self.repeat_list(list, &left, matches!(right.0, Kind::Tuple(_)));
            }
            _ => {}
        }
        let (Some(a), Some(b)) = (number(&left), number(&right)) else {
            return operand_error(symbol, &left, &right);
        };
        let mut result = arithmetic(operator, a, b)?;
        // The number of a chat stays one after `+ 1`: printing it is printing content.
        let source = if left.source() == TEMPLATE { right.source() } else { left.source() };
        result.mark(source);
        Ok(result)
    }

    /// `text * times`, which is paid for before it is made.
    fn repeat_text(&mut self, text: &Text, times: &Value) -> Result<Value> {
        let times = if text.is_empty() { 0 } else { repetitions(times) };
        self.budget.make(text.len().saturating_mul(times))?;
        self.budget.charge(text.runs().saturating_mul(times))?;
        let mut out = TextBuilder::default();
        for _ in 0..times {
            if text.uniform().is_none() {
                self.budget.make_text(text)?;
            }
            out.push_text(text);
        }
        Ok(out.finish().into())
    }

    /// `list * times`.
    fn repeat_list(&mut self, list: &Rc<List>, times: &Value, tuple: bool) -> Result<Value> {
        let times = if list.items.is_empty() { 0 } else { repetitions(times) };
        self.budget.make_items(list.items.len().saturating_mul(times))?;
        let mut items = Vec::new();
        for _ in 0..times {
            items.extend(list.items.iter().cloned());
        }
        self.new_list(items, tuple)
    }

    /// A comparison of two values. Values of types that have no order are an error, as in Python.
    pub(crate) fn compare(&mut self, operator: CompareOp, left: &Value, right: &Value) -> Result<bool> {
        let (symbol, is_in_order): (&str, fn(Ordering) -> bool) = match operator {
            CompareOp::Eq => return equal(left, right, &mut self.budget),
            CompareOp::Ne => return Ok(!equal(left, right, &mut self.budget)?),
            CompareOp::In => return self.contains(right, left),
            CompareOp::NotIn => return Ok(!self.contains(right, left)?),
            CompareOp::Lt => ("<", Ordering::is_lt),
            CompareOp::Le => ("<=", Ordering::is_le),
            CompareOp::Gt => (">", Ordering::is_gt),
            CompareOp::Ge => (">=", Ordering::is_ge),
        };
        for value in [left, right] {
            if let Kind::Undefined(missing) = &value.0 {
                return error(ErrorKind::Undefined, missing.to_string());
            }
        }
        self.budget.charge(1)?;
        if let (Some(a), Some(b)) = (number(left), number(right)) {
            // NaN is neither less than a number, nor equal to it, nor greater.
            return Ok(compare_numbers(a, b).is_some_and(is_in_order));
        }
        match order(left, right, &mut self.budget)? {
            Some(order) => Ok(is_in_order(order)),
            None => operand_error(symbol, left, right),
        }
    }

    /// `in`. For a string, this is a search for a part of it.
    pub(crate) fn contains(&mut self, container: &Value, item: &Value) -> Result<bool> {
        Ok(match &container.0 {
            Kind::Str(text) | Kind::Safe(text) => match &item.0 {
                Kind::Str(part) | Kind::Safe(part) => {
                    self.budget.read(text.len() + part.len())?;
                    text.as_str().contains(part.as_str())
                }
                _ => return type_error(format!("`in` a string needs a string, not {}", item.type_name())),
            },
            Kind::List(list) | Kind::Tuple(list) => self.position(&list.items, item)?.is_some(),
            Kind::Map(map) | Kind::View(View::Keys, map) => {
                hashable(item, &mut self.budget)?;
                map.get_value(item, &mut self.budget)?.is_some()
            }
            // `Undefined.__iter__` of Jinja2 is empty, so that `"x" in undefined` is false instead of an error.
            Kind::Undefined(_) => false,
            _ => {
                let items = self.iterate(container)?;
                self.position(&items, item)?.is_some()
            }
        })
    }

    /// The position of an item that is equal.
    /// As `list.index`, by `==`: `1` finds `True`.
    pub(crate) fn position(&mut self, items: &[Value], item: &Value) -> Result<Option<usize>> {
        for (at, other) in items.iter().enumerate() {
            if equal(other, item, &mut self.budget)? {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }
}

/// The error about operands that do not fit an operator.
pub(crate) fn operand_error<T>(symbol: &str, left: &Value, right: &Value) -> Result<T> {
    // The reason for an undefined value is more useful than the types.
    for value in [left, right] {
        if let Kind::Undefined(missing) = &value.0 {
            return error(ErrorKind::Undefined, missing.to_string());
        }
        if let Kind::Big(..) = value.0 {
            return unsupported(format!("`{symbol}` with integers of more than 64 bits is not supported"));
        }
    }
    type_error(format!("`{symbol}` is not defined for {} and {}", left.type_name(), right.type_name()))
}

/// `-value`.
pub(crate) fn negate(value: &Value) -> Result<Value> {
    let source = value.source();
    let mut result: Value = match number(value) {
        Some(Number::Int(value)) => match value.checked_neg() {
            Some(value) => value.into(),
            None => return overflow(),
        },
        Some(Number::Float(value)) => (-value).into(),
        None => return operand_error("-", value, value),
    };
    result.mark(source);
    Ok(result)
}

/// Arithmetic of integers is exact or an error: the integers of Python have any size, and a wrong number would be
/// silent.
fn arithmetic(operator: BinaryOp, a: Number, b: Number) -> Result<Value> {
    if let (Number::Int(a), Number::Int(b)) = (a, b) {
        let zero = b == 0;
        let result = match operator {
            BinaryOp::Add => a.checked_add(b),
            BinaryOp::Sub => a.checked_sub(b),
            BinaryOp::Mul => a.checked_mul(b),
            BinaryOp::Div | BinaryOp::FloorDiv | BinaryOp::Rem if zero => {
                return error(ErrorKind::Value, "division by zero");
            }
            BinaryOp::Div => {
                // Python divides integers of any size correctly rounded; beyond this, two conversions would round
                // twice.
                const EXACT: i64 = 1 << 53;
                if a.abs() > EXACT || b.abs() > EXACT {
                    return overflow();
                }
                return Ok((a as f64 / b as f64).into());
            }
            // Python rounds toward minus infinity, and a processor toward zero.
            BinaryOp::FloorDiv => {
                a.checked_div(b).map(|quotient| quotient - i64::from(a % b != 0 && (a < 0) != (b < 0)))
            }
            // In Python, the rest has the sign of the divisor.
            BinaryOp::Rem => {
                a.checked_rem(b).map(|rest| if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest })
            }
            // `2 ** -1` is a float in Python.
            BinaryOp::Pow if b < 0 => return float_arithmetic(operator, a as f64, b as f64),
            BinaryOp::Pow => u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
        };
        return match result {
            Some(result) => Ok(result.into()),
            None => overflow(),
        };
    }
    float_arithmetic(operator, a.to_f64(), b.to_f64())
}

/// Arithmetic of floats.
fn float_arithmetic(operator: BinaryOp, a: f64, b: f64) -> Result<Value> {
    Ok(match operator {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a * b,
        BinaryOp::Div | BinaryOp::FloorDiv | BinaryOp::Rem if b == 0.0 => {
            return error(ErrorKind::Value, "division by zero");
        }
        BinaryOp::Div => a / b,
        BinaryOp::FloorDiv | BinaryOp::Rem => {
            // As `float.__divmod__`.
            let mut rest = a % b;
            let mut quotient = (a - rest) / b;
            // The rest takes the sign of the divisor, as with integers.
            if rest != 0.0 {
                if (b < 0.0) != (rest < 0.0) {
                    rest += b;
                    quotient -= 1.0;
                }
            } else {
                rest = 0.0f64.copysign(b);
            }
            if operator == BinaryOp::Rem {
                rest
            } else if quotient == 0.0 {
                0.0f64.copysign(a / b)
            } else {
                let floor = quotient.floor();
                // The division above may have rounded down past an integer.
                if quotient - floor > 0.5 { floor + 1.0 } else { floor }
            }
        }
        BinaryOp::Pow => {
            // Python raises for 0 to a negative power, and returns a complex number for a root of a negative one.
            if a == 0.0 && b < 0.0 || a < 0.0 && b.fract() != 0.0 && a.is_finite() && b.is_finite() {
                return error(ErrorKind::Value, "this power is not a real number");
            }
            let result = a.powf(b);
            if result.is_infinite() && a.is_finite() && b.is_finite() {
                return error(ErrorKind::Value, "the result of a power is too large");
            }
            result
        }
    }
    .into())
}

/// A negative number of repetitions is none.
fn repetitions(times: &Value) -> usize {
    usize::try_from(as_int(times).unwrap_or(0)).unwrap_or(0)
}
