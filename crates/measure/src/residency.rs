//! Residency: the share of files that is in the page cache.
//!
//! The system calls `mincore` and `cachestat` need `unsafe` code, which this crate does not have. The program `fincore`
//! of util-linux makes them instead. Without it, residency is unknown.

use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{Advice, fadvise};
use serde::Serialize;

use crate::sampling;
use crate::storage::open_file;

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
