//! The filters and tests of Jinja2, with `tojson` as `transformers` defines it.

use std::cmp::Ordering;
use std::rc::Rc;
use std::sync::Arc;

use crate::args::{CallArgs, optional_int, optional_text, required_text};
use crate::attributes::{Attribute, attribute_kind};
use crate::chars::{capitalize, is_alphanumeric, is_lower, is_space, is_upper, map_chars};
use crate::error::{ErrorKind, Result, error, overflow, type_error, unsupported};
use crate::operators::{BinaryOp, CompareOp};
use crate::runtime::{Runtime, undefined};
use crate::strings::split_lines;
use crate::value::{
    JsonStyle, Kind, List, Mark, Number, TEMPLATE, Text, TextBuilder, Value, View, as_int, equal, hashable,
    named, number, order, sort, view_items,
};

named! {
    /// The filters of Jinja2.
    Filter {
        Abs: "abs",
        Attr: "attr",
        Batch: "batch",
        Capitalize: "capitalize",
        Center: "center",
        Default: "default" | "d",
        Dictsort: "dictsort",
        Escape: "escape" | "e",
        Filesizeformat: "filesizeformat",
        First: "first",
        Float: "float",
        Forceescape: "forceescape",
        Format: "format",
        Groupby: "groupby",
        Indent: "indent",
        Int: "int",
        Items: "items",
        Join: "join",
        Last: "last",
        Length: "length" | "count",
        List: "list",
        Lower: "lower",
        Map: "map",
        Max: "max",
        Min: "min",
        Pprint: "pprint",
        Random: "random",
        Reject: "reject",
        Rejectattr: "rejectattr",
        Replace: "replace",
        Reverse: "reverse",
        Round: "round",
        Safe: "safe",
        Select: "select",
        Selectattr: "selectattr",
        Slice: "slice",
        Sort: "sort",
        String: "string",
        Striptags: "striptags",
        Sum: "sum",
        Title: "title",
        Tojson: "tojson",
        Trim: "trim",
        Truncate: "truncate",
        Unique: "unique",
        Upper: "upper",
        Urlencode: "urlencode",
        Urlize: "urlize",
        Wordcount: "wordcount",
        Wordwrap: "wordwrap",
        Xmlattr: "xmlattr",
    }
}

named! {
    /// The tests of Jinja2.
    Test {
        Boolean: "boolean",
        Callable: "callable",
        Defined: "defined",
        Divisibleby: "divisibleby",
        Equal: "eq" | "==" | "equalto",
        Escaped: "escaped",
        Even: "even",
        False: "false",
        KnownFilter: "filter",
        Float: "float",
        Greater: "gt" | ">" | "greaterthan",
        GreaterEqual: "ge" | ">=",
        In: "in",
        Integer: "integer",
        Iterable: "iterable",
        Less: "lt" | "<" | "lessthan",
        LessEqual: "le" | "<=",
        Lower: "lower",
        Mapping: "mapping",
        None: "none",
        NotEqual: "ne" | "!=",
        Number: "number",
        Odd: "odd",
        Sameas: "sameas",
        Sequence: "sequence",
        String: "string",
        KnownName: "test",
        True: "true",
        Undefined: "undefined",
        Upper: "upper",
    }
}

/// `attribute` of `map`, `sort` and others: names and numbers, separated by dots.
struct Getter {
    parts: Vec<Value>,
    default: Option<Value>,
    fold_case: bool,
}

impl Runtime {
    /// `soft_str`.
    fn text_of(&mut self, value: &Value) -> Result<Text> {
        match &value.0 {
            Kind::Str(text) => Ok(text.clone()),
            Kind::Safe(_) => unsupported("a filter after `safe` or `escape` is not supported"),
            _ => self.printed(value),
        }
    }

    fn flag(&self, value: Option<Value>) -> Result<bool> {
        match value {
            Some(value) => self.truth(&value),
            None => Ok(false),
        }
    }

    fn getter(
        &mut self,
        attribute: Option<Value>,
        default: Option<Value>,
        fold_case: bool,
    ) -> Result<Getter> {
        let parts = match attribute {
            None => Vec::new(),
            Some(attribute) => match &attribute.0 {
                Kind::None(_) => Vec::new(),
                Kind::Str(text) => {
                    let part = |part: &str| match part.parse::<i64>() {
                        Ok(index) if part.bytes().all(|byte| byte.is_ascii_digit()) => index.into(),
                        _ => Value::str(part, TEMPLATE),
                    };
                    self.budget.make_items(text.len())?;
                    text.as_str().split('.').map(part).collect()
                }
                _ => vec![attribute],
            },
        };
        Ok(Getter { parts, default: default.filter(|default| !default.is_none()), fold_case })
    }

