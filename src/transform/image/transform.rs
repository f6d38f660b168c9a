//! The image transform: the order of its steps.

use bytes::Bytes;

use super::bucket_counts::{self, BucketCounts, ImageSizes};
use super::buckets::{Buckets, is_smaller};
use super::container::jpeg;
use super::encoding::{DEFAULT_JPEG_QUALITY, DEFAULT_WEBP_QUALITY, Encode, Subsampling};
use super::geometry::{Geometry, Rect, Size, SizePlan};
use super::icc::{ColorSpace, ProfileConversion};
use super::memory::memory_bytes;
use super::option_values::{Animated, Color, Icc, Rgb};
use super::options::ImageOptions;
use super::orientation::Orientation;
use super::outcome::{Converted, Filtered, ImageOutcome};
use super::pixels::{self, Pixels, luma};
use super::resize;
use super::scratch::ImageScratch;
use super::source::{CheckedImage, Header, check_pixels};
use super::{clean, colors, container, decode_jpeg, decode_other, encode, metadata, strip};
use crate::decode::{ImageType, PlanesChroma, PlanesFile, planes_file};
use crate::error::Result;
use crate::panics::{caught, contained};
use crate::sample::{Reject, RejectCode};

/// The result of a decode whose pixels are in the scratch.
struct DecodedImage {
    /// The pixels are 1/`reduction` of the size of the file.
    reduction: u32,
    /// Whether the colors of the file's pixels are already those of the output.
    is_unchanged: bool,
    /// A profile that still has to be applied to the pixels.
    profile: Option<ProfileConversion>,
    /// Whether damage was concealed.
    lenient: bool,
    /// Whether the samples exceed the range of their type, or hardly use it.
    has_odd_range: bool,
}

/// An additional image of a sample or row.
#[derive(Debug, Clone, Copy)]
pub struct FurtherImage<'a> {
    /// The geometry of the main image.
    pub main: &'a Geometry,
    /// Whether it is turned upright like the main image, if it has the size of its stored pixels and no orientation of its
    /// own.
    pub turns_with_main: bool,
}

/// Converts image files to encoded images, one at a time, from any number of threads.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct ImageTransform {
    options: ImageOptions,
}

impl ImageTransform {
    /// Creates a transform with `options`. Contradictory options are a usage error.
    pub fn new(options: ImageOptions) -> Result<Self> {
        Ok(Self { options: options.checked()? })
    }

    /// Refuses a stored transform whose encoder this build lacks.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`](crate::error::ErrorKind) with the feature.
    pub fn check_features(&self) -> Result<()> {
        self.options.encode.check()
    }

    /// Returns the options.
    pub fn options(&self) -> &ImageOptions {
        &self.options
    }

    /// Reads the header of `source`. Rejects every file that [`Self::convert`] would reject for its header alone.
    pub fn peek(&self, source: &[u8]) -> Result<Header, Reject> {
        contained(|| {
            let source = CheckedImage::read(source, &self.options)?;
            let size = source.oriented_size();
            let plan = self.plan(&source, None)?;
            Ok(Header {
                image_type: source.image_type,
                width: size.width,
                height: size.height,
                memory_bytes: memory_bytes(&source, &plan),
                geometry: Geometry {
                    plan,
                    stored: source.structure.size,
                    orientation: source.structure.orientation,
                },
            })
        })
    }

    /// Counts images of these upright `sizes` per bucket. `None` without buckets.
    pub fn count_buckets(&self, sizes: &ImageSizes) -> Option<BucketCounts> {
        Some(self.counted(sizes, 0)?.1)
    }

    /// Leaves out buckets with fewer than [`ImageOptions::min_bucket`] images of these upright `sizes`, and returns the
    /// counts of the others. `None` without buckets.
    pub fn leave_out_buckets(&mut self, sizes: &ImageSizes) -> Option<BucketCounts> {
        let (buckets, counts) = self.counted(sizes, self.options.min_bucket.unwrap_or(0).into())?;
        self.options.buckets = Some(buckets);
        Some(counts)
    }

