//! `Runtime`: what the values of a template need while it is rendered. It knows nothing of the syntax tree, so that operators,
//! methods and filters do not depend on the evaluator, which runs them.
//!
//! `item` and `attribute` are the heart of a template: `message["role"]` and `message.role` both find the key of a
//! mapping and the attribute of an object, in a different order, and return an undefined value if there is neither. An
//! undefined value is false and empty, can be printed, looped over, compared with `==` and tested with `is defined`,
//! and is an error in all other uses (`jinja2.Undefined`).

use std::rc::Rc;
use std::sync::Arc;

use crate::args::CallArgs;
use crate::attributes::{Attribute, attribute_kind};
use crate::budget::Budget;
use crate::error::{ErrorKind, Result, error, type_error, unsupported};
use crate::slices::{char_at, position};
use crate::value::{
    Kind, List, Map, Missing, TEMPLATE, Text, Value, View, equal, hashable, range_len, view_items,
};

/// A namespace with more attributes is refused: they are searched one by one.
pub(crate) const MAX_ATTRIBUTES: usize = 256;

/// What a loop runs over.
/// Lists and ranges are not copied: most templates loop over the messages, and some over `range(messages|length)`.
pub(crate) enum Items {
    List(Rc<List>),
    Owned(Vec<Value>),
    Range(i64, i64, i64),
}

impl Items {
    pub(crate) fn len(&self) -> usize {
        match self {
            Items::List(list) => list.items.len(),
            Items::Owned(items) => items.len(),
            Items::Range(start, stop, step) => range_len(*start, *stop, *step),
        }
    }

    pub(crate) fn get(&self, at: usize) -> Option<Value> {
        match self {
            Items::List(list) => list.items.get(at).cloned(),
            Items::Owned(items) => items.get(at).cloned(),
            Items::Range(start, _, step) => {
                (at < self.len()).then(|| (start + step * i64::try_from(at).unwrap_or(0)).into())
            }
        }
    }
}

/// A loop that runs.
pub(crate) struct LoopState {
    /// Unique in a rendering, also among loops that have ended.
    pub(crate) serial: u64,
    pub(crate) items: Items,
    pub(crate) index: usize,
    /// How many times a recursive loop has called itself.
    pub(crate) depth: usize,
    /// The arguments of the last call of `loop.changed`.
    pub(crate) changed: Option<Vec<Value>>,
}

/// The budget of a rendering, and what values refer to by number.
pub(crate) struct Runtime {
    pub(crate) budget: Budget,
    /// The time that `strftime_now` writes.
    pub(crate) now: Option<i64>,
    /// Attributes in the order in which they were set. A namespace is shared by everything that refers to it, so a
    /// value is its number.
    pub(crate) namespaces: Vec<Vec<(Arc<str>, Value)>>,
    /// The names of the macros.
    pub(crate) macros: Vec<Arc<str>>,
    /// The loops that run, each inside of the one before it.
    pub(crate) loops: Vec<LoopState>,
}

impl Runtime {
    pub(crate) fn new(budget: Budget, now: Option<i64>) -> Runtime {
        Runtime { budget, now, namespaces: Vec::new(), macros: Vec::new(), loops: Vec::new() }
    }

