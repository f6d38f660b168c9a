//! What `getattr` finds on a value.

use crate::value::{Kind, Value};

/// What `getattr` finds on a value of a built-in type.
pub(crate) enum Attribute {
    None,
    /// A method that a sandbox allows, or another attribute that exists. A template can test for it without calling it.
    Method,
    /// The sandbox returns an undefined value.
    Unsafe,
}

/// What `getattr` finds on a mapping.
/// Methods hide keys: `message.items` is the method of `dict` even if the message has a key `items`, while
/// `message["items"]` is the key. `ImmutableSandboxedEnvironment` refuses what changes a mapping (`_mutable_spec` of
/// `jinja2.sandbox`).
pub(crate) fn map_attribute(name: &str) -> Attribute {
    match name {
        "copy" | "fromkeys" | "get" | "items" | "keys" | "values" => Attribute::Method,
        "clear" | "pop" | "popitem" | "setdefault" | "update" => Attribute::Unsafe,
        _ => object_attribute(name),
    }
}

/// The attributes of Python's types, complete even where calling them is not supported: `x.encode is defined` must be
/// true, and `x.encode()` must be refused rather than be undefined.
pub(crate) fn attribute_kind(object: &Value, name: &str) -> Attribute {
    match (&object.0, name) {
        (Kind::Map(_), _) => map_attribute(name),
        // Attributes of a namespace are values that were set, which `Runtime::own_attribute` finds.
        (Kind::Undefined(_) | Kind::Namespace(_), _) => Attribute::None,
        (
            Kind::Str(_) | Kind::Safe(_),
            "capitalize" | "casefold" | "center" | "count" | "encode" | "endswith" | "expandtabs" | "find"
            | "format" | "format_map" | "index" | "isalnum" | "isalpha" | "isascii" | "isdecimal" | "isdigit"
            | "isidentifier" | "islower" | "isnumeric" | "isprintable" | "isspace" | "istitle" | "isupper"
            | "join" | "ljust" | "lower" | "lstrip" | "maketrans" | "partition" | "removeprefix"
            | "removesuffix" | "replace" | "rfind" | "rindex" | "rjust" | "rpartition" | "rsplit" | "rstrip"
            | "split" | "splitlines" | "startswith" | "strip" | "swapcase" | "title" | "translate" | "upper"
            | "zfill",
        ) => Attribute::Method,
        (Kind::List(_), "copy" | "count" | "index") => Attribute::Method,
        // `{% set _ = items.append(x) %}` is a common idiom elsewhere. The immutable sandbox of transformers refuses
        // it.
        (Kind::List(_), "append" | "clear" | "extend" | "insert" | "pop" | "remove" | "reverse" | "sort") => {
            Attribute::Unsafe
        }
        (Kind::Tuple(_) | Kind::Range(..), "count" | "index") => Attribute::Method,
        (Kind::Loop(..), "cycle" | "changed") => Attribute::Method,
        (
            Kind::Int(..) | Kind::Bool(..) | Kind::Big(..),
            "as_integer_ratio" | "bit_count" | "bit_length" | "conjugate" | "denominator" | "from_bytes"
            | "imag" | "numerator" | "real" | "to_bytes",
        ) => Attribute::Method,
        (
            Kind::Float(..),
            "as_integer_ratio" | "conjugate" | "fromhex" | "hex" | "imag" | "is_integer" | "real",
        ) => Attribute::Method,
        (Kind::View(..), "isdisjoint" | "mapping") => Attribute::Method,
        (
            Kind::Macro(_),
            "name" | "arguments" | "catch_kwargs" | "catch_varargs" | "caller" | "explicit_caller",
        ) => Attribute::Method,
        _ => object_attribute(name),
    }
}

/// What `getattr` finds on any object.
/// `SandboxedEnvironment.is_safe_attribute` refuses all names that start with `_`; one that does not exist is undefined
/// instead.
fn object_attribute(name: &str) -> Attribute {
    match name {
        _ if !name.starts_with("__") => Attribute::None,
        "__class__" | "__contains__" | "__delattr__" | "__dir__" | "__doc__" | "__eq__" | "__format__"
        | "__ge__" | "__getattribute__" | "__getitem__" | "__gt__" | "__hash__" | "__init__"
        | "__init_subclass__" | "__iter__" | "__le__" | "__len__" | "__lt__" | "__ne__" | "__new__"
        | "__reduce__" | "__reduce_ex__" | "__repr__" | "__sizeof__" | "__str__" => Attribute::Unsafe,
        _ => Attribute::None,
    }
}
