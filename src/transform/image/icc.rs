//! Color management: conversion of images with an embedded ICC profile to sRGB.
//!
//! This module uses the crate `moxcms`, built without its SIMD code. That code uses fused multiply-add if the processor
//! supports it, so pixels would depend on the machine. Files repeat the same few profiles, so the scratch of each
//! thread caches the most recent ones in parsed form.
//!
//! Results are rounded to the nearest level. The 8-bit transforms of `moxcms` truncate, which makes images almost half a
//! level too dark. Therefore, profiles with a matrix and curves are converted here, with its tables in 32-bit floating
//! point, and those with lookup tables by its 16-bit transforms. Either is created as fast as an 8-bit transform: files
//! may all have a profile of their own, which differs in its description.
//!
//! A profile that cannot be read, or is for other channels than those of the image, is ignored, as in image viewers:
//! the pixels are intact, only their colors are uncertain.

use std::sync::{Arc, OnceLock};

use moxcms::{
    ColorProfile, DataColorSpace, Layout, ToneReprCurve, TransformExecutor, TransformOptions, Xyzd,
};

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

/// Number of pixels that pass through a 16-bit transform together.
const BLOCK_PIXELS: usize = 1024;
/// Number of steps in which linear light is encoded. Near black, where sRGB is steepest, a step is 0.05 levels.
const LINEAR_STEPS: usize = 1 << 16;

type Executor = Arc<dyn TransformExecutor<u16> + Send + Sync>;
type Encoding = [u8; LINEAR_STEPS];

/// A conversion from the colors of a profile to sRGB.
#[derive(Clone)]
pub(super) enum ProfileConversion {
    /// For gray: the sRGB level of each level.
    Table(Arc<[u8; 256]>),
    /// For RGB with a matrix and curves.
    Matrix(Arc<MatrixConversion>),
    /// For RGB with a lookup table.
    Rgb(Executor),
    /// For CMYK, with 255 as full ink.
    Cmyk(Executor),
}

/// Conversion by curves to linear light, and a matrix.
pub(super) struct MatrixConversion {
    /// Linear light of each level of red, green and blue.
    curves: [Box<[f32; 256]>; 3],
    /// From linear light to linear light of sRGB.
    matrix: [[f32; 3]; 3],
    encoding: &'static Encoding,
}

impl MatrixConversion {
    /// Returns the conversion for an RGB profile; `None` if it has no matrix, or a lookup table, which takes precedence.
    fn new(profile: &ColorProfile, srgb: &'static Srgb) -> Option<Self> {
        if !profile.is_matrix_shaper() || profile.pcs != DataColorSpace::Xyz || has_lookup_table(profile) {
            return None;
        }
        let curves = [
            profile.build_r_linearize_table::<u8, 256, 8>(true).ok()?,
            profile.build_g_linearize_table::<u8, 256, 8>(true).ok()?,
            profile.build_b_linearize_table::<u8, 256, 8>(true).ok()?,
        ];
        let matrix = profile.transform_matrix(&srgb.profile).v.map(|row| row.map(|factor| factor as f32));
        Some(Self { curves, matrix, encoding: &srgb.encoding })
    }

    fn apply(&self, pixel: &mut [u8]) {
        let [r, g, b, ..] = pixel else { return };
        let [reds, greens, blues] = &self.curves;
        let light = [reds[usize::from(*r)], greens[usize::from(*g)], blues[usize::from(*b)]];
        let [red, green, blue] = self
            .matrix
            .map(|row| encode(self.encoding, row[0] * light[0] + row[1] * light[1] + row[2] * light[2]));
        (*r, *g, *b) = (red, green, blue);
    }
}

/// Returns whether colors are converted by a lookup table of the profile.
fn has_lookup_table(profile: &ColorProfile) -> bool {
    profile.lut_a_to_b_perceptual.is_some()
        || profile.lut_a_to_b_colorimetric.is_some()
        || profile.lut_a_to_b_saturation.is_some()
}

/// The target of all conversions, created once.
struct Srgb {
    /// Its curves are short tables. Parametric curves would be evaluated at 65,536 points for each profile.
    profile: ColorProfile,
    /// The level of each step of linear light, rounded.
    encoding: Box<Encoding>,
}

