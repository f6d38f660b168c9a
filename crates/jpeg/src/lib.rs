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
mod memory;
mod options;
mod rewrite;
mod structure;
#[cfg(test)]
mod testing;

pub use color::{cmyk_to_rgb, invert_cmyk, luma, rgb_to_ycbcr, ycbcr_to_rgb};
pub use decoder::Decoder;
pub use error::{Error, ErrorKind};
pub use fast::{
    Declined, FastDecoder, FastRequest, PlaneConverter, PlanesRequest, StoredPlane, StoredPlanes,
};
pub use general::LayoutRequest;
pub use options::{DecodeOptions, Image, ImageInfo, PixelFormat, Region, Scale};
pub use rewrite::to_baseline;
pub use structure::{ColorModel, Component, JpegLayout, MAX_SCANS, Process};
