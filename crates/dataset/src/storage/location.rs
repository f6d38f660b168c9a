//! Where the files of a dataset are.

use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::blob::{Access, Blob};
use super::object_url::ObjectUrl;
use super::paths::resolve;
#[cfg(feature = "remote")]
use super::remote::RemoteDataset;
use super::remote_options::RemoteOptions;
use crate::error::{Error, Result};

/// The files of one dataset: in a directory, or under an address in object storage.
#[derive(Debug, Clone)]
pub struct Location {
    path: PathBuf,
    #[cfg(feature = "remote")]
    remote: Option<RemoteDataset>,
}

impl Location {
    /// The dataset at `path`, which may be an address. Nothing is read.
    ///
    /// # Errors
    ///
    /// `Usage` for an address that cannot be one, for settings that the store does not have, and for options of object
    /// storage with a local path; `Unsupported` for an address in a build without the feature `remote`.
    pub fn new(path: &Path, options: &RemoteOptions) -> Result<Self> {
        let Some(url) = ObjectUrl::parse(path)? else {
            if *options != RemoteOptions::default() {
                return Err(Error::usage("storage options and a cache are for datasets in object storage")
                    .at_path(path)
                    .help("leave them out, or name an address as s3://bucket/dataset"));
            }
            return Ok(Self::local(path));
        };
        Self::remote(&url, options)
    }

    /// The dataset in the directory `path`, whatever it is called.
    pub fn local(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            #[cfg(feature = "remote")]
            remote: None,
        }
    }

    #[cfg(feature = "remote")]
    fn remote(url: &ObjectUrl, options: &RemoteOptions) -> Result<Self> {
        Ok(Self { path: url.into(), remote: Some(RemoteDataset::new(url, options)?) })
    }

    #[cfg(not(feature = "remote"))]
    fn remote(url: &ObjectUrl, _: &RemoteOptions) -> Result<Self> {
        Err(Error::new(crate::error::ErrorKind::Unsupported, "this build cannot read from object storage")
            .at_path(url.as_path())
            .help("build it with the feature `remote`"))
    }

    /// The directory or address: for messages, and to open the dataset again.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is in object storage.
    pub fn is_remote(&self) -> bool {
        #[cfg(feature = "remote")]
        return self.remote.is_some();
        #[cfg(not(feature = "remote"))]
        return false;
    }

    /// Whether bytes were fetched from object storage since the last call.
    pub fn has_fetched(&self) -> bool {
        #[cfg(feature = "remote")]
        return self.remote.as_ref().is_some_and(RemoteDataset::has_fetched);
        #[cfg(not(feature = "remote"))]
        return false;
    }

    /// The object called `name`, of at most `most` bytes; `None` when the dataset is local.
    ///
    /// # Errors
    ///
    /// `Io`: there is none, or it cannot be read.
    pub(crate) fn small_object(&self, name: &str, most: u64) -> Result<Option<Bytes>> {
        #[cfg(feature = "remote")]
        if let Some(remote) = &self.remote {
            return remote.small(name, most).map(Some);
        }
        let _ = (name, most);
        Ok(None)
    }

    /// A file that the manifest or the shard table lists with `bytes` and `sha256`. Its size is checked, and of an object what is
    /// read is fetched.
    ///
    /// # Errors
    ///
    /// `Corrupt` when it has another size, or the path leads out of the dataset; `Io`.
    pub fn open(&self, path: &str, bytes: u64, sha256: &str, access: Access) -> Result<Blob> {
        #[cfg(feature = "remote")]
        if let Some(remote) = &self.remote {
            return remote.open(path, bytes, sha256);
        }
        let _ = sha256;
        Blob::open(&resolve(&self.path, path)?, access, Some(bytes))
    }

    /// As [`Self::open`], for a file that will be needed as a whole and all the time, as an index.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn open_whole(&self, path: &str, bytes: u64, sha256: &str, access: Access) -> Result<Blob> {
        let blob = self.open(path, bytes, sha256, access)?;
        if !self.is_remote() {
            return Ok(blob);
        }
        Ok(Blob::from_bytes(blob.path(), blob.read(0, bytes)?))
    }
}
