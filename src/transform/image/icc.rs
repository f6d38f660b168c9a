//! Colour profiles: embedded ICC profiles are converted to sRGB.
//!
//! The crate behind this, `moxcms`, is built without its vector code: that multiplies and adds in one step where the
//! processor can, and so would make pixels depend on the machine. Files repeat the same few profiles, so the last ones
//! are kept, parsed, in the scratch of the thread.
//!
//! A profile that cannot be read, or that is for other channels than the image has, is ignored as viewers do: the
//! pixels are whole, only their colours are vague.

use std::sync::Arc;

use moxcms::{ColorProfile, DataColorSpace, Layout, TransformExecutor, TransformOptions};

use super::pixels::Pixels;

/// Largest profile read. Printing profiles reach 3 MB.
const MAX_PROFILE_BYTES: usize = 8 << 20;
/// Conversions kept per thread: photographs of many cameras and editors share some dozen profiles, and making a
/// conversion takes as long as a small photograph.
const KEPT_CONVERSIONS: usize = 32;
/// Bytes of profiles kept per thread: those of printers are large, and so are their conversions.
const KEPT_PROFILE_BYTES: usize = 16 << 20;
/// Levels by which a profile may differ from sRGB and still be taken for sRGB: converting would only add rounding.
const SRGB_TOLERANCE: u8 = 2;

/// The channels of stored samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Space {
    Gray,
    Rgb,
    Cmyk,
}

type Executor = Arc<dyn TransformExecutor<u8> + Send + Sync>;

/// A way from the colours of a profile to sRGB.
#[derive(Clone)]
pub(super) enum Conversion {
    /// For grey: the sRGB level of each level.
    Table(Arc<[u8; 256]>),
    /// For RGB, and for RGBA.
    Rgb(Executor, Executor),
    /// For CMYK, 255 being full ink.
    Cmyk(Executor),
}

/// The profiles met last, the latest at the end, with what they came to; `None` where there is nothing to convert.
#[derive(Default)]
pub(super) struct Profiles(Vec<(Vec<u8>, Space, Option<Conversion>)>);

impl Profiles {
    /// The conversion to sRGB for samples in `space` with `profile`; `None` when it is sRGB, or of no use.
    pub(super) fn conversion(&mut self, profile: &[u8], space: Space) -> Option<Conversion> {
        let known = self.0.iter().position(|(bytes, of, _)| *of == space && bytes == profile);
        let (bytes, conversion) = match known {
            Some(at) => {
                let (bytes, _, conversion) = self.0.remove(at);
                (bytes, conversion)
            }
            None => (profile.to_vec(), Conversion::new(profile, space)),
        };
        self.0.push((bytes, space, conversion.clone()));
        let bytes =
            |profiles: &[(Vec<u8>, _, _)]| profiles.iter().map(|(bytes, ..)| bytes.len()).sum::<usize>();
        while self.0.len() > KEPT_CONVERSIONS || bytes(&self.0) > KEPT_PROFILE_BYTES {
            self.0.remove(0);
        }
        conversion
    }
}

impl Conversion {
    fn new(profile: &[u8], space: Space) -> Option<Self> {
        if profile.len() > MAX_PROFILE_BYTES {
            return None;
        }
        let profile = ColorProfile::new_from_slice(profile).ok()?;
        let srgb = ColorProfile::new_srgb();
        let to = |from: Layout, to: Layout| {
            profile.create_transform_8bit(from, &srgb, to, TransformOptions::default()).ok()
        };
        match (space, profile.color_space) {
            (Space::Gray, DataColorSpace::Gray) => {
                let levels: [u8; 256] = std::array::from_fn(|level| level as u8);
                let mut rgb = [[0; 3]; 256];
                to(Layout::Gray, Layout::Rgb)?.transform(&levels, rgb.as_flattened_mut()).ok()?;
                let table = rgb.map(|[_, green, _]| green);
                let is_srgb = table.iter().zip(levels).all(|(a, b)| a.abs_diff(b) <= SRGB_TOLERANCE);
                (!is_srgb).then(|| Self::Table(Arc::new(table)))
            }
            (Space::Rgb, DataColorSpace::Rgb) => {
                let rgb = to(Layout::Rgb, Layout::Rgb)?;
                let rgba = to(Layout::Rgba, Layout::Rgba)?;
                (!is_identity(&rgb)).then_some(Self::Rgb(rgb, rgba))
            }
            (Space::Cmyk, DataColorSpace::Cmyk) => Some(Self::Cmyk(to(Layout::Rgba, Layout::Rgb)?)),
            _ => None,
        }
    }

