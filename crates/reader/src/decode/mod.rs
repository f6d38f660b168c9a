//! Image decoding shared by the converter and the loader.
//!
//! The converter decodes arbitrary files with the parts of this module, none of which depends on conversion options.
//! The loader uses the [`Decoder`], which decodes the requested part of a stored image into the array of a batch.

mod decoder;
pub mod jpeg_engine;
mod mask;
pub mod other;
mod pixels;
mod png;
mod reduction;
mod reject;
mod resize;
mod samples;
mod sniff;
mod stored_size;
mod tiff_tags;
pub mod turbo;

pub use decoder::{Decoder, Stored};
pub use dsconvert_jpeg::luma;
pub use mask::{Mask, Palette};
pub use pixels::Size;
pub use pixels::{Pixels, Rect};
pub use reduction::{reduction, scale};
pub use reject::{corrupt, of_jpeg, truncated, unsupported};
pub use resize::SourceRegion;
pub use resize::resize;
pub use samples::{divide_by_alpha, to_8_bits};
pub use sniff::foreign_format;
pub use sniff::{ImageType, has_image_extension, is_unreadable_photo, sniff};
pub use stored_size::stored_size;
pub use tiff_tags::TiffTags;
