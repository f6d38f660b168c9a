//! Decodes the images of chats, and resizes and normalizes them to the patches that a vision tower takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dsconvert_dataset::error::{Error, ErrorKind, Result};
use dsconvert_dataset::panics::caught;
use dsconvert_dataset::sample::{RejectCode, Value};
use dsconvert_vision::{CHANNELS, Grid, PatchLayout, normalized, unchanged};

use super::{VisionFields, VisionRows, of_record};
use crate::decode::{Size, Stored, stored_size};
use crate::loader::array::Array;
use crate::loader::batch::Column;
use crate::loader::element::Element;
use crate::loader::image::DecodeScratch;
use crate::loader::options::{PatchType, VisionBatchOptions};
use crate::loader::pool::Pool;
use crate::{Record, RecordSource};

/// What the threads of a loader share while they make patches.
struct PatchWriter<'a> {
    fields: &'a VisionFields,
    source: &'a dyn RecordSource,
    records: &'a [Record],
    rows: &'a VisionRows,
    dummy: Option<Grid>,
    layout: PatchLayout,
    stop: &'a AtomicBool,
    pool: &'a Arc<Pool>,
}

impl VisionFields {
    /// Returns the patches of the images of `records`, and those of an image without effect if `dummy` is its grid. `None` if
    /// there are no images.
    #[expect(clippy::too_many_arguments, reason = "the parts of a batch")]
    pub(in crate::loader) fn pixel_values(
        &self,
        (source, records): (&dyn RecordSource, &[Record]),
        rows: &VisionRows,
        dummy: Option<Grid>,
        options: &VisionBatchOptions,
        scratch: &mut DecodeScratch,
        stop: &AtomicBool,
        pool: &Arc<Pool>,
    ) -> Result<Option<Column>> {
        if dummy.is_none() && rows.all_grids().next().is_none() {
            return Ok(None);
        }
        let own = &self.processor;
        let frames = match options.patches {
            PatchType::Float32 => own.temporal_patch_size as usize,
            PatchType::UInt8 => 1,
        };
        let layout = PatchLayout { patch: own.patch_size as usize, merge: own.merge_size as usize, frames };
        let writer = PatchWriter { fields: self, source, records, rows, dummy, layout, stop, pool };
        match options.patches {
            PatchType::Float32 => {
                writer.column(&normalized(own.rescale_factor, own.image_mean, own.image_std), 0.0, scratch)
            }
            PatchType::UInt8 => writer.column(&unchanged(), 128, scratch),
        }
        .map(Some)
    }
}

impl PatchWriter<'_> {
    /// Returns the array of all patches, each with what `of_sample` makes of its samples.
    fn column<T: Element>(
        &self,
        of_sample: &[[T; 256]; CHANNELS],
        gray: T,
        scratch: &mut DecodeScratch,
    ) -> Result<Column> {
        let all = self.rows.all_grids().chain(&self.dummy);
        let patches = all.map(patches_of).try_fold(0usize, |sum, patches| sum.checked_add(patches?));
        let values = patches.and_then(|patches| patches.checked_mul(self.layout.values()));
        let values = values.filter(|values| *values <= isize::MAX as usize / 8);
        let (Some(patches), Some(values)) = (patches, values) else {
            return Err(
                Error::usage("the patches of the batch exceed the address space").help("use smaller batches")
            );
        };
        let mut out = self.pool.take_many::<T>(values)?;
        let mut left = out.get_mut(..values).unwrap_or_default();
        for (record, grids) in self.records.iter().zip(&self.rows.grids) {
            let Some(Value::Files(files)) = record.values().get(self.fields.images) else {
                return Err(self.refused(record, ErrorKind::Corrupt, "it has no list of images".to_owned()));
            };
            if files.len() != grids.len() {
                let what = format!("it has {} images, and the grids of {}", files.len(), grids.len());
                return Err(self.refused(record, ErrorKind::Corrupt, what));
            }
            for (number, (file, grid)) in files.iter().zip(grids).enumerate() {
                if self.stop.load(Ordering::Relaxed) {
                    return Err(Error::new(ErrorKind::Interrupted(0), "the loader was stopped"));
                }
                let values = (patches_of(grid).unwrap_or(0) * self.layout.values()).min(left.len());
                let (of_image, after) = std::mem::take(&mut left).split_at_mut(values);
                self.image(file, grid, of_sample, scratch, of_image)
                    .map_err(|(kind, what)| self.refused(record, kind, format!("image {number} {what}")))?;
                left = after;
            }
        }
        left.fill(gray);
        let shape = vec![patches, self.layout.values()];
        Ok(Column::Array(Array::new(shape, out, Some(Arc::clone(self.pool)))))
    }

    /// Writes the patches of one image.
    fn image<T: Element>(
        &self,
        file: &[u8],
        grid: &Grid,
        of_sample: &[[T; 256]; CHANNELS],
        scratch: &mut DecodeScratch,
        out: &mut [T],
    ) -> Result<(), (ErrorKind, String)> {
        let corrupt = |what: String| (ErrorKind::Corrupt, what);
        let size = stored_size(file).ok_or_else(|| corrupt("has no size in its header".to_owned()))?;
        let Size { width, height } = size;
        let plan = self.fields.processor.plan(height, width);
        let plan = plan.map_err(|error| corrupt(format!("cannot be loaded: {error}")))?;
        if plan.grid != *grid {
            let [[t, h, w], [pt, ph, pw]] = [*grid, plan.grid];
            return Err(corrupt(format!(
                "has the grid {t} × {h} × {w}, and its {width} × {height} pixels give {pt} × {ph} × {pw}"
            )));
        }
        let image = Stored { bytes: file, size, raw_channels: None };
        let target = Size::new(plan.width, plan.height);
        let done = caught(|| {
            let pixels = scratch.bicubic(image, target)?;
            Ok(self.layout.write(pixels, (plan.height as usize, plan.width as usize), of_sample, out))
        });
        let done = done.unwrap_or_else(|panic| {
            // The panic may have left the buffers inconsistent.
            *scratch = DecodeScratch::default();
            Err(panic.into_reject())
        });
        match done {
            Ok(Some(())) => Ok(()),
            Ok(None) => Err((ErrorKind::Internal, "does not fill its patches".to_owned())),
            Err(reject) => {
                let kind = match reject.code {
                    RejectCode::Unsupported | RejectCode::UnknownType => ErrorKind::Unsupported,
                    _ => ErrorKind::Corrupt,
                };
                Err((kind, format!("cannot be decoded: {}", reject.message)))
            }
        }
    }

    fn refused(&self, record: &Record, kind: ErrorKind, what: String) -> Error {
        of_record(self.source, record, kind, what)
    }
}

/// Returns the number of patches of an image.
fn patches_of(grid: &Grid) -> Option<usize> {
    grid.iter().try_fold(1usize, |product, side| product.checked_mul(*side as usize))
}