    fn get(&mut self, getter: &Getter, item: &Value) -> Result<Value> {
        let mut value = item.clone();
        self.budget.charge(1 + getter.parts.len())?;
        for part in &getter.parts {
            if let Kind::Undefined(missing) = &value.0 {
                return error(ErrorKind::Undefined, missing.to_string());
            }
            value = self.item(&value, part)?;
            if let (Kind::Undefined(_), Some(default)) = (&value.0, &getter.default) {
                value = default.clone();
            }
        }
        if getter.fold_case
            && let Kind::Str(text) = &value.0
        {
            self.make_changed(text)?;
            return Ok(text.map(str::to_lowercase).into());
        }
        Ok(value)
    }

    /// Sorts by keys, stable. Several keys are compared as lists are: equal items need no order.
    fn sorted(
        &mut self,
        items: Vec<(Vec<Value>, Value)>,
        reverse: bool,
        as_list: bool,
    ) -> Result<Vec<(Vec<Value>, Value)>> {
        self.budget.make_items(items.len().saturating_mul(2))?;
        let budget = &mut self.budget;
        let mut compare = |a: &[Value], b: &[Value]| -> Result<Ordering> {
            for (a, b) in a.iter().zip(b) {
                if as_list && equal(a, b, budget)? {
                    continue;
                }
                return match order(a, b, budget)? {
                    Some(order) => Ok(order),
                    None => {
                        let (a, b) = (a.type_name(), b.type_name());
                        type_error(format!("values of types {a} and {b} cannot be sorted"))
                    }
                };
            }
            Ok(Ordering::Equal)
        };
        sort(items, |(a, _), (b, _)| if reverse { compare(b, a) } else { compare(a, b) })
    }

    /// Pays for a text whose characters change one by one.
    pub(crate) fn make_changed(&mut self, text: &Text) -> Result<()> {
        self.budget.make_text(text)?;
        self.budget.make_chars(text.len())
    }

