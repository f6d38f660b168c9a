//! Decodes single images, for callers that read records one by one.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dsconvert_dataset::error::{Error, Result};
use dsconvert_dataset::schema::IMAGE;

use super::array::Array;
use super::batch::Column;
use super::image::{ImageRows, check_build};
use super::options::ImageOptions;
use super::pool::Pool;
use crate::{Record, Split};

/// Decodes the image of `record`, which belongs to `split`, to height × width × 3 samples. The record must have the
/// fields `image`, `width` and `height`.
///
/// # Errors
///
/// [`ErrorKind::Usage`](dsconvert_dataset::error::ErrorKind) when it lacks one of them, `Corrupt` when its image does
/// not decode, `Unsupported` when this build cannot decode images.
pub fn decode_image(split: &Split, record: &Record) -> Result<Array> {
    check_build()?;
    let missing = || {
        let error = Error::usage("decoding needs the fields image, width and height");
        split.at_record(error, record.ordinal())
    };
    let rows = ImageRows {
        split,
        records: std::slice::from_ref(record),
        rows: 1,
        field_index: record.schema().index_of(IMAGE).ok_or_else(missing)?,
        raw_channels: split.manifest().raw_channels().map(|n| n as usize),
        options: &ImageOptions::default(),
        seed: 0,
        epoch: 0,
        pool: &Arc::new(Pool::new(0)),
    };
    match rows.column(&mut Default::default(), &AtomicBool::new(false))?.0 {
        Column::Array(array) => Ok(array.into_row()),
        _ => Err(missing()),
    }
}
