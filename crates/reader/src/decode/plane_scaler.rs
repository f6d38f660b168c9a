//! Crops and resizes files of planes.
//!
//! Each plane is resampled directly to the output, and colors are converted once per pixel of the output. The result is
//! that of upsampling, resampling and color conversion, in this order, up to rounding: the first two are linear, so the
//! weights of a chroma sample are those of the upsampled samples that depend on it. The conversion is linear, too, except
//! that it clips colors outside of RGB, so the result is that of conversion before resampling where nothing is clipped.

use dsconvert_dataset::sample::Reject;
use dsconvert_jpeg::{PixelFormat, PlaneConverter, Region, StoredPlane, StoredPlanes};

use super::pixels::{PixelOrder, Rect, Size};
use super::planes_file::{PlanesChroma, PlanesFile};
use super::rejects::corrupt;
use super::resample::{Buffers, MAX_STEP, Plane, SampleAxis, Triangle, Weights, resample};
use super::resize::{SourceRegion, whole_pixels};

/// Chroma of fewer columns is not upsampled by interpolation, as in libjpeg-turbo.
const MIN_FANCY_WIDTH: u32 = 3;

/// Crops and resizes files of planes, reusing buffers from one to the next.
#[derive(Debug, Default)]
pub(super) struct PlaneScaler {
    converter: PlaneConverter,
    buffers: Buffers,
    /// Resampled planes.
    planes: [Vec<u8>; 3],
}

/// Returns whether [`PlaneScaler::resize`] applies. The rounding errors of its sums would be visible in very small
/// targets.
pub(super) fn is_resampled_by_planes(part: SourceRegion, target: Size) -> bool {
    part.width.max(1.0) <= MAX_STEP * f64::from(target.width)
        && part.height.max(1.0) <= MAX_STEP * f64::from(target.height)
}

/// The weights of the columns and of the rows of a plane.
struct PlaneWeights {
    across: Weights,
    down: Weights,
}

impl PlaneWeights {
    /// Returns the weights of `target` samples over `part` of a plane of `size`. Samples outside the part have no weight.
    fn new(part: SourceRegion, size: Size, target: Size) -> Result<Self, Reject> {
        let axis = |start: f64, length: f64, all: u32, count: u32| {
            // Rounding may have moved the end slightly past the edge.
            if !(start >= 0.0 && length > 0.0 && start + length <= f64::from(all) + 1e-3) {
                return Err(corrupt("the requested part lies outside the image"));
            }
            let first = (start as usize).min(all as usize - 1);
            let end = ((start + length).ceil() as usize).clamp(first + 1, all as usize);
            let step = length / f64::from(count);
            let center = start - first as f64 + step / 2.0;
            let axis = SampleAxis { first: center, step, count: count as usize, length: end - first };
            Ok(Weights::new(axis, Triangle).moved(first))
        };
        Ok(Self {
            across: axis(part.left, part.width, size.width, target.width)?,
            down: axis(part.top, part.height, size.height, target.height)?,
        })
    }

    /// Returns the weights over a plane of half the resolution, with `size`, that is upsampled before.
    fn through_upsampling(&self, size: Size) -> Self {
        let is_fancy = size.width >= MIN_FANCY_WIDTH;
        Self {
            across: self.across.through_upsampling(size.width as usize, is_fancy),
            down: self.down.through_upsampling(size.height as usize, is_fancy),
        }
    }

    fn resample(&self, plane: &StoredPlane<'_>, buffers: &mut Buffers, out: &mut [u8]) -> Result<(), Reject> {
        let StoredPlane { samples, stride, left, top, .. } = *plane;
        resample(Plane { samples, stride, left, top }, &self.across, &self.down, buffers, out)
            .ok_or_else(|| corrupt("its planes are smaller than its header says"))
    }
}

impl PlaneScaler {
    /// Writes the pixels of `rect` to `out`, as gray (1 channel) or RGB (3).
    pub(super) fn crop(
        &mut self,
        file: &PlanesFile<'_>,
        rect: Rect,
        channels: usize,
        out: &mut [u8],
    ) -> Result<(), Reject> {
        file.convert(rect, channels, &mut self.converter, out)
    }