    /// Converts `pixels` of one, three or four channels in place. CMYK is left alone: see [`Self::cmyk_to_rgb`].
    pub(super) fn apply(&self, pixels: &mut Pixels) {
        match self {
            Self::Table(table) => {
                for pixel in pixels.data.chunks_exact_mut(pixels.channels) {
                    for sample in pixel.iter_mut().take(3) {
                        *sample = table[usize::from(*sample)];
                    }
                }
            }
            Self::Rgb(rgb, rgba) => {
                let executor = if pixels.channels == 4 { rgba } else { rgb };
                if pixels.channels < 3 {
                    return;
                }
                let stride = pixels.stride();
                let mut before = vec![0; stride];
                for row in pixels.data.chunks_exact_mut(stride) {
                    before.copy_from_slice(row);
                    if executor.transform(&before, row).is_err() {
                        row.copy_from_slice(&before);
                    }
                }
            }
            Self::Cmyk(_) => {}
        }
    }

    /// Converts inks, 255 being full, to RGB; false when this is no conversion of inks.
    pub(super) fn cmyk_to_rgb(&self, inks: &[u8], rgb: &mut [u8]) -> bool {
        match self {
            Self::Cmyk(executor) => executor.transform(inks, rgb).is_ok(),
            _ => false,
        }
    }
}

/// Whether a conversion leaves a cube of colours where it is.
fn is_identity(executor: &Executor) -> bool {
    const STEPS: [u8; 9] = [0, 32, 64, 96, 128, 160, 192, 224, 255];
    let mut colors = Vec::new();
    for r in STEPS {
        for g in STEPS {
            colors.extend(STEPS.iter().flat_map(|b| [r, g, *b]));
        }
    }
    let mut converted = vec![0; colors.len()];
    executor.transform(&colors, &mut converted).is_ok()
        && colors.iter().zip(&converted).all(|(a, b)| a.abs_diff(*b) <= SRGB_TOLERANCE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn converted(profile: &ColorProfile, space: Space, data: &[u8]) -> Option<Vec<u8>> {
        let conversion = Profiles::default().conversion(&profile.encode().unwrap(), space)?;
        let channels = if space == Space::Gray { 1 } else { 3 };
        let width = (data.len() / channels) as u32;
        let mut pixels = Pixels { data: data.to_vec(), width, height: 1, channels };
        conversion.apply(&mut pixels);
        Some(pixels.data)
    }

    #[test]
    fn srgb_needs_no_conversion() {
        assert_eq!(converted(&ColorProfile::new_srgb(), Space::Rgb, &[1, 2, 3]), None);
    }

    #[test]
    fn wide_colours_become_stronger_and_grey_stays_grey() {
        let out =
            converted(&ColorProfile::new_adobe_rgb(), Space::Rgb, &[100, 180, 100, 128, 128, 128]).unwrap();
        assert!(out[0] < 90 && out[1].abs_diff(180) <= 3, "{out:?}");
        assert!(out[3..].iter().all(|v| v.abs_diff(128) <= 3), "{out:?}");
    }

    #[test]
    fn grey_follows_its_curve() {
        let linear = ColorProfile::new_gray_with_gamma(1.0);
        let out = converted(&linear, Space::Gray, &[0, 55, 255]).unwrap();
        assert!(out[0] == 0 && out[1].abs_diff(127) <= 3 && out[2] == 255, "{out:?}");
    }

    #[test]
    fn a_profile_for_other_channels_is_ignored() {
        assert_eq!(converted(&ColorProfile::new_adobe_rgb(), Space::Gray, &[7]), None);
        assert!(Profiles::default().conversion(b"no profile at all", Space::Rgb).is_none());
    }

    #[test]
    fn the_last_profiles_are_kept_and_no_more() {
        let mut profiles = Profiles::default();
        for i in 0..100u8 {
            profiles.conversion(&[i], Space::Rgb);
            // Met again and again.
            profiles.conversion(&[0], Space::Rgb);
        }
        assert_eq!(profiles.0.len(), KEPT_CONVERSIONS);
        let mut kept: Vec<u8> = profiles.0.iter().map(|(bytes, ..)| bytes[0]).collect();
        kept.sort_unstable();
        let last = 101 - KEPT_CONVERSIONS as u8..100;
        assert_eq!(kept, std::iter::once(0).chain(last).collect::<Vec<_>>());
        profiles.conversion(&vec![1; KEPT_PROFILE_BYTES], Space::Rgb);
        assert_eq!(profiles.0.len(), 1);
    }

    proptest! {
        #[test]
        fn broken_profiles_are_survived(at in 0usize..2000, value: u8, cut in 0usize..2000) {
            let mut bytes = ColorProfile::new_adobe_rgb().encode().unwrap();
            let length = bytes.len();
            bytes[at % length] = value;
            let _ = Conversion::new(&bytes, Space::Rgb).map(|c| {
                c.apply(&mut Pixels { data: vec![9; 30], width: 10, height: 1, channels: 3 });
            });
            let _ = Conversion::new(&bytes[..cut % length], Space::Rgb);
        }
    }
}
