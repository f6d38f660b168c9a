//! The arguments of calls.
//!
//! A table has the parameters of filters and methods. Macros are bound elsewhere (`Evaluator::bind_macro`), because
//! Jinja2 has rules of its own for them.

use std::sync::Arc;

use crate::error::{Result, type_error};
use crate::value::{Kind, Text, Value, as_int};

/// The arguments of a filter or a method by parameter. None has more than four.
pub(crate) type Bound = [Option<Value>; 4];

/// The arguments of a call.
#[derive(Default)]
pub(crate) struct CallArgs {
    /// In the order of the call, with those of `*args` after them.
    pub(crate) positional: Vec<Value>,
    /// In the order of the call, which `kwargs` of a macro keeps. A `call` block adds the name `caller`.
    pub(crate) keyword: Vec<(Arc<str>, Value)>,
}

impl CallArgs {
    /// Assigns the arguments to the parameters `names`, of which the first `required` must be given.
    pub(crate) fn bind<const N: usize>(
        self,
        callee: &str,
        names: [&str; N],
        required: usize,
    ) -> Result<[Option<Value>; N]> {
        let mut values = [const { None }; N];
        self.bind_to(callee, &names, required, &mut values)?;
        Ok(values)
    }

    /// The same for the parameters of a row in a table.
    pub(crate) fn bound(self, callee: &str, names: &[&str], required: usize) -> Result<Bound> {
        let mut values = Bound::default();
        self.bind_to(callee, names, required, &mut values)?;
        Ok(values)
    }

    /// Python also refuses too many arguments, unknown names, names that are given twice, and missing ones.
    fn bind_to(
        self,
        callee: &str,
        names: &[&str],
        required: usize,
        values: &mut [Option<Value>],
    ) -> Result<()> {
        if self.positional.len() > names.len() {
            return type_error(format!("`{callee}` takes at most {} arguments", names.len()));
        }
        for (slot, value) in values.iter_mut().zip(self.positional) {
            *slot = Some(value);
        }
        for (name, value) in self.keyword {
            let at = names.iter().position(|known| **known == *name);
            match at.and_then(|at| values.get_mut(at)) {
                Some(slot @ None) => *slot = Some(value),
                Some(_) => return type_error(format!("`{callee}` got the argument `{name}` twice")),
                None => return type_error(format!("`{callee}` has no argument `{name}`")),
            }
        }
        match names.iter().zip(values.iter()).take(required).find(|(_, value)| value.is_none()) {
            Some((missing, _)) => type_error(format!("`{callee}` needs the argument `{missing}`")),
            None => Ok(()),
        }
    }

    /// The only argument, which is needed.
    pub(crate) fn one(self, callee: &str, name: &str) -> Result<Value> {
        let [value] = self.bind(callee, [name], 1)?;
        Ok(value.unwrap_or_else(Value::none))
    }
}

/// A string that may be left out. `None` counts as left out, since it is the default in Python: `split(None)` splits at
/// white space.
pub(crate) fn optional_text(callee: &str, value: Option<Value>) -> Result<Option<Text>> {
    match value.map(|value| value.0) {
        None | Some(Kind::None(_)) => Ok(None),
        Some(Kind::Str(text)) => Ok(Some(text)),
        Some(other) => type_error(format!("`{callee}` needs a string, not {}", Value(other).type_name())),
    }
}

/// A string that Python requires, such as the prefix of `removeprefix`.
pub(crate) fn required_text(callee: &str, value: Option<Value>) -> Result<Text> {
    match optional_text(callee, value)? {
        Some(text) => Ok(text),
        None => type_error(format!("`{callee}` needs a string")),
    }
}

/// An integer that may be left out. `True` and `False` are the integers 1 and 0, as in Python.
pub(crate) fn optional_int(callee: &str, value: Option<Value>) -> Result<Option<i64>> {
    match value {
        None => Ok(None),
        Some(value) => match as_int(&value) {
            Some(int) => Ok(Some(int)),
            None => type_error(format!("`{callee}` needs an integer, not {}", value.type_name())),
        },
    }
}

/// An integer that Python requires, such as the width of `ljust`.
pub(crate) fn required_int(callee: &str, value: Option<Value>) -> Result<i64> {
    match optional_int(callee, value)? {
        Some(int) => Ok(int),
        None => type_error(format!("`{callee}` needs an integer")),
    }
}
