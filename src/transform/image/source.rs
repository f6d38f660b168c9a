//! A source file before decoding: type, size, orientation and the cost of converting it.

use super::container::{self, Structure, jpeg};
use super::geometry::{Geometry, Size};
use super::options::ImageOptions;
use crate::decode::{ImageType, PlanesFile, foreign_format, sniff, unreadable};
use crate::sample::{Reject, RejectCode};

/// The content of a header: enough to plan a conversion without decoding pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The type of the image.
    pub image_type: ImageType,
    /// Width of the upright image, in pixels.
    pub width: u32,
    /// Height of the upright image, in pixels.
    pub height: u32,
    /// Upper estimate of the peak memory of a conversion in bytes, not counting the source itself.
    pub memory_bytes: u64,
    /// The geometry of the conversion, for the image and for its masks.
    pub geometry: Geometry,
}

/// Maximum number of pixels per byte of a file. LZW reaches this ratio, and real pictures stay below it.
const MAX_PIXELS_PER_BYTE: u64 = 4096;

/// The same limit for TIFF, where an empty fax page takes one bit per row, and for lossless WebP and AVIF, where a region of
/// a single color takes almost nothing.
const MAX_PIXELS_PER_BYTE_OF_REGIONS: u64 = 1 << 17;

/// A source file with a parsed structure and a size within the limits.
#[derive(Debug)]
pub(super) struct CheckedImage<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) image_type: ImageType,
    pub(super) structure: Structure,
    /// The JPEG header; `None` for other types.
    pub(super) jpeg: Option<jpeg::JpegHeader<'a>>,
}

impl<'a> CheckedImage<'a> {
    /// Reads the structure of `bytes` and checks its size against the limits of `options`.
    pub(super) fn read(bytes: &'a [u8], options: &ImageOptions) -> Result<Self, Reject> {
        if bytes.is_empty() {
            return Err(Reject::new(RejectCode::Empty, "the file is empty"));
        }
        let image_type = sniff(bytes).ok_or_else(|| match foreign_format(bytes) {
            Some(name) => unreadable(name),
            None => Reject::new(RejectCode::UnknownType, "the content is not an image of a known type"),
        })?;
        let mut jpeg = None;
        let structure = match image_type {
            ImageType::Jpeg => {
                let (structure, header) = jpeg::header(bytes)?;
                jpeg = Some(header);
                structure
            }
            ImageType::Png => container::png::walk(bytes)?,
            ImageType::Webp => container::webp::walk(bytes)?,
            ImageType::Gif => container::gif::walk(bytes)?,
            ImageType::Bmp => container::bmp::walk(bytes)?,
            ImageType::Planes => container::Structure::of_size(PlanesFile::read(bytes)?.size),
            ImageType::Pnm => container::pnm::walk(bytes)?,
            ImageType::Tga => container::tga::walk(bytes)?,
            ImageType::Qoi => container::qoi::walk(bytes)?,
            ImageType::Avif => container::avif::walk(bytes)?,
            ImageType::Tiff | ImageType::Raw => container::tiff::walk(bytes)?,
        };
        check_pixels(structure.size, options.max_pixels, "the image")?;
        let ratio = match image_type {
            ImageType::Tiff | ImageType::Avif => MAX_PIXELS_PER_BYTE_OF_REGIONS,
            ImageType::Webp if container::webp::is_lossless(bytes) => MAX_PIXELS_PER_BYTE_OF_REGIONS,
            ImageType::Webp | ImageType::Gif => MAX_PIXELS_PER_BYTE,
            // Checked where the size of their data is known.
            ImageType::Jpeg | ImageType::Png | ImageType::Bmp | ImageType::Planes | ImageType::Raw => {
                u64::MAX
            }
            // Their data is complete, so the ratio is at most the ratio of the longest run.
            ImageType::Pnm | ImageType::Tga | ImageType::Qoi => u64::MAX,
        };
        container::check_pixels_per_byte(structure.size.pixels(), bytes.len() as u64, ratio)?;
        if let Some(reject) = structure.lacks_data {
            return Err(reject);
        }
        Ok(Self { bytes, image_type, structure, jpeg })
    }

    /// Sets the orientation to the one of an additional image of the sample whose image has the geometry `image`. An image of
    /// another size keeps its own.
    pub(super) fn turn_like(&mut self, image: &Geometry) {
        let Structure { size, orientation, .. } = self.structure;
        self.structure.orientation = image.orientation_of(size, orientation).unwrap_or(orientation);
    }

    /// Returns the size of the upright image.
    pub(super) fn oriented_size(&self) -> Size {
        if self.structure.orientation.transposes() {
            self.structure.size.transposed()
        } else {
            self.structure.size
        }
    }
}

/// Rejects a size of more than `max_pixels`.
pub(super) fn check_pixels(size: Size, max_pixels: u64, what: &str) -> Result<(), Reject> {
    if size.pixels() > max_pixels {
        return Err(Reject::new(
            RejectCode::TooLarge,
            format!(
                "{what} would have {}×{} pixels, more than the limit of {max_pixels}",
                size.width, size.height
            ),
        ));
    }
    Ok(())
}
