//! Block-wise reading of one object.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use xxhash_rust::xxh3::xxh3_128;

use super::super::interrupt;
use super::super::object_url::ObjectUrl;
use super::bucket::Bucket;
use super::cache::{BLOCK_BYTES, Cache, CachedFile};
use super::memory_cache::{InFlight, MemoryCache};
use crate::error::Result;

/// Maximum bytes per request.
const REQUEST_BYTES: u64 = 8 << 20;
/// Interval for checking on a block that another thread is fetching.
const POLL_INTERVAL: Duration = Duration::from_micros(500);

/// Where the blocks of the files of one dataset are kept, and which of them are being fetched. Clones share both.
#[derive(Debug, Clone)]
pub(in crate::storage) struct BlockStore {
    cache: Option<Arc<Cache>>,
    /// Used without a cache.
    memory: Arc<MemoryCache>,
    in_flight: Arc<InFlight>,
}

impl BlockStore {
    /// Creates a store that keeps blocks in `cache` or, without one, up to `memory_bytes` bytes of them in memory.
    pub(in crate::storage) fn new(cache: Option<Arc<Cache>>, memory_bytes: u64) -> Self {
        Self { cache, memory: Arc::new(MemoryCache::new(memory_bytes)), in_flight: Arc::default() }
    }

    /// Drops what was read of the object at `url`, whose content should have the hash `sha256`.
    pub(in crate::storage) fn forget(&self, url: &ObjectUrl, sha256: &str) -> Result<()> {
        match &self.cache {
            Some(cache) => cache.remove(sha256),
            None => {
                self.memory.forget(file_id(url));
                Ok(())
            }
        }
    }

    /// Returns whether any blocks were missing since the last call.
    pub(in crate::storage) fn take_used(&self) -> bool {
        self.in_flight.take_used()
    }
}

/// An object of known size, opened for random access. Bytes that were read are kept in a [`BlockStore`] while there is
/// room.
#[derive(Debug)]
pub(in crate::storage) struct RemoteFile {
    bucket: Bucket,
    pub(in crate::storage) url: ObjectUrl,
    /// Size of the object.
    pub(in crate::storage) bytes: u64,
    /// Entity tag of the first response. Later responses must have the same one.
    etag: OnceLock<Option<String>>,
    store: BlockStore,
    /// The object in the cache, if there is one.
    cached: Option<CachedFile>,
    /// Hash of the address.
    id: u128,
}

impl RemoteFile {
    /// Opens the object of `bytes` bytes at `url`, whose content has the hash `sha256`. Sends no request.
    pub(in crate::storage) fn open(
        bucket: &Bucket,
        url: ObjectUrl,
        bytes: u64,
        sha256: &str,
        store: &BlockStore,
    ) -> Result<Self> {
        let cached = store.cache.as_ref().map(|cache| cache.file(sha256, bytes)).transpose()?;
        let (id, bucket, store) = (file_id(&url), bucket.clone(), store.clone());
        Ok(Self { bucket, url, bytes, etag: OnceLock::new(), store, cached, id })
    }

    /// Returns the bytes of `range`, which must lie within the object.
    pub(in crate::storage) fn read(&self, range: Range<u64>) -> Result<Bytes> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let Some(cached) = &self.cached else { return self.read_in_memory(&range) };
        let file = cached.opened()?;
        self.fetch(&range, |block| file.has(block), |block, bytes| cached.keep(&file, block, &bytes))?;
        Ok(file.map().slice(range.start as usize..range.end as usize))
    }

    /// Implements [`Self::read`] without a disk cache. Collects the blocks itself, because blocks that were just fetched
    /// may already be evicted from memory.
    fn read_in_memory(&self, range: &Range<u64>) -> Result<Bytes> {
        let memory = &self.store.memory;
        let first = blocks(range).start;
        let found: RefCell<Vec<Option<Bytes>>> = RefCell::new(vec![None; blocks(range).count()]);
        let has = |block: u64| {
            let mut found = found.borrow_mut();
            let slot = &mut found[(block - first) as usize];
            if slot.is_none() {
                *slot = memory.get((self.id, block));
            }
            Ok(slot.is_some())
        };
        self.fetch(range, has, |block, bytes| {
            memory.keep((self.id, block), bytes.clone());
            found.borrow_mut()[(block - first) as usize] = Some(bytes);
            Ok(())
        })?;
        let found = found.into_inner();
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

    /// Ensures that all blocks of `range` are present: fetches missing blocks and waits for blocks that another thread
    /// is fetching.
    fn fetch(
        &self,
        range: &Range<u64>,
        has: impl Fn(u64) -> Result<bool>,
        mut keep: impl FnMut(u64, Bytes) -> Result<()>,
    ) -> Result<()> {
        let start = Instant::now();
        loop {
            let mut missing = Vec::new();
            for block in blocks(range) {
                if !has(block)? {
                    missing.push(block);
                }
            }
            if missing.is_empty() {
                return Ok(());
            }
            let claim = self.store.in_flight.claim(self.id, &missing);
            // Another thread may have fetched them since the check above.
            let mut mine = Vec::new();
            for &block in &claim.blocks {
                if !has(block)? {
                    mine.push(block);
                }
            }
            if !mine.is_empty() {
                // Blocks that another thread failed to fetch are not requested again.
                self.bucket.check_outage(&self.url, start)?;
                self.request(&mine, &mut keep)?;
            }
            if claim.blocks.len() < missing.len() {
                interrupt::check()?;
                std::thread::sleep(POLL_INTERVAL);
            }
        }
    }

    /// Fetches blocks; adjacent blocks share a request.
    fn request(&self, missing: &[u64], keep: &mut impl FnMut(u64, Bytes) -> Result<()>) -> Result<()> {
        let max_blocks = REQUEST_BYTES / BLOCK_BYTES;
        let mut runs: Vec<Range<u64>> = Vec::new();
        for &block in missing {
            match runs.last_mut() {
                Some(run) if run.end == block && run.end - run.start < max_blocks => run.end += 1,
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

/// Returns the hash of the address `url`, which identifies its blocks in memory.
fn file_id(url: &ObjectUrl) -> u128 {
    xxh3_128(url.as_str().as_bytes())
}

fn blocks(range: &Range<u64>) -> Range<u64> {
    range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES)
}
