//! Patches of an image, in the order in which Qwen-VL reads them.
//!
//! A patch has `channels × frames × patch × patch` values. Patches that become one token follow each other: the order is row
//! and column of the token, then row and column of the patch in it.

/// Channels of an image.
pub const CHANNELS: usize = 3;

/// Sizes of patches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PatchLayout {
    /// Side of a patch, in pixels.
    pub patch: usize,
    /// Side of a token, in patches.
    pub merge: usize,
    /// How often the image is repeated, as the frames of a film.
    pub frames: usize,
}

impl PatchLayout {
    /// Returns the number of values of a patch.
    pub fn values(self) -> usize {
        CHANNELS * self.frames * self.patch * self.patch
    }

    /// Writes the patches of an image of `height` × `width` pixels to `out`. `pixels` has the samples of each pixel, and
    /// `of_sample` what each sample of a channel becomes. Returns `None`, and may have written nothing, if the sides are no
    /// multiples of those of a token or if a slice has another length.
    pub fn write<T: Copy>(
        self,
        pixels: &[u8],
        (height, width): (usize, usize),
        of_sample: &[[T; 256]; CHANNELS],
        out: &mut [T],
    ) -> Option<()> {
        let Self { patch, merge, frames } = self;
        let token = patch * merge;
        let stride = width * CHANNELS;
        let area = patch * patch;
        let is_whole = token > 0 && frames > 0 && height.is_multiple_of(token) && width.is_multiple_of(token);
        if !is_whole || pixels.len() != height * stride {
            return None;
        }
        let patches = (height / patch) * (width / patch);
        if out.len() != patches * self.values() {
            return None;
        }
        let corners = (0..height).step_by(token).flat_map(|y| (0..width).step_by(token).map(move |x| (y, x)));
        let inside = |(y, x)| {
            (0..merge)
                .flat_map(move |row| (0..merge).map(move |column| (y + row * patch, x + column * patch)))
        };
        for ((top, left), out) in corners.flat_map(inside).zip(out.chunks_exact_mut(self.values().max(1))) {
            for (channel, out) in out.chunks_exact_mut(frames * area).enumerate() {
                let of_sample = of_sample.get(channel)?;
                let (first, further) = out.split_at_mut(area);
                let rows = pixels.chunks_exact(stride).skip(top);
                for (out, row) in first.chunks_exact_mut(patch).zip(rows) {
                    let samples = row.get(left * CHANNELS..(left + patch) * CHANNELS)?;
                    for (slot, pixel) in out.iter_mut().zip(samples.as_chunks::<CHANNELS>().0) {
                        *slot = of_sample[usize::from(pixel[channel])];
                    }
                }
                further.chunks_exact_mut(area).for_each(|frame| frame.copy_from_slice(first));
            }
        }
        Some(())
    }
}

/// Returns samples as they are.
pub fn unchanged() -> [[u8; 256]; CHANNELS] {
    let mut samples = [0; 256];
    samples.iter_mut().zip(0..=255).for_each(|(slot, sample)| *slot = sample);
    [samples; CHANNELS]
}

/// Returns what each sample becomes when it is multiplied by `factor` and normalized, computed as transformers does with its
/// backend of torchvision: in single precision, with mean and deviation divided by the factor.
pub fn normalized(factor: f64, mean: [f64; CHANNELS], deviation: [f64; CHANNELS]) -> [[f32; 256]; CHANNELS] {
    let scale = (1.0 / factor) as f32;
    let mut samples = [[0.0; 256]; CHANNELS];
    for ((samples, mean), deviation) in samples.iter_mut().zip(mean).zip(deviation) {
        let (mean, deviation) = (mean as f32 * scale, deviation as f32 * scale);
        for (slot, sample) in samples.iter_mut().zip(0u8..=255) {
            *slot = (f32::from(sample) - mean) / deviation;
        }
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The patches by the transposition of the specification, value by value.
    fn transposed(layout: PatchLayout, pixels: &[u8], height: usize, width: usize) -> Vec<u8> {
        let PatchLayout { patch, merge, frames } = layout;
        let mut out = Vec::new();
        for (gh, gw) in
            (0..height / patch / merge).flat_map(|gh| (0..width / patch / merge).map(move |gw| (gh, gw)))
        {
            for (mh, mw) in (0..merge).flat_map(|mh| (0..merge).map(move |mw| (mh, mw))) {
                for channel in 0..CHANNELS {
                    for _ in 0..frames {
                        for (y, x) in (0..patch).flat_map(|y| (0..patch).map(move |x| (y, x))) {
                            let (y, x) = ((gh * merge + mh) * patch + y, (gw * merge + mw) * patch + x);
                            out.push(pixels[(y * width + x) * CHANNELS + channel]);
                        }
                    }
                }
            }
        }
        out
    }

    #[test]
    fn patches_have_the_order_of_the_specification() {
        for (layout, height, width) in [
            (PatchLayout { patch: 2, merge: 2, frames: 2 }, 8, 12),
            (PatchLayout { patch: 3, merge: 1, frames: 1 }, 6, 3),
            (PatchLayout { patch: 1, merge: 3, frames: 3 }, 3, 6),
        ] {
            let count = height * width * CHANNELS;
            let pixels: Vec<u8> = (0..count).map(|n| (n * 7 + n / 11) as u8).collect();
            let expected = transposed(layout, &pixels, height, width);
            let mut found = vec![0; expected.len()];
            layout.write(&pixels, (height, width), &unchanged(), &mut found).unwrap();
            assert_eq!(found, expected, "{layout:?}");
            assert_eq!(found.len() % layout.values(), 0);
        }
    }

    #[test]
    fn wrong_sizes_are_refused() {
        let layout = PatchLayout { patch: 2, merge: 2, frames: 2 };
        let write = |samples: usize, size, values: usize| {
            layout.write(&vec![0; samples], size, &unchanged(), &mut vec![0; values])
        };
        assert_eq!(write(48, (4, 4), 96), Some(()));
        assert_eq!(write(48, (4, 4), 95), None);
        assert_eq!(write(47, (4, 4), 96), None);
        assert_eq!(write(24, (2, 4), 48), None, "half a token");
        assert_eq!(write(36, (4, 3), 72), None);
    }

    #[test]
    fn samples_are_normalized_in_single_precision() {
        let table = normalized(1.0 / 255.0, [0.5, 0.25, 0.0], [0.5, 0.25, 1.0]);
        assert_eq!((table[0][0], table[0][255]), (-1.0, 1.0));
        assert_eq!((table[1][0], table[1][255]), (-1.0, 3.0));
        assert_eq!(table[2][255], 1.0);
    }
}
