//! Sorted runs of records in a temporary file, and their merge.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::record_bytes::{decode, encode};
use crate::error::{Error, ErrorKind, Result};
use crate::storage::unlinked_file;
use crate::writer::outcome::ConvertedRecord;

/// Memory for the buffers of all runs during the merge, unless that is less than the minimum of each.
const MERGE_BYTES: usize = 16 << 20;
const MIN_BUFFER_BYTES: usize = 4 << 10;
const MAX_BUFFER_BYTES: usize = 1 << 20;
/// Buffer for writing a run, in bytes.
const WRITE_BYTES: usize = 1 << 20;

/// An unlinked file of sorted runs. A record has the hash that it is sorted by (u64 LE), the number of bytes that follow
/// (u64 LE), and these bytes.
pub(super) struct Runs {
    file: Arc<File>,
    /// Directory, for error messages.
    dir: PathBuf,
    /// Byte ranges of the runs.
    runs: Vec<Range<u64>>,
}

impl Runs {
    pub(super) fn create(dir: &Path) -> Result<Self> {
        let file = unlinked_file(dir).map_err(|e| Error::io("create a temporary file in", dir, e))?;
        Ok(Self { file: Arc::new(file), dir: dir.to_owned(), runs: Vec::new() })
    }

    /// Appends `records`, which must be sorted, as one run.
    pub(super) fn append(&mut self, records: &[(u64, ConvertedRecord)]) -> Result<()> {
        let fail = |e| Error::io("write a temporary file in", &self.dir, e);
        let start = self.runs.last().map_or(0, |run| run.end);
        let mut end = start;
        let mut out = BufWriter::with_capacity(WRITE_BYTES, &*self.file);
        let mut bytes = Vec::new();
        for (hash, converted) in records {
            bytes.clear();
            encode(converted, &mut bytes);
            let head = [hash.to_le_bytes(), (bytes.len() as u64).to_le_bytes()];
            out.write_all(head.as_flattened()).and_then(|()| out.write_all(&bytes)).map_err(fail)?;
            end += (head.as_flattened().len() + bytes.len()) as u64;
        }
        out.flush().map_err(fail)?;
        drop(out);
        self.runs.push(start..end);
        Ok(())
    }

    /// Returns the records of all runs in order. Records with equal hashes are in the order of their runs.
    pub(super) fn merge(self) -> Result<MergedRuns> {
        let buffer = (MERGE_BYTES / self.runs.len().max(1)).clamp(MIN_BUFFER_BYTES, MAX_BUFFER_BYTES);
        let section = |range: Range<u64>| Section { file: Arc::clone(&self.file), range };
        let runs = self.runs.into_iter().map(|range| BufReader::with_capacity(buffer, section(range)));
        let mut merged = MergedRuns { runs: runs.collect(), heads: BinaryHeap::new(), dir: self.dir };
        for run in 0..merged.runs.len() {
            let first = merged.hash(run)?.map(|hash| Reverse((hash, run)));
            merged.heads.extend(first);
        }
        Ok(merged)
    }
}

/// Merge of sorted runs.
pub(super) struct MergedRuns {
    runs: Vec<BufReader<Section>>,
    /// Hash of the next record of each run that has one.
    heads: BinaryHeap<Reverse<(u64, usize)>>,
    dir: PathBuf,
}

impl MergedRuns {
    /// Returns the next record; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<ConvertedRecord>> {
        let Some(&Reverse((_, run))) = self.heads.peek() else { return Ok(None) };
        let bytes = self.bytes(run)?;
        let next = self.hash(run)?;
        if let Some(mut head) = self.heads.peek_mut() {
            match next {
                Some(hash) => *head = Reverse((hash, run)),
                None => drop(PeekMut::pop(head)),
            }
        }
        let altered = || {
            Error::new(ErrorKind::Io, "a temporary file was read back differently than it was written")
                .at_path(&self.dir)
                .help("check the disk")
        };
        decode(bytes.into()).map(Some).ok_or_else(altered)
    }

    /// Reads the hash of the next record of a run; `None` at the end of the run.
    fn hash(&mut self, run: usize) -> Result<Option<u64>> {
        let reader = &mut self.runs[run];
        let at_end = reader.fill_buf().map(<[u8]>::is_empty);
        at_end
            .and_then(|at_end| (!at_end).then(|| u64_of(reader)).transpose())
            .map_err(|e| Error::io("read a temporary file in", &self.dir, e))
    }

    /// Reads the bytes of a record, after its hash.
    fn bytes(&mut self, run: usize) -> Result<Vec<u8>> {
        let reader = &mut self.runs[run];
        let mut read = || {
            let length = u64_of(reader)?;
            // Never more than the run has.
            let mut bytes =
                Vec::with_capacity(length.min(reader.get_ref().remaining(reader.buffer())) as usize);
            reader.take(length).read_to_end(&mut bytes)?;
            match bytes.len() as u64 == length {
                true => Ok(bytes),
                false => Err(io::ErrorKind::UnexpectedEof.into()),
            }
        };
        read().map_err(|e| Error::io("read a temporary file in", &self.dir, e))
    }
}

fn u64_of(reader: &mut impl Read) -> io::Result<u64> {
    let mut bytes = [0; 8];
    reader.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// A range of a file.
struct Section {
    file: Arc<File>,
    /// Bytes that are not read yet.
    range: Range<u64>,
}

impl Section {
    /// Returns the number of bytes that are left, including those in `buffer`.
    fn remaining(&self, buffer: &[u8]) -> u64 {
        self.range.end - self.range.start + buffer.len() as u64
    }
}

impl Read for Section {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.range.end - self.range.start;
        let wanted = left.min(buffer.len() as u64) as usize;
        let read = self.file.read_at(&mut buffer[..wanted], self.range.start)?;
        self.range.start += read as u64;
        Ok(read)
    }
}
