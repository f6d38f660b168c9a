//! Conversion without encoding: the pixels that a loader would deliver from the source files.

use super::encoding::Encode;
use super::options::ImageOptions;
use super::scratch::ImageScratch;
use super::transform::ImageTransform;
use crate::error::Result;
use crate::panics::caught;
use crate::sample::Reject;

/// The pixels of one image, in a buffer of the [`ImageScratch`].
#[derive(Debug, Clone, Copy)]
pub struct DeliveredPixels<'s> {
    /// Interleaved samples, rows from top to bottom without gaps.
    pub samples: &'s [u8],
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Samples per pixel.
    pub channels: usize,
}

impl ImageTransform {
    /// Creates a transform that delivers pixels ([`Self::pixels`]) by `options`. Options for encoding and
    /// selection have no effect.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`ImageTransform::new`].
    pub fn delivering(options: ImageOptions) -> Result<Self> {
        // With bare samples as output, no file passes through.
        let options = ImageOptions {
            encode: Encode::Raw,
            baseline: false,
            restart_interval: None,
            keep_metadata: false,
            min_bucket: None,
            min_size: None,
            max_aspect: None,
            min_pixels: None,
            ..options
        };
        Self::new(options)
    }

    /// Decodes and shapes an image like [`Self::convert`], but does not encode it. Calls `decoded` between decoding and
    /// shaping.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Self::convert`].
    pub fn pixels<'s>(
        &self,
        source: &[u8],
        scratch: &'s mut ImageScratch,
        decoded: impl FnOnce(),
    ) -> Result<DeliveredPixels<'s>, Reject> {
        // Trimmed before decoding, because the pixels stay in the scratch afterwards.
        scratch.trim();
        match caught(|| self.decode_and_shape(source, scratch, decoded)) {
            Ok(shaped) => shaped?,
            Err(panic) => {
                scratch.renew();
                return Err(panic.into_reject());
            }
        }
        let pixels = &scratch.decoded;
        Ok(DeliveredPixels {
            samples: &pixels.data,
            width: pixels.width,
            height: pixels.height,
            channels: pixels.channels,
        })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::transform::image::ImageOutcome;

    /// Delivered pixels equal those that a conversion to bare samples stores.
    #[test]
    fn pixels_are_those_of_a_conversion_to_raw() {
        let options = ImageOptions { resize: "shorter:20".parse().unwrap(), ..ImageOptions::default() };
        let deliver = ImageTransform::delivering(options.clone()).unwrap();
        let convert = ImageTransform::new(ImageOptions { encode: Encode::Raw, ..options }).unwrap();
        let photos = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/photos");
        for name in ["signs/orientation-6.jpg", "dunes/half-clear.png", "forest/moss.webp", "flowers/ink.jpg"]
        {
            let bytes = Bytes::from(std::fs::read(photos.join(name)).unwrap());
            let Ok(ImageOutcome::Converted(stored)) = convert.convert(&bytes, &mut ImageScratch::new())
            else {
                panic!("{name}")
            };
            let (mut scratch, mut decoded) = (ImageScratch::new(), 0);
            let pixels = deliver.pixels(&bytes, &mut scratch, || decoded += 1).unwrap();
            assert_eq!((pixels.width, pixels.height, pixels.channels), (stored.width, stored.height, 3));
            assert!(pixels.samples == stored.bytes && decoded == 1, "{name}");
        }
        let broken = std::fs::read(photos.join("night/broken.jpg")).unwrap();
        let reject = deliver.pixels(&broken, &mut ImageScratch::new(), || ()).unwrap_err();
        assert!(reject.message.contains("ends inside"), "{}", reject.message);
    }
}
