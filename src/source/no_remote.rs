//! Stub of `remote.rs` for builds without object storage.

use std::io;
use std::ops::Range;

use super::planned::PlannedFile;
use crate::error::{Error, Result};
use crate::storage::ObjectUrl;

/// An open object. This build cannot create one.
#[derive(Debug)]
pub(super) enum OpenedObject {}

impl OpenedObject {
    pub(super) fn will_read(&self, _range: Range<u64>) -> Result<()> {
        match *self {}
    }

    pub(super) fn request_nothing_ahead(&self) {
        match *self {}
    }

    pub(super) fn hold(&self, _bytes: u64) {
        match *self {}
    }

    pub(super) fn bytes_at(&self, _offset: u64, _most: usize) -> io::Result<Vec<u8>> {
        match *self {}
    }

    pub(super) fn read_at(&self, _buffer: &mut [u8], _offset: u64) -> io::Result<usize> {
        match *self {}
    }

    pub(super) fn read_next(&self, _buffer: &mut [u8]) -> io::Result<usize> {
        match *self {}
    }
}

pub(super) fn refused<T>(url: &ObjectUrl) -> Result<T> {
    Err(Error::usage("this build of dsconvert cannot read from object storage")
        .at_path(url.as_path())
        .help("build it with the feature `remote`"))
}

pub(super) fn open(_planned: &PlannedFile, url: ObjectUrl) -> Result<OpenedObject> {
    refused(&url)
}

pub(super) fn stat(url: &ObjectUrl) -> Result<Option<PlannedFile>> {
    refused(url)
}
