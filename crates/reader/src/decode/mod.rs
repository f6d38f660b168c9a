//! Image decoding shared by the converter and the loader.
//!
//! The converter decodes arbitrary files with the parts of this module, none of which depends on conversion options.
//! The loader uses the [`Decoder`], which decodes the requested part of a stored image into the array of a batch.

#[cfg(feature = "avif")]
pub mod avif;
#[cfg(not(feature = "avif"))]
#[path = "no_avif.rs"]
pub mod avif;
mod decoder;
pub mod jpeg_engine;
mod mask;
pub mod other;
mod pixels;
mod plane_scaler;
mod planes_file;
mod rejects;
pub mod resample;
mod resize;
mod samples;
mod sniff;
mod tiff;
pub mod turbo;

pub use decoder::{Decoder, Stored};
pub use dsconvert_jpeg::luma;
pub use mask::{Mask, Palette};
pub use other::stored_size;
pub use pixels::{PixelOrder, Pixels, Rect, Size};
pub use planes_file::{PLANES_HEADER_BYTES, PlanesChroma, PlanesFile, planes_file, planes_of_pixels};
pub use rejects::{corrupt, fill_zeros, of_jpeg, too_large, truncated, unsupported};
pub use resize::{SourceRegion, reduction, resize, scale};
pub use samples::{divide_by_alpha, to_8_bits};
pub use sniff::{
    ImageType, converter, foreign_format, has_image_extension, has_signature, is_unreadable_photo, sniff,
    unreadable,
};
pub use tiff::TiffFile;

/// What the container of an AVIF image declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AvifHeader {
    /// Size of the decoded pixels, before the orientation is applied.
    pub size: Size,
    /// How the decoded pixels are turned to be upright: the value of the EXIF tag, 1 to 8.
    pub orientation: u16,
    /// Number of frames.
    pub frames: u32,
}
