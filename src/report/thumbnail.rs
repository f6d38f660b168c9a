//! Thumbnails of stored images, and the contact sheet: one picture of many images.

use bytes::Bytes;
use image::codecs::png::PngEncoder;
use image::{ExtendedColorType, ImageEncoder};

use crate::error::{Error, ErrorKind, Result};
use crate::reader::{Dataset, Record, Split};
use crate::sampling::seeded;
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

/// Maximum number of images on a sheet.
const IMAGES: u64 = 96;
/// Images per row.
const COLUMNS: u32 = 12;
/// Longer side of an image, in pixels.
const SIDE: u32 = 160;
/// Pixels between images.
const GAP: u32 = 8;
/// Background: a gray on which neither dark nor light images vanish.
const BACKGROUND: u8 = 0x8a;

/// Returns a PNG of up to 96 images of `split`, chosen by `seed`, in record order from left to right. Also returns the
/// number of images that are left out because they cannot be read or decoded.
///
/// # Errors
///
/// If the dataset holds no images, or none of the chosen ones can be shown.
pub fn contact_sheet(dataset: &Dataset, split: &Split, seed: u64) -> Result<(Vec<u8>, u64)> {
    if !dataset.schema().holds_images() {
        return Err(Error::usage("a contact sheet needs images, but the dataset holds text"));
    }
    let mut thumbnails = Thumbnails::new(dataset.manifest().raw_channels(), SIDE)?;
    let mut shown = Vec::new();
    let mut left_out = 0;
    let mut first_reason = None;
    for ordinal in seeded(split.len(), IMAGES, seed) {
        let made = split.get(ordinal).map_err(|e| e.to_string()).and_then(|record| thumbnails.rgb(&record));
        match made {
            Ok(made) => shown.push(made),
            Err(why) => {
                left_out += 1;
                first_reason.get_or_insert(why);
            }
        }
    }
    if shown.is_empty() {
        let why = first_reason
            .map_or_else(|| "it has no records".to_owned(), |why| format!("the first chosen image: {why}"));
        let what = format!("split {:?} has no image that can be shown; {why}", split.name());
        return Err(Error::new(ErrorKind::Unsupported, what).at_path(dataset.path()));
    }
    let columns = COLUMNS.min(shown.len() as u32);
    let rows = (shown.len() as u32).div_ceil(columns);
    let (width, height) = (GAP + columns * (SIDE + GAP), GAP + rows * (SIDE + GAP));
    let mut sheet = vec![BACKGROUND; width as usize * height as usize * 3];
    for (i, made) in (0..).zip(&shown) {
        let (w, h) = (made.size.0.min(SIDE), made.size.1.min(SIDE));
        let left = GAP + i % columns * (SIDE + GAP) + (SIDE - w) / 2;
        let top = GAP + i / columns * (SIDE + GAP) + (SIDE - h) / 2;
        for (y, row) in (top..).zip(made.bytes.chunks_exact(made.size.0.max(1) as usize * 3)).take(h as usize)
        {
            let start = (y as usize * width as usize + left as usize) * 3;
            let length = w as usize * 3;
            if let (Some(to), Some(from)) = (sheet.get_mut(start..start + length), row.get(..length)) {
                to.copy_from_slice(from);
            }
        }
    }
    let mut png = Vec::new();
    PngEncoder::new(&mut png)
        .write_image(&sheet, width, height, ExtendedColorType::Rgb8)
        .map_err(|e| Error::internal("the contact sheet cannot be encoded").caused_by(e))?;
    Ok((png, left_out))
}
