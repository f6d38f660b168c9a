//! Outcomes of the image transform.

use bytes::Bytes;

use crate::decode::ImageType;

/// The outcome of an image that is not rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageOutcome {
    /// The image was converted and becomes a record.
    Converted(Converted),
    /// The selection options exclude the image.
    Filtered(Filtered),
}

impl ImageOutcome {
    /// Adds a defect of the source that was removed before the conversion.
    pub(super) fn tolerating(mut self, defect: Tolerated) -> Self {
        if let Self::Converted(image) = &mut self
            && !image.tolerated.contains(&defect)
        {
            image.tolerated.push(defect);
        }
        self
    }
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
    /// The type of `bytes`.
    pub encoding: ImageType,
    /// Whether the coded pixels were copied unchanged from the source.
    pub passthrough: bool,
    /// Whether the file is a JPEG with several scans, which is slow to decode.
    pub has_several_scans: bool,
    /// Whether the source was damaged and is kept as far as it decodes.
    pub lenient: bool,
    /// Whether the EXIF block of the source was to be kept, but is too large for the type of `bytes`.
    pub lacks_exif: bool,
    /// What is wrong with the source, although no pixel is lost.
    pub tolerated: Vec<Tolerated>,
    /// Whether the samples of a TIFF exceed the range of their type, or hardly use it.
    pub has_odd_range: bool,
    /// Number of further pages of a TIFF, which are left out.
    pub further_pages: u64,
    /// Number of channels of a TIFF that are neither colors nor alpha, which are left out.
    pub further_channels: u64,
}

/// A defect of a source that loses no pixel, so that the image is converted nevertheless.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tolerated {
    /// A JPEG with bytes between the segments before its first scan, which libjpeg skips.
    StrayBytes,
    /// A sequential JPEG whose scan has other parameters than 0, 63 and 0, which libjpeg ignores.
    ScanParameters,
    /// A PNG with damaged ancillary chunks, which libpng skips, or with frames of an animation in a wrong order.
    PngChunks,
    /// A GIF that ends after its first frame without its end, or continues with other bytes.
    GifEnd,
    /// A BMP whose number of planes is not 1.
    BmpHeader,
    /// A QOI without its end marker.
    QoiEnd,
}

impl Tolerated {
    /// Returns the name of the count in the notes of a manifest.
    pub fn note(self) -> &'static str {
        match self {
            Tolerated::StrayBytes => "tolerated_stray_bytes",
            Tolerated::ScanParameters => "tolerated_scan_parameters",
            Tolerated::PngChunks => "tolerated_png_chunks",
            Tolerated::GifEnd => "tolerated_gif_end",
            Tolerated::BmpHeader => "tolerated_bmp_header",
            Tolerated::QoiEnd => "tolerated_qoi_end",
        }
    }
}

/// The reason why the selection options exclude an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Filtered {
    /// The shorter side is below `min_size`.
    MinSize,
    /// The ratio of the sides is above `max_aspect`.
    MaxAspect,
    /// The image has fewer pixels than `min_pixels`.
    MinPixels,
    /// The image is smaller than its bucket.
    Buckets,
}

impl Filtered {
    /// Returns the name used in the list of filtered items.
    pub fn name(self) -> &'static str {
        match self {
            Filtered::MinSize => "min-size",
            Filtered::MaxAspect => "max-aspect",
            Filtered::MinPixels => "min-pixels",
            Filtered::Buckets => "buckets",
        }
    }
}