    pub(crate) fn apply_filter(&mut self, filter: Filter, value: Value, args: CallArgs) -> Result<Value> {
        let name = filter.name();
        self.budget.charge(1)?;
        Ok(match filter {
            Filter::Trim => {
                let [chars] = args.bind(name, ["chars"], 0)?;
                let chars = optional_text(name, chars)?;
                let text = self.text_of(&value)?;
                self.strip(&text, chars.as_ref(), true, true)?.into()
            }
            Filter::Length => {
                let [] = args.bind(name, [], 0)?;
                self.length(&value)?
            }
            Filter::Tojson => self.tojson(&value, args)?,
            Filter::Default => {
                let [default, boolean] = args.bind(name, ["default_value", "boolean"], 0)?;
                let replace =
                    matches!(value.0, Kind::Undefined(_)) || self.flag(boolean)? && !self.truth(&value)?;
                if replace { default.unwrap_or_else(|| Value::str("", TEMPLATE)) } else { value }
            }
            Filter::String => {
                let [] = args.bind(name, [], 0)?;
                match value.0 {
                    Kind::Safe(_) => value,
                    _ => self.text_of(&value)?.into(),
                }
            }
            Filter::Safe => {
                let [] = args.bind(name, [], 0)?;
                Kind::Safe(self.printed(&value)?).into()
            }
            Filter::Escape | Filter::Forceescape => {
                let [] = args.bind(name, [], 0)?;
                if let (Kind::Safe(_), Filter::Escape) = (&value.0, filter) {
                    return Ok(value);
                }
                let text = self.printed(&value)?;
                // A quotation mark becomes five characters.
                for _ in 0..3 {
                    self.make_changed(&text)?;
                }
                let text = map_chars(&text, |c, out| match c {
                    '&' => out.push_str("&amp;"),
                    '<' => out.push_str("&lt;"),
                    '>' => out.push_str("&gt;"),
                    '"' => out.push_str("&#34;"),
                    '\'' => out.push_str("&#39;"),
                    c => out.push(c),
                });
                Kind::Safe(text).into()
            }
            Filter::Upper | Filter::Lower | Filter::Capitalize | Filter::Title => {
                let [] = args.bind(name, [], 0)?;
                let text = self.text_of(&value)?;
                self.make_changed(&text)?;
                match filter {
                    Filter::Upper => text.map(str::to_uppercase),
                    Filter::Lower => text.map(str::to_lowercase),
                    Filter::Capitalize => capitalize(&text),
                    _ => title(&text),
                }
                .into()
            }
            Filter::Replace => {
                let [old, new, count] = args.bind(name, ["old", "new", "count"], 2)?;
                let text = self.text_of(&value)?;
                let old = self.text_of(&old.unwrap_or_else(Value::none))?;
                let new = self.text_of(&new.unwrap_or_else(Value::none))?;
                let count = optional_int(name, count.filter(|count| !count.is_none()))?.unwrap_or(-1);
                self.replace(&text, &old, &new, count)?.into()
            }
            Filter::Join => {
                let [separator, attribute] = args.bind(name, ["d", "attribute"], 0)?;
                let separator = match separator {
                    Some(separator) => self.printed(&separator)?,
                    None => "".into(),
                };
                let getter = self.getter(attribute, None, false)?;
                let mut out = TextBuilder::default();
                for (at, item) in self.iterate(&value)?.iter().enumerate() {
                    if at > 0 {
                        self.budget.make_text(&separator)?;
                        out.push_text(&separator);
                    }
                    let item = self.get(&getter, item)?;
                    let item = self.printed(&item)?;
                    self.budget.make_text(&item)?;
                    out.push_text(&item);
                }
                out.finish().into()
            }
            Filter::List => {
                let [] = args.bind(name, [], 0)?;
                let items = self.iterate(&value)?;
                Kind::List(Rc::new(List::new(items, value.source()))).into()
            }
            Filter::Items => {
                let [] = args.bind(name, [], 0)?;
                match &value.0 {
                    Kind::Undefined(_) => Value::iterator(Vec::new()),
                    Kind::Map(map) => {
                        self.budget.make_entries(map.len())?;
                        Value::iterator(view_items(View::Items, map))
                    }
                    _ => return type_error("`items` needs a mapping"),
                }
            }
            Filter::First => {
                let [] = args.bind(name, [], 0)?;
                let first = match &value.0 {
                    Kind::List(list) | Kind::Tuple(list) => list.items.first().cloned(),
                    Kind::Iterator(items) => items.items.borrow_mut().next(),
                    _ => self.iterate(&value)?.into_iter().next(),
                };
                first.unwrap_or_else(|| undefined("there is no first item, the sequence is empty"))
            }
            Filter::Last => {
                let [] = args.bind(name, [], 0)?;
                if let Kind::Iterator(_) = value.0 {
                    return type_error(format!("a value of type {} has no last item", value.type_name()));
                }
                let last = self.iterate(&value)?.pop();
                last.unwrap_or_else(|| undefined("there is no last item, the sequence is empty"))
            }
            Filter::Reverse => {
                let [] = args.bind(name, [], 0)?;
                if let Kind::Str(text) = &value.0 {
                    self.budget.make_items(text.len())?;
                    let mut out = TextBuilder::default();
                    for (at, c) in text.as_str().char_indices().rev() {
                        out.push_text(&text.slice(at..at + c.len_utf8()));
                    }
                    return Ok(out.finish().into());
                }
                let mut items = self.iterate(&value)?;
                items.reverse();
                if let Kind::Iterator(_) = value.0 {
                    return self.new_list(items, false);
                }
                Value::iterator(items)
            }
            Filter::Map => self.map(&value, args)?,
            Filter::Select | Filter::Reject | Filter::Selectattr | Filter::Rejectattr => {
                self.select(filter, &value, args)?
            }
            Filter::Attr => {
                let attribute = required_text(name, Some(args.one(name, "name")?))?;
                // The keys of a mapping are not attributes.
                if let Kind::Map(_) | Kind::List(_) | Kind::Str(_) = value.0
                    && let Attribute::None = attribute_kind(&value, attribute.as_str())
                {
                    return Ok(undefined("there is no such attribute"));
                }
                self.attribute(&value, &attribute.as_str().into())?
            }
            Filter::Int => {
                let [default, base] = args.bind(name, ["default", "base"], 0)?;
                let base = optional_int(name, base)?.unwrap_or(10);
                self.read_number(&value)?;
                match to_int(&value, base)? {
                    Some(value) => value,
                    None => default.unwrap_or_else(|| 0.into()),
                }
            }
            Filter::Float => {
                let [default] = args.bind(name, ["default"], 0)?;
                self.read_number(&value)?;
                match to_float(&value)? {
                    Some(value) => value.into(),
                    None => default.unwrap_or_else(|| 0.0.into()),
                }
            }
            Filter::Abs => {
                let [] = args.bind(name, [], 0)?;
                match number(&value) {
                    Some(Number::Int(int)) => match int.checked_abs() {
                        Some(int) => int.into(),
                        None => return overflow(),
                    },
                    Some(Number::Float(float)) => float.abs().into(),
                    None => return self.bad_operand(name, &value),
                }
            }
            Filter::Round => self.round(&value, args)?,
            Filter::Sum => {
                let [attribute, start] = args.bind(name, ["attribute", "start"], 0)?;
                let getter = self.getter(attribute, None, false)?;
                let mut sum = start.unwrap_or_else(|| 0.into());
                if let Kind::Str(_) = sum.0 {
                    return type_error("`sum` does not add strings, use `join`");
                }
                for item in self.iterate(&value)? {
                    let item = self.get(&getter, &item)?;
                    sum = self.binary(BinaryOp::Add, sum, item)?;
                }
                sum
            }
            Filter::Min | Filter::Max => {
                let [case_sensitive, attribute] = args.bind(name, ["case_sensitive", "attribute"], 0)?;
                let getter = self.getter(attribute, None, !self.flag(case_sensitive)?)?;
                let mut best: Option<(Value, Value)> = None;
                for item in self.iterate(&value)? {
                    let key = self.get(&getter, &item)?;
                    let better = match &best {
                        None => true,
                        Some((best, _)) if filter == Filter::Min => {
                            self.compare(CompareOp::Lt, &key, best)?
                        }
                        Some((best, _)) => self.compare(CompareOp::Gt, &key, best)?,
                    };
                    if better {
                        best = Some((key, item));
                    }
                }
                best.map_or_else(|| undefined("the sequence is empty"), |(_, item)| item)
            }
            Filter::Sort => {
                let [reverse, case_sensitive, attribute] =
                    args.bind(name, ["reverse", "case_sensitive", "attribute"], 0)?;
                let reverse = self.flag(reverse)?;
                let fold_case = !self.flag(case_sensitive)?;
                let attributes: Vec<Option<Value>> = match attribute.as_ref().and_then(Value::as_str) {
                    Some(names) => {
                        self.budget.make_items(names.len())?;
                        names.split(',').map(|name| Some(Value::str(name, TEMPLATE))).collect()
                    }
                    None => vec![attribute],
                };
                let getters = attributes.into_iter().map(|attribute| self.getter(attribute, None, fold_case));
                let getters = getters.collect::<Result<Vec<_>>>()?;
                let mut items = Vec::new();
                for item in self.iterate(&value)? {
                    self.budget.make_items(1 + getters.len())?;
                    let keys = getters.iter().map(|getter| self.get(getter, &item));
                    items.push((keys.collect::<Result<_>>()?, item));
                }
                let items = self.sorted(items, reverse, true)?;
                self.new_list(items.into_iter().map(|(_, item)| item).collect(), false)?
            }
            Filter::Dictsort => {
                let [case_sensitive, by, reverse] =
                    args.bind(name, ["case_sensitive", "by", "reverse"], 0)?;
                let by_value = match by.as_ref().map(Value::as_str) {
                    None | Some(Some("key")) => false,
                    Some(Some("value")) => true,
                    _ => return error(ErrorKind::Value, "`dictsort` sorts by `key` or `value`"),
                };
                let getter = self.getter(None, None, !self.flag(case_sensitive)?)?;
                let reverse = self.flag(reverse)?;
                let Kind::Map(map) = &value.0 else { return self.bad_operand(name, &value) };
                self.budget.make_entries(map.len())?;
                let mut items = Vec::with_capacity(map.len());
                for (key, entry) in &map.entries {
                    let by = self.get(&getter, if by_value { entry } else { key })?;
                    items.push((vec![by], Value::tuple(vec![key.clone(), entry.clone()])));
                }
                let items = self.sorted(items, reverse, false)?;
                let items = items.into_iter().map(|(_, item)| item).collect();
                Kind::List(Rc::new(List::new(items, map.source))).into()
            }
            Filter::Unique => {
                let [case_sensitive, attribute] = args.bind(name, ["case_sensitive", "attribute"], 0)?;
                let getter = self.getter(attribute, None, !self.flag(case_sensitive)?)?;
                let mut seen: Vec<Value> = Vec::new();
                let mut kept = Vec::new();
                for item in self.iterate(&value)? {
                    let key = self.get(&getter, &item)?;
                    hashable(&key, &mut self.budget)?;
                    if self.position(&seen, &key)?.is_none() {
                        seen.push(key);
                        kept.push(item);
                    }
                }
                Value::iterator(kept)
            }
            Filter::Groupby => {
                let [attribute, default, case_sensitive] =
                    args.bind(name, ["attribute", "default", "case_sensitive"], 1)?;
                let fold_case = !self.flag(case_sensitive)?;
                let getter = self.getter(attribute.clone(), default.clone(), fold_case)?;
                let plain = self.getter(attribute, default, false)?;
                let mut items = Vec::new();
                for item in self.iterate(&value)? {
                    self.budget.make_items(2)?;
                    items.push((vec![self.get(&getter, &item)?], item));
                }
                let mut groups: Vec<(Value, Value, Vec<Value>)> = Vec::new();
                for (key, item) in self.sorted(items, false, false)? {
                    let key = key.into_iter().next().unwrap_or_else(Value::none);
                    match groups.last_mut() {
                        Some((last, _, items)) if equal(last, &key, &mut self.budget)? => items.push(item),
                        _ => {
                            let shown = self.get(&plain, &item)?;
                            groups.push((key, shown, vec![item]));
                        }
                    }
                }
                let mut out = Vec::with_capacity(groups.len());
                for (_, key, items) in groups {
                    self.budget.make_entries(1)?;
                    let items = self.new_list(items, false)?;
                    let mut pair = List::new(vec![key, items], TEMPLATE);
                    pair.group = true;
                    out.push(Kind::Tuple(Rc::new(pair)).into());
                }
                self.new_list(out, false)?
            }
            Filter::Batch | Filter::Slice => {
                let [count, fill] = args.bind(name, ["count", "fill_with"], 1)?;
                let count = optional_int(name, count)?.unwrap_or(0);
                let fill = fill.filter(|fill| !fill.is_none());
                let items = self.iterate(&value)?;
                let count = usize::try_from(count).unwrap_or(0);
                if count == 0 {
                    return error(ErrorKind::Value, format!("`{name}` needs a number above zero"));
                }
                self.budget.make_items(count)?;
                let mut groups: Vec<Vec<Value>> = Vec::new();
                if filter == Filter::Batch {
                    groups.extend(items.chunks(count).map(<[Value]>::to_vec));
                    if let (Some(last), Some(fill)) = (groups.last_mut(), &fill) {
                        while last.len() < count {
                            last.push(fill.clone());
                        }
                    }
                } else {
                    let (size, extra) = (items.len() / count, items.len() % count);
                    let mut start = 0;
                    for at in 0..count {
                        let end = start + size + usize::from(at < extra);
                        let mut group = items[start..end].to_vec();
                        if let Some(fill) = fill.as_ref().filter(|_| at >= extra) {
                            group.push(fill.clone());
                        }
                        groups.push(group);
                        start = end;
                    }
                }
                let lists = groups.into_iter().map(|group| self.new_list(group, false));
                Value::iterator(lists.collect::<Result<_>>()?)
            }
            Filter::Format => {
                let text = self.text_of(&value)?;
                let values = if args.keyword.is_empty() {
                    self.new_list(args.positional, true)?
                } else if args.positional.is_empty() {
                    let mut map = crate::value::Map::new();
                    self.budget.make_entries(args.keyword.len())?;
                    for (name, value) in args.keyword {
                        map.insert_text(Text::new(name, TEMPLATE), value);
                    }
                    self.new_map(map)?
                } else {
                    return type_error("`format` takes positional or keyword arguments, not both");
                };
                self.percent_format(&text, &values)?
            }
            Filter::Center => {
                let [width] = args.bind(name, ["width"], 0)?;
                let text: Value = self.text_of(&value)?.into();
                let args =
                    CallArgs { positional: vec![width.unwrap_or_else(|| 80.into())], keyword: Vec::new() };
                self.call_method(&text, &"center".into(), args)?
            }
            Filter::Indent => {
                let [width, first, blank] = args.bind(name, ["width", "first", "blank"], 0)?;
                self.indent(&value, width, first, blank)?
            }
            Filter::Truncate => {
                let [length, killwords, end, leeway] =
                    args.bind(name, ["length", "killwords", "end", "leeway"], 0)?;
                let length = optional_int(name, length)?.unwrap_or(255);
                let end = optional_text(name, end)?.unwrap_or_else(|| "...".into());
                self.budget.read(end.len())?;
                let leeway = optional_int(name, leeway.filter(|leeway| !leeway.is_none()))?.unwrap_or(5);
                let keep = length - i64::try_from(end.chars()).unwrap_or(i64::MAX);
                if keep < 0 || leeway < 0 {
                    return error(ErrorKind::Value, "`truncate` needs a length of at least that of its end");
                }
                // Anything that is short enough stays as it is.
                if as_int(&self.length(&value)?).is_some_and(|count| count <= length.saturating_add(leeway)) {
                    return Ok(value);
                }
                let Kind::Str(text) = &value.0 else { return self.bad_operand(name, &value) };
                let keep = usize::try_from(keep).unwrap_or(0);
                let cut = text.as_str().char_indices().nth(keep).map_or(text.len(), |(at, _)| at);
                let mut kept = text.slice(0..cut);
                if !self.flag(killwords)?
                    && let Some(space) = kept.as_str().rfind(' ')
                {
                    kept = kept.slice(0..space);
                }
                self.budget.make_text(&kept)?;
                self.budget.make_text(&end)?;
                let mut out = TextBuilder::default();
                out.push_text(&kept);
                out.push_text(&end);
                out.finish().into()
            }
            Filter::Wordcount => {
                let [] = args.bind(name, [], 0)?;
                let text = self.text_of(&value)?;
                self.budget.charge(text.len() / 4)?;
                let is_word = |c: char| is_alphanumeric(c) || c == '_';
                Value::int(text.as_str().split(|c| !is_word(c)).filter(|word| !word.is_empty()).count())
            }
            Filter::Filesizeformat => {
                let [binary] = args.bind(name, ["binary"], 0)?;
                self.read_number(&value)?;
                let Some(bytes) = to_float(&value)? else { return self.bad_operand(name, &value) };
                Value::str(file_size(bytes, self.flag(binary)?), TEMPLATE)
            }
            Filter::Pprint
            | Filter::Random
            | Filter::Striptags
            | Filter::Urlencode
            | Filter::Urlize
            | Filter::Wordwrap
            | Filter::Xmlattr => return unsupported(format!("the filter `{name}` is not supported")),
        })
    }

