//! From stored images to pixels: what the converter and the loader share.
//!
//! The converter decodes any file there is; here are the parts of that which need no options of a conversion. The
//! [`Decoder`] is the loader's: it decodes the part of an image that is wanted, where it is wanted.

// The converter alone needs some of it.
#![cfg_attr(not(feature = "images"), allow(dead_code, unused_imports))]

pub(crate) mod baseline;
mod decoder;
pub(crate) mod general;
pub(crate) mod inks;
pub(crate) mod jpeg;
pub(crate) mod other;
mod pixels;
mod png;
mod reject;
mod resize;
mod samples;
mod sniff;

pub use decoder::{Decoder, Stored};
pub use pixels::Size;
pub(crate) use pixels::{Pixels, Rect, luma};
pub(crate) use reject::{corrupt, truncated, unsupported};
pub use resize::Part;
pub(crate) use resize::resize;
pub(crate) use samples::to_8_bits;
pub(crate) use sniff::foreign_format;
pub use sniff::{ImageType, has_image_extension, sniff};
