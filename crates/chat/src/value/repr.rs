//! `repr()` of Python.

use std::fmt::Write as _;

use super::{Kind, Mark, Source, TEMPLATE, Text, TextBuilder, Value, view_items};
use crate::budget::Budget;
use crate::error::{Result, unsupported};

/// Writes a value as Python does. Characters of a container belong to whoever wrote it.
pub(super) fn repr(value: &Value, out: &mut TextBuilder, outer: Source, budget: &mut Budget) -> Result<()> {
    let within = |source: Source| Mark::of(if source == TEMPLATE { outer } else { source });
    budget.charge(1)?;
    match &value.0 {
        Kind::None(source) => out.push_paid("None", within(*source), budget)?,
        Kind::Bool(value, source) => {
            out.push_paid(if *value { "True" } else { "False" }, within(*source), budget)?;
        }
        Kind::Int(value, source) => out.push_paid(&value.to_string(), within(*source), budget)?,
        Kind::Big(digits, source) => out.push_paid(digits, within(*source), budget)?,
        Kind::Float(value, source) => out.push_paid(&float_repr(*value), within(*source), budget)?,
        Kind::Str(text) => repr_str(text, out, budget)?,
        Kind::List(list) => repr_items(&list.items, ["[", "]"], within(list.source), out, budget)?,
        Kind::Tuple(list) => {
            let close = if list.items.len() == 1 { ",)" } else { ")" };
            repr_items(&list.items, ["(", close], within(list.source), out, budget)?;
        }
        Kind::Map(map) => {
            let mark = within(map.source);
            out.push_paid("{", mark, budget)?;
            for (at, (key, value)) in map.entries.iter().enumerate() {
                if at > 0 {
                    out.push_paid(", ", mark, budget)?;
                }
                repr(key, out, mark.source, budget)?;
                out.push_paid(": ", mark, budget)?;
                repr(value, out, mark.source, budget)?;
            }
            out.push_paid("}", mark, budget)?;
        }
        Kind::Range(start, stop, step) => {
            let step = if *step == 1 { String::new() } else { format!(", {step}") };
            out.push_paid(&format!("range({start}, {stop}{step})"), Mark::TEMPLATE, budget)?;
        }
        Kind::View(view, map) => {
            budget.make_entries(map.len())?;
            let open = format!("{}([", value.type_name());
            repr_items(&view_items(*view, map), [&open, "])"], within(map.source), out, budget)?;
        }
        // Inside of a list; alone, an undefined value is printed as nothing.
        Kind::Undefined(_) => out.push_paid("Undefined", Mark::TEMPLATE, budget)?,
        // `<generator object …>` has the address of an object, which differs in each run.
        _ => {
            let kind = value.type_name();
            return unsupported(format!(
                "a value of type {kind} is printed, which Python prints as an address"
            ));
        }
    }
    Ok(())
}

/// The items of a container between its brackets.
fn repr_items(
    items: &[Value],
    [open, close]: [&str; 2],
    mark: Mark,
    out: &mut TextBuilder,
    budget: &mut Budget,
) -> Result<()> {
    out.push_paid(open, mark, budget)?;
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push_paid(", ", mark, budget)?;
        }
        repr(item, out, mark.source, budget)?;
    }
    out.push_paid(close, mark, budget)
}

/// A string with quotes and escapes.
fn repr_str(text: &Text, out: &mut TextBuilder, budget: &mut Budget) -> Result<()> {
    // A character may become an escape of ten, and is looked up.
    budget.make_chars(text.len())?;
    budget.make_text(text)?;
    let mark = text.first_mark();
    // Single quotes, unless only single quotes are inside.
    let quote = if text.as_str().contains('\'') && !text.as_str().contains('"') { '"' } else { '\'' };
    out.push_char(quote, mark);
    let mut buffer = String::new();
    let mut last = mark;
    for (piece, mark) in text.pieces() {
        buffer.clear();
        last = mark;
        for c in piece.chars() {
            let _ = match c {
                '\n' => buffer.write_str("\\n"),
                '\r' => buffer.write_str("\\r"),
                '\t' => buffer.write_str("\\t"),
                '\\' => buffer.write_str("\\\\"),
                c if c == quote => write!(buffer, "\\{c}"),
                ' '..='~' => buffer.write_char(c),
                c if is_printable(c) => buffer.write_char(c),
                c if (c as u32) < 0x100 => write!(buffer, "\\x{:02x}", c as u32),
                c if (c as u32) < 0x10000 => write!(buffer, "\\u{:04x}", c as u32),
                c => write!(buffer, "\\U{:08x}", c as u32),
            };
        }
        budget.make(buffer.len().saturating_sub(piece.len()))?;
        out.push(&buffer, mark);
    }
    out.push_char(quote, last);
    Ok(())
}

/// `str.isprintable`. The debug format of the standard library escapes the same categories, except that it also escapes
/// combining characters at the start of a string.
pub(crate) fn is_printable(c: char) -> bool {
    match c {
        ' '..='~' => true,
        '\0'..='\u{7f}' => false,
        c => {
            let mut text = String::from("a");
            text.push(c);
            text.escape_debug().nth(1) == Some(c)
        }
    }
}

/// `repr()` of a float: the shortest digits that read back as the same number.
pub(crate) fn float_repr(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let power: i32 = scientific.split_once('e').and_then(|(_, power)| power.parse().ok()).unwrap_or(0);
    // Python writes an exponent from 1e16 on, and below 1e-4.
    if !(-4..16).contains(&power) {
        return exponent(&scientific);
    }
    let plain = format!("{value}");
    if plain.contains('.') { plain } else { plain + ".0" }
}

/// Writes the exponent of a number with a sign and at least two digits.
pub(crate) fn exponent(number: &str) -> String {
    match number.split_once('e') {
        Some((digits, power)) => {
            let (sign, power) = match power.strip_prefix('-') {
                Some(power) => ('-', power),
                None => ('+', power),
            };
            format!("{digits}e{sign}{power:0>2}")
        }
        None => number.to_owned(),
    }
}