    fn bad_operand<T>(&self, name: &str, value: &Value) -> Result<T> {
        match &value.0 {
            Kind::Undefined(missing) => error(ErrorKind::Undefined, missing.to_string()),
            Kind::Safe(_) => unsupported(format!("`{name}` after `safe` or `escape` is not supported")),
            _ => type_error(format!("`{name}` does not take a value of type {}", value.type_name())),
        }
    }

    /// Pays for reading a number from a text.
    fn read_number(&mut self, value: &Value) -> Result<()> {
        match &value.0 {
            Kind::Str(text) | Kind::Safe(text) => self.make_changed(text),
            _ => Ok(()),
        }
    }

    fn length(&mut self, value: &Value) -> Result<Value> {
        Ok(Value::int(match &value.0 {
            Kind::Str(text) | Kind::Safe(text) => {
                self.budget.read(text.len())?;
                text.chars()
            }
            Kind::List(list) | Kind::Tuple(list) => list.items.len(),
            Kind::Map(map) | Kind::View(_, map) => map.len(),
            Kind::Range(start, stop, step) => crate::value::range_len(*start, *stop, *step),
            Kind::Undefined(_) => 0,
            Kind::Loop(..) => return self.attribute(value, &"length".into()),
            _ => return type_error(format!("a value of type {} has no length", value.type_name())),
        }))
    }

