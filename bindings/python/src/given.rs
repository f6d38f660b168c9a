//! The options that a caller passed, and the conditions under which each option applies.

use dsconvert::error::{Error, Result};
use dsconvert::reader::RecordSource;
use dsconvert::reader::loader::{ATTENTION_MASK, LENGTHS, POSITION_IDS, SOURCE, VALID};
use dsconvert::schema::{ASSISTANT_MASKS, CU_SEQLENS, INPUT_IDS, Kind, Schema};
use dsconvert::suggest::did_you_mean;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Name of an option, its default as JSON, its allowed values, and the reasons why it may not apply.
pub(crate) type OptionInfo = (&'static str, String, String, Vec<&'static str>);

/// Condition under which an option applies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Condition {
    holds: fn(&Given<'_>) -> bool,
    /// Why an option does not apply if the condition does not hold.
    reason: &'static str,
    help: Option<&'static str>,
}

const fn condition(reason: &'static str, holds: fn(&Given<'_>) -> bool) -> Condition {
    Condition { holds, reason, help: None }
}

pub(crate) const LOADER: Condition =
    condition("it is an option of Loader only", |given| given.source.is_some());
pub(crate) const TEXT: Condition = condition("the dataset holds images", |given| {
    given.schema().is_none_or(|schema| schema.holds_token_ids() || schema.holds_completions())
});
pub(crate) const PAIRS: Condition = condition("the records are not preference pairs", |given| {
    given.schema().is_none_or(|schema| schema.completions().len() > 1)
});
pub(crate) const IMAGES: Condition =
    condition("the dataset holds text", |given| given.schema().is_none_or(Schema::holds_images));
pub(crate) const CHAT_IMAGES: Condition = condition("the records are no chats with images", |given| {
    given.schema().is_some_and(Schema::holds_multimodal)
});
pub(crate) const STORED_PACKED: Condition = condition("the records are not packed", |given| {
    given.source.is_some_and(|source| source.properties().packed_length.is_some())
});
pub(crate) const ASSEMBLED: Condition = Condition {
    help: Some("do it in transform or batch_transform, or leave out transform"),
    ..condition("with transform, the function determines the contents of a batch", |given| given.assemble)
};
pub(crate) const PACKED: Condition = condition("it needs seq_len", |given| given.has("seq_len"));
pub(crate) const UNPACKED: Condition =
    condition("with seq_len, rows are packed", |given| !given.has("seq_len"));
pub(crate) const BUDGET: Condition =
    condition("it needs a token budget, max_tokens, max_tokens_unpadded or max_pixels", |given| {
        let budgets = ["max_tokens", "max_tokens_unpadded", "max_pixels"];
        !given.has("batch_size") || budgets.iter().any(|name| given.has(name))
    });
pub(crate) const BOUNDED: Condition =
    condition("it needs a token budget, max_tokens, max_tokens_unpadded or seq_len", |given| {
        ["max_tokens", "max_tokens_unpadded", "seq_len"].iter().any(|name| given.has(name))
    });
pub(crate) const PADDED: Condition =
    condition("with max_tokens_unpadded, nothing is padded", |given| !given.has("max_tokens_unpadded"));
pub(crate) const NOT_FLASH: Condition =
    condition("with packed=\"flash\", nothing is padded", |given| !given.is("packed", "flash"));
pub(crate) const BY_LENGTH: Condition =
    condition("it needs bucket=\"length\"", |given| !given.has("bucket") || given.is("bucket", "length"));
pub(crate) const GEOMETRIC: Condition =
    condition("it needs bucket=\"geometric\"", |given| given.is("bucket", "geometric"));
pub(crate) const WINDOWS: Condition =
    condition("it needs bucket=\"windows\"", |given| given.is("bucket", "windows"));
pub(crate) const BLOCKS: Condition =
    condition("it needs shuffle=\"block\"", |given| given.is("shuffle", "block"));
pub(crate) const DECODED: Condition =
    condition("with decode=False, images are returned as they are stored", |given| {
        !given.is("decode", false)
    });
pub(crate) const NOT_PLANES: Condition =
    condition("with color=\"yuv\", images are returned as planes", |given| !given.is("color", "yuv"));
pub(crate) const PICTURES: Condition = condition("fields has no image", |given| {
    given.has_entry(|schema, name| {
        let field = schema.fields.iter().find(|field| field.name == name);
        field.map_or(![SOURCE, VALID].contains(&name), |field| field.ty.is_image_file())
    })
});
pub(crate) const MIRRORED: Condition = condition("fields has no image", |given| {
    let added = given.source.map(|source| source.properties().added).unwrap_or_default();
    let has_twin = |name: &str| added.get(name).is_some_and(|added| added.bound.flip.is_some());
    (PICTURES.holds)(given) || given.has_entry(|_, name| has_twin(name))
});
pub(crate) const TOKENS: Condition = condition("fields has no token ids, labels or masks", |given| {
    given.has_entry(|schema, name| match schema.index_of(name) {
        Some(_) => [INPUT_IDS, ASSISTANT_MASKS].contains(&name),
        None => ![LENGTHS, SOURCE, VALID].contains(&name),
    })
});
pub(crate) const LABELED: Condition = condition("fields has no labels", |given| {
    // `totals` counts the labels of packed rows, even if a batch has none.
    given.has("seq_len")
        || given.has_entry(|schema, name| {
            let others = [ATTENTION_MASK, CU_SEQLENS, LENGTHS, POSITION_IDS, SOURCE, VALID];
            schema.index_of(name).is_none() && !others.contains(&name)
        })
});
pub(crate) const RANDOM_CROP: Condition =
    condition("it needs random_resized_crop", |given| given.has("random_resized_crop"));

