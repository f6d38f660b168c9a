//! Converts samples to 8 bits.

use dsconvert_dataset::sample::Reject;
use image::ColorType;

use super::pixels::{Pixels, Size};
use super::unsupported;

/// Converts 16 bits to 8, rounded.
fn narrow(sample: [u8; 2]) -> u8 {
    ((u32::from(u16::from_ne_bytes(sample)) * 255 + 32_767) / 65_535) as u8
}

/// Converts samples of `color_type`, as decoded by the `image` crate, to 8 bits: RGBA if they have alpha, otherwise
/// RGB.
pub fn to_8_bits(samples: &[u8], color_type: ColorType, size: Size, out: &mut Pixels) -> Result<(), Reject> {
    let wide = |s: &[u8], i: usize| narrow([s[2 * i], s[2 * i + 1]]);
    match color_type {
        ColorType::L8 => fill(samples, size, out, |[v]: [u8; 1]| [v; 3]),
        ColorType::La8 => fill(samples, size, out, |[v, a]: [u8; 2]| [v, v, v, a]),
        ColorType::Rgb8 => fill(samples, size, out, |rgb: [u8; 3]| rgb),
        ColorType::Rgba8 => fill(samples, size, out, |rgba: [u8; 4]| rgba),
        ColorType::L16 => fill(samples, size, out, |v: [u8; 2]| [narrow(v); 3]),
        ColorType::La16 => fill(samples, size, out, |s: [u8; 4]| {
            let v = wide(&s, 0);
            [v, v, v, wide(&s, 1)]
        }),
        ColorType::Rgb16 => fill(samples, size, out, |s: [u8; 6]| [wide(&s, 0), wide(&s, 1), wide(&s, 2)]),
        ColorType::Rgba16 => {
            fill(samples, size, out, |s: [u8; 8]| [wide(&s, 0), wide(&s, 1), wide(&s, 2), wide(&s, 3)])
        }
        other => return Err(unsupported(format!("samples of type {other:?} are not supported"))),
    }
    Ok(())
}

/// Divides colors that are multiplied by alpha by it, rounded. `samples` are gray with alpha or RGBA; those of other color
/// types have no alpha or cannot be decoded, and stay as they are.
pub fn divide_by_alpha(samples: &mut [u8], color_type: ColorType) {
    /// Returns the color without the factor `alpha / max`. Colors above alpha contradict the format.
    fn divided(color: u32, alpha: u32, max: u32) -> u32 {
        (color * max + alpha / 2).checked_div(alpha).map_or(color, |color| color.min(max))
    }
    match color_type {
        ColorType::La8 => {
            for [color, alpha] in samples.as_chunks_mut::<2>().0 {
                *color = divided((*color).into(), (*alpha).into(), 0xff) as u8;
            }
        }
        ColorType::Rgba8 => {
            for [colors @ .., alpha] in samples.as_chunks_mut::<4>().0 {
                for color in colors {
                    *color = divided((*color).into(), (*alpha).into(), 0xff) as u8;
                }
            }
        }
        ColorType::La16 => {
            for [c0, c1, a0, a1] in samples.as_chunks_mut::<4>().0 {
                let (color, alpha) =
                    (u16::from_ne_bytes([*c0, *c1]).into(), u16::from_ne_bytes([*a0, *a1]).into());
                [*c0, *c1] = (divided(color, alpha, 0xffff) as u16).to_ne_bytes();
            }
        }
        ColorType::Rgba16 => {
            for pixel in samples.as_chunks_mut::<8>().0 {
                let alpha = u16::from_ne_bytes([pixel[6], pixel[7]]).into();
                for color in &mut pixel.as_chunks_mut::<2>().0[..3] {
                    *color = (divided(u16::from_ne_bytes(*color).into(), alpha, 0xffff) as u16).to_ne_bytes();
                }
            }
        }
        _ => {}
    }
}

fn fill<const FROM: usize, const TO: usize>(
    samples: &[u8],
    size: Size,
    out: &mut Pixels,
    pixel: impl Fn([u8; FROM]) -> [u8; TO],
) {
    out.reshape(size, TO);
    for (to, from) in out.data.as_chunks_mut::<TO>().0.iter_mut().zip(samples.as_chunks::<FROM>().0) {
        *to = pixel(*from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colors_are_divided_by_alpha() {
        let mut samples = [100, 50, 0, 128, 255, 7, 1, 255, 9, 9, 9, 0, 30, 20, 10, 20];
        divide_by_alpha(&mut samples, ColorType::Rgba8);
        assert_eq!(samples, [199, 100, 0, 128, 255, 7, 1, 255, 9, 9, 9, 0, 255, 255, 128, 20]);
        let wide = [1000u16, 65_535, 0, 2000, 65_535, 65_534, 1, 65_535];
        let mut samples: Vec<u8> = wide.iter().flat_map(|sample| sample.to_ne_bytes()).collect();
        divide_by_alpha(&mut samples, ColorType::Rgba16);
        let found: Vec<u16> = samples.as_chunks::<2>().0.iter().map(|s| u16::from_ne_bytes(*s)).collect();
        assert_eq!(found, [32_768, 65_535, 0, 2000, 65_535, 65_534, 1, 65_535]);
        let mut samples: Vec<u8> = [1000u16, 2000].iter().flat_map(|sample| sample.to_ne_bytes()).collect();
        divide_by_alpha(&mut samples, ColorType::La16);
        assert_eq!(samples, [32_768u16, 2000].map(u16::to_ne_bytes).concat());
    }

    #[test]
    fn sixteen_bits_are_rounded() {
        for v in 0..=255u16 {
            assert_eq!(narrow((v * 257).to_ne_bytes()), v as u8);
        }
        assert_eq!(narrow(128u16.to_ne_bytes()), 0);
        assert_eq!(narrow(129u16.to_ne_bytes()), 1);
    }
}
