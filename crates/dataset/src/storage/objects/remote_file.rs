//! One object, read in blocks.

use std::cell::RefCell;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use xxhash_rust::xxh3::xxh3_128;

use super::super::object_url::ObjectUrl;
use super::bucket::Bucket;
use super::cache::{BLOCK_BYTES, Cache, CachedFile};
use super::held::Held;
use super::in_flight::InFlight;
use crate::error::Result;

/// Bytes that one request asks for at most.
const REQUEST_BYTES: u64 = 8 << 20;
/// Time between two looks at a block that another thread fetches.
const WAIT: Duration = Duration::from_micros(500);

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
    in_flight: Arc<InFlight>,
    /// Hash of the address.
    id: u128,
}

#[derive(Debug)]
enum Kept {
    Cached(CachedFile),
    Held(Arc<Held>),
}

impl RemoteFile {
    /// The object at `url`, of `bytes` bytes, whose content has the hash `sha256`: what is read is kept in `cache`. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::error::ErrorKind): `sha256` is none.
    pub fn cached(
        bucket: &Bucket,
        url: ObjectUrl,
        bytes: u64,
        in_flight: &Arc<InFlight>,
        cache: &Cache,
        sha256: &str,
    ) -> Result<Self> {
        Ok(Self::new(bucket, url, bytes, in_flight, Kept::Cached(cache.file(sha256, bytes)?)))
    }

    /// The object at `url`, of `bytes` bytes: what is read is kept in memory. Sends nothing.
    pub fn held(
        bucket: &Bucket,
        url: ObjectUrl,
        bytes: u64,
        in_flight: &Arc<InFlight>,
        held: &Arc<Held>,
    ) -> Self {
        Self::new(bucket, url, bytes, in_flight, Kept::Held(Arc::clone(held)))
    }

    fn new(bucket: &Bucket, url: ObjectUrl, bytes: u64, in_flight: &Arc<InFlight>, kept: Kept) -> Self {
        let id = xxh3_128(url.as_str().as_bytes());
        let (bucket, in_flight) = (bucket.clone(), Arc::clone(in_flight));
        Self { bucket, url, bytes, etag: OnceLock::new(), kept, in_flight, id }
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
                self.fetch(
                    &range,
                    |block| file.has(block),
                    |block, bytes| cached.keep(&file, block, &bytes),
                )?;
                Ok(file.map().slice(range.start as usize..range.end as usize))
            }
            Kept::Held(held) => self.read_held(held, &range),
        }
    }

    /// As [`Self::read`], where blocks that were just fetched may be gone again.
    fn read_held(&self, held: &Held, range: &Range<u64>) -> Result<Bytes> {
        let first = blocks(range).start;
        let found: RefCell<Vec<Option<Bytes>>> = RefCell::new(vec![None; blocks(range).count()]);
        let has = |block: u64| {
            let mut found = found.borrow_mut();
            let slot = &mut found[(block - first) as usize];
            if slot.is_none() {
                *slot = held.get((self.id, block));
            }
            Ok(slot.is_some())
        };
        self.fetch(range, has, |block, bytes| {
            held.keep((self.id, block), bytes.clone());
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

    /// Makes sure that all blocks of `range` are there: fetches those that are missing, and waits for those that another thread
    /// fetches.
    fn fetch(
        &self,
        range: &Range<u64>,
        has: impl Fn(u64) -> Result<bool>,
        mut keep: impl FnMut(u64, Bytes) -> Result<()>,
    ) -> Result<()> {
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
            let claim = self.in_flight.claim(self.id, &missing);
            // Another thread may have fetched them since this one has looked.
            let mut mine = Vec::new();
            for &block in &claim.blocks {
                if !has(block)? {
                    mine.push(block);
                }
            }
            self.request(&mine, &mut keep)?;
            if claim.blocks.len() < missing.len() {
                std::thread::sleep(WAIT);
            }
        }
    }

    /// Requests blocks; neighbours come with one request.
    fn request(&self, missing: &[u64], keep: &mut impl FnMut(u64, Bytes) -> Result<()>) -> Result<()> {
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
