//! Positions of documents, and the stored duplicates among them.

use std::path::Path;

use crate::error::Result;
use crate::source::list::source_file::SourceFile;
use crate::storage::{Access, Blob};

/// The position of a document: its section, and the byte offset or row in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DocumentPosition {
    pub(super) section: usize,
    /// Byte offset or row; `None` if the document is the whole file.
    pub(super) mark: Option<u64>,
}

impl DocumentPosition {
    /// Returns the origin of the document at this position in `file`.
    pub(super) fn origin_in(self, file: &SourceFile) -> String {
        match self.mark {
            None => file.origin.clone(),
            // Allocates once; `format!` would grow the string twice.
            Some(mark) => [&file.origin, "#", &mark.to_string()].concat(),
        }
    }
}

/// Size of a position: section and mark, big-endian, so that positions sort in record order.
pub(super) const POSITION_BYTES: usize = 4 + 8;
/// Size of a pair: the positions of a duplicate and of the document that is kept.
pub(super) const PAIR_BYTES: usize = 2 * POSITION_BYTES;

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
    pub(super) fn open(path: &Path) -> Result<Self> {
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
pub(super) fn encode_position(position: DocumentPosition) -> [u8; POSITION_BYTES] {
    let mut bytes = [0; POSITION_BYTES];
    bytes[..4].copy_from_slice(&(position.section as u32).to_be_bytes());
    // Offsets and rows are below 2⁶⁴ − 1; 0 means the whole file.
    bytes[4..].copy_from_slice(&position.mark.map_or(0, |mark| mark.saturating_add(1)).to_be_bytes());
    bytes
}

/// Decodes a position.
pub(super) fn decode_position(bytes: &[u8]) -> DocumentPosition {
    let section = u32::from_be_bytes(std::array::from_fn(|i| bytes[i])) as usize;
    let mark = u64::from_be_bytes(std::array::from_fn(|i| bytes[4 + i]));
    DocumentPosition { section, mark: mark.checked_sub(1) }
}
