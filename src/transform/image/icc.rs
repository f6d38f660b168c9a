//! Color management: conversion of images with an embedded ICC profile to sRGB.
//!
//! This module uses the crate `moxcms`, built without its SIMD code. That code uses fused multiply-add if the processor
//! supports it, so pixels would depend on the machine. Files repeat the same few profiles, so the scratch of each
//! thread caches the most recent ones in parsed form.
//!
//! A profile that cannot be read, or is for other channels than those of the image, is ignored, as in image viewers:
//! the pixels are intact, only their colors are uncertain.

use std::sync::Arc;

use moxcms::{ColorProfile, DataColorSpace, Layout, TransformExecutor, TransformOptions};

use super::pixels::Pixels;

/// Maximum size of a profile, in bytes. Printer profiles reach 3 MB.
const MAX_PROFILE_BYTES: usize = 8 << 20;
/// Maximum number of conversions cached per thread. Photographs from many cameras and editors share a few dozen
/// profiles, and creating a conversion takes as long as converting a small photograph.
const MAX_CACHED_CONVERSIONS: usize = 32;
/// Maximum total size of the profiles cached per thread, in bytes. Printer profiles are large, and so are their
/// conversions.
const MAX_CACHED_PROFILE_BYTES: usize = 16 << 20;
/// Maximum difference in levels for a profile to count as sRGB: converting would only add rounding errors.
const SRGB_TOLERANCE: u8 = 2;

/// The channels of stored samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ColorSpace {
    Gray,
    Rgb,
    Cmyk,
}

type Executor = Arc<dyn TransformExecutor<u8> + Send + Sync>;

/// A conversion from the colors of a profile to sRGB.
#[derive(Clone)]
pub(super) enum ProfileConversion {
    /// For gray: the sRGB level of each level.
    Table(Arc<[u8; 256]>),
    /// For RGB, and for RGBA.
    Rgb(Executor, Executor),
    /// For CMYK, with 255 as full ink.
    Cmyk(Executor),
}

/// Cache of profiles and their conversions, most recently used last; `None` if there is nothing to convert.
#[derive(Default)]
pub(super) struct Profiles(Vec<(Vec<u8>, ColorSpace, Option<ProfileConversion>)>);

impl Profiles {
    /// Returns the conversion to sRGB for samples in `space` with `profile`; `None` if the profile is sRGB or not
    /// usable.
    pub(super) fn conversion(&mut self, profile: &[u8], space: ColorSpace) -> Option<ProfileConversion> {
        let known = self.0.iter().position(|(bytes, of, _)| *of == space && bytes == profile);
        let (bytes, conversion) = match known {
            Some(at) => {
                let (bytes, _, conversion) = self.0.remove(at);
                (bytes, conversion)
            }
            None => (profile.to_vec(), ProfileConversion::new(profile, space)),
        };
        self.0.push((bytes, space, conversion.clone()));
        let bytes =
            |profiles: &[(Vec<u8>, _, _)]| profiles.iter().map(|(bytes, ..)| bytes.len()).sum::<usize>();
        while self.0.len() > MAX_CACHED_CONVERSIONS || bytes(&self.0) > MAX_CACHED_PROFILE_BYTES {
            self.0.remove(0);
        }
        conversion
    }
}

impl ProfileConversion {
    fn new(profile: &[u8], space: ColorSpace) -> Option<Self> {
        if profile.len() > MAX_PROFILE_BYTES {
            return None;
        }
        let profile = ColorProfile::new_from_slice(profile).ok()?;
        let srgb = ColorProfile::new_srgb();
        let to = |from: Layout, to: Layout| {
            profile.create_transform_8bit(from, &srgb, to, TransformOptions::default()).ok()
        };
        match (space, profile.color_space) {
            (ColorSpace::Gray, DataColorSpace::Gray) => {
                let levels: [u8; 256] = std::array::from_fn(|level| level as u8);
                let mut rgb = [[0; 3]; 256];
                to(Layout::Gray, Layout::Rgb)?.transform(&levels, rgb.as_flattened_mut()).ok()?;
                let table = rgb.map(|[_, green, _]| green);
                let is_srgb = table.iter().zip(levels).all(|(a, b)| a.abs_diff(b) <= SRGB_TOLERANCE);
                (!is_srgb).then(|| Self::Table(Arc::new(table)))
            }
            (ColorSpace::Rgb, DataColorSpace::Rgb) => {
                let rgb = to(Layout::Rgb, Layout::Rgb)?;
                let rgba = to(Layout::Rgba, Layout::Rgba)?;
                (!is_identity(&rgb)).then_some(Self::Rgb(rgb, rgba))
            }
            (ColorSpace::Cmyk, DataColorSpace::Cmyk) => Some(Self::Cmyk(to(Layout::Rgba, Layout::Rgb)?)),
            _ => None,
        }
    }

