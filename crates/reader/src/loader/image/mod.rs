//! Image columns of a batch, and single images. Decoding is compiled only with the feature `decode`.

#[cfg_attr(not(feature = "decode"), path = "absent.rs")]
mod decoded;
#[cfg(feature = "decode")]
mod masks;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dsconvert_dataset::error::{Error, Result};
use dsconvert_dataset::schema::IMAGE;

pub(super) use self::decoded::{DecodeScratch, check_build};
use super::array::Array;
use super::augment::RecordRandom;
use super::batch::Column;
use super::options::ImageBatchOptions;
use super::pool::Pool;
use crate::batch::ImageShape;
use crate::{Record, RecordSource};

/// The images of a batch.
#[cfg_attr(not(feature = "decode"), expect(dead_code, reason = "only the decoder reads them"))]
pub(super) struct ImageRows<'a> {
    /// Used to name the records in errors.
    pub(super) source: &'a dyn RecordSource,
    pub(super) records: &'a [Record],
    pub(super) rows: usize,
    /// The shape of all images, if the batch has a bucket by shape.
    pub(super) shape: Option<ImageShape>,
    /// Index of the field of encoded images or masks. Where it is null, pixels are 0.
    pub(super) field_index: usize,
    /// Samples per pixel, if images are raw samples.
    pub(super) raw_channels: Option<usize>,
    pub(super) options: &'a ImageBatchOptions,
    pub(super) seed: u64,
    pub(super) epoch: u64,
    /// The epoch of each record, if they differ.
    pub(super) epochs: &'a [u64],
    pub(super) pool: &'a Arc<Pool>,
}

impl ImageRows<'_> {
    /// Returns the random numbers of the record in `row`, which depend on its epoch.
    pub(super) fn random(&self, row: usize, record: &Record) -> RecordRandom {
        let epoch = self.epochs.get(row).copied().unwrap_or(self.epoch);
        RecordRandom::new(self.seed, epoch, record.ordinal())
    }
}

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
        raw_channels: source.properties().raw_channels,
        options: &ImageBatchOptions::default(),
        seed: 0,
        epoch: 0,
        epochs: &[],
        pool: &Arc::new(Pool::new(0)),
    };
    match rows.column(&mut DecodeScratch::default(), &AtomicBool::new(false))?.0 {
        Column::Array(array) => Ok(array.into_row()),
        _ => Err(missing()),
    }
}
