//! The processor of a model that a loader compares with that of its dataset.

use dsconvert::error::{Error, Result};
use dsconvert::reader::RecordSource;
use dsconvert_vision::{ModelFiles, Processor};
use serde::Deserialize;
use serde_json::{Value, json};

/// The files of a model, or what an object of `transformers` would save.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GivenProcessor {
    processor: Option<Value>,
    preprocessor: Option<Value>,
    tokenizer: Option<Value>,
    model: Option<Value>,
    /// Id of the token of images, if it is known.
    image_token_id: Option<u32>,
}

/// Returns the processor that `json` describes. What it leaves out is that of `source`.
pub(crate) fn processor_of(json: &str, source: &dyn RecordSource) -> Result<Processor> {
    let mut given: GivenProcessor = serde_json::from_str(json)
        .map_err(|e| Error::usage("processor is neither a folder nor a processor").caused_by(e))?;
    let own = source.properties().vision;
    if own.is_none() {
        return Err(Error::usage("processor does not apply: the records are no chats with images"));
    }
    let named = [&given.processor, &given.preprocessor, &given.tokenizer, &given.model];
    let has_class = |file: &&Value| file.get("processor_class").is_some_and(Value::is_string);
    if let Some(own) = &own {
        if !named.into_iter().flatten().any(|file| has_class(&file)) && given.model.is_none() {
            given.processor.get_or_insert_with(|| json!({}))["processor_class"] =
                own.processor_class.as_str().into();
        }
        if given.tokenizer.is_none() {
            given.tokenizer = Some(json!({"image_token": own.image_token}));
        }
    }
    let GivenProcessor { processor, preprocessor, tokenizer, model, image_token_id } = given;
    let files = ModelFiles { processor, preprocessor, tokenizer, model };
    let known = image_token_id.or(own.as_ref().map(|own| own.image_token_id));
    let mut resolved = Processor::resolve(&files, &[], |_| known)
        .map_err(|error| Error::usage(format!("processor: {error}")).help(error.help().to_owned()))?;
    if resolved.model_type.is_none() {
        resolved.model_type = own.and_then(|own| own.model_type);
    }
    Ok(resolved)
}
