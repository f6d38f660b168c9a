//! The semantic options of the image transform: everything that affects pixels or filters images.
//!
//! They are serialized into the manifest and are part of the fingerprint; nothing operational belongs here.

use std::num::NonZeroU16;

use super::buckets::Buckets;
use super::encoding::Encode;
use super::option_values::{Animated, Color, Crop, Filter, Icc, Pad, Resize, Rgb};
use crate::error::{Error, Result};
use crate::options::{is_default, option_values, options};

/// Default maximum number of pixels of an image. Above it, Pillow raises `DecompressionBombError`.
pub const DEFAULT_MAX_PIXELS: u64 = 178_956_970;

option_values! { Text: Resize, Crop, Pad, Rgb, Encode, Buckets; }

options! {
    /// The options that determine the output for an image. Sizes are those of the upright image.
    pub struct ImageOptions {
        "Pixels" {
            /// Target size: shorter:N, longer:N, exact:WxH, area:PIXELS or none
            [] resize: Resize = Resize::default(), "RULE";

            /// Allow --resize and --buckets to enlarge images
            [] enlarge: bool = false, "";

            /// Resampling filter of --resize and --buckets
            [] filter: Filter = Filter::default(), "FILTER";

            /// Crop the resized image: center:WxH
            [] crop: Option<Crop> = None, "CROP";

            /// Pad the image to a canvas: WxH or WxH:COLOR (a name or #rrggbb)
            [] pad: Option<Pad> = None, "WxH:COLOR";

            /// Aspect-ratio buckets: area:WxH[,step:N][,max-ratio:R], kohya:WxH[,step:N][,min:N][,max:N] or WxH,WxH,…
            ///
            /// Each image is resized to cover the size nearest to its aspect ratio, and cropped to it. Smaller images are left
            /// out and counted, unless --enlarge is given. area: multiples of step (64) of at most this area and of sides of at
            /// most this ratio (2). kohya: the sizes and rules of kohya-ss/sd-scripts.
            [serde(skip_serializing_if = "Option::is_none")]
            buckets: Option<Buckets> = None, "BUCKETS";

            /// Leave out buckets with fewer images, whose images then have the nearest other bucket
            ///
            /// A run reads the headers of all images before it starts. Without this option, buckets of any size stay, and give
            /// short batches.
            [serde(skip_serializing_if = "Option::is_none")]
            min_bucket: Option<u32> = None, "N", requires = Some("buckets");

            /// Color channels of the output
            [] color: Color = Color::default(), "COLOR";

            /// Background color for transparent pixels, if the output has no alpha
            [] background: Rgb = Rgb::WHITE, "COLOR";

            /// Embedded color profiles: convert pixels to sRGB, or ignore the profile
            [] icc: Icc = Icc::default(), "POLICY";

            /// Animated files: keep the first frame, or reject them
            [] animated: Animated = Animated::default(), "POLICY";

            /// Encoding: jpeg:QUALITY[:420|444], png, webp:QUALITY, webp-lossless, yuv420, yuv444, raw or keep
            [] encode: Encode = Encode::default(), "ENCODING";

            /// Store progressive JPEGs that would pass through unchanged as baseline JPEGs: same pixels, faster to decode
            [serde(skip_serializing_if = "is_default")]
            baseline: bool = false, "";

            /// Add a restart marker after every N MCUs of stored JPEGs, for faster crops in training; try 4
            [serde(skip_serializing_if = "Option::is_none")]
            restart_interval: Option<NonZeroU16> = None, "N";

            /// Keep the metadata of files that pass through, and the EXIF block of files that are encoded again
            [] keep_metadata: bool = false, "";

            /// Convert damaged images as far as they can be decoded, and count them
            [] lenient: bool = false, "";

            /// Reject images with more pixels than this, without decoding them
            [] max_pixels: u64 = DEFAULT_MAX_PIXELS, "N";
        }
        "Selection" {
            /// Leave out images whose shorter side has fewer pixels
            [] min_size: Option<u32> = None, "PIXELS";

            /// Leave out images whose longer side is more than this many times the shorter
            [] max_aspect: Option<f64> = None, "RATIO";

            /// Leave out images with fewer pixels in total
            [] min_pixels: Option<u64> = None, "PIXELS";
        }
        groups {}
        values {}
    }
}