    /// Writes the RGB pixels of `rect` to `out` as three planes: red, green, blue.
    pub(super) fn crop_to_planes(
        &mut self,
        file: &PlanesFile<'_>,
        rect: Rect,
        out: &mut [u8],
    ) -> Result<(), Reject> {
        let converted = self.converter.convert_to_planes(&file.planes(), Region::from(rect), out);
        converted.map_err(|_| corrupt("the requested part lies outside the image"))
    }

    /// Writes `part`, resampled to `target` pixels, to `out` in `order`.
    pub(super) fn resize(
        &mut self,
        file: &PlanesFile<'_>,
        part: SourceRegion,
        target: Size,
        order: PixelOrder,
        out: &mut [u8],
    ) -> Result<(), Reject> {
        let Self { converter, buffers, planes } = self;
        let StoredPlanes { luma, chroma } = file.planes();
        let mut weights = PlaneWeights::new(part, file.size, target)?;
        if order.is_mirrored {
            weights.across = weights.across.mirrored();
        }
        if order.channels == 1 {
            return weights.resample(&luma, buffers, out);
        }
        let [y, colors @ ..] = planes;
        let area = target.pixels() as usize;
        y.resize(area, 0);
        weights.resample(&luma, buffers, y)?;
        if let Some(chroma) = &chroma {
            let half;
            let weights = match file.chroma.plane_size(file.size) {
                Some(size) if file.chroma == PlanesChroma::S420 => {
                    half = weights.through_upsampling(size);
                    &half
                }
                _ => &weights,
            };
            for (plane, out) in chroma.iter().zip(colors.iter_mut()) {
                out.resize(area, 0);
                weights.resample(plane, buffers, out)?;
            }
        }
        let (width, height) = (target.width as usize, target.height as usize);
        let plane =
            |samples| StoredPlane { samples, stride: width, left: 0, top: 0, width, height, spread: (1, 1) };
        let [cb, cr] = colors;
        let resized = StoredPlanes { luma: plane(y), chroma: chroma.map(|_| [plane(cb), plane(cr)]) };
        let whole = Region::whole(width, height);
        let converted = match order.is_planar {
            true => converter.convert_to_planes(&resized, whole, out),
            false => converter.convert(&resized, whole, PixelFormat::Rgb, out),
        };
        converted.map_err(|_| corrupt("its planes are smaller than its header says"))
    }

    /// Writes the planes of `part`, resampled to `target` pixels, to `out`: luma, then Cb and Cr, each without gaps. If
    /// `is_mirrored`, columns are in reverse order. Planes of a part that keeps its size and starts at a chroma sample are
    /// copied.
    pub(super) fn planes(
        &mut self,
        file: &PlanesFile<'_>,
        part: SourceRegion,
        target: Size,
        is_mirrored: bool,
        out: &mut [u8],
    ) -> Result<(), Reject> {
        let StoredPlanes { luma, chroma } = file.planes();
        let (luma_out, rest) = out
            .split_at_mut_checked(target.pixels() as usize)
            .ok_or_else(|| corrupt("the batch has no place for its planes"))?;
        self.plane(&luma, file.size, part, target, is_mirrored, luma_out)?;
        if let (Some(chroma), Some(size), Some(target)) =
            (chroma, file.chroma.plane_size(file.size), file.chroma.plane_size(target))
        {
            // The center of a chroma sample is the center of its pixels.
            let spread = f64::from(file.chroma.spread());
            let [left, top, width, height] =
                [part.left, part.top, part.width, part.height].map(|n| n / spread);
            // The last sample of an odd side covers one pixel.
            let part = SourceRegion {
                left,
                top,
                width: width.min(f64::from(size.width) - left),
                height: height.min(f64::from(size.height) - top),
            };
            for (plane, out) in chroma.iter().zip(rest.chunks_exact_mut((target.pixels() as usize).max(1))) {
                self.plane(plane, size, part, target, is_mirrored, out)?;
            }
        }
        Ok(())
    }

