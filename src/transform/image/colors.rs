//! Bringing samples to 8 bits and pixels to the channels of the output.

use image::ColorType;

use super::container::unsupported;
use super::geometry::Size;
use super::pixels::{Pixels, luma};
use super::text::{Color, Rgb};
use crate::sample::Reject;

/// 16 bits to 8, rounded.
fn narrow(sample: [u8; 2]) -> u8 {
    ((u32::from(u16::from_ne_bytes(sample)) * 255 + 32_767) / 65_535) as u8
}

/// `color` of opacity `alpha` over `background`, rounded.
fn over(color: u8, alpha: u8, background: u8) -> u8 {
    let (color, alpha, background) = (u32::from(color), u32::from(alpha), u32::from(background));
    ((color * alpha + background * (255 - alpha) + 127) / 255) as u8
}

/// Brings samples of `color_type`, as the `image` crate decodes them, to 8 bits: RGBA when they have alpha, else RGB.
pub(super) fn to_8_bits(
    samples: &[u8],
    color_type: ColorType,
    size: Size,
    out: &mut Pixels,
) -> Result<(), Reject> {
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

/// Brings `pixels` to the channels of `color`, in place. Where alpha goes, it is laid onto `background` first.
pub(super) fn to_channels(pixels: &mut Pixels, color: Color, background: Rgb) {
    if pixels.channels == 4 && color != Color::Rgba {
        let Rgb(background) = background;
        narrow_pixels(pixels, |[r, g, b, a]: [u8; 4]| match a {
            255 => [r, g, b],
            _ => [over(r, a, background[0]), over(g, a, background[1]), over(b, a, background[2])],
        });
    }
    match (pixels.channels, color) {
        (3, Color::Gray) => narrow_pixels(pixels, |rgb: [u8; 3]| [luma(rgb)]),
        (1, Color::Rgb) => widen_pixels(pixels, |[v]: [u8; 1]| [v; 3]),
        (1, Color::Rgba) => widen_pixels(pixels, |[v]: [u8; 1]| [v, v, v, 255]),
        (3, Color::Rgba) => widen_pixels(pixels, |[r, g, b]: [u8; 3]| [r, g, b, 255]),
        _ => {}
    }
}

/// Makes pixels narrower in place, from the front.
fn narrow_pixels<const FROM: usize, const TO: usize>(
    pixels: &mut Pixels,
    f: impl Fn([u8; FROM]) -> [u8; TO],
) {
    let count = pixels.data.len() / FROM;
    for i in 0..count {
        let mut from = [0; FROM];
        from.copy_from_slice(&pixels.data[i * FROM..][..FROM]);
        pixels.data[i * TO..][..TO].copy_from_slice(&f(from));
    }
    pixels.reshape(pixels.size(), TO);
}

/// Makes pixels wider in place, from the back.
fn widen_pixels<const FROM: usize, const TO: usize>(pixels: &mut Pixels, f: impl Fn([u8; FROM]) -> [u8; TO]) {
    let count = pixels.data.len() / FROM;
    pixels.reshape(pixels.size(), TO);
    for i in (0..count).rev() {
        let mut from = [0; FROM];
        from.copy_from_slice(&pixels.data[i * FROM..][..FROM]);
        pixels.data[i * TO..][..TO].copy_from_slice(&f(from));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_bits_are_rounded() {
        for v in 0..=255u16 {
            assert_eq!(narrow((v * 257).to_ne_bytes()), v as u8);
        }
        assert_eq!(narrow(128u16.to_ne_bytes()), 0);
        assert_eq!(narrow(129u16.to_ne_bytes()), 1);
    }

    #[test]
    fn opacity_is_exact_at_its_ends() {
        for c in 0..=255 {
            assert_eq!(over(c, 255, 17), c);
            assert_eq!(over(c, 0, 17), 17);
            assert_eq!(over(c, 77, c), c);
        }
    }

    #[test]
    fn channels_are_changed_in_place() {
        let mut pixels = Pixels { data: vec![1, 2, 3, 255, 4, 5, 6, 0], width: 2, height: 1, channels: 4 };
        to_channels(&mut pixels, Color::Rgb, Rgb([9, 8, 7]));
        assert_eq!((pixels.data.as_slice(), pixels.channels), ([1, 2, 3, 9, 8, 7].as_slice(), 3));
        to_channels(&mut pixels, Color::Rgba, Rgb::WHITE);
        assert_eq!(pixels.data, [1, 2, 3, 255, 9, 8, 7, 255]);
        to_channels(&mut pixels, Color::Gray, Rgb::WHITE);
        assert_eq!((pixels.data.as_slice(), pixels.channels), ([2, 8].as_slice(), 1));
        to_channels(&mut pixels, Color::Rgb, Rgb::WHITE);
        assert_eq!(pixels.data, [2, 2, 2, 8, 8, 8]);
    }
}
