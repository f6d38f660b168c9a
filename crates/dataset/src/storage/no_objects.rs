//! The interface of `objects/` in builds without the feature `remote`: no store can be reached. Its types have no
//! values, because [`Bucket::of`] and `RemoteDataset::new`, which come first, return an error that names the feature.

use std::convert::Infallible;
use std::io::{self, Write};
use std::ops::Range;

use bytes::Bytes;

use super::blob::Blob;
use super::location::RemoteOptions;
use super::new_file::Written;
pub use super::object::{Created, FileListing, Object, Settings};
use super::object_url::ObjectUrl;
use crate::error::{Error, Result};

fn refused(url: &ObjectUrl) -> Error {
    Error::missing_feature("object storage", "remote").at_path(url.as_path())
}

/// Client for the store of an address. This build has none.
#[derive(Debug, Clone)]
pub struct Bucket(Infallible);

#[expect(
    missing_docs,
    clippy::missing_errors_doc,
    reason = "see the type of the same name in `objects/`; nothing can call these"
)]
impl Bucket {
    /// Refuses the address `url`.
    pub fn of(url: &ObjectUrl) -> Result<Self> {
        Err(refused(url))
    }

    /// Refuses the address `url`.
    pub fn with(url: &ObjectUrl, _: &Settings) -> Result<Self> {
        Err(refused(url))
    }

    pub fn head(&self, _: &ObjectUrl) -> Result<Option<Object>> {
        match self.0 {}
    }

    pub fn get(&self, _: &ObjectUrl, _: u64) -> Result<(Bytes, Object)> {
        match self.0 {}
    }

    pub fn find(&self, _: &ObjectUrl, _: u64) -> Result<Option<(Bytes, Object)>> {
        match self.0 {}
    }

    pub fn get_ranges(
        &self,
        _: &ObjectUrl,
        _: u64,
        _: Option<&str>,
        _: &[Range<u64>],
    ) -> Result<(Vec<Bytes>, Option<String>)> {
        match self.0 {}
    }

    pub fn create(&self, _: &ObjectUrl, _: &Bytes) -> Result<Created> {
        match self.0 {}
    }

    pub fn upload(&self, _: &ObjectUrl) -> Result<Upload> {
        match self.0 {}
    }

    pub fn delete(&self, _: &ObjectUrl) -> Result<()> {
        match self.0 {}
    }

    pub fn list(&self, _: &ObjectUrl) -> Result<Vec<Object>> {
        match self.0 {}
    }

    pub fn list_files(&self, _: &ObjectUrl) -> Result<FileListing> {
        match self.0 {}
    }

    pub fn holds(&self, _: &ObjectUrl) -> Result<bool> {
        match self.0 {}
    }
}

/// An object being uploaded. This build has none.
#[derive(Debug)]
pub struct Upload(Infallible);

impl Upload {
    /// Waits until the object exists and returns its size and hash.
    ///
    /// # Errors
    ///
    /// None: nothing can call this.
    pub fn finish(self) -> Result<Written> {
        match self.0 {}
    }
}

impl Write for Upload {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        match self.0 {}
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.0 {}
    }
}

/// An object opened for reading. This build has none.
#[derive(Debug)]
pub struct ObjectReader(Infallible);

#[expect(
    missing_docs,
    clippy::missing_errors_doc,
    reason = "see the type of the same name in `objects/`; nothing can call these"
)]
impl ObjectReader {
    pub fn open(bucket: &Bucket, _: Object) -> Result<Self> {
        match bucket.0 {}
    }

    pub fn object(&self) -> &Object {
        match self.0 {}
    }

    pub fn will_read(&self, _: Range<u64>) -> Result<()> {
        match self.0 {}
    }

    pub fn request_nothing_ahead(&self) {
        match self.0 {}
    }

    pub fn hold(&self, _: u64) {
        match self.0 {}
    }

    pub fn bytes_at(&self, _: u64, _: usize) -> Result<Bytes> {
        match self.0 {}
    }

    pub fn read_at(&self, _: &mut [u8], _: u64) -> Result<usize> {
        match self.0 {}
    }

    pub fn read_next(&self, _: &mut [u8]) -> Result<usize> {
        match self.0 {}
    }
}

/// Returns 0: this build sends no requests.
pub fn repeated_requests() -> u64 {
    0
}

/// Does nothing: this build sends no requests.
pub fn on_retries(_: fn(&str)) {}

/// Returns false: this build sends no requests.
pub fn is_cut_short(_: &impl std::error::Error) -> bool {
    false
}

/// A dataset in object storage. This build has none.
#[derive(Debug, Clone)]
pub(super) struct RemoteDataset(Infallible);

impl RemoteDataset {
    pub(super) fn new(url: &ObjectUrl, _: &RemoteOptions) -> Result<Self> {
        Err(refused(url))
    }

    pub(super) fn small(&self, _: &str, _: u64) -> Result<Bytes> {
        match self.0 {}
    }

    pub(super) fn open(&self, _: &str, _: u64, _: &str) -> Result<Blob> {
        match self.0 {}
    }

    pub(super) fn forget(&self, _: &str, _: &str) -> bool {
        match self.0 {}
    }

    pub(super) fn has_fetched(&self) -> bool {
        match self.0 {}
    }
}

/// An object opened for random access. This build has none.
#[derive(Debug)]
pub(super) struct RemoteFile(Infallible);

impl RemoteFile {
    pub(super) fn read(&self, _: Range<u64>) -> Result<Bytes> {
        match self.0 {}
    }
}
