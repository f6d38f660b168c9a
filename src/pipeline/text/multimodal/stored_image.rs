//! How an image of a chat is stored: as it is, or resized to what the processor makes of it.

use bytes::Bytes;
use dsconvert_vision::{ImagePlan, PlanError, Processor};

use crate::error::Result;
use crate::pipeline::memory::MemoryPool;
use crate::recipe::StoredImages;
use crate::sample::{Reject, RejectCode};
use crate::transform::image::{
    Converted, Encode, Filter, Icc, ImageOptions, ImageOutcome, ImageScratch, ImageTransform, ImageType,
    Resize, Subsampling,
};

/// Share of the pixels, in percent, below which an image is resized.
const FIT_PERCENT: u64 = 75;
/// Quality of resized JPEGs.
const FIT_QUALITY: u8 = 95;

/// An image as it is stored, and what the processor makes of it.
#[derive(Debug)]
pub(super) struct StoredImage {
    pub(super) bytes: Bytes,
    pub(super) plan: ImagePlan,
    /// Whether the file is the one of the row.
    pub(super) is_unchanged: bool,
    /// Number of samples of a resized image, and the sum of their squared errors.
    pub(super) fit: Option<(u64, u64)>,
}

/// Options under which a file passes through unless it is not upright, or is of a type or of colors that are not stored.
fn keep() -> ImageOptions {
    ImageOptions { encode: Encode::Keep, icc: Icc::Drop, keep_metadata: true, ..ImageOptions::default() }
}

/// Stores images by one processor.
#[derive(Debug)]
pub(super) struct ImageStore {
    how: StoredImages,
    keep: ImageTransform,
}

impl ImageStore {
    pub(super) fn new(how: StoredImages) -> Result<Self> {
        Ok(Self { how, keep: ImageTransform::new(keep())? })
    }

    /// Checks and stores an image.
    ///
    /// # Errors
    ///
    /// A reject if it cannot be decoded, or if the processor refuses its size.
    pub(super) fn store(
        &self,
        source: &Bytes,
        processor: &Processor,
        scratch: &mut ImageScratch,
        memory: &MemoryPool,
    ) -> Result<StoredImage, Reject> {
        let header = self.keep.peek(source)?;
        let plan = processor.plan(header.height, header.width).map_err(|e| refused(&e))?;
        let _held = memory.wait_for(header.memory_bytes);
        let (pixels, fitted) = (pixels(header.width, header.height), pixels(plan.width, plan.height));
        if self.how == StoredImages::Fit
            && fitted.saturating_mul(100) < pixels.saturating_mul(FIT_PERCENT)
            && !may_be_transparent(header.image_type, source)
            // The loader plans again, from the stored image.
            && processor.plan(plan.height, plan.width).is_ok_and(|again| again == plan)
            && let Some(stored) = fit(source, header.image_type, plan, scratch)?
        {
            return Ok(stored);
        }
        let image = converted(&self.keep, source, scratch)?;
        if (image.width, image.height) != (header.width, header.height) {
            let message = format!(
                "the image has {}×{} pixels, but its header {}×{}",
                image.width, image.height, header.width, header.height
            );
            return Err(Reject::new(RejectCode::Corrupt, message));
        }
        Ok(StoredImage { bytes: image.bytes, plan, is_unchanged: image.passthrough, fit: None })
    }
}

fn pixels(width: u32, height: u32) -> u64 {
    u64::from(width) * u64::from(height)
}

fn refused(error: &PlanError) -> Reject {
    Reject::new(RejectCode::Unsupported, format!("the processor refuses the image: {error}"))
}

fn converted(
    transform: &ImageTransform,
    source: &Bytes,
    scratch: &mut ImageScratch,
) -> Result<Converted, Reject> {
    match transform.convert(source, scratch)? {
        ImageOutcome::Converted(image) => Ok(image),
        // There is no option that selects images.
        ImageOutcome::Filtered(_) => Err(Reject::new(RejectCode::Unsupported, "the image was filtered")),
    }
}

