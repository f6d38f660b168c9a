//! Converts samples to 8 bits.

use dsconvert_dataset::sample::Reject;
use image::ColorType;

use super::pixels::{Pixels, Size};
use super::reject::unsupported;

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
    fn sixteen_bits_are_rounded() {
        for v in 0..=255u16 {
            assert_eq!(narrow((v * 257).to_ne_bytes()), v as u8);
        }
        assert_eq!(narrow(128u16.to_ne_bytes()), 0);
        assert_eq!(narrow(129u16.to_ne_bytes()), 1);
    }
}
