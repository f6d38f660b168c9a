//! Outcomes of items: converted, rejected, duplicate or filtered.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::sample::{Record, Reject, RejectCode, Value};
use crate::schema::MAX_RECORD_BYTES;

/// The outcome of an item. Every item found has exactly one.
#[derive(Debug)]
pub enum ItemOutcome {
    /// The item became a record.
    Converted(ConvertedRecord),
    /// The bytes of the item cannot become a record.
    Rejected {
        /// Ordinal of the split.
        split: u16,
        /// Where the item comes from.
        origin: String,
        /// The reason.
        reject: Reject,
    },
    /// The item is the same as another one, which is kept.
    Duplicate {
        /// Ordinal of the split.
        split: u16,
        /// Where the item comes from.
        origin: String,
        /// Origin of the item that is kept.
        of: String,
    },
    /// The user's criteria exclude the item.
    Filtered {
        /// Ordinal of the split.
        split: u16,
        /// Where the item comes from.
        origin: String,
        /// The criterion, for people.
        reason: String,
    },
}

/// A record with the values that the indexes need. They are computed by the workers, so that the writer only writes.
#[derive(Debug, Clone)]
pub struct ConvertedRecord {
    /// Ordinal of the split.
    pub split: u16,
    /// The record.
    pub record: Record,
    /// Length, in the unit of the kind of dataset.
    pub length: u64,
    /// [`Record::canonical_size`].
    pub canonical_bytes: u64,
    /// [`Record::crc32c`].
    pub crc32c: u32,
    /// XXH3-128 of the key, if keys are not unique by construction.
    pub key_hash: Option<u128>,
    /// Whether this is a further record of an item that is already counted.
    pub continues: bool,
}

impl ConvertedRecord {
    /// Creates a record of the split with the ordinal `split`. Its key is taken to be unique by construction.
    pub fn new(split: u16, record: Record, length: u64) -> Self {
        let (canonical_bytes, crc32c) = (record.canonical_size(), record.crc32c());
        Self { split, record, length, canonical_bytes, crc32c, key_hash: None, continues: false }
    }

    /// Returns the key, which is the first field in every kind of dataset.
    pub fn key(&self) -> &[u8] {
        match self.record.values.first() {
            Some(Value::Text(key)) => key.as_bytes(),
            _ => &[],
        }
    }

    /// Rejects an item whose record is too large for the formats, before it reaches a writer.
    pub fn check_size(&self) -> Result<(), Reject> {
        if self.canonical_bytes <= MAX_RECORD_BYTES {
            return Ok(());
        }
        let message =
            format!("the record has {} bytes, but the limit is {MAX_RECORD_BYTES}", self.canonical_bytes);
        Err(Reject::new(RejectCode::TooLarge, message))
    }
}

/// Memory of an outcome besides its content: the value itself, and the allocator overhead of its key, values and bytes.
const OUTCOME_BYTES: u64 = size_of::<ItemOutcome>() as u64 + 160;

/// Names from the data that a unit counts one by one; others are counted together.
pub(crate) const MAX_NAMES: usize = 64;
/// Characters of a name from the data that are kept.
const MAX_NAME_CHARS: usize = 64;

/// The outcomes of one task in item order, and statistics about its input.
#[derive(Default)]
pub struct Outcomes {
    /// The outcomes, in item order.
    pub list: Vec<ItemOutcome>,
    /// Number of files whose content turned out not to be of the kind that is converted, by type.
    pub skipped: BTreeMap<String, u64>,
    /// Counts of noteworthy events, by name. Names from the data are [`count_named`](Self::count_named).
    pub notes: Vec<(Cow<'static, str>, u64)>,
    /// Source bytes attributed to this task, for the progress display.
    pub source_bytes: u64,
    /// Bytes of the texts that became records.
    pub text_bytes: u64,
    /// Hashes of the content that was read, in order.
    pub content: Vec<u128>,
    /// Converted items of the last member of a compressed file.
    pub member: MemberCount,
    /// Time spent reading files.
    pub reading: Duration,
}

/// Counter of the converted items with bytes from the last compressed member of a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemberCount {
    /// Position where the member starts; `None` if none starts in this task.
    pub start: Option<u64>,
    /// Number of converted items: all of them, or those of the member that starts.
    pub converted: u64,
    /// Whether the member is damaged.
    pub damaged: bool,
}

impl MemberCount {
    /// Called for each item, before it is converted.
    pub fn start_item(&mut self, at: u64) {
        // The count restarts at the last item that starts at or before the member.
        if self.start.is_some_and(|start| at <= start) {
            self.converted = 0;
        }
    }
}

impl Outcomes {
    /// Returns the approximate memory use. For short documents, it is many times the text.
    pub fn memory_bytes(&self) -> u64 {
        let content = self.list.iter().map(|outcome| match outcome {
            ItemOutcome::Converted(converted) => converted.canonical_bytes,
            _ => 0,
        });
        self.list.len() as u64 * OUTCOME_BYTES + content.sum::<u64>()
    }

    /// Adds the hash of content that was read.
    pub fn add_content(&mut self, content: &[u8]) {
        self.content.push(xxh3_128(content));
    }

    /// Counts a skipped file of the type `ty`.
    pub fn skip(&mut self, ty: String) {
        *self.skipped.entry(ty).or_default() += 1;
    }

    /// Increments the count of `name` by one.
    pub fn note(&mut self, name: &'static str) {
        self.count(name, 1);
    }

    /// Increments the count of `name` by `more`.
    pub fn count(&mut self, name: impl Into<Cow<'static, str>>, more: u64) {
        self.add(name.into(), more);
    }

    /// Increments the count of `name`, which is from the data, by one. `kind` states what it names. A unit counts only the
    /// first names one by one.
    pub fn count_named(&mut self, kind: &str, name: &str) {
        let short = name.char_indices().nth(MAX_NAME_CHARS).map_or(name, |(end, _)| &name[..end]);
        self.add(Cow::Owned([kind, ":", short].concat()), 1);
    }

    fn add(&mut self, name: Cow<'static, str>, more: u64) {
        match self.notes.iter_mut().find(|(n, _)| *n == name) {
            Some((_, count)) => *count += more,
            None => self.notes.push((name, more)),
        }
    }
}

/// Running hash over the content hashes of tasks, in order.
#[derive(Default)]
pub(crate) struct ContentHash(Xxh3);

impl ContentHash {
    pub(crate) fn add(&mut self, hashes: &[u128]) {
        for hash in hashes {
            self.0.update(&hash.to_le_bytes());
        }
    }

    pub(crate) fn digest(&self) -> u128 {
        self.0.digest128()
    }
}
