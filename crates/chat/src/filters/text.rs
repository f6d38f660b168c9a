//! Filters of strings.

use crate::args::{Bound, CallArgs, optional_int, optional_text};
use crate::chars::{self, is_alphanumeric, is_space, map_chars};
use crate::error::{ErrorKind, Result, error, type_error, unsupported};
use crate::runtime::Runtime;
use crate::string_methods;
use crate::strings::split_lines;
use crate::value::{JsonStyle, Kind, Map, Mark, TEMPLATE, Text, TextBuilder, Value, as_int};

impl Runtime {
    /// `soft_str`.
    pub(super) fn text_of(&mut self, value: &Value) -> Result<Text> {
        match &value.0 {
            Kind::Str(text) => Ok(text.clone()),
            // `Markup` escapes every string that is added to it. Nothing in a chat is HTML, so a template that relies
            // on it is an error more often than not.
            Kind::Safe(_) => unsupported("a filter after `safe` or `escape` is not supported"),
            _ => self.printed(value),
        }
    }

    /// An argument that is true or false, false if it is left out.
    pub(super) fn flag(&self, value: Option<Value>) -> Result<bool> {
        match value {
            Some(value) => self.truth(&value),
            None => Ok(false),
        }
    }

    /// The error of a filter whose value has the wrong type, with the reason if the value is undefined.
    pub(super) fn bad_operand<T>(&self, name: &str, value: &Value) -> Result<T> {
        match &value.0 {
            Kind::Undefined(missing) => error(ErrorKind::Undefined, missing.to_string()),
            Kind::Safe(_) => unsupported(format!("`{name}` after `safe` or `escape` is not supported")),
            _ => type_error(format!("`{name}` does not take a value of type {}", value.type_name())),
        }
    }
}

/// `str.strip`.
/// `do_trim`: the most frequent filter of chat templates.
pub(super) fn trim(runtime: &mut Runtime, value: Value, [chars, ..]: Bound) -> Result<Value> {
    let chars = optional_text("trim", chars)?;
    let text = runtime.text_of(&value)?;
    Ok(runtime.strip(&text, chars.as_ref(), true, true)?.into())
}

/// Replaces an undefined value, or any value that is not true.
/// `do_default`, also `d`. `default("x", true)` replaces an empty string and `None`, too.
pub(super) fn default(runtime: &mut Runtime, value: Value, [default, boolean, ..]: Bound) -> Result<Value> {
    let replace =
        matches!(value.0, Kind::Undefined(_)) || runtime.flag(boolean)? && !runtime.truth(&value)?;
    Ok(if replace { default.unwrap_or_else(|| Value::str("", TEMPLATE)) } else { value })
}

/// `str()`.
/// `soft_str`: a number becomes a string, so that `+` can add it.
pub(super) fn string(runtime: &mut Runtime, value: Value, _: Bound) -> Result<Value> {
    Ok(match value.0 {
        Kind::Safe(_) => value,
        _ => runtime.text_of(&value)?.into(),
    })
}

/// Marks a text as HTML. Such a text can only be printed: it would escape others.
pub(super) fn safe(runtime: &mut Runtime, value: Value, _: Bound) -> Result<Value> {
    Ok(Kind::Safe(runtime.printed(&value)?).into())
}

/// Escapes for HTML, unless that is done already.
pub(super) fn escape(runtime: &mut Runtime, value: Value, arguments: Bound) -> Result<Value> {
    match value.0 {
        Kind::Safe(_) => Ok(value),
        _ => forceescape(runtime, value, arguments),
    }
}

/// `do_forceescape`: the escapes are those of `markupsafe`.
pub(super) fn forceescape(runtime: &mut Runtime, value: Value, _: Bound) -> Result<Value> {
    let text = runtime.printed(&value)?;
    // A quotation mark becomes five characters.
    for _ in 0..3 {
        runtime.make_changed(&text)?;
    }
    let text = map_chars(&text, |c, out| match c {
        '&' => out.push_str("&amp;"),
        '<' => out.push_str("&lt;"),
        '>' => out.push_str("&gt;"),
        '"' => out.push_str("&#34;"),
        '\'' => out.push_str("&#39;"),
        c => out.push(c),
    });
    Ok(Kind::Safe(text).into())
}

/// Changes the characters of a text one by one.
fn changed(runtime: &mut Runtime, value: &Value, change: impl FnOnce(&Text) -> Text) -> Result<Value> {
    let text = runtime.text_of(value)?;
    runtime.make_changed(&text)?;
    Ok(change(&text).into())
}

