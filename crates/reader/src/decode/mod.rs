//! From stored images to pixels: what the converter and the loader share.
//!
//! The converter decodes any file there is; here are the parts of that which need no options of a conversion. The
//! [`Decoder`] is the loader's: it decodes the part of an image that is wanted, where it is wanted.

mod decoder;
pub mod jpeg_engine;
mod mask;
pub mod other;
mod pixels;
mod png;
mod reject;
mod resize;
mod samples;
mod sniff;
pub mod turbo;

pub use decoder::{Decoder, Stored};
pub use dsconvert_jpeg::luma;
pub use mask::{Mask, Palette};
pub use pixels::Size;
pub use pixels::{Pixels, Rect};
pub use reject::{corrupt, of_jpeg, truncated, unsupported};
pub use resize::SourceRegion;
pub use resize::resize;
pub use samples::to_8_bits;
pub use sniff::foreign_format;
pub use sniff::{ImageType, has_image_extension, is_unreadable_photo, sniff};
