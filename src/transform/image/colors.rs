//! Conversion of pixels to the channels of the output.

use super::option_values::{Color, Rgb};
use super::pixels::{Pixels, luma};

/// Blends `color` with opacity `alpha` over `background`, rounded.
fn over(color: u8, alpha: u8, background: u8) -> u8 {
    let (color, alpha, background) = (u32::from(color), u32::from(alpha), u32::from(background));
    ((color * alpha + background * (255 - alpha) + 127) / 255) as u8
}

/// Converts `pixels` to the channels of `color`, in place. Alpha that is removed is first blended with `background`.
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

/// Converts pixels to fewer channels in place, from front to back.
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

/// Converts pixels to more channels in place, from back to front.
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
