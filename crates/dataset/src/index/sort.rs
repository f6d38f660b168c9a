//! External sorting of rows that do not fit in memory.
//!
//! Rows are byte arrays in lexicographic order: pack numbers big-endian, most significant column first. Rows are
//! collected until the memory limit is reached, sorted, and appended to a spill file as one *run*. Finally the runs are
//! merged. If nothing was spilled, everything happens in memory.
//!
//! A spill file is unlinked as soon as it is open, so the kernel frees it whatever happens to the process. The disk
//! holds at most two copies of the rows. The second exists only during intermediate merges, which are needed above
//! [`MAX_FAN_IN`] runs, or fewer if memory is small.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::storage::unlinked_file;

/// Minimum memory in bytes, used even if the caller grants less.
pub const MIN_MEMORY_BYTES: usize = 1 << 20;
/// Maximum runs merged at once.
pub const MAX_FAN_IN: usize = 256;
/// Minimum bytes per read from a run while merging. With smaller reads, a disk spends more time seeking than reading.
const MIN_BUFFER_BYTES: usize = 64 << 10;
/// Maximum bytes per read from a run while merging.
const MAX_BUFFER_BYTES: usize = 1 << 20;

/// Division of the memory.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Rows sorted in memory at once.
    run_rows: usize,
    /// Runs merged at once, at least 2.
    fan_in: usize,
    /// Rows per read from a run.
    buffer_rows: usize,
}

impl Limits {
    fn new(memory_bytes: usize, row_bytes: usize) -> Self {
        let memory = memory_bytes.max(MIN_MEMORY_BYTES);
        // One buffer more than runs, because the output of a merge is buffered too.
        let fan_in = (memory / MIN_BUFFER_BYTES - 1).min(MAX_FAN_IN);
        let buffer = (memory / (fan_in + 1)).min(MAX_BUFFER_BYTES);
        Self { run_rows: (memory / row_bytes).max(1), fan_in, buffer_rows: (buffer / row_bytes).max(1) }
    }
}

/// Sorts rows of `N` bytes, spilling to disk when the memory limit is reached.
///
/// ```
/// # use dsconvert_dataset::index::sort::ExternalSort;
/// # fn main() -> dsconvert_dataset::error::Result<()> {
/// let mut sort = ExternalSort::<8>::new(std::env::temp_dir(), 1 << 20);
/// for number in [7u64, 256, 1] {
///     sort.push(number.to_be_bytes())?;
/// }
/// let sorted: Vec<u64> = sort.finish()?.map(|row| row.map(u64::from_be_bytes)).collect::<Result<_, _>>()?;
/// assert_eq!(sorted, [1, 7, 256]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ExternalSort<const N: usize> {
    limits: Limits,
    spill_dir: PathBuf,
    rows: Vec<[u8; N]>,
    spill: Option<Spill<N>>,
    len: u64,
}

impl<const N: usize> ExternalSort<N> {
    /// Creates a sorter that uses about `memory_bytes` (at least [`MIN_MEMORY_BYTES`]) and spills into `spill_dir`,
    /// which must exist by the first spill. Several sorters may share a directory.
    pub fn new(spill_dir: impl Into<PathBuf>, memory_bytes: usize) -> Self {
        const { assert!(N > 0, "rows must not be empty") };
        Self::with_limits(spill_dir.into(), Limits::new(memory_bytes, N))
    }

    fn with_limits(spill_dir: PathBuf, limits: Limits) -> Self {
        Self { limits, spill_dir, rows: Vec::new(), spill: None, len: 0 }
    }

    /// Adds a row. Duplicate rows are kept.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`](crate::error::ErrorKind) if a run cannot be spilled.
    pub fn push(&mut self, row: [u8; N]) -> Result<()> {
        if self.rows.len() == self.limits.run_rows {
            self.spill_run()?;
        }
        if self.rows.len() == self.rows.capacity() {
            // Doubles the capacity, but never beyond the limit.
            let more = self.rows.len().max(1024).min(self.limits.run_rows - self.rows.len());
            self.rows.reserve_exact(more);
        }
        self.rows.push(row);
        self.len += 1;
        Ok(())
    }