    /// The items of something that can be iterated over. An iterator is empty afterwards.
    pub(crate) fn iterate(&mut self, value: &Value) -> Result<Vec<Value>> {
        self.budget.make_items(match &value.0 {
            Kind::List(list) | Kind::Tuple(list) => list.items.len(),
            Kind::Map(map) => map.len(),
            Kind::View(View::Items, map) => map.len().saturating_mul(4),
            Kind::View(_, map) => map.len(),
            Kind::Str(text) | Kind::Safe(text) => text.len(),
            Kind::Range(start, stop, step) => range_len(*start, *stop, *step),
            // The items are there already.
            _ => 0,
        })?;
        Ok(match &value.0 {
            Kind::List(list) | Kind::Tuple(list) => list.items.clone(),
            Kind::Map(map) => view_items(View::Keys, map),
            Kind::View(view, map) => view_items(*view, map),
            Kind::Iterator(items) => std::mem::take(&mut *items.items.borrow_mut()).collect(),
            // `Undefined.__iter__`: a loop over an undefined value has no iterations.
            Kind::Undefined(_) => Vec::new(),
            Kind::Str(text) | Kind::Safe(text) => {
                let chars = text.as_str().char_indices();
                chars.map(|(at, c)| text.slice(at..at + c.len_utf8()).into()).collect()
            }
            Kind::Range(start, stop, step) => {
                let items = Items::Range(*start, *stop, *step);
                (0..items.len()).filter_map(|at| items.get(at)).collect()
            }
            Kind::Loop(..) => return unsupported("a loop over a loop object is not supported"),
            _ => return type_error(format!("a value of type {} cannot be iterated over", value.type_name())),
        })
    }

    /// Whether a condition with this value is true.
    pub(crate) fn truth(&self, value: &Value) -> Result<bool> {
        Ok(match &value.0 {
            Kind::Undefined(_) | Kind::None(_) => false,
            Kind::Bool(value, _) => *value,
            Kind::Int(value, _) => *value != 0,
            Kind::Float(value, _) => *value != 0.0,
            Kind::Str(text) | Kind::Safe(text) => !text.is_empty(),
            Kind::List(list) | Kind::Tuple(list) => !list.items.is_empty(),
            Kind::Map(map) | Kind::View(_, map) => !map.is_empty(),
            Kind::Range(start, stop, step) => range_len(*start, *stop, *step) > 0,
            // `LoopContext.__len__`.
            Kind::Loop(at, serial) => self.loop_state(*at, *serial)?.items.len() > 0,
            _ => true,
        })
    }

    /// `str()`, as in an output.
    pub(crate) fn printed(&mut self, value: &Value) -> Result<Text> {
        value.to_text(&mut self.budget)
    }

    /// A list of items that are paid for.
    pub(crate) fn new_list(&mut self, items: Vec<Value>, tuple: bool) -> Result<Value> {
        let list = List::new(items, TEMPLATE);
        check_depth(list.depth)?;
        let list = Rc::new(list);
        Ok(if tuple { Kind::Tuple(list) } else { Kind::List(list) }.into())
    }

    /// A mapping whose keys are paid for.
    pub(crate) fn new_map(&mut self, map: Map) -> Result<Value> {
        check_depth(map.depth)?;
        Ok(map.into())
    }

    /// Sets a key that Python could hash.
    pub(crate) fn insert(&mut self, map: &mut Map, key: Value, value: Value) -> Result<()> {
        hashable(&key, &mut self.budget)?;
        map.insert_value(key, value, &mut self.budget)
    }

    /// `object[key]`. Like Jinja2, it looks for an attribute where there is no such element.
    pub(crate) fn item(&mut self, object: &Value, key: &Value) -> Result<Value> {
        // `Environment.getitem`: `object[key]`, then `getattr(object, str(key))`.
        let found = match &object.0 {
            Kind::Undefined(missing) => return error(ErrorKind::Undefined, missing.to_string()),
            Kind::Map(map) => map.get_value(key, &mut self.budget)?.cloned(),
            Kind::List(list) | Kind::Tuple(list) => {
                position(key, list.items.len()).and_then(|at| list.items.get(at)).cloned()
            }
            Kind::Str(text) => {
                self.budget.read(text.len())?;
                char_at(text, key).map(Value::from)
            }
            Kind::Range(start, stop, step) => {
                let items = Items::Range(*start, *stop, *step);
                position(key, items.len()).and_then(|at| items.get(at))
            }
            _ => None,
        };
        if let Some(found) = found {
            return Ok(found);
        }
        self.budget.make(key.as_text().map_or(0, Text::len).saturating_mul(2))?;
        if let Some(name) = key.as_str()
            && let Some(value) = self.own_attribute(object, &name.into())?
        {
            return Ok(value);
        }
        // Undefined, not an error: `message["tool_calls"]` can be tested.
        let missing = match key.as_str() {
            Some(name) => Missing::Attribute(object.type_name(), name.into()),
            None => Missing::Element(object.type_name()),
        };
        Ok(Kind::Undefined(missing).into())
    }

