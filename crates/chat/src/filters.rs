//! The filters and tests of Jinja2: a row for each, with its name, its parameters and its function.
//!
//! The functions are those of `jinja2.filters` and `jinja2.tests`, except for `tojson`, which transformers replaces.
//! Templates of models use few of them, above all `trim`, `tojson` and `length`. The others are here because a template that
//! uses one must not be rendered differently, and a test compares them with Jinja2.

mod checks;
mod numbers;
mod sequences;
mod text;

use std::fmt;
use std::rc::Rc;

use crate::args::{Bound, CallArgs};
use crate::chars::{is_lower, is_upper};
use crate::error::{ErrorKind, Result, error, type_error, unsupported};
use crate::operators::{BinaryOp, CompareOp};
use crate::runtime::Runtime;
use crate::value::{Kind, Value, equal};

/// A filter of Jinja2. An alias is a row of its own.
pub(crate) struct Filter {
    name: &'static str,
    action: FilterAction,
}

/// How a filter is called.
enum FilterAction {
    /// A function with the parameters, of which so many are needed.
    Bound(&'static [&'static str], usize, fn(&mut Runtime, Value, Bound) -> Result<Value>),
    /// A function that takes any arguments.
    Free(fn(&mut Runtime, Value, CallArgs) -> Result<Value>),
    /// Jinja2 has the filter, and this crate has not: it escapes for HTML, or its result is not the same twice.
    ///
    /// `is filter` is true for it, as in Jinja2.
    Missing,
}

// The rows of the table below. Parameters have their names in `jinja2.filters`, because templates pass arguments by
// name.
const fn filter(
    name: &'static str,
    parameters: &'static [&'static str],
    required: usize,
    function: fn(&mut Runtime, Value, Bound) -> Result<Value>,
) -> Filter {
    Filter { name, action: FilterAction::Bound(parameters, required, function) }
}

const fn free(name: &'static str, function: fn(&mut Runtime, Value, CallArgs) -> Result<Value>) -> Filter {
    Filter { name, action: FilterAction::Free(function) }
}

const fn missing(name: &'static str) -> Filter {
    Filter { name, action: FilterAction::Missing }
}

/// In the order of their names.
static FILTERS: [Filter; 54] = [
    filter("abs", &[], 0, numbers::abs),
    filter("attr", &["name"], 1, sequences::attr),
    filter("batch", &["count", "fill_with"], 1, sequences::batch),
    filter("capitalize", &[], 0, text::capitalize),
    filter("center", &["width"], 0, text::center),
    filter("count", &[], 0, sequences::length),
    filter("d", &["default_value", "boolean"], 0, text::default),
    filter("default", &["default_value", "boolean"], 0, text::default),
    filter("dictsort", &["case_sensitive", "by", "reverse"], 0, sequences::dictsort),
    filter("e", &[], 0, text::escape),
    filter("escape", &[], 0, text::escape),
    filter("filesizeformat", &["binary"], 0, numbers::filesizeformat),
    filter("first", &[], 0, sequences::first),
    filter("float", &["default"], 0, numbers::float),
    filter("forceescape", &[], 0, text::forceescape),
    free("format", text::format),
    filter("groupby", &["attribute", "default", "case_sensitive"], 1, sequences::groupby),
    filter("indent", &["width", "first", "blank"], 0, text::indent),
    filter("int", &["default", "base"], 0, numbers::int),
    filter("items", &[], 0, sequences::items),
    filter("join", &["d", "attribute"], 0, sequences::join),
    filter("last", &[], 0, sequences::last),
    filter("length", &[], 0, sequences::length),
    filter("list", &[], 0, sequences::list),
    filter("lower", &[], 0, text::lower),
    free("map", map),
    filter("max", &["case_sensitive", "attribute"], 0, sequences::max),
    filter("min", &["case_sensitive", "attribute"], 0, sequences::min),
    missing("pprint"),
    missing("random"),
    free("reject", |runtime, value, args| select(runtime, "reject", &value, args)),
    free("rejectattr", |runtime, value, args| select(runtime, "rejectattr", &value, args)),
    filter("replace", &["old", "new", "count"], 2, text::replace),
    filter("reverse", &[], 0, sequences::reverse),
    filter("round", &["precision", "method"], 0, numbers::round),
    filter("safe", &[], 0, text::safe),
    free("select", |runtime, value, args| select(runtime, "select", &value, args)),
    free("selectattr", |runtime, value, args| select(runtime, "selectattr", &value, args)),
    filter("slice", &["count", "fill_with"], 1, sequences::slice),
    filter("sort", &["reverse", "case_sensitive", "attribute"], 0, sequences::sort_items),
    filter("string", &[], 0, text::string),
    missing("striptags"),
    filter("sum", &["attribute", "start"], 0, sequences::sum),
    filter("title", &[], 0, text::title),
    filter("tojson", &["ensure_ascii", "indent", "separators", "sort_keys"], 0, text::tojson),
    filter("trim", &["chars"], 0, text::trim),
    filter("truncate", &["length", "killwords", "end", "leeway"], 0, text::truncate),
    filter("unique", &["case_sensitive", "attribute"], 0, sequences::unique),
    filter("upper", &[], 0, text::upper),
    missing("urlencode"),
    missing("urlize"),
    filter("wordcount", &[], 0, text::wordcount),
    missing("wordwrap"),
    missing("xmlattr"),
];

