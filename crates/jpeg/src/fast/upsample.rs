//! Conversion of planes to pixels: chroma upsampling, then color conversion.

use pulp::NullaryFnOnce;

use super::planes::{PlaneShape, Planes};
use super::request::FastRequest;
use crate::color::ycbcr_to_rgb;
use crate::idct::{Backend, GROUP};
use crate::options::{PixelFormat, Region};

/// The task of converting the planes to pixels.
pub(super) struct WritePixels<'a, B> {
    pub(super) backend: B,
    pub(super) is_gray: bool,
    pub(super) planes: &'a mut Planes,
    pub(super) request: FastRequest,
    pub(super) out: &'a mut [u8],
}

impl<B: Backend> NullaryFnOnce for WritePixels<'_, B> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        write(self.backend, self.is_gray, self.planes, self.request, self.out);
    }
}

/// Writes the requested pixels to `out`.
#[inline(always)]
fn write(backend: impl Backend, is_gray: bool, planes: &mut Planes, request: FastRequest, out: &mut [u8]) {
    let FastRequest { region, stride, format, .. } = request;
    let channels = format.channels();
    let chroma = planes.shape(1);
    let mut upsampled = std::mem::take(&mut planes.upsampled);
    for row in &mut upsampled {
        // Wider than the region, because upsampling works on pairs.
        row.resize(region.width + 2 * GROUP, 128);
    }
    for (n, out) in out.chunks_mut(stride * channels).enumerate() {
        let out = &mut out[..region.width * channels];
        let y = region.top + n;
        let luma = &planes.row(0, y)[region.left - planes.origins[0].0..][..region.width];
        match (format, chroma.spread) {
            (PixelFormat::Gray, _) => out.copy_from_slice(luma),
            _ if is_gray => {
                for (pixel, &v) in out.as_chunks_mut::<3>().0.iter_mut().zip(luma) {
                    *pixel = [v; 3];
                }
            }
            (_, (1, 1)) => {
                let [cb, cr] =
                    [1, 2].map(|c| &planes.row(c, y)[region.left - planes.origins[c].0..][..region.width]);
                to_rgb(backend, luma, cb, cr, out);
            }
            (_, spread) => {
                // An odd column is the second of a pair.
                let odd = region.left % 2;
                for (c, out) in (1..).zip(&mut upsampled) {
                    match (spread, chroma.is_fancy) {
                        ((_, 1), false) => replicate(planes, c, y, region, out),
                        ((_, 1), true) => fancy_h2v1(chroma, planes, c, y, region, out),
                        _ => fancy_h2v2(chroma, planes, c, y, region, out),
                    }
                }
                let [cb, cr] = &upsampled;
                to_rgb(backend, luma, &cb[odd..][..region.width], &cr[odd..][..region.width], out);
            }
        }
    }
    planes.upsampled = upsampled;
}

/// Doubles the resolution of component `c` for row `y` in both directions: each sample is 9/16 of the nearest sample,
/// 3/16 of the next ones in its row and column, and 1/16 of the diagonal one. Starts at the even column at or left of
/// the region.
#[inline(always)]
fn fancy_h2v2(shape: PlaneShape, planes: &Planes, c: usize, y: usize, region: Region, out: &mut [u8]) {
    let PlaneShape { width, height, .. } = shape;
    let near = y / 2;
    let far = if y.is_multiple_of(2) { near.saturating_sub(1) } else { (near + 1).min(height - 1) };
    let (near, far) = (planes.row(c, near), planes.row(c, far));
    let origin = planes.origins[c].0;
    let first = region.left / 2 - origin;
    let count = (region.left + region.width).div_ceil(2) - region.left / 2;
    let last = width - 1 - origin;
    let sum = |x: usize| 3 * i32::from(near[x]) + i32::from(far[x]);
    // Both ends of the row first: at an edge of the image, a sample is its own neighbor.
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

/// Doubles the resolution horizontally only: each sample is 3/4 of the nearest and 1/4 of the next one.
#[inline(always)]
fn fancy_h2v1(shape: PlaneShape, planes: &Planes, c: usize, y: usize, region: Region, out: &mut [u8]) {
    let row = planes.row(c, y);
    let origin = planes.origins[c].0;
    let (first, end) = (region.left / 2 - origin, (region.left + region.width).div_ceil(2) - origin);
    let last = shape.width - 1 - origin;
    for (pair, x) in out.as_chunks_mut::<2>().0.iter_mut().zip(first..end) {
        let at = |x: usize| u16::from(row[x]);
        // At the edges of the image, a sample is its own neighbor.
        let before = if x + origin == 0 { at(x) } else { at(x - 1) };
        let after = if x == last { at(x) } else { at(x + 1) };
        *pair = [((3 * at(x) + before + 1) >> 2) as u8, ((3 * at(x) + after + 2) >> 2) as u8];
    }
}

/// Repeats each sample horizontally. Starts at the even column at or left of the region.
#[inline(always)]
fn replicate(planes: &Planes, c: usize, y: usize, region: Region, out: &mut [u8]) {
    let row = planes.row(c, y);
    let origin = planes.origins[c].0;
    let columns = region.left / 2 - origin..(region.left + region.width).div_ceil(2) - origin;
    for (pair, &v) in out.as_chunks_mut::<2>().0.iter_mut().zip(&row[columns]) {
        *pair = [v; 2];
    }
}

/// Converts a row from YCbCr to RGB.
#[inline(always)]
fn to_rgb(backend: impl Backend, luma: &[u8], cb: &[u8], cr: &[u8], out: &mut [u8]) {
    let (groups, rest) = luma.as_chunks::<GROUP>();
    let (cb_groups, cb_rest) = cb.as_chunks::<GROUP>();
    let (cr_groups, cr_rest) = cr.as_chunks::<GROUP>();
    let (out_groups, out_rest) = out.split_at_mut(groups.len() * GROUP * 3);
    for (((out, y), cb), cr) in
        out_groups.as_chunks_mut::<{ 3 * GROUP }>().0.iter_mut().zip(groups).zip(cb_groups).zip(cr_groups)
    {
        let mut planes = [[0u8; GROUP]; 3];
        for i in 0..GROUP {
            let pixel = ycbcr_to_rgb(y[i], cb[i], cr[i]);
            (planes[0][i], planes[1][i], planes[2][i]) = (pixel[0], pixel[1], pixel[2]);
        }
        backend.interleave(&planes, out);
    }
    for (((pixel, &y), &cb), &cr) in
        out_rest.as_chunks_mut::<3>().0.iter_mut().zip(rest).zip(cb_rest).zip(cr_rest)
    {
        *pixel = ycbcr_to_rgb(y, cb, cr);
    }
}