    fn counted(&self, sizes: &ImageSizes, least: u64) -> Option<(Buckets, BucketCounts)> {
        let buckets = self.options.buckets.clone()?;
        let all = sizes.iter().map(|(&(width, height), &images)| (Size::new(width, height), images));
        let (filtered, kept): (Vec<_>, Vec<_>) =
            all.partition(|(size, _)| self.filtered_alone(*size).is_some());
        let (buckets, counts) = bucket_counts::count(buckets, kept.into_iter(), self.options.enlarge, least);
        let filtered = filtered.into_iter().map(|(_, images)| images).sum();
        Some((buckets, BucketCounts { filtered, ..counts }))
    }

    /// Converts the image file `source`. The same bytes and options always give the same outcome. A panic, for example
    /// in a decoder, becomes a reject.
    pub fn convert(&self, source: &Bytes, scratch: &mut ImageScratch) -> Result<ImageOutcome, Reject> {
        self.convert_caught(source, None, scratch)
    }

    /// Converts an additional image of a sample or row, with the same options. With buckets, its bucket is the bucket of the main
    /// image. It is never filtered, because the main image was not.
    ///
    /// # Errors
    ///
    /// Rejects the same files as [`Self::convert`], and images that are smaller than the bucket.
    pub fn convert_further(
        &self,
        source: &Bytes,
        further: FurtherImage<'_>,
        scratch: &mut ImageScratch,
    ) -> Result<ImageOutcome, Reject> {
        self.convert_caught(source, Some(further), scratch)
    }

    fn convert_caught(
        &self,
        source: &Bytes,
        further: Option<FurtherImage<'_>>,
        scratch: &mut ImageScratch,
    ) -> Result<ImageOutcome, Reject> {
        let outcome = caught(|| self.convert_untrimmed(source, further, scratch)).unwrap_or_else(|panic| {
            scratch.renew();
            Err(panic.into_reject())
        });
        scratch.trim();
        outcome
    }

    fn convert_untrimmed(
        &self,
        bytes: &Bytes,
        further: Option<FurtherImage<'_>>,
        scratch: &mut ImageScratch,
    ) -> Result<ImageOutcome, Reject> {
        let source = CheckedImage::read(bytes, &self.options)?;
        if let Some((clean, defect)) = clean::clean(&source) {
            self.check_frames(&source)?;
            let outcome = self.convert_untrimmed(&clean, further, scratch)?;
            return Ok(outcome.tolerating(defect));
        }
        let image_type = source.image_type;
        let outcome = self.convert_clean(bytes, source, further, scratch);
        let is_damaged = match &outcome {
            Ok(ImageOutcome::Converted(image)) => image.lenient,
            Ok(ImageOutcome::Filtered(_)) => false,
            Err(reject) => reject.code == RejectCode::Corrupt,
        };
        if is_damaged
            && let Some((clean, defect)) = clean::without_suspects(bytes, image_type)
            && let Ok(second) = self.convert_untrimmed(&clean, further, scratch)
            && !matches!(&second, ImageOutcome::Converted(image) if image.lenient)
        {
            return Ok(second.tolerating(defect));
        }
        outcome
    }

