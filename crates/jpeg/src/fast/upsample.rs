//! Conversion of planes to pixels: chroma upsampling, then color conversion.

use pulp::NullaryFnOnce;

use super::planes::MIN_FANCY_WIDTH;
use super::request::{Declined, StoredPlane, StoredPlanes};
use crate::color::ycbcr_to_rgb;
use crate::idct::{Backend, GROUP, Portable};
use crate::memory;
use crate::options::{PixelFormat, Region};

/// Rows of Cb and Cr at full resolution.
pub(super) type UpsampledRows = [Vec<u8>; 2];

/// Converts planes to pixels: upsamples chroma like libjpeg-turbo, then converts colors. The pixels equal those that a
/// decoder returns for a JPEG with these samples. Keeps its buffers from one image to the next.
///
/// ```
/// use dsconvert_jpeg::{PixelFormat, PlaneConverter, Region, StoredPlane, StoredPlanes};
///
/// let plane = |samples| StoredPlane { samples, stride: 2, left: 0, top: 0, width: 2, height: 1, spread: (1, 1) };
/// let planes = StoredPlanes { luma: plane(&[76, 255]), chroma: Some([plane(&[85, 128]), plane(&[255, 128])]) };
/// let mut pixels = [0; 6];
/// PlaneConverter::default().convert(&planes, Region::whole(2, 1), PixelFormat::Rgb, &mut pixels)?;
/// assert_eq!(pixels, [254, 0, 0, 255, 255, 255]);
/// # Ok::<(), dsconvert_jpeg::Declined>(())
/// ```
#[derive(Debug, Default)]
pub struct PlaneConverter {
    upsampled: UpsampledRows,
}

impl PlaneConverter {
    /// Writes the pixels of `region` to `out`, row by row without gaps.
    ///
    /// # Errors
    ///
    /// [`Declined`] if `planes` are not those of a whole image, if the region is not inside it, if `out` has another
    /// length than the region needs, or if `format` is CMYK.
    pub fn convert(
        &mut self,
        planes: &StoredPlanes<'_>,
        region: Region,
        format: PixelFormat,
        out: &mut [u8],
    ) -> Result<(), Declined> {
        self.write(planes, region, format, false, out)
    }

    /// Writes the RGB pixels of `region` to `out` like [`convert`](Self::convert), but as three planes: red, green, blue.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`convert`](Self::convert).
    pub fn convert_to_planes(
        &mut self,
        planes: &StoredPlanes<'_>,
        region: Region,
        out: &mut [u8],
    ) -> Result<(), Declined> {
        self.write(planes, region, PixelFormat::Rgb, true, out)
    }

    fn write(
        &mut self,
        planes: &StoredPlanes<'_>,
        region: Region,
        format: PixelFormat,
        is_planar: bool,
        out: &mut [u8],
    ) -> Result<(), Declined> {
        let StoredPlane { width, height, .. } = planes.luma;
        let samples = memory::product(&[region.width, region.height, format.channels()]);
        let is_sound = format != PixelFormat::Cmyk
            && planes.luma.spread == (1, 1)
            && planes.luma.is_whole()
            && region.fits(width, height)
            && samples.is_ok_and(|samples| samples == out.len())
            && planes.chroma.is_none_or(|[cb, cr]| cb.spread == cr.spread)
            && planes.chroma.iter().flatten().all(|plane| {
                let (across, down) = plane.spread;
                plane.is_whole()
                    && matches!(plane.spread, (1, 1) | (2, 1 | 2))
                    && (plane.width, plane.height) == (width.div_ceil(across), height.div_ceil(down))
            });
        if !is_sound {
            return Err(Declined);
        }
        let is_fancy = planes.chroma.is_some_and(|[chroma, _]| chroma.width >= MIN_FANCY_WIDTH);
        let (upsampled, stride) = (&mut self.upsampled, region.width);
        #[cfg(target_arch = "x86_64")]
        if let Some(v3) = pulp::x86::V3::try_new() {
            let backend = crate::idct::Avx2(v3);
            let sink = PixelSink { backend, region, stride, format, is_planar, out };
            backend.run(WritePixels { planes, is_fancy, upsampled, sink });
            return Ok(());
        }
        let backend = Portable;
        let sink = PixelSink { backend, region, stride, format, is_planar, out };
        backend.run(WritePixels { planes, is_fancy, upsampled, sink });
        Ok(())
    }
}