    /// Writes `part` of a plane of `size`, resampled to `target` samples.
    fn plane(
        &mut self,
        plane: &StoredPlane<'_>,
        size: Size,
        part: SourceRegion,
        target: Size,
        is_mirrored: bool,
        out: &mut [u8],
    ) -> Result<(), Reject> {
        let width = target.width as usize;
        let Some(Rect { left, top, .. }) = whole_pixels(part, target) else {
            let weights = PlaneWeights::new(part, size, target)?;
            weights.resample(plane, &mut self.buffers, out)?;
            if is_mirrored {
                out.chunks_exact_mut(width).for_each(<[u8]>::reverse);
            }
            return Ok(());
        };
        let left = left as usize;
        let rows = plane.samples.chunks_exact(plane.stride).skip(top as usize);
        let mut copied = 0;
        for (out, row) in out.chunks_exact_mut(width).zip(rows) {
            let row = row.get(left..left + width);
            out.copy_from_slice(row.ok_or_else(|| corrupt("the requested part lies outside the image"))?);
            if is_mirrored {
                out.reverse();
            }
            copied += 1;
        }
        match copied == target.height {
            true => Ok(()),
            false => Err(corrupt("the requested part lies outside the image")),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::decoder::{Decoder, Stored};
    use super::super::pixels::Pixels;
    use super::super::planes_file::planes_of_pixels;
    use super::*;

    /// A picture of slow waves and a little noise in all colors.
    fn picture(width: u32, height: u32, seed: u32) -> Pixels {
        let mut state = seed;
        let mut data = Vec::new();
        for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
            for c in 0..3 {
                let (x, y, c) = (f64::from(x), f64::from(y), f64::from(c));
                let wave = (x / (9.0 + 2.0 * c) + c).sin() + (y / (11.0 - 2.0 * c) - c).cos();
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                data.push((wave * 45.0 + 124.0 + f64::from(state >> 29)) as u8);
            }
        }
        Pixels { data, width, height, channels: 3 }
    }

    /// Resizes the image as raw RGB samples.
    fn through_rgb(file: &PlanesFile<'_>, part: SourceRegion, target: Size) -> Vec<u8> {
        let mut rgb = vec![0; file.size.pixels() as usize * 3];
        let whole = Rect { left: 0, top: 0, size: file.size };
        PlaneScaler::default().crop(file, whole, 3, &mut rgb).unwrap();
        let image = Stored { bytes: &rgb, size: file.size, raw_channels: Some(3) };
        let mut out = vec![0; target.pixels() as usize * 3];
        Decoder::default().decode(image, part, target, 3, &mut out).unwrap();
        out
    }

    fn psnr(a: &[u8], b: &[u8]) -> f64 {
        let squares: f64 = a.iter().zip(b).map(|(a, b)| f64::from(a.abs_diff(*b)).powi(2)).sum();
        10.0 * (255.0f64.powi(2) * a.len() as f64 / squares.max(1e-9)).log10()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn resized_planes_are_near_resized_pixels(
            (width, height) in (1u32..90, 1u32..90),
            (out_width, out_height) in (1u32..70, 1u32..70),
            (place, share) in ((0.0f64..1.0, 0.0f64..1.0), (0.05f64..1.0, 0.05f64..1.0)),
            is_half: bool,
            seed: u32,
        ) {
            let chroma = if is_half { PlanesChroma::S420 } else { PlanesChroma::S444 };
            let bytes = planes_of_pixels(&picture(width, height, seed), chroma);
            let file = PlanesFile::read(&bytes).unwrap();
            let (w, h) = (f64::from(width), f64::from(height));
            let part = SourceRegion {
                left: w * (1.0 - share.0) * place.0,
                top: h * (1.0 - share.1) * place.1,
                width: w * share.0,
                height: h * share.1,
            };
            let target = Size::new(out_width, out_height);
            let expected = through_rgb(&file, part, target);
            let mut found = vec![0; expected.len()];
            let image = Stored { bytes: &bytes, size: file.size, raw_channels: None };
            Decoder::default().decode(image, part, target, 3, &mut found).unwrap();
            let worst = found.iter().zip(&expected).map(|(a, b)| a.abs_diff(*b)).max();
            prop_assert!(worst <= Some(4), "{worst:?}");
            prop_assert!(psnr(&found, &expected) >= 49.0, "{}", psnr(&found, &expected));
            let mut arranged = vec![0; expected.len()];
            let order = PixelOrder { channels: 3, is_mirrored: true, is_planar: true };
            Decoder::default().arranged(image, part, target, order, &mut arranged).unwrap();
            let area = target.pixels() as usize;
            for (n, pixel) in found.as_chunks::<3>().0.iter().enumerate() {
                let mirrored = n / out_width as usize * out_width as usize + (out_width as usize - 1 - n % out_width as usize);
                let separate = [0, 1, 2].map(|c| arranged[c * area + mirrored]);
                prop_assert!(separate == *pixel);
            }
        }
    }

    #[test]
    fn photographs_differ_by_rounding_only() {
        for (size, part, target) in [
            ((512, 384), (31.0, 17.0, 300.0, 250.0), 224),
            ((512, 341), (0.0, 0.0, 512.0, 341.0), 224),
            ((341, 256), (101.0, 55.0, 99.0, 120.0), 224),
            ((1000, 700), (3.0, 9.0, 990.0, 680.0), 61),
        ] {
            let bytes = planes_of_pixels(&picture(size.0, size.1, 7), PlanesChroma::S420);
            let file = PlanesFile::read(&bytes).unwrap();
            let (left, top, width, height) = part;
            let (part, target) = (SourceRegion { left, top, width, height }, Size::new(target, target));
            let expected = through_rgb(&file, part, target);
            let mut found = vec![0; expected.len()];
            PlaneScaler::default()
                .resize(&file, part, target, PixelOrder::interleaved(3), &mut found)
                .unwrap();
            let psnr = psnr(&found, &expected);
            assert!(psnr >= 50.0, "{size:?}: {psnr}");
        }
    }

    /// A picture of saturated colors with sharp edges.
    fn saturated(width: u32, height: u32, seed: u32) -> Pixels {
        let mut data = Vec::new();
        for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
            let block = (x / 5 + y / 7 * 31).wrapping_add(seed).wrapping_mul(2_654_435_761);
            data.extend([29, 30, 31].map(|bit| if block >> bit & 1 == 1 { 255 } else { 0 }));
        }
        Pixels { data, width, height, channels: 3 }
    }