/// `do_upper`: of any value as it is printed. The methods of `str` are for strings only.
pub(super) fn upper(runtime: &mut Runtime, value: Value, _: Bound) -> Result<Value> {
    changed(runtime, &value, |text| text.map(str::to_uppercase))
}

pub(super) fn lower(runtime: &mut Runtime, value: Value, _: Bound) -> Result<Value> {
    changed(runtime, &value, |text| text.map(str::to_lowercase))
}

pub(super) fn capitalize(runtime: &mut Runtime, value: Value, _: Bound) -> Result<Value> {
    changed(runtime, &value, chars::capitalize)
}

pub(super) fn title(runtime: &mut Runtime, value: Value, _: Bound) -> Result<Value> {
    changed(runtime, &value, title_of_filter)
}

/// `str.replace`, of any value as it is printed.
pub(super) fn replace(runtime: &mut Runtime, value: Value, [old, new, count, ..]: Bound) -> Result<Value> {
    let text = runtime.text_of(&value)?;
    let old = runtime.text_of(&old.unwrap_or_else(Value::none))?;
    let new = runtime.text_of(&new.unwrap_or_else(Value::none))?;
    let count = optional_int("replace", count.filter(|count| !count.is_none()))?.unwrap_or(-1);
    Ok(runtime.replace(&text, &old, &new, count)?.into())
}

/// Shortens a text at a space. A text that is only a little longer stays as it is.
pub(super) fn truncate(
    runtime: &mut Runtime,
    value: Value,
    [length, killwords, end, leeway, ..]: Bound,
) -> Result<Value> {
    let length = optional_int("truncate", length)?.unwrap_or(255);
    let end = optional_text("truncate", end)?.unwrap_or_else(|| "...".into());
    runtime.budget.read(end.len())?;
    let leeway = optional_int("truncate", leeway.filter(|leeway| !leeway.is_none()))?.unwrap_or(5);
    // The end counts: `truncate(10)` leaves at most seven characters and three dots, by `do_truncate`.
    let keep = length - i64::try_from(end.chars()).unwrap_or(i64::MAX);
    if keep < 0 || leeway < 0 {
        return error(ErrorKind::Value, "`truncate` needs a length of at least that of its end");
    }
    // Anything that is short enough stays as it is.
    if as_int(&runtime.length(&value)?).is_some_and(|count| count <= length.saturating_add(leeway)) {
        return Ok(value);
    }
    let Kind::Str(text) = &value.0 else { return runtime.bad_operand("truncate", &value) };
    let keep = usize::try_from(keep).unwrap_or(0);
    let cut = text.as_str().char_indices().nth(keep).map_or(text.len(), |(at, _)| at);
    let mut kept = text.slice(0..cut);
    if !runtime.flag(killwords)?
        && let Some(space) = kept.as_str().rfind(' ')
    {
        kept = kept.slice(0..space);
    }
    runtime.budget.make_text(&kept)?;
    runtime.budget.make_text(&end)?;
    let mut out = TextBuilder::default();
    out.push_text(&kept);
    out.push_text(&end);
    Ok(out.finish().into())
}

/// Counts words as `\w+` finds them.
/// `do_wordcount`.
pub(super) fn wordcount(runtime: &mut Runtime, value: Value, _: Bound) -> Result<Value> {
    let text = runtime.text_of(&value)?;
    runtime.budget.charge(text.len() / 4)?;
    let is_word = |c: char| is_alphanumeric(c) || c == '_';
    Ok(Value::int(text.as_str().split(|c| !is_word(c)).filter(|word| !word.is_empty()).count()))
}