    /// Converts `source`, which has no defects that are tolerated.
    fn convert_clean(
        &self,
        bytes: &Bytes,
        mut source: CheckedImage<'_>,
        further: Option<FurtherImage<'_>>,
        scratch: &mut ImageScratch,
    ) -> Result<ImageOutcome, Reject> {
        if let Some(further) = further.filter(|further| further.turns_with_main) {
            source.turn_like(further.main);
        }
        if further.is_none()
            && let Some(reason) = self.filtered(source.oriented_size())
        {
            return Ok(ImageOutcome::Filtered(reason));
        }
        let mut lenient = self.take_damage(&mut source)?;
        let plan = self.plan(&source, further)?;
        let may_pass = !lenient && self.may_pass(&source, &plan);

        if !may_pass && let Some(file) = self.kept_planes(&source, &plan, scratch)? {
            return Ok(ImageOutcome::Converted(self.encoded(&source, file, plan.canvas, lenient, scratch)));
        }
        if !may_pass && let Some(file) = self.convert_planar(&source, &plan, scratch)? {
            return Ok(ImageOutcome::Converted(self.encoded(&source, file, plan.canvas, lenient, scratch)));
        }
        let decoded = match &source.jpeg {
            Some(header) => self.decode_jpeg(&source, header, &plan, may_pass, scratch)?,
            None => self.decode_other(&source, scratch)?,
        };
        lenient |= decoded.lenient;
        if may_pass && decoded.is_unchanged && !lenient {
            let bytes = if self.options.keep_metadata { bytes.clone() } else { strip::strip(bytes, &source) };
            let has_several_scans =
                source.jpeg.as_ref().is_some_and(|header| header.has_several_scans(source.bytes));
            // Files that cannot be stored as baseline JPEG are unchanged.
            let baseline = (self.options.baseline && has_several_scans)
                .then(|| dsconvert_jpeg::to_baseline(&bytes, self.options.restart_interval).ok())
                .flatten();
            let has_several_scans = has_several_scans && baseline.is_none();
            let bytes = baseline.map_or(bytes, Bytes::from);
            return Ok(ImageOutcome::Converted(Converted {
                bytes: self.with_restarts(bytes, source.image_type, scratch),
                has_several_scans,
                width: plan.canvas.width,
                height: plan.canvas.height,
                encoding: source.image_type,
                passthrough: true,
                lenient: false,
                lacks_exif: false,
                tolerated: Vec::new(),
                has_odd_range: decoded.has_odd_range,
                further_pages: source.structure.further_pages,
                further_channels: source.structure.further_channels,
            }));
        }
        self.shape(&source, &plan, &decoded, scratch)?;
        let pixels = &scratch.decoded;
        let encoded = encode::encode(pixels, self.encoding(&source))?;
        let size = pixels.size();
        let image = self.encoded(&source, encoded, size, lenient, scratch);
        Ok(ImageOutcome::Converted(Converted { has_odd_range: decoded.has_odd_range, ..image }))
    }

    /// Returns the planes of a JPEG that keeps its size, as decoded. Returns `None` if the planes of the output are
    /// others, or the options need RGB.
    fn kept_planes(
        &self,
        source: &CheckedImage<'_>,
        plan: &SizePlan,
        scratch: &mut ImageScratch,
    ) -> Result<Option<Vec<u8>>, Reject> {
        let (Some(header), Encode::Yuv(subsampling)) = (&source.jpeg, self.options.encode) else {
            return Ok(None);
        };
        let is_kept = plan.is_identity()
            && source.structure.orientation == Orientation::Upright
            && self.is_plain_jpeg(header);
        if !is_kept || self.jpeg_profile(header, scratch).is_some() {
            return Ok(None);
        }
        decode_jpeg::check_file_size(source)?;
        let size = source.structure.size;
        let (width, height) = (size.width as usize, size.height as usize);
        let request = dsconvert_jpeg::PlanesRequest {
            size: (width, height),
            scale: dsconvert_jpeg::Scale::Full,
            region: dsconvert_jpeg::Region::whole(width, height),
            reads_to_end: true,
        };
        let Ok(stored) = scratch.jpeg.decode_planes(source.bytes, request) else { return Ok(None) };
        let chroma = subsampling.planes();
        let spread = usize::from(chroma.spread());
        let Some([cb, cr]) = stored.chroma.filter(|[cb, _]| cb.spread == (spread, spread)) else {
            return Ok(None);
        };
        let planes = [stored.luma, cb, cr].map(|plane| (plane.samples, plane.stride));
        Ok(Some(planes_file(size, chroma, &planes)))
    }

    /// Returns whether a JPEG has components of luma and chroma, or only luma, that the output can have, too.
    fn is_plain_jpeg(&self, header: &jpeg::JpegHeader<'_>) -> bool {
        header.frame.process != dsconvert_jpeg::Process::Lossless
            && header.frame.precision == 8
            && self.options.color == Color::Rgb
    }