    /// `object.name`. Like Jinja2, it looks for a key where there is no such attribute, so that `message.role` works.
    pub(crate) fn attribute(&mut self, object: &Value, name: &Arc<str>) -> Result<Value> {
        // `Undefined.__getattr__` raises: `message.function.name` is an error if there is no `function`, even inside of
        // `is defined`.
        if let Kind::Undefined(missing) = &object.0 {
            return error(ErrorKind::Undefined, missing.to_string());
        }
        if let Some(value) = self.own_attribute(object, name)? {
            return Ok(value);
        }
        if let Kind::Map(map) = &object.0
            && let Some(value) = map.get(name)
        {
            return Ok(value.clone());
        }
        Ok(Kind::Undefined(Missing::Attribute(object.type_name(), name.clone())).into())
    }

    /// An attribute in the sense of Python's `getattr`.
    pub(crate) fn own_attribute(&mut self, object: &Value, name: &Arc<str>) -> Result<Option<Value>> {
        Ok(match (&object.0, &**name) {
            (Kind::Namespace(at), _) => {
                let entries = self.namespaces.get(*at).map_or(&[][..], Vec::as_slice);
                self.budget.charge(entries.len() / 8)?;
                let mut entries = entries.iter();
                entries.find(|(known, _)| known == name).map(|(_, value)| value.clone())
            }
            (Kind::Loop(at, serial), _) => return self.loop_attribute(*at, *serial, name),
            (Kind::Macro(at), "name") => self.macros.get(*at).map(|name| Value::str(name.clone(), TEMPLATE)),
            // The items of `groupby`: see `_GroupTuple`.
            (Kind::Tuple(list), "grouper") if list.group => list.items.first().cloned(),
            (Kind::Tuple(list), "list") if list.group => list.items.get(1).cloned(),
            _ => match attribute_kind(object, name) {
                Attribute::None => None,
                // `unsafe_undefined`: an error only when it is used, for example called.
                Attribute::Unsafe => Some(undefined("access to this attribute is unsafe")),
                Attribute::Method => Some(Kind::Method(Rc::new((object.clone(), name.clone()))).into()),
            },
        })
    }

    /// The state of a loop by its position and number. A loop object that was stored outlives its loop, whose
    /// position another one may have.
    pub(crate) fn loop_state(&self, at: usize, serial: u64) -> Result<&LoopState> {
        match self.loops.get(at) {
            Some(state) if state.serial == serial => Ok(state),
            _ => unsupported("a loop object is used after its loop"),
        }
    }

    /// The attributes of `loop`.
    pub(crate) fn loop_attribute(
        &mut self,
        at: usize,
        serial: u64,
        name: &Arc<str>,
    ) -> Result<Option<Value>> {
        let state = self.loop_state(at, serial)?;
        let (index, length) = (state.index, state.items.len());
        Ok(Some(match &**name {
            "index" => Value::int(index + 1),
            "index0" => Value::int(index),
            // Counted from the end.
            "revindex" => Value::int(length - index),
            "revindex0" => Value::int(length - index - 1),
            "first" => (index == 0).into(),
            "last" => (index + 1 == length).into(),
            "length" => Value::int(length),
            "depth" => Value::int(state.depth + 1),
            "depth0" => Value::int(state.depth),
            "previtem" => {
                let item = index.checked_sub(1).and_then(|at| state.items.get(at));
                item.unwrap_or_else(|| undefined("there is no previous item"))
            }
            "nextitem" => state.items.get(index + 1).unwrap_or_else(|| undefined("there is no next item")),
            "cycle" | "changed" => {
                Kind::Method(Rc::new((Kind::Loop(at, serial).into(), name.clone()))).into()
            }
            _ => return Ok(None),
        }))
    }

