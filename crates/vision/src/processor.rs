//! The resolved parameters of a processor.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{Error, Family, ModelFiles};

/// Largest patch and largest number of patches on a side that are merged.
const MAX_SIDE: u64 = 1 << 10;

/// The parameters of the processor of one model. The default of a parameter is that of the class.
///
/// Images are always converted to RGB, resized, rescaled and normalized; a model whose files say otherwise is refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Processor {
    /// Name of the class of the processor.
    pub processor_class: String,
    /// Name of the class of the image processor, without the suffix of a backend.
    pub image_processor_type: String,
    /// Type of the model, if its folder names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_type: Option<String>,
    /// Side of a patch in pixels.
    pub patch_size: u32,
    /// Number of patches on each side of the square that becomes one token.
    pub merge_size: u32,
    /// Number of frames in a patch; an image is repeated.
    pub temporal_patch_size: u32,
    /// Images are enlarged to this number of pixels.
    pub min_pixels: u64,
    /// Images are shrunk to this number of pixels.
    pub max_pixels: u64,
    /// Filter of resizing, as Pillow numbers them: 3 is bicubic.
    pub resample: u32,
    /// Factor of the samples before normalization.
    pub rescale_factor: f64,
    /// Mean of each channel.
    pub image_mean: [f64; 3],
    /// Standard deviation of each channel.
    pub image_std: [f64; 3],
    /// Token that is repeated in place of an image.
    pub image_token: String,
    /// Id of that token.
    pub image_token_id: u32,
}

/// Parameters that must be true: nothing else is implemented.
const ALWAYS: [&str; 4] = ["do_resize", "do_rescale", "do_normalize", "do_convert_rgb"];
/// Parameters that must be false.
const NEVER: [&str; 2] = ["do_center_crop", "do_pad"];
/// Parameters without influence on the result: names of classes, layouts of arrays, devices, and parameters that the image
/// processors of the known families do not read.
const INERT: [&str; 14] = [
    "processor_class",
    "_processor_class",
    "image_processor_type",
    "feature_extractor_type",
    "auto_map",
    "data_format",
    "input_data_format",
    "return_tensors",
    "device",
    "disable_grouping",
    "default_to_square",
    "crop_size",
    "pad_size",
    "return_metadata",
];

impl Processor {
    /// Resolves the processor of a model from its files and from `args`, which win over the files: `min_pixels` and
    /// `max_pixels`. `id_of` returns the id of an added token of the tokenizer.
    ///
    /// # Errors
    ///
    /// [`Error`] if the class is unknown, if a parameter is invalid or would not be obeyed, or if the tokenizer lacks the
    /// token of images.
    pub fn resolve(
        files: &ModelFiles,
        args: &[(String, Value)],
        id_of: impl FnOnce(&str) -> Option<u32>,
    ) -> Result<Self, Error> {
        let family = files.family()?;
        let parameters = files.image_processor()?.as_object().ok_or_else(|| {
            Error::new(
                "the parameters of the image processor are not an object",
                "check the files of the model",
            )
        })?;
        let image_token = files.image_token().unwrap_or(family.image_token);
        let image_token_id = id_of(image_token).ok_or_else(|| {
            Error::new(
                format!("the tokenizer has no token {image_token:?}, which the processor writes in place of images"),
                "name the folder of the model that the processor belongs to",
            )
        })?;
        let mut processor = Self::default_of(family, image_token, image_token_id);
        processor.model_type = files.model_type().map(str::to_owned);
        processor.read_parameters(parameters)?;
        processor.with_args(args)
    }

    /// Sets `args`: `min_pixels` and `max_pixels`.
    ///
    /// # Errors
    ///
    /// [`Error`] if there is no such argument, or if a value is invalid.
    pub fn with_args(mut self, args: &[(String, Value)]) -> Result<Self, Error> {
        for (name, value) in args {
            match name.as_str() {
                "min_pixels" => self.min_pixels = whole(name, value, u64::MAX)?,
                "max_pixels" => self.max_pixels = whole(name, value, u64::MAX)?,
                _ => {
                    return Err(Error::new(
                        format!("unknown argument {name:?} of the image processor"),
                        "known are min_pixels and max_pixels; other parameters belong to the model",
                    ));
                }
            }
        }
        self.check()?;
        Ok(self)
    }

    /// Returns the processor of `family` with the parameters of its class.
    fn default_of(family: &Family, image_token: &str, image_token_id: u32) -> Self {
        Self {
            processor_class: family.processor_class.to_owned(),
            image_processor_type: family.image_processor_type.to_owned(),
            model_type: None,
            patch_size: 14,
            merge_size: 2,
            temporal_patch_size: 2,
            min_pixels: 56 * 56,
            max_pixels: 28 * 28 * 1280,
            resample: 3,
            rescale_factor: 1.0 / 255.0,
            image_mean: [0.481_454_66, 0.457_827_5, 0.408_210_73],
            image_std: [0.268_629_54, 0.261_302_58, 0.275_777_11],
            image_token: image_token.to_owned(),
            image_token_id,
        }
    }

