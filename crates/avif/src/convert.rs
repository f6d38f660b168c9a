//! Samples of luma and chroma to 8-bit gray or RGB, as ITU-T H.273 defines.
//!
//! The conversion is that of libavif: chroma is upsampled with the weights 9, 3, 3 and 1 of 16, or 3 and 1 of 4, and rounded;
//! colors are computed exactly and rounded once. libavif itself uses the approximations of libyuv, which differ by a level
//! or two.

use crate::error::{Error, Result};
use crate::picture::{Chroma, Picture, Plane};
use crate::properties::Cicp;

/// Bits after the binary point of a level.
const FRACTION: u32 = 16;
const HALF: i32 = 1 << (FRACTION - 1);

/// How samples of luma and chroma become colors.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Model {
    /// The samples are green, blue and red.
    Identity,
    YCgCo,
    /// The weights of red and blue in luma.
    Weights {
        red: f64,
        blue: f64,
    },
}

impl Model {
    fn of(cicp: Cicp) -> Result<Self> {
        let weights = |red, blue| Ok(Self::Weights { red, blue });
        match (cicp.matrix, cicp.primaries) {
            (0, _) => Ok(Self::Identity),
            (1, _) | (12, 1) => weights(0.2126, 0.0722),
            // Unspecified: that of sRGB JPEG files.
            (2 | 5 | 6, _) => weights(0.299, 0.114),
            (4, _) => weights(0.30, 0.11),
            (7, _) => weights(0.212, 0.087),
            (8, _) if cicp.is_full_range => Ok(Self::YCgCo),
            // The weights that follow from the primaries of Display P3.
            (12, 12) => weights(0.228_974_564, 0.079_286_914),
            (9, _) | (12, 9) => weights(0.2627, 0.0593),
            (matrix, _) => {
                Err(Error::unsupported(format!("its colors have the matrix coefficients {matrix} of H.273")))
            }
        }
    }
}

/// Checks that colors with `cicp` can be converted.
pub(crate) fn check_colors(cicp: Cicp) -> Result<()> {
    Model::of(cicp).map(drop)
}

/// Black and the number of steps up to white, of luma or alpha with `depth` bits.
fn luma_range(depth: u8, is_full_range: bool) -> (i32, i32) {
    if is_full_range { (0, (1 << depth) - 1) } else { (16 << (depth - 8), 219 << (depth - 8)) }
}

/// Returns a table of levels, in fractions, for the samples of `depth` bits: `weight` times the distance from `zero`.
fn table(depth: u8, zero: i32, steps: i32, weight: f64) -> Vec<i32> {
    let scale = 255.0 * f64::from(1 << FRACTION) * weight / f64::from(steps);
    (0..1 << depth).map(|sample: i32| (f64::from(sample - zero) * scale).round() as i32).collect()
}

fn look_up(table: &[i32], sample: u16) -> i32 {
    // Samples of 10 and 12 bits fit their tables: the decoder clips them.
    table.get(usize::from(sample)).copied().unwrap_or_default()
}

fn level(value: i32) -> u8 {
    ((value + HALF) >> FRACTION).clamp(0, 255) as u8
}

/// The contributions of samples to colors.
struct Tables {
    luma: Vec<i32>,
    red_of_v: Vec<i32>,
    green_of_u: Vec<i32>,
    green_of_v: Vec<i32>,
    blue_of_u: Vec<i32>,
}

impl Tables {
    fn new(model: Model, depth: u8, is_full_range: bool) -> Self {
        let (black, steps) = luma_range(depth, is_full_range);
        let luma = table(depth, black, steps, 1.0);
        let (zero, steps) = (1 << (depth - 1), if is_full_range { steps } else { 224 << (depth - 8) });
        let chroma = |weight| table(depth, zero, steps, weight);
        // Y and the second and third samples have these weights in red, green and blue.
        let [red_of_v, green_of_u, green_of_v, blue_of_u] = match model {
            // Not used: see `row`.
            Model::Identity | Model::YCgCo => [1.0; 4].map(chroma),
            Model::Weights { red, blue } => {
                let green = 1.0 - red - blue;
                [
                    chroma(2.0 * (1.0 - red)),
                    chroma(-2.0 * blue * (1.0 - blue) / green),
                    chroma(-2.0 * red * (1.0 - red) / green),
                    chroma(2.0 * (1.0 - blue)),
                ]
            }
        };
        Self { luma, red_of_v, green_of_u, green_of_v, blue_of_u }
    }

