//! Conversion of TIFF colors to gray or RGB.

use dsconvert_dataset::sample::Reject;

use super::super::corrupt;
use super::layout::{Alpha, Colors, Compression, Layout};
use super::samples::Sample;
use super::tags::{self, TiffTags};

/// Converts the samples of a pixel.
#[derive(Debug)]
pub(super) struct ColorConverter {
    colors: Colors,
    alpha: Alpha,
    /// Red, green and blue of each index, of 16 bits.
    palette: Vec<[u16; 3]>,
    ycbcr: YCbCr,
}

impl ColorConverter {
    pub(super) fn new(tags: &TiffTags<'_>, layout: &Layout) -> Result<Self, Reject> {
        let palette = match layout.colors {
            Colors::Palette => read_palette(tags, layout.bits)?,
            _ => Vec::new(),
        };
        let colors = match layout.colors {
            // The decoder of JPEG converts them.
            Colors::YCbCr { .. } if layout.compression == Compression::Jpeg && !layout.is_planar => {
                Colors::Rgb
            }
            colors => colors,
        };
        Ok(Self { colors, alpha: layout.alpha, palette, ycbcr: YCbCr::read(tags) })
    }

    /// Returns the number of samples of a pixel that are read.
    pub(super) fn samples(&self) -> usize {
        self.colors.samples() + usize::from(self.has_alpha())
    }

    pub(super) fn is_gray(&self) -> bool {
        matches!(self.colors, Colors::Gray { .. })
    }

    pub(super) fn has_alpha(&self) -> bool {
        self.alpha != Alpha::None
    }

    /// Returns the number of channels of a converted pixel: gray or RGB, and alpha.
    pub(super) fn channels(&self) -> usize {
        let colors = if self.is_gray() { 1 } else { 3 };
        colors + usize::from(self.has_alpha())
    }

    /// Converts pixels into `out`.
    pub(super) fn convert<T: Sample>(&self, samples: &[T], bits: u32, out: &mut [u8]) {
        let colors = self.colors.samples();
        let pixels =
            samples.chunks_exact(self.samples()).zip(out.chunks_exact_mut(self.channels() * T::BYTES));
        for (pixel, out) in pixels {
            let (pixel, alpha) = pixel.split_at(colors);
            let at = |n: usize| -> u32 { pixel[n].into() };
            let put = |out: &mut [u8], values: [u32; 3]| {
                for (to, value) in out.chunks_exact_mut(T::BYTES).zip(values) {
                    T::of(value).write(to);
                }
            };
            match self.colors {
                Colors::Gray { is_white_zero } => {
                    T::of(if is_white_zero { T::MAX - at(0) } else { at(0) }).write(out);
                }
                Colors::Rgb => put(out, [at(0), at(1), at(2)]),
                Colors::Palette => {
                    let color = self.palette.get(at(0) as usize).copied().unwrap_or_default();
                    put(out, color.map(|v| scaled(v.into(), 0xffff, T::MAX)));
                }
                Colors::Cmyk => {
                    let light = |ink: u32| {
                        (u64::from(T::MAX - ink) * u64::from(T::MAX - at(3)) + u64::from(T::MAX) / 2)
                            / u64::from(T::MAX)
                    };
                    put(out, [at(0), at(1), at(2)].map(|ink| light(ink) as u32));
                }
                Colors::YCbCr { .. } => put(out, self.ycbcr.to_rgb([at(0), at(1), at(2)])),
                Colors::Lab { is_offset } => {
                    let rgb = lab_to_rgb([at(0), at(1), at(2)], T::MAX, is_offset);
                    put(out, rgb.map(|v| (v * f64::from(T::MAX)).round() as u32));
                }
            }
            if let [alpha] = alpha {
                let color_bytes = out.len() - T::BYTES;
                // Indexes of a palette are not scaled, nor is what is stored together with them.
                let is_index = self.colors == Colors::Palette;
                let alpha = match is_index {
                    true => T::of(scaled((*alpha).into(), (1 << bits.min(16)) - 1, T::MAX)),
                    false => *alpha,
                };
                alpha.write(&mut out[color_bytes..]);
            }
        }
    }
}

/// Scales a value from 0 to `from` to 0 to `to`, rounded.
fn scaled(value: u32, from: u32, to: u32) -> u32 {
    if from == to {
        value
    } else {
        ((u64::from(value) * u64::from(to) + u64::from(from) / 2) / u64::from(from)) as u32
    }
}

