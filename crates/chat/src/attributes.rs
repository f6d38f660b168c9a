//! What `getattr` finds on a value.

use crate::value::{Kind, Value};

/// What `getattr` finds on a value of a built-in type.
pub(crate) enum Attribute {
    None,
    Method,
    /// The sandbox returns an undefined value.
    Unsafe,
}

/// What `getattr` finds on a mapping.
pub(crate) fn map_attribute(name: &str) -> Attribute {
    match name {
        "copy" | "fromkeys" | "get" | "items" | "keys" | "values" => Attribute::Method,
        "clear" | "pop" | "popitem" | "setdefault" | "update" => Attribute::Unsafe,
        _ => object_attribute(name),
    }
}

pub(crate) fn attribute_kind(object: &Value, name: &str) -> Attribute {
    match (&object.0, name) {
        (Kind::Map(_), _) => map_attribute(name),
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