    fn rgb(&self, model: Model, [y, u, v]: [u16; 3]) -> [u8; 3] {
        let luma = look_up(&self.luma, y);
        let levels = match model {
            Model::Identity => [look_up(&self.luma, v), luma, look_up(&self.luma, u)],
            Model::YCgCo => {
                let (green, orange) = (look_up(&self.blue_of_u, u), look_up(&self.red_of_v, v));
                [luma - green + orange, luma + green, luma - green - orange]
            }
            Model::Weights { .. } => [
                luma + look_up(&self.red_of_v, v),
                luma + look_up(&self.green_of_u, u) + look_up(&self.green_of_v, v),
                luma + look_up(&self.blue_of_u, u),
            ],
        };
        levels.map(level)
    }
}

/// Writes the colors of `picture` to the first one or three of each `channels` samples of `out`.
pub(crate) fn colors(picture: &Picture, cicp: Cicp, channels: usize, out: &mut [u8]) -> Result<()> {
    let model = Model::of(cicp)?;
    let (chroma, depth) = (picture.chroma, picture.depth);
    if model == Model::Identity && !matches!(chroma, Chroma::S444 | Chroma::Monochrome) {
        return Err(Error::corrupt("its samples are RGB, but two components have fewer samples"));
    }
    let tables = Tables::new(model, depth, cicp.is_full_range);
    let width = picture.width as usize;
    let [luma, u, v] = &picture.planes;
    let mut upsampled = [vec![0; width], vec![0; width]];
    for (y, out) in out.chunks_exact_mut(width * channels).enumerate() {
        let pixels = out.chunks_exact_mut(channels).zip(luma.row(y));
        if chroma == Chroma::Monochrome {
            for (pixel, sample) in pixels {
                let count = if channels < 3 { 1 } else { 3 };
                pixel[..count].fill(level(look_up(&tables.luma, *sample)));
            }
            continue;
        }
        let [first, second] = &mut upsampled;
        upsample(u, chroma, y, picture.height as usize, first);
        upsample(v, chroma, y, picture.height as usize, second);
        for ((pixel, sample), (u, v)) in pixels.zip(first.iter().zip(&*second)) {
            pixel[..3].copy_from_slice(&tables.rgb(model, [*sample, *u, *v]));
        }
    }
    Ok(())
}

/// Writes the alpha of `picture`, its luma, to the last of each `channels` samples of `out`.
pub(crate) fn alpha(picture: &Picture, channels: usize, out: &mut [u8]) {
    let (black, steps) = luma_range(picture.depth, picture.cicp.is_full_range);
    let table = table(picture.depth, black, steps, 1.0);
    for (pixel, sample) in out.chunks_exact_mut(channels).zip(&picture.planes[0].samples) {
        pixel[channels - 1] = level(look_up(&table, *sample));
    }
}