    fn tojson(&mut self, value: &Value, args: CallArgs) -> Result<Value> {
        let [ascii, indent, separators, sort_keys] =
            args.bind("tojson", ["ensure_ascii", "indent", "separators", "sort_keys"], 0)?;
        let (ascii, sort_keys) = (self.flag(ascii)?, self.flag(sort_keys)?);
        let indent = match indent.as_ref().map(|indent| &indent.0) {
            None | Some(Kind::None(_)) => None,
            Some(Kind::Str(text)) if text.first_mark().source != TEMPLATE => {
                return unsupported("an `indent` from the chat is not supported");
            }
            Some(Kind::Str(text)) => {
                self.budget.make(text.len())?;
                Some(text.as_str().to_owned())
            }
            Some(_) => match indent.as_ref().and_then(as_int) {
                Some(width) => {
                    let width = usize::try_from(width).unwrap_or(0);
                    self.budget.make(width)?;
                    Some(" ".repeat(width))
                }
                None => return type_error("`indent` must be an integer or a string"),
            },
        };
        let separators = match separators.filter(|separators| !separators.is_none()) {
            Some(separators) => match &self.iterate(&separators)?[..] {
                [Value(Kind::Str(item)), Value(Kind::Str(key))] => (item.clone(), key.clone()),
                _ => return type_error("`separators` must be two strings"),
            },
            None => (if indent.is_some() { "," } else { ", " }.into(), ": ".into()),
        };
        if let Kind::Undefined(missing) = &value.0 {
            return error(ErrorKind::Undefined, format!("{missing}, and cannot be written as JSON"));
        }
        if [&separators.0, &separators.1].iter().any(|text| text.first_mark().source != TEMPLATE) {
            return unsupported("`separators` from the chat are not supported");
        }
        let style = JsonStyle { ascii, indent, sort_keys, separators };
        Ok(style.to_json(value, &mut self.budget)?.into())
    }

