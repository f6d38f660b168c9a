//! The Metaspace pre-tokenizer, as a `tokenizer.json` writes it.

use serde_json::Value;

use crate::outline::{METASPACE, type_of};

/// What it does to a text besides writing [`METASPACE`] for spaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Metaspace {
    pub(super) prefix: Prefix,
    /// Whether a text is cut before each space.
    pub(super) splits: bool,
}

/// Which texts between added tokens get a space before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Prefix {
    Never,
    /// Those that do not begin with one.
    Missing,
    /// The one at the beginning of the document, if it does not begin with one.
    MissingFirst,
}

impl Metaspace {
    /// As the reference reads it; `None` if `value` is another pre-tokenizer or writes something else for a space.
    pub(super) fn read(value: &Value) -> Option<Self> {
        if type_of(value) != Some("Metaspace") || !is_metaspace(value.get("replacement")) {
            return None;
        }
        let get = |name: &str| value.get(name).filter(|value| !value.is_null());
        let scheme = match get("prepend_scheme").map_or(Some("always"), Value::as_str)? {
            "always" => Prefix::Missing,
            "first" => Prefix::MissingFirst,
            "never" => Prefix::Never,
            _ => return None,
        };
        let has_prefix = get("add_prefix_space").map_or(Some(true), Value::as_bool)?;
        let splits = get("split").map_or(Some(true), Value::as_bool)?;
        Some(Self { prefix: if has_prefix { scheme } else { Prefix::Never }, splits })
    }
}

/// Whether this is [`METASPACE`] alone.
pub(super) fn is_metaspace(value: Option<&Value>) -> bool {
    value.and_then(Value::as_str).is_some_and(|text| text.chars().eq([METASPACE]))
}
