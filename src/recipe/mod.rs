//! The recipe of a conversion: every option that affects the dataset, in one struct per kind of conversion.
//!
//! The command line sets a recipe through its definitions, and `--like` and `inspect --recipe` show it with them. Its
//! serde form is that of the member `options` of a manifest and of stored jobs. Where planning replaces an option by what
//! it finds, such as the fields of samples, the manifest has a recipe with these values; facts that are no options, such
//! as the hash of the tokenizer, are added to it.

mod images;
mod text;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

pub use self::images::{Dedup, ImageFields, ImagesRecipe, ListedImage, Sidecars};
pub(crate) use self::images::{is_built_in, is_reserved};
pub use self::text::{DEFAULT_MAX_DOCUMENT_BYTES, DEFAULT_TEXT_FIELD};
pub use self::text::{InvalidUtf8, LengthRange, MAX_PACK_TOKENS, Overflow, TextDedup, TextRecipe, TextShape};
use crate::error::{Error, ErrorKind, Result};
use crate::manifest::Manifest;
use crate::options::Defined;
use crate::schema::Kind;
use crate::source::metadata::Keep;

/// Every option of one kind of conversion that affects the dataset.
pub trait Recipe: Defined + Default + Clone + PartialEq + Serialize + DeserializeOwned + 'static {
    /// The kind of conversion.
    const KIND: Kind;
    /// The order of the options, and of the facts among them, in the manifests of the first datasets: fingerprints depend
    /// on it. Later options follow in the order of their definition, so nothing is ever added here.
    const FIRST: &'static [&'static str];

    /// Separates the facts in the options of a manifest from those of the recipe, and returns how files were found.
    fn take_facts(&mut self, facts: Map<String, Value>) -> Result<RecordedInput>;

    /// Names of the members of a manifest's options that are facts or have another form than in the recipe.
    const FACTS: &'static [&'static str];
}

/// How the files of a dataset were found, as its manifest records it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordedInput {
    /// The sources were walked.
    Walk,
    /// The sources were walked, and no metadata file beside the images named them.
    WalkOnly,
    /// A list named the files.
    FilesFrom,
    /// The rows of a table named the files.
    Table {
        /// Name of the path column.
        path_field: String,
        /// Columns that became fields; `None`: all.
        keep_fields: Option<Vec<Keep>>,
    },
    /// The source was standard input.
    Stdin,
}

/// The recipe of an existing dataset.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded<R> {
    /// Its options, with what planning found in place of `auto`.
    pub recipe: R,
    /// How its files were found.
    pub input: RecordedInput,
}

impl<R: Recipe> Recorded<R> {
    /// Reads the recipe of the dataset with this manifest.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`] if the dataset is of another kind; [`ErrorKind::Unsupported`] if this build does not have one of
    /// its options, or cannot read a value.
    pub fn of(manifest: &Manifest) -> Result<Self> {
        if manifest.kind() != R::KIND {
            let (found, wanted) = (manifest.kind().name(), R::KIND.name());
            return Err(Error::usage(format!("the dataset holds {found}, not {wanted}"))
                .help(format!("convert with `dsconvert {found}`")));
        }
        let Value::Object(options) = &manifest.options else {
            return Err(Error::new(ErrorKind::Unsupported, "the options in the manifest are no object"));
        };
        let is_fact = |name: &str| R::FACTS.contains(&name);
        let (facts, options): (Map<_, _>, Map<_, _>) =
            options.clone().into_iter().partition(|(name, _)| is_fact(name));
        let mut recipe: R = read(options)?;
        let input = recipe.take_facts(facts)?;
        Ok(Self { recipe, input })
    }
}

/// Reads options; an error names the first one that cannot be read.
fn read<R: DeserializeOwned>(options: Map<String, Value>) -> Result<R> {
    let parse = |options: Value| serde_json::from_value::<R>(options);
    parse(Value::Object(options.clone())).map_err(|error| {
        let of_group = |(group, members): (&String, &Value)| -> Vec<(String, Value)> {
            let inside = |(name, value): (&String, &Value)| {
                (name.clone(), serde_json::json!({ group: { name: value } }))
            };
            match members {
                Value::Object(members) => members.iter().map(inside).collect(),
                value => vec![(group.clone(), serde_json::json!({ group: value }))],
            }
        };
        let wrong = options
            .iter()
            .flat_map(of_group)
            .find_map(|(name, alone)| parse(alone).err().map(|error| (name, error)));
        let (name, error) = wrong.unwrap_or_else(|| (String::new(), error));
        match error.to_string().starts_with("unknown field") {
            true => {
                not_recorded(format!("it was made with the option {name:?}, which this build does not have"))
            }
            false => unexpected_value(&name).caused_by(error),
        }
    })
}

fn unexpected_value(option: &str) -> Error {
    not_recorded(format!("the manifest has an unexpected value of the option {option:?}"))
}

/// Returns the error for a recipe that the manifest does not have completely.
fn not_recorded(why: String) -> Error {
    Error::new(ErrorKind::Unsupported, why)
}

/// Returns the options as the manifest has them: those of `recipe`, and `facts`.
pub(crate) fn described<R: Recipe>(recipe: &R, facts: Vec<(&'static str, Value)>) -> Result<Value> {
    let recipe = serde_json::to_value(recipe).map_err(|e| Error::not_serialized("the options", e))?;
    let Value::Object(mut all) = recipe else { return Err(Error::internal("a recipe is no object")) };
    all.extend(facts.into_iter().map(|(name, value)| (name.to_owned(), value)));
    let mut ordered = Map::new();
    for name in R::FIRST {
        // Keeps the order of the rest.
        ordered.extend(all.shift_remove_entry(*name));
    }
    ordered.append(&mut all);
    Ok(Value::Object(ordered))
}