    fn map(&mut self, value: &Value, args: CallArgs) -> Result<Value> {
        let items =
            if self.truth(value)? { self.iterate(value)? } else { return Ok(Value::iterator(Vec::new())) };
        if args.positional.is_empty() && args.keyword.iter().any(|(name, _)| **name == *"attribute") {
            let [attribute, default] = args.bind("map", ["attribute", "default"], 0)?;
            let getter = self.getter(attribute, default, false)?;
            let found = items.iter().map(|item| self.get(&getter, item));
            return Ok(Value::iterator(found.collect::<Result<_>>()?));
        }
        let CallArgs { positional, keyword } = args;
        let mut positional = positional.into_iter();
        let Some(filter) = positional.next() else { return type_error("`map` needs the name of a filter") };
        let filter = match filter.as_str().map(|name| (name, Filter::named(name))) {
            Some((_, Some(filter))) => filter,
            Some((name, None)) => return error(ErrorKind::Unknown, format!("unknown filter `{name}`")),
            None => return type_error("`map` needs the name of a filter"),
        };
        let rest: Vec<Value> = positional.collect();
        let results = items.into_iter().map(|item| {
            self.budget.make_items(1 + rest.len() + keyword.len())?;
            let args = CallArgs { positional: rest.clone(), keyword: keyword.clone() };
            self.apply_filter(filter, item, args)
        });
        Ok(Value::iterator(results.collect::<Result<_>>()?))
    }

