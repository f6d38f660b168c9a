//! Conversion of planes to pixels: chroma upsampling, then color conversion.

use pulp::NullaryFnOnce;

use super::request::{Declined, StoredPlane, StoredPlanes};
use crate::color::ycbcr_to_rgb;
use crate::idct::{Backend, GROUP, Portable};
use crate::memory;
use crate::options::{PixelFormat, Region};

/// Minimum width of chroma for fancy upsampling. libjpeg-turbo replicates the samples of narrower chroma components.
pub(super) const MIN_FANCY_WIDTH: usize = 3;

/// Rows of Cb and Cr at full resolution, and the sums for one of them.
#[derive(Debug, Default)]
pub(super) struct UpsampledRows {
    rows: [Vec<u8>; 2],
    sums: Vec<u16>,
}

impl UpsampledRows {
    /// Prepares rows of `width` pixels.
    #[inline(always)]
    fn resize(&mut self, width: usize) {
        // Longer, because upsampling works on pairs, and on groups of them.
        self.rows.iter_mut().for_each(|row| row.resize(width + 2 * GROUP, 128));
        self.sums.resize(width / 2 + 2 * GROUP, 0);
    }

    /// Returns the capacity in bytes.
    pub(super) fn capacity(&self) -> usize {
        self.rows.iter().map(Vec::capacity).sum::<usize>() + size_of::<u16>() * self.sums.capacity()
    }
}

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
        upsampled.resize(region.width);
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
                    let UpsampledRows { rows, sums } = &mut *upsampled;
                    for (plane, out) in chroma.iter().zip(rows.iter_mut()) {
                        match is_fancy {
                            false => replicate(plane, y / plane.spread.1, region, out),
                            true => interpolate(plane, y, region, sums, out),
                        }
                    }
                    let [cb, cr] = &*rows;
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
            to_planar_rgb(self.backend, [luma, cb, cr], self.planar_rows(n));
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

/// Doubles the resolution of `plane` for row `y` of the image in both directions, or only horizontally if it has a row for
/// each of the image: in each direction, a sample is 3/4 of the nearest and 1/4 of the next one. Starts at the even column
/// at or left of the region. `sums` and `out` are long enough for whole groups.
#[inline(always)]
fn interpolate(plane: &StoredPlane<'_>, y: usize, region: Region, sums: &mut [u16], out: &mut [u8]) {
    let StoredPlane { width, height, left: origin, .. } = *plane;
    // The bias of the first and of the second sample of a pair, as in libjpeg.
    let (near, far, first_bias, second_bias) = match plane.spread.1 {
        1 => (y, y, 4, 8),
        _ if y.is_multiple_of(2) => (y / 2, (y / 2).saturating_sub(1), 8, 7),
        _ => (y / 2, (y / 2 + 1).min(height - 1), 8, 7),
    };
    let (first, end) = (region.left / 2, (region.left + region.width).div_ceil(2));
    let (from, to) = (first.saturating_sub(1), (end + 1).min(width));
    let columns = from - origin..to - origin;
    let (near, far) = (&plane.row(near)[columns.clone()], &plane.row(far)[columns]);
    // Four times the samples between both rows, from the one before the first pair on.
    let count = end - first;
    for ((sum, &near), &far) in sums[1 - (first - from)..].iter_mut().zip(near).zip(far) {
        *sum = 3 * u16::from(near) + u16::from(far);
    }
    // At an edge of the image, a sample is its own neighbor.
    if first == 0 {
        sums[0] = sums[1];
    }
    if end == width {
        sums[count + 1] = sums[count];
    }
    let count = count.next_multiple_of(GROUP / 2);
    let pairs = &mut out[..2 * count].as_chunks_mut::<2>().0;
    for (pair, sums) in pairs.iter_mut().zip(sums[..count + 2].windows(3)) {
        let first = (3 * sums[1] + sums[0] + first_bias) >> 4;
        let second = (3 * sums[1] + sums[2] + second_bias) >> 4;
        *pair = (first | second << 8).to_le_bytes();
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
        backend.interleave(&backend.colors(y, cb, cr), out);
    }
    for (((pixel, &y), &cb), &cr) in
        out_rest.as_chunks_mut::<3>().0.iter_mut().zip(rest).zip(cb_rest).zip(cr_rest)
    {
        *pixel = ycbcr_to_rgb(y, cb, cr);
    }
}

