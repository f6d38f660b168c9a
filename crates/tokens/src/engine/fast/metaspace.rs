//! Parsing of the Metaspace pre-tokenizer in a `tokenizer.json`.

use serde_json::Value;

use crate::outline::{METASPACE, type_of};

/// Options of a Metaspace pre-tokenizer, which always replaces spaces by [`METASPACE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Metaspace {
    pub(super) prefix: Prefix,
    /// Whether a text is cut before each space.
    pub(super) splits: bool,
}

/// Selection of the texts between added tokens that get a space before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Prefix {
    Never,
    /// Texts that do not start with one.
    Missing,
    /// Only the text at the start of the document, if it does not start with one.
    MissingFirst,
}

impl Metaspace {
    /// Parses `value` like the reference. `None` if it is another pre-tokenizer or replaces spaces by something else.
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

/// Returns whether `value` is the string of [`METASPACE`] alone.
pub(super) fn is_metaspace(value: Option<&Value>) -> bool {
    value.and_then(Value::as_str).is_some_and(|text| text.chars().eq([METASPACE]))
}
