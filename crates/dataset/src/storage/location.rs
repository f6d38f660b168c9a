//! Location of a dataset: a local directory or object storage, with the options for reading it.

use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::blob::{Access, Blob};
use super::object_url::ObjectUrl;
use super::objects::RemoteDataset;
use super::paths::resolve;
use crate::error::{Error, ErrorKind, Result};

/// Access to the files of one dataset, in a directory or under an address in object storage.
#[derive(Debug, Clone)]
pub struct Location {
    path: PathBuf,
    remote: Option<RemoteDataset>,
}

impl Location {
    /// Creates the location of the dataset at `path`, which may be an address. Reads nothing.
    ///
    /// # Errors
    ///
    /// `Usage` for an invalid address, for settings that the store does not support, and for object storage options
    /// with a local path; `Unsupported` for an address in a build without the feature `remote`.
    pub fn new(path: &Path, options: &RemoteOptions) -> Result<Self> {
        let Some(url) = ObjectUrl::parse(path)? else {
            if *options != RemoteOptions::default() {
                return Err(Error::usage("storage options and a cache require a dataset in object storage")
                    .at_path(path)
                    .help("leave them out, or open a URL such as s3://bucket/dataset"));
            }
            return Ok(Self::local(path));
        };
        Ok(Self { path: url.as_path().to_owned(), remote: Some(RemoteDataset::new(&url, options)?) })
    }

    /// Creates the location of the dataset in the directory `path`, whatever its name.
    pub fn local(path: &Path) -> Self {
        Self { path: path.to_owned(), remote: None }
    }

    /// Returns the directory or address, for messages and for reopening the dataset.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the dataset is in object storage.
    pub fn is_remote(&self) -> bool {
        self.remote.is_some()
    }

    /// Returns whether bytes have been fetched from object storage since the last call.
    pub fn has_fetched(&self) -> bool {
        self.remote.as_ref().is_some_and(RemoteDataset::has_fetched)
    }

    /// Returns the result of `read`, which reads `files`, given by path and SHA-256. If they are damaged and were
    /// fetched from object storage, what was fetched is dropped and `read` is called once more: a connection or a server
    /// may have damaged them only this time.
    ///
    /// # Errors
    ///
    /// Those of `read`.
    pub fn read_again_if_damaged<T>(
        &self,
        files: &[(&str, &str)],
        read: impl Fn() -> Result<T>,
    ) -> Result<T> {
        match read() {
            Err(e) if e.kind() == ErrorKind::Corrupt && self.forget(files) => read(),
            result => result,
        }
    }

    /// Drops what was fetched of `files`, given by path and SHA-256. Returns whether reading them again may give other
    /// bytes.
    pub fn forget(&self, files: &[(&str, &str)]) -> bool {
        let Some(remote) = &self.remote else { return false };
        files.iter().fold(false, |any, (path, sha256)| remote.forget(path, sha256) || any)
    }

    /// Reads the object `name`, which may have at most `max_bytes` bytes; `None` if the dataset is local.
    ///
    /// # Errors
    ///
    /// `Io` if the object does not exist or cannot be read.
    pub(crate) fn small_object(&self, name: &str, max_bytes: u64) -> Result<Option<Bytes>> {
        self.remote.as_ref().map(|remote| remote.small(name, max_bytes)).transpose()
    }

    /// Opens a file that the manifest or the shard table lists with `bytes` and `sha256`. For a remote dataset, only the
    /// bytes that are read are fetched.
    ///
    /// # Errors
    ///
    /// `Corrupt` if the size differs or the path leads out of the dataset; `Io` if the file cannot be opened.
    pub fn open(&self, path: &str, bytes: u64, sha256: &str, access: Access) -> Result<Blob> {
        if let Some(remote) = &self.remote {
            return remote.open(path, bytes, sha256);
        }
        Blob::open(&resolve(&self.path, path)?, access, Some(bytes))
    }

    /// Like [`Self::open`], for a file that is needed completely and constantly, such as an index.
    ///
    /// # Errors
    ///
    /// Same as [`Self::open`].
    pub fn open_whole(&self, path: &str, bytes: u64, sha256: &str, access: Access) -> Result<Blob> {
        let blob = self.open(path, bytes, sha256, access)?;
        if !self.is_remote() {
            return Ok(blob);
        }
        Ok(Blob::from_bytes(blob.path(), blob.read(0, bytes)?))
    }
}

/// Options for reading a dataset in object storage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemoteOptions {
    /// Store settings that override the environment, such as `("endpoint_url", "http://localhost:9000")`.
    pub settings: Vec<(String, String)>,
    /// Cache directory, used for later reads and by other processes.
    pub cache_dir: Option<PathBuf>,
    /// Limit of the cache directory in bytes.
    pub cache_bytes: Option<u64>,
}
