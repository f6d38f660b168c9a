//! The device: plain reads of the files of a target, and how much of them is in the page cache.
//!
//! The system calls `mincore` and `cachestat` need `unsafe` code, which this crate does not have. The program `fincore`
//! of util-linux makes them instead. Without it, residency is unknown.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise};
use serde::Serialize;

use super::target::RawFile;
use crate::error::Result;
use crate::sampling::Permutation;
use crate::storage::open_file;
use crate::{sampling, threads};

/// Size of a sequential read, in bytes.
const BLOCK_BYTES: u64 = 1 << 20;
/// Alignment and minimum size of random reads, in bytes.
const ALIGNMENT: u64 = 4096;
/// Maximum number of files that a thread keeps open.
const OPEN_FILES: usize = 64;

/// Throughput of plain reads of the files of a target.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Probe {
    /// Number of reading threads.
    pub threads: usize,
    /// Bytes per second of sequential reads in blocks of 1 MiB.
    pub sequential_bytes_per_second: f64,
    /// Bytes per second of random reads.
    pub random_bytes_per_second: f64,
    /// Random reads per second.
    pub random_reads_per_second: f64,
    /// Size of a random read: the mean item in whole pages, between 4 KiB and 1 MiB.
    pub random_read_bytes: u64,
    /// Residency before the sequential and before the random reads.
    pub residency: [Option<Residency>; 2],
}

/// The files of a target, divided into blocks of one size. The last block of a file may be shorter.
struct FileBlocks {
    block_bytes: u64,
    /// Number of blocks before each file.
    starts: Vec<u64>,
    count: u64,
}

impl FileBlocks {
    fn new(files: &[RawFile], block_bytes: u64) -> Self {
        let mut count = 0;
        let starts = files.iter().map(|file| {
            let start = count;
            count += file.bytes.div_ceil(block_bytes);
            start
        });
        Self { starts: starts.collect(), block_bytes, count }
    }

    /// Returns the file and the offset of a block.
    fn find(&self, block: u64) -> Option<(usize, u64)> {
        let file = self.starts.partition_point(|start| *start <= block).checked_sub(1)?;
        Some((file, (block - self.starts.get(file)?) * self.block_bytes))
    }

    /// Returns the block of a random read. Each run of `count` reads is a pass over all blocks, each once and in an
    /// order of its own.
    fn shuffled(&self, read: u64) -> Option<u64> {
        let (pass, at) = (read.checked_div(self.count)?, read.checked_rem(self.count)?);
        Some(Permutation::new(self.count, pass).of(at))
    }
}

/// Reads on one thread.
#[derive(Default)]
struct ProbeReader {
    open: BTreeMap<usize, File>,
    buffer: Vec<u8>,
}

impl ProbeReader {
    /// Reads up to `bytes` bytes, and returns how many were read. A missing or shortened file ends the read early.
    fn read(&mut self, files: &[RawFile], file: usize, offset: u64, bytes: u64) -> u64 {
        if !self.open.contains_key(&file) {
            if self.open.len() >= OPEN_FILES {
                self.open.pop_first();
            }
            let Some(Ok(opened)) = files.get(file).map(|raw| open_file(&raw.path, true)) else { return 0 };
            self.open.insert(file, opened);
        }
        self.buffer.resize(bytes as usize, 0);
        let read = self.open.get(&file).map_or(0, |f| f.read_at(&mut self.buffer, offset).unwrap_or(0));
        std::hint::black_box(&self.buffer);
        read as u64
    }
}

/// Returns the bytes and reads per second of `threads` threads that call `next` for `time`. `next` returns file, offset
/// and size of the read with the given number, or `None` to end.
fn measure(
    files: &[RawFile],
    threads: usize,
    time: Duration,
    next: impl Fn(u64) -> Option<(usize, u64, u64)> + Sync,
) -> Result<(f64, f64)> {
    let (bytes, reads, claims) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let start = Instant::now();
    std::thread::scope(|scope| {
        let work = || {
            let mut reader = ProbeReader::default();
            while let Some((file, offset, size)) = next(claims.fetch_add(1, Relaxed)) {
                bytes.fetch_add(reader.read(files, file, offset, size), Relaxed);
                reads.fetch_add(1, Relaxed);
                if start.elapsed() >= time {
                    return;
                }
            }
        };
        threads::start_up_to(threads, |_| threads::named("probe").spawn_scoped(scope, work)).map(drop)
    })?;
    let seconds = start.elapsed().as_secs_f64().max(1e-9);
    Ok((bytes.into_inner() as f64 / seconds, reads.into_inner() as f64 / seconds))
}

