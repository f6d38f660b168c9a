//! Decodes masks into the array of a batch. They are cropped and flipped like their images, and resized by nearest
//! neighbor.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dsconvert_dataset::error::{Error, ErrorKind, Result};
use dsconvert_dataset::panics::caught;

use super::ImageRows;
use crate::decode::Mask;
use crate::loader::array::Array;
use crate::loader::augment::View;
use crate::loader::batch::{BlankRow, Column};
use crate::loader::element::Element;
use crate::loader::options::ImageLayout;

/// Samples of the masks of a batch, as in PNG.
struct Samples {
    bytes: Vec<u8>,
    /// Samples per pixel.
    channels: usize,
    /// Bytes per sample.
    sample_bytes: usize,
}

impl ImageRows<'_> {
    /// Returns the array of all masks, and the rows that stayed blank. If `stop` is set, it ends early with an error
    /// that is never returned to a caller.
    pub(in crate::loader) fn masks(&self, stop: &AtomicBool) -> Result<(Column, Vec<BlankRow>)> {
        let (height, width) = self.size()?;
        let zeros = |channels: usize, sample_bytes: usize| {
            let (_, total) = self.bytes(height, width, channels * sample_bytes)?;
            let mut bytes = self.pool.take_many::<u8>(total)?;
            bytes.fill(0);
            Ok::<_, Error>(Samples { bytes, channels, sample_bytes })
        };
        let mut samples: Option<Samples> = None;
        let mut blank = Vec::new();
        for (row, record) in self.records.iter().enumerate() {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::new(ErrorKind::Interrupted(0), "the loader was stopped"));
            }
            let Some(file) = self.encoded(record)? else { continue };
            let (size, view) = self.view(row, record, (height, width))?;
            let read = caught(|| Mask::read(file, size)).unwrap_or_else(|panic| Err(panic.into_reject()));
            let mask = match read {
                Ok(mask) => mask,
                Err(reject) => {
                    blank.push(self.blank(row, record, &reject)?);
                    continue;
                }
            };
            let samples = match &mut samples {
                Some(samples) => samples,
                none => none.insert(zeros(mask.channels, mask.sample_bytes)?),
            };
            if (samples.channels, samples.sample_bytes) != (mask.channels, mask.sample_bytes) {
                let what = format!(
                    "the mask has {} samples of {} bits per pixel, but the first mask of its batch has {} of {}",
                    mask.channels,
                    mask.sample_bytes * 8,
                    samples.channels,
                    samples.sample_bytes * 8
                );
                return Err(Error::usage(what)
                    .at_row(record.ordinal())
                    .help("use batches of 1, or convert masks with one sample format"));
            }
            let area = height * width * mask.pixel_bytes();
            if let Some(out) = samples.bytes.chunks_exact_mut(area.max(1)).nth(row) {
                let [rows, columns] = nearest(&view, size.width as usize, size.height as usize);
                mask.pick(&rows, &columns, out);
            }
        }
        let samples = match samples {
            Some(samples) => samples,
            None => zeros(1, 1)?,
        };
        Ok((Column::Array(self.array(samples, height, width)?), blank))
    }

    /// Returns the array of `samples`: without a channel dimension for one channel, and of `int32` for 16 bits.
    fn array(&self, samples: Samples, height: usize, width: usize) -> Result<Array> {
        let Samples { bytes, channels, sample_bytes } = samples;
        let shape = match (channels, self.options.layout) {
            (1, _) => vec![self.rows, height, width],
            (_, ImageLayout::Hwc) => vec![self.rows, height, width, channels],
            (_, ImageLayout::Chw) => vec![self.rows, channels, height, width],
        };
        let pool = Arc::clone(self.pool);
        let is_planar = channels > 1 && self.options.layout == ImageLayout::Chw;
        match (sample_bytes, is_planar) {
            (1, false) => Ok(Array::new(shape, bytes, Some(pool))),
            (1, true) => {
                let out = self.laid_out(&bytes, channels, height * width, |[v]: [u8; 1]| v)?;
                Ok(Array::new(shape, out, Some(pool)))
            }
            _ => {
                let wide = |sample: [u8; 2]| i32::from(u16::from_be_bytes(sample));
                let out = self.laid_out(&bytes, channels, height * width, wide)?;
                Ok(Array::new(shape, out, Some(pool)))
            }
        }
    }

    /// Returns the samples as numbers, in the order of the layout.
    fn laid_out<const N: usize, T: Element>(
        &self,
        bytes: &[u8],
        channels: usize,
        area: usize,
        number: impl Fn([u8; N]) -> T,
    ) -> Result<Vec<T>> {
        let samples = bytes.as_chunks::<N>().0;
        let mut out = self.pool.take_many::<T>(samples.len())?;
        let row = (channels * area).max(1);
        for (to, from) in out.chunks_exact_mut(row).zip(samples.chunks_exact(row)) {
            for (at, sample) in from.iter().enumerate() {
                let index = match self.options.layout {
                    ImageLayout::Hwc => at,
                    ImageLayout::Chw => at % channels * area + at / channels,
                };
                if let Some(slot) = to.get_mut(index) {
                    *slot = number(*sample);
                }
            }
        }
        Ok(out)
    }
}

/// Returns the rows and columns of the pixels nearest to those of the view, as offsets in a mask of `width` × `height`
/// pixels.
fn nearest(view: &View, width: usize, height: usize) -> [Vec<Option<usize>>; 2] {
    let axis = |start: f64, length: f64, out: u32, all: usize, step: usize| -> Vec<Option<usize>> {
        let center = |at: u32| start + (f64::from(at) + 0.5) * length / f64::from(out);
        (0..out).map(|at| Some((center(at) as usize).min(all.saturating_sub(1)) * step)).collect()
    };
    let rows = axis(view.top, view.height, view.out_height, height, width);
    let mut columns = axis(view.left, view.width, view.out_width, width, 1);
    if view.mirrored {
        columns.reverse();
    }
    [rows, columns]
}
