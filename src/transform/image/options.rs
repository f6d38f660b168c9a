//! The semantic options of the image transform: everything that affects pixels or filters images.
//!
//! They are serialized into the manifest and are part of the fingerprint; nothing operational belongs here.

use std::num::NonZeroU16;

use serde::{Deserialize, Serialize};

use super::encoding::Encode;
use super::option_values::{Animated, Color, Crop, Filter, Icc, Pad, Resize, Rgb};
use crate::error::{Error, Result};

/// Default maximum number of pixels of an image. Above it, Pillow raises `DecompressionBombError`.
pub const DEFAULT_MAX_PIXELS: u64 = 178_956_970;

/// The options that determine the output for an image.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageOptions {
    /// Size after the resize.
    pub resize: Resize,
    /// Whether a resize may make an image larger.
    pub enlarge: bool,
    /// Kernel of the resize.
    pub filter: Filter,
    /// Rectangle kept after the resize.
    pub crop: Option<Crop>,
    /// Canvas for the image after the crop.
    pub pad: Option<Pad>,
    /// Color channels of the output.
    pub color: Color,
    /// Color with which transparency is blended if the output has no alpha.
    pub background: Rgb,
    /// Handling of an embedded color profile.
    pub icc: Icc,
    /// Handling of an animated file.
    pub animated: Animated,
    /// Type and quality of the output.
    pub encode: Encode,
    /// Whether JPEGs that pass through and are progressive, or have several scans, are stored as baseline JPEGs with
    /// the same coefficients.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub baseline: bool,
    /// Restart interval in MCUs; restart markers are added to stored baseline JPEGs that have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_interval: Option<NonZeroU16>,
    /// Whether a passed-through file keeps all its metadata, and a newly encoded one its EXIF.
    pub keep_metadata: bool,
    /// Whether a damaged image is kept as far as it decodes, instead of being rejected.
    pub lenient: bool,
    /// Maximum number of pixels of the source, and of the output. An image with more is a reject.
    pub max_pixels: u64,
    /// Images whose shorter side has fewer pixels are filtered.
    pub min_size: Option<u32>,
    /// Images whose longer side is more than this many times the shorter are filtered. At least 1.
    pub max_aspect: Option<f64>,
    /// Images with fewer pixels are filtered.
    pub min_pixels: Option<u64>,
}

impl Default for ImageOptions {
    fn default() -> Self {
        Self {
            resize: Resize::default(),
            enlarge: false,
            filter: Filter::default(),
            crop: None,
            pad: None,
            color: Color::default(),
            background: Rgb::WHITE,
            icc: Icc::default(),
            animated: Animated::default(),
            encode: Encode::default(),
            baseline: false,
            restart_interval: None,
            keep_metadata: false,
            lenient: false,
            max_pixels: DEFAULT_MAX_PIXELS,
            min_size: None,
            max_aspect: None,
            min_pixels: None,
        }
    }
}

impl ImageOptions {
    /// Rejects contradictory options, with an error that names the options.
    pub(super) fn checked(self) -> Result<Self> {
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
        if self.color == Color::Rgba && matches!(self.encode, Encode::Jpeg { .. }) {
            return Err(Error::usage("JPEG has no alpha channel, so `color rgba` cannot be encoded as jpeg")
                .help("choose `encode png`, webp:Q, webp-lossless or raw"));
        }
        if self.encode == Encode::Raw && self.keep_metadata {
            return Err(Error::usage("`encode raw` cannot store the metadata that `keep_metadata` keeps"));
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
        for (option, side) in
            [("resize", w.max(h)), ("pad", self.pad.map_or(1, |pad| pad.width.max(pad.height)))]
        {
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
        let webp = Encode::Webp { quality: 90 };
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
