//! Decodes single images, for callers that read records one by one.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dsconvert_dataset::error::{Error, Result};
use dsconvert_dataset::schema::IMAGE;

use super::array::Array;
use super::batch::Column;
use super::image::{ImageRows, check_build};
use super::options::ImageBatchOptions;
use super::pool::Pool;
use crate::{Record, RecordSource};

/// Decodes the image of `record`, which belongs to `source`, to height × width × 3 samples. The record must have the
/// fields `image`, `width` and `height`.
///
/// # Errors
///
/// [`ErrorKind::Usage`](dsconvert_dataset::error::ErrorKind) when it lacks one of them, `Corrupt` when its image does
/// not decode, `Unsupported` when this build cannot decode images.
pub fn decode_image(source: &dyn RecordSource, record: &Record) -> Result<Array> {
    check_build()?;
    let missing = || {
        let error = Error::usage("decoding needs the fields image, width and height");
        source.at_record(error, record.ordinal())
    };
    let rows = ImageRows {
        source,
        records: std::slice::from_ref(record),
        rows: 1,
        shape: None,
        field_index: record.schema().index_of(IMAGE).ok_or_else(missing)?,
        raw_channels: source.raw_channels(),
        options: &ImageBatchOptions::default(),
        seed: 0,
        epoch: 0,
        epochs: &[],
        pool: &Arc::new(Pool::new(0)),
    };
    match rows.column(&mut Default::default(), &AtomicBool::new(false))?.0 {
        Column::Array(array) => Ok(array.into_row()),
        _ => Err(missing()),
    }
}
