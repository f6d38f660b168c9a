//! The known families of processors: one row per class of processors.

/// Class of the image processors of Qwen models, without the suffix of a backend.
const QWEN_IMAGES: &str = "Qwen2VLImageProcessor";

/// A class of processors, the image processor that it uses, and the types of models that have it.
#[derive(Debug, PartialEq, Eq)]
pub struct Family {
    /// Name of the class in `transformers`.
    pub processor_class: &'static str,
    /// Name of the class of its image processor, without `Fast` or `Pil`.
    pub image_processor_type: &'static str,
    /// Token in place of which the tokens of an image are written, unless the tokenizer names another.
    pub image_token: &'static str,
    /// Types of models that keep the documents of a packed row apart, given position ids per document.
    pub packing_models: &'static [&'static str],
    /// Types of models that do not.
    pub other_models: &'static [&'static str],
}

const FAMILIES: [Family; 3] = [
    Family {
        processor_class: "Qwen2VLProcessor",
        image_processor_type: QWEN_IMAGES,
        image_token: "<|image_pad|>",
        packing_models: &["qwen2_vl"],
        other_models: &[],
    },
    Family {
        processor_class: "Qwen2_5_VLProcessor",
        image_processor_type: QWEN_IMAGES,
        image_token: "<|image_pad|>",
        packing_models: &["qwen2_5_vl"],
        other_models: &[],
    },
    Family {
        processor_class: "Qwen3VLProcessor",
        image_processor_type: QWEN_IMAGES,
        image_token: "<|image_pad|>",
        packing_models: &["qwen3_vl", "qwen3_vl_moe"],
        // Their linear attention has a state that passes from one document of a row to the next.
        other_models: &["qwen3_5", "qwen3_5_moe", "qwen4_exp"],
    },
];

impl Family {
    /// Returns the family of the class `processor_class`.
    pub fn of_class(processor_class: &str) -> Option<&'static Self> {
        FAMILIES.iter().find(|family| family.processor_class == processor_class)
    }

    /// Returns the family of models of `model_type`.
    pub fn of_model(model_type: &str) -> Option<&'static Self> {
        FAMILIES.iter().find(|family| family.has_model(model_type))
    }

    /// Returns whether models of `model_type` have this processor.
    pub fn has_model(&self, model_type: &str) -> bool {
        self.packing_models.contains(&model_type) || self.other_models.contains(&model_type)
    }
}

/// Returns the names of the known classes of processors, for messages.
pub fn known_classes() -> String {
    FAMILIES.map(|family| family.processor_class).join(", ")
}