/// Returns the image resized to the size of `plan`; `None` if the file would not be smaller.
fn fit(
    source: &Bytes,
    image_type: ImageType,
    plan: ImagePlan,
    scratch: &mut ImageScratch,
) -> Result<Option<StoredImage>, Reject> {
    let encode = match image_type {
        ImageType::Jpeg => Encode::Jpeg { quality: FIT_QUALITY, subsampling: Subsampling::S444 },
        _ => Encode::Png,
    };
    // The filter of the processors.
    let resize = (Resize::Exact(plan.width, plan.height), Filter::CatmullRom);
    let options = ImageOptions {
        resize: resize.0,
        filter: resize.1,
        icc: Icc::Drop,
        encode,
        ..ImageOptions::default()
    };
    let transform = |options| ImageTransform::new(options).map_err(|e| unusable(&e));
    let image = converted(&transform(options.clone())?, source, scratch)?;
    if image.bytes.len() >= source.len() {
        return Ok(None);
    }
    let delivering = |options| ImageTransform::delivering(options).map_err(|e| unusable(&e));
    let wanted = delivering(options)?.pixels(source, scratch, || ())?.samples.to_vec();
    let stored = delivering(keep())?.pixels(&image.bytes, scratch, || ())?.samples;
    if wanted.len() != stored.len() {
        return Err(Reject::new(
            RejectCode::Unsupported,
            "the resized image has another size when it is read back",
        ));
    }
    let squared = |(a, b): (&u8, &u8)| u64::from(a.abs_diff(*b)).pow(2);
    let fit = Some((wanted.len() as u64, wanted.iter().zip(stored).map(squared).sum()));
    Ok(Some(StoredImage { bytes: image.bytes, plan, is_unchanged: false, fit }))
}

fn unusable(error: &crate::error::Error) -> Reject {
    Reject::new(RejectCode::Unsupported, format!("the image cannot be resized: {error}"))
}

/// Returns whether an image may have an alpha channel, which a processor drops: resizing would blend it with a background.
fn may_be_transparent(image_type: ImageType, source: &[u8]) -> bool {
    /// Position of the type of colors in a PNG.
    const COLOR_TYPE: usize = 25;
    match image_type {
        ImageType::Jpeg => false,
        ImageType::Png => {
            let start = memchr::memmem::find(source, b"IDAT").unwrap_or(source.len());
            let has_transparent_color = memchr::memmem::find(&source[..start], b"tRNS").is_some();
            !matches!(source.get(COLOR_TYPE), Some(0 | 2)) || has_transparent_color
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A gradient of `width` × `height` pixels, as a PNG.
    fn png(width: u32, height: u32, channels: usize) -> Bytes {
        let color = match channels {
            1 => image::ExtendedColorType::L8,
            3 => image::ExtendedColorType::Rgb8,
            _ => image::ExtendedColorType::Rgba8,
        };
        let sample = |at: usize| (at / channels % width as usize / 4) as u8;
        let samples: Vec<u8> = (0..(width * height) as usize * channels).map(sample).collect();
        let mut out = Vec::new();
        let encoder = image::codecs::png::PngEncoder::new(&mut out);
        image::ImageEncoder::write_image(encoder, &samples, width, height, color).unwrap();
        out.into()
    }

    fn store(how: StoredImages, source: &Bytes, processor: &Processor) -> Result<StoredImage, Reject> {
        let store = ImageStore::new(how).unwrap();
        store.store(source, processor, &mut ImageScratch::new(), &MemoryPool::new(1 << 30))
    }

    #[test]
    fn images_are_resized_only_where_it_saves_a_quarter() {
        let small = Processor { max_pixels: 100_000, ..Processor::qwen2_5_vl() };
        let source = png(600, 500, 3);
        let kept = store(StoredImages::Keep, &source, &small).unwrap();
        assert!(kept.bytes == source && kept.is_unchanged && kept.fit.is_none());
        let fit = store(StoredImages::Fit, &source, &small).unwrap();
        assert_eq!(fit.plan, kept.plan);
        // A PNG loses nothing after it was resized.
        assert!(
            matches!(fit.fit, Some((samples, 0)) if samples == 3 * pixels(fit.plan.width, fit.plan.height))
        );
        let header = ImageTransform::new(keep()).unwrap().peek(&fit.bytes).unwrap();
        assert_eq!((header.width, header.height), (fit.plan.width, fit.plan.height));
        // Enlarged, hardly smaller, or transparent.
        let large = Processor { max_pixels: 280_000, ..Processor::qwen2_5_vl() };
        for (source, processor) in [(png(20, 20, 3), &small), (source, &large), (png(600, 500, 4), &small)] {
            let stored = store(StoredImages::Fit, &source, processor).unwrap();
            assert!(stored.bytes == source && stored.fit.is_none());
        }
    }

    #[test]
    fn unusual_shapes_are_refused() {
        let processor = Processor::qwen2_5_vl();
        assert_eq!(store(StoredImages::Keep, &png(1, 1, 1), &processor).unwrap().plan.tokens, 4);
        let reject = store(StoredImages::Keep, &png(402, 2, 3), &processor).unwrap_err();
        assert!(
            reject.code == RejectCode::Unsupported && reject.message.contains("201.0 times"),
            "{reject:?}"
        );
        let truncated = png(30, 30, 3);
        let truncated = truncated.slice(..truncated.len() / 2);
        assert!(store(StoredImages::Keep, &truncated, &processor).is_err());
    }
}