impl ImageOptions {
    /// Rejects contradictory options, with an error that names the options.
    pub(super) fn checked(self) -> Result<Self> {
        self.encode.check()?;
        if self.max_pixels == 0 {
            return Err(Error::usage("`max_pixels` must be at least 1"));
        }
        if let Some(aspect) = self.max_aspect
            && !(aspect.is_finite() && aspect >= 1.0)
        {
            let what = match aspect < 1.0 {
                true => format!("`max_aspect {aspect}` would filter every image"),
                false => format!("`max_aspect {aspect}` is no limit"),
            };
            return Err(Error::usage(what).help("give a number of 1 or more, or leave it out"));
        }
        if self.min_bucket == Some(0) {
            return Err(Error::usage("`min_bucket` must be at least 1"));
        }
        if self.min_bucket.is_some() && self.buckets.is_none() {
            return Err(Error::usage("`min_bucket` applies only with `buckets`"));
        }
        if self.buckets.is_some() {
            let given = [
                ("resize", self.resize != Resize::None),
                ("crop", self.crop.is_some()),
                ("pad", self.pad.is_some()),
            ];
            if let Some((option, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
                let what = format!(
                    "`buckets` and `{option}` exclude each other: buckets determine the size of images"
                );
                return Err(Error::usage(what).help("leave out one of them"));
            }
        }
        let without_alpha = match self.encode {
            Encode::Jpeg { .. } => Some(("JPEG has", "jpeg".to_owned())),
            Encode::Yuv(_) => Some(("planes of luma and chroma have", self.encode.to_string())),
            _ => None,
        };
        if let (Color::Rgba, Some((what, name))) = (self.color, without_alpha) {
            let what = format!("{what} no alpha channel, so `color rgba` cannot be encoded as {name}");
            return Err(Error::usage(what).help("choose `encode png`, webp:Q, webp-lossless or raw"));
        }
        if matches!(self.encode, Encode::Yuv(_) | Encode::Raw) && self.keep_metadata {
            let what =
                format!("`encode {}` cannot store the metadata that `keep_metadata` keeps", self.encode);
            return Err(Error::usage(what));
        }
        let jpeg_options =
            [("baseline", self.baseline), ("restart_interval", self.restart_interval.is_some())];
        if !matches!(self.encode, Encode::Jpeg { .. } | Encode::Keep)
            && let Some((option, _)) = jpeg_options.into_iter().find(|(_, is_given)| *is_given)
        {
            return Err(Error::usage(format!(
                "`{option}` applies only to JPEG, which `encode {}` does not produce",
                self.encode
            )));
        }
        let longest = self.encode.max_side();
        let (w, h) = match self.resize {
            Resize::Exact(w, h) => (w, h),
            Resize::Shorter(n) | Resize::Longer(n) => (n, n),
            Resize::None | Resize::Area(_) => (1, 1),
        };
        for (option, side) in [
            ("resize", w.max(h)),
            ("pad", self.pad.map_or(1, |pad| pad.width.max(pad.height))),
            ("buckets", self.buckets.as_ref().map_or(1, Buckets::longest)),
        ] {
            if side > longest {
                return Err(Error::usage(format!(
                    "`{option}` requests {side} pixels, but {} allows at most {longest} per side",
                    self.encode
                )));
            }
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_survive_json() {
        let options = ImageOptions {
            resize: Resize::Shorter(256),
            crop: Some(Crop { width: 224, height: 224 }),
            pad: Some(Pad { width: 256, height: 256, color: Rgb::BLACK }),
            max_aspect: Some(2.5),
            ..ImageOptions::default()
        };
        let json = serde_json::to_value(&options).unwrap();
        assert_eq!(json["resize"], "shorter:256");
        assert_eq!(json["encode"], "jpeg:90:420");
        assert_eq!(json["background"], "#ffffff");
        assert_eq!(serde_json::from_value::<ImageOptions>(json).unwrap(), options);
    }

    #[test]
    fn contradictions_name_the_option() {
        let refused = |options: ImageOptions| options.checked().unwrap_err().to_string();
        let rgba = ImageOptions { color: Color::Rgba, ..ImageOptions::default() };
        assert!(refused(rgba).contains("`color rgba`"));
        let aspect = ImageOptions { max_aspect: Some(f64::NAN), ..ImageOptions::default() };
        assert!(refused(aspect).contains("`max_aspect NaN`"));
        for (option, text) in [("resize", "shorter:9"), ("crop", "center:9x9"), ("pad", "9x9")] {
            let mut options = ImageOptions { buckets: "8x8".parse().ok(), ..ImageOptions::default() };
            let definitions = <ImageOptions as crate::options::Defined>::definitions();
            definitions.iter().find(|d| d.name == option).unwrap().set(&mut options, text).unwrap();
            assert!(refused(options).contains(&format!("`buckets` and `{option}` exclude each other")));
        }
        let min_bucket = |buckets: &str, min_bucket| {
            refused(ImageOptions { buckets: buckets.parse().ok(), min_bucket, ..ImageOptions::default() })
        };
        assert!(min_bucket("8x8", Some(0)).contains("`min_bucket` must be at least 1"));
        assert!(min_bucket("", Some(3)).contains("`min_bucket` applies only with `buckets`"));
        let webp = Encode::Webp { quality: 90 };
        let buckets = "8x8,20000x8".parse().ok();
        assert!(
            refused(ImageOptions { encode: webp, buckets, ..ImageOptions::default() }).contains("`buckets`")
        );
        let pad = Some(Pad { width: 20_000, height: 1, color: Rgb::BLACK });
        assert!(refused(ImageOptions { encode: webp, pad, ..ImageOptions::default() }).contains("`pad`"));
        let restart_interval = NonZeroU16::new(4);
        let interval = ImageOptions { encode: Encode::Png, restart_interval, ..ImageOptions::default() };
        assert!(refused(interval).contains("`restart_interval`"));
        let baseline = ImageOptions { encode: Encode::Raw, baseline: true, ..ImageOptions::default() };
        assert!(refused(baseline).contains("`baseline`"));
        assert!(refused(ImageOptions { max_pixels: 0, ..ImageOptions::default() }).contains("`max_pixels`"));
    }
}