/// A test of Jinja2 (`is …`). An alias is a row of its own.
pub(crate) struct Test {
    name: &'static str,
    action: TestAction,
}

/// How a test is called. Those that depend only on the type are kept apart: they need no evaluation of the value.
enum TestAction {
    /// Depends only on the value, costs nothing and never fails.
    Type(fn(&Value) -> bool),
    /// Compares with the argument.
    Compare(CompareOp),
    /// A function that takes any arguments.
    Call(fn(&mut Runtime, &Value, CallArgs) -> Result<bool>),
}

const fn of_type(name: &'static str, function: fn(&Value) -> bool) -> Test {
    Test { name, action: TestAction::Type(function) }
}

const fn comparison(name: &'static str, operator: CompareOp) -> Test {
    Test { name, action: TestAction::Compare(operator) }
}

const fn test_by(name: &'static str, function: fn(&mut Runtime, &Value, CallArgs) -> Result<bool>) -> Test {
    Test { name, action: TestAction::Call(function) }
}

/// In the order of their names.
static TESTS: [Test; 39] = [
    comparison("!=", CompareOp::Ne),
    comparison("<", CompareOp::Lt),
    comparison("<=", CompareOp::Le),
    comparison("==", CompareOp::Eq),
    comparison(">", CompareOp::Gt),
    comparison(">=", CompareOp::Ge),
    of_type("boolean", checks::boolean),
    of_type("callable", checks::callable),
    of_type("defined", checks::defined),
    test_by("divisibleby", divisibleby),
    comparison("eq", CompareOp::Eq),
    comparison("equalto", CompareOp::Eq),
    of_type("escaped", checks::escaped),
    test_by("even", |runtime, value, args| rest_by_two(runtime, "even", value, args, 0)),
    of_type("false", checks::is_false),
    test_by("filter", |_, value, args| {
        let [] = args.bind("filter", [], 0)?;
        Ok(value.as_str().is_some_and(|name| Filter::named(name).is_some()))
    }),
    of_type("float", checks::float),
    comparison("ge", CompareOp::Ge),
    comparison("greaterthan", CompareOp::Gt),
    comparison("gt", CompareOp::Gt),
    comparison("in", CompareOp::In),
    of_type("integer", checks::integer),
    of_type("iterable", checks::iterable),
    comparison("le", CompareOp::Le),
    comparison("lessthan", CompareOp::Lt),
    test_by("lower", |runtime, value, args| is_cased(runtime, "lower", value, args, is_lower)),
    comparison("lt", CompareOp::Lt),
    of_type("mapping", checks::mapping),
    comparison("ne", CompareOp::Ne),
    of_type("none", Value::is_none),
    of_type("number", checks::number),
    test_by("odd", |runtime, value, args| rest_by_two(runtime, "odd", value, args, 1)),
    test_by("sameas", sameas),
    of_type("sequence", checks::sequence),
    of_type("string", checks::string),
    test_by("test", |_, value, args| {
        let [] = args.bind("test", [], 0)?;
        Ok(value.as_str().is_some_and(|name| Test::named(name).is_some()))
    }),
    of_type("true", checks::is_true),
    of_type("undefined", checks::undefined),
    test_by("upper", |runtime, value, args| is_cased(runtime, "upper", value, args, is_upper)),
];