    /// Returns the plane with twice the columns and rows, as the fancy upsampling of libjpeg computes it, without rounding.
    fn upsampled(plane: &StoredPlane<'_>, size: Size) -> Vec<f64> {
        let (width, height) = (plane.width as i64, plane.height as i64);
        let at = |x: i64, y: i64| {
            let (x, y) = (x.clamp(0, width - 1) as usize, y.clamp(0, height - 1) as usize);
            f64::from(plane.samples[y * plane.stride + x])
        };
        let near = |n: u32| (i64::from(n / 2), i64::from(n / 2) + if n.is_multiple_of(2) { -1 } else { 1 });
        let pixels = (0..size.height).flat_map(|y| (0..size.width).map(move |x| (x, y)));
        let value = |(x, y)| {
            let ((x, further_x), (y, further_y)) = (near(x), near(y));
            let near_row = 3.0 * at(x, y) + at(further_x, y);
            (3.0 * near_row + 3.0 * at(x, further_y) + at(further_x, further_y)) / 16.0
        };
        pixels.map(value).collect()
    }

    /// Returns the weights of the antialiased bilinear filter for sample `n` of `count` over `length` samples from `start`.
    fn weights_of(start: f64, length: f64, count: u32, n: u32, all: u32) -> Vec<(usize, f64)> {
        let scale = length / f64::from(count);
        let (center, support) = (start + (f64::from(n) + 0.5) * scale, scale.max(1.0));
        let (first, end) = (start as u32, ((start + length).ceil() as u32).min(all));
        let weight = |k: u32| 1.0 - (f64::from(k) + 0.5 - center).abs() / support;
        let weights: Vec<_> =
            (first..end).map(|k| (k as usize, weight(k))).filter(|(_, weight)| *weight > 0.0).collect();
        let sum: f64 = weights.iter().map(|(_, weight)| weight).sum();
        weights.into_iter().map(|(k, weight)| (k, weight / sum)).collect()
    }

