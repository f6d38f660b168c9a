//! From planes to pixels: colours at full resolution, then red, green and blue.

use super::idct::Machine;
use super::planes::{Layer, Planes};
use super::{Rect, Wanted};

/// Fractional bits of the constants.
const SCALE_BITS: u32 = 16;
const HALF: i32 = 1 << (SCALE_BITS - 1);
/// 1.402 − 1, −0.344136, 1 − 0.714136 and 1.772 − 2 in 16 fractional bits (ITU T.871): what is left when whole numbers
/// are taken out, so that 16 bits hold it.
const CR_TO_RED: i32 = 26_345;
const CB_TO_GREEN: i32 = -22_554;
const CR_TO_GREEN: i32 = 18_734;
const CB_TO_BLUE: i32 = -14_942;

/// Pixels that are converted together.
pub(super) const GROUP: usize = 32;

/// Writes what is wanted to `out`.
#[inline(always)]
pub(super) fn write(
    machine: impl Machine,
    is_gray: bool,
    planes: &mut Planes,
    wanted: Wanted,
    out: &mut [u8],
) {
    let Wanted { rect, stride, channels, .. } = wanted;
    let colors = planes.layer(1);
    let mut blended = std::mem::take(&mut planes.blended);
    for colors in &mut blended {
        // Two more than the width: blending works in pairs.
        colors.resize(rect.width + 2 * GROUP, 128);
    }
    for (n, out) in out.chunks_mut(stride * channels).enumerate() {
        let out = &mut out[..rect.width * channels];
        let y = rect.top + n;
        let luma = &planes.row(0, y)[rect.left - planes.origins[0].0..][..rect.width];
        match (channels, colors.spread) {
            (1, _) => out.copy_from_slice(luma),
            _ if is_gray => {
                for (pixel, &v) in out.as_chunks_mut::<3>().0.iter_mut().zip(luma) {
                    *pixel = [v; 3];
                }
            }
            (_, (1, 1)) => {
                let [cb, cr] =
                    [1, 2].map(|c| &planes.row(c, y)[rect.left - planes.origins[c].0..][..rect.width]);
                to_rgb(machine, luma, cb, cr, out);
            }
            (_, spread) => {
                // An odd column is the second of a pair.
                let odd = rect.left % 2;
                for (c, out) in (1..).zip(&mut blended) {
                    match (spread, colors.is_blended) {
                        ((_, 1), false) => repeat(planes, c, y, rect, out),
                        ((_, 1), true) => blend_across(colors, planes, c, y, rect, out),
                        _ => blend(colors, planes, c, y, rect, out),
                    }
                }
                let [cb, cr] = &blended;
                to_rgb(machine, luma, &cb[odd..][..rect.width], &cr[odd..][..rect.width], out);
            }
        }
    }
    planes.blended = blended;
}

/// Doubles the resolution of component `c` for row `y`: each sample is 9/16 of the nearest, 3/16 of the next ones in
/// its row and column, and 1/16 of the one across. From the even column at or left of the rectangle on.
#[inline(always)]
fn blend(layer: Layer, planes: &Planes, c: usize, y: usize, rect: Rect, out: &mut [u8]) {
    let Layer { width, height, .. } = layer;
    let near = y / 2;
    let far = if y.is_multiple_of(2) { near.saturating_sub(1) } else { (near + 1).min(height - 1) };
    let (near, far) = (planes.row(c, near), planes.row(c, far));
    let origin = planes.origins[c].0;
    let first = rect.left / 2 - origin;
    let count = (rect.left + rect.width).div_ceil(2) - rect.left / 2;
    let last = width - 1 - origin;
    let sum = |x: usize| 3 * i32::from(near[x]) + i32::from(far[x]);
    // Edges first: they repeat their own sample. What is written twice is right the second time.
    let edge = |x: usize, out: &mut [u8]| {
        let before = sum(if x + origin == 0 { 0 } else { x - 1 });
        let after = sum(if x == last { x } else { x + 1 });
        let this = sum(x) * 3;
        out[0] = ((this + before + 8) >> 4) as u8;
        out[1] = ((this + after + 7) >> 4) as u8;
    };
    edge(first, out);
    if count > 1 {
        edge(first + count - 1, &mut out[2 * (count - 1)..]);
    }
    if count > 2 {
        let n = count - 2;
        let (near, far) = (&near[first..][..count], &far[first..][..count]);
        let pairs = &mut out[2..][..2 * n].as_chunks_mut::<2>().0;
        for ((pair, near), far) in pairs.iter_mut().zip(near.windows(3)).zip(far.windows(3)) {
            let sum = |i: usize| 3 * u16::from(near[i]) + u16::from(far[i]);
            let (before, this, after) = (sum(0), sum(1) * 3, sum(2));
            *pair = [((this + before + 8) >> 4) as u8, ((this + after + 7) >> 4) as u8];
        }
    }
}

