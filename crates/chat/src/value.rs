//! Values of a template: the types of Python that a chat template can see, with a mark on every character.

mod compare;
mod json;

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

pub(crate) use self::compare::{
    Number, as_int, compare_numbers, equal, equal_atoms, hashable, number, order, sort,
};
pub use self::json::JsonError;
pub(crate) use self::json::JsonStyle;
use crate::budget::Budget;
use crate::error::{Result, unsupported};

/// Who wrote a character: [`TEMPLATE`], or a number that the caller gave to a part of the input with [`Value::mark`].
pub type Source = u32;

/// The source of characters that the template writes itself.
pub const TEMPLATE: Source = 0;

/// Added to the source of characters of which Python's form of a list, an object or `None` consists.
pub(crate) const FORM: Source = 1 << 31;

/// Nested lists and objects deeper than this are refused, in the input as in the template.
pub(crate) const MAX_DEPTH: u16 = 200;

pub(crate) const NO_TURN: u32 = u32::MAX;

/// What is known of a run of characters: who wrote it, and in which iteration over the messages it was captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) source: Source,
    pub(crate) turn: u32,
}

impl Mark {
    pub(crate) const TEMPLATE: Mark = Mark { source: TEMPLATE, turn: NO_TURN };

    pub(crate) fn of(source: Source) -> Mark {
        Mark { source, turn: NO_TURN }
    }

    /// The mark of characters that are emitted in `turn`, unless they were captured in another one.
    fn in_turn(self, turn: u32) -> Mark {
        if self.turn == NO_TURN { Mark { turn, ..self } } else { self }
    }
}

/// A string whose characters are marked. Slices share the characters.
#[derive(Clone)]
pub struct Text {
    buffer: Arc<str>,
    start: u32,
    end: u32,
    marks: Marks,
}

#[derive(Clone)]
enum Marks {
    One(Mark),
    /// The end of each run in the buffer, ascending; the last one is the length of the buffer.
    Many(Rc<[(u32, Mark)]>),
}

impl Text {
    /// Text from one source.
    pub fn new(text: impl Into<Arc<str>>, source: Source) -> Text {
        Text::marked(text.into(), Mark::of(source))
    }

    pub(crate) fn marked(buffer: Arc<str>, mark: Mark) -> Text {
        // Longer texts than 4 GiB are refused before: `from_json` and the limit of the output.
        let end = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
        Text { buffer, start: 0, end, marks: Marks::One(mark) }
    }

    /// The characters.
    pub fn as_str(&self) -> &str {
        self.buffer.get(self.start as usize..self.end as usize).unwrap_or_default()
    }

    pub(crate) fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Whether these are the characters `text`. Most names differ in length.
    fn is(&self, text: &str) -> bool {
        self.len() == text.len() && self.as_str() == text
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The number of runs of characters with the same mark.
    pub(crate) fn runs(&self) -> usize {
        match &self.marks {
            Marks::One(_) => 1,
            Marks::Many(runs) => {
                let first = runs.partition_point(|(end, _)| *end <= self.start);
                let last = runs.partition_point(|(end, _)| *end < self.end);
                last.saturating_sub(first) + 1
            }
        }
    }

    /// The bytes `range`, which must be on character boundaries.
    pub(crate) fn slice(&self, range: Range<usize>) -> Text {
        let end = self.start + u32::try_from(range.end).unwrap_or(u32::MAX).min(self.end - self.start);
        let start =
            (self.start + u32::try_from(range.start).unwrap_or(u32::MAX).min(self.end - self.start)).min(end);
        Text { buffer: self.buffer.clone(), start, end, marks: self.marks.clone() }
    }

    /// A part of this text, found by the methods of `str`.
    pub(crate) fn part(&self, part: &str) -> Text {
        let start = (part.as_ptr() as usize).wrapping_sub(self.as_str().as_ptr() as usize);
        self.slice(start..start.saturating_add(part.len()))
    }

    /// The runs of characters with the same mark.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (&str, Mark)> {
        let (one, many): (Option<Mark>, &[(u32, Mark)]) = match &self.marks {
            Marks::One(mark) => (Some(*mark), &[]),
            Marks::Many(runs) => (None, &runs[runs.partition_point(|(end, _)| *end <= self.start)..]),
        };
        let mut at = self.start;
        let runs = many.iter().map_while(move |(end, mark)| {
            let end = (*end).min(self.end);
            let piece = (at < end).then(|| (&self.buffer[at as usize..end as usize], *mark));
            at = end;
            piece
        });
        one.filter(|_| !self.is_empty()).map(|mark| (self.as_str(), mark)).into_iter().chain(runs)
    }