/// Returns sRGB.
///
/// Its colorants are the chromaticities of IEC 61966-2-1, adapted from D65 to D50 by the Bradford method, as in littlecms.
/// Those of `moxcms` differ by up to 2.4 · 10⁻⁴, which is two levels near black.
fn srgb() -> Option<&'static Srgb> {
    static SRGB: OnceLock<Option<Srgb>> = OnceLock::new();
    let build = || {
        let mut profile = ColorProfile::new_srgb();
        let curve =
            profile.build_gamma_table::<f32, LINEAR_STEPS, LINEAR_STEPS, 1>(&profile.red_trc, true).ok()?;
        let encoding: Vec<u8> = curve.iter().map(|value| (value * 255.0).round() as u8).collect();
        let light = profile.build_r_linearize_table::<u16, 4096, 12>(true).ok()?;
        // Rounded up, because `moxcms` truncates between the values of a table.
        let table = ToneReprCurve::Lut(light.map(|value| (value * 65_535.0).ceil() as u16).to_vec());
        profile.cicp = None;
        for curve in [&mut profile.red_trc, &mut profile.green_trc, &mut profile.blue_trc] {
            *curve = Some(table.clone());
        }
        let colorants = [&mut profile.red_colorant, &mut profile.green_colorant, &mut profile.blue_colorant];
        let xyz = [
            (0.436_041_252, 0.222_484_540, 0.013_920_187),
            (0.385_112_911, 0.716_905_079, 0.097_067_239),
            (0.143_045_838, 0.060_610_381, 0.713_912_574),
        ];
        for (colorant, (x, y, z)) in colorants.into_iter().zip(xyz) {
            *colorant = Xyzd { x, y, z };
        }
        Some(Srgb { profile, encoding: encoding.into_boxed_slice().try_into().ok()? })
    };
    SRGB.get_or_init(build).as_ref()
}

/// Returns the sRGB level of linear light. Out of the gamut, it is the nearest level.
fn encode(encoding: &Encoding, light: f32) -> u8 {
    let step = (light.clamp(0.0, 1.0) * (LINEAR_STEPS - 1) as f32 + 0.5) as u16;
    encoding[usize::from(step)]
}

/// Returns 8-bit samples with 16 bits. 257 is 65,535 ÷ 255.
fn widened(sample: u8) -> u16 {
    u16::from(sample) * 257
}