/// Converts a row from YCbCr to separate red, green and blue.
#[inline(always)]
fn to_planar_rgb(backend: impl Backend, [luma, cb, cr]: [&[u8]; 3], [r, g, b]: [&mut [u8]; 3]) {
    let groups = |row| <[u8]>::as_chunks::<GROUP>(row);
    let ((y_groups, y_rest), (cb_groups, cb_rest), (cr_groups, cr_rest)) =
        (groups(luma), groups(cb), groups(cr));
    let (r_groups, r_rest) = r.as_chunks_mut::<GROUP>();
    let (g_groups, g_rest) = g.as_chunks_mut::<GROUP>();
    let (b_groups, b_rest) = b.as_chunks_mut::<GROUP>();
    let inputs = y_groups.iter().zip(cb_groups).zip(cr_groups);
    for ((((y, cb), cr), r), (g, b)) in inputs.zip(r_groups).zip(g_groups.iter_mut().zip(b_groups)) {
        [*r, *g, *b] = backend.colors(y, cb, cr);
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
    fn all_colors_are_those_of_single_pixels() {
        let rows = |sample: fn(usize) -> usize| (0..256 * 256).map(|n| sample(n) as u8).collect::<Vec<_>>();
        let (cb, cr) = (rows(|n| n % 256), rows(|n| n / 256));
        for luma in [0, 1, 127, 128, 254, 255] {
            let y = vec![luma; 256 * 256];
            let [y, cb, cr] = [&y, &cb, &cr].map(|samples| plane(samples, 256, 256, (1, 1)));
            let planes = StoredPlanes { luma: y, chroma: Some([cb, cr]) };
            let mut pixels = vec![0; 256 * 256 * 3];
            let whole = Region::whole(256, 256);
            PlaneConverter::default().convert(&planes, whole, PixelFormat::Rgb, &mut pixels).unwrap();
            for (n, pixel) in pixels.as_chunks::<3>().0.iter().enumerate() {
                assert_eq!(*pixel, ycbcr_to_rgb(luma, cb.samples[n], cr.samples[n]));
            }
        }
    }

    /// Compares with the weights of libjpeg's `h2v1_fancy_upsample` and `h2v2_fancy_upsample`.
    #[test]
    fn chroma_is_upsampled_as_by_libjpeg() {
        let noise: Vec<u8> = (0..200u32).map(|n| (n * n * 13 + n * 5) as u8).collect();
        for (width, down) in [(5, 1), (5, 2), (6, 2), (37, 1), (64, 2), (65, 2), (66, 2), (95, 2)] {
            let chroma_width = usize::div_ceil(width, 2);
            let chroma = plane(&noise, chroma_width, 4 / down, (2, down));
            let all = Region::whole(width, 4);
            let mut upsampled = UpsampledRows::default();
            upsampled.resize(width);
            let UpsampledRows { rows: [out, _], sums } = &mut upsampled;
            for y in 0..4 {
                interpolate(&chroma, y, all, sums, out);
                let at = |x: usize, y: usize| u32::from(noise[y * chroma_width + x]);
                for (x, &found) in out[..width].iter().enumerate() {
                    let near = x / 2;
                    let next =
                        if x % 2 == 0 { near.saturating_sub(1) } else { (near + 1).min(chroma_width - 1) };
                    let expected = if down == 1 {
                        (3 * at(near, y) + at(next, y) + [1, 2][x % 2]) >> 2
                    } else {
                        let far = if y % 2 == 0 { (y / 2).saturating_sub(1) } else { (y / 2 + 1).min(1) };
                        let sum = |x| 3 * at(x, y / 2) + at(x, far);
                        (3 * sum(near) + sum(next) + [8, 7][x % 2]) >> 4
                    };
                    assert_eq!(u32::from(found), expected, "{width}, {down}, {x}, {y}");
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
