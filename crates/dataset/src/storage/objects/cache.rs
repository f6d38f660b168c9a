//! Cache of objects in a local directory, shared by several processes.
//!
//! An object is stored in two files named after the SHA-256 of its content, so equal shards of several datasets are
//! stored once:
//!
//! | file | bytes |
//! |---|---|
//! | `<sha256>.data` | the object as a sparse file: only fetched blocks take space |
//! | `<sha256>.blocks` | 8 bytes per block, little-endian: XXH3-64 of the block, or 0 if it is missing |
//!
//! A block is written before its hash. Each process compares a block with its hash on first use, so a power failure or
//! a defective disk causes another request, not wrong bytes. Bytes are never overwritten with different bytes, so no
//! lock is needed: two processes that miss the same block both fetch it.
//!
//! If the blocks exceed the limit, whole objects are removed, least recently opened first. Processes that have a
//! removed object open keep it until their next check, after fetching about 256 MiB more.

use std::fs::{File, FileTimes, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::SystemTime;

use bytes::Bytes;
use rustix::fs::OFlags;
use xxhash_rust::xxh3::xxh3_64;

use super::super::map::map;
use super::super::paths::{create_dir, list_dir, lstat, remove_file};
use crate::error::{Error, Result};
use crate::storage::briefly;

/// Size of a block in bytes. One request fetches one or more blocks.
pub(super) const BLOCK_BYTES: u64 = 1 << 20;
/// Number of fetched bytes after which the used space is measured again.
const COUNT_AFTER_BYTES: u64 = 256 << 20;

/// Length of an object's file name without the extension, in bytes.
const NAME_BYTES: usize = 64;
const DATA: &str = "data";
const BLOCKS: &str = "blocks";

/// A cache directory.
#[derive(Debug)]
pub(in crate::storage) struct Cache {
    dir: PathBuf,
    max_bytes: u64,
    /// Bytes written by this process since it last measured the used space.
    uncounted: AtomicU64,
    /// Files that this process may have open.
    slots: Mutex<Vec<Weak<FileSlot>>>,
}

/// An object in the cache. Opened on first use, and again after it was removed.
#[derive(Debug)]
pub(super) struct CachedFile {
    cache: Arc<Cache>,
    sha256: String,
    bytes: u64,
    slot: Arc<FileSlot>,
}

type FileSlot = Mutex<Option<Arc<OpenFile>>>;

#[derive(Debug)]
pub(super) struct OpenFile {
    path: PathBuf,
    data: File,
    /// Map of `data`. Missing blocks are zero.
    map: Bytes,
    hashes: File,
    /// 1 for blocks that this process has compared with their hash.
    verified: Box<[AtomicU8]>,
}

impl Cache {
    /// Opens the cache in `dir`, which is created if missing, with a limit of `max_bytes` bytes.
    pub(in crate::storage) fn open(dir: &Path, max_bytes: u64) -> Result<Arc<Self>> {
        create_dir(dir)?;
        let (uncounted, slots) = (AtomicU64::new(0), Mutex::default());
        let cache = Self { dir: dir.to_owned(), max_bytes, uncounted, slots };
        cache.make_room()?;
        Ok(Arc::new(cache))
    }

    /// Returns the object of `bytes` bytes whose content has the hash `sha256`.
    pub(super) fn file(self: &Arc<Self>, sha256: &str, bytes: u64) -> Result<CachedFile> {
        if sha256.len() != NAME_BYTES || !sha256.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(Error::corrupt(format!("the manifest contains an invalid SHA-256: {sha256:?}")));
        }
        let slot = Arc::new(FileSlot::default());
        if let Some(mut slots) = briefly(&self.slots) {
            slots.retain(|slot| slot.strong_count() > 0);
            slots.push(Arc::downgrade(&slot));
        }
        Ok(CachedFile { cache: Arc::clone(self), sha256: sha256.to_owned(), bytes, slot })
    }

    /// Counts written bytes and, from time to time, removes objects that exceed the limit.
    fn wrote(&self, bytes: u64) -> Result<()> {
        let limit = COUNT_AFTER_BYTES.min(self.max_bytes / 8).max(1);
        if self.uncounted.fetch_add(bytes, Ordering::Relaxed) + bytes < limit {
            return Ok(());
        }
        self.uncounted.store(0, Ordering::Relaxed);
        self.make_room()
    }

    /// Removes the least recently opened objects until the remaining ones fit.
    fn make_room(&self) -> Result<()> {
        let mut objects = Vec::new();
        let mut sum = 0;
        for entry in list_dir(&self.dir)? {
            let name = entry.name.to_string_lossy().into_owned();
            let Some(name) = name.strip_suffix(DATA).and_then(|name| name.strip_suffix('.')) else {
                continue;
            };
            if name.len() != NAME_BYTES {
                continue;
            }
            let hashes = self.dir.join(format!("{name}.{BLOCKS}"));
            // Another process may have just removed it.
            let Some(data) = lstat(&entry.path)? else { continue };
            let opened = lstat(&hashes)?.and_then(|meta| meta.modified().ok());
            let bytes = data.blocks() * 512;
            sum += bytes;
            objects.push((opened, bytes, entry.path, hashes));
        }
        objects.sort();
        for (_, bytes, data, hashes) in objects {
            if sum <= self.max_bytes {
                break;
            }
            // Hashes first: without them, all blocks count as missing.
            remove_file(&hashes)?;
            remove_file(&data)?;
            sum -= bytes;
        }
        self.close_removed();
        Ok(())
    }

    /// Removes the object whose content should have the hash `sha256`: its bytes, as they were received, are damaged.
    pub(super) fn remove(&self, sha256: &str) -> Result<()> {
        // Hashes first: without them, all blocks count as missing.
        for extension in [BLOCKS, DATA] {
            remove_file(&self.dir.join(format!("{sha256}.{extension}")))?;
        }
        self.close_removed();
        Ok(())
    }

    /// Closes files that this or another process has removed. Their space is then freed when the last view of them is
    /// dropped.
    fn close_removed(&self) {
        let slots = briefly(&self.slots).map(|slots| slots.clone()).unwrap_or_default();
        for slot in slots.iter().filter_map(Weak::upgrade) {
            if let Some(mut slot) = briefly(&slot)
                && slot.as_ref().is_some_and(|file| file.is_removed())
            {
                *slot = None;
            }
        }
    }
}