/// As [`blend`], across only: each sample is 3/4 of the nearest and 1/4 of the next.
#[inline(always)]
fn blend_across(layer: Layer, planes: &Planes, c: usize, y: usize, rect: Rect, out: &mut [u8]) {
    let row = planes.row(c, y);
    let origin = planes.origins[c].0;
    let (first, end) = (rect.left / 2 - origin, (rect.left + rect.width).div_ceil(2) - origin);
    let last = layer.width - 1 - origin;
    for (pair, x) in out.as_chunks_mut::<2>().0.iter_mut().zip(first..end) {
        let at = |x: usize| u16::from(row[x]);
        // Edges keep their own sample.
        let before = if x + origin == 0 { at(x) } else { at(x - 1) };
        let after = if x == last { at(x) } else { at(x + 1) };
        *pair = [((3 * at(x) + before + 1) >> 2) as u8, ((3 * at(x) + after + 2) >> 2) as u8];
    }
}

/// Repeats each sample, from the even column at or left of the rectangle on.
#[inline(always)]
fn repeat(planes: &Planes, c: usize, y: usize, rect: Rect, out: &mut [u8]) {
    let row = planes.row(c, y);
    let origin = planes.origins[c].0;
    let wanted = rect.left / 2 - origin..(rect.left + rect.width).div_ceil(2) - origin;
    for (pair, &v) in out.as_chunks_mut::<2>().0.iter_mut().zip(&row[wanted]) {
        *pair = [v; 2];
    }
}

/// Converts a row to red, green and blue.
#[inline(always)]
fn to_rgb(machine: impl Machine, luma: &[u8], cb: &[u8], cr: &[u8], out: &mut [u8]) {
    let (groups, rest) = luma.as_chunks::<GROUP>();
    let (cb_groups, cb_rest) = cb.as_chunks::<GROUP>();
    let (cr_groups, cr_rest) = cr.as_chunks::<GROUP>();
    let (out_groups, out_rest) = out.split_at_mut(groups.len() * GROUP * 3);
    for (((out, y), cb), cr) in
        out_groups.as_chunks_mut::<{ 3 * GROUP }>().0.iter_mut().zip(groups).zip(cb_groups).zip(cr_groups)
    {
        let mut planes = [[0u8; GROUP]; 3];
        for i in 0..GROUP {
            let pixel = rgb(y[i], cb[i], cr[i]);
            (planes[0][i], planes[1][i], planes[2][i]) = (pixel[0], pixel[1], pixel[2]);
        }
        machine.interleave(&planes, out);
    }
    for (((pixel, &y), &cb), &cr) in
        out_rest.as_chunks_mut::<3>().0.iter_mut().zip(rest).zip(cb_rest).zip(cr_rest)
    {
        *pixel = rgb(y, cb, cr);
    }
}

/// One pixel. Halves are rounded up, as `floor(x + ½)`: for red and blue by taking twice the number, halving it last,
/// which 16 bits are enough for.
#[inline(always)]
pub(in crate::decode) fn rgb(y: u8, cb: u8, cr: u8) -> [u8; 3] {
    let (y, cb, cr) = (i16::from(y), i16::from(cb) - 128, i16::from(cr) - 128);
    let part = |color: i16, factor: i32| (((i32::from(2 * color) * factor) >> SCALE_BITS) as i16 + 1) >> 1;
    let green = (CB_TO_GREEN * i32::from(cb) + CR_TO_GREEN * i32::from(cr) + HALF) >> SCALE_BITS;
    [y + cr + part(cr, CR_TO_RED), y - cr + green as i16, y + 2 * cb + part(cb, CB_TO_BLUE)]
        .map(|v| v.clamp(0, 255) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colors_are_those_of_the_whole_formula() {
        for cb in 0..=255u8 {
            for cr in 0..=255u8 {
                let (b, r) = (i32::from(cb) - 128, i32::from(cr) - 128);
                let whole = |sum: i32| 100 + ((sum + HALF) >> SCALE_BITS);
                let expected = [whole(91_881 * r), whole(-22_554 * b - 46_802 * r), whole(116_130 * b)]
                    .map(|v| v.clamp(0, 255) as u8);
                assert_eq!(rgb(100, cb, cr), expected);
            }
        }
    }
}
