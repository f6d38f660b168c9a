//! Check of token ids that another program has written, without a conversion: what a conversion would reject, what is
//! unusual about a document, and documents that repeat an earlier one.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use dsconvert_writer::SORT_BYTES;
use dsconvert_writer::outcome::Outcomes;
use dsconvert_writer::stop::Stop;
use dsconvert_writer::workers::Workers;
use xxhash_rust::xxh3::Xxh3;

use super::blocks::for_each_block;
use super::conversion::TextJob;
use super::duplicates::{DocumentPosition, POSITION_BYTES, decode_position, encode_position};
use super::feed::TextTask;
use super::ids::TokenIds;
use super::options::TextOptions;
use super::sources::source::TextItem;
use crate::error::{Error, Result};
use crate::index::sort::ExternalSort;
use crate::numbers::plural;
use crate::options::default_memory_bytes;
use crate::pipeline::memory::MemoryPool;
use crate::sample::Reject;
use crate::source::items::text::token_row::TokenRow;

/// Maximum number of kinds of findings that are listed.
const MAX_FINDINGS: usize = 100;
/// Code of padding in place of tokens.
const PADDING: &str = "padding";
/// Code of documents that occur before.
const REPEATED: &str = "repeated";
/// Number of equal ids at an end of a document that may be padding. Without a tokenizer, no id is known to be padding, so
/// several documents must have them, and a share of all.
const PADDING_IDS: usize = 8;
const MIN_PADDED: u64 = 2;
const PADDED_ONE_IN: u64 = 20;
const HASH_BYTES: usize = 16;
/// Size of a row of the sort: hash and position of a document.
const ROW_BYTES: usize = HASH_BYTES + POSITION_BYTES;

/// What a check of token ids has found.
#[derive(Debug, Default)]
pub struct IdsReport {
    /// Number of files.
    pub files: u64,
    /// Number of rows, or of documents of Megatron.
    pub rows: u64,
    /// Number of documents in them.
    pub documents: u64,
    /// Number of their tokens.
    pub tokens: u64,
    /// Number of tokens to train on, if masks or labels are read.
    pub trained: Option<u64>,
    /// A finding for each kind of defect, by its code.
    pub findings: Vec<IdsFinding>,
    /// Number of rows with further kinds of defects.
    pub more: u64,
}

/// Rows with the same kind of defect.
#[derive(Debug, PartialEq, Eq)]
pub struct IdsFinding {
    /// Name of the defect: a reject code, or that of something unusual.
    pub code: &'static str,
    /// Number of rows or documents.
    pub count: u64,
    /// What is wrong with the first of them.
    pub message: String,
    /// Origin of the first of them.
    pub first: String,
}

/// Something unusual about a document.
#[derive(Debug)]
pub struct OddDocument {
    /// Its name.
    pub code: &'static str,
    /// What it is.
    pub message: String,
}

/// Checks the ids of `options`, whose recipe names their field. `odd` returns what is unusual about the ids and the mask
/// of a document.
///
/// # Errors
///
/// Fails if files cannot be read, or lack a field that is named, and if the check is stopped.
pub fn check_ids(
    options: TextOptions,
    threads: usize,
    stop: &Stop,
    odd: &(dyn Fn(&[u32], Option<&[u8]>) -> Vec<OddDocument> + Sync),
) -> Result<IdsReport> {
    let job = TextJob::of(options)?;
    let Some(ids) = &job.conversion.ids else {
        return Err(Error::internal("the sources of the check are not token ids"));
    };
    let workers = Workers::start(threads)?;
    let memory = MemoryPool::new(default_memory_bytes(threads) / 4);
    let has_masks = job.conversion.recipe.has_masks();
    let guesses_padding = job.conversion.recipe.ids.without_tokenizer;
    let all =
        Mutex::new((Tally::default(), ExternalSort::<ROW_BYTES>::new(std::env::temp_dir(), SORT_BYTES)));
    for_each_block(&job, "checking token ids", &workers, &memory, stop, |task, held| {
        let TextTask { section, mut items, .. } = task;
        let (context, mut out, mut rows) = (job.item_context(), Outcomes::default(), Vec::new());
        let mut tally = Tally::default();
        while let Some(TextItem { mark, document }) = items.next(&context, &mut out)? {
            let position = DocumentPosition { section, mark };
            tally.rows += 1;
            let checked = document.and_then(|document| {
                let Some(row) = document.ids else { return Ok(()) };
                for document in documents(ids, &row)? {
                    tally.add(&document, position, guesses_padding);
                    odd(document.ids, document.mask).into_iter().for_each(|odd| tally.find(odd, position));
                    rows.push(document.hashed(position));
                }
                Ok(())
            });
            if let Err(Reject { code, message }) = checked {
                tally.find(OddDocument { code: code.name(), message }, position);
            }
        }
        drop(items);
        drop(held);
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        all.0.merge(tally);
        rows.into_iter().try_for_each(|row| all.1.push(row))
    })?;
    let (mut tally, hashes) = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    tally.find_padding();
    let origin = |position: DocumentPosition| -> Result<String> {
        Ok(position.origin_in(&job.file(job.conversion.sections[position.section].file)?))
    };
    if let Some(Repeats { count, first, of }) = repeats(hashes, stop)? {
        let message = format!("the document repeats {}", origin(of)?);
        tally.add_found((REPEATED, String::new()), Found { count, first, message });
    }
    let findings = tally.found.into_iter().map(|((code, _), found)| {
        let Found { count, first, message } = found;
        Ok(IdsFinding { code, count, message, first: origin(first)? })
    });
    Ok(IdsReport {
        files: job.files.len() as u64,
        rows: tally.rows,
        documents: tally.documents,
        tokens: tally.tokens,
        trained: has_masks.then_some(tally.trained),
        findings: findings.collect::<Result<_>>()?,
        more: tally.more,
    })
}

