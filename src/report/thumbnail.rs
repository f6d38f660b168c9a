//! Thumbnails of stored images, and the contact sheet: one picture of many images.

use bytes::Bytes;
use image::codecs::png::PngEncoder;
use image::{ExtendedColorType, ImageEncoder};

use crate::error::{Error, ErrorKind, Result};
use crate::reader::{Dataset, Record, Split};
use crate::sample::{PixelBox, Value, box_numbers, boxes};
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

    /// Returns the image of `record` with its boxes as a JPEG, or the reason why it cannot be shown.
    pub(super) fn jpeg(&mut self, record: &Record) -> Result<SmallImage, String> {
        let file = match outlines(record).is_empty() {
            true => self.file(record)?,
            false => {
                let SmallImage { bytes, size: (width, height) } = self.rgb(record)?;
                png(&bytes, width, height, ExtendedColorType::Rgb8)?
            }
        };
        downscale(&self.jpeg, &file, &mut self.scratch)
    }

    /// Returns the image of `record` with its boxes as RGB samples, or the reason why it cannot be shown.
    pub(super) fn rgb(&mut self, record: &Record) -> Result<SmallImage, String> {
        let file = self.file(record)?;
        let mut image = downscale(&self.pixels, &file, &mut self.scratch)?;
        let size = (record.width().unwrap_or(0), record.height().unwrap_or(0));
        for (corners, label) in outlines(record) {
            let color = COLORS[usize::try_from(label).unwrap_or(0) % COLORS.len()];
            image.outline(scaled(corners, size, image.size), color);
        }
        Ok(image)
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
        png(bytes, width, height, color)
    }
}

/// Colors of boxes, by class.
const COLORS: [[u8; 3]; 8] = [
    [255, 60, 60],
    [60, 220, 60],
    [70, 130, 255],
    [255, 215, 0],
    [255, 80, 230],
    [0, 225, 225],
    [255, 145, 20],
    [190, 255, 90],
];

/// Returns the boxes of a record with their classes, if it has some.
fn outlines(record: &Record) -> Vec<(PixelBox, i64)> {
    let list = |at: usize| match record.values().get(at) {
        Some(Value::Bytes(list)) => Some(list),
        _ => None,
    };
    let schema = record.schema();
    let labels = schema.box_labels_field().and_then(list).into_iter().flat_map(|labels| box_numbers(labels));
    let labels = labels.chain(std::iter::repeat(0));
    let boxes_of = |list| boxes(list).zip(labels).collect();
    schema.boxes_field().and_then(list).map(|list| boxes_of(list)).unwrap_or_default()
}

/// Returns a box of an image of `size` in the same image of the size `to`: its first and last columns and rows.
fn scaled([left, top, right, bottom]: PixelBox, size: (u32, u32), to: (u32, u32)) -> [u32; 4] {
    let along = |at: f32, side: u32, to: u32| {
        let at = f64::from(at) * f64::from(to) / f64::from(side.max(1));
        // A number beyond those of u32 becomes the nearest one.
        (at as u32).min(to.saturating_sub(1))
    };
    let last = |at: f32| (at - 1.0).max(0.0);
    let (x, y) = ((size.0, to.0), (size.1, to.1));
    [along(left, x.0, x.1), along(top, y.0, y.1), along(last(right), x.0, x.1), along(last(bottom), y.0, y.1)]
}

impl SmallImage {
    /// Draws the outline of a box, from its first to its last column and row, into an image of RGB samples.
    fn outline(&mut self, [left, top, right, bottom]: [u32; 4], color: [u8; 3]) {
        let width = self.size.0 as usize;
        let (pixels, _) = self.bytes.as_chunks_mut::<3>();
        let mut set = |x: u32, y: u32| {
            if let Some(pixel) = pixels.get_mut(y as usize * width + x as usize) {
                *pixel = color;
            }
        };
        for x in left..=right {
            set(x, top);
            set(x, bottom);
        }
        for y in top..=bottom {
            set(left, y);
            set(right, y);
        }
    }
}

/// Returns samples as a PNG file.
fn png(samples: &[u8], width: u32, height: u32, color: ExtendedColorType) -> Result<Bytes, String> {
    let mut file = Vec::new();
    PngEncoder::new(&mut file).write_image(samples, width, height, color).map_err(|e| e.to_string())?;
    Ok(file.into())
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
        let kind = dataset.schema().kind.name();
        return Err(Error::usage(format!("a contact sheet needs images, but the dataset holds {kind}")));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outlines_are_the_outer_pixels_of_a_box() {
        let mut image = SmallImage { bytes: vec![0; 10 * 8 * 3], size: (10, 8) };
        let corners = scaled([4.0, 2.0, 12.0, 16.0], (20, 16), (10, 8));
        image.outline(corners, [1, 2, 3]);
        let lit: Vec<usize> = (0..80).filter(|at| image.bytes[at * 3] == 1).collect();
        let is_edge = |at: &usize| {
            let (x, y) = (at % 10, at / 10);
            let is_in = (2..=5).contains(&x) && (1..=7).contains(&y);
            is_in && (x == 2 || x == 5 || y == 1 || y == 7)
        };
        assert_eq!(lit, (0..80).filter(is_edge).collect::<Vec<_>>());
        // Outside of the image.
        let corners = scaled([-9.0, 1e30, 90.0, 1e30], (20, 16), (10, 8));
        image.outline(corners, [1, 2, 3]);
        assert_eq!(corners, [0, 7, 9, 7]);
    }
}
