//! The transform itself: the order of the steps.

use bytes::Bytes;

use super::container::jpeg;
use super::encoding::{DEFAULT_JPEG_QUALITY, DEFAULT_WEBP_QUALITY, Encode, Subsampling};
use super::exif::Orientation;
use super::geometry::{Plan, Size};
use super::options::ImageOptions;
use super::pixels::{self, Pixels, luma};
use super::resize::{self, Extent};
use super::scratch::Scratch;
use super::sniff::ImageType;
use super::source::{Header, Source, check_pixels};
use super::text::{Animated, Color, Rgb};
use super::{container, decode_jpeg, decode_other, encode};
use crate::error::Result;
use crate::sample::{Reject, RejectCode};

/// What became of an image that is no reject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is a record.
    Converted(Converted),
    /// The selection options leave it out.
    Filtered(Filtered),
}

/// An encoded image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Converted {
    /// The image file, or bare samples for [`ImageType::Raw`].
    pub bytes: Bytes,
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// What `bytes` are.
    pub encoding: ImageType,
    /// Whether the coded pixels are those of the source, untouched.
    pub passthrough: bool,
    /// Whether the source was damaged and is kept as far as it decodes.
    pub lenient: bool,
}

/// Why the selection options leave an image out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Filtered {
    /// The shorter side is below `min_size`.
    MinSize,
    /// The sides differ by more than `max_aspect`.
    MaxAspect,
    /// There are fewer pixels than `min_pixels`.
    MinPixels,
}

impl Filtered {
    /// The name in the list of filtered items.
    pub fn name(self) -> &'static str {
        match self {
            Filtered::MinSize => "min-size",
            Filtered::MaxAspect => "max-aspect",
            Filtered::MinPixels => "min-pixels",
        }
    }
}

/// Turns image files into encoded images, one at a time, from any number of threads.
#[derive(Debug, Clone)]
pub struct ImageTransform {
    options: ImageOptions,
}

impl ImageTransform {
    /// A transform by `options`. Options that contradict each other are a usage error.
    pub fn new(options: ImageOptions) -> Result<Self> {
        Ok(Self { options: options.checked()? })
    }

    /// The options.
    pub fn options(&self) -> &ImageOptions {
        &self.options
    }

    /// What the header of `source` says. Rejects what [`Self::convert`] would reject for its header alone.
    pub fn peek(&self, source: &[u8]) -> Result<Header, Reject> {
        let source = Source::read(source, &self.options)?;
        let size = source.oriented_size();
        let plan = self.plan(&source)?;
        Ok(Header {
            image_type: source.image_type,
            width: size.width,
            height: size.height,
            memory_bytes: memory_bytes(&source, &plan),
        })
    }

    /// Converts the image file `source`. The same bytes and options always give the same outcome.
    pub fn convert(&self, source: &Bytes, scratch: &mut Scratch) -> Result<Outcome, Reject> {
        let outcome = self.convert_untrimmed(source, scratch);
        scratch.trim();
        outcome
    }

    fn convert_untrimmed(&self, bytes: &Bytes, scratch: &mut Scratch) -> Result<Outcome, Reject> {
        let options = &self.options;
        let mut source = Source::read(bytes, options)?;
        if let Some(reason) = self.filtered(source.oriented_size()) {
            return Ok(Outcome::Filtered(reason));
        }
        if source.structure.animated && options.animated == Animated::Reject {
            return Err(Reject::new(RejectCode::Animated, "the file holds several frames"));
        }
        if let Some(header) = &source.jpeg
            && !jpeg::is_ended(bytes, header.first_scan)
        {
            source.structure.note(container::truncated("its scans"));
        }
        let damage = source.structure.damage.take();
        let mut lenient = damage.is_some();
        if let Some(damage) = damage
            && !options.lenient
        {
            return Err(damage);
        }
        let plan = self.plan(&source)?;
        let passthrough = self.passes_through(&source, &plan);

        // Only decoding at full size proves a file whole, and only that may pass through.
        let stored =
            if source.structure.orientation.transposes() { plan.resized.transposed() } else { plan.resized };
        let reduction = match &source.jpeg {
            Some(header) if !passthrough => decode_jpeg::reduction(header, source.structure.size, stored),
            _ => 1,
        };
        match &source.jpeg {
            Some(header) => {
                lenient |= decode_jpeg::decode(
                    bytes,
                    header,
                    options,
                    reduction,
                    &mut scratch.samples,
                    &mut scratch.decoded,
                )?;
            }
            None => {
                decode_other::decode(&source, options, &mut scratch.samples, &mut scratch.decoded)?;
            }
        }
        if passthrough && !lenient {
            return Ok(Outcome::Converted(Converted {
                bytes: bytes.clone(),
                width: plan.canvas.width,
                height: plan.canvas.height,
                encoding: source.image_type,
                passthrough: true,
                lenient: false,
            }));
        }
        self.shape(&source, &plan, stored, reduction, scratch)?;
        let encoding = self.encoding(&source);
        let pixels = &scratch.decoded;
        Ok(Outcome::Converted(Converted {
            bytes: encode::encode(pixels, encoding)?.into(),
            width: pixels.width,
            height: pixels.height,
            encoding: encoding.output_type().unwrap_or(source.image_type),
            passthrough: false,
            lenient,
        }))
    }

