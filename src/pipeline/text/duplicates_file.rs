//! The file of duplicate documents: pairs of positions, in order.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::PathBuf;

use super::position::DocumentPosition;
use crate::error::{Error, Result};

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

/// The file with the duplicates of all units.
pub struct DuplicatesFile {
    pub(super) path: PathBuf,
    /// Index of the first pair of each unit, and the number of all pairs.
    pub(super) starts: Vec<u64>,
}

impl DuplicatesFile {
    /// Opens the duplicates of `unit`.
    pub(super) fn unit(&self, unit: u32) -> Result<DuplicatesReader> {
        let fail = |e| Error::io("read the duplicates", &self.path, e);
        let start_of = |unit: usize| self.starts.get(unit).copied().unwrap_or_default();
        let (start, end) = (start_of(unit as usize), start_of(unit as usize + 1));
        let mut file = File::open(&self.path).map_err(fail)?;
        file.seek(SeekFrom::Start(start * PAIR_BYTES as u64)).map_err(fail)?;
        let (path, remaining) = (self.path.clone(), end.saturating_sub(start));
        Ok(DuplicatesReader { path, file: BufReader::new(file), remaining, next: None })
    }
}

/// Reader of the duplicates of a unit, which holds only a few in memory at a time.
pub(super) struct DuplicatesReader {
    path: PathBuf,
    file: BufReader<File>,
    /// Number of pairs that are not yet read.
    remaining: u64,
    next: Option<(DocumentPosition, DocumentPosition)>,
}

impl DuplicatesReader {
    /// Returns the duplicates before `end` that were not returned yet. `origin` returns the origin of a document.
    pub(super) fn before(
        &mut self,
        end: DocumentPosition,
        mut origin: impl FnMut(DocumentPosition) -> Result<String>,
    ) -> Result<Duplicates> {
        let mut found = Vec::new();
        loop {
            let pair = match self.next.take() {
                Some(pair) => pair,
                None if self.remaining == 0 => break,
                None => self.read()?,
            };
            if pair.0 >= end {
                self.next = Some(pair);
                break;
            }
            found.push((pair.0, origin(pair.1)?));
        }
        Ok(Duplicates(found))
    }

    fn read(&mut self) -> Result<(DocumentPosition, DocumentPosition)> {
        let mut pair = [0; PAIR_BYTES];
        let fail = |e| Error::io("read the duplicates", &self.path, e);
        self.file.read_exact(&mut pair).map_err(fail)?;
        self.remaining -= 1;
        let (duplicate, first) = pair.split_at(POSITION_BYTES);
        Ok((decode_position(duplicate), decode_position(first)))
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
