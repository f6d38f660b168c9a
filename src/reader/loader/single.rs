//! One image, for those who read records one by one.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::array::Array;
use super::batch::Column;
use super::image::{ImageRows, ImageScratch, check_build};
use super::options::ImageOptions;
use super::pool::Pool;
use crate::error::{Error, Result};
use crate::reader::Record;
use crate::schema::IMAGE;

/// The image of `record`, decoded: height × width × 3 samples. The record must have the fields `image`, `width` and
/// `height`.
///
/// # Errors
///
/// [`ErrorKind::Usage`](crate::error::ErrorKind) when it has not, `Corrupt` when its image does not decode,
/// `Unsupported` in a build that decodes none.
pub fn decode_image(record: &Record) -> Result<Array> {
    check_build()?;
    let missing = || {
        Error::usage("only records with the fields image, width and height are decoded")
            .at_row(record.ordinal())
    };
    let rows = ImageRows {
        split: None,
        raw_channels: raw_channels(record),
        records: std::slice::from_ref(record),
        rows: 1,
        place: record.schema().index_of(IMAGE).ok_or_else(missing)?,
        options: &ImageOptions::default(),
        seed: 0,
        epoch: 0,
        pool: &Arc::new(Pool::new(0)),
    };
    match rows.column(&mut ImageScratch::default(), &AtomicBool::new(false))? {
        Column::Array(array) => Ok(array.into_row()),
        _ => Err(missing()),
    }
}

/// How many samples a pixel of a bare image has. The manifest knows it, and the record does not: bytes that do not begin
/// like an image and are as many as some number of samples asks for are taken for bare ones.
fn raw_channels(record: &Record) -> Option<usize> {
    let bytes = record.image()?;
    let pixels = u64::from(record.width()?) * u64::from(record.height()?);
    let fits = |channels: &u64| pixels.checked_mul(*channels) == Some(bytes.len() as u64);
    let channels = [1, 3, 4].into_iter().find(fits)?;
    is_bare(bytes).then_some(channels as usize)
}

#[cfg(feature = "decode")]
fn is_bare(bytes: &[u8]) -> bool {
    crate::decode::sniff(bytes).is_none()
}

#[cfg(not(feature = "decode"))]
fn is_bare(_: &[u8]) -> bool {
    false
}