fn open(path: &Path) -> Result<File> {
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(flags)
        .open(path)
        .map_err(|e| Error::io("open the file in the cache", path, e))
}

impl CachedFile {
    /// Opens the object, or returns it if it is already open.
    pub(super) fn opened(&self) -> Result<Arc<OpenFile>> {
        let mut slot = briefly(&self.slot);
        if let Some(Some(file)) = slot.as_deref() {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(OpenFile::open(&self.cache.dir, &self.sha256, self.bytes)?);
        if let Some(slot) = slot.as_deref_mut() {
            *slot = Some(Arc::clone(&file));
        }
        Ok(file)
    }

    /// Stores a fetched block in `file`, which was returned by [`Self::opened`].
    pub(super) fn keep(&self, file: &OpenFile, block: u64, bytes: &[u8]) -> Result<()> {
        file.keep(block, bytes)?;
        self.cache.wrote(bytes.len() as u64)
    }
}

impl OpenFile {
    fn open(dir: &Path, sha256: &str, bytes: u64) -> Result<Self> {
        let path = dir.join(format!("{sha256}.{DATA}"));
        let data = open(&path)?;
        let fail = |e| Error::io("prepare the file in the cache", &path, e);
        if data.metadata().map_err(fail)?.len() != bytes {
            data.set_len(bytes).map_err(fail)?;
        }
        let map = map(&data).map_err(fail)?;
        let hashes = open(&dir.join(format!("{sha256}.{BLOCKS}")))?;
        // The modification time identifies the least recently opened object. If it cannot be set, another object is
        // removed.
        let _ = hashes.set_times(FileTimes::new().set_modified(SystemTime::now()));
        let blocks = usize::try_from(bytes.div_ceil(BLOCK_BYTES)).unwrap_or(usize::MAX);
        let verified = std::iter::repeat_with(AtomicU8::default).take(blocks).collect();
        Ok(Self { path, data, map, hashes, verified })
    }

    /// Returns whether the block is present and matches its hash.
    pub(super) fn has(&self, block: u64) -> Result<bool> {
        let Some(verified) = self.verified.get(block as usize) else { return Ok(false) };
        if verified.load(Ordering::Acquire) == 1 {
            return Ok(true);
        }
        let mut hash = [0; 8];
        match self.hashes.read_exact_at(&mut hash, block * 8) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            Err(e) => return Err(Error::io("read the cache", &self.path, e)),
            Ok(()) => {}
        }
        let hash = u64::from_le_bytes(hash);
        if hash == 0 || hash != hash_of(&self.block(block)) {
            return Ok(false);
        }
        verified.store(1, Ordering::Release);
        Ok(true)
    }

    fn keep(&self, block: u64, bytes: &[u8]) -> Result<()> {
        let fail = |e| {
            Error::io("write the cache", &self.path, e)
                .help("free disk space, reduce `cache_bytes`, or choose another `cache_dir`")
        };
        self.data.write_all_at(bytes, block * BLOCK_BYTES).map_err(fail)?;
        self.hashes.write_all_at(&hash_of(bytes).to_le_bytes(), block * 8).map_err(fail)?;
        if let Some(verified) = self.verified.get(block as usize) {
            verified.store(1, Ordering::Release);
        }
        Ok(())
    }

    /// Returns all bytes; only those of present blocks are valid.
    pub(super) fn map(&self) -> &Bytes {
        &self.map
    }

    /// Returns whether the object was removed from the cache after it was opened.
    fn is_removed(&self) -> bool {
        self.data.metadata().is_ok_and(|meta| meta.nlink() == 0)
    }

    fn block(&self, block: u64) -> Bytes {
        let start = (block * BLOCK_BYTES).min(self.map.len() as u64);
        let end = (start + BLOCK_BYTES).min(self.map.len() as u64);
        self.map.slice(start as usize..end as usize)
    }
}

/// Computes the XXH3-64. Never returns 0, which marks a missing block.
fn hash_of(bytes: &[u8]) -> u64 {
    xxh3_64(bytes).max(1)
}