/// Returns the nearest 8-bit sample.
fn narrowed(sample: u16) -> u8 {
    ((u32::from(sample) + 128) / 257) as u8
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
        let srgb = srgb()?;
        let to = |from: Layout, to: Layout| {
            // Fixed point has 13 bits, which are visible in dark colors.
            let options = TransformOptions { prefer_fixed_point: false, ..TransformOptions::default() };
            profile.create_transform_16bit(from, &srgb.profile, to, options).ok()
        };
        match (space, profile.color_space) {
            (ColorSpace::Gray, DataColorSpace::Gray) => {
                let curve = match profile.pcs == DataColorSpace::Xyz && !has_lookup_table(&profile) {
                    true => profile.build_gray_linearize_table::<u8, 256, 8>().ok(),
                    false => None,
                };
                let table = match curve {
                    Some(curve) => curve.map(|light| encode(&srgb.encoding, light)),
                    None => {
                        let levels: [u16; 256] = std::array::from_fn(|level| widened(level as u8));
                        let mut rgb = [[0; 3]; 256];
                        to(Layout::Gray, Layout::Rgb)?.transform(&levels, rgb.as_flattened_mut()).ok()?;
                        rgb.map(|[_, green, _]| narrowed(green))
                    }
                };
                let is_srgb = (0u8..).zip(table).all(|(a, b)| a.abs_diff(b) <= SRGB_TOLERANCE);
                (!is_srgb).then(|| Self::Table(Arc::new(table)))
            }
            (ColorSpace::Rgb, DataColorSpace::Rgb) => {
                let conversion = match MatrixConversion::new(&profile, srgb) {
                    Some(matrix) => Self::Matrix(Arc::new(matrix)),
                    None => Self::Rgb(to(Layout::Rgb, Layout::Rgb)?),
                };
                (!conversion.is_identity()).then_some(conversion)
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
            Self::Matrix(conversion) => {
                pixels.data.chunks_exact_mut(pixels.channels).for_each(|pixel| conversion.apply(pixel));
            }
            Self::Rgb(executor) if pixels.channels >= 3 => {
                let (mut wide, mut converted) = (Vec::new(), [0; 3 * BLOCK_PIXELS]);
                for block in pixels.data.chunks_mut(BLOCK_PIXELS * pixels.channels) {
                    wide.clear();
                    block.chunks_exact(pixels.channels).for_each(|pixel| {
                        wide.extend(pixel.iter().take(3).map(|&sample| widened(sample)));
                    });
                    let converted = &mut converted[..wide.len()];
                    if executor.transform(&wide, converted).is_err() {
                        return;
                    }
                    let rgb = converted.chunks_exact(3);
                    for (pixel, rgb) in block.chunks_exact_mut(pixels.channels).zip(rgb) {
                        pixel.iter_mut().zip(rgb).for_each(|(to, from)| *to = narrowed(*from));
                    }
                }
            }
            Self::Rgb(_) | Self::Cmyk(_) => {}
        }
    }

    /// Returns whether a grid of sample colors stays unchanged.
    fn is_identity(&self) -> bool {
        const STEPS: [u8; 9] = [0, 32, 64, 96, 128, 160, 192, 224, 255];
        let mut colors = Vec::new();
        for r in STEPS {
            for g in STEPS {
                colors.extend(STEPS.iter().flat_map(|b| [r, g, *b]));
            }
        }
        let width = (colors.len() / 3) as u32;
        let mut pixels = Pixels { data: colors.clone(), width, height: 1, channels: 3 };
        self.apply(&mut pixels);
        colors.iter().zip(&pixels.data).all(|(a, b)| a.abs_diff(*b) <= SRGB_TOLERANCE)
    }

    /// Converts CMYK samples, with 255 as full ink, to RGB. Returns false if this is not a CMYK conversion.
    pub(super) fn cmyk_to_rgb(&self, inks: &[u8], rgb: &mut [u8]) -> bool {
        match self {
            Self::Cmyk(executor) => {
                let (mut wide, mut converted) = (Vec::new(), [0; 3 * BLOCK_PIXELS]);
                let blocks = inks.chunks(4 * BLOCK_PIXELS).zip(rgb.chunks_mut(3 * BLOCK_PIXELS));
                for (inks, rgb) in blocks {
                    wide.clear();
                    wide.extend(inks.iter().map(|&sample| widened(sample)));
                    let converted = &mut converted[..rgb.len()];
                    if executor.transform(&wide, converted).is_err() {
                        return false;
                    }
                    rgb.iter_mut().zip(converted).for_each(|(to, from)| *to = narrowed(*from));
                }
                true
            }
            _ => false,
        }
    }
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

    /// Evaluates a tone curve in double precision, as ICC.1:2022 specifies in 10.6 and 10.18.
    fn curve_at(curve: &ToneReprCurve, x: f64) -> f64 {
        match curve {
            ToneReprCurve::Lut(table) if table.is_empty() => x,
            ToneReprCurve::Lut(table) if table.len() == 1 => x.powf(f64::from(table[0]) / 256.0),
            ToneReprCurve::Lut(table) => {
                let at = x * (table.len() - 1) as f64;
                let below = (at as usize).min(table.len() - 2);
                let (low, high) = (f64::from(table[below]), f64::from(table[below + 1]));
                (low + (high - low) * (at - below as f64)) / 65_535.0
            }
            ToneReprCurve::Parametric(p) => {
                let p: Vec<f64> = p.iter().map(|&v| v.into()).collect();
                match p[..] {
                    [g] => x.powf(g),
                    [g, a, b, c, d] => {
                        if x >= d {
                            (a * x + b).powf(g)
                        } else {
                            c * x
                        }
                    }
                    _ => panic!("{p:?}"),
                }
            }
        }
    }

    fn inverse(m: [[f64; 3]; 3]) -> [[f64; 3]; 3] {
        let minor = |i: usize, j: usize| {
            let (a, b, c, d) = ((i + 1) % 3, (i + 2) % 3, (j + 1) % 3, (j + 2) % 3);
            m[a][c] * m[b][d] - m[a][d] * m[b][c]
        };
        let determinant: f64 = (0..3).map(|j| m[0][j] * minor(0, j)).sum();
        std::array::from_fn(|i| std::array::from_fn(|j| minor(j, i) / determinant))
    }

    /// Returns the sRGB level of linear light, not rounded.
    fn srgb_level(light: f64) -> f64 {
        let light = light.clamp(0.0, 1.0);
        255.0 * if light <= 0.003_130_8 { 12.92 * light } else { 1.055 * light.powf(1.0 / 2.4) - 0.055 }
    }

    fn product(a: [[f64; 3]; 3], b: [[f64; 3]; 3]) -> [[f64; 3]; 3] {
        a.map(|row| std::array::from_fn(|j| (0..3).map(|k| row[k] * b[k][j]).sum()))
    }

    /// Returns the matrix from linear light to XYZ for the given chromaticities of red, green and blue and a white of D65,
    /// adapted to D50 by the Bradford method.
    fn matrix_of(primaries: [[f64; 2]; 3]) -> [[f64; 3]; 3] {
        const BRADFORD: [[f64; 3]; 3] =
            [[0.8951, 0.2664, -0.1614], [-0.7502, 1.7135, 0.0367], [0.0389, -0.0685, 1.0296]];
        let xyz = |[x, y]: [f64; 2]| [x / y, 1.0, (1.0 - x - y) / y];
        let of = |m: [[f64; 3]; 3], v: [f64; 3]| m.map(|row| (0..3).map(|k| row[k] * v[k]).sum::<f64>());
        let diagonal = |v: [f64; 3]| -> [[f64; 3]; 3] {
            std::array::from_fn(|i| std::array::from_fn(|j| if i == j { v[i] } else { 0.0 }))
        };
        let white = xyz([0.3127, 0.3290]);
        let columns = primaries.map(xyz);
        let unscaled: [[f64; 3]; 3] = std::array::from_fn(|i| std::array::from_fn(|j| columns[j][i]));
        let scaled = product(unscaled, diagonal(of(inverse(unscaled), white)));
        let (from, to) = (of(BRADFORD, white), of(BRADFORD, [0.9642, 1.0, 0.8249]));
        let gain = diagonal(std::array::from_fn(|i| to[i] / from[i]));
        product(product(inverse(BRADFORD), product(gain, BRADFORD)), scaled)
    }

    /// Returns the conversion of an RGB profile with matrix and curves in double precision.
    fn exact(profile: &ColorProfile, colors: &[u8]) -> Vec<f64> {
        let to_xyz = |p: &ColorProfile| {
            let [r, g, b] = [p.red_colorant, p.green_colorant, p.blue_colorant];
            [[r.x, g.x, b.x], [r.y, g.y, b.y], [r.z, g.z, b.z]]
        };
        let (from, to) = (to_xyz(profile), inverse(matrix_of(SRGB)));
        let curves = [&profile.red_trc, &profile.green_trc, &profile.blue_trc].map(|c| c.as_ref().unwrap());
        let convert = |color: &[u8]| -> [f64; 3] {
            let light: [f64; 3] = std::array::from_fn(|i| curve_at(curves[i], f64::from(color[i]) / 255.0));
            let xyz: [f64; 3] = std::array::from_fn(|i| (0..3).map(|j| from[i][j] * light[j]).sum());
            std::array::from_fn(|i| srgb_level((0..3).map(|j| to[i][j] * xyz[j]).sum()))
        };
        colors.chunks_exact(3).flat_map(convert).collect()
    }

    /// Returns mean and largest absolute difference of levels from exact ones.
    fn differences(levels: &[u8], exact: &[f64]) -> (f64, f64) {
        assert_eq!(levels.len(), exact.len());
        let differences = || levels.iter().zip(exact).map(|(&level, exact)| f64::from(level) - exact);
        (differences().sum::<f64>() / exact.len() as f64, differences().fold(0.0, |m, d| d.abs().max(m)))
    }

    const SRGB: [[f64; 2]; 3] = [[0.64, 0.33], [0.30, 0.60], [0.15, 0.06]];

    fn random_bytes(count: usize) -> Vec<u8> {
        (0..count as u64).map(|i| xxhash_rust::xxh3::xxh3_64(&i.to_le_bytes()) as u8).collect()
    }

    #[test]
    fn rgb_is_rounded_to_the_nearest_level() {
        let profile = |primaries: [[f64; 2]; 3], curves: [ToneReprCurve; 3]| {
            let mut profile = ColorProfile::new_srgb();
            let [x, y, z] = matrix_of(primaries);
            let [red, green, blue] = std::array::from_fn(|i| Xyzd { x: x[i], y: y[i], z: z[i] });
            (profile.red_colorant, profile.green_colorant, profile.blue_colorant) = (red, green, blue);
            [profile.red_trc, profile.green_trc, profile.blue_trc] = curves.map(Some);
            profile.cicp = None;
            profile
        };
        let same = |curve: ToneReprCurve| [curve.clone(), curve.clone(), curve];
        let table = |gamma: f64| {
            let at = |i: i32| ((f64::from(i) / 1023.0).powf(gamma) * 65_535.0).round() as u16;
            ToneReprCurve::Lut((0..1024).map(at).collect())
        };
        let linear = || ToneReprCurve::Lut(Vec::new());
        let srgb_curve =
            || ToneReprCurve::Parametric(vec![2.4, 1.0 / 1.055, 0.055 / 1.055, 1.0 / 12.92, 0.04045]);
        const ADOBE: [[f64; 2]; 3] = [[0.64, 0.33], [0.21, 0.71], [0.15, 0.06]];
        const DISPLAY_P3: [[f64; 2]; 3] = [[0.680, 0.320], [0.265, 0.690], [0.150, 0.060]];
        const REC_2020: [[f64; 2]; 3] = [[0.708, 0.292], [0.170, 0.797], [0.131, 0.046]];
        let own = [ToneReprCurve::Parametric(vec![1.8]), table(2.0), ToneReprCurve::Lut(vec![0x233])];
        let colors = random_bytes(300_000);
        for (name, profile) in [
            ("Adobe RGB", profile(ADOBE, same(ToneReprCurve::Lut(vec![0x233])))),
            ("Display P3", profile(DISPLAY_P3, same(srgb_curve()))),
            ("Rec. 2020", profile(REC_2020, same(ToneReprCurve::Parametric(vec![2.4])))),
            ("Rec. 2020, table", profile(REC_2020, same(table(1.8)))),
            ("sRGB, linear", profile(SRGB, same(linear()))),
            ("P3, linear", profile(DISPLAY_P3, same(linear()))),
            ("three curves", profile(ADOBE, own)),
            // Their colorants are those of the library.
            ("ProPhoto", ColorProfile::new_pro_photo_rgb()),
            ("Display P3 with CICP", ColorProfile::new_display_p3()),
        ] {
            let read = ColorProfile::new_from_slice(&profile.encode().unwrap()).unwrap();
            let levels = converted(&profile, ColorSpace::Rgb, &colors).unwrap();
            let (mean, largest) = differences(&levels, &exact(&read, &colors));
            assert!(mean.abs() <= 0.02 && largest <= 1.0, "{name}: {mean:.4} {largest:.3}");

            let rgba: Vec<u8> =
                colors.chunks_exact(3).flat_map(|c| [c[0], c[1], c[2], c[0] ^ 0x55]).collect();
            let width = (rgba.len() / 4) as u32;
            let mut pixels = Pixels { data: rgba.clone(), width, height: 1, channels: 4 };
            let profile = Profiles::default().conversion(&profile.encode().unwrap(), ColorSpace::Rgb);
            profile.unwrap().apply(&mut pixels);
            for ((pixel, rgb), before) in
                pixels.data.chunks_exact(4).zip(levels.chunks_exact(3)).zip(rgba.chunks_exact(4))
            {
                assert!(&pixel[..3] == rgb && pixel[3] == before[3], "{name}");
            }
        }
    }

    #[test]
    fn gray_is_rounded_to_the_nearest_level() {
        let levels: Vec<u8> = (0..=255).collect();
        let table: Vec<u16> = (0..4096u32).map(|i| (i * i / 256).min(65_535) as u16).collect();
        let mut with_table = ColorProfile::new_gray_with_gamma(1.0);
        with_table.gray_trc = Some(ToneReprCurve::Lut(table));
        for profile in [1.0, 1.8, 2.6].map(ColorProfile::new_gray_with_gamma).into_iter().chain([with_table])
        {
            let read = ColorProfile::new_from_slice(&profile.encode().unwrap()).unwrap();
            let curve = read.gray_trc.as_ref().unwrap();
            let exact: Vec<f64> =
                levels.iter().map(|&v| srgb_level(curve_at(curve, f64::from(v) / 255.0))).collect();
            let (_, largest) = differences(&converted(&profile, ColorSpace::Gray, &levels).unwrap(), &exact);
            assert!(largest <= 0.55, "{curve:?}: {largest}");
        }
    }

    /// Returns a printer profile: a lookup table with two nodes per channel, and the lightness of each corner.
    fn profile_with_table(space: &[u8; 4], channels: usize, lightness: impl Fn(&[f64]) -> f64) -> Vec<u8> {
        let word = |value: f64| (value.round() as u16).to_be_bytes();
        let mut table = b"mft2\0\0\0\0".to_vec();
        table.extend([channels as u8, 3, 2, 0]);
        (0..9).for_each(|i| table.extend(if i % 4 == 0 { 65_536i32 } else { 0 }.to_be_bytes()));
        table.extend([0, 2, 0, 2]);
        let straight = [0, 0, 255, 255];
        (0..channels).for_each(|_| table.extend(straight));
        for corner in 0..1usize << channels {
            let inks: Vec<f64> = (0..channels).map(|i| ((corner >> (channels - 1 - i)) & 1) as f64).collect();
            table.extend([word(lightness(&inks) * 652.8), word(32_768.0), word(32_768.0)].concat());
        }
        (0..3).for_each(|_| table.extend(straight));
        let white: Vec<u8> = [63_190i32, 65_536, 54_061].iter().flat_map(|v| v.to_be_bytes()).collect();
        let white_tag = [&b"XYZ \0\0\0\0"[..], &white].concat();
        table.resize(table.len().next_multiple_of(4), 0);

        let mut profile = vec![0; 128];
        profile[8..10].copy_from_slice(&[2, 0x40]);
        profile[12..16].copy_from_slice(b"prtr");
        profile[16..20].copy_from_slice(space);
        profile[20..24].copy_from_slice(b"Lab ");
        profile[36..40].copy_from_slice(b"acsp");
        profile[68..80].copy_from_slice(&white);
        let mut at = 128 + 4 + 2 * 12;
        profile.extend(2u32.to_be_bytes());
        for (name, tag) in [(b"A2B0", &table), (b"wtpt", &white_tag)] {
            profile.extend(name);
            profile.extend((at as u32).to_be_bytes());
            profile.extend((tag.len() as u32).to_be_bytes());
            at += tag.len();
        }
        profile.extend([table, white_tag].concat());
        let length = (profile.len() as u32).to_be_bytes();
        profile[..4].copy_from_slice(&length);
        profile
    }

    #[test]
    fn colors_from_lookup_tables_are_rounded_to_the_nearest_level() {
        // Linear in each channel, so that interpolation between the corners is exact.
        let of_rgb = |c: &[f64]| 100.0 * (0.3 * c[0] + 0.6 * c[1] + 0.1 * c[2]);
        let of_inks = |c: &[f64]| {
            15.0 + 85.0 * (1.0 - c[3]) * (1.0 - 0.3 * c[0]) * (1.0 - 0.25 * c[1]) * (1.0 - 0.1 * c[2])
        };
        let level = |lightness: f64| {
            let root = (lightness + 16.0) / 116.0;
            srgb_level(if lightness > 8.0 { root.powi(3) } else { lightness * 27.0 / 24_389.0 })
        };
        let exact = |samples: &[u8], channels, lightness: &dyn Fn(&[f64]) -> f64| -> Vec<f64> {
            let of = |color: &[u8]| {
                let color: Vec<f64> = color.iter().map(|&v| f64::from(v) / 255.0).collect();
                [level(lightness(&color)); 3]
            };
            samples.chunks_exact(channels).flat_map(of).collect()
        };

        let colors = random_bytes(60_000);
        let profile = profile_with_table(b"RGB ", 3, of_rgb);
        let conversion = Profiles::default().conversion(&profile, ColorSpace::Rgb).unwrap();
        let mut pixels = Pixels { data: colors.clone(), width: 20_000, height: 1, channels: 3 };
        conversion.apply(&mut pixels);
        let (mean, largest) = differences(&pixels.data, &exact(&colors, 3, &of_rgb));
        assert!(mean.abs() <= 0.02 && largest <= 1.0, "RGB: {mean:.4} {largest:.3}");
        let rgba: Vec<u8> = colors.chunks_exact(3).flat_map(|c| [c[0], c[1], c[2], c[1] ^ 0x55]).collect();
        let mut with_alpha = Pixels { data: rgba.clone(), width: 20_000, height: 1, channels: 4 };
        conversion.apply(&mut with_alpha);
        let expected = pixels.data.chunks_exact(3).zip(rgba.chunks_exact(4));
        assert!(
            with_alpha
                .data
                .chunks_exact(4)
                .zip(expected)
                .all(|(p, (rgb, old))| { &p[..3] == rgb && p[3] == old[3] })
        );

        let inks = random_bytes(80_000);
        let profile = profile_with_table(b"CMYK", 4, of_inks);
        let conversion = Profiles::default().conversion(&profile, ColorSpace::Cmyk).unwrap();
        let mut rgb = vec![0; 60_000];
        assert!(conversion.cmyk_to_rgb(&inks, &mut rgb));
        let (mean, largest) = differences(&rgb, &exact(&inks, 4, &of_inks));
        assert!(mean.abs() <= 0.02 && largest <= 1.0, "CMYK: {mean:.4} {largest:.3}");
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