    /// Takes over the parameters of the image processor. Those that are null are absent.
    fn read_parameters(&mut self, parameters: &Map<String, Value>) -> Result<(), Error> {
        let given = |name: &str| parameters.get(name).filter(|value| !value.is_null());
        if let Some(size) = given("size") {
            let edge = |name: &str| match size.get(name) {
                None | Some(Value::Null) => Ok(0),
                Some(value) => whole(&format!("size.{name}"), value, u64::MAX),
            };
            (self.min_pixels, self.max_pixels) = (edge("shortest_edge")?, edge("longest_edge")?);
            let members = size.as_object().into_iter().flatten();
            // A saved processor repeats its limits here.
            let known = ["shortest_edge", "longest_edge", "min_pixels", "max_pixels"];
            for (name, value) in members {
                let repeats =
                    matches!(name.as_str(), "shortest_edge" | "longest_edge") || given(name) == Some(value);
                if !value.is_null() && !(known.contains(&name.as_str()) && repeats) {
                    return Err(not_obeyed(&format!("size.{name}"), value));
                }
            }
        }
        for (name, value) in parameters {
            if value.is_null() {
                continue;
            }
            match name.as_str() {
                "size" => {}
                "patch_size" => self.patch_size = whole(name, value, MAX_SIDE)? as u32,
                "merge_size" => self.merge_size = whole(name, value, MAX_SIDE)? as u32,
                "temporal_patch_size" => self.temporal_patch_size = whole(name, value, 64)? as u32,
                "min_pixels" => self.min_pixels = whole(name, value, u64::MAX)?,
                "max_pixels" => self.max_pixels = whole(name, value, u64::MAX)?,
                "resample" if value.as_u64() == Some(3) => {}
                "rescale_factor" => {
                    self.rescale_factor = value
                        .as_f64()
                        .filter(|factor| *factor > 0.0)
                        .ok_or_else(|| not_obeyed(name, value))?;
                }
                "image_mean" => self.image_mean = channels(name, value)?,
                "image_std" => self.image_std = channels(name, value)?,
                always if ALWAYS.contains(&always) && value == true => {}
                never if NEVER.contains(&never) && value == false => {}
                inert if INERT.contains(&inert) => {}
                _ => return Err(not_obeyed(name, value)),
            }
        }
        Ok(())
    }

    /// Refuses parameters with which no image can be planned.
    fn check(&self) -> Result<(), Error> {
        for (name, value) in [("min_pixels", self.min_pixels), ("max_pixels", self.max_pixels)] {
            if value == 0 {
                return Err(Error::new(
                    format!("the image processor has no {name}"),
                    "give it as an argument, such as max_pixels=1003520",
                ));
            }
        }
        if self.min_pixels > self.max_pixels {
            let what = format!("min_pixels {} is above max_pixels {}", self.min_pixels, self.max_pixels);
            return Err(Error::new(what, "give both limits"));
        }
        if self.image_std.contains(&0.0) {
            return Err(Error::new("a standard deviation of image_std is 0", "check the files of the model"));
        }
        Ok(())
    }

    /// Returns the first parameter that differs from that of `other`, with both values.
    pub fn difference(&self, other: &Self) -> Option<(String, Value, Value)> {
        let values = |processor: &Self| match serde_json::to_value(processor) {
            Ok(Value::Object(values)) => values,
            _ => Map::new(),
        };
        let (own, others) = (values(self), values(other));
        let value =
            |values: &Map<String, Value>, name: &String| values.get(name).cloned().unwrap_or_default();
        let mut names = own.keys().chain(others.keys());
        let name = names.find(|name| value(&own, name) != value(&others, name))?;
        Some((name.clone(), value(&own, name), value(&others, name)))
    }

    /// Returns an error with the reason if documents of this model cannot share a packed row.
    ///
    /// # Errors
    ///
    /// [`Error`] if the type of the model is unknown, or if its layers would mix the documents.
    pub fn check_packing(&self) -> Result<(), Error> {
        let family = Family::of_class(&self.processor_class);
        match &self.model_type {
            Some(model) if family.is_some_and(|family| family.packing_models.contains(&model.as_str())) => {
                Ok(())
            }
            Some(model) if family.is_some_and(|family| family.other_models.contains(&model.as_str())) => {
                Err(Error::new(
                    format!(
                        "the linear attention of models of the type {model:?} mixes the documents of a packed row"
                    ),
                    "leave out packing: each chat is a record of its own",
                ))
            }
            Some(model) => Err(Error::new(
                format!(
                    "models of the type {model:?} are not known to keep the documents of a packed row apart"
                ),
                "leave out packing: each chat is a record of its own",
            )),
            None => Err(Error::new(
                "the folder of the model has no config.json, so it is unknown whether the model keeps packed documents apart",
                "add the config.json of the model to its folder",
            )),
        }
    }

