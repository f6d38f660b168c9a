//! Temporary files of sorted runs that are deleted with the process.

use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::storage::unlinked_file;

/// An unlinked file of concatenated sorted runs of `N`-byte rows.
#[derive(Debug)]
pub(super) struct Spill<const N: usize> {
    file: Arc<File>,
    /// Directory, for error messages.
    dir: Arc<PathBuf>,
    /// Byte ranges of the runs.
    runs: Vec<Range<u64>>,
}

impl<const N: usize> Spill<N> {
    pub(super) fn create(dir: &Path) -> Result<Self> {
        let file = unlinked_file(dir).map_err(|e| Error::io("create a temporary file in", dir, e))?;
        Ok(Self { file: Arc::new(file), dir: Arc::new(dir.to_owned()), runs: Vec::new() })
    }

    /// Returns the byte ranges of the runs.
    pub(super) fn runs(&self) -> &[Range<u64>] {
        &self.runs
    }

    /// Appends `rows`, which must be sorted, as one run.
    pub(super) fn append_sorted(&mut self, rows: &[[u8; N]]) -> Result<()> {
        self.start_run();
        self.write(rows)
    }

    /// Appends one run from an iterator of sorted rows.
    pub(super) fn append_run(
        &mut self,
        rows: impl Iterator<Item = Result<[u8; N]>>,
        buffer_rows: usize,
    ) -> Result<()> {
        self.start_run();
        let mut buffer = Vec::with_capacity(buffer_rows);
        for row in rows {
            buffer.push(row?);
            if buffer.len() == buffer_rows {
                self.write(&buffer)?;
                buffer.clear();
            }
        }
        self.write(&buffer)
    }

    /// Returns a reader for each of `runs` that reads `buffer_rows` at a time.
    pub(super) fn readers(&self, runs: &[Range<u64>], buffer_rows: usize) -> Vec<RunReader<N>> {
        let reader = |run: &Range<u64>| RunReader {
            file: Arc::clone(&self.file),
            dir: Arc::clone(&self.dir),
            rest: run.clone(),
            buffer: Vec::new(),
            next: 0,
            buffer_rows,
        };
        runs.iter().map(reader).collect()
    }

    fn start_run(&mut self) {
        let start = self.runs.last().map_or(0, |run| run.end);
        self.runs.push(start..start);
    }

    /// Appends rows to the last run.
    fn write(&mut self, rows: &[[u8; N]]) -> Result<()> {
        let bytes = rows.as_flattened();
        (&*self.file).write_all(bytes).map_err(|e| Error::io("write a temporary file in", &self.dir, e))?;
        if let Some(run) = self.runs.last_mut() {
            run.end += bytes.len() as u64;
        }
        Ok(())
    }
}

/// Reads one run with a buffer.
#[derive(Debug)]
pub(super) struct RunReader<const N: usize> {
    file: Arc<File>,
    dir: Arc<PathBuf>,
    /// Bytes of the run that have not been read into the buffer.
    rest: Range<u64>,
    buffer: Vec<[u8; N]>,
    /// Index of the next row in the buffer.
    next: usize,
    buffer_rows: usize,
}

impl<const N: usize> RunReader<N> {
    /// Returns the next row, or `None` at the end of the run.
    pub(super) fn next(&mut self) -> Result<Option<[u8; N]>> {
        if self.next == self.buffer.len() {
            let rows = ((self.rest.end - self.rest.start) / N as u64).min(self.buffer_rows as u64) as usize;
            self.next = 0;
            self.buffer.resize(rows, [0; N]);
            self.file
                .read_exact_at(self.buffer.as_flattened_mut(), self.rest.start)
                .map_err(|e| Error::io("read a temporary file in", &self.dir, e))?;
            self.rest.start += (rows * N) as u64;
        }
        let row = self.buffer.get(self.next).copied();
        self.next += usize::from(row.is_some());
        Ok(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_read_back_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        // Leftover of a process that died between creating and unlinking the file.
        std::fs::write(dir.path().join("sort-0.tmp"), "leftover").unwrap();
        let mut spill = Spill::<2>::create(dir.path()).unwrap();
        spill.append_sorted(&[[1, 2], [3, 4], [5, 6]]).unwrap();
        spill.append_run([].into_iter(), 2).unwrap();
        spill.append_run([[0, 1], [0, 2], [0, 3]].into_iter().map(Ok), 2).unwrap();
        let mut readers = spill.readers(spill.runs(), 2);
        let mut all = |run: usize| std::iter::from_fn(|| readers[run].next().unwrap()).collect::<Vec<_>>();
        assert_eq!(all(0), [[1, 2], [3, 4], [5, 6]]);
        assert!(all(1).is_empty());
        assert_eq!(all(2), [[0, 1], [0, 2], [0, 3]]);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