    /// Resizes, turns upright, crops and pads the decoded image; the result is in `scratch.decoded`.
    fn shape(
        &self,
        source: &Source<'_>,
        plan: &Plan,
        stored: Size,
        reduction: u32,
        scratch: &mut Scratch,
    ) -> Result<(), Reject> {
        let Scratch { decoded, resized, resizer, .. } = scratch;
        if decoded.size() != stored {
            let covered = |side: u32| f64::from(side) / f64::from(reduction);
            let size = source.structure.size;
            let extent = Extent { width: covered(size.width), height: covered(size.height) };
            resize::resize(resizer, self.options.filter, decoded, extent, stored, resized)?;
            std::mem::swap(decoded, resized);
        }
        if source.structure.orientation != Orientation::Upright {
            pixels::orient(decoded, source.structure.orientation, resized);
            std::mem::swap(decoded, resized);
        }
        if plan.crop.size != plan.resized {
            pixels::crop(decoded, plan.crop, resized);
            std::mem::swap(decoded, resized);
        }
        if plan.canvas != plan.crop.size {
            pixels::pad(decoded, plan.canvas, &self.pad_color(decoded), resized);
            std::mem::swap(decoded, resized);
        }
        Ok(())
    }

    /// The colour of the padding, in the channels of the output.
    fn pad_color(&self, pixels: &Pixels) -> [u8; 4] {
        let Rgb(rgb) = self.options.pad.map_or(Rgb::BLACK, |pad| pad.color);
        let [r, g, b] = if pixels.channels == 1 { [luma(rgb); 3] } else { rgb };
        [r, g, b, 255]
    }

    /// The sizes of the conversion, checked against the limits.
    fn plan(&self, source: &Source<'_>) -> Result<Plan, Reject> {
        let plan = Plan::new(&self.options, source.oriented_size());
        check_pixels(plan.resized, self.options.max_pixels, "the resized image")?;
        check_pixels(plan.canvas, self.options.max_pixels, "the padded image")?;
        Ok(plan)
    }

    fn filtered(&self, size: Size) -> Option<Filtered> {
        let ImageOptions { min_size, max_aspect, min_pixels, .. } = self.options;
        if min_size.is_some_and(|least| size.shorter() < least) {
            Some(Filtered::MinSize)
        } else if max_aspect.is_some_and(|most| f64::from(size.longer()) > most * f64::from(size.shorter())) {
            Some(Filtered::MaxAspect)
        } else if min_pixels.is_some_and(|least| size.pixels() < least) {
            Some(Filtered::MinPixels)
        } else {
            None
        }
    }

    /// Whether the file may stay as it is, should it decode without damage.
    fn passes_through(&self, source: &Source<'_>, plan: &Plan) -> bool {
        self.options.encode == Encode::Keep
            && plan.is_identity()
            && source.structure.orientation == Orientation::Upright
            && !source.structure.animated
    }

    /// What the output is encoded as. A type that cannot be written here becomes PNG.
    fn encoding(&self, source: &Source<'_>) -> Encode {
        match (self.options.encode, source.image_type) {
            (Encode::Keep, ImageType::Jpeg) if self.options.color != Color::Rgba => {
                Encode::Jpeg { quality: DEFAULT_JPEG_QUALITY, subsampling: Subsampling::default() }
            }
            (Encode::Keep, ImageType::Webp) if container::webp::is_lossless(source.bytes) => {
                Encode::WebpLossless
            }
            (Encode::Keep, ImageType::Webp) => Encode::Webp { quality: DEFAULT_WEBP_QUALITY },
            (Encode::Keep, _) => Encode::Png,
            (encode, _) => encode,
        }
    }
}

/// What every conversion needs beside its pixels.
const FIXED_BYTES: u64 = 1 << 20;

/// An upper estimate of the memory a conversion needs.
fn memory_bytes(source: &Source<'_>, plan: &Plan) -> u64 {
    let pixels = source.structure.size.pixels();
    let decoded = match &source.jpeg {
        // Component planes, upsampled rows and the interleaved image; for several scans the coefficients, 16 bits each.
        Some(header) => {
            let components = header.frame.components as u64;
            let is_progressive = header.frame.process == jpeg::Process::Progressive;
            pixels * (4 + components) + if is_progressive { pixels * (2 * components + 1) } else { 0 }
        }
        // Up to 8 bytes as stored, 4 as converted, and as much again inside the decoder.
        None => pixels * 20,
    };
    // The rows of the resize, the image turned, cropped and padded, and its encoded form.
    let between = u64::from(plan.source.longer()) * u64::from(plan.resized.longer()) * 4;
    let shaped = (plan.resized.pixels() + plan.canvas.pixels()) * 8;
    decoded + between.min(pixels * 4 + shaped) + shaped + FIXED_BYTES
}
