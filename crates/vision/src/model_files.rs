//! The files of a model from which a processor is resolved.

use serde_json::Value;

use crate::{Error, Family, known_classes};

/// The parsed files of a model folder, each `None` if the folder lacks it.
#[derive(Debug, Clone, Default)]
pub struct ModelFiles {
    /// `processor_config.json`.
    pub processor: Option<Value>,
    /// `preprocessor_config.json`.
    pub preprocessor: Option<Value>,
    /// `tokenizer_config.json`.
    pub tokenizer: Option<Value>,
    /// `config.json`.
    pub model: Option<Value>,
}

impl ModelFiles {
    /// Returns the parameters of the image processor: those nested in `processor_config.json` win over
    /// `preprocessor_config.json`, as in `transformers`.
    pub(crate) fn image_processor(&self) -> Result<&Value, Error> {
        let nested = self.processor.as_ref().and_then(|file| file.get("image_processor"));
        nested.or(self.preprocessor.as_ref()).ok_or_else(|| {
            Error::new(
                "the folder of the model has no parameters of an image processor",
                "add preprocessor_config.json or processor_config.json of the model",
            )
        })
    }

    /// Returns the type of the model, if there is a `config.json`.
    pub(crate) fn model_type(&self) -> Option<&str> {
        self.model.as_ref()?.get("model_type")?.as_str()
    }

    /// Returns the family of the processor.
    pub(crate) fn family(&self) -> Result<&'static Family, Error> {
        let files = [
            self.processor.as_ref(),
            self.preprocessor.as_ref(),
            self.tokenizer.as_ref(),
            self.model.as_ref(),
        ];
        let class = files.into_iter().flatten().find_map(|file| file.get("processor_class")?.as_str());
        let known = || format!("known are {}", known_classes());
        let family = match (class, self.model_type()) {
            (Some(class), _) => Family::of_class(class)
                .ok_or_else(|| Error::new(format!("unknown class of processors {class:?}"), known())),
            (None, Some(model)) => Family::of_model(model)
                .ok_or_else(|| Error::new(format!("unknown type of models {model:?}"), known())),
            (None, None) => Err(Error::new("the files of the model name no class of processors", known())),
        }?;
        if let Some(class) = self.image_processor()?.get("image_processor_type").and_then(Value::as_str) {
            let base = class.strip_suffix("Fast").or_else(|| class.strip_suffix("Pil")).unwrap_or(class);
            if base != family.image_processor_type {
                let what = format!(
                    "the image processor {class:?} does not belong to {}, which uses {}",
                    family.processor_class, family.image_processor_type
                );
                return Err(Error::new(what, known()));
            }
        }
        Ok(family)
    }

    /// Returns the token of images that the tokenizer names.
    pub(crate) fn image_token(&self) -> Option<&str> {
        let tokenizer = self.tokenizer.as_ref()?;
        let named = tokenizer
            .get("image_token")
            .or_else(|| tokenizer.get("extra_special_tokens")?.get("image_token"))?;
        named.as_str().or_else(|| named.get("content")?.as_str())
    }
}