    /// Converts `pixels` of one, three or four channels in place. Leaves CMYK unchanged: see [`Self::cmyk_to_rgb`].
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

    /// Converts CMYK samples, with 255 as full ink, to RGB. Returns false if this is not a CMYK conversion.
    pub(super) fn cmyk_to_rgb(&self, inks: &[u8], rgb: &mut [u8]) -> bool {
        match self {
            Self::Cmyk(executor) => executor.transform(inks, rgb).is_ok(),
            _ => false,
        }
    }
}

/// Returns whether a conversion leaves a grid of sample colors unchanged.
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

    fn converted(profile: &ColorProfile, space: ColorSpace, data: &[u8]) -> Option<Vec<u8>> {
        let conversion = Profiles::default().conversion(&profile.encode().unwrap(), space)?;
        let channels = if space == ColorSpace::Gray { 1 } else { 3 };
        let width = (data.len() / channels) as u32;
        let mut pixels = Pixels { data: data.to_vec(), width, height: 1, channels };
        conversion.apply(&mut pixels);
        Some(pixels.data)
    }

    #[test]
    fn srgb_needs_no_conversion() {
        assert_eq!(converted(&ColorProfile::new_srgb(), ColorSpace::Rgb, &[1, 2, 3]), None);
    }

    #[test]
    fn wide_colors_become_stronger_and_gray_stays_gray() {
        let out = converted(&ColorProfile::new_adobe_rgb(), ColorSpace::Rgb, &[100, 180, 100, 128, 128, 128])
            .unwrap();
        assert!(out[0] < 90 && out[1].abs_diff(180) <= 3, "{out:?}");
        assert!(out[3..].iter().all(|v| v.abs_diff(128) <= 3), "{out:?}");
    }

    #[test]
    fn gray_follows_its_curve() {
        let linear = ColorProfile::new_gray_with_gamma(1.0);
        let out = converted(&linear, ColorSpace::Gray, &[0, 55, 255]).unwrap();
        assert!(out[0] == 0 && out[1].abs_diff(127) <= 3 && out[2] == 255, "{out:?}");
    }

    #[test]
    fn a_profile_for_other_channels_is_ignored() {
        assert_eq!(converted(&ColorProfile::new_adobe_rgb(), ColorSpace::Gray, &[7]), None);
        assert!(Profiles::default().conversion(b"no profile at all", ColorSpace::Rgb).is_none());
    }

    #[test]
    fn only_the_most_recent_profiles_are_cached() {
        let mut profiles = Profiles::default();
        for i in 0..100u8 {
            profiles.conversion(&[i], ColorSpace::Rgb);
            // This profile is used repeatedly.
            profiles.conversion(&[0], ColorSpace::Rgb);
        }
        assert_eq!(profiles.0.len(), MAX_CACHED_CONVERSIONS);
        let mut kept: Vec<u8> = profiles.0.iter().map(|(bytes, ..)| bytes[0]).collect();
        kept.sort_unstable();
        let last = 101 - MAX_CACHED_CONVERSIONS as u8..100;
        assert_eq!(kept, std::iter::once(0).chain(last).collect::<Vec<_>>());
        profiles.conversion(&vec![1; MAX_CACHED_PROFILE_BYTES], ColorSpace::Rgb);
        assert_eq!(profiles.0.len(), 1);
    }

    proptest! {
        #[test]
        fn broken_profiles_cause_no_panic(at in 0usize..2000, value: u8, cut in 0usize..2000) {
            let mut bytes = ColorProfile::new_adobe_rgb().encode().unwrap();
            let length = bytes.len();
            bytes[at % length] = value;
            let _ = ProfileConversion::new(&bytes, ColorSpace::Rgb).map(|c| {
                c.apply(&mut Pixels { data: vec![9; 30], width: 10, height: 1, channels: 3 });
            });
            let _ = ProfileConversion::new(&bytes[..cut % length], ColorSpace::Rgb);
        }
    }
}
