//! The functions of Jinja2 and `transformers`.

use crate::args::CallArgs;
use crate::dates::strftime;
use crate::error::{ErrorKind, Result, error, type_error, unsupported};
use crate::runtime::Runtime;
use crate::value::{Kind, Map, Number, TEMPLATE, Text, Value, number, range_len};

/// The sandbox of Jinja2 refuses longer ranges.
const MAX_RANGE: usize = 100_000;

/// A function that templates can call by its name.
struct Function {
    name: &'static str,
    call: fn(&mut Runtime, CallArgs) -> Result<Value>,
}

/// `DEFAULT_NAMESPACE` of Jinja2, and what `_compile_jinja_template` of transformers adds to it. `cycler`, `joiner` and
/// `lipsum` exist, so that `is defined` is right, but have no use in a chat: the first two are objects with a state,
/// the third makes random text.
const FUNCTIONS: [Function; 8] = [
    Function { name: "cycler", call: |_, _| no_function("cycler") },
    Function { name: "dict", call: dict },
    Function { name: "joiner", call: |_, _| no_function("joiner") },
    Function { name: "lipsum", call: |_, _| no_function("lipsum") },
    Function { name: "namespace", call: namespace },
    Function { name: "raise_exception", call: raise_exception },
    Function { name: "range", call: range },
    Function { name: "strftime_now", call: strftime_now },
];

/// The function with a name, as a value.
pub(crate) fn function(name: &str) -> Option<Value> {
    let found = FUNCTIONS.iter().find(|function| function.name == name)?;
    Some(Kind::Function(found.name).into())
}

/// Calls the function with a name.
pub(crate) fn call_function(runtime: &mut Runtime, name: &str, args: CallArgs) -> Result<Value> {
    match FUNCTIONS.iter().find(|function| function.name == name) {
        Some(function) => (function.call)(runtime, args),
        None => error(ErrorKind::Unknown, format!("unknown function `{name}`")),
    }
}

fn no_function(name: &str) -> Result<Value> {
    unsupported(format!("the function `{name}` is not supported"))
}

/// `TemplateDict` of transformers: `dict(a=1)`.
fn dict(runtime: &mut Runtime, args: CallArgs) -> Result<Value> {
    let map = dict_of(runtime, args)?;
    runtime.new_map(map)
}

/// `namespace(found=false)`: an object whose attributes `set` can change from inside of a loop.
fn namespace(runtime: &mut Runtime, args: CallArgs) -> Result<Value> {
    let map = dict_of(runtime, args)?;
    runtime.new_namespace(map)
}

/// `raise_exception("Conversation roles must alternate")`: how a template refuses a chat.
fn raise_exception(runtime: &mut Runtime, args: CallArgs) -> Result<Value> {
    let message = runtime.printed(&args.one("raise_exception", "message")?)?;
    error(ErrorKind::Raised, message.as_str())
}

/// `safe_range` of `jinja2.sandbox`. The numbers are not made, but counted.
fn range(_: &mut Runtime, args: CallArgs) -> Result<Value> {
    if !args.keyword.is_empty() {
        return type_error("`range` takes no keyword arguments");
    }
    let mut numbers = Vec::with_capacity(3);
    for value in &args.positional {
        match number(value) {
            Some(Number::Int(value)) => numbers.push(value),
            _ => return type_error(format!("`range` needs integers, not {}", value.type_name())),
        }
    }
    let (start, stop, step) = match numbers[..] {
        [stop] => (0, stop, 1),
        [start, stop] => (start, stop, 1),
        [start, stop, step] if step != 0 => (start, stop, step),
        [_, _, _] => return error(ErrorKind::Value, "the step of `range` is zero"),
        _ => return type_error("`range` takes one to three arguments"),
    };
    if range_len(start, stop, step) > MAX_RANGE {
        return error(ErrorKind::Limit, format!("a range of more than {MAX_RANGE} numbers"));
    }
    Ok(Kind::Range(start, stop, step).into())
}

/// transformers formats the local time of the machine here; see [`RenderOptions::now`](crate::RenderOptions::now).
fn strftime_now(runtime: &mut Runtime, args: CallArgs) -> Result<Value> {
    let format = args.one("strftime_now", "format")?;
    let Some(format) = format.as_text() else {
        return type_error("`strftime_now` needs a string");
    };
    let Some(now) = runtime.now else {
        return error(ErrorKind::Now, "the template writes the current time: set `now`");
    };
    // A character of a format becomes at most so many.
    const GROWTH: usize = 16;
    runtime.budget.make_chars(format.len().saturating_mul(GROWTH))?;
    strftime(format, now)
}

/// `dict(...)`.
fn dict_of(runtime: &mut Runtime, args: CallArgs) -> Result<Map> {
    if args.positional.len() > 1 {
        return type_error("`dict` takes at most one argument");
    }
    let mut map = Map::new();
    if let Some(first) = args.positional.first() {
        match &first.0 {
            Kind::Map(other) => {
                runtime.budget.make_entries(other.len())?;
                map = (**other).clone();
                // A copy of a message is no message: text in a loop over copies has no turn of its own.
                map.message = None;
            }
            _ => {
                // `dict(pairs)`, such as of `items()` after a filter.
                for pair in runtime.iterate(first)? {
                    let pair = runtime.iterate(&pair)?;
                    let [key, value] = &pair[..] else {
                        return type_error("`dict` needs pairs of keys and values");
                    };
                    runtime.insert(&mut map, key.clone(), value.clone())?;
                }
            }
        }
    }
    runtime.budget.make_entries(args.keyword.len())?;
    for (name, value) in args.keyword {
        map.insert_text(Text::new(name, TEMPLATE), value);
    }
    Ok(map)
}
