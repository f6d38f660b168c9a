//! The image processor of a model, in the files that `transformers` reads: `processor_config.json` and
//! `preprocessor_config.json`. `tokenizer_config.json` may name its token, and `config.json` has the type of the model.

use std::path::Path;

use dsconvert_vision::{ModelFiles, Processor};
use serde::Deserialize;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::recipe::MultimodalRecipe;
use crate::source::io::planned::read_file;
use crate::storage::{folder_of, stat};
use crate::transform::text::Tokenizer;

/// Maximum size of a file, in bytes.
const MAX_BYTES: u64 = 4 << 20;

/// Resolves the processor beside the tokenizer at `path`, with the arguments of `recipe`. Without a path, the processor of
/// `recipe` is checked.
///
/// # Errors
///
/// If the files are missing or damaged, if the processor is unknown, or if it would not be obeyed.
pub(crate) fn find(
    path: Option<&Path>,
    tokenizer: &Tokenizer,
    recipe: &MultimodalRecipe,
) -> Result<Processor> {
    let args: Vec<(String, Value)> =
        recipe.image_arg.0.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let refused = |e: dsconvert_vision::Error| {
        let what = format!("the image processor of the model cannot be used: {e}");
        Error::usage(what).of_option("tokenizer").help(e.help())
    };
    let Some(path) = path else {
        return recipe.processor()?.clone().with_args(&args).map_err(refused);
    };
    let folder = folder_of(path);
    let read = |name: &str| json(&folder.join(name));
    let files = ModelFiles {
        processor: read("processor_config.json")?,
        preprocessor: read("preprocessor_config.json")?,
        tokenizer: read("tokenizer_config.json")?,
        model: read("config.json")?,
    };
    let id_of = |token: &str| added_token(tokenizer, token);
    Processor::resolve(&files, &args, id_of).map_err(|e| refused(e).at_path(folder))
}

/// The added tokens of a `tokenizer.json`.
#[derive(Deserialize)]
struct AddedTokens {
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
}

#[derive(Deserialize)]
#[serde(default)]
struct AddedToken {
    id: u32,
    content: String,
    lstrip: bool,
    rstrip: bool,
    single_word: bool,
}

impl Default for AddedToken {
    fn default() -> Self {
        Self { id: u32::MAX, content: String::new(), lstrip: false, rstrip: false, single_word: false }
    }
}

/// Returns the id of an added token that takes no text around it, so that a run of it is as many ids.
fn added_token(tokenizer: &Tokenizer, token: &str) -> Option<u32> {
    let json: AddedTokens = serde_json::from_slice(tokenizer.json()?).ok()?;
    let found = json.added_tokens.into_iter().find(|added| added.content == token)?;
    (!found.lstrip && !found.rstrip && !found.single_word).then_some(found.id)
}

/// Reads a JSON file; `None` if there is none.
fn json(path: &Path) -> Result<Option<Value>> {
    let Some(meta) = stat(path)? else { return Ok(None) };
    let damaged =
        |what: String| Error::usage(what).of_option("tokenizer").at_path(path).help("save the model again");
    if meta.len() > MAX_BYTES {
        return Err(damaged(format!("the file has more than {MAX_BYTES} bytes")));
    }
    let value = serde_json::from_slice(&read_file(path)?);
    value.map(Some).map_err(|e| damaged(format!("the file is not JSON: {e}")))
}
