//! Resampling of single planes, with the weights of any filter.
//!
//! For each output row, the vertical sums, which are cheaper, come first; the horizontal sums follow while the row is in
//! the cache.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod backend;
mod portable;
#[cfg(test)]
mod tests;
mod weights;

use std::ops::Range;

use self::backend::Backend;
use self::portable::Portable;
use self::weights::SampleStep;
pub(crate) use self::weights::Triangle;
pub use self::weights::{Kernel, SampleAxis, Weights, nearest};

/// Maximum number of source samples per output sample, in one direction. The rounding errors of more weights would be
/// visible.
pub const MAX_STEP: f64 = 256.0;

/// A plane of samples, or a part of one.
#[derive(Debug, Clone, Copy)]
pub struct Plane<'a> {
    /// Rows of `stride` samples. The first one need not be at the start of the plane.
    pub samples: &'a [u8],
    /// Samples from the start of one row to the start of the next.
    pub stride: usize,
    /// Column of the first of `samples` in the plane.
    pub left: usize,
    /// Row of the first of `samples` in the plane.
    pub top: usize,
}

/// Buffers of [`resample`].
#[derive(Debug, Default)]
pub struct Buffers {
    /// One row between the vertical and the horizontal sums.
    row: Vec<i16>,
    steps: Vec<SampleStep>,
}

impl Buffers {
    /// Returns the allocated bytes.
    pub fn bytes(&self) -> usize {
        self.row.capacity() * size_of::<i16>() + self.steps.capacity() * size_of::<SampleStep>()
    }
}

/// Writes the weighted sums that `across` and `down` describe to `out`, row by row without gaps. Returns `None` if `plane`
/// lacks samples that they need.
pub fn resample(
    plane: Plane<'_>,
    across: &Weights,
    down: &Weights,
    buffers: &mut Buffers,
    out: &mut [u8],
) -> Option<()> {
    #[cfg(target_arch = "x86_64")]
    if let Some(v3) = pulp::x86::V3::try_new() {
        return resample_with(avx2::Avx2(v3), plane, across, down, buffers, out);
    }
    resample_with(Portable, plane, across, down, buffers, out)
}

/// Implements [`resample`] with one backend.
fn resample_with<B: Backend>(
    backend: B,
    plane: Plane<'_>,
    across: &Weights,
    down: &Weights,
    buffers: &mut Buffers,
    out: &mut [u8],
) -> Option<()> {
    let (Range { start: first, end }, Range { start: top, end: bottom }) =
        (across.span.clone(), down.span.clone());
    let available = plane.samples.len() / plane.stride.max(1);
    let is_inside = plane.left <= first
        && end <= plane.left + plane.stride
        && plane.top <= top
        && bottom <= plane.top + available
        && out.len() == across.starts.len() * down.starts.len();
    if !is_inside || out.is_empty() {
        return is_inside.then_some(());
    }
    let Buffers { row, steps } = buffers;
    let steps = across.write_steps(steps).then_some(steps.as_slice());
    // Weights count samples from the start of the row. Values left of `first` are never read.
    row.clear();
    row.resize(end + across.stride.max(weights::WINDOW), 0);
    backend.run(Resample { backend, plane, across, down, columns: (first, end), steps, row, out });
    Some(())
}

struct Resample<'a, B> {
    backend: B,
    plane: Plane<'a>,
    across: &'a Weights,
    down: &'a Weights,
    /// The columns that are read: the first, and the one after the last.
    columns: (usize, usize),
    steps: Option<&'a [SampleStep]>,
    row: &'a mut [i16],
    out: &'a mut [u8],
}

impl<B: Backend> pulp::NullaryFnOnce for Resample<'_, B> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { backend, plane, across, down, columns: (first, end), steps, row, out } = self;
        // An even number, because rows are summed in pairs.
        let taps = down.taps.next_multiple_of(2).min(down.stride);
        let last = plane.samples.len() / plane.stride - 1;
        let mut rows: Vec<&[u8]> = Vec::with_capacity(taps);
        for (n, out) in out.chunks_exact_mut(across.starts.len()).enumerate() {
            rows.clear();
            for k in 0..taps {
                // Rows with a weight of zero may be past the end.
                let y = (down.starts[n] + k - plane.top).min(last);
                rows.push(&plane.samples[y * plane.stride + first - plane.left..][..end - first]);
            }
            backend.vertical(&rows, down.of(n), &mut row[first..end]);
            backend.horizontal(row, across, steps, out);
        }
    }
}
