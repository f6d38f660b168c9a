//! The encoding of the output: the `--encode` option.

use std::fmt;
use std::str::FromStr;

use super::option_values::{did_you_mean, not_accepted};
use crate::decode::{ImageType, PlanesChroma};
use crate::error::{Error, Result};
use crate::options::serde_as_text;

/// Default JPEG quality.
pub const DEFAULT_JPEG_QUALITY: u8 = 90;
/// Default WebP quality.
pub const DEFAULT_WEBP_QUALITY: u8 = 90;

/// Chroma subsampling of a JPEG or of planes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Subsampling {
    /// 4:2:0: one chroma sample per 2×2 pixels.
    #[default]
    S420,
    /// 4:4:4: chroma at full resolution.
    S444,
}

/// The encoding of the output.
///
/// | text | output |
/// |---|---|
/// | `jpeg`, `jpeg:Q`, `jpeg:Q:420`, `jpeg:Q:444` | baseline JPEG of quality Q from 1 to 100 |
/// | `png` | 8-bit PNG |
/// | `webp`, `webp:Q` | lossy WebP of quality Q from 1 to 100 |
/// | `webp-lossless` | lossless WebP |
/// | `yuv420`, `yuv444` | planes of luma and chroma, see [`ImageType::Planes`] |
/// | `raw` | bare samples, see [`ImageType::Raw`] |
/// | `keep` | the type of the source |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encode {
    /// Baseline JPEG.
    Jpeg {
        /// 1 to 100, on the scale of the IJG library.
        quality: u8,
        /// Chroma subsampling.
        subsampling: Subsampling,
    },
    /// 8-bit PNG.
    Png,
    /// Lossy WebP.
    Webp {
        /// 1 to 100, on the scale of libwebp.
        quality: u8,
    },
    /// Lossless WebP.
    WebpLossless,
    /// Planes of luma and chroma, not compressed.
    Yuv(Subsampling),
    /// Bare samples.
    Raw,
    /// The type of the source; its bytes are kept if nothing has to change.
    Keep,
}

