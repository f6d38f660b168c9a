//! Access to a dataset in object storage.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use super::super::blob::Blob;
use super::super::location::RemoteOptions;
use super::super::lock::briefly;
use super::super::object_url::ObjectUrl;
use super::bucket::Bucket;
use super::cache::Cache;
use super::remote_file::{BlockStore, RemoteFile};
use crate::error::{Error, Result};

/// Default limit of the cache in bytes.
const CACHE_BYTES: u64 = 64 << 30;
/// Limit of the in-memory cache in bytes, which is used if there is no cache directory.
const MEMORY_BYTES: u64 = 256 << 20;

/// How often a file is dropped from the caches because it is damaged: more than once, because several threads may have
/// read the damaged bytes.
const MAX_DROPS: u32 = 4;

/// A dataset in object storage, and the caches for blocks already read from it.
#[derive(Debug, Clone)]
pub(in crate::storage) struct RemoteDataset {
    url: ObjectUrl,
    bucket: Bucket,
    store: BlockStore,
    /// How often each file was found damaged and dropped from the caches.
    dropped: Arc<Mutex<HashMap<String, u32>>>,
}

impl RemoteDataset {
    pub(in crate::storage) fn new(url: &ObjectUrl, options: &RemoteOptions) -> Result<Self> {
        let bucket = Bucket::with(url, &options.settings.iter().cloned().collect())?;
        let max_bytes = options.cache_bytes.unwrap_or(CACHE_BYTES);
        let cache = match &options.cache_dir {
            Some(dir) => {
                check_cache_dir(dir)?;
                Some(Cache::open(dir, max_bytes)?)
            }
            None if options.cache_bytes.is_some() => {
                return Err(Error::usage("a cache limit requires a cache directory")
                    .of_option("cache_bytes")
                    .help("set cache_dir, or leave out cache_bytes"));
            }
            None => None,
        };
        let store = BlockStore::new(cache, MEMORY_BYTES);
        Ok(Self { url: url.clone(), bucket, store, dropped: Arc::default() })
    }

    pub(in crate::storage) fn small(&self, name: &str, max_bytes: u64) -> Result<Bytes> {
        Ok(self.bucket.get(&self.url.join(name)?, max_bytes)?.0)
    }

    pub(in crate::storage) fn open(&self, path: &str, bytes: u64, sha256: &str) -> Result<Blob> {
        let url = self.url.join(path)?;
        Ok(Blob::from_remote(RemoteFile::open(&self.bucket, url, bytes, sha256, &self.store)?))
    }

    /// Drops what was fetched of a file that differs from its checksums, so that it is fetched again. Returns whether it
    /// did: after [`MAX_DROPS`] times, the file counts as damaged in the store.
    pub(in crate::storage) fn forget(&self, path: &str, sha256: &str) -> bool {
        let Ok(url) = self.url.join(path) else { return false };
        let Some(mut dropped) = briefly(&self.dropped) else { return false };
        let drops = dropped.entry(path.to_owned()).or_default();
        *drops += 1;
        *drops <= MAX_DROPS && self.store.forget(&url, sha256).is_ok()
    }

    pub(in crate::storage) fn has_fetched(&self) -> bool {
        self.store.take_used()
    }
}

/// Refuses a cache that is not a local directory.
fn check_cache_dir(dir: &Path) -> Result<()> {
    let what = if dir.as_os_str().is_empty() {
        "the path is empty".to_owned()
    } else if ObjectUrl::is_url(dir) {
        format!("{:?} is a URL, not a local path", dir.to_string_lossy())
    } else {
        return Ok(());
    };
    Err(Error::usage(what)
        .of_option("cache_dir")
        .help("name a local directory, or leave out cache_dir to cache in memory"))
}