/// A document of a row.
struct RowDocument<'a> {
    ids: &'a [u32],
    mask: Option<&'a [u8]>,
}

/// Returns the documents of a row that a conversion would not reject.
fn documents<'a>(
    ids: &TokenIds,
    row: &'a TokenRow,
) -> Result<impl Iterator<Item = RowDocument<'a>> + use<'a>, Reject> {
    ids.check(row)?;
    let documents = ids.documents(row)?;
    Ok(documents.into_iter().map(|range: Range<usize>| RowDocument {
        ids: row.ids.get(range.clone()).unwrap_or_default(),
        mask: row.masks.as_ref().and_then(|masks| masks.get(range)),
    }))
}

impl RowDocument<'_> {
    /// Returns its hash and position. Masks are part of it: the same chat may be trained on turn by turn.
    fn hashed(&self, position: DocumentPosition) -> [u8; ROW_BYTES] {
        let mut hash = Xxh3::new();
        self.ids.iter().for_each(|id| hash.update(&id.to_le_bytes()));
        hash.update(self.mask.unwrap_or_default());
        let mut row = [0; ROW_BYTES];
        row[..HASH_BYTES].copy_from_slice(&hash.digest128().to_be_bytes());
        row[HASH_BYTES..].copy_from_slice(&encode_position(position));
        row
    }

    /// Returns the id that many tokens at an end have, if none of them is trained on.
    fn padding(&self) -> Option<u32> {
        let is_trained = |at: usize| self.mask.is_some_and(|mask| mask.get(at) == Some(&1));
        let run = |mut at: Box<dyn Iterator<Item = usize> + '_>, id: u32| {
            at.by_ref().take(PADDING_IDS).filter(|&at| self.ids[at] == id && !is_trained(at)).count()
                == PADDING_IDS
        };
        let (first, last) = (*self.ids.first()?, *self.ids.last()?);
        if run(Box::new((0..self.ids.len()).rev()), last) {
            return Some(last);
        }
        run(Box::new(0..self.ids.len()), first).then_some(first)
    }
}

/// Counts of rows, and what was found in them.
#[derive(Default)]
struct Tally {
    rows: u64,
    documents: u64,
    tokens: u64,
    trained: u64,
    found: BTreeMap<FindingKind, Found>,
    /// Documents that may end with padding, by its id.
    padded: BTreeMap<u32, Found>,
    more: u64,
}

