//! Location of a dataset: a local directory or object storage, with the options for reading it.

use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::blob::{Access, Blob};
use super::object_url::ObjectUrl;
use super::paths::resolve;
#[cfg(feature = "remote")]
use super::remote::RemoteDataset;
use crate::error::{Error, ErrorKind, Result};

/// Access to the files of one dataset, in a directory or under an address in object storage.
#[derive(Debug, Clone)]
pub struct Location {
    path: PathBuf,
    #[cfg(feature = "remote")]
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
        Self::remote(&url, options)
    }

    /// Creates the location of the dataset in the directory `path`, whatever its name.
    pub fn local(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            #[cfg(feature = "remote")]
            remote: None,
        }
    }

    #[cfg(feature = "remote")]
    fn remote(url: &ObjectUrl, options: &RemoteOptions) -> Result<Self> {
        Ok(Self { path: url.as_path().to_owned(), remote: Some(RemoteDataset::new(url, options)?) })
    }

    #[cfg(not(feature = "remote"))]
    fn remote(url: &ObjectUrl, _: &RemoteOptions) -> Result<Self> {
        Err(Error::new(ErrorKind::Unsupported, "this build cannot read from object storage")
            .at_path(url.as_path())
            .help("build it with the feature `remote`"))
    }

    /// Returns the directory or address, for messages and for reopening the dataset.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the dataset is in object storage.
    pub fn is_remote(&self) -> bool {
        #[cfg(feature = "remote")]
        return self.remote.is_some();
        #[cfg(not(feature = "remote"))]
        return false;
    }

    /// Returns whether bytes have been fetched from object storage since the last call.
    pub fn has_fetched(&self) -> bool {
        #[cfg(feature = "remote")]
        return self.remote.as_ref().is_some_and(RemoteDataset::has_fetched);
        #[cfg(not(feature = "remote"))]
        return false;
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
        #[cfg(feature = "remote")]
        if let Some(remote) = &self.remote {
            return files.iter().fold(false, |any, (path, sha256)| remote.forget(path, sha256) || any);
        }
        let _ = files;
        false
    }

    /// Reads the object `name`, which may have at most `max_bytes` bytes; `None` if the dataset is local.
    ///
    /// # Errors
    ///
    /// `Io` if the object does not exist or cannot be read.
    pub(crate) fn small_object(&self, name: &str, max_bytes: u64) -> Result<Option<Bytes>> {
        #[cfg(feature = "remote")]
        if let Some(remote) = &self.remote {
            return remote.small(name, max_bytes).map(Some);
        }
        let _ = (name, max_bytes);
        Ok(None)
    }

    /// Opens a file that the manifest or the shard table lists with `bytes` and `sha256`. For a remote dataset, only the
    /// bytes that are read are fetched.
    ///
    /// # Errors
    ///
    /// `Corrupt` if the size differs or the path leads out of the dataset; `Io` if the file cannot be opened.
    pub fn open(&self, path: &str, bytes: u64, sha256: &str, access: Access) -> Result<Blob> {
        #[cfg(feature = "remote")]
        if let Some(remote) = &self.remote {
            return remote.open(path, bytes, sha256);
        }
        let _ = sha256;
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
