//! One object, read in blocks.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::{Bytes, BytesMut};

use super::super::object_url::ObjectUrl;
use super::bucket::Bucket;
use super::cache::{BLOCK_BYTES, Cache, CachedFile};
use super::held::Held;
use crate::error::Result;

/// Bytes that one request asks for at most.
const REQUEST_BYTES: u64 = 8 << 20;

/// An object of known size, opened for random access. What was read once is kept: in the cache or, without one, in memory, as
/// long as there is room.
#[derive(Debug)]
pub struct RemoteFile {
    bucket: Bucket,
    url: ObjectUrl,
    bytes: u64,
    /// The entity tag of the first answer: later ones must have it, too.
    etag: OnceLock<Option<String>>,
    kept: Kept,
    /// Set by every fetch.
    fetched: Option<Arc<AtomicBool>>,
}

#[derive(Debug)]
enum Kept {
    Cached(CachedFile),
    Held { held: Arc<Held>, file: u64 },
}

impl RemoteFile {
    /// The object at `url`, of `bytes` bytes, whose content has the hash `sha256`: what is read is kept in `cache`. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::error::ErrorKind): `sha256` is none.
    pub fn cached(bucket: &Bucket, url: ObjectUrl, bytes: u64, cache: &Cache, sha256: &str) -> Result<Self> {
        let kept = Kept::Cached(cache.file(sha256, bytes)?);
        Ok(Self { bucket: bucket.clone(), url, bytes, etag: OnceLock::new(), kept, fetched: None })
    }

    /// The object at `url`, of `bytes` bytes: what is read is kept in memory. Sends nothing.
    pub fn held(bucket: &Bucket, url: ObjectUrl, bytes: u64, held: &Arc<Held>) -> Self {
        let kept = Kept::Held { held: Arc::clone(held), file: held.file() };
        Self { bucket: bucket.clone(), url, bytes, etag: OnceLock::new(), kept, fetched: None }
    }

    /// Sets `fetched` with every request.
    #[must_use]
    pub fn noting(self, fetched: &Arc<AtomicBool>) -> Self {
        Self { fetched: Some(Arc::clone(fetched)), ..self }
    }

    /// Its address, for messages.
    pub fn path(&self) -> &Path {
        self.url.as_path()
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The bytes of `range`, which lies within the object.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`](crate::error::ErrorKind) when they cannot be fetched or kept.
    pub fn read(&self, range: Range<u64>) -> Result<Bytes> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        match &self.kept {
            Kept::Cached(cached) => {
                let file = cached.opened()?;
                let missing = self.missing(&range, |block| file.has(block))?;
                self.fetch(&missing, |block, bytes| cached.keep(&file, block, &bytes))?;
                Ok(file.map().slice(range.start as usize..range.end as usize))
            }
            Kept::Held { held, file } => self.read_held(held, *file, &range),
        }
    }

    /// As [`Self::read`], where blocks that were just fetched may be gone again.
    fn read_held(&self, held: &Held, file: u64, range: &Range<u64>) -> Result<Bytes> {
        let numbers = blocks(range);
        let first = numbers.start;
        let mut found: Vec<Option<Bytes>> = numbers.map(|block| held.get((file, block))).collect();
        let missing = self.missing(range, |block| Ok(found[(block - first) as usize].is_some()))?;
        self.fetch(&missing, |block, bytes| {
            held.keep((file, block), bytes.clone());
            found[(block - first) as usize] = Some(bytes);
            Ok(())
        })?;
        let within = |block: u64, bytes: &Bytes| {
            let start = block * BLOCK_BYTES;
            let from = range.start.max(start) - start;
            let to = range.end.min(start + bytes.len() as u64) - start;
            bytes.slice(from as usize..to as usize)
        };
        let mut parts =
            (first..).zip(found.into_iter().flatten()).map(|(block, bytes)| within(block, &bytes));
        if blocks(range).count() == 1 {
            return Ok(parts.next().unwrap_or_default());
        }
        let mut whole = BytesMut::with_capacity((range.end - range.start) as usize);
        parts.for_each(|part| whole.extend_from_slice(&part));
        Ok(whole.freeze())
    }

    /// The blocks of `range` that are not there, in order.
    fn missing(&self, range: &Range<u64>, mut has: impl FnMut(u64) -> Result<bool>) -> Result<Vec<u64>> {
        let mut missing = Vec::new();
        for block in blocks(range) {
            if !has(block)? {
                missing.push(block);
            }
        }
        Ok(missing)
    }

    /// Fetches blocks; neighbours come with one request.
    fn fetch(&self, missing: &[u64], mut keep: impl FnMut(u64, Bytes) -> Result<()>) -> Result<()> {
        if missing.is_empty() {
            return Ok(());
        }
        if let Some(fetched) = &self.fetched {
            fetched.store(true, Ordering::Relaxed);
        }
        let most = REQUEST_BYTES / BLOCK_BYTES;
        let mut runs: Vec<Range<u64>> = Vec::new();
        for &block in missing {
            match runs.last_mut() {
                Some(run) if run.end == block && run.end - run.start < most => run.end += 1,
                _ => runs.push(block..block + 1),
            }
        }
        let ranges: Vec<Range<u64>> =
            runs.iter().map(|run| run.start * BLOCK_BYTES..(run.end * BLOCK_BYTES).min(self.bytes)).collect();
        let etag = self.etag.get().cloned().flatten();
        let (parts, etag) = self.bucket.get_ranges(&self.url, self.bytes, etag.as_deref(), &ranges)?;
        self.etag.get_or_init(|| etag);
        for (run, part) in runs.into_iter().zip(parts) {
            for block in run.clone() {
                let start = ((block - run.start) * BLOCK_BYTES) as usize;
                let end = (start + BLOCK_BYTES as usize).min(part.len());
                keep(block, part.slice(start..end))?;
            }
        }
        Ok(())
    }
}

fn blocks(range: &Range<u64>) -> Range<u64> {
    range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES)
}
