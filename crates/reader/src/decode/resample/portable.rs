//! Resampling for any processor.

use super::backend::{Backend, HORIZONTAL_SHIFT, VERTICAL_SHIFT};
use super::weights::{SampleStep, Weights};

/// The backend for any processor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Portable;

impl Backend for Portable {
    fn run<F: pulp::NullaryFnOnce>(self, work: F) -> F::Output {
        work.call()
    }

    #[inline(always)]
    fn vertical(self, rows: &[&[u8]], weights: &[i16], out: &mut [i16]) {
        for (x, out) in out.iter_mut().enumerate() {
            let sum = rows.iter().zip(weights).map(|(row, &weight)| i32::from(row[x]) * i32::from(weight));
            let value = (sum.sum::<i32>() + (1 << (VERTICAL_SHIFT - 1))) >> VERTICAL_SHIFT;
            *out = value.clamp(i16::MIN.into(), i16::MAX.into()) as i16;
        }
    }

    #[inline(always)]
    fn horizontal(self, row: &[i16], weights: &Weights, _: Option<&[SampleStep]>, out: &mut [u8]) {
        for (n, out) in out.iter_mut().enumerate() {
            let from = &row[weights.starts[n]..];
            let sum =
                from.iter().zip(weights.of(n)).map(|(&value, &weight)| i32::from(value) * i32::from(weight));
            let value = (sum.sum::<i32>() + (1 << (HORIZONTAL_SHIFT - 1))) >> HORIZONTAL_SHIFT;
            *out = value.clamp(0, 255) as u8;
        }
    }
}