/// The task of converting the planes to pixels.
pub(super) struct WritePixels<'a, B> {
    pub(super) planes: &'a StoredPlanes<'a>,
    /// Whether upsampling is fancy (blends neighbors); otherwise it replicates samples.
    pub(super) is_fancy: bool,
    pub(super) upsampled: &'a mut UpsampledRows,
    pub(super) sink: PixelSink<'a, B>,
}

/// The pixels to write.
pub(super) struct PixelSink<'a, B> {
    pub(super) backend: B,
    pub(super) region: Region,
    /// Pixels from the start of one output row to the start of the next.
    pub(super) stride: usize,
    pub(super) format: PixelFormat,
    /// Whether red, green and blue are separate planes, of rows without gaps.
    pub(super) is_planar: bool,
    pub(super) out: &'a mut [u8],
}

impl<'a, B: Backend> NullaryFnOnce for WritePixels<'a, B> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { planes, is_fancy, upsampled, mut sink } = self;
        let region = sink.region;
        for row in upsampled.iter_mut() {
            // Wider than the region, because upsampling works on pairs.
            row.resize(region.width + 2 * GROUP, 128);
        }
        for n in 0..region.height {
            let y = region.top + n;
            let columns = |plane: &StoredPlane<'a>| &plane.row(y)[region.left - plane.left..][..region.width];
            let luma = columns(&planes.luma);
            match &planes.chroma {
                Some([cb, cr]) if sink.format == PixelFormat::Rgb && cb.spread == (1, 1) => {
                    sink.write_colors(n, luma, columns(cb), columns(cr));
                }
                Some(chroma) if sink.format == PixelFormat::Rgb => {
                    // An odd column is the second of a pair.
                    let odd = region.left % 2;
                    for (plane, out) in chroma.iter().zip(upsampled.iter_mut()) {
                        match (plane.spread, is_fancy) {
                            ((_, down), false) => replicate(plane, y / down, region, out),
                            ((_, 1), true) => fancy_h2v1(plane, y, region, out),
                            _ => fancy_h2v2(plane, y, region, out),
                        }
                    }
                    let [cb, cr] = &*upsampled;
                    sink.write_colors(n, luma, &cb[odd..][..region.width], &cr[odd..][..region.width]);
                }
                _ => sink.write_gray(n, luma),
            }
        }
    }
}

impl<B: Backend> PixelSink<'_, B> {
    /// Writes row `n` from luma and chroma.
    #[inline(always)]
    fn write_colors(&mut self, n: usize, luma: &[u8], cb: &[u8], cr: &[u8]) {
        let width = self.region.width;
        if self.is_planar {
            let [r, g, b] = self.planar_rows(n);
            to_planar_rgb(luma, cb, cr, r, g, b);
        } else {
            to_rgb(self.backend, luma, cb, cr, &mut self.out[n * self.stride * 3..][..width * 3]);
        }
    }

    /// Writes row `n` without chroma.
    #[inline(always)]
    fn write_gray(&mut self, n: usize, luma: &[u8]) {
        let (width, channels) = (self.region.width, self.format.channels());
        if self.is_planar {
            self.planar_rows(n).into_iter().for_each(|out| out.copy_from_slice(luma));
            return;
        }
        let out = &mut self.out[n * self.stride * channels..][..width * channels];
        match self.format {
            PixelFormat::Gray => out.copy_from_slice(luma),
            _ => {
                for (pixel, &v) in out.as_chunks_mut::<3>().0.iter_mut().zip(luma) {
                    *pixel = [v; 3];
                }
            }
        }
    }

    /// Returns row `n` of red, green and blue.
    #[inline(always)]
    fn planar_rows(&mut self, n: usize) -> [&mut [u8]; 3] {
        let (width, area) = (self.region.width, self.out.len() / 3);
        let (red, rest) = self.out.split_at_mut(area);
        let (green, blue) = rest.split_at_mut(area);
        [red, green, blue].map(|plane| &mut plane[n * width..][..width])
    }
}

