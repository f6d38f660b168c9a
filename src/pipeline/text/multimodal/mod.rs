//! Chats with images: which images a chat has, how they are stored, and the tokens in their place.

pub(super) mod chat_images;
pub(super) mod expand;
mod image_value;
pub(super) mod images;
pub(super) mod named_images;
mod stored_image;

pub(crate) use images::{FIT_SAMPLES, FIT_SQUARED_ERROR};
pub(super) use images::{Multimodal, RowImages};
