#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod bit_writer;
mod block;
mod color;
mod decoder;
mod error;
mod fast;
mod general;
mod huffman_table;
mod idct;
mod image;
mod memory;
mod options;
mod pixel_format;
mod region;
mod rewrite;
mod scale;
mod structure;
#[cfg(test)]
mod testing;

pub use color::{cmyk_to_rgb, invert_cmyk, luma};
pub use decoder::Decoder;
pub use error::{Error, ErrorKind};
pub use fast::{Declined, FastDecoder, FastRequest, PlanesRequest, StoredPlane, StoredPlanes};
pub use general::LayoutRequest;
pub use image::{Image, ImageInfo};
pub use options::DecodeOptions;
pub use pixel_format::PixelFormat;
pub use region::Region;
pub use rewrite::to_baseline;
pub use scale::Scale;
pub use structure::{ColorModel, Component, JpegLayout, MAX_SCANS, Process};
