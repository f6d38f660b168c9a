//! Filters of sequences and mappings.

use std::cmp::Ordering;
use std::rc::Rc;

use crate::args::{Bound, optional_int, required_text};
use crate::attributes::{Attribute, attribute_kind};
use crate::error::{ErrorKind, Result, error, type_error};
use crate::operators::{BinaryOp, CompareOp};
use crate::runtime::{Runtime, undefined};
use crate::value::{
    Kind, List, TEMPLATE, TextBuilder, Value, View, equal, hashable, order, range_len, sort, view_items,
};

/// `attribute` of `map`, `sort` and others: names and numbers, separated by dots.
pub(super) struct Getter {
    parts: Vec<Value>,
    default: Option<Value>,
    fold_case: bool,
}

impl Runtime {
    /// `make_attrgetter`: `attribute="function.name"` is a path, and a number in it is an index. `fold_case` is
    /// `ignore_case`, which changes strings only.
    pub(super) fn getter(
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

    /// Reads the path in an item. An item without it is undefined, or the default.
    pub(super) fn get(&mut self, getter: &Getter, item: &Value) -> Result<Value> {
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
                        // `sorted()` of Python has no order for values of different types, such as a string and `None`.
                        type_error(format!("values of types {a} and {b} cannot be sorted"))
                    }
                };
            }
            Ok(Ordering::Equal)
        };
        sort(items, |(a, _), (b, _)| if reverse { compare(b, a) } else { compare(a, b) })
    }

    /// The number of characters, items or keys.
    pub(super) fn length(&mut self, value: &Value) -> Result<Value> {
        Ok(Value::int(match &value.0 {
            Kind::Str(text) | Kind::Safe(text) => {
                self.budget.read(text.len())?;
                text.chars()
            }
            Kind::List(list) | Kind::Tuple(list) => list.items.len(),
            Kind::Map(map) | Kind::View(_, map) => map.len(),
            Kind::Range(start, stop, step) => range_len(*start, *stop, *step),
            Kind::Undefined(_) => 0,
            Kind::Loop(..) => return self.attribute(value, &"length".into()),
            _ => return type_error(format!("a value of type {} has no length", value.type_name())),
        }))
    }
}

/// `len()`, which is also the filter `count`.
pub(super) fn length(runtime: &mut Runtime, value: Value, _: Bound) -> Result<Value> {
    runtime.length(&value)
}

/// Prints items with a separator between them.
/// `sync_do_join`: items are printed, so that numbers can be joined; `str.join` refuses them.
pub(super) fn join(runtime: &mut Runtime, value: Value, [separator, attribute, ..]: Bound) -> Result<Value> {
    let separator = match separator {
        Some(separator) => runtime.printed(&separator)?,
        None => "".into(),
    };
    let getter = runtime.getter(attribute, None, false)?;
    let mut out = TextBuilder::default();
    for (at, item) in runtime.iterate(&value)?.iter().enumerate() {
        if at > 0 {
            runtime.budget.make_text(&separator)?;
            out.push_text(&separator);
        }
        let item = runtime.get(&getter, item)?;
        let item = runtime.printed(&item)?;
        runtime.budget.make_text(&item)?;
        out.push_text(&item);
    }
    Ok(out.finish().into())
}

/// The items as a list, which belongs to the chat if the value does.
/// `sync_do_list`. A list of a string has its characters.
pub(super) fn list(runtime: &mut Runtime, value: Value, _: Bound) -> Result<Value> {
    let items = runtime.iterate(&value)?;
    Ok(Kind::List(Rc::new(List::new(items, value.source()))).into())
}

/// The pairs of a mapping.
/// `do_items`: `{% for key, value in arguments|items %}`, which also takes an undefined value.
pub(super) fn items(runtime: &mut Runtime, value: Value, _: Bound) -> Result<Value> {
    Ok(match &value.0 {
        Kind::Undefined(_) => Value::iterator(Vec::new()),
        Kind::Map(map) => {
            runtime.budget.make_entries(map.len())?;
            Value::iterator(view_items(View::Items, map))
        }
        _ => return type_error("`items` needs a mapping"),
    })
}

