//! The options of chats with images.

use dsconvert_vision::Processor;

use super::TemplateArgs;
use super::chat::NO_FIELD;
use crate::error::{Error, Result};
use crate::options::{as_text, is_default, options, word_values};
use crate::source::items::text::fields::JsonMember;

options! {
    /// Every option of chats with images that affects the dataset.
    pub struct MultimodalRecipe {
        "Images of chats" {
            /// Field with the images of a chat: one or a list of paths, bytes or data URIs; none: they are only in messages
            ///
            /// The folder of --tokenizer has the processor of the model: preprocessor_config.json or processor_config.json. Images
            /// fill the image parts of messages, or the strings <image>, in order; without any, they are before the first text of
            /// the user. Paths are relative to the folder of the file, and stay inside the source.
            [serde(skip_serializing_if = "is_default")]
            images_field: Option<String> = None, "NAME", requires = Some("messages_field");

            /// Parameter of the image processor that replaces that of the model: min_pixels or max_pixels
            [serde(skip_serializing_if = "is_default")]
            image_arg: TemplateArgs = TemplateArgs::default(), "NAME=VALUE", requires = Some("images_field");

            /// How images are stored: as they are, or resized to what the processor makes of them
            [serde(with = "as_text", skip_serializing_if = "is_default")]
            images: StoredImages = StoredImages::default(), "HOW", requires = Some("images_field");
        }
        groups {}
        values {
            /// The resolved processor. The command line reads it from the files of the model.
            [serde(skip_serializing_if = "is_default")] vision: Option<Processor> = None;
        }
    }
}

/// How images of chats are stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StoredImages {
    /// The file as it is, unless it must be turned upright or its type is not stored.
    #[default]
    Keep,
    /// Resized to the size that the processor gives it, where this saves a quarter of the pixels.
    Fit,
}

word_values! {
    StoredImages {
        Keep = "keep", "As they are; images that are not upright, or of a type that is not stored, are encoded again";
        Fit = "fit", "Resized to the size of the processor, if that has less than 75% of the pixels";
    }
}

impl MultimodalRecipe {
    /// Returns whether chats may have images.
    pub fn is_given(&self) -> bool {
        self.images_field.is_some()
    }

    /// Returns the field with the images of a chat, if there is one beside the messages.
    pub(super) fn member(&self) -> Option<JsonMember> {
        let field = self.images_field.clone().filter(|name| name != NO_FIELD)?;
        Some(JsonMember {
            name: "images",
            field,
            option: "images_field",
            is_required: false,
            is_named: true,
            is_nested: false,
        })
    }

    /// Refuses options that contradict each other.
    pub(super) fn check(&self, has_messages: bool) -> Result<()> {
        if self.is_given() && !has_messages {
            return Err(Error::usage("`images_field` applies only to chats")
                .help("name the field with the messages with `messages_field`"));
        }
        let given = [
            ("image_arg", self.image_arg != TemplateArgs::default()),
            ("images", self.images != StoredImages::default()),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given && !self.is_given()) {
            Some((name, _)) => Err(Error::usage(format!("`{name}` applies only to chats with images"))
                .help("name the field with the images with `images_field`")),
            None => Ok(()),
        }
    }

    /// Returns the processor.
    ///
    /// # Errors
    ///
    /// If it was not resolved.
    pub(crate) fn processor(&self) -> Result<&Processor> {
        self.vision.as_ref().ok_or_else(|| {
            Error::usage("chats with images need the processor of the model").of_option("tokenizer").help(
                "name the folder of the model, with tokenizer.json and preprocessor_config.json or processor_config.json",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_images_need_chats_with_images() {
        let images_field = Some("images".to_owned());
        let given = MultimodalRecipe { images_field, ..MultimodalRecipe::default() };
        assert!(given.check(true).is_ok() && given.member().is_some());
        let refused =
            |recipe: &MultimodalRecipe, has_messages| recipe.check(has_messages).unwrap_err().to_string();
        assert!(refused(&given, false).contains("`images_field`"));
        let fit = MultimodalRecipe { images: StoredImages::Fit, ..MultimodalRecipe::default() };
        assert!(refused(&fit, true).contains("`images`"));
        let none = MultimodalRecipe { images_field: Some("none".to_owned()), ..MultimodalRecipe::default() };
        assert!(none.is_given() && none.member().is_none());
        assert!(given.processor().unwrap_err().to_string().contains("processor of the model"));
    }
}
