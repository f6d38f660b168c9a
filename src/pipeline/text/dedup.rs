//! Deduplication of documents: a pass over all texts before the first unit.
//!
//! Texts are identified by their SHA-256 after `--normalize`. SHA-256 has no known collisions, accidental or crafted,
//! so texts with equal hashes are considered equal without reading them again. Reading them again would be expensive,
//! because compressed files cannot be read from the middle. The hashes are sorted on disk, and the duplicates are
//! stored there in record order.

use std::borrow::Cow;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use sha2::{Digest, Sha256};

use super::TextJob;
use super::canonical::canonical;
use super::feed::SectionFeed;
use super::items::{DocumentPosition, ItemSink};
use super::section_reader::BYTES_HELD_PER_BYTE;
use crate::error::{Error, Result};
use crate::index::sort::ExternalSort;
use crate::pipeline::dedup::{DUPLICATE_PAIRS_NAME, is_stored, store};
use crate::pipeline::job::{Converting, EngineUse, Feed};
use crate::pipeline::memory::MemoryPool;
use crate::pipeline::outcome::Outcomes;
use crate::pipeline::stop::Stop;
use crate::pipeline::workers::Workers;
use crate::recipe::TextRecipe;
use crate::sample::Reject;
use crate::source::items::text::fields::SourceDocument;
use crate::storage::{Access, Blob, NewFile};
use crate::threads;

/// Memory of each of the two sorts. The second one takes its rows from the first.
const SORT_BYTES: usize = crate::pipeline::SORT_BYTES / 2;
/// Blocks that hold more than this are read on a thread of their own: documents above 4 MiB.
const OWN_THREAD_BYTES: u64 = (4 * BYTES_HELD_PER_BYTE) << 20;
const HASH_BYTES: usize = 32;
/// Size of a row: hash and position of a document.
const TEXT_BYTES: usize = HASH_BYTES + POSITION_BYTES;

/// Finds the duplicates in all units. Of equal documents, the first in record order is kept. Duplicates found by an
/// earlier attempt at the same plan are reused.
pub(super) fn find(
    job: &TextJob,
    work: &Path,
    workers: &Workers,
    memory: &MemoryPool,
    stop: &Stop,
) -> Result<DuplicatesFile> {
    let path = work.join(DUPLICATE_PAIRS_NAME);
    if is_stored(&path)? {
        return DuplicatesFile::open(&path);
    }
    let texts = Mutex::new(ExternalSort::<TEXT_BYTES>::new(work, SORT_BYTES));
    let next = AtomicUsize::new(0);
    // A thread waits only while it holds nothing, and others hold memory only while they read and hash, so waiting ends.
    let turn = Mutex::new(());
    let reserve = |bytes| {
        // In turn, because a long document would otherwise wait until no other thread has even a short one.
        let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        memory.wait_for(bytes)
    };
    // Reads and hashes the next block, and returns the bytes that it held.
    let hash_block = |feed: &mut SectionFeed<'_>, expected: u64| -> Result<Option<u64>> {
        let mut held = reserve(expected);
        let Some((task, bytes)) = feed.next()? else { return Ok(None) };
        if bytes > expected {
            drop(held);
            held = reserve(bytes);
        }
        let mut hashes = TextHashes { recipe: &job.conversion.recipe, rows: Vec::new() };
        job.for_each_item(task, &mut hashes, &mut Outcomes::default())?;
        drop(held);
        let mut texts = texts.lock().unwrap_or_else(PoisonError::into_inner);
        hashes.rows.into_iter().try_for_each(|row| texts.push(row))?;
        Ok(Some(bytes))
    };
    let hash_units = || -> Result<()> {
        // The size of a block is known after it was read. Until then, it is assumed to be as large as the last one, and
        // the first to be as large as possible. So a thread reads more than it has reserved only where short documents
        // are followed by a long one.
        let mut expected = job.conversion.recipe.max_document_bytes.saturating_mul(BYTES_HELD_PER_BYTE);
        while let Some(sections) = job.units.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut feed = SectionFeed::new(job, sections.clone(), EngineUse::Selected, None)?;
            loop {
                stop.check()?;
                expected = feed.next_bytes().max(expected);
                let bytes = match expected > OWN_THREAD_BYTES {
                    true => threads::on_own_thread("long document", || hash_block(&mut feed, expected))?,
                    false => hash_block(&mut feed, expected)?,
                };
                let Some(bytes) = bytes else { break };
                expected = bytes;
            }
        }
        Ok(())
    };
    workers.on_all("looking for duplicates", stop, hash_units)?;
    let mut pairs = ExternalSort::<PAIR_BYTES>::new(work, SORT_BYTES);
    let mut first: Option<[u8; TEXT_BYTES]> = None;
    for row in texts.into_inner().unwrap_or_else(PoisonError::into_inner).finish()? {
        let row = row?;
        match first.filter(|first| first[..HASH_BYTES] == row[..HASH_BYTES]) {
            None => first = Some(row),
            Some(first) => {
                let mut pair = [0; PAIR_BYTES];
                pair[..POSITION_BYTES].copy_from_slice(&row[HASH_BYTES..]);
                pair[POSITION_BYTES..].copy_from_slice(&first[HASH_BYTES..]);
                pairs.push(pair)?;
            }
        }
    }
    let mut file = NewFile::create_shared(&path)?;
    for pair in pairs.finish()? {
        file.write_all(&pair?).map_err(|e| Error::io("write", &path, e))?;
    }
    store(file)?;
    DuplicatesFile::open(&path)
}

