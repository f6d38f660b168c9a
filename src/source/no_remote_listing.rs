//! Stub of `remote_listing.rs` for builds without object storage.

use std::path::{Path, PathBuf};

use super::listing::Listing;
use super::planned::PlannedFile;
use super::remote::refused;
use crate::error::Result;
use crate::options::SourceSpec;
use crate::storage::ObjectUrl;

pub(super) fn list(
    _spec: &SourceSpec,
    url: &ObjectUrl,
    _source: u32,
    _keep: &dyn Fn(&str) -> bool,
    _listing: &mut Listing,
) -> Result<()> {
    refused(url)
}

/// A lookup of objects that always returns an error.
#[derive(Debug)]
pub(super) struct Lookup(ObjectUrl);

impl Lookup {
    pub(super) fn new(url: ObjectUrl) -> Self {
        Self(url)
    }

    pub(super) fn resolve(&mut self, _: &Path, _: bool) -> Result<Option<(PathBuf, PlannedFile)>> {
        refused(&self.0)
    }
}