/// The options that the caller passed, and the loader or sampler that they are for.
#[derive(Debug)]
pub(crate) struct Given<'a> {
    values: Map<String, Value>,
    /// What a loader reads, or `None` for a sampler.
    source: Option<&'a dyn RecordSource>,
    /// Whether the loader assembles batches itself.
    assemble: bool,
}

impl<'a> Given<'a> {
    /// Parses the options in a JSON object.
    pub(crate) fn parse(json: &str, source: Option<&'a dyn RecordSource>, assemble: bool) -> Result<Self> {
        let values = serde_json::from_str(json)
            .map_err(|e| Error::usage("the options are not a JSON object").caused_by(e))?;
        Ok(Self { values, source, assemble })
    }

    /// Rejects options that are not among `names`.
    pub(crate) fn check_names(&self, names: &[&str]) -> Result<()> {
        match self.values.keys().find(|name| !names.contains(&name.as_str())) {
            Some(name) => {
                let error = Error::usage(format!("unknown option {name}"));
                Err(with_help(error, did_you_mean(name, names)))
            }
            None => Ok(()),
        }
    }

    /// Returns the value of the option `name`, or `default` if it was not given. An option that does not apply and a
    /// value of the wrong type are usage errors.
    pub(crate) fn value<T: DeserializeOwned>(
        &self,
        name: &str,
        conditions: &[Condition],
        default: T,
    ) -> Result<T> {
        let Some(value) = self.values.get(name) else { return Ok(default) };
        if let Some(condition) = conditions.iter().find(|condition| !(condition.holds)(self)) {
            let reason = match self.schema() {
                // Neither text nor images.
                Some(schema)
                    if schema.kind == Kind::Records
                        && [TEXT.reason, IMAGES.reason].contains(&condition.reason) =>
                {
                    "the dataset holds records"
                }
                _ => condition.reason,
            };
            let error = Error::usage(format!("{name} does not apply: {reason}"));
            return Err(with_help(error, condition.help.map(str::to_owned)));
        }
        T::deserialize(value).map_err(|_| {
            let expected = expected::<T>();
            let words: Vec<&str> = expected.split('"').skip(1).step_by(2).collect();
            let error = Error::usage(format!("{name} cannot be {value}: expected {expected}"));
            with_help(error, value.as_str().and_then(|word| did_you_mean(word, &words)))
        })
    }

    /// Returns the definition of an option, for the table.
    pub(crate) fn info<T: DeserializeOwned + Serialize>(
        name: &'static str,
        conditions: &[Condition],
        default: T,
    ) -> OptionInfo {
        let default = serde_json::to_string(&default).unwrap_or_default();
        (name, default, expected::<T>(), conditions.iter().map(|condition| condition.reason).collect())
    }

    /// Returns whether the option `name` was given.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    fn is(&self, name: &str, value: impl Into<Value>) -> bool {
        self.values.get(name) == Some(&value.into())
    }

    /// Returns whether `fields`, if given, has a name for which `is_affected` holds. Names that nothing has are refused
    /// later, so it should hold for them.
    fn has_entry(&self, is_affected: impl Fn(&Schema, &str) -> bool) -> bool {
        let (Some(source), Some(Value::Array(names))) = (self.source, self.values.get("fields")) else {
            return true;
        };
        names.iter().any(|name| name.as_str().is_none_or(|name| is_affected(source.schema(), name)))
    }

    fn schema(&self) -> Option<&Schema> {
        self.source.map(|source| source.schema())
    }
}

fn with_help(error: Error, help: Option<String>) -> Error {
    match help {
        Some(help) => error.help(help),
        None => error,
    }
}

/// Describes the values that a type allows, as serde does in the error for a value of another type.
fn expected<T: DeserializeOwned>() -> String {
    let error = T::deserialize(&Value::from("")).err().map(|error| error.to_string()).unwrap_or_default();
    match error.split_once("expected ").map_or("", |(_, expected)| expected) {
        "u32" => format!("an integer from 0 to {}", u32::MAX),
        "u64" | "usize" => "an integer from 0".to_owned(),
        "f64" => "a number".to_owned(),
        "a tuple of size 2" => "two numbers".to_owned(),
        "a sequence" => "a list of names".to_owned(),
        words => words.replace('`', "\""),
    }
}
