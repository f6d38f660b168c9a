//! Stub of `pixels.rs` for builds without the feature `decode`.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dsconvert_dataset::error::Result;
use dsconvert_vision::Grid;

use super::{VisionFields, VisionRows};
use crate::loader::batch::Column;
use crate::loader::image::{DecodeScratch, check_build};
use crate::loader::options::VisionBatchOptions;
use crate::loader::pool::Pool;
use crate::{Record, RecordSource};

impl VisionFields {
    #[expect(clippy::too_many_arguments, reason = "those of `pixels.rs`")]
    pub(in crate::loader) fn pixel_values(
        &self,
        _: (&dyn RecordSource, &[Record]),
        _: &VisionRows,
        _: Option<Grid>,
        _: &VisionBatchOptions,
        _: &mut DecodeScratch,
        _: &AtomicBool,
        _: &Arc<Pool>,
    ) -> Result<Option<Column>> {
        check_build().map(|()| None)
    }
}