    /// Returns the processor of Qwen2.5-VL as published, for tests.
    #[doc(hidden)]
    pub fn qwen2_5_vl() -> Self {
        Self {
            processor_class: "Qwen2_5_VLProcessor".to_owned(),
            image_processor_type: "Qwen2VLImageProcessor".to_owned(),
            model_type: Some("qwen2_5_vl".to_owned()),
            patch_size: 14,
            merge_size: 2,
            temporal_patch_size: 2,
            min_pixels: 3136,
            max_pixels: 12_845_056,
            resample: 3,
            rescale_factor: 1.0 / 255.0,
            image_mean: [0.481_454_66, 0.457_827_5, 0.408_210_73],
            image_std: [0.268_629_54, 0.261_302_58, 0.275_777_11],
            image_token: "<|image_pad|>".to_owned(),
            image_token_id: 151_655,
        }
    }

    /// Returns the processor of Qwen3-VL as published, for tests.
    #[doc(hidden)]
    pub fn qwen3_vl() -> Self {
        Self {
            processor_class: "Qwen3VLProcessor".to_owned(),
            model_type: Some("qwen3_vl".to_owned()),
            patch_size: 16,
            min_pixels: 65_536,
            max_pixels: 16_777_216,
            image_mean: [0.5; 3],
            image_std: [0.5; 3],
            ..Self::qwen2_5_vl()
        }
    }
}

impl fmt::Display for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { processor_class, image_processor_type, patch_size, merge_size, .. } = self;
        write!(f, "{processor_class} with {image_processor_type}")?;
        if let Some(model) = &self.model_type {
            write!(f, " of {model}")?;
        }
        let (min, max, token) = (self.min_pixels, self.max_pixels, &self.image_token);
        let side = patch_size * merge_size;
        write!(
            f,
            ": {min} to {max} pixels, {side}×{side} for each token {token} ({merge_size}×{merge_size} patches)"
        )
    }
}

/// Returns a positive whole number of at most `max`.
fn whole(name: &str, value: &Value, max: u64) -> Result<u64, Error> {
    value.as_u64().filter(|number| (1..=max).contains(number)).ok_or_else(|| {
        Error::new(
            format!("the value {value} of {name:?} is not a whole number of at least 1"),
            "check its spelling",
        )
    })
}

/// Returns a number per channel: one number is that of all.
fn channels(name: &str, value: &Value) -> Result<[f64; 3], Error> {
    if let Some(number) = value.as_f64() {
        return Ok([number; 3]);
    }
    let numbers: Option<Vec<f64>> =
        value.as_array().and_then(|values| values.iter().map(Value::as_f64).collect());
    numbers.and_then(|numbers| numbers.try_into().ok()).ok_or_else(|| not_obeyed(name, value))
}