    /// Returns the number of rows pushed so far.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether no row has been pushed.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns all rows in order. Dropping the iterator frees the memory and the disk space.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`](crate::error::ErrorKind) if runs cannot be spilled or read back.
    pub fn finish(mut self) -> Result<Sorted<N>> {
        self.rows.sort_unstable();
        let Some(mut spill) = self.spill else {
            return Ok(Sorted(RunSource::Memory(self.rows.into_iter())));
        };
        spill.append_sorted(&self.rows)?;
        self.rows = Vec::new();
        let Limits { fan_in, buffer_rows, .. } = self.limits;
        while spill.runs.len() > fan_in {
            let mut merged = Spill::create(&self.spill_dir)?;
            for group in spill.runs.chunks(fan_in) {
                let rows = RunMerger::new(spill.readers(group, buffer_rows))?;
                merged.append_run(rows, buffer_rows)?;
            }
            spill = merged;
        }
        let readers = spill.readers(&spill.runs, buffer_rows);
        Ok(Sorted(RunSource::Disk(RunMerger::new(readers)?)))
    }

    fn spill_run(&mut self) -> Result<()> {
        let spill = match &mut self.spill {
            Some(spill) => spill,
            none => none.insert(Spill::create(&self.spill_dir)?),
        };
        self.rows.sort_unstable();
        spill.append_sorted(&self.rows)?;
        self.rows.clear();
        Ok(())
    }
}

/// Iterator over the rows of an [`ExternalSort`] in order. Ends after the first error.
#[derive(Debug)]
pub struct Sorted<const N: usize>(RunSource<N>);

#[derive(Debug)]
enum RunSource<const N: usize> {
    Memory(std::vec::IntoIter<[u8; N]>),
    Disk(RunMerger<N>),
}

impl<const N: usize> Iterator for Sorted<N> {
    type Item = Result<[u8; N]>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            RunSource::Memory(rows) => rows.next().map(Ok),
            RunSource::Disk(merge) => merge.next(),
        }
    }
}

/// Merges sorted runs. The heap holds the next row of each unfinished run.
#[derive(Debug)]
struct RunMerger<const N: usize> {
    heap: BinaryHeap<Reverse<([u8; N], usize)>>,
    runs: Vec<RunReader<N>>,
}

impl<const N: usize> RunMerger<N> {
    fn new(mut runs: Vec<RunReader<N>>) -> Result<Self> {
        let mut heap = BinaryHeap::with_capacity(runs.len());
        for (i, run) in runs.iter_mut().enumerate() {
            if let Some(row) = run.next()? {
                heap.push(Reverse((row, i)));
            }
        }
        Ok(Self { heap, runs })
    }
}

impl<const N: usize> Iterator for RunMerger<N> {
    type Item = Result<[u8; N]>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut top = self.heap.peek_mut()?;
        let Reverse((row, run)) = *top;
        match self.runs[run].next() {
            // Replacing the row in place sifts the heap once instead of twice.
            Ok(Some(next)) => top.0.0 = next,
            Ok(None) => drop(PeekMut::pop(top)),
            Err(e) => {
                drop(top);
                self.heap.clear();
                return Some(Err(e));
            }
        }
        Some(Ok(row))
    }
}

/// An unlinked file of concatenated sorted runs of `N`-byte rows.
#[derive(Debug)]
struct Spill<const N: usize> {
    file: Arc<File>,
    /// Directory, for error messages.
    dir: Arc<PathBuf>,
    /// Byte ranges of the runs.
    runs: Vec<Range<u64>>,
}