    /// Resizes a JPEG to a JPEG or to planes without converting to RGB. Returns `None` if that is not possible or the
    /// options need RGB. Images that keep their size do not take this path: they are encoded from the RGB pixels that
    /// other decoders produce.
    pub(super) fn convert_planar(
        &self,
        source: &CheckedImage<'_>,
        plan: &SizePlan,
        scratch: &mut ImageScratch,
    ) -> Result<Option<Vec<u8>>, Reject> {
        let encoding = self.encoding(source);
        let chroma = match encoding {
            Encode::Jpeg { subsampling: Subsampling::S420, .. } => PlanesChroma::S420,
            Encode::Yuv(subsampling) => subsampling.planes(),
            _ => return Ok(None),
        };
        let Some(header) = &source.jpeg else { return Ok(None) };
        let is_plain = self.is_plain_jpeg(header)
            && plan.resized != plan.source
            && plan.canvas == plan.crop.size
            && plan.canvas.longer() <= encoding.max_side();
        if !is_plain || self.jpeg_profile(header, scratch).is_some() {
            return Ok(None);
        }
        decode_jpeg::check_file_size(source)?;
        let size = source.structure.size;
        let reduction =
            decode_jpeg::reduction(header, size, plan.stored_resized(source.structure.orientation));
        let ImageScratch { planar, jpeg, .. } = scratch;
        let planes =
            planar.convert(source, plan, reduction, self.options.filter, chroma.spread().into(), jpeg);
        Ok(planes.and_then(|planes| match encoding {
            Encode::Jpeg { quality, .. } => encode::jpeg_of_planes(planes, quality),
            _ => {
                let samples = planes.each_ref().map(|plane| (plane.data.as_slice(), plane.stride()));
                Some(planes_file(planes[0].size(), chroma, &samples))
            }
        }))
    }

    /// Rejects animation unless the options allow it.
    fn check_frames(&self, source: &CheckedImage<'_>) -> Result<(), Reject> {
        if source.structure.animated && self.options.animated == Animated::Reject {
            return Err(Reject::new(RejectCode::Animated, "the file contains several frames"));
        }
        Ok(())
    }

    /// Rejects animation and damage unless the options allow them. Returns true if there is damage that they allow.
    fn take_damage(&self, source: &mut CheckedImage<'_>) -> Result<bool, Reject> {
        self.check_frames(source)?;
        if let Some(header) = &source.jpeg
            && !jpeg::is_ended(source.bytes, header.first_scan)
        {
            source.structure.note(container::truncated("its scans"));
        }
        match source.structure.damage.take() {
            Some(damage) if !self.options.lenient => Err(damage),
            damage => Ok(damage.is_some()),
        }
    }

    /// Decodes `bytes`, calls `decoded`, and shapes the pixels into `scratch.decoded`.
    pub(super) fn decode_and_shape(
        &self,
        bytes: &[u8],
        scratch: &mut ImageScratch,
        decoded: impl FnOnce(),
    ) -> Result<(), Reject> {
        let mut source = CheckedImage::read(bytes, &self.options)?;
        if let Some((clean, _)) = clean::clean(&source) {
            self.check_frames(&source)?;
            return self.decode_and_shape(&clean, scratch, decoded);
        }
        match self.decode_clean(&mut source, scratch) {
            Ok((plan, found)) => {
                decoded();
                self.shape(&source, &plan, &found, scratch)
            }
            Err(reject) if reject.code == RejectCode::Corrupt => {
                let (clean, _) = clean::without_suspects(bytes, source.image_type).ok_or(reject)?;
                self.decode_and_shape(&clean, scratch, decoded)
            }
            Err(reject) => Err(reject),
        }
    }

    /// Decodes `source`, which has no defects that are tolerated, into `scratch.decoded`.
    fn decode_clean(
        &self,
        source: &mut CheckedImage<'_>,
        scratch: &mut ImageScratch,
    ) -> Result<(SizePlan, DecodedImage), Reject> {
        self.take_damage(source)?;
        let plan = self.plan(source, None)?;
        let found = match &source.jpeg {
            Some(header) => self.decode_jpeg(source, header, &plan, false, scratch)?,
            None => self.decode_other(source, scratch)?,
        };
        Ok((plan, found))
    }