    /// `loop.cycle` and `loop.changed`.
    pub(crate) fn call_loop_method(
        &mut self,
        at: usize,
        serial: u64,
        name: &str,
        args: CallArgs,
    ) -> Result<Value> {
        self.loop_state(at, serial)?;
        let state = &mut self.loops[at];
        if name == "cycle" {
            let count = args.positional.len();
            if count == 0 {
                return type_error("`loop.cycle` needs arguments");
            }
            return Ok(args.positional[state.index % count].clone());
        }
        // `LoopContext.changed`: whether the arguments differ from those of the last call.
        let mut same = state.changed.as_ref().is_some_and(|last| last.len() == args.positional.len());
        for (a, b) in state.changed.iter().flatten().zip(&args.positional) {
            same = same && equal(a, b, &mut self.budget)?;
        }
        if !same {
            state.changed = Some(args.positional);
        }
        Ok((!same).into())
    }

    /// The items of something that can be iterated over.
    pub(crate) fn items(&mut self, value: &Value) -> Result<Items> {
        Ok(match &value.0 {
            Kind::List(list) | Kind::Tuple(list) => Items::List(list.clone()),
            Kind::Range(start, stop, step) => Items::Range(*start, *stop, *step),
            _ => Items::Owned(self.iterate(value)?),
        })
    }

    pub(crate) fn repr(&mut self, value: &Value) -> Result<Text> {
        value.repr(&mut self.budget)
    }

    /// Sets an attribute of a namespace.
    pub(crate) fn set_attribute(&mut self, namespace: usize, name: &Arc<str>, value: Value) -> Result<()> {
        let Some(entries) = self.namespaces.get_mut(namespace) else { return Ok(()) };
        self.budget.charge(entries.len() / 8)?;
        let is_full = entries.len() == MAX_ATTRIBUTES;
        match entries.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value,
            None if is_full => return too_many_attributes(),
            None => entries.push((name.clone(), value)),
        }
        Ok(())
    }

    /// A namespace with attributes, of which there may be [`MAX_ATTRIBUTES`].
    pub(crate) fn new_namespace(&mut self, map: Map) -> Result<Value> {
        check_depth(map.depth)?;
        if map.len() > MAX_ATTRIBUTES {
            return too_many_attributes();
        }
        let mut entries = Vec::with_capacity(map.len());
        for (name, value) in map.entries {
            let Some(name) = name.as_str() else {
                return unsupported("names in a namespace must be strings");
            };
            if name.starts_with('_') {
                return type_error(format!("the attribute `{name}` of a namespace starts with `_`"));
            }
            entries.push((name.into(), value));
        }
        self.namespaces.push(entries);
        Ok(Kind::Namespace(self.namespaces.len() - 1).into())
    }
}

/// An undefined value, with the reason that an error names.
pub(crate) fn undefined(hint: &'static str) -> Value {
    Kind::Undefined(Missing::Hint(hint)).into()
}

/// Refuses deeply nested values, which would overflow the stack where they are compared, printed or dropped.
pub(crate) fn check_depth(depth: u16) -> Result<()> {
    if depth > crate::value::MAX_DEPTH {
        return error(ErrorKind::Limit, "lists and mappings are nested too deeply");
    }
    Ok(())
}

/// Attributes are searched one by one, so their number is limited.
pub(crate) fn too_many_attributes<T>() -> Result<T> {
    error(ErrorKind::Limit, format!("a namespace with more than {MAX_ATTRIBUTES} attributes"))
}