impl Encode {
    /// Refuses an encoding whose encoder this build lacks.
    pub(super) fn check(self) -> Result<()> {
        match self {
            Encode::Webp { .. } if !cfg!(feature = "webp") => {
                Err(Error::missing_feature("lossy WebP", "webp").of_option("encode"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the type of the output; `None` for [`Encode::Keep`], because it depends on the source.
    pub fn output_type(self) -> Option<ImageType> {
        match self {
            Encode::Jpeg { .. } => Some(ImageType::Jpeg),
            Encode::Png => Some(ImageType::Png),
            Encode::Webp { .. } | Encode::WebpLossless => Some(ImageType::Webp),
            Encode::Yuv(_) => Some(ImageType::Planes),
            Encode::Raw => Some(ImageType::Raw),
            Encode::Keep => None,
        }
    }

    /// Returns the maximum length of a side that the format allows, in pixels.
    pub fn max_side(self) -> u32 {
        match self {
            Encode::Jpeg { .. } => 65_500,
            Encode::Webp { .. } | Encode::WebpLossless => 16_383,
            Encode::Png | Encode::Yuv(_) | Encode::Raw | Encode::Keep => i32::MAX.cast_unsigned(),
        }
    }
}

impl Subsampling {
    /// Returns the chroma planes of images with this subsampling.
    pub(super) fn planes(self) -> PlanesChroma {
        match self {
            Subsampling::S420 => PlanesChroma::S420,
            Subsampling::S444 => PlanesChroma::S444,
        }
    }
}

impl Default for Encode {
    fn default() -> Self {
        Encode::Jpeg { quality: DEFAULT_JPEG_QUALITY, subsampling: Subsampling::default() }
    }
}

fn quality(text: &str) -> Option<u8> {
    super::option_values::positive::<u8>(text).filter(|q| *q <= 100)
}

impl FromStr for Encode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        encoding_of(text).ok_or_else(|| {
            let error = not_accepted(
                "encoding",
                text,
                "jpeg:Q, jpeg:Q:420, jpeg:Q:444, png, webp:Q, webp-lossless, yuv420, yuv444, raw or keep, with Q from 1 to 100",
            );
            match suggestion(text) {
                Some(value) => did_you_mean(error, &value),
                None => error,
            }
        })
    }
}

/// Returns the encoding that `text` names.
fn encoding_of(text: &str) -> Option<Encode> {
    let parts: Vec<&str> = text.split(':').collect();
    match parts[..] {
        ["jpeg"] => Some(Encode::default()),
        ["jpeg", q] => {
            quality(q).map(|quality| Encode::Jpeg { quality, subsampling: Subsampling::default() })
        }
        ["jpeg", q, "420"] => {
            quality(q).map(|quality| Encode::Jpeg { quality, subsampling: Subsampling::S420 })
        }
        ["jpeg", q, "444"] => {
            quality(q).map(|quality| Encode::Jpeg { quality, subsampling: Subsampling::S444 })
        }
        ["png"] => Some(Encode::Png),
        ["webp"] => Some(Encode::Webp { quality: DEFAULT_WEBP_QUALITY }),
        ["webp", q] => quality(q).map(|quality| Encode::Webp { quality }),
        ["webp-lossless"] => Some(Encode::WebpLossless),
        ["yuv420"] => Some(Encode::Yuv(Subsampling::S420)),
        ["yuv444"] => Some(Encode::Yuv(Subsampling::S444)),
        ["raw"] => Some(Encode::Raw),
        ["keep"] => Some(Encode::Keep),
        _ => None,
    }
}

/// Suggests the encoding that was probably meant by an invalid text.
fn suggestion(text: &str) -> Option<String> {
    let text = text.to_ascii_lowercase().replace(['=', ','], ":");
    let text = match (text.strip_prefix("jpg"), quality(&text)) {
        (Some(rest), _) => format!("jpeg{rest}"),
        (None, Some(quality)) => format!("jpeg:{quality}"),
        _ => text,
    };
    // Not `parse`, whose error would request this suggestion again.
    encoding_of(&text).is_some().then_some(text)
}

impl fmt::Display for Encode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Encode::Jpeg { quality, subsampling: Subsampling::S420 } => write!(f, "jpeg:{quality}:420"),
            Encode::Jpeg { quality, subsampling: Subsampling::S444 } => write!(f, "jpeg:{quality}:444"),
            Encode::Png => f.write_str("png"),
            Encode::Webp { quality } => write!(f, "webp:{quality}"),
            Encode::WebpLossless => f.write_str("webp-lossless"),
            Encode::Yuv(Subsampling::S420) => f.write_str("yuv420"),
            Encode::Yuv(Subsampling::S444) => f.write_str("yuv444"),
            Encode::Raw => f.write_str("raw"),
            Encode::Keep => f.write_str("keep"),
        }
    }
}

serde_as_text!(Encode);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_survive_a_round_trip() {
        let texts = [
            "jpeg:90:420",
            "jpeg:75:444",
            "png",
            "webp:80",
            "webp-lossless",
            "yuv420",
            "yuv444",
            "raw",
            "keep",
        ];
        for text in texts {
            assert_eq!(text.parse::<Encode>().unwrap().to_string(), text);
        }
        assert_eq!("jpeg".parse::<Encode>().unwrap(), Encode::default());
        assert_eq!("jpeg:90".parse::<Encode>().unwrap(), Encode::default());
    }

    #[test]
    fn near_misses_get_a_suggestion() {
        let help = |text: &str| text.parse::<Encode>().unwrap_err().remedy().map(str::to_owned);
        assert_eq!(help("jpg:90").unwrap(), "did you mean jpeg:90?");
        assert_eq!(help("JPEG=75").unwrap(), "did you mean jpeg:75?");
        assert_eq!(help("90").unwrap(), "did you mean jpeg:90?");
        assert_eq!(help("mozjpeg"), None);
    }

    #[test]
    fn errors_list_the_accepted_values() {
        for text in [
            "",
            "jpg",
            "jpeg:0",
            "jpeg:101",
            "jpeg:90:422",
            "jpeg:90:420:1",
            "webp:x",
            "png:9",
            "yuv422",
            "yuv",
        ] {
            let error = text.parse::<Encode>().unwrap_err().to_string();
            assert!(error.contains("webp-lossless"), "{error}");
        }
    }
}