    fn select(&mut self, filter: Filter, value: &Value, args: CallArgs) -> Result<Value> {
        let items =
            if self.truth(value)? { self.iterate(value)? } else { return Ok(Value::iterator(Vec::new())) };
        let CallArgs { positional, keyword } = args;
        let mut positional = positional.into_iter();
        let getter = if let Filter::Selectattr | Filter::Rejectattr = filter {
            let Some(attribute) = positional.next() else {
                return type_error(format!("`{}` needs the name of an attribute", filter.name()));
            };
            Some(self.getter(Some(attribute), None, false)?)
        } else {
            None
        };
        let test = match positional.next() {
            None => None,
            Some(name) => match name.as_str().map(|name| (name, Test::named(name))) {
                Some((_, Some(test))) => Some(test),
                Some((name, None)) => return error(ErrorKind::Unknown, format!("unknown test `{name}`")),
                None => return type_error("the name of a test must be a string"),
            },
        };
        let rest: Vec<Value> = positional.collect();
        let keep = matches!(filter, Filter::Select | Filter::Selectattr);
        let mut out = Vec::new();
        for item in items {
            let tested = match &getter {
                Some(getter) => self.get(getter, &item)?,
                None => item.clone(),
            };
            self.budget.make_items(1 + rest.len() + keyword.len())?;
            let found = match test {
                Some(test) => self.call_test(
                    test,
                    &tested,
                    CallArgs { positional: rest.clone(), keyword: keyword.clone() },
                )?,
                None => self.truth(&tested)?,
            };
            if found == keep {
                out.push(item);
            }
        }
        Ok(Value::iterator(out))
    }

