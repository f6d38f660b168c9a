//! In place of `image` in a build that has no decoder.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::batch::Column;
use super::options::ImageOptions;
use super::pool::Pool;
use crate::error::{Error, ErrorKind, Result};
use crate::reader::{Record, Split};

#[derive(Debug, Default)]
pub(super) struct ImageScratch;

#[expect(dead_code, reason = "the fields of its counterpart")]
pub(super) struct ImageRows<'a> {
    pub(super) split: &'a Split,
    pub(super) records: &'a [Record],
    pub(super) rows: usize,
    pub(super) place: usize,
    pub(super) raw_channels: Option<usize>,
    pub(super) options: &'a ImageOptions,
    pub(super) seed: u64,
    pub(super) epoch: u64,
    pub(super) pool: &'a Arc<Pool>,
}

impl ImageRows<'_> {
    pub(super) fn column(&self, _: &mut ImageScratch, _: &AtomicBool) -> Result<Column> {
        check_build().and(Err(Error::usage("there is no decoder")))
    }
}

/// Fails: this build cannot decode images.
pub(super) fn check_build() -> Result<()> {
    Err(Error::new(ErrorKind::Unsupported, "this build of dsconvert cannot decode images")
        .help("build it with the feature `decode`, or ask for encoded images"))
}
