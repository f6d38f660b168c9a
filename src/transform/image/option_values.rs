//! Values of image options that are written as short strings. Each type has one parser and one printer, shared by the
//! command line, the manifest and the Python package.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::options::{serde_as_text, word_choice};

/// Creates the usage error for an invalid value of the option `what`, with the accepted values.
pub(super) fn not_accepted(what: &str, given: &str, accepted: &str) -> Error {
    Error::usage(format!("invalid {what} {given:?}; expected {accepted}"))
}

/// Adds a suggestion of the value that was probably meant.
pub(super) fn did_you_mean(error: Error, value: &str) -> Error {
    error.help(format!("did you mean {value}?"))
}

/// Parses a number of at least 1.
pub(super) fn positive<T: FromStr + PartialOrd + From<u8>>(text: &str) -> Option<T> {
    text.bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| text.parse::<T>().ok())
        .flatten()
        .filter(|n| *n >= T::from(1))
}

/// Parses `WxH`, with both sides at least 1.
pub(super) fn dimensions(text: &str) -> Option<(u32, u32)> {
    let (width, height) = text.split_once('x')?;
    Some((positive(width)?, positive(height)?))
}

/// The target size of a resize. Sizes are in pixels of the oriented image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Resize {
    /// The image keeps its size.
    #[default]
    None,
    /// The shorter side becomes this long; the other side keeps the aspect ratio.
    Shorter(u32),
    /// The longer side becomes this long; the other side keeps the aspect ratio.
    Longer(u32),
    /// Width and height become these; the aspect ratio may change.
    Exact(u32, u32),
    /// Width × height becomes as large as possible without exceeding this value; the aspect ratio is kept.
    Area(u64),
}

impl FromStr for Resize {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parsed = match text.split_once(':') {
            None if text == "none" => Some(Resize::None),
            Some(("shorter", n)) => positive(n).map(Resize::Shorter),
            Some(("longer", n)) => positive(n).map(Resize::Longer),
            Some(("exact", size)) => dimensions(size).map(|(w, h)| Resize::Exact(w, h)),
            Some(("area", n)) => positive(n).map(Resize::Area),
            _ => None,
        };
        parsed.ok_or_else(|| {
            let error = not_accepted(
                "resize",
                text,
                "shorter:N, longer:N, exact:WxH, area:PIXELS or none, with N, W and H at least 1",
            );
            let size = text.rsplit(['=', ':']).next().unwrap_or(text).to_ascii_lowercase();
            if dimensions(&size).is_some() {
                did_you_mean(error, &format!("exact:{size}"))
            } else if positive::<u32>(&size).is_some() {
                let side = if text.starts_with("long") { "longer" } else { "shorter" };
                did_you_mean(error, &format!("{side}:{size}"))
            } else {
                error
            }
        })
    }
}

impl fmt::Display for Resize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Resize::None => f.write_str("none"),
            Resize::Shorter(n) => write!(f, "shorter:{n}"),
            Resize::Longer(n) => write!(f, "longer:{n}"),
            Resize::Exact(w, h) => write!(f, "exact:{w}x{h}"),
            Resize::Area(n) => write!(f, "area:{n}"),
        }
    }
}

/// A rectangle cropped from the center of the resized image: `center:WxH`.
///
/// A side that is already shorter than requested is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crop {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
}

impl FromStr for Crop {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        text.strip_prefix("center:")
            .and_then(dimensions)
            .map(|(width, height)| Crop { width, height })
            .ok_or_else(|| {
                let error = not_accepted("crop", text, "center:WxH, with W and H at least 1");
                let side = positive::<u32>(text).map(|side| format!("{side}x{side}"));
                match side.or_else(|| dimensions(text).map(|_| text.to_owned())) {
                    Some(size) => did_you_mean(error, &format!("center:{size}")),
                    None => error,
                }
            })
    }
}

impl fmt::Display for Crop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "center:{}x{}", self.width, self.height)
    }
}

/// An opaque color, 8 bits per channel, sRGB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rgb(pub [u8; 3]);

impl Rgb {
    /// `#ffffff`.
    pub const WHITE: Rgb = Rgb([255; 3]);
    /// `#000000`.
    pub const BLACK: Rgb = Rgb([0; 3]);
}

impl FromStr for Rgb {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let hex = |digits: &str| {
            let all_hex = digits.len() == 6 && digits.bytes().all(|b| b.is_ascii_hexdigit());
            all_hex.then(|| u32::from_str_radix(digits, 16).ok()).flatten().map(|n| {
                let [_, r, g, b] = n.to_be_bytes();
                Rgb([r, g, b])
            })
        };
        match text {
            "white" => Some(Rgb::WHITE),
            "black" => Some(Rgb::BLACK),
            "gray" => Some(Rgb([128; 3])),
            _ => hex(text.strip_prefix('#').unwrap_or(text)),
        }
        .ok_or_else(|| {
            not_accepted("color", text, "white, black, gray or six hexadecimal digits such as #7f7f7f")
        })
    }
}

impl fmt::Display for Rgb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [r, g, b] = self.0;
        write!(f, "#{r:02x}{g:02x}{b:02x}")
    }
}