impl Filter {
    /// Finds a filter when the template is compiled. `map("upper")` and `is filter` also find it by name.
    pub(crate) fn named(name: &str) -> Option<&'static Filter> {
        FILTERS.binary_search_by_key(&name, |filter| filter.name).ok().and_then(|at| FILTERS.get(at))
    }

    /// Calls the filter with the value before the bar, and the arguments after its name.
    pub(crate) fn apply(&self, runtime: &mut Runtime, value: Value, args: CallArgs) -> Result<Value> {
        runtime.budget.charge(1)?;
        match self.action {
            FilterAction::Bound(parameters, required, function) => {
                function(runtime, value, args.bound(self.name, parameters, required)?)
            }
            FilterAction::Free(function) => function(runtime, value, args),
            FilterAction::Missing => unsupported(format!("the filter `{}` is not supported", self.name)),
        }
    }
}

impl Test {
    /// Finds a test when the template is compiled. `select("equalto", x)` also finds it by name.
    pub(crate) fn named(name: &str) -> Option<&'static Test> {
        TESTS.binary_search_by_key(&name, |test| test.name).ok().and_then(|at| TESTS.get(at))
    }

    /// The result, if it depends only on the type of the value, or on a constant.
    pub(crate) fn of_type(&self, value: &Value) -> Option<bool> {
        match self.action {
            TestAction::Type(function) => Some(function(value)),
            _ => None,
        }
    }

    /// Calls the test with the value before `is`.
    pub(crate) fn call(&self, runtime: &mut Runtime, value: &Value, args: CallArgs) -> Result<bool> {
        runtime.budget.charge(1)?;
        match self.action {
            TestAction::Type(function) => {
                let [] = args.bind(self.name, [], 0)?;
                Ok(function(value))
            }
            TestAction::Compare(operator) => {
                let other = args.one(self.name, "other")?;
                runtime.compare(operator, value, &other)
            }
            TestAction::Call(function) => function(runtime, value, args),
        }
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl fmt::Debug for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// `test_divisibleby`: `value % num == 0`, also of floats.
fn divisibleby(runtime: &mut Runtime, value: &Value, args: CallArgs) -> Result<bool> {
    let other = args.one("divisibleby", "other")?;
    let rest = runtime.binary(BinaryOp::Rem, value.clone(), other)?;
    equal(&rest, &0.into(), &mut runtime.budget)
}

/// `test_odd` and `test_even`, by the remainder of a division by two.
fn rest_by_two(
    runtime: &mut Runtime,
    name: &str,
    value: &Value,
    args: CallArgs,
    wanted: i64,
) -> Result<bool> {
    let [] = args.bind(name, [], 0)?;
    let rest = runtime.binary(BinaryOp::Rem, value.clone(), 2.into())?;
    equal(&rest, &wanted.into(), &mut runtime.budget)
}

/// `test_lower` and `test_upper`: of any value, as it is printed.
fn is_cased(
    runtime: &mut Runtime,
    name: &str,
    value: &Value,
    args: CallArgs,
    is_of_case: fn(&str) -> bool,
) -> Result<bool> {
    let [] = args.bind(name, [], 0)?;
    let text = runtime.printed(value)?;
    runtime.budget.charge(text.len() / 4)?;
    Ok(is_of_case(text.as_str()))
}

/// `is` of Python, for values of which this crate knows whether they are the same object.
fn sameas(_: &mut Runtime, value: &Value, args: CallArgs) -> Result<bool> {
    let other = args.one("sameas", "other")?;
    match (&value.0, &other.0) {
        (Kind::None(_), Kind::None(_)) => Ok(true),
        (Kind::Bool(a, _), Kind::Bool(b, _)) => Ok(a == b),
        (Kind::Map(a), Kind::Map(b)) => Ok(Rc::ptr_eq(a, b)),
        (Kind::List(a), Kind::List(b)) => Ok(Rc::ptr_eq(a, b)),
        (a, b) if std::mem::discriminant(a) != std::mem::discriminant(b) => Ok(false),
        // Whether two equal strings or integers are one object depends on the interpreter.
        _ => unsupported(format!("`sameas` for values of type {} is not supported", value.type_name())),
    }
}

/// The filter `map`: an attribute of each item, or the result of a filter.
/// `prepare_map` of `jinja2.filters`: without positional arguments, the attribute is read.
fn map(runtime: &mut Runtime, value: Value, args: CallArgs) -> Result<Value> {
    let items = if runtime.truth(&value)? {
        runtime.iterate(&value)?
    } else {
        // `sync_do_map`: a value that is false, such as `None`, has no items.
        return Ok(Value::iterator(Vec::new()));
    };
    if args.positional.is_empty() && args.keyword.iter().any(|(name, _)| **name == *"attribute") {
        let [attribute, default] = args.bind("map", ["attribute", "default"], 0)?;
        let getter = runtime.getter(attribute, default, false)?;
        let found = items.iter().map(|item| runtime.get(&getter, item));
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
    // The further arguments are passed to the filter of each item: `map("replace", "a", "b")`.
    let rest: Vec<Value> = positional.collect();
    let results = items.into_iter().map(|item| {
        runtime.budget.make_items(1 + rest.len() + keyword.len())?;
        let args = CallArgs { positional: rest.clone(), keyword: keyword.clone() };
        filter.apply(runtime, item, args)
    });
    Ok(Value::iterator(results.collect::<Result<_>>()?))
}

/// The filters `select`, `reject`, `selectattr` and `rejectattr`: items, or their attributes, that pass a test or do not.
/// `prepare_select_or_reject`: without the name of a test, the truth value decides.
fn select(runtime: &mut Runtime, name: &str, value: &Value, args: CallArgs) -> Result<Value> {
    let items =
        if runtime.truth(value)? { runtime.iterate(value)? } else { return Ok(Value::iterator(Vec::new())) };
    let CallArgs { positional, keyword } = args;
    let mut positional = positional.into_iter();
    // The first argument of those with an attribute is its name: `selectattr("role", "equalto", "system")`.
    let getter = if name.ends_with("attr") {
        let Some(attribute) = positional.next() else {
            return type_error(format!("`{name}` needs the name of an attribute"));
        };
        Some(runtime.getter(Some(attribute), None, false)?)
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
    let keep = name.starts_with("select");
    let mut out = Vec::new();
    for item in items {
        let tested = match &getter {
            Some(getter) => runtime.get(getter, &item)?,
            None => item.clone(),
        };
        runtime.budget.make_items(1 + rest.len() + keyword.len())?;
        let found = match test {
            Some(test) => {
                let args = CallArgs { positional: rest.clone(), keyword: keyword.clone() };
                test.call(runtime, &tested, args)?
            }
            None => runtime.truth(&tested)?,
        };
        if found == keep {
            out.push(item);
        }
    }
    Ok(Value::iterator(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_the_order_of_their_names() {
        assert!(FILTERS.is_sorted_by(|a, b| a.name < b.name));
        assert!(TESTS.is_sorted_by(|a, b| a.name < b.name));
    }
}