impl Probe {
    /// Reads `files` with `threads` threads, each phase for `time`: first in order, in blocks of 1 MiB, then in random
    /// order, in blocks of about the mean item. Both phases pass over all blocks of all files, each block once, and
    /// start again at the end; with `single_pass`, they end there. `prepare` is called before each phase, and returns
    /// the residency.
    pub(super) fn run(
        files: &[RawFile],
        item_bytes: f64,
        threads: usize,
        time: Duration,
        single_pass: bool,
        mut prepare: impl FnMut() -> Option<Residency>,
    ) -> Result<Option<Self>> {
        let blocks = FileBlocks::new(files, BLOCK_BYTES);
        if blocks.count == 0 {
            return Ok(None);
        }
        let before = prepare();
        let (sequential, _) = measure(files, threads, time, |claim| {
            let (file, offset) =
                blocks.find(claim % blocks.count).filter(|_| !single_pass || claim < blocks.count)?;
            Some((file, offset, BLOCK_BYTES))
        })?;
        let before_random = prepare();
        let size = (item_bytes.ceil() as u64).clamp(1, BLOCK_BYTES).next_multiple_of(ALIGNMENT);
        let blocks = FileBlocks::new(files, size);
        let (random, reads) = measure(files, threads, time, |claim| {
            if single_pass && claim >= blocks.count {
                return None;
            }
            let (file, offset) = blocks.find(blocks.shuffled(claim)?)?;
            Some((file, offset, size))
        })?;
        Ok(Some(Self {
            threads,
            sequential_bytes_per_second: sequential,
            random_bytes_per_second: random,
            random_reads_per_second: reads,
            random_read_bytes: size,
            residency: [before, before_random],
        }))
    }
}

/// Maximum number of files to examine.
const MAX_FILES: u64 = 2000;
/// Number of files per call of `fincore`.
const FILES_PER_CALL: usize = 250;

/// Residency of files in the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Residency {
    /// Share of the examined pages that are in the page cache.
    pub share: f64,
    /// Number of examined files: all, or a sample of 2,000.
    pub files: u64,
    /// Total size of these files.
    pub bytes: u64,
}

/// Parsed output of `fincore`.
#[derive(Debug, Default)]
struct FincoreOutput {
    resident_pages: u64,
    resident_bytes: u64,
    sizes: Vec<u64>,
}

impl FincoreOutput {
    /// Adds the output of one call. Returns `None` if its lines are not three numbers each.
    fn add(&mut self, output: &str) -> Option<()> {
        for line in output.lines().filter(|line| !line.trim().is_empty()) {
            let numbers: Vec<u64> = line.split_whitespace().map(|n| n.parse().ok()).collect::<Option<_>>()?;
            let [pages, bytes, size] = numbers[..] else { return None };
            self.resident_pages = self.resident_pages.checked_add(pages)?;
            self.resident_bytes = self.resident_bytes.checked_add(bytes)?;
            self.sizes.push(size);
        }
        Some(())
    }

    fn residency(&self) -> Option<Residency> {
        // If no page is resident, the page size does not matter.
        let page = self.resident_bytes.checked_div(self.resident_pages).unwrap_or(1).max(1);
        let pages: u64 = self.sizes.iter().map(|size| size.div_ceil(page)).sum();
        (pages > 0).then(|| Residency {
            share: (self.resident_pages as f64 / pages as f64).min(1.0),
            files: self.sizes.len() as u64,
            bytes: self.sizes.iter().sum(),
        })
    }
}

impl Residency {
    /// Returns the residency of `files`, or `None` if it cannot be determined.
    pub(super) fn of<'a>(files: impl ExactSizeIterator<Item = &'a Path>) -> Option<Self> {
        let mut sample = sampling::sample(files.len() as u64, MAX_FILES).into_iter().peekable();
        let is_chosen = |(at, _): &(u64, &Path)| sample.next_if_eq(at).is_some();
        let chosen: Vec<&Path> = (0..).zip(files).filter(is_chosen).map(|(_, file)| file).collect();
        let mut counted = FincoreOutput::default();
        for some in chosen.chunks(FILES_PER_CALL) {
            let output = Command::new("fincore")
                .args(["--bytes", "--noheadings", "--raw", "--output", "PAGES,RES,SIZE", "--"])
                .args(some)
                .stdin(Stdio::null())
                .stderr(Stdio::null())
                .output()
                .ok()?;
            counted.add(&String::from_utf8(output.stdout).ok()?)?;
        }
        // A file that could not be examined has no line.
        (counted.sizes.len() == chosen.len()).then(|| counted.residency()).flatten()
    }
}

