//! The outcomes of items.

use std::time::Duration;

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::format::MAX_RECORD_BYTES;
use crate::sample::{Record, Reject, RejectCode, Value};
use crate::source::skipped::SkippedTypes;

/// The outcome of one item. Every item found has exactly one.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It became a record.
    Converted(Converted),
    /// Its bytes cannot become a record.
    Rejected { split: u16, origin: String, reject: Reject },
    /// It is the same as another item, which stays.
    Duplicate { split: u16, origin: String, of: String },
    /// The user's criteria leave it out.
    Filtered { split: u16, origin: String, reason: String },
}

/// A record with all that the indexes want to know of it. Computed by the workers, so that the writer only writes.
#[derive(Debug)]
pub(super) struct Converted {
    pub split: u16,
    pub record: Record,
    /// In the length unit of the kind.
    pub length: u64,
    pub width: u32,
    pub height: u32,
    /// [`Record::canonical_size`].
    pub canonical_bytes: u64,
    /// [`Record::crc32c`].
    pub crc32c: u32,
    /// XXH3-128 of the key, when keys are not unique by construction.
    pub key_hash: Option<u128>,
    /// A further record of an item that is counted already.
    pub continues: bool,
}

impl Converted {
    pub(super) fn new(split: u16, record: Record, length: u64) -> Self {
        let (canonical_bytes, crc32c) = (record.canonical_size(), record.crc32c());
        Self {
            split,
            record,
            length,
            width: 0,
            height: 0,
            canonical_bytes,
            crc32c,
            key_hash: None,
            continues: false,
        }
    }

    /// The key, which is the first field of every kind.
    pub(super) fn key(&self) -> &[u8] {
        match self.record.values.first() {
            Some(Value::Text(key)) => key.as_bytes(),
            _ => &[],
        }
    }

    /// Rejects an item whose record no format can hold, before it gets to a writer.
    pub(super) fn check_size(&self) -> Result<(), Reject> {
        if self.canonical_bytes <= MAX_RECORD_BYTES {
            return Ok(());
        }
        let message =
            format!("the record has {} bytes, the limit is {MAX_RECORD_BYTES}", self.canonical_bytes);
        Err(Reject::new(RejectCode::TooLarge, message))
    }
}

/// Memory of an outcome beside its content: itself, and what the allocator adds to its key, its values and their bytes.
const OUTCOME_BYTES: u64 = size_of::<Outcome>() as u64 + 160;

/// The outcomes of one task, in item order, with what it read.
#[derive(Default)]
pub(super) struct Outcomes {
    pub list: Vec<Outcome>,
    /// Files that turned out not to be what the command reads.
    pub skipped: SkippedTypes,
    /// Counted peculiarities, by name.
    pub notes: Vec<(&'static str, u64)>,
    /// Source bytes this task stands for, for the progress display.
    pub source_bytes: u64,
    /// Bytes of the texts that became records.
    pub text_bytes: u64,
    /// Hashes of the content that was read, in order.
    pub content: Vec<u128>,
    /// What this task says of the members of a compressed file.
    pub member: Member,
    /// Time that the task took to read files.
    pub reading: Duration,
}

/// Converted items of the members of a compressed file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Member {
    /// Another member starts among the items.
    pub starts: bool,
    /// Items that were converted: all, or those of the member that starts.
    pub converted: u64,
    /// The member is damaged.
    pub damaged: bool,
}

impl Outcomes {
    /// Memory that they hold, about. Of short documents, this is many times the text.
    pub(super) fn memory_bytes(&self) -> u64 {
        let content = self.list.iter().map(|outcome| match outcome {
            Outcome::Converted(converted) => converted.canonical_bytes,
            _ => 0,
        });
        self.list.len() as u64 * OUTCOME_BYTES + content.sum::<u64>()
    }

    /// Takes note of content that was read.
    pub(super) fn read(&mut self, content: &[u8]) {
        self.content.push(xxh3_128(content));
    }

    /// Counts one more `name`.
    pub(super) fn note(&mut self, name: &'static str) {
        self.count(name, 1);
    }

    /// Counts `more` of `name`.
    pub(super) fn count(&mut self, name: &'static str, more: u64) {
        match self.notes.iter_mut().find(|(n, _)| *n == name) {
            Some((_, count)) => *count += more,
            None => self.notes.push((name, more)),
        }
    }
}

/// Running hash over the content hashes of tasks, in order.
#[derive(Default)]
pub(super) struct ContentHash(Xxh3);

impl ContentHash {
    pub(super) fn add(&mut self, hashes: &[u128]) {
        for hash in hashes {
            self.0.update(&hash.to_le_bytes());
        }
    }

    pub(super) fn digest(&self) -> u128 {
        self.0.digest128()
    }
}