/// A canvas on which the image is centered, as the last step: `WxH` or `WxH:COLOR` (black by default).
///
/// A side that is already longer than the canvas is unchanged: padding never crops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pad {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Color of the area that the image does not cover.
    pub color: Rgb,
}

impl FromStr for Pad {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (size, color) = match text.split_once(':') {
            Some((size, color)) => (size, color.parse()?),
            None => (text, Rgb::BLACK),
        };
        let (width, height) = dimensions(size)
            .ok_or_else(|| not_accepted("padding", text, "WxH or WxH:COLOR, with W and H at least 1"))?;
        Ok(Pad { width, height, color })
    }
}

impl fmt::Display for Pad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}:{}", self.width, self.height, self.color)
    }
}

word_choice! {
    /// The filter kernel of the resize.
    #[derive(Default)]
    Filter, text => not_accepted("filter", text, "lanczos3, catmullrom, bilinear or box");
    /// Lanczos with a radius of 3: the sharpest.
    #[default]
    Lanczos3 = "lanczos3",
    /// Cubic convolution (Catmull–Rom).
    CatmullRom = "catmullrom",
    /// Triangle, widened for downscaling.
    Bilinear = "bilinear",
    /// Mean of the covered area.
    Box = "box",
}

word_choice! {
    /// The color channels of the output.
    #[derive(Default)]
    Color, text => not_accepted("color mode", text, "rgb, gray or rgba");
    /// Red, green and blue; transparency is blended with the background color.
    #[default]
    Rgb = "rgb",
    /// One channel, BT.601 luma.
    Gray = "gray",
    /// Red, green, blue and unpremultiplied alpha.
    Rgba = "rgba",
}

word_choice! {
    /// The handling of an embedded color profile.
    #[derive(Default)]
    Icc, text => not_accepted("profile policy", text, "convert or drop");
    /// Pixels are converted to sRGB.
    #[default]
    Convert = "convert",
    /// Pixel values are unchanged; the profile is ignored.
    Drop = "drop",
}

word_choice! {
    /// The handling of animated files.
    #[derive(Default)]
    Animated, text => not_accepted("animation policy", text, "first or reject");
    /// The first frame is used.
    #[default]
    First = "first",
    /// The file is rejected.
    Reject = "reject",
}

serde_as_text!(Resize, Crop, Rgb, Pad, Filter, Color, Icc, Animated);

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip<T: FromStr<Err = Error> + fmt::Display>(texts: &[&str]) {
        for text in texts {
            assert_eq!(text.parse::<T>().unwrap().to_string(), *text);
        }
    }

    #[test]
    fn texts_survive_a_round_trip() {
        round_trip::<Resize>(&["none", "shorter:256", "longer:512", "exact:224x320", "area:50176"]);
        round_trip::<Crop>(&["center:224x224"]);
        round_trip::<Pad>(&["640x640:#727272"]);
        round_trip::<Filter>(&["lanczos3", "catmullrom", "bilinear", "box"]);
        round_trip::<Color>(&["rgb", "gray", "rgba"]);
        round_trip::<Icc>(&["convert", "drop"]);
        round_trip::<Animated>(&["first", "reject"]);
        assert_eq!("8x9".parse::<Pad>().unwrap().color, Rgb::BLACK);
        assert_eq!("white".parse::<Rgb>().unwrap(), Rgb::WHITE);
    }

    #[test]
    fn near_misses_get_a_suggestion() {
        let resize = |text: &str| text.parse::<Resize>().unwrap_err().remedy().map(str::to_owned);
        assert_eq!(resize("256").unwrap(), "did you mean shorter:256?");
        assert_eq!(resize("short=256").unwrap(), "did you mean shorter:256?");
        assert_eq!(resize("longest:512").unwrap(), "did you mean longer:512?");
        assert_eq!(resize("224X320").unwrap(), "did you mean exact:224x320?");
        assert_eq!(resize("big"), None);
        let crop = |text: &str| text.parse::<Crop>().unwrap_err().remedy().map(str::to_owned);
        assert_eq!(crop("224").unwrap(), "did you mean center:224x224?");
        assert_eq!(crop("224x9").unwrap(), "did you mean center:224x9?");
        // Suggestions are accepted as values.
        for text in ["256", "short=256", "longest:512", "224X320"] {
            let suggestion = resize(text).unwrap();
            suggestion["did you mean ".len()..].trim_end_matches('?').parse::<Resize>().unwrap();
        }
    }

    #[test]
    fn errors_list_the_accepted_values() {
        for text in [
            "",
            "shorter",
            "shorter:0",
            "shorter:-1",
            "shorter:+5",
            "exact:5",
            "exact:0x5",
            "area:1e6",
            "256",
        ] {
            let error = text.parse::<Resize>().unwrap_err().to_string();
            assert!(error.contains("shorter:N"), "{error}");
        }
        assert!("center:0x1".parse::<Crop>().is_err());
        assert!("#12345".parse::<Rgb>().is_err());
        assert!("#12345é".parse::<Rgb>().is_err());
        assert!("5x5:mauve".parse::<Pad>().unwrap_err().to_string().contains("mauve"));
    }
}