/// Asks the kernel to drop `files` from the page cache. Pages that are mapped or not yet written stay, so only
/// [`Residency`] shows what was dropped.
pub(super) fn evict<'a>(files: impl Iterator<Item = &'a Path>) {
    for file in files.filter_map(|path| open_file(path, true).ok()) {
        // Newly written pages are dropped only once they are on the disk.
        let _ = rustix::fs::fdatasync(&file);
        let _ = fadvise(&file, 0, None, Advice::DontNeed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: u64) -> RawFile {
        RawFile { path: "x".into(), name: String::new(), bytes }
    }

    #[test]
    fn blocks_cover_every_file() {
        let files = [file(0), file(10), file(0), file(5), file(8)];
        let blocks = FileBlocks::new(&files, 4);
        assert_eq!(blocks.count, 7);
        assert_eq!(
            (0..7).map(|block| blocks.find(block).unwrap()).collect::<Vec<_>>(),
            [(1, 0), (1, 4), (1, 8), (3, 0), (3, 4), (4, 0), (4, 4)]
        );
    }

    #[test]
    fn a_random_pass_reads_every_block_once() {
        let files = [file(100_000), file(1), file(0), file(4096 * 40)];
        let blocks = FileBlocks::new(&files, 4096);
        let pass = |number: u64| {
            let reads = number * blocks.count..(number + 1) * blocks.count;
            reads.map(|read| blocks.shuffled(read).unwrap()).collect::<Vec<_>>()
        };
        let (first, second) = (pass(0), pass(1));
        assert_ne!(first, second);
        for mut read in [first, second] {
            assert!(!read.is_sorted());
            read.sort_unstable();
            assert!(read.iter().copied().eq(0..66));
        }
    }

    #[test]
    fn a_single_pass_ends_before_the_time_limit() {
        let dir = tempfile::tempdir().unwrap();
        let files: Vec<RawFile> = [3 << 20, 100]
            .iter()
            .enumerate()
            .map(|(i, &bytes)| {
                let path = dir.path().join(i.to_string());
                std::fs::write(&path, vec![1u8; bytes]).unwrap();
                RawFile { path, name: String::new(), bytes: bytes as u64 }
            })
            .collect();
        let (mut calls, time) = (0, Duration::from_secs(20));
        let mut prepare = || {
            calls += 1;
            None
        };
        let probe = Probe::run(&files, 10_000.0, 2, time, true, &mut prepare).unwrap().unwrap();
        assert_eq!((calls, probe.random_read_bytes), (2, 12_288));
        assert!(probe.sequential_bytes_per_second > 0.0 && probe.random_reads_per_second > 0.0);
        assert_eq!(Probe::run(&[], 1.0, 1, time, true, || None).unwrap(), None);
    }

    fn parsed(output: &str) -> Option<Residency> {
        let mut counted = FincoreOutput::default();
        counted.add(output)?;
        counted.residency()
    }

    #[test]
    fn output_is_parsed_or_unknown() {
        let found = parsed("1 4096 100\n0 0 8192\n").unwrap();
        assert_eq!((found.share, found.files, found.bytes), (1.0 / 3.0, 2, 8292));
        assert_eq!(parsed("1 16384 4096\n0 0 0\n").unwrap().share, 1.0);
        assert_eq!(parsed("0 0 4096\n").unwrap().share, 0.0);
        for unknown in ["", "0 0 0\n", "1 4K 4096\n", "1 4096\n", "1 2 3 4\n", "PAGES RES SIZE\n1 4096 1\n"] {
            assert_eq!(parsed(unknown), None, "{unknown:?}");
        }
    }

    #[test]
    fn residency_of_a_missing_file_is_unknown() {
        let missing = [Path::new("/nonexistent/file")];
        assert_eq!(Residency::of(missing.into_iter()), None);
    }
}