/// The first item, without reading the others of a list.
/// `sync_do_first`. An iterator loses the item that is read.
pub(super) fn first(runtime: &mut Runtime, value: Value, _: Bound) -> Result<Value> {
    let first = match &value.0 {
        Kind::List(list) | Kind::Tuple(list) => list.items.first().cloned(),
        Kind::Iterator(items) => items.items.borrow_mut().next(),
        _ => runtime.iterate(&value)?.into_iter().next(),
    };
    Ok(first.unwrap_or_else(|| undefined("there is no first item, the sequence is empty")))
}

/// The last item.
/// `do_last`: needs `reversed()`, which an iterator does not have.
pub(super) fn last(runtime: &mut Runtime, value: Value, _: Bound) -> Result<Value> {
    if let Kind::Iterator(_) = value.0 {
        return type_error(format!("a value of type {} has no last item", value.type_name()));
    }
    let last = runtime.iterate(&value)?.pop();
    Ok(last.unwrap_or_else(|| undefined("there is no last item, the sequence is empty")))
}

/// A string backwards, or an iterator over the items.
/// `do_reverse`.
pub(super) fn reverse(runtime: &mut Runtime, value: Value, _: Bound) -> Result<Value> {
    if let Kind::Str(text) = &value.0 {
        runtime.budget.make_items(text.len())?;
        let mut out = TextBuilder::default();
        for (at, c) in text.as_str().char_indices().rev() {
            out.push_text(&text.slice(at..at + c.len_utf8()));
        }
        return Ok(out.finish().into());
    }
    let mut items = runtime.iterate(&value)?;
    items.reverse();
    if let Kind::Iterator(_) = value.0 {
        return runtime.new_list(items, false);
    }
    Ok(Value::iterator(items))
}

/// An attribute, where `.` would also find a key.
/// `do_attr`. For a message, `message|attr("role")` is therefore undefined.
pub(super) fn attr(runtime: &mut Runtime, value: Value, [attribute, ..]: Bound) -> Result<Value> {
    let attribute = required_text("attr", attribute)?;
    // The keys of a mapping are not attributes.
    if let Kind::Map(_) | Kind::List(_) | Kind::Str(_) = value.0
        && let Attribute::None = attribute_kind(&value, attribute.as_str())
    {
        return Ok(undefined("there is no such attribute"));
    }
    runtime.attribute(&value, &attribute.as_str().into())
}

/// Sorts by one or more attributes, which commas separate.
/// `do_sort`, with `make_multi_attrgetter`: `sort(attribute="a,b")`.
pub(super) fn sort_items(
    runtime: &mut Runtime,
    value: Value,
    [reverse, case_sensitive, attribute, ..]: Bound,
) -> Result<Value> {
    let reverse = runtime.flag(reverse)?;
    let fold_case = !runtime.flag(case_sensitive)?;
    let attributes: Vec<Option<Value>> = match attribute.as_ref().and_then(Value::as_str) {
        Some(names) => {
            runtime.budget.make_items(names.len())?;
            names.split(',').map(|name| Some(Value::str(name, TEMPLATE))).collect()
        }
        None => vec![attribute],
    };
    let getters = attributes.into_iter().map(|attribute| runtime.getter(attribute, None, fold_case));
    let getters = getters.collect::<Result<Vec<_>>>()?;
    let mut items = Vec::new();
    for item in runtime.iterate(&value)? {
        runtime.budget.make_items(1 + getters.len())?;
        let keys = getters.iter().map(|getter| runtime.get(getter, &item));
        items.push((keys.collect::<Result<_>>()?, item));
    }
    let items = runtime.sorted(items, reverse, true)?;
    runtime.new_list(items.into_iter().map(|(_, item)| item).collect(), false)
}

