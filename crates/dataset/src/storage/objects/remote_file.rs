//! One object, read in blocks.

use std::ops::Range;
use std::path::Path;
use std::sync::OnceLock;

use bytes::{Bytes, BytesMut};

use super::super::object_url::ObjectUrl;
use super::bucket::Bucket;
use super::cache::{BLOCK_BYTES, Cache, CachedFile};
use super::held::Held;
use crate::error::Result;

/// Bytes of one object that are held in memory, without a cache.
const HELD_BYTES: u64 = 64 << 20;
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
}

#[derive(Debug)]
enum Kept {
    Cached(CachedFile),
    Held(Held),
}

impl RemoteFile {
    /// The object at `url`, of `bytes` bytes. With a cache, `sha256` is the hash of its content. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`](crate::error::ErrorKind): the cache cannot be used.
    pub fn open(bucket: &Bucket, url: ObjectUrl, bytes: u64, cached: Option<(&Cache, &str)>) -> Result<Self> {
        let kept = match cached {
            Some((cache, sha256)) => Kept::Cached(cache.file(sha256, bytes)?),
            None => Kept::Held(Held::new(HELD_BYTES)),
        };
        Ok(Self { bucket: bucket.clone(), url, bytes, etag: OnceLock::new(), kept })
    }

    /// Its address, for messages.
    pub fn path(&self) -> &Path {
        self.url.as_path()
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether it is in the cache no longer: opened anew, it is kept again.
    pub fn is_evicted(&self) -> bool {
        matches!(&self.kept, Kept::Cached(file) if file.is_removed())
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
            Kept::Cached(file) => {
                let missing = self.missing(&[range.clone()], |block| file.has(block))?;
                self.fetch(&missing, |block, bytes| file.keep(block, &bytes))?;
                Ok(file.map().slice(range.start as usize..range.end as usize))
            }
            Kept::Held(held) => self.read_held(held, range),
        }
    }

    /// The bytes of `range`, if all of them are there and checked.
    pub fn lend(&self, range: Range<u64>) -> Option<&[u8]> {
        let Kept::Cached(file) = &self.kept else { return None };
        let is_there = blocks(&range).all(|block| file.is_verified(block));
        is_there.then(|| file.map().get(range.start as usize..range.end as usize))?
    }

    /// Fetches what is missing of `ranges`, many requests at a time.
    ///
    /// # Errors
    ///
    /// As [`Self::read`].
    pub fn prefetch(&self, ranges: &[Range<u64>]) -> Result<()> {
        match &self.kept {
            Kept::Cached(file) => {
                let missing = self.missing(ranges, |block| file.has(block))?;
                self.fetch(&missing, |block, bytes| file.keep(block, &bytes))
            }
            Kept::Held(held) => {
                let missing = self.missing(ranges, |block| Ok(held.get(block).is_some()))?;
                self.fetch(&missing, |block, bytes| {
                    held.keep(block, bytes);
                    Ok(())
                })
            }
        }
    }

    /// As [`Self::read`], where blocks that were just fetched may be gone again.
    fn read_held(&self, held: &Held, range: Range<u64>) -> Result<Bytes> {
        let numbers = blocks(&range);
        let first = numbers.start;
        let mut found: Vec<Option<Bytes>> = numbers.map(|block| held.get(block)).collect();
        let missing =
            self.missing(&[range.clone()], |block| Ok(found[(block - first) as usize].is_some()))?;
        self.fetch(&missing, |block, bytes| {
            held.keep(block, bytes.clone());
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
        if blocks(&range).count() == 1 {
            return Ok(parts.next().unwrap_or_default());
        }
        let mut whole = BytesMut::with_capacity((range.end - range.start) as usize);
        parts.for_each(|part| whole.extend_from_slice(&part));
        Ok(whole.freeze())
    }

    /// The blocks of `ranges` that are not there, in order.
    fn missing(&self, ranges: &[Range<u64>], mut has: impl FnMut(u64) -> Result<bool>) -> Result<Vec<u64>> {
        let mut missing = Vec::new();
        for range in ranges.iter().filter(|range| !range.is_empty()) {
            for block in blocks(range) {
                if !has(block)? {
                    missing.push(block);
                }
            }
        }
        missing.sort_unstable();
        missing.dedup();
        Ok(missing)
    }

    /// Fetches blocks; neighbours come with one request.
    fn fetch(&self, missing: &[u64], mut keep: impl FnMut(u64, Bytes) -> Result<()>) -> Result<()> {
        if missing.is_empty() {
            return Ok(());
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