    /// The mark of the first character.
    pub(crate) fn first_mark(&self) -> Mark {
        match &self.marks {
            Marks::One(mark) => *mark,
            Marks::Many(_) => self.pieces().next().map_or(Mark::TEMPLATE, |(_, mark)| mark),
        }
    }

    /// The mark of all characters, if there is only one.
    pub(crate) fn uniform(&self) -> Option<Mark> {
        match &self.marks {
            Marks::One(mark) => Some(*mark),
            Marks::Many(_) => None,
        }
    }

    /// Text whose pieces are replaced one by one, with their marks.
    pub(crate) fn map(&self, change: impl Fn(&str) -> String) -> Text {
        if let Some(mark) = self.uniform() {
            return Text::marked(change(self.as_str()).into(), mark);
        }
        let mut text = TextBuilder::default();
        for (piece, mark) in self.pieces() {
            text.push(&change(piece), mark);
        }
        text.finish()
    }

    pub(crate) fn chars(&self) -> usize {
        self.as_str().chars().count()
    }

    fn mark_all(&mut self, mark: Mark) {
        self.marks = Marks::One(mark);
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        Text::marked(text.into(), Mark::TEMPLATE)
    }
}

/// Collects marked text.
#[derive(Default)]
pub(crate) struct TextBuilder {
    pub(crate) text: String,
    pub(crate) runs: Vec<(u32, Mark)>,
}

impl TextBuilder {
    /// Creates a buffer for about so many bytes.
    pub(crate) fn with_capacity(bytes: usize) -> TextBuilder {
        const BYTES_PER_RUN: usize = 64;
        TextBuilder { text: String::with_capacity(bytes), runs: Vec::with_capacity(bytes / BYTES_PER_RUN) }
    }

    pub(crate) fn push(&mut self, text: &str, mark: Mark) {
        if text.is_empty() {
            return;
        }
        self.text.push_str(text);
        let end = u32::try_from(self.text.len()).unwrap_or(u32::MAX);
        match self.runs.last_mut() {
            Some((last, same)) if *same == mark => *last = end,
            _ => self.runs.push((end, mark)),
        }
    }

    pub(crate) fn push_char(&mut self, c: char, mark: Mark) {
        self.push(c.encode_utf8(&mut [0; 4]), mark);
    }

    pub(crate) fn push_text(&mut self, text: &Text) {
        self.push_in_turn(text, NO_TURN);
    }

    /// As `push_text`; characters that were not captured in an iteration over the messages belong to `turn`.
    pub(crate) fn push_in_turn(&mut self, text: &Text, turn: u32) {
        match text.uniform() {
            Some(mark) => self.push(text.as_str(), mark.in_turn(turn)),
            None => text.pieces().for_each(|(piece, mark)| self.push(piece, mark.in_turn(turn))),
        }
    }

    /// As `push`, after it is paid for.
    pub(crate) fn push_paid(&mut self, text: &str, mark: Mark, budget: &mut Budget) -> Result<()> {
        budget.make(text.len())?;
        self.push(text, mark);
        Ok(())
    }

