//! The grids of images.

use std::sync::Arc;

use dsconvert_dataset::error::{ErrorKind, Result};
use dsconvert_dataset::sample::{Numbers, Value};
use dsconvert_dataset::schema::DType;
use dsconvert_dataset::schema::multimodal::IMAGE_GRIDS;
use dsconvert_vision::Grid;

use super::{VisionRows, of_record};
use crate::loader::array::Array;
use crate::loader::batch::Column;
use crate::loader::pool::Pool;
use crate::{Record, RecordSource};

/// Returns the grids in the field at `index` of `record`.
pub(super) fn grids_of(source: &dyn RecordSource, record: &Record, index: usize) -> Result<Vec<Grid>> {
    let value = record.values().get(index).unwrap_or(&Value::Null);
    let ty = record.schema().fields.get(index).map(|field| field.ty);
    let numbers = ty.and_then(|ty| Numbers::of(ty, value)).filter(|numbers| numbers.dtype == DType::Int32);
    let grid = |bytes: &[u8; 12]| {
        let sides = bytes.as_chunks::<4>().0.iter().map(|side| u32::try_from(i32::from_le_bytes(*side)).ok());
        let sides: Option<Vec<u32>> = sides.collect();
        sides.and_then(|sides| <Grid>::try_from(sides).ok())
    };
    let grids = numbers.and_then(|numbers| numbers.bytes.as_chunks::<12>().0.iter().map(grid).collect());
    grids
        .ok_or_else(|| of_record(source, record, ErrorKind::Corrupt, format!("{IMAGE_GRIDS:?} has no grids")))
}

impl VisionRows {
    /// Returns the array of all grids, and that of an image without effect if `dummy` is its grid. `None` if there are none.
    pub(in crate::loader) fn image_grids(&self, pool: &Arc<Pool>, dummy: Option<Grid>) -> Option<Column> {
        let grids: Vec<&Grid> = self.all_grids().chain(dummy.as_ref()).collect();
        if grids.is_empty() {
            return None;
        }
        let mut out = pool.take::<i64>(3 * grids.len());
        for (slots, grid) in out.chunks_exact_mut(3).zip(&grids) {
            slots.iter_mut().zip(grid.iter()).for_each(|(slot, side)| *slot = i64::from(*side));
        }
        Some(Column::Array(Array::new(vec![grids.len(), 3], out, Some(Arc::clone(pool)))))
    }
}