    /// Returns the outcome of a newly encoded image, with the metadata to keep.
    fn encoded(
        &self,
        source: &CheckedImage<'_>,
        mut file: Vec<u8>,
        size: Size,
        lenient: bool,
        scratch: &mut ImageScratch,
    ) -> Converted {
        let Size { width, height } = size;
        let encoding = self.encoding(source).output_type().unwrap_or(source.image_type);
        let mut lacks_exif = false;
        if self.options.keep_metadata
            && let Some(block) = metadata::upright_exif(source)
        {
            lacks_exif = !metadata::fits(encoding, &block);
            file = metadata::with_exif(file, encoding, (width, height), &block);
        }
        Converted {
            bytes: self.with_restarts(file.into(), encoding, scratch),
            width,
            height,
            encoding,
            passthrough: false,
            has_several_scans: false,
            lenient,
            lacks_exif,
            tolerated: Vec::new(),
            has_odd_range: false,
            further_pages: source.structure.further_pages,
            further_channels: source.structure.further_channels,
        }
    }

    /// Returns the file with the restart markers that the options request. Progressive and unusual JPEGs, and those
    /// that already have restart markers, are unchanged.
    fn with_restarts(&self, file: Bytes, image_type: ImageType, scratch: &mut ImageScratch) -> Bytes {
        match self.options.restart_interval {
            Some(interval) if image_type == ImageType::Jpeg => {
                scratch.jpeg.with_restarts(&file, interval).map_or(file, Bytes::from)
            }
            _ => file,
        }
    }

    /// Returns the conversion that a JPEG needs to be in sRGB.
    fn jpeg_profile(
        &self,
        header: &jpeg::JpegHeader<'_>,
        scratch: &mut ImageScratch,
    ) -> Option<ProfileConversion> {
        let space = match header.frame.components {
            1 => ColorSpace::Gray,
            3 => ColorSpace::Rgb,
            _ => ColorSpace::Cmyk,
        };
        match self.options.icc {
            Icc::Convert => scratch.profiles.conversion(&header.icc_profile()?, space),
            Icc::Drop => None,
        }
    }

    /// Decodes a JPEG into `scratch.decoded`. The profile is not applied yet, except to CMYK.
    fn decode_jpeg(
        &self,
        source: &CheckedImage<'_>,
        header: &jpeg::JpegHeader<'_>,
        plan: &SizePlan,
        may_pass: bool,
        scratch: &mut ImageScratch,
    ) -> Result<DecodedImage, Reject> {
        let profile = self.jpeg_profile(header, scratch);
        let size = source.structure.size;
        let stored = plan.stored_resized(source.structure.orientation);
        // A file that passes through is decoded only to check that it is intact. All of it is read, but only one pixel
        // is requested. A decoder that conceals damage produces all pixels, and then the file does not pass through.
        let is_check = may_pass && profile.is_none();
        let reduction = if is_check { 1 } else { decode_jpeg::reduction(header, size, stored) };
        let crop = plan.stored_crop(source.structure.orientation);
        let decoded = size.reduced(reduction);
        // The whole file is read, but only the pixels that the crop keeps are produced.
        let needed = if is_check {
            Rect { left: 0, top: 0, size: Size::new(1, 1) }
        } else if decoded == stored {
            crop
        } else {
            let part = resize::source_region(size, reduction, stored, crop);
            resize::pixels_read(self.options.filter, decoded, part, crop.size)
        };
        let request = decode_jpeg::JpegRequest {
            source,
            header,
            options: &self.options,
            reduction,
            needed,
            profile: profile.as_ref(),
        };
        let lenient = request.decode(scratch)?;
        Ok(DecodedImage {
            reduction,
            is_unchanged: profile.is_none(),
            profile,
            lenient,
            has_odd_range: false,
        })
    }