/// Doubles the resolution of `plane` for row `y` of the image in both directions: each sample is 9/16 of the nearest sample,
/// 3/16 of the next ones in its row and column, and 1/16 of the diagonal one. Starts at the even column at or left of
/// the region.
#[inline(always)]
fn fancy_h2v2(plane: &StoredPlane<'_>, y: usize, region: Region, out: &mut [u8]) {
    let StoredPlane { width, height, left: origin, .. } = *plane;
    let near = y / 2;
    let far = if y.is_multiple_of(2) { near.saturating_sub(1) } else { (near + 1).min(height - 1) };
    let (near, far) = (plane.row(near), plane.row(far));
    let first = region.left / 2 - origin;
    let count = (region.left + region.width).div_ceil(2) - region.left / 2;
    let last = width - 1 - origin;
    // Both ends of the row first: at an edge of the image, a sample is its own neighbor. A loop instead of a closure, which
    // would be compiled for the baseline CPU.
    for x in [first, first + count - 1] {
        let before = vertical_sum(near, far, if x + origin == 0 { 0 } else { x - 1 });
        let after = vertical_sum(near, far, if x == last { x } else { x + 1 });
        let this = vertical_sum(near, far, x) * 3;
        let pair = &mut out[2 * (x - first)..][..2];
        pair[0] = ((this + before + 8) >> 4) as u8;
        pair[1] = ((this + after + 7) >> 4) as u8;
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

/// Returns four times the sample at `x`, upsampled vertically.
#[inline(always)]
fn vertical_sum(near: &[u8], far: &[u8], x: usize) -> i32 {
    3 * i32::from(near[x]) + i32::from(far[x])
}

/// Doubles the resolution horizontally only: each sample is 3/4 of the nearest and 1/4 of the next one.
#[inline(always)]
fn fancy_h2v1(plane: &StoredPlane<'_>, y: usize, region: Region, out: &mut [u8]) {
    let row = plane.row(y);
    let origin = plane.left;
    let (first, end) = (region.left / 2 - origin, (region.left + region.width).div_ceil(2) - origin);
    let last = plane.width - 1 - origin;
    for (pair, x) in out.as_chunks_mut::<2>().0.iter_mut().zip(first..end) {
        let at = |x: usize| u16::from(row[x]);
        // At the edges of the image, a sample is its own neighbor.
        let before = if x + origin == 0 { at(x) } else { at(x - 1) };
        let after = if x == last { at(x) } else { at(x + 1) };
        *pair = [((3 * at(x) + before + 1) >> 2) as u8, ((3 * at(x) + after + 2) >> 2) as u8];
    }
}

/// Repeats each sample of row `y` of `plane` horizontally. Starts at the even column at or left of the region.
#[inline(always)]
fn replicate(plane: &StoredPlane<'_>, y: usize, region: Region, out: &mut [u8]) {
    let row = plane.row(y);
    let origin = plane.left;
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

/// Converts a row from YCbCr to separate red, green and blue.
#[inline(always)]
fn to_planar_rgb(luma: &[u8], cb: &[u8], cr: &[u8], r: &mut [u8], g: &mut [u8], b: &mut [u8]) {
    let groups = |row| <[u8]>::as_chunks::<GROUP>(row);
    let ((y_groups, y_rest), (cb_groups, cb_rest), (cr_groups, cr_rest)) =
        (groups(luma), groups(cb), groups(cr));
    let (r_groups, r_rest) = r.as_chunks_mut::<GROUP>();
    let (g_groups, g_rest) = g.as_chunks_mut::<GROUP>();
    let (b_groups, b_rest) = b.as_chunks_mut::<GROUP>();
    let inputs = y_groups.iter().zip(cb_groups).zip(cr_groups);
    for ((((y, cb), cr), r), (g, b)) in inputs.zip(r_groups).zip(g_groups.iter_mut().zip(b_groups)) {
        let mut planes = [[0u8; GROUP]; 3];
        for i in 0..GROUP {
            let pixel = ycbcr_to_rgb(y[i], cb[i], cr[i]);
            (planes[0][i], planes[1][i], planes[2][i]) = (pixel[0], pixel[1], pixel[2]);
        }
        [*r, *g, *b] = planes;
    }
    let inputs = y_rest.iter().zip(cb_rest).zip(cr_rest);
    for ((((&y, &cb), &cr), r), (g, b)) in inputs.zip(r_rest).zip(g_rest.iter_mut().zip(b_rest)) {
        [*r, *g, *b] = ycbcr_to_rgb(y, cb, cr);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plane(samples: &[u8], width: usize, height: usize, spread: (usize, usize)) -> StoredPlane<'_> {
        StoredPlane { samples, stride: width, left: 0, top: 0, width, height, spread }
    }

    #[test]
    fn regions_are_parts_of_the_whole_in_either_order() {
        let noise: Vec<u8> = (0..90 * 70u32).map(|n| (n * n * 13 + n * 5) as u8).collect();
        for (width, height) in [(1usize, 1usize), (3, 5), (6, 4), (90, 70)] {
            let half = (2, 2);
            let chroma = plane(&noise[7..], width.div_ceil(2), height.div_ceil(2), half);
            let planes =
                StoredPlanes { luma: plane(&noise, width, height, (1, 1)), chroma: Some([chroma, chroma]) };
            let mut converter = PlaneConverter::default();
            let mut whole = vec![0; width * height * 3];
            let all = Region::whole(width, height);
            converter.convert(&planes, all, PixelFormat::Rgb, &mut whole).unwrap();
            for (left, top) in [(0, 0), (width / 2, height / 3), (width - 1, height - 1)] {
                let region = Region { left, top, width: width - left, height: height - top };
                let area = region.width * region.height;
                let (mut part, mut separate) = (vec![0; area * 3], vec![0; area * 3]);
                converter.convert(&planes, region, PixelFormat::Rgb, &mut part).unwrap();
                converter.convert_to_planes(&planes, region, &mut separate).unwrap();
                for n in 0..area {
                    let (x, y) = (left + n % region.width, top + n / region.width);
                    for c in 0..3 {
                        assert_eq!(part[n * 3 + c], whole[(y * width + x) * 3 + c]);
                        assert_eq!(separate[c * area + n], part[n * 3 + c]);
                    }
                }
            }
        }
    }

    #[test]
    fn unsound_planes_are_declined() {
        let samples = [0; 16];
        let gray = |luma| StoredPlanes { luma, chroma: None };
        let convert = |planes: StoredPlanes<'_>, region, format, length| {
            PlaneConverter::default().convert(&planes, region, format, &mut vec![0; length])
        };
        let whole = Region::whole(4, 4);
        let luma = plane(&samples, 4, 4, (1, 1));
        assert_eq!(convert(gray(luma), whole, PixelFormat::Gray, 16), Ok(()));
        assert!(convert(gray(luma), whole, PixelFormat::Gray, 15).is_err());
        assert!(convert(gray(luma), whole, PixelFormat::Cmyk, 64).is_err());
        assert!(convert(gray(luma), Region { left: 1, ..whole }, PixelFormat::Gray, 16).is_err());
        for unsound in [
            StoredPlane { samples: &samples[1..], ..luma },
            StoredPlane { stride: 3, ..luma },
            StoredPlane { stride: usize::MAX, ..luma },
            StoredPlane { top: 1, ..luma },
            StoredPlane { width: 0, ..luma },
            StoredPlane { spread: (2, 2), ..luma },
        ] {
            assert!(convert(gray(unsound), whole, PixelFormat::Gray, 16).is_err(), "{unsound:?}");
        }
        for unsound in [
            plane(&samples, 3, 2, (2, 2)),
            plane(&samples, 2, 3, (2, 2)),
            plane(&samples, 1, 1, (4, 4)),
            plane(&samples, 4, 4, (1, 1)),
            plane(&samples[..3], 2, 2, (2, 2)),
        ] {
            let chroma = Some([plane(&samples, 2, 2, (2, 2)), unsound]);
            assert!(
                convert(StoredPlanes { luma, chroma }, whole, PixelFormat::Rgb, 48).is_err(),
                "{unsound:?}"
            );
        }
    }
}