    #[test]
    fn colors_are_clipped_after_the_resize() {
        let mut differ = 0;
        for (size, (left, top, width, height), target) in [
            (Size::new(200, 160), (0.0, 0.0, 200.0, 160.0), Size::new(90, 90)),
            (Size::new(200, 160), (31.0, 17.5, 120.25, 99.0), Size::new(64, 64)),
            (Size::new(121, 93), (3.0, 5.0, 41.0, 37.0), Size::new(77, 50)),
            (Size::new(121, 93), (0.0, 0.0, 121.0, 93.0), Size::new(100, 90)),
        ] {
            for chroma in [PlanesChroma::S420, PlanesChroma::S444] {
                let bytes = planes_of_pixels(&saturated(size.width, size.height, 3), chroma);
                let file = PlanesFile::read(&bytes).unwrap();
                let stored = file.planes();
                let full = |plane: &StoredPlane<'_>| -> Vec<f64> {
                    match (plane.width, plane.height) == (size.width as usize, size.height as usize) {
                        true => plane.samples.iter().map(|sample| f64::from(*sample)).collect(),
                        false => upsampled(plane, size),
                    }
                };
                let [cb, cr] = stored.chroma.as_ref().unwrap();
                let planes = [full(&stored.luma), full(cb), full(cr)];
                let columns: Vec<_> =
                    (0..target.width).map(|n| weights_of(left, width, target.width, n, size.width)).collect();
                let rows: Vec<_> = (0..target.height)
                    .map(|n| weights_of(top, height, target.height, n, size.height))
                    .collect();
                let mut expected = Vec::new();
                for (row, column) in
                    rows.iter().flat_map(|row| columns.iter().map(move |column| (row, column)))
                {
                    let [y, cb, cr] = planes.each_ref().map(|plane| -> f64 {
                        let of_row = |y: usize| -> f64 {
                            column.iter().map(|(x, weight)| plane[y * size.width as usize + x] * weight).sum()
                        };
                        row.iter().map(|(y, weight)| of_row(*y) * weight).sum()
                    });
                    let (cb, cr) = (cb - 128.0, cr - 128.0);
                    let rgb = [y + 1.402 * cr, y - 0.344_136 * cb - 0.714_136 * cr, y + 1.772 * cb];
                    expected.extend(rgb.map(|level| level.round().clamp(0.0, 255.0) as u8));
                }
                let part = SourceRegion { left, top, width, height };
                let mut found = vec![0; expected.len()];
                PlaneScaler::default()
                    .resize(&file, part, target, PixelOrder::interleaved(3), &mut found)
                    .unwrap();
                let worst = found.iter().zip(&expected).map(|(a, b)| a.abs_diff(*b)).max();
                assert!(worst <= Some(4) && psnr(&found, &expected) >= 48.0, "{worst:?} {size:?} {chroma:?}");
                differ += usize::from(psnr(&found, &through_rgb(&file, part, target)) < 48.0);
            }
        }
        // The documented difference to clipping before the resize: if it is gone, correct the page.
        assert!(differ > 0);
    }

    #[test]
    fn parts_outside_the_image_are_refused() {
        let bytes = planes_of_pixels(&picture(20, 10, 1), PlanesChroma::S420);
        let file = PlanesFile::read(&bytes).unwrap();
        let refused = |left, top, width, height| {
            let part = SourceRegion { left, top, width, height };
            let order = PixelOrder::interleaved(3);
            PlaneScaler::default().resize(&file, part, Size::new(4, 4), order, &mut [0; 48]).is_err()
        };
        assert!(!refused(0.0, 0.0, 20.0, 10.0));
        assert!(
            refused(1.0, 0.0, 20.0, 10.0) && refused(0.0, 3.0, 20.0, 9.0) && refused(-1.0, 0.0, 5.0, 5.0)
        );
        assert!(refused(0.0, 0.0, 0.0, 5.0) && refused(f64::NAN, 0.0, 1.0, 5.0));
    }
}