impl<const N: usize> Spill<N> {
    fn create(dir: &Path) -> Result<Self> {
        let file = unlinked_file(dir).map_err(|e| Error::io("create a temporary file in", dir, e))?;
        Ok(Self { file: Arc::new(file), dir: Arc::new(dir.to_owned()), runs: Vec::new() })
    }

    /// Appends `rows`, which must be sorted, as one run.
    fn append_sorted(&mut self, rows: &[[u8; N]]) -> Result<()> {
        self.start_run();
        self.write(rows)
    }

    /// Appends one run from an iterator of sorted rows.
    fn append_run(&mut self, rows: impl Iterator<Item = Result<[u8; N]>>, buffer_rows: usize) -> Result<()> {
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
    fn readers(&self, runs: &[Range<u64>], buffer_rows: usize) -> Vec<RunReader<N>> {
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
struct RunReader<const N: usize> {
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
    fn next(&mut self) -> Result<Option<[u8; N]>> {
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
    use proptest::prelude::*;

    use super::*;

    fn sorted(rows: &[[u8; 3]], limits: Limits) -> Vec<[u8; 3]> {
        let dir = tempfile::tempdir().unwrap();
        let mut sort = ExternalSort::with_limits(dir.path().to_owned(), limits);
        for &row in rows {
            sort.push(row).unwrap();
        }
        assert_eq!(sort.len(), rows.len() as u64);
        let sorted = sort.finish().unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "spill files are unlinked");
        sorted.collect::<Result<_>>().unwrap()
    }

    proptest! {
        #[test]
        fn rows_are_sorted_within_any_limits(
            rows in prop::collection::vec(prop::array::uniform3(0u8..4), 0..300),
            run_rows in 1usize..40,
            fan_in in 2usize..6,
            buffer_rows in 1usize..9,
        ) {
            let mut expected = rows.clone();
            expected.sort();
            prop_assert_eq!(sorted(&rows, Limits { run_rows, fan_in, buffer_rows }), expected);
        }
    }

    #[test]
    fn limits_fit_in_the_memory() {
        for (memory, row) in [(0, 16), (1 << 20, 24), (64 << 20, 16), (4 << 30, 24), (usize::MAX, 8)] {
            let limits = Limits::new(memory, row);
            let granted = memory.max(MIN_MEMORY_BYTES);
            assert!((2..=MAX_FAN_IN).contains(&limits.fan_in));
            assert!(limits.run_rows.checked_mul(row).unwrap() <= granted);
            assert!((limits.fan_in + 1) * limits.buffer_rows * row <= granted);
            assert!(limits.buffer_rows * row > MIN_BUFFER_BYTES - row);
        }
    }

    #[test]
    fn a_missing_spill_directory_is_an_error_with_its_path() {
        let limits = Limits { run_rows: 1, fan_in: 2, buffer_rows: 1 };
        let mut sort = ExternalSort::<1>::with_limits("/nonexistent/spill".into(), limits);
        sort.push([2]).unwrap();
        let error = sort.push([1]).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/spill"), "{error}");
    }

    #[test]
    fn runs_are_read_back_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        // Leftover of a process that died between creating and unlinking the file.
        std::fs::write(dir.path().join("sort-0.tmp"), "leftover").unwrap();
        let mut spill = Spill::<2>::create(dir.path()).unwrap();
        spill.append_sorted(&[[1, 2], [3, 4], [5, 6]]).unwrap();
        spill.append_run([].into_iter(), 2).unwrap();
        spill.append_run([[0, 1], [0, 2], [0, 3]].into_iter().map(Ok), 2).unwrap();
        let mut readers = spill.readers(&spill.runs, 2);
        let mut all = |run: usize| std::iter::from_fn(|| readers[run].next().unwrap()).collect::<Vec<_>>();
        assert_eq!(all(0), [[1, 2], [3, 4], [5, 6]]);
        assert!(all(1).is_empty());
        assert_eq!(all(2), [[0, 1], [0, 2], [0, 3]]);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