/// The code of a finding, and its message without numbers.
type FindingKind = (&'static str, String);

/// Rows with a kind of finding.
struct Found {
    count: u64,
    first: DocumentPosition,
    /// The message of the first.
    message: String,
}

impl Found {
    fn merge(&mut self, other: Self) {
        self.count += other.count;
        // The same for any number of threads.
        if other.first < self.first {
            (self.first, self.message) = (other.first, other.message);
        }
    }
}

impl Tally {
    fn add(&mut self, document: &RowDocument<'_>, first: DocumentPosition, guesses_padding: bool) {
        self.documents += 1;
        self.tokens += document.ids.len() as u64;
        self.trained += document.mask.map_or(0, |mask| mask.iter().map(|&one| u64::from(one)).sum());
        if let Some(id) = document.padding().filter(|_| guesses_padding) {
            let message = format!("{PADDING_IDS} or more tokens at an end of the document have the id {id}");
            let found = Found { count: 1, first, message };
            merge(&mut self.padded, id, found);
        }
    }

    fn find(&mut self, OddDocument { code, message }: OddDocument, first: DocumentPosition) {
        let shape = message.chars().filter(|c| !c.is_ascii_digit()).collect();
        self.add_found((code, shape), Found { count: 1, first, message });
    }

    /// Adds a finding. The kinds that are kept, and their counts, do not depend on the order of the calls.
    fn add_found(&mut self, kind: FindingKind, found: Found) {
        merge(&mut self.found, kind, found);
        if self.found.len() > MAX_FINDINGS {
            self.more += self.found.pop_last().map_or(0, |(_, found)| found.count);
        }
    }

    fn merge(&mut self, other: Self) {
        self.rows += other.rows;
        self.documents += other.documents;
        self.tokens += other.tokens;
        self.trained += other.trained;
        self.more += other.more;
        other.found.into_iter().for_each(|(kind, found)| self.add_found(kind, found));
        other.padded.into_iter().for_each(|(id, found)| merge(&mut self.padded, id, found));
    }

    /// Makes findings of the ids that are probably padding.
    fn find_padding(&mut self) {
        let least = MIN_PADDED.max(self.documents / PADDED_ONE_IN);
        for (id, found) in std::mem::take(&mut self.padded) {
            if found.count >= least {
                self.add_found((PADDING, id.to_string()), found);
            }
        }
    }
}

fn merge<K: Ord>(all: &mut BTreeMap<K, Found>, kind: K, found: Found) {
    match all.entry(kind) {
        std::collections::btree_map::Entry::Vacant(entry) => drop(entry.insert(found)),
        std::collections::btree_map::Entry::Occupied(mut entry) => entry.get_mut().merge(found),
    }
}

/// Documents that occur before: their number, the first of them, and the one that it repeats.
struct Repeats {
    count: u64,
    first: DocumentPosition,
    of: DocumentPosition,
}

/// Finds the documents with the hash of an earlier one.
fn repeats(hashes: ExternalSort<ROW_BYTES>, stop: &Stop) -> Result<Option<Repeats>> {
    let mut original: Option<[u8; ROW_BYTES]> = None;
    let mut found: Option<Repeats> = None;
    let position = |row: &[u8; ROW_BYTES]| decode_position(&row[HASH_BYTES..]);
    for (at, row) in hashes.finish()?.enumerate() {
        let row = row?;
        if at % (1 << 16) == 0 {
            stop.check()?;
        }
        match original.filter(|original| original[..HASH_BYTES] == row[..HASH_BYTES]) {
            None => original = Some(row),
            Some(original) => {
                let repeat = Repeats { count: 1, first: position(&row), of: position(&original) };
                found = Some(match found {
                    None => repeat,
                    Some(other) => {
                        let count = other.count + 1;
                        let first = if repeat.first < other.first { repeat } else { other };
                        Repeats { count, ..first }
                    }
                });
            }
        }
    }
    Ok(found)
}

/// Formats a finding.
impl std::fmt::Display for IdsFinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { code, count, message, first } = self;
        let others = match count - 1 {
            0 => String::new(),
            more => format!(" (and {})", plural(more, "other")),
        };
        write!(f, "{code}: {first}{others}: {message}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(mark: u64) -> DocumentPosition {
        DocumentPosition { section: 0, mark: Some(mark) }
    }

    #[test]
    fn kinds_beyond_the_limit_are_counted_whatever_the_order() {
        let odd = |code: u64| OddDocument {
            code: "x",
            message: char::from_u32(0x4E00 + code as u32).unwrap().to_string(),
        };
        let count = |order: &mut dyn Iterator<Item = u64>| {
            let mut tally = Tally::default();
            order.for_each(|code| tally.find(odd(code), at(code)));
            let kept: Vec<_> =
                tally.found.iter().map(|(kind, found)| (kind.1.clone(), found.count)).collect();
            (kept, tally.more)
        };
        let all = || (0..130).chain(0..130);
        let found = count(&mut all());
        assert_eq!((found.0.len(), found.1), (MAX_FINDINGS, 60));
        assert!(found.0.iter().all(|(_, count)| *count == 2));
        assert_eq!(found, count(&mut all().rev()));
    }

    #[test]
    fn equal_ids_at_an_end_may_be_padding_unless_they_are_trained() {
        let padding = |ids: &[u32], mask: Option<&[u8]>| RowDocument { ids, mask }.padding();
        let padded = [&[5, 6, 7][..], &[0; 8]].concat();
        assert_eq!(padding(&padded, None), Some(0));
        assert_eq!(padding(&padded[..10], None), None);
        let left: Vec<u32> = padded.iter().rev().copied().collect();
        assert_eq!(padding(&left, None), Some(0));
        assert_eq!(padding(&padded, Some(&[1; 11])), None);
        assert_eq!(padding(&padded, Some(&[0; 11])), Some(0));
    }

    #[test]
    fn numbers_do_not_make_kinds() {
        let mut tally = Tally::default();
        for (mark, message) in [(7, "the id 7 of token 1"), (3, "the id 12 of token 0"), (4, "the mask")] {
            tally.find(OddDocument { code: "x", message: message.to_owned() }, at(mark));
        }
        let found: Vec<_> = tally.found.values().map(|found| (found.count, &*found.message)).collect();
        assert_eq!(found, [(2, "the id 12 of token 0"), (1, "the mask")]);
    }
}
