//! Color conversion between YCbCr, RGB, CMYK and luma.

/// Fractional bits of the constants.
const SCALE_BITS: u32 = 16;
const HALF: i32 = 1 << (SCALE_BITS - 1);
/// 1.402 − 1, −0.344136, 1 − 0.714136 and 1.772 − 2 with 16 fractional bits (ITU T.871). Without their integer parts,
/// the constants fit in 16 bits, and 16-bit multiplications are enough for each product.
const CR_TO_RED: i32 = 26_345;
const CB_TO_GREEN: i32 = -22_554;
const CR_TO_GREEN: i32 = 18_734;
const CB_TO_BLUE: i32 = -14_942;

/// Converts one pixel from YCbCr to RGB (ITU T.871), rounding like libjpeg: `floor(x + ½)`.
///
/// ```
/// assert_eq!(dsconvert_jpeg::ycbcr_to_rgb(76, 85, 255), [254, 0, 0]);
/// ```
// Red and blue are doubled, and halved last, so that 16 bits are enough for the rounded sum.
#[inline(always)]
pub fn ycbcr_to_rgb(y: u8, cb: u8, cr: u8) -> [u8; 3] {
    let (y, cb, cr) = (i16::from(y), i16::from(cb) - 128, i16::from(cr) - 128);
    let part = |color: i16, factor: i32| (((i32::from(2 * color) * factor) >> SCALE_BITS) as i16 + 1) >> 1;
    let green = (CB_TO_GREEN * i32::from(cb) + CR_TO_GREEN * i32::from(cr) + HALF) >> SCALE_BITS;
    [y + cr + part(cr, CR_TO_RED), y - cr + green as i16, y + 2 * cb + part(cb, CB_TO_BLUE)]
        .map(|v| v.clamp(0, 255) as u8)
}

/// Converts one pixel from RGB to YCbCr (ITU T.871), rounding like the encoder of libjpeg.
///
/// ```
/// assert_eq!(dsconvert_jpeg::rgb_to_ycbcr([255, 0, 0]), [76, 85, 255]);
/// assert_eq!(dsconvert_jpeg::rgb_to_ycbcr([90, 90, 90]), [90, 128, 128]);
/// ```
#[inline]
pub fn rgb_to_ycbcr(rgb: [u8; 3]) -> [u8; 3] {
    /// 128, and a half that is rounded down where the sum is exactly between two values.
    const CENTER: i32 = (128 << SCALE_BITS) + HALF - 1;
    let [r, g, b] = rgb.map(i32::from);
    let cb = (-11_059 * r - 21_709 * g + HALF * b + CENTER) >> SCALE_BITS;
    let cr = (HALF * r - 27_439 * g - 5_329 * b + CENTER) >> SCALE_BITS;
    [luma(rgb), cb as u8, cr as u8]
}

/// Returns the luma of an RGB color with the weights of JPEG (BT.601): 0.299, 0.587 and 0.114, with 16 fractional bits.
///
/// ```
/// assert_eq!(dsconvert_jpeg::luma([255, 0, 0]), 76);
/// ```
pub fn luma([r, g, b]: [u8; 3]) -> u8 {
    let sum = 19_595 * u32::from(r) + 38_470 * u32::from(g) + 7_471 * u32::from(b) + (1 << 15);
    (sum >> 16) as u8
}

/// Converts CMYK pixels, with 255 as full ink, to RGB without a color profile. Each RGB channel is the light that its
/// ink and black together let through. Stops at the end of the shorter buffer.
///
/// ```
/// let mut rgb = [0; 6];
/// dsconvert_jpeg::cmyk_to_rgb(&[0, 0, 0, 0, 255, 0, 0, 0], &mut rgb);
/// assert_eq!(rgb, [255, 255, 255, 0, 255, 255]);
/// ```
pub fn cmyk_to_rgb(cmyk: &[u8], rgb: &mut [u8]) {
    let light = |ink: u8, black: u8| ((u32::from(255 - ink) * u32::from(255 - black) + 127) / 255) as u8;
    for (to, [c, m, y, k]) in rgb.as_chunks_mut::<3>().0.iter_mut().zip(cmyk.as_chunks::<4>().0) {
        *to = [light(*c, *k), light(*m, *k), light(*y, *k)];
    }
}

/// Inverts CMYK samples in place. Files with an Adobe marker store 0 for full ink.
pub fn invert_cmyk(cmyk: &mut [u8]) {
    cmyk.iter_mut().for_each(|ink| *ink = 255 - *ink);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colors_match_the_formula_with_full_constants() {
        for cb in 0..=255u8 {
            for cr in 0..=255u8 {
                let (b, r) = (i32::from(cb) - 128, i32::from(cr) - 128);
                let whole = |sum: i32| 100 + ((sum + HALF) >> SCALE_BITS);
                let expected = [whole(91_881 * r), whole(-22_554 * b - 46_802 * r), whole(116_130 * b)]
                    .map(|v| v.clamp(0, 255) as u8);
                assert_eq!(ycbcr_to_rgb(100, cb, cr), expected);
            }
        }
    }

    #[test]
    fn luma_weights_sum_to_one() {
        assert_eq!(luma([255; 3]), 255);
        assert_eq!(luma([0; 3]), 0);
    }
}
