//! Image columns of a batch. Decoding is compiled only with the feature `decode`.

#[cfg_attr(not(feature = "decode"), path = "absent.rs")]
mod decoded;
#[cfg(feature = "decode")]
mod masks;

use std::sync::Arc;

pub(super) use self::decoded::{DecodeScratch, check_build};
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
