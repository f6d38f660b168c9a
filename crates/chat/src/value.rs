//! Values of a template: the types of Python that a chat template can see, with a mark on every character.

mod compare;
mod json;
mod map;
mod repr;
mod text;

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

pub(crate) use self::compare::{
    Number, as_int, compare_numbers, equal, equal_atoms, hashable, number, order, sort,
};
pub use self::json::JsonError;
pub(crate) use self::json::JsonStyle;
pub use self::map::Map;
use self::repr::repr;
pub(crate) use self::repr::{exponent, float_repr, is_printable};
pub(crate) use self::text::{FORM, Mark, NO_TURN, TextBuilder};
pub use self::text::{Source, TEMPLATE, Text};
use crate::budget::Budget;
use crate::error::Result;

/// Nested lists and objects deeper than this are refused, in the input as in the template.
pub(crate) const MAX_DEPTH: u16 = 200;

/// Why there is no value.
#[derive(Clone, Debug)]
pub(crate) enum Missing {
    Name(Arc<str>),
    /// The type, and the name of the attribute.
    Attribute(&'static str, Arc<str>),
    Element(&'static str),
    /// A sentence for the message.
    Hint(&'static str),
    Parameter(Arc<str>),
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missing::Name(name) => write!(f, "`{name}` is undefined"),
            Missing::Attribute(kind, name) => write!(f, "a value of type {kind} has no attribute `{name}`"),
            Missing::Element(kind) => write!(f, "a value of type {kind} has no such element"),
            Missing::Hint(hint) => f.write_str(hint),
            Missing::Parameter(name) => write!(f, "the parameter `{name}` was not given"),
        }
    }
}

/// A value of a template.
#[derive(Clone)]
pub struct Value(pub(crate) Kind);

/// Everything but text has one mark: the source of numbers and constants, lists and mappings. Containers are shared,
/// and copied when they are changed.
#[derive(Clone)]
pub(crate) enum Kind {
    /// `jinja2.Undefined`: false, empty and printed as nothing; other uses are errors.
    Undefined(Missing),
    None(Source),
    Bool(bool, Source),
    Int(i64, Source),
    /// An integer outside of 64 bits, as written. It can be printed and compared.
    Big(Arc<str>, Source),
    Float(f64, Source),
    Str(Text),
    /// `Markup`: can be printed; anything else is refused, since it would escape other strings.
    Safe(Text),
    List(Rc<List>),
    Tuple(Rc<List>),
    Map(Rc<Map>),
    /// Start, stop and step.
    Range(i64, i64, i64),
    /// `dict.keys()`, `dict.values()` and `dict.items()`.
    View(View, Rc<Map>),
    Iterator(Rc<ValueIterator>),
    /// The number of the namespace in the runtime, which all copies of the value share.
    Namespace(usize),
    /// The number of the macro in the evaluator, which has its code.
    Macro(usize),
    /// `loop`: the position of the loop among those that run, and its number.
    Loop(usize, u64),
    /// One of [`functions`](crate::functions).
    Function(&'static str),
    /// A method that a template stores instead of calling it at once.
    Method(Rc<(Value, Arc<str>)>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum View {
    Keys,
    Values,
    Items,
}

/// A generator of Python: its items can be read once.
pub(crate) struct ValueIterator {
    pub(crate) items: RefCell<std::vec::IntoIter<Value>>,
    depth: u16,
}

/// A list or a tuple.
pub(crate) struct List {
    pub(crate) items: Vec<Value>,
    pub(crate) source: Source,
    pub(crate) depth: u16,
    /// Whether this is the result of `groupby`, whose items have the attributes `grouper` and `list`.
    pub(crate) group: bool,
}

impl List {
    /// The depth is kept, so that testing it does not visit all items.
    pub(crate) fn new(items: Vec<Value>, source: Source) -> List {
        let depth = 1 + items.iter().map(Value::depth).max().unwrap_or(0);
        List { items, source, depth, group: false }
    }
}

impl From<Kind> for Value {
    fn from(kind: Kind) -> Value {
        Value(kind)
    }
}

impl From<Map> for Value {
    fn from(map: Map) -> Value {
        Value(Kind::Map(Rc::new(map)))
    }
}

impl From<Text> for Value {
    fn from(text: Text) -> Value {
        Value(Kind::Str(text))
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Value {
        Value(Kind::Bool(value, TEMPLATE))
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Value {
        Value(Kind::Int(value, TEMPLATE))
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Value {
        Value(Kind::Float(value, TEMPLATE))
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const STEPS: u64 = 1 << 16;
        match self.repr(&mut Budget::new(STEPS, STEPS)) {
            Ok(text) => f.write_str(text.as_str()),
            Err(_) => f.write_str(self.type_name()),
        }
    }
}

impl Value {
    /// `None`.
    pub fn none() -> Value {
        Value(Kind::None(TEMPLATE))
    }

    /// A string from one source.
    pub fn str(text: impl Into<Arc<str>>, source: Source) -> Value {
        Value(Kind::Str(Text::new(text, source)))
    }

    /// A list.
    pub fn list(items: Vec<Value>) -> Value {
        Value(Kind::List(Rc::new(List::new(items, TEMPLATE))))
    }

    /// A tuple, such as a pair of `items()`.
    pub(crate) fn tuple(items: Vec<Value>) -> Value {
        Value(Kind::Tuple(Rc::new(List::new(items, TEMPLATE))))
    }

    /// The result of a filter that is a generator in Jinja2. Its items exist already; only reading them is lazy.
    pub(crate) fn iterator(items: Vec<Value>) -> Value {
        let depth = items.iter().map(Value::depth).max().unwrap_or(0).saturating_add(1);
        Value(Kind::Iterator(Rc::new(ValueIterator { items: RefCell::new(items.into_iter()), depth })))
    }

    pub(crate) fn int(value: usize) -> Value {
        Value(Kind::Int(i64::try_from(value).unwrap_or(i64::MAX), TEMPLATE))
    }

    /// The characters of a string.
    pub fn as_str(&self) -> Option<&str> {
        self.as_text().map(Text::as_str)
    }

    /// A string.
    pub fn as_text(&self) -> Option<&Text> {
        match &self.0 {
            Kind::Str(text) => Some(text),
            _ => None,
        }
    }

    /// The truth value of a boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match &self.0 {
            Kind::Bool(value, _) => Some(*value),
            _ => None,
        }
    }

    /// A number, as far as a float can hold it.
    pub fn as_f64(&self) -> Option<f64> {
        match &self.0 {
            Kind::Int(value, _) => Some(*value as f64),
            Kind::Float(value, _) => Some(*value),
            Kind::Big(digits, _) => digits.parse().ok(),
            _ => None,
        }
    }

    /// Whether this is `None`, the `null` of JSON.
    pub fn is_none(&self) -> bool {
        matches!(self.0, Kind::None(_))
    }

    /// The items of a list.
    pub fn as_list(&self) -> Option<&[Value]> {
        match &self.0 {
            Kind::List(list) | Kind::Tuple(list) => Some(&list.items),
            _ => None,
        }
    }

    /// Changes the items of a list. Shared lists are copied first.
    pub fn update_list<T>(&mut self, change: impl FnOnce(&mut Vec<Value>) -> T) -> Option<T> {
        let Kind::List(list) = &mut self.0 else { return None };
        let source = list.source;
        let mut items = match Rc::get_mut(list) {
            Some(list) => std::mem::take(&mut list.items),
            None => list.items.clone(),
        };
        let result = change(&mut items);
        *list = Rc::new(List::new(items, source));
        Some(result)
    }

    /// An object.
    pub fn as_map(&self) -> Option<&Map> {
        match &self.0 {
            Kind::Map(map) => Some(map),
            _ => None,
        }
    }

    /// An object, to be changed. A shared object is copied first.
    pub fn as_map_mut(&mut self) -> Option<&mut Map> {
        match &mut self.0 {
            Kind::Map(map) => Some(Rc::make_mut(map)),
            _ => None,
        }
    }

    /// Declares who wrote this value and everything in it.
    pub fn mark(&mut self, source: Source) {
        match &mut self.0 {
            Kind::None(mark)
            | Kind::Bool(_, mark)
            | Kind::Int(_, mark)
            | Kind::Big(_, mark)
            | Kind::Float(_, mark) => *mark = source,
            Kind::Str(text) | Kind::Safe(text) => text.mark_all(Mark::of(source)),
            Kind::List(list) | Kind::Tuple(list) => {
                if Rc::get_mut(list).is_none() {
                    *list = Rc::new(List::new(list.items.clone(), source));
                }
                if let Some(list) = Rc::get_mut(list) {
                    list.source = source;
                    list.items.iter_mut().for_each(|item| item.mark(source));
                }
            }
            Kind::Map(map) => {
                let map = Rc::make_mut(map);
                map.source = source;
                for (key, value) in &mut map.entries {
                    key.mark(source);
                    value.mark(source);
                }
            }
            _ => {}
        }
    }

    /// How deeply lists and objects are nested.
    pub fn depth(&self) -> u16 {
        match &self.0 {
            Kind::List(list) | Kind::Tuple(list) => list.depth,
            Kind::Map(map) | Kind::View(_, map) => map.depth,
            Kind::Method(method) => method.0.depth().saturating_add(1),
            Kind::Iterator(items) => items.depth,
            _ => 0,
        }
    }

    /// The name of the type in Python.
    pub(crate) fn type_name(&self) -> &'static str {
        match &self.0 {
            Kind::Undefined(_) => "Undefined",
            Kind::None(_) => "NoneType",
            Kind::Bool(..) => "bool",
            Kind::Int(..) | Kind::Big(..) => "int",
            Kind::Float(..) => "float",
            Kind::Str(_) => "str",
            Kind::Safe(_) => "Markup",
            Kind::List(_) => "list",
            Kind::Tuple(_) => "tuple",
            Kind::Map(_) => "dict",
            Kind::Range(..) => "range",
            Kind::View(View::Keys, _) => "dict_keys",
            Kind::View(View::Values, _) => "dict_values",
            Kind::View(View::Items, _) => "dict_items",
            Kind::Iterator(_) => "generator",
            Kind::Namespace(_) => "Namespace",
            Kind::Macro(_) => "Macro",
            Kind::Loop(..) => "LoopContext",
            Kind::Function(_) => "function",
            Kind::Method(_) => "method",
        }
    }

    /// Who wrote a value: of a text, the first character; of a container, its brackets.
    pub(crate) fn source(&self) -> Source {
        match &self.0 {
            Kind::None(source)
            | Kind::Bool(_, source)
            | Kind::Int(_, source)
            | Kind::Big(_, source)
            | Kind::Float(_, source) => *source,
            Kind::Str(text) | Kind::Safe(text) => text.first_mark().source & !FORM,
            Kind::List(list) | Kind::Tuple(list) => list.source,
            Kind::Map(map) | Kind::View(_, map) => map.source,
            _ => TEMPLATE,
        }
    }

    /// `repr()`. The error names a value that cannot be printed.
    pub(crate) fn repr(&self, budget: &mut Budget) -> Result<Text> {
        let mut text = TextBuilder::default();
        repr(self, &mut text, TEMPLATE, budget)?;
        if !matches!(self.0, Kind::Str(_) | Kind::Bool(..) | Kind::Int(..) | Kind::Big(..) | Kind::Float(..))
        {
            text.mark_form();
        }
        Ok(text.finish())
    }

    /// `str()`.
    pub(crate) fn to_text(&self, budget: &mut Budget) -> Result<Text> {
        match &self.0 {
            Kind::Str(text) | Kind::Safe(text) => Ok(text.clone()),
            Kind::Undefined(_) => Ok("".into()),
            _ => self.repr(budget),
        }
    }
}

/// `len(range(start, stop, step))`.
pub(crate) fn range_len(start: i64, stop: i64, step: i64) -> usize {
    let (low, high) = if step > 0 { (start, stop) } else { (stop, start) };
    if low >= high || step == 0 {
        return 0;
    }
    // 128 bits, because a range may be from the smallest to the largest integer.
    let distance = (i128::from(high) - i128::from(low) - 1) / i128::from(step).abs();
    usize::try_from(distance + 1).unwrap_or(usize::MAX)
}

/// The items of a view, as values.
pub(crate) fn view_items(view: View, map: &Rc<Map>) -> Vec<Value> {
    let entries = map.entries.iter();
    match view {
        View::Keys => entries.map(|(key, _)| key.clone()).collect(),
        View::Values => entries.map(|(_, value)| value.clone()).collect(),
        View::Items => entries.map(|(key, value)| Value::tuple(vec![key.clone(), value.clone()])).collect(),
    }
}
