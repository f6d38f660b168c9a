//! Access to a dataset in object storage.

use std::sync::Arc;

use bytes::Bytes;

use super::blob::Blob;
use super::object_url::ObjectUrl;
use super::objects::{Bucket, Cache, Held, InFlight, RemoteFile};
use super::remote_options::RemoteOptions;
use crate::error::{Error, Result};

/// Default limit of the cache in bytes.
const CACHE_BYTES: u64 = 64 << 30;
/// Limit in bytes for blocks held in memory if there is no cache.
const HELD_BYTES: u64 = 256 << 20;

/// Prefix of a dataset, and the storage for blocks already read from it.
#[derive(Debug, Clone)]
pub(super) struct RemoteDataset {
    url: ObjectUrl,
    bucket: Bucket,
    cache: Option<Cache>,
    held: Arc<Held>,
    in_flight: Arc<InFlight>,
}

impl RemoteDataset {
    pub(super) fn new(url: &ObjectUrl, options: &RemoteOptions) -> Result<Self> {
        let bucket = Bucket::with(url, &options.settings.iter().cloned().collect())?;
        let most = options.cache_bytes.unwrap_or(CACHE_BYTES);
        let cache = match &options.cache_dir {
            Some(dir) => Some(Cache::open(dir, most)?),
            None if options.cache_bytes.is_some() => {
                return Err(Error::usage("a limit of the cache needs a cache")
                    .of_option("cache_bytes")
                    .help("name its directory with cache_dir"));
            }
            None => None,
        };
        let held = Arc::new(Held::new(HELD_BYTES));
        Ok(Self { url: url.clone(), bucket, cache, held, in_flight: Arc::default() })
    }

    pub(super) fn small(&self, name: &str, most: u64) -> Result<Bytes> {
        Ok(self.bucket.get(&self.url.join(name)?, most)?.0)
    }

    pub(super) fn open(&self, path: &str, bytes: u64, sha256: &str) -> Result<Blob> {
        let url = self.url.join(path)?;
        let file = match &self.cache {
            Some(cache) => RemoteFile::cached(&self.bucket, url, bytes, &self.in_flight, cache, sha256)?,
            None => RemoteFile::held(&self.bucket, url, bytes, &self.in_flight, &self.held),
        };
        Ok(Blob::from_remote(file))
    }

    pub(super) fn has_fetched(&self) -> bool {
        self.in_flight.take_used()
    }
}