/// Pairs of keys and values in the order of either.
/// `do_dictsort`.
pub(super) fn dictsort(
    runtime: &mut Runtime,
    value: Value,
    [case_sensitive, by, reverse, ..]: Bound,
) -> Result<Value> {
    let by_value = match by.as_ref().map(Value::as_str) {
        None | Some(Some("key")) => false,
        Some(Some("value")) => true,
        _ => return error(ErrorKind::Value, "`dictsort` sorts by `key` or `value`"),
    };
    let getter = runtime.getter(None, None, !runtime.flag(case_sensitive)?)?;
    let reverse = runtime.flag(reverse)?;
    let Kind::Map(map) = &value.0 else { return runtime.bad_operand("dictsort", &value) };
    runtime.budget.make_entries(map.len())?;
    let mut items = Vec::with_capacity(map.len());
    for (key, entry) in &map.entries {
        let by = runtime.get(&getter, if by_value { entry } else { key })?;
        items.push((vec![by], Value::tuple(vec![key.clone(), entry.clone()])));
    }
    let items = runtime.sorted(items, reverse, false)?;
    let items = items.into_iter().map(|(_, item)| item).collect();
    Ok(Kind::List(Rc::new(List::new(items, map.source))).into())
}

/// The items whose keys have not occurred before. Keys are compared one by one, which the budget limits: a hash would
/// have to equal Python's.
/// `sync_do_unique`.
pub(super) fn unique(
    runtime: &mut Runtime,
    value: Value,
    [case_sensitive, attribute, ..]: Bound,
) -> Result<Value> {
    let getter = runtime.getter(attribute, None, !runtime.flag(case_sensitive)?)?;
    let mut seen: Vec<Value> = Vec::new();
    let mut kept = Vec::new();
    for item in runtime.iterate(&value)? {
        let key = runtime.get(&getter, &item)?;
        hashable(&key, &mut runtime.budget)?;
        if runtime.position(&seen, &key)?.is_none() {
            seen.push(key);
            kept.push(item);
        }
    }
    Ok(Value::iterator(kept))
}

/// Sorts by the attribute and joins equal neighbors. Without `case_sensitive`, keys are compared in lower case, and
/// that of the first item is shown.
/// `sync_do_groupby`.
pub(super) fn groupby(
    runtime: &mut Runtime,
    value: Value,
    [attribute, default, case_sensitive, ..]: Bound,
) -> Result<Value> {
    let fold_case = !runtime.flag(case_sensitive)?;
    let getter = runtime.getter(attribute.clone(), default.clone(), fold_case)?;
    let plain = runtime.getter(attribute, default, false)?;
    let mut items = Vec::new();
    for item in runtime.iterate(&value)? {
        runtime.budget.make_items(2)?;
        items.push((vec![runtime.get(&getter, &item)?], item));
    }
    let mut groups: Vec<(Value, Value, Vec<Value>)> = Vec::new();
    for (key, item) in runtime.sorted(items, false, false)? {
        let key = key.into_iter().next().unwrap_or_else(Value::none);
        match groups.last_mut() {
            Some((last, _, items)) if equal(last, &key, &mut runtime.budget)? => items.push(item),
            _ => {
                let shown = runtime.get(&plain, &item)?;
                groups.push((key, shown, vec![item]));
            }
        }
    }
    let mut out = Vec::with_capacity(groups.len());
    for (_, key, items) in groups {
        runtime.budget.make_entries(1)?;
        let items = runtime.new_list(items, false)?;
        let mut pair = List::new(vec![key, items], TEMPLATE);
        // `_GroupTuple`: a tuple whose items also have names, `grouper` and `list`.
        pair.group = true;
        out.push(Kind::Tuple(Rc::new(pair)).into());
    }
    runtime.new_list(out, false)
}

