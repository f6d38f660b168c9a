//! Thumbnails of stored images.

use bytes::Bytes;
use image::codecs::png::PngEncoder;
use image::{ExtendedColorType, ImageEncoder};

use crate::error::Result;
use crate::reader::Record;
use crate::transform::image::{
    Color, Encode, ImageOptions, ImageOutcome, ImageScratch, ImageTransform, Resize, Subsampling,
};

/// JPEG quality of a thumbnail.
const QUALITY: u8 = 78;
/// Maximum number of pixels of an image that gets a thumbnail: all of them may be in memory at once.
const MAX_PIXELS: u64 = 100_000_000;

/// Makes thumbnails, one at a time.
pub(super) struct Thumbnails {
    jpeg: ImageTransform,
    pixels: ImageTransform,
    /// Samples per pixel, if images are stored as raw samples.
    raw_channels: Option<u64>,
    scratch: ImageScratch,
}

/// A downscaled image.
pub(super) struct SmallImage {
    pub(super) bytes: Vec<u8>,
    /// Width and height in pixels.
    pub(super) size: (u32, u32),
}

impl Thumbnails {
    /// Prepares to make thumbnails with at most `side` pixels on each side.
    pub(super) fn new(raw_channels: Option<u64>, side: u32) -> Result<Self> {
        let options = |encode| ImageOptions {
            resize: Resize::Longer(side),
            color: Color::Rgb,
            encode,
            lenient: true,
            max_pixels: MAX_PIXELS,
            ..ImageOptions::default()
        };
        Ok(Self {
            jpeg: ImageTransform::new(options(Encode::Jpeg {
                quality: QUALITY,
                subsampling: Subsampling::S420,
            }))?,
            pixels: ImageTransform::new(options(Encode::Raw))?,
            raw_channels,
            scratch: ImageScratch::new(),
        })
    }

    /// Returns the image of `record` as a JPEG, or the reason why it cannot be shown.
    pub(super) fn jpeg(&mut self, record: &Record) -> Result<SmallImage, String> {
        let file = self.file(record)?;
        downscale(&self.jpeg, &file, &mut self.scratch)
    }

    /// Returns the image of `record` as RGB samples, or the reason why it cannot be shown.
    pub(super) fn rgb(&mut self, record: &Record) -> Result<SmallImage, String> {
        let file = self.file(record)?;
        downscale(&self.pixels, &file, &mut self.scratch)
    }

    /// Returns the stored image as an image file. Raw samples are encoded as PNG.
    fn file(&self, record: &Record) -> Result<Bytes, String> {
        let bytes = record.image().ok_or("the record has no image")?;
        let Some(channels) = self.raw_channels else { return Ok(bytes.clone()) };
        let color = match channels {
            1 => ExtendedColorType::L8,
            4 => ExtendedColorType::Rgba8,
            _ => ExtendedColorType::Rgb8,
        };
        let (width, height) = (record.width().unwrap_or(0), record.height().unwrap_or(0));
        let samples =
            u64::from(width).checked_mul(height.into()).and_then(|pixels| pixels.checked_mul(channels));
        if samples != Some(bytes.len() as u64) || bytes.is_empty() {
            return Err(format!("{} samples are not {width}×{height} pixels", bytes.len()));
        }
        let mut file = Vec::new();
        PngEncoder::new(&mut file).write_image(bytes, width, height, color).map_err(|e| e.to_string())?;
        Ok(file.into())
    }
}

fn downscale(
    transform: &ImageTransform,
    file: &Bytes,
    scratch: &mut ImageScratch,
) -> Result<SmallImage, String> {
    match transform.convert(file, scratch) {
        Ok(ImageOutcome::Converted(image)) => {
            Ok(SmallImage { bytes: image.bytes.to_vec(), size: (image.width, image.height) })
        }
        Ok(ImageOutcome::Filtered(reason)) => Err(reason.name().to_owned()),
        Err(reject) => Err(reject.message),
    }
}