/// Collector of the hashes of the texts of a task.
struct TextHashes<'a> {
    recipe: &'a TextRecipe,
    rows: Vec<[u8; TEXT_BYTES]>,
}

impl ItemSink for TextHashes<'_> {
    fn item(
        &mut self,
        position: DocumentPosition,
        item: Result<SourceDocument<'_>, Reject>,
        _: &mut Outcomes,
    ) -> Converting {
        // Rejected items are not duplicates of anything.
        let TextRecipe { normalize, max_document_bytes, .. } = self.recipe;
        if let Ok(document) = item
            && let Ok(text) = match self.recipe.chat.has_masks() {
                true => Ok(Cow::Owned(canonical(&document.text))),
                false => normalize.apply(&document.text, *max_document_bytes),
            }
            && !text.is_empty()
        {
            let mut row = [0; TEXT_BYTES];
            row[..HASH_BYTES].copy_from_slice(&Sha256::digest(text.as_bytes()));
            row[HASH_BYTES..].copy_from_slice(&encode_position(position));
            self.rows.push(row);
        }
        Converting::Done
    }
}

/// Size of a position: section and mark, big-endian, so that positions sort in record order.
const POSITION_BYTES: usize = 4 + 8;
/// Size of a pair: the positions of a duplicate and of the document that is kept.
const PAIR_BYTES: usize = 2 * POSITION_BYTES;

/// Duplicates, ascending, each with the origin of the document that is kept.
#[derive(Default)]
pub(super) struct Duplicates(Vec<(DocumentPosition, String)>);

impl Duplicates {
    /// Returns the origin of the document that is kept instead of the one at `position`; `None` if that is not a
    /// duplicate.
    pub(super) fn of(&self, position: DocumentPosition) -> Option<&str> {
        let at = self.0.binary_search_by_key(&position, |(duplicate, _)| *duplicate).ok()?;
        self.0.get(at).map(|(_, kept)| kept.as_str())
    }
}

/// The file with the duplicates of all units, in record order.
pub struct DuplicatesFile(Blob);

impl DuplicatesFile {
    fn open(path: &Path) -> Result<Self> {
        Blob::open(path, Access::Map, None).map(Self)
    }

    /// Returns the duplicates in a unit, whose first section is `section`.
    pub(super) fn from(&self, section: usize) -> DuplicatesReader<'_> {
        let pairs = self.0.as_slice().unwrap_or_default().as_chunks().0;
        let first = pairs.partition_point(|pair| decode_position(pair).section < section);
        DuplicatesReader(&pairs[first..])
    }
}

/// Reader of the duplicates of a unit: the pairs that were not returned yet, with those of later units.
pub(super) struct DuplicatesReader<'a>(&'a [[u8; PAIR_BYTES]]);

impl DuplicatesReader<'_> {
    /// Returns the duplicates before `end` that were not returned yet. `origin` returns the origin of a document.
    pub(super) fn before(
        &mut self,
        end: DocumentPosition,
        mut origin: impl FnMut(DocumentPosition) -> Result<String>,
    ) -> Result<Duplicates> {
        let mut found = Vec::new();
        while let Some((pair, rest)) = self.0.split_first() {
            let (duplicate, first) = pair.split_at(POSITION_BYTES);
            let duplicate = decode_position(duplicate);
            if duplicate >= end {
                break;
            }
            found.push((duplicate, origin(decode_position(first))?));
            self.0 = rest;
        }
        Ok(Duplicates(found))
    }
}

/// Encodes a position.
fn encode_position(position: DocumentPosition) -> [u8; POSITION_BYTES] {
    let mut bytes = [0; POSITION_BYTES];
    bytes[..4].copy_from_slice(&(position.section as u32).to_be_bytes());
    // Offsets and rows are below 2⁶⁴ − 1; 0 means the whole file.
    bytes[4..].copy_from_slice(&position.mark.map_or(0, |mark| mark.saturating_add(1)).to_be_bytes());
    bytes
}

/// Decodes a position.
fn decode_position(bytes: &[u8]) -> DocumentPosition {
    let section = u32::from_be_bytes(std::array::from_fn(|i| bytes[i])) as usize;
    let mark = u64::from_be_bytes(std::array::from_fn(|i| bytes[4 + i]));
    DocumentPosition { section, mark: mark.checked_sub(1) }
}
