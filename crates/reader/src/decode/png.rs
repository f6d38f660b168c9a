//! Decodes PNG with the `png` crate, up to the last chunk, and verifies all checksums.
//!
//! The decoder of the `image` crate skips the checksum of the compressed data. It would accept a chunk whose data a
//! broken tool changed and whose chunk checksum it recomputed, although other readers refuse such a file.

use std::io::Cursor;

use image::error::{DecodingError, ImageFormatHint, LimitError, LimitErrorKind};
use image::{ColorType, ImageDecoder, ImageError, ImageFormat, ImageResult, Limits};

/// A decoder for one PNG file.
pub(super) struct PngFile<'a> {
    reader: png::Reader<Cursor<&'a [u8]>>,
    color_type: ColorType,
}

impl<'a> PngFile<'a> {
    /// Opens the file `bytes`. Without `checks`, wrong checksums are ignored.
    pub(super) fn new(bytes: &'a [u8], limits: &Limits, checks: bool) -> ImageResult<Self> {
        let max_bytes = limits.max_alloc.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usize::MAX);
        let limits = png::Limits { bytes: max_bytes };
        let mut decoder = png::Decoder::new_with_limits(Cursor::new(bytes), limits);
        decoder.set_ignore_text_chunk(true);
        decoder.ignore_checksums(!checks);
        decoder.set_transformations(png::Transformations::EXPAND);
        let reader = decoder.read_info().map_err(error)?;
        let color_type = match reader.output_color_type() {
            (png::ColorType::Grayscale, png::BitDepth::Sixteen) => ColorType::L16,
            (png::ColorType::GrayscaleAlpha, png::BitDepth::Sixteen) => ColorType::La16,
            (png::ColorType::Rgb, png::BitDepth::Sixteen) => ColorType::Rgb16,
            (png::ColorType::Rgba, png::BitDepth::Sixteen) => ColorType::Rgba16,
            (png::ColorType::Grayscale, _) => ColorType::L8,
            (png::ColorType::GrayscaleAlpha, _) => ColorType::La8,
            (png::ColorType::Rgb | png::ColorType::Indexed, _) => ColorType::Rgb8,
            (png::ColorType::Rgba, _) => ColorType::Rgba8,
        };
        Ok(Self { reader, color_type })
    }
}

impl ImageDecoder for PngFile<'_> {
    fn dimensions(&self) -> (u32, u32) {
        self.reader.info().size()
    }

    fn color_type(&self) -> ColorType {
        self.color_type
    }

    fn icc_profile(&mut self) -> ImageResult<Option<Vec<u8>>> {
        Ok(self.reader.info().icc_profile.as_ref().map(|profile| profile.to_vec()))
    }

    fn read_image(mut self, out: &mut [u8]) -> ImageResult<()> {
        self.reader.next_frame(out).map_err(error)?;
        if self.color_type.bytes_per_pixel() / self.color_type.channel_count() == 2 {
            for sample in out.as_chunks_mut::<2>().0 {
                *sample = u16::from_be_bytes(*sample).to_ne_bytes();
            }
        }
        self.reader.finish().map_err(error)
    }

    fn read_image_boxed(self: Box<Self>, out: &mut [u8]) -> ImageResult<()> {
        (*self).read_image(out)
    }
}

pub(super) fn error(error: png::DecodingError) -> ImageError {
    match error {
        png::DecodingError::IoError(error) => ImageError::IoError(error),
        png::DecodingError::LimitsExceeded => {
            ImageError::Limits(LimitError::from_kind(LimitErrorKind::InsufficientMemory))
        }
        other => ImageError::Decoding(DecodingError::new(ImageFormatHint::Exact(ImageFormat::Png), other)),
    }
}
