//! Stub of `decoded.rs` for builds without the feature `decode`.

use std::sync::atomic::AtomicBool;

use dsconvert_dataset::error::{Error, ErrorKind, Result};

use super::ImageRows;
use crate::loader::batch::{BlankRow, Column};

#[derive(Debug, Default)]
pub(in crate::loader) struct DecodeScratch {}

impl ImageRows<'_> {
    pub(in crate::loader) fn column(
        &self,
        _: &mut DecodeScratch,
        _: &AtomicBool,
    ) -> Result<(Column, Vec<BlankRow>)> {
        Err(no_decoder())
    }

    pub(in crate::loader) fn masks(&self, _: &AtomicBool) -> Result<(Column, Vec<BlankRow>)> {
        Err(no_decoder())
    }
}

/// Fails: this build cannot decode images.
pub(in crate::loader) fn check_build() -> Result<()> {
    Err(no_decoder())
}

fn no_decoder() -> Error {
    Error::new(ErrorKind::Unsupported, "this build of dsconvert cannot decode images")
        .help("build it with the feature \"decode\", or set `decode` to false to load encoded images")
}