fn not_obeyed(name: &str, value: &Value) -> Error {
    Error::new(
        format!("the value {value} of the parameter {name:?} of the image processor cannot be obeyed"),
        "the images of such a model cannot be prepared; remove the parameter only if the model was trained without it",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn resolve(files: &ModelFiles, args: &[(String, Value)]) -> Result<Processor, Error> {
        Processor::resolve(files, args, |token| (token == "<|image_pad|>").then_some(151_655))
    }

    /// The files of Qwen2.5-VL.
    fn qwen2_5_vl() -> ModelFiles {
        let preprocessor = json!({
            "min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2,
            "image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711],
            "image_processor_type": "Qwen2VLImageProcessor", "processor_class": "Qwen2_5_VLProcessor",
        });
        let model = Some(json!({"model_type": "qwen2_5_vl"}));
        ModelFiles { preprocessor: Some(preprocessor), model, ..ModelFiles::default() }
    }

    /// The files of Qwen3-VL, saved by a recent version: parameters are nested, and most are null.
    fn qwen3_vl() -> ModelFiles {
        let processor = json!({
            "image_processor": {
                "size": {"longest_edge": 16777216, "shortest_edge": 65536}, "patch_size": 16, "temporal_patch_size": 2,
                "merge_size": 2, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "crop_size": null,
                "image_processor_type": "Qwen2VLImageProcessorFast", "do_resize": true, "do_center_crop": null,
                "resample": 3, "rescale_factor": 0.00392156862745098,
            },
            "processor_class": "Qwen3VLProcessor",
        });
        let model = Some(json!({"model_type": "qwen3_vl"}));
        // The nested parameters win.
        let preprocessor = Some(json!({"patch_size": 99}));
        ModelFiles { processor: Some(processor), preprocessor, model, ..ModelFiles::default() }
    }

    #[test]
    fn published_files_are_resolved() {
        let (qwen25, qwen3) = (resolve(&qwen2_5_vl(), &[]).unwrap(), resolve(&qwen3_vl(), &[]).unwrap());
        assert_eq!(qwen25, Processor::qwen2_5_vl());
        assert_eq!(qwen3, Processor::qwen3_vl());
        assert_eq!(
            qwen3.to_string(),
            "Qwen3VLProcessor with Qwen2VLImageProcessor of qwen3_vl: 65536 to 16777216 pixels, 32×32 for each token \
             <|image_pad|> (2×2 patches)"
        );
        for processor in [qwen25, qwen3] {
            let json = serde_json::to_string(&processor).unwrap();
            assert_eq!(serde_json::from_str::<Processor>(&json).unwrap(), processor);
            assert!(processor.check_packing().is_ok());
            let hybrid = Processor { model_type: Some("qwen3_5".to_owned()), ..Processor::qwen3_vl() };
            assert!(hybrid.check_packing().unwrap_err().what().contains("linear attention"));
            assert!(Processor { model_type: None, ..processor }.check_packing().is_err());
        }
    }

    #[test]
    fn a_difference_has_both_values() {
        let own = Processor::qwen2_5_vl();
        assert_eq!(own.difference(&own.clone()), None);
        let other = Processor { max_pixels: 7, ..own.clone() };
        assert_eq!(own.difference(&other), Some(("max_pixels".to_owned(), json!(12_845_056), json!(7))));
        let other = Processor { model_type: None, ..own.clone() };
        assert_eq!(other.difference(&own), Some(("model_type".to_owned(), Value::Null, json!("qwen2_5_vl"))));
    }

    #[test]
    fn limits_win_over_the_size_and_arguments_over_both() {
        let mut files = qwen3_vl();
        files.processor.as_mut().unwrap()["image_processor"]["max_pixels"] = 1_003_520.into();
        let limits = |args: &[(String, Value)]| {
            let processor = resolve(&files, args).unwrap();
            (processor.min_pixels, processor.max_pixels)
        };
        assert_eq!(limits(&[]), (65_536, 1_003_520));
        assert_eq!(limits(&[("max_pixels".to_owned(), 70_000.into())]), (65_536, 70_000));
        for wrong in [
            ("max_pixels", json!(0)),
            ("max_pixels", json!("x")),
            ("patch_size", json!(14)),
            ("max_pixels", json!(5)),
        ] {
            assert!(resolve(&files, &[(wrong.0.to_owned(), wrong.1)]).is_err());
        }
        // The defaults of the class, where the files name no limits.
        let files = ModelFiles {
            preprocessor: Some(json!({"processor_class": "Qwen2VLProcessor"})),
            ..ModelFiles::default()
        };
        let processor = resolve(&files, &[]).unwrap();
        assert_eq!((processor.min_pixels, processor.max_pixels), (3136, 1_003_520));
    }

    #[test]
    fn what_cannot_be_obeyed_is_refused() {
        let refused = |name: &str, value: Value| {
            let mut files = qwen2_5_vl();
            files.preprocessor.as_mut().unwrap()[name] = value;
            resolve(&files, &[]).unwrap_err()
        };
        let unknown = refused("processor_class", "Gemma3Processor".into());
        assert!(unknown.what().contains("Gemma3Processor") && unknown.help().contains("Qwen3VLProcessor"));
        for (name, value) in [
            ("image_processor_type", json!("Gemma3ImageProcessor")),
            ("do_resize", json!(false)),
            ("do_normalize", json!(false)),
            ("do_center_crop", json!(true)),
            ("resample", json!(2)),
            ("crop_to_patches", json!(true)),
            ("size", json!({"height": 224, "width": 224})),
            ("patch_size", json!(0)),
            ("image_std", json!([0.0, 1.0, 1.0])),
            ("image_mean", json!([0.5])),
        ] {
            refused(name, value);
        }
        let files = qwen2_5_vl();
        let none = Processor::resolve(&files, &[], |_| None).unwrap_err();
        assert!(none.what().contains("<|image_pad|>"));
        assert!(resolve(&ModelFiles::default(), &[]).is_err());
    }

    #[test]
    fn the_tokenizer_may_name_the_token() {
        let mut files = qwen2_5_vl();
        for named in [
            json!({"image_token": "<img>"}),
            json!({"extra_special_tokens": {"image_token": {"content": "<img>"}}}),
        ] {
            files.tokenizer = Some(named);
            let processor = Processor::resolve(&files, &[], |token| (token == "<img>").then_some(7)).unwrap();
            assert_eq!((processor.image_token.as_str(), processor.image_token_id), ("<img>", 7));
        }
    }
}