/// Reads the palette: all values of red, then green, then blue.
fn read_palette(tags: &TiffTags<'_>, bits: u32) -> Result<Vec<[u16; 3]>, Reject> {
    let values: Vec<u16> = tags.numbers(tags::COLOR_MAP).map(|value| value.min(0xffff) as u16).collect();
    let count = 1usize << bits;
    if values.len() < 3 * count {
        let found = values.len();
        return Err(corrupt(format!("the palette of the TIFF has {found} values instead of {}", 3 * count)));
    }
    // Old writers store values of 8 bits; libtiff recognizes them so, too.
    let factor = if values[..3 * count].iter().all(|value| *value < 256) { 257 } else { 1 };
    let value = |n: usize| values[n] * factor;
    Ok((0..count).map(|n| [value(n), value(count + n), value(2 * count + n)]).collect())
}

/// The conversion from YCbCr, with the numbers of the file.
#[derive(Debug)]
struct YCbCr {
    /// The weights of red, green and blue in luma.
    luma: [f64; 3],
    /// Black and white of Y, Cb and Cr.
    range: [f64; 6],
    /// Whether these are the numbers of JPEG.
    is_jpeg: bool,
}

impl YCbCr {
    const LUMA: [f64; 3] = [0.299, 0.587, 0.114];
    const RANGE: [f64; 6] = [0.0, 255.0, 128.0, 255.0, 128.0, 255.0];

    fn read(tags: &TiffTags<'_>) -> Self {
        let fractions = |tag| tags.fractions(tag);
        let is_near = |one: &[f64], other: &[f64]| one.iter().zip(other).all(|(a, b)| (a - b).abs() < 0.001);
        let luma = fractions(tags::YCBCR_COEFFICIENTS).try_into().ok();
        let luma = luma.filter(|luma: &[f64; 3]| luma.iter().all(|v| v.is_finite()) && luma[1] > 0.0);
        let range = fractions(tags::REFERENCE_BLACK_WHITE).try_into().ok();
        let range = range.filter(|range: &[f64; 6]| {
            range.iter().all(|v| v.is_finite()) && range.chunks(2).all(|pair| pair[1] > pair[0])
        });
        let (luma, range) = (luma.unwrap_or(Self::LUMA), range.unwrap_or(Self::RANGE));
        let is_jpeg = is_near(&luma, &Self::LUMA) && is_near(&range, &Self::RANGE);
        Self { luma, range, is_jpeg }
    }

    /// Converts a pixel of 8 bits (TIFF 6.0, section 21).
    fn to_rgb(&self, ycbcr: [u32; 3]) -> [u32; 3] {
        if self.is_jpeg {
            let [y, cb, cr] = ycbcr.map(|v| v as u8);
            return dsconvert_jpeg::ycbcr_to_rgb(y, cb, cr).map(u32::from);
        }
        let part = |n: usize, full: f64| {
            let (black, white) = (self.range[2 * n], self.range[2 * n + 1]);
            (f64::from(ycbcr[n]) - black) * full / (white - black)
        };
        let [red, green, blue] = self.luma;
        let (y, cb, cr) = (part(0, 255.0), part(1, 127.0), part(2, 127.0));
        let r = cr * (2.0 - 2.0 * red) + y;
        let b = cb * (2.0 - 2.0 * blue) + y;
        let g = (y - blue * b - red * r) / green;
        [r, g, b].map(|v| v.round().clamp(0.0, 255.0) as u32)
    }
}

/// Converts CIE L*a*b* with the white D50, each sample from 0 to `max` as stored, to sRGB from 0 to 1.
fn lab_to_rgb([l, a, b]: [u32; 3], max: u32, is_offset: bool) -> [f64; 3] {
    // 1, or 256 for samples of 16 bits.
    let unit = f64::from((max + 1) / 256);
    // With an offset, 0 is stored as 128; otherwise, the upper half of the values is negative.
    let signed = |v: u32| match f64::from(v) / unit {
        v if is_offset => v - 128.0,
        v if v >= 128.0 => v - 256.0,
        v => v,
    };
    let (l, a, b) = (f64::from(l) * 100.0 / f64::from(max), signed(a), signed(b));
    let fy = (l + 16.0) / 116.0;
    let inverse =
        |f: f64| if f > 6.0 / 29.0 { f.powi(3) } else { 3.0 * (6.0f64 / 29.0).powi(2) * (f - 4.0 / 29.0) };
    let [x, y, z] = [0.964_2 * inverse(fy + a / 500.0), inverse(fy), 0.824_9 * inverse(fy - b / 200.0)];
    // From XYZ with the white D50 to linear sRGB, adapted by the Bradford method.
    let linear = [
        3.133_856_1 * x - 1.616_866_7 * y - 0.490_614_6 * z,
        -0.978_768_4 * x + 1.916_141_5 * y + 0.033_454_0 * z,
        0.071_945_3 * x - 0.228_991_4 * y + 1.405_242_7 * z,
    ];
    linear.map(|v| {
        let v = v.clamp(0.0, 1.0);
        if v <= 0.003_130_8 { 12.92 * v } else { 1.055 * v.powf(1.0 / 2.4) - 0.055 }
    })
}
