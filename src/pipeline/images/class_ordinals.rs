//! Mapping from labels to class ordinals.

use std::collections::HashMap;

use serde_json::Value as Json;

use crate::sample::{Reject, Value};
use crate::source::image_table::ImageColumns;
use crate::source::labels::unknown_class;

/// The ordinals of classes, by name.
pub(super) struct ClassOrdinals {
    by_name: HashMap<String, usize>,
}

impl ClassOrdinals {
    pub(super) fn new(names: &[String]) -> Self {
        Self { by_name: names.iter().cloned().zip(0..).collect() }
    }

    /// Returns the record value of a label.
    pub(super) fn value(&self, columns: &ImageColumns, label: &Json) -> Result<Value, Reject> {
        let Some(class) = columns.class_of(label)? else { return Ok(Value::Null) };
        let found = match columns.declared_classes {
            Some(_) => self.by_name.get(&class).copied().ok_or_else(|| unknown_class(&class))?,
            None => self.ordinal(&class)?,
        };
        Ok(Value::Int(found as i64))
    }

    /// Returns the ordinal of the class given by `label`, which is its name or its ordinal.
    pub(super) fn ordinal(&self, label: &str) -> Result<usize, Reject> {
        let ordinal = || label.parse().ok().filter(|n| *n < self.by_name.len());
        self.by_name.get(label).copied().or_else(ordinal).ok_or_else(|| unknown_class(label))
    }
}