    fn round(&mut self, value: &Value, args: CallArgs) -> Result<Value> {
        let [precision, method] = args.bind("round", ["precision", "method"], 0)?;
        let precision = optional_int("round", precision)?.unwrap_or(0);
        let method = optional_text("round", method)?.unwrap_or_else(|| "common".into());
        let Some(found) = number(value) else { return self.bad_operand("round", value) };
        let float = found.to_f64();
        if !(-300..=300).contains(&precision) {
            return unsupported("`round` to so many digits is not supported");
        }
        let factor = 10f64.powi(i32::try_from(precision).unwrap_or(0));
        Ok(match method.as_str() {
            "common" => match found {
                // `round(int, 0)` is the integer itself.
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

    fn indent(
        &mut self,
        value: &Value,
        width: Option<Value>,
        first: Option<Value>,
        blank: Option<Value>,
    ) -> Result<Value> {
        let Kind::Str(text) = &value.0 else { return self.bad_operand("indent", value) };
        let indention: Text = match width.as_ref().map(|width| &width.0) {
            None => "    ".into(),
            Some(Kind::Str(text)) => text.clone(),
            Some(_) => {
                let width = optional_int("indent", width)?.unwrap_or(0);
                let width = usize::try_from(width).unwrap_or(0);
                self.budget.make(width)?;
                Text::new(" ".repeat(width), TEMPLATE)
            }
        };
        let (first, blank) = (self.flag(first)?, self.flag(blank)?);
        self.budget.make_text(text)?;
        self.budget.make_text(text)?;
        let mut whole = TextBuilder::default();
        whole.push_text(text);
        whole.push("\n", Mark::TEMPLATE);
        let lines = split_lines(&whole.finish(), false, &mut self.budget)?;
        let mut out = TextBuilder::default();
        if first {
            out.push_text(&indention);
        }
        for (at, line) in lines.iter().enumerate() {
            self.budget.make_text(&indention)?;
            self.budget.make_text(line)?;
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

    pub(crate) fn call_test(&mut self, test: Test, value: &Value, args: CallArgs) -> Result<bool> {
        let name = test.name();
        self.budget.charge(1)?;
        let compare = match test {
            Test::Equal => Some(CompareOp::Eq),
            Test::NotEqual => Some(CompareOp::Ne),
            Test::Less => Some(CompareOp::Lt),
            Test::LessEqual => Some(CompareOp::Le),
            Test::Greater => Some(CompareOp::Gt),
            Test::GreaterEqual => Some(CompareOp::Ge),
            Test::In => Some(CompareOp::In),
            _ => None,
        };
        if let Some(operator) = compare {
            return self.compare(operator, value, &args.one(name, "other")?);
        }
        match test {
            Test::Sameas => {
                let other = args.one(name, "other")?;
                return match (&value.0, &other.0) {
                    (Kind::None(_), Kind::None(_)) => Ok(true),
                    (Kind::Bool(a, _), Kind::Bool(b, _)) => Ok(a == b),
                    (Kind::Map(a), Kind::Map(b)) => Ok(Rc::ptr_eq(a, b)),
                    (Kind::List(a), Kind::List(b)) => Ok(Rc::ptr_eq(a, b)),
                    (a, b) if std::mem::discriminant(a) != std::mem::discriminant(b) => Ok(false),
                    _ => unsupported(format!(
                        "`sameas` for values of type {} is not supported",
                        value.type_name()
                    )),
                };
            }
            Test::Divisibleby => {
                let other = args.one(name, "other")?;
                let rest = self.binary(BinaryOp::Rem, value.clone(), other)?;
                return equal(&rest, &0.into(), &mut self.budget);
            }
            _ => {}
        }
        let [] = args.bind(name, [], 0)?;
        if let Some(found) = is_of_type(test, value) {
            return Ok(found);
        }
        Ok(match test {
            Test::Lower | Test::Upper => {
                let text = self.printed(value)?;
                self.budget.charge(text.len() / 4)?;
                if test == Test::Lower { is_lower(text.as_str()) } else { is_upper(text.as_str()) }
            }
            Test::Odd | Test::Even => {
                let rest = self.binary(BinaryOp::Rem, value.clone(), 2.into())?;
                equal(&rest, &i64::from(test == Test::Odd).into(), &mut self.budget)?
            }
            Test::KnownFilter => value.as_str().is_some_and(|name| Filter::named(name).is_some()),
            Test::KnownName => value.as_str().is_some_and(|name| Test::named(name).is_some()),
            _ => return unsupported(format!("the test `{name}` is not supported")),
        })
    }
}

/// The result of a test that depends only on the type of a value, or on a constant; `None` for another test.
pub(crate) fn is_of_type(test: Test, value: &Value) -> Option<bool> {
    Some(match test {
        Test::Defined => !matches!(value.0, Kind::Undefined(_)),
        Test::Undefined => matches!(value.0, Kind::Undefined(_)),
        Test::None => value.is_none(),
        Test::Boolean => matches!(value.0, Kind::Bool(..)),
        Test::True => value.as_bool() == Some(true),
        Test::False => value.as_bool() == Some(false),
        Test::Integer => matches!(value.0, Kind::Int(..) | Kind::Big(..)),
        Test::Float => matches!(value.0, Kind::Float(..)),
        Test::Number => {
            matches!(value.0, Kind::Int(..) | Kind::Big(..) | Kind::Float(..) | Kind::Bool(..))
        }
        Test::String => matches!(value.0, Kind::Str(_) | Kind::Safe(_)),
        Test::Mapping => matches!(value.0, Kind::Map(_)),
        Test::Sequence => is_sequence(value),
        Test::Iterable => {
            is_sequence(value) || matches!(value.0, Kind::View(..) | Kind::Iterator(_) | Kind::Loop(..))
        }
        // An undefined value has a method `__call__`, which raises.
        Test::Callable => matches!(
            value.0,
            Kind::Macro(_) | Kind::Function(_) | Kind::Method(_) | Kind::Loop(..) | Kind::Undefined(_)
        ),
        Test::Escaped => matches!(value.0, Kind::Safe(_)),
        _ => return None,
    })
}

fn is_sequence(value: &Value) -> bool {
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

/// Words start with upper case, and end at spaces, hyphens and opening brackets.
fn title(text: &Text) -> Text {
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

/// `int()` of a string: digits with single underscores between them, and spaces around.
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
        Err(_) if radix == 10 => {
            let digits = digits.trim_start_matches('0');
            let text: Arc<str> = format!("{}{digits}", if negative { "-" } else { "" }).into();
            Ok(Some(Kind::Big(text, TEMPLATE).into()))
        }
        Err(_) => overflow(),
    }
}

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

fn to_float(value: &Value) -> Result<Option<f64>> {
    Ok(match &value.0 {
        Kind::Str(text) | Kind::Safe(text) => parse_float(text.as_str()),
        Kind::Undefined(missing) => return error(ErrorKind::Undefined, missing.to_string()),
        Kind::Big(digits, _) => digits.parse().ok(),
        _ => number(value).map(Number::to_f64),
    })
}

fn to_int(value: &Value, base: i64) -> Result<Option<Value>> {
    let truncate = |float: f64| -> Result<Option<Value>> {
        if !float.is_finite() {
            return Ok(None);
        }
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