    /// Marks all characters as Python's form of a value.
    fn mark_form(&mut self) {
        self.runs.iter_mut().for_each(|(_, mark)| mark.source |= FORM);
    }

    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    /// Appends another text as [`push_in_turn`](Self::push_in_turn) does.
    pub(crate) fn append_in_turn(&mut self, other: &TextBuilder, turn: u32) {
        let mut start = 0;
        for (end, mark) in &other.runs {
            self.push(other.text.get(start..*end as usize).unwrap_or_default(), mark.in_turn(turn));
            start = *end as usize;
        }
    }

    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.runs.clear();
    }

    pub(crate) fn finish(&self) -> Text {
        let marks = match self.runs.as_slice() {
            [] => Marks::One(Mark::TEMPLATE),
            [(_, mark)] => Marks::One(*mark),
            runs => Marks::Many(runs.into()),
        };
        let end = u32::try_from(self.text.len()).unwrap_or(u32::MAX);
        Text { buffer: self.text.as_str().into(), start: 0, end, marks }
    }
}

/// Why there is no value.
#[derive(Clone, Debug)]
pub(crate) enum Missing {
    Name(Arc<str>),
    Attribute(&'static str, Arc<str>),
    Element(&'static str),
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

#[derive(Clone)]
pub(crate) enum Kind {
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
    Range(i64, i64, i64),
    View(View, Rc<Map>),
    Iterator(Rc<ValueIterator>),
    Namespace(usize),
    Macro(usize),
    Loop(usize, u64),
    Function(Function),
    Method(Rc<(Value, Arc<str>)>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum View {
    Keys,
    Values,
    Items,
}

/// Defines an enum whose variants have names in templates. The first name is that of messages.
macro_rules! named {
    ($(#[$doc:meta])* $type:ident { $($variant:ident: $($name:literal)|+,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $type { $($variant),* }

        impl $type {
            pub(crate) fn named(name: &str) -> Option<$type> {
                match name {
                    $($($name)|+ => Some($type::$variant),)*
                    _ => None,
                }
            }

            pub(crate) fn name(self) -> &'static str {
                match self {
                    $($type::$variant => [$($name),+][0],)*
                }
            }
        }
    };
}
pub(crate) use named;

named! {
    /// The functions of Jinja2 and `transformers`.
    Function {
        Range: "range",
        Dict: "dict",
        Namespace: "namespace",
        RaiseException: "raise_exception",
        StrftimeNow: "strftime_now",
        Lipsum: "lipsum",
        Cycler: "cycler",
        Joiner: "joiner",
    }
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
    pub(crate) fn new(items: Vec<Value>, source: Source) -> List {
        let depth = 1 + items.iter().map(Value::depth).max().unwrap_or(0);
        List { items, source, depth, group: false }
    }
}

/// An object of JSON or a `dict` of a template. Keys keep their order.
#[derive(Clone, Default)]
pub struct Map {
    pub(crate) entries: Vec<(Value, Value)>,
    /// Positions of string keys, for large objects.
    index: Option<HashMap<Arc<str>, u32>>,
    pub(crate) source: Source,
    pub(crate) depth: u16,
    pub(crate) message: Option<u32>,
}

const INDEXED: usize = 16;

impl Map {
    /// An empty object.
    pub fn new() -> Map {
        Map { depth: 1, ..Map::default() }
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value of a string key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.position(key).map(|at| &self.entries[at].1)
    }

    /// The value of a string key.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.position(key).map(|at| &mut self.entries[at].1)
    }

    fn position(&self, key: &str) -> Option<usize> {
        match &self.index {
            Some(index) => index.get(key).map(|at| *at as usize),
            None => self.entries.iter().position(|(name, _)| name.as_text().is_some_and(|name| name.is(key))),
        }
    }

    /// The value of any key, as Python compares keys.
    pub(crate) fn get_value(&self, key: &Value, budget: &mut Budget) -> Result<Option<&Value>> {
        Ok(self.position_of(key, budget)?.map(|at| &self.entries[at].1))
    }

    fn position_of(&self, key: &Value, budget: &mut Budget) -> Result<Option<usize>> {
        if let Some(key) = key.as_str() {
            budget.read(key.len())?;
            return Ok(self.position(key));
        }
        for (at, (name, _)) in self.entries.iter().enumerate() {
            if equal(name, key, budget)? {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// Sets a key, which keeps its place if it is there already. The name is text of the template.
    pub fn insert(&mut self, key: &str, value: Value) {
        self.insert_text(key.into(), value);
    }

    /// Sets the key with the characters of a text.
    pub(crate) fn insert_text(&mut self, key: Text, value: Value) {
        self.insert_at(self.position(key.as_str()), key.into(), value);
    }

    /// Sets any key, as Python compares keys.
    pub(crate) fn insert_value(&mut self, key: Value, value: Value, budget: &mut Budget) -> Result<()> {
        let at = self.position_of(&key, budget)?;
        if at.is_none() {
            budget.make_entries(1)?;
        }
        self.insert_at(at, key, value);
        Ok(())
    }

    fn insert_at(&mut self, at: Option<usize>, key: Value, value: Value) {
        self.depth = self.depth.max(1).max(value.depth().max(key.depth()).saturating_add(1));
        if let Some(at) = at {
            self.entries[at].1 = value;
            return;
        }
        if let (Some(index), Some(key)) = (&mut self.index, key.as_str()) {
            index.insert(key.into(), self.entries.len() as u32);
        }
        self.entries.push((key, value));
        if self.index.is_none() && self.entries.len() > INDEXED {
            self.build_index();
        }
    }

    fn build_index(&mut self) {
        self.index = (self.entries.len() > INDEXED).then(|| {
            let keys = self.entries.iter().enumerate();
            keys.filter_map(|(at, (key, _))| Some((key.as_str()?.into(), at as u32))).collect()
        });
    }

    /// Removes a string key and returns its value.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        let at = self.position(key)?;
        let (_, value) = self.entries.remove(at);
        self.build_index();
        Some(value)
    }

    /// Keeps the keys for which `keep` returns true.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &Value) -> bool) {
        let before = self.entries.len();
        self.entries.retain(|(key, value)| keep(key.as_str().unwrap_or_default(), value));
        if self.entries.len() != before {
            self.build_index();
        }
    }

    /// Keys and values in order. Keys of JSON are strings.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (key.as_str().unwrap_or_default(), value))
    }

    /// Keys and values in order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut Value)> {
        self.entries.iter_mut().map(|(key, value)| (key.as_str().unwrap_or_default(), value))
    }

    /// Declares who wrote the keys.
    pub(crate) fn mark_keys(&mut self, source: Source) {
        self.entries.iter_mut().for_each(|(key, _)| key.mark(source));
    }

    /// Declares that this is message number `index` of the chat: text that a loop emits in its iteration over this
    /// message has this number in [`Piece::turn`](crate::Piece::turn).
    pub fn set_message(&mut self, index: u32) {
        self.message = Some(index);
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

    pub(crate) fn tuple(items: Vec<Value>) -> Value {
        Value(Kind::Tuple(Rc::new(List::new(items, TEMPLATE))))
    }

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

pub(crate) fn range_len(start: i64, stop: i64, step: i64) -> usize {
    let (low, high) = if step > 0 { (start, stop) } else { (stop, start) };
    if low >= high || step == 0 {
        return 0;
    }
    let distance = (i128::from(high) - i128::from(low) - 1) / i128::from(step).abs();
    usize::try_from(distance + 1).unwrap_or(usize::MAX)
}

fn repr(value: &Value, out: &mut TextBuilder, outer: Source, budget: &mut Budget) -> Result<()> {
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
        Kind::Undefined(_) => out.push_paid("Undefined", Mark::TEMPLATE, budget)?,
        _ => {
            let kind = value.type_name();
            return unsupported(format!(
                "a value of type {kind} is printed, which Python prints as an address"
            ));
        }
    }
    Ok(())
}

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

pub(crate) fn view_items(view: View, map: &Rc<Map>) -> Vec<Value> {
    let entries = map.entries.iter();
    match view {
        View::Keys => entries.map(|(key, _)| key.clone()).collect(),
        View::Values => entries.map(|(_, value)| value.clone()).collect(),
        View::Items => entries.map(|(key, value)| Value::tuple(vec![key.clone(), value.clone()])).collect(),
    }
}

fn repr_str(text: &Text, out: &mut TextBuilder, budget: &mut Budget) -> Result<()> {
    // A character may become an escape of ten, and is looked up.
    budget.make_chars(text.len())?;
    budget.make_text(text)?;
    let mark = text.first_mark();
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