    /// Decodes any other type into `scratch.decoded`, in sRGB.
    fn decode_other(
        &self,
        source: &CheckedImage<'_>,
        scratch: &mut ImageScratch,
    ) -> Result<DecodedImage, Reject> {
        let ImageScratch { samples, decoded, profiles, .. } = scratch;
        let file = decode_other::decode(source, self.options.lenient, samples, decoded)?;
        let profile = match self.options.icc {
            Icc::Convert => file.icc.and_then(|icc| profiles.conversion(&icc, file.space)),
            Icc::Drop => None,
        };
        // Before blending transparency, because the background color is in sRGB.
        if let Some(profile) = &profile {
            profile.apply(decoded);
        }
        colors::to_channels(decoded, self.options.color, self.options.background);
        let is_kept = self.options.encode == Encode::Keep && !file.is_cmyk;
        let is_unchanged = profile.is_none() && (file.is_plain_rgb || is_kept);
        Ok(DecodedImage {
            reduction: 1,
            is_unchanged,
            profile: None,
            lenient: file.damage.is_some(),
            has_odd_range: file.has_odd_range,
        })
    }

    /// Resizes, turns upright, converts, crops and pads the decoded image. The result is in `scratch.decoded`.
    fn shape(
        &self,
        source: &CheckedImage<'_>,
        plan: &SizePlan,
        from: &DecodedImage,
        scratch: &mut ImageScratch,
    ) -> Result<(), Reject> {
        let ImageScratch { decoded, resized, resizer, .. } = scratch;
        let orientation = source.structure.orientation;
        let stored = plan.stored_resized(orientation);
        let crop = plan.stored_crop(orientation);
        if decoded.size() != stored {
            // Only the pixels that the crop keeps are computed.
            let part = resize::source_region(source.structure.size, from.reduction, stored, crop);
            resize::resize(resizer, self.options.filter, decoded, part, crop.size, resized)?;
            std::mem::swap(decoded, resized);
        } else if crop.size != stored {
            pixels::crop(decoded, crop, resized);
            std::mem::swap(decoded, resized);
        }
        if orientation != Orientation::Upright {
            pixels::orient(decoded, orientation, resized);
            std::mem::swap(decoded, resized);
        }
        if let Some(profile) = &from.profile {
            profile.apply(decoded);
        }
        colors::to_channels(decoded, self.options.color, self.options.background);
        if plan.canvas != plan.crop.size {
            pixels::pad(decoded, plan.canvas, &self.pad_color(decoded), resized);
            std::mem::swap(decoded, resized);
        }
        Ok(())
    }

    /// Returns the color of the padding, in the channels of the output.
    fn pad_color(&self, pixels: &Pixels) -> [u8; 4] {
        let Rgb(rgb) = self.options.pad.map_or(Rgb::BLACK, |pad| pad.color);
        let [r, g, b] = if pixels.channels == 1 { [luma(rgb); 3] } else { rgb };
        [r, g, b, 255]
    }

    /// Plans the sizes of the conversion, and checks them against the limits.
    fn plan(&self, source: &CheckedImage<'_>, further: Option<FurtherImage<'_>>) -> Result<SizePlan, Reject> {
        let size = source.oriented_size();
        let plan = match (&self.options.buckets, further) {
            (Some(buckets), Some(FurtherImage { main, .. })) => {
                let bucket = main.plan.canvas;
                if !self.options.enlarge && is_smaller(size, bucket) {
                    let message = format!(
                        "it has {}×{} pixels, which do not cover the bucket of the main image, {}×{}; `enlarge` would \
                         enlarge it",
                        size.width, size.height, bucket.width, bucket.height
                    );
                    return Err(Reject::new(RejectCode::InvalidValue, message));
                }
                SizePlan::in_bucket(buckets, size, bucket)
            }
            _ => SizePlan::new(&self.options, size),
        };
        check_pixels(plan.resized, self.options.max_pixels, "the resized image")?;
        check_pixels(plan.canvas, self.options.max_pixels, "the padded image")?;
        Ok(plan)
    }

