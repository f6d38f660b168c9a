//! `Map`: the objects of JSON, and the dictionaries of a template.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Source, Text, Value, equal};
use crate::budget::Budget;
use crate::error::Result;

/// An object of JSON or a `dict` of a template. Keys keep their order.
#[derive(Clone, Default)]
pub struct Map {
    pub(crate) entries: Vec<(Value, Value)>,
    /// Positions of string keys, for large objects.
    index: Option<HashMap<Arc<str>, u32>>,
    pub(crate) source: Source,
    pub(crate) depth: u16,
    /// The number of the message that this is: see [`Map::set_message`].
    pub(crate) message: Option<u32>,
}

/// Keys up to which a search one by one is faster than a hash. Messages have two to five.
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
        // Numbers and tuples as keys are rare: Python code makes them, and JSON cannot.
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

    /// As in `dict`, an existing key keeps its place, and its marks.
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

    /// After keys have moved.
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