/// As `transformers` defines it.
///
/// `_compile_jinja_template` of transformers replaces the filter of Jinja2, which would escape `<` and `&`:
/// `json.dumps` with `ensure_ascii=False`. The order of its parameters also differs, and counts for templates that call
/// `tojson(false, 2)`.
pub(super) fn tojson(
    runtime: &mut Runtime,
    value: Value,
    [ascii, indent, separators, sort_keys]: Bound,
) -> Result<Value> {
    let (ascii, sort_keys) = (runtime.flag(ascii)?, runtime.flag(sort_keys)?);
    let indent = match indent.as_ref().map(|indent| &indent.0) {
        None | Some(Kind::None(_)) => None,
        Some(Kind::Str(text)) if text.first_mark().source != TEMPLATE => {
            return unsupported("an `indent` from the chat is not supported");
        }
        Some(Kind::Str(text)) => {
            runtime.budget.make(text.len())?;
            Some(text.as_str().to_owned())
        }
        Some(_) => match indent.as_ref().and_then(as_int) {
            Some(width) => {
                let width = usize::try_from(width).unwrap_or(0);
                runtime.budget.make(width)?;
                Some(" ".repeat(width))
            }
            None => return type_error("`indent` must be an integer or a string"),
        },
    };
    let separators = match separators.filter(|separators| !separators.is_none()) {
        Some(separators) => match &runtime.iterate(&separators)?[..] {
            [Value(Kind::Str(item)), Value(Kind::Str(key))] => (item.clone(), key.clone()),
            _ => return type_error("`separators` must be two strings"),
        },
        // The defaults of `json.dumps`: no space after a comma at the end of a line.
        None => (if indent.is_some() { "," } else { ", " }.into(), ": ".into()),
    };
    if let Kind::Undefined(missing) = &value.0 {
        return error(ErrorKind::Undefined, format!("{missing}, and cannot be written as JSON"));
    }
    if [&separators.0, &separators.1].iter().any(|text| text.first_mark().source != TEMPLATE) {
        return unsupported("`separators` from the chat are not supported");
    }
    let style = JsonStyle { ascii, indent, sort_keys, separators };
    Ok(style.to_json(&value, &mut runtime.budget)?.into())
}

/// Indents lines, except for the first one and blank ones.
/// `do_indent`: `indent(4, true)` also indents the first line.
pub(super) fn indent(runtime: &mut Runtime, value: Value, [width, first, blank, ..]: Bound) -> Result<Value> {
    let Kind::Str(text) = &value.0 else { return runtime.bad_operand("indent", &value) };
    let indention: Text = match width.as_ref().map(|width| &width.0) {
        None => "    ".into(),
        Some(Kind::Str(text)) => text.clone(),
        Some(_) => {
            let width = optional_int("indent", width)?.unwrap_or(0);
            let width = usize::try_from(width).unwrap_or(0);
            runtime.budget.make(width)?;
            Text::new(" ".repeat(width), TEMPLATE)
        }
    };
    let (first, blank) = (runtime.flag(first)?, runtime.flag(blank)?);
    runtime.budget.make_text(text)?;
    runtime.budget.make_text(text)?;
    let mut whole = TextBuilder::default();
    whole.push_text(text);
    whole.push("\n", Mark::TEMPLATE);
    // `do_indent` adds a line break before it splits, which keeps the one at the end of the text.
    let lines = split_lines(&whole.finish(), false, &mut runtime.budget)?;
    let mut out = TextBuilder::default();
    if first {
        out.push_text(&indention);
    }
    for (at, line) in lines.iter().enumerate() {
        runtime.budget.make_text(&indention)?;
        runtime.budget.make_text(line)?;
        if at > 0 {
            out.push("\n", Mark::TEMPLATE);
            if blank || !line.is_empty() {
                out.push_text(&indention);
            }
        }
        out.push_text(line);
    }
    Ok(out.finish().into())
}

/// `str.center`.
/// `do_center`, which is 80 wide by default.
pub(super) fn center(runtime: &mut Runtime, value: Value, [width, ..]: Bound) -> Result<Value> {
    let text = runtime.text_of(&value)?;
    let args = CallArgs { positional: vec![width.unwrap_or_else(|| 80.into())], keyword: Vec::new() };
    runtime.budget.read(text.len())?;
    string_methods::call(runtime, &text, "center", args)
}

/// `%` with the arguments.
/// `do_format`: `"%s and %s"|format(a, b)`.
pub(super) fn format(runtime: &mut Runtime, value: Value, args: CallArgs) -> Result<Value> {
    let text = runtime.text_of(&value)?;
    let values = if args.keyword.is_empty() {
        runtime.new_list(args.positional, true)?
    } else if args.positional.is_empty() {
        let mut map = Map::new();
        runtime.budget.make_entries(args.keyword.len())?;
        for (name, value) in args.keyword {
            map.insert_text(Text::new(name, TEMPLATE), value);
        }
        runtime.new_map(map)?
    } else {
        return type_error("`format` takes positional or keyword arguments, not both");
    };
    runtime.percent_format(&text, &values)
}

/// Words start with upper case, and end at spaces, hyphens and opening brackets.
/// `do_title`, which differs from `str.title`: it splits at these characters only, so that "don't" becomes "Don't".
fn title_of_filter(text: &Text) -> Text {
    let mut start = true;
    map_chars(text, |c, out| {
        let separator = is_space(c) || matches!(c, '-' | '(' | '{' | '[' | '<');
        if start && !separator {
            out.extend(c.to_uppercase());
        } else {
            out.extend(c.to_lowercase());
        }
        start = separator;
    })
}