    fn filtered(&self, size: Size) -> Option<Filtered> {
        let is_below_bucket =
            |buckets: &Buckets| !self.options.enlarge && is_smaller(size, buckets.choose(size));
        self.filtered_alone(size).or_else(|| {
            self.options.buckets.as_ref().is_some_and(is_below_bucket).then_some(Filtered::Buckets)
        })
    }

    /// Returns why the options leave out an image of `size`, whatever its bucket.
    fn filtered_alone(&self, size: Size) -> Option<Filtered> {
        let ImageOptions { min_size, max_aspect, min_pixels, .. } = self.options;
        if min_size.is_some_and(|limit| size.shorter() < limit) {
            Some(Filtered::MinSize)
        } else if max_aspect.is_some_and(|limit| f64::from(size.longer()) > limit * f64::from(size.shorter()))
        {
            Some(Filtered::MaxAspect)
        } else if min_pixels.is_some_and(|limit| size.pixels() < limit) {
            Some(Filtered::MinPixels)
        } else {
            None
        }
    }

    /// Returns whether the coded pixels may pass through unchanged, provided that they decode without damage and need
    /// no profile.
    fn may_pass(&self, source: &CheckedImage<'_>, plan: &SizePlan) -> bool {
        let ImageOptions { encode, color, .. } = self.options;
        let is_unmoved = plan.is_identity()
            && source.structure.orientation == Orientation::Upright
            && !source.structure.animated
            && !source.structure.hides_image;
        let has_output_type = match (encode, source.image_type, &source.jpeg) {
            // CMYK is always converted to RGB.
            (_, ImageType::Jpeg, Some(header)) if header.frame.components == 4 => false,
            (Encode::Keep | Encode::Jpeg { .. }, ImageType::Jpeg, Some(header)) if color == Color::Gray => {
                header.frame.components == 1 && (encode == Encode::Keep || header.frame.is_read_everywhere)
            }
            // Other readers than this build may lack the decoder, and it is slow.
            (_, ImageType::Avif, _) => false,
            (Encode::Keep, ..) => color == Color::Rgb,
            (Encode::Jpeg { .. }, ImageType::Jpeg, Some(header)) => {
                color == Color::Rgb && header.frame.components == 3 && header.frame.is_read_everywhere
            }
            (Encode::Yuv(subsampling), ImageType::Planes, _) => {
                color == Color::Rgb && planes_of(source.bytes) == Some(subsampling.planes())
            }
            (Encode::Png, ImageType::Png, _) => color == Color::Rgb,
            (Encode::Webp { .. }, ImageType::Webp, _) => {
                color == Color::Rgb && !container::webp::is_lossless(source.bytes)
            }
            (Encode::WebpLossless, ImageType::Webp, _) => {
                color == Color::Rgb && container::webp::is_lossless(source.bytes)
            }
            _ => false,
        };
        is_unmoved && has_output_type
    }

    /// Returns the encoding of the output. A type that cannot be written here becomes PNG.
    fn encoding(&self, source: &CheckedImage<'_>) -> Encode {
        match (self.options.encode, source.image_type) {
            (Encode::Keep, ImageType::Jpeg) if self.options.color != Color::Rgba => {
                Encode::Jpeg { quality: DEFAULT_JPEG_QUALITY, subsampling: Subsampling::default() }
            }
            (Encode::Keep, ImageType::Webp) if container::webp::is_lossless(source.bytes) => {
                Encode::WebpLossless
            }
            (Encode::Keep, ImageType::Webp) => Encode::Webp { quality: DEFAULT_WEBP_QUALITY },
            (Encode::Keep, ImageType::Planes) if self.options.color != Color::Rgba => {
                match planes_of(source.bytes) {
                    Some(PlanesChroma::S444) => Encode::Yuv(Subsampling::S444),
                    _ => Encode::Yuv(Subsampling::S420),
                }
            }
            (Encode::Keep, _) => Encode::Png,
            (encode, _) => encode,
        }
    }
}

/// Returns the chroma planes of a file of planes.
fn planes_of(bytes: &[u8]) -> Option<PlanesChroma> {
    PlanesFile::read(bytes).ok().map(|file| file.chroma)
}
