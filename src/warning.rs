//! Decisions of a plan that the user may not have intended.
//!
//! Warnings are for people and programs that run a conversion. They are not stored in the dataset. A warning is made where
//! the decision is made, and `docs/reference/warnings.md` lists its code.

use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::numbers::listed;

/// A decision or an omission that may be unintended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Warning {
    /// Name of the kind of decision. A code is never changed.
    pub code: &'static str,
    /// Text for people. It names options as the library does, in backquotes.
    pub message: String,
    /// What the message is about, for programs: names and values.
    pub values: Vec<(&'static str, Value)>,
    /// The options that change the decision.
    pub remedies: Vec<Remedy>,
}

/// An option that changes the decision of a warning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Remedy {
    /// Name of the option, with underscores.
    pub option: &'static str,
    /// Value to set.
    pub value: &'static str,
    /// Effect of that value.
    pub effect: &'static str,
}

impl Warning {
    /// Creates a warning without values and remedies. A code is used in one place only.
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), values: Vec::new(), remedies: Vec::new() }
    }

    /// Adds a value.
    pub(crate) fn with(mut self, name: &'static str, value: impl Serialize) -> Self {
        // A path that is not UTF-8 has no form in JSON.
        self.values.push((name, serde_json::to_value(value).unwrap_or_default()));
        self
    }

    /// Adds an option that changes the decision.
    pub(crate) fn remedy(mut self, option: &'static str, value: &'static str, effect: &'static str) -> Self {
        self.remedies.push(Remedy { option, value, effect });
        self
    }

    /// Returns the value called `name`.
    #[cfg(test)]
    pub(crate) fn value(&self, name: &str) -> &Value {
        self.values.iter().find(|(other, _)| *other == name).map_or(&Value::Null, |(_, value)| value)
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// In JSON, a warning is an object of its code and its values.
impl Serialize for Warning {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let code = Value::from(self.code);
        let values = self.values.iter().map(|(name, value)| (*name, value));
        serializer.collect_map(std::iter::once(("code", &code)).chain(values))
    }
}

/// Lists names in double quotes.
pub(crate) fn quoted(names: &[String]) -> String {
    listed(names.iter().map(|name| format!("{name:?}")))
}