/// Writes the samples of `plane` for the row `y` of `height` rows of pixels to `out`.
fn upsample(plane: &Plane, chroma: Chroma, y: usize, height: usize, out: &mut [u16]) {
    let near = match chroma {
        Chroma::S420 => plane.row(y / 2),
        _ => plane.row(y),
    };
    // The next row in the direction of the pixel; at the edges, the same row.
    let far = match (chroma, y % 2) {
        (Chroma::S420, 0) if y > 0 => plane.row(y / 2 - 1),
        (Chroma::S420, 1) if y + 1 < height => plane.row(y / 2 + 1),
        _ => near,
    };
    if matches!(chroma, Chroma::S444 | Chroma::Monochrome) {
        out.copy_from_slice(near);
        return;
    }
    let end = out.len() - 1;
    for (x, out) in out.iter_mut().enumerate() {
        let at = x / 2;
        let side = match x % 2 {
            // As in libyuv, the last column of an odd width is not mixed.
            0 if x == 0 || x == end => at,
            0 => at - 1,
            _ if x == end => at,
            _ => at + 1,
        };
        let [n, s, f, d] = [near[at], near[side], far[at], far[side]].map(u32::from);
        *out = ((9 * n + 3 * s + 3 * f + d + 8) >> 4) as u16;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cicp(matrix: u16, is_full_range: bool) -> Cicp {
        Cicp { primaries: 1, matrix, is_full_range }
    }

    #[test]
    fn black_white_and_gray_are_exact_at_every_depth_and_range() {
        for matrix in [1, 2, 4, 5, 6, 7, 9, 12] {
            for (depth, is_full_range) in
                [(8, true), (8, false), (10, true), (10, false), (12, true), (12, false)]
            {
                let model = Model::of(cicp(matrix, is_full_range)).unwrap();
                let tables = Tables::new(model, depth, is_full_range);
                let (black, steps) = luma_range(depth, is_full_range);
                let zero = 1 << (depth - 1);
                for (sample, expected) in [(black, 0), (black + steps, 255), (0, 0), ((1 << depth) - 1, 255)]
                {
                    let found = tables.rgb(model, [sample as u16, zero, zero]);
                    assert_eq!(found, [expected; 3], "{matrix} {depth} {is_full_range} {sample}");
                }
            }
        }
    }

    #[test]
    fn colors_are_those_of_the_formulas() {
        for (matrix, red, blue) in [(1, 0.2126, 0.0722), (6, 0.299, 0.114), (9, 0.2627, 0.0593)] {
            for depth in [8, 10, 12] {
                let model = Model::of(cicp(matrix, false)).unwrap();
                let tables = Tables::new(model, depth, false);
                let unit = f64::from(1 << (depth - 8));
                let samples = (0..1 << depth).step_by(61 << (depth - 8)).map(|sample: u16| sample);
                let all = samples.clone().flat_map(|y| {
                    let samples = samples.clone();
                    samples.clone().flat_map(move |u| samples.clone().map(move |v| [y, u, v]))
                });
                for sample in all {
                    let [y, u, v] = sample.map(f64::from);
                    let luma = (y - 16.0 * unit) / (219.0 * unit);
                    let (cb, cr) = ((u - 128.0 * unit) / (224.0 * unit), (v - 128.0 * unit) / (224.0 * unit));
                    let (r, b) = (luma + 2.0 * (1.0 - red) * cr, luma + 2.0 * (1.0 - blue) * cb);
                    let g = (luma - red * r - blue * b) / (1.0 - red - blue);
                    for (found, exact) in tables.rgb(model, sample).into_iter().zip([r, g, b]) {
                        let exact = (exact * 255.0).clamp(0.0, 255.0);
                        assert!((f64::from(found) - exact).abs() < 0.5001, "{sample:?}: {found} {exact}");
                    }
                }
            }
        }
    }

    #[test]
    fn matrices_that_are_not_linear_are_refused() {
        for matrix in [3, 10, 11, 13, 14, 15, 16, 17, 255] {
            assert!(Model::of(cicp(matrix, true)).is_err(), "{matrix}");
        }
        assert!(Model::of(cicp(8, false)).is_err());
    }

    #[test]
    fn chroma_is_mixed_from_the_nearest_samples() {
        let plane = Plane { width: 2, samples: vec![0, 160, 320, 480] };
        let mut row = [0; 4];
        let rows: Vec<_> = (0..4)
            .map(|y| {
                upsample(&plane, Chroma::S420, y, 4, &mut row);
                row
            })
            .collect();
        assert_eq!(
            rows,
            [[0, 40, 120, 160], [80, 120, 200, 240], [240, 280, 360, 400], [320, 360, 440, 480]]
        );
        let mut odd = [0; 3];
        upsample(&plane, Chroma::S422, 1, 2, &mut odd);
        assert_eq!(odd, [320, 360, 480]);
        upsample(&plane, Chroma::S420, 2, 3, &mut odd);
        assert_eq!(odd, [240, 280, 400]);
        let mut one = [0; 1];
        upsample(&Plane { width: 1, samples: vec![7] }, Chroma::S420, 0, 1, &mut one);
        assert_eq!(one, [7]);
    }
}
