//! The image transform: from the bytes of one image file to the bytes of one encoded image.
//!
//! [`ImageTransform`] is a pure function of its options and the bytes of the image. It opens no file, starts no thread,
//! and keeps only empty buffers between images ([`ImageScratch`]). `docs/reference/images.md` is its specification.
//!
//! ```text
//! bytes ─▶ type, structure, limits ─▶ decode ─▶ resize ─▶ turn upright ─▶ crop ─▶ pad ─▶ encode ─▶ bytes
//!           sniff, container, source   decode_*  resize    pixels          pixels  pixels  encode
//! ```
//!
//! When a JPEG is resized to a JPEG without a change of colors, each component passes through these steps separately
//! (`planar`).
//!
//! ```
//! use bytes::Bytes;
//! use dsconvert::transform::image::{ImageOptions, ImageTransform, ImageOutcome, ImageScratch};
//!
//! let options = ImageOptions { resize: "shorter:2".parse()?, ..ImageOptions::default() };
//! let transform = ImageTransform::new(options)?;
//! // A gray 4×3 bitmap of 24 bits per pixel.
//! let mut bmp = b"BM\x5a\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x04\0\0\0\x03\0\0\0\x01\0\x18\0".to_vec();
//! bmp.resize(54, 0);
//! bmp.resize(54 + 4 * 3 * 3, 128);
//! match transform.convert(&Bytes::from(bmp), &mut ImageScratch::new()) {
//!     Ok(ImageOutcome::Converted(image)) => assert_eq!((image.width, image.height), (3, 2)),
//!     other => panic!("{other:?}"),
//! }
//! # Ok::<(), dsconvert::error::Error>(())
//! ```

mod boxes;
mod bucket_counts;
mod buckets;
mod clean;
mod colors;
mod container;
mod decode_jpeg;
mod decode_other;
mod deliver;
mod encode;
mod encoding;
mod exif;
mod filters;
mod geometry;
mod icc;
#[cfg_attr(not(feature = "webp"), path = "no_libwebp.rs")]
mod libwebp;
mod mask;
mod memory;
mod metadata;
mod option_values;
mod options;
mod orientation;
mod outcome;
mod pixels;
mod planar;
mod resize;
mod scratch;
mod source;
mod strip;
#[cfg(test)]
mod tests;
mod transform;
mod xmp;

pub use crate::decode::{ImageType, has_image_extension, has_signature, is_unreadable_photo, sniff};
pub use boxes::{BoxUnits, PlacedBoxes};
pub use bucket_counts::{BucketCount, BucketCounts, ImageSizes};
pub use buckets::Buckets;
pub use deliver::DeliveredPixels;
pub use encoding::{DEFAULT_JPEG_QUALITY, DEFAULT_WEBP_QUALITY, Encode, Subsampling};
pub use geometry::Geometry;
pub use option_values::{Animated, Color, Crop, Filter, Icc, Pad, Resize, Rgb};
pub use options::{DEFAULT_MAX_PIXELS, ImageOptions};
pub use outcome::{Converted, Filtered, ImageOutcome, Tolerated};
pub use scratch::{DEFAULT_KEPT_BYTES, ImageScratch};
pub use source::Header;
pub use transform::{FurtherImage, ImageTransform};