/// Adds items. Strings are refused, as in Python.
/// `sync_do_sum`.
pub(super) fn sum(runtime: &mut Runtime, value: Value, [attribute, start, ..]: Bound) -> Result<Value> {
    let getter = runtime.getter(attribute, None, false)?;
    let mut sum = start.unwrap_or_else(|| 0.into());
    if let Kind::Str(_) = sum.0 {
        return type_error("`sum` does not add strings, use `join`");
    }
    for item in runtime.iterate(&value)? {
        let item = runtime.get(&getter, &item)?;
        sum = runtime.binary(BinaryOp::Add, sum, item)?;
    }
    Ok(sum)
}

/// `do_min`. Of equal items, the first one is returned, as by `min()` of Python.
pub(super) fn min(runtime: &mut Runtime, value: Value, arguments: Bound) -> Result<Value> {
    best(runtime, &value, CompareOp::Lt, arguments)
}

/// `do_max`.
pub(super) fn max(runtime: &mut Runtime, value: Value, arguments: Bound) -> Result<Value> {
    best(runtime, &value, CompareOp::Gt, arguments)
}

/// The first item whose key is in this order to those of all others.
fn best(
    runtime: &mut Runtime,
    value: &Value,
    order: CompareOp,
    [case_sensitive, attribute, ..]: Bound,
) -> Result<Value> {
    let fold_case = !runtime.flag(case_sensitive)?;
    let getter = runtime.getter(attribute, None, fold_case)?;
    let mut best: Option<(Value, Value)> = None;
    for item in runtime.iterate(value)? {
        let key = runtime.get(&getter, &item)?;
        let better = match &best {
            None => true,
            Some((best, _)) => runtime.compare(order, &key, best)?,
        };
        if better {
            best = Some((key, item));
        }
    }
    Ok(best.map_or_else(|| undefined("the sequence is empty"), |(_, item)| item))
}

/// The items of a sequence and the arguments of `batch` and `slice`: a number above zero, and what fills the last groups.
fn groups_of(
    runtime: &mut Runtime,
    name: &str,
    value: &Value,
    [count, fill, ..]: Bound,
) -> Result<(Vec<Value>, usize, Option<Value>)> {
    let count = optional_int(name, count)?.unwrap_or(0);
    let fill = fill.filter(|fill| !fill.is_none());
    let items = runtime.iterate(value)?;
    let count = usize::try_from(count).unwrap_or(0);
    if count == 0 {
        return error(ErrorKind::Value, format!("`{name}` needs a number above zero"));
    }
    runtime.budget.make_items(count)?;
    Ok((items, count, fill))
}

/// Jinja2 makes these in generators, which can be read once.
fn lists(runtime: &mut Runtime, groups: Vec<Vec<Value>>) -> Result<Value> {
    let lists = groups.into_iter().map(|group| runtime.new_list(group, false));
    Ok(Value::iterator(lists.collect::<Result<_>>()?))
}

/// Groups of a number of items.
/// `do_batch`: the last group is filled up if a value is given.
pub(super) fn batch(runtime: &mut Runtime, value: Value, arguments: Bound) -> Result<Value> {
    let (items, count, fill) = groups_of(runtime, "batch", &value, arguments)?;
    let mut groups: Vec<Vec<Value>> = items.chunks(count).map(<[Value]>::to_vec).collect();
    if let (Some(last), Some(fill)) = (groups.last_mut(), &fill) {
        while last.len() < count {
            last.push(fill.clone());
        }
    }
    lists(runtime, groups)
}

/// A number of groups.
/// `sync_do_slice`: the first groups are longer by one, and the others are filled up.
pub(super) fn slice(runtime: &mut Runtime, value: Value, arguments: Bound) -> Result<Value> {
    let (items, count, fill) = groups_of(runtime, "slice", &value, arguments)?;
    let (size, extra) = (items.len() / count, items.len() % count);
    let mut groups: Vec<Vec<Value>> = Vec::new();
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
    lists(runtime, groups)
}
