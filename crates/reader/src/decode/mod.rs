//! From stored images to pixels: what the converter and the loader share.
//!
//! The converter decodes any file there is; here are the parts of that which need no options of a conversion. The
//! [`Decoder`] is the loader's: it decodes the part of an image that is wanted, where it is wanted.

#[allow(missing_docs)]
pub mod baseline;
mod decoder;
#[allow(missing_docs)]
pub mod general;
pub mod inks;
#[allow(missing_docs)]
pub mod jpeg;
pub mod other;
mod pixels;
mod png;
mod reject;
mod resize;
mod samples;
mod sniff;

pub use decoder::{Decoder, Stored};
pub use pixels::Size;
pub use pixels::{Pixels, Rect, luma};
pub use reject::{corrupt, truncated, unsupported};
pub use resize::Part;
pub use resize::resize;
pub use samples::to_8_bits;
pub use sniff::foreign_format;
pub use sniff::{ImageType, has_image_extension, sniff};
