//! Checking a whole dataset: is every byte what was written, and does everything agree?
//!
//! `get` checks the record it reads; this reads all there is, and finds what no single `get` can: a length index that
//! is not a permutation, a file nobody has looked at yet, counts that do not add up.

mod checks;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use dsconvert_dataset::error::Error;
use dsconvert_dataset::panics::caught;
use rayon::ThreadPoolBuilder;
use rayon::iter::{IndexedParallelIterator as _, IntoParallelIterator as _, ParallelIterator as _};

use self::checks::{Check, Checks};
use super::{Dataset, Record};

/// Problems that are reported, by default. More are counted.
pub const DEFAULT_MAX_PROBLEMS: usize = 100;

/// Looks at the content of a record, beyond its bytes: decodes the image, say. The error is one sentence.
pub type DecodeFn<'a> = dyn Fn(&Record) -> Result<(), String> + Sync + 'a;

/// How to verify.
#[derive(Clone, Copy)]
pub struct VerifyOptions<'a> {
    /// Threads that work, at least 1.
    pub threads: usize,
    /// Problems that are reported ([`DEFAULT_MAX_PROBLEMS`]).
    pub max_problems: usize,
    /// Called with each record that is as it was written.
    pub decode: Option<&'a DecodeFn<'a>>,
    /// Told now and then how far it is, from any thread.
    pub progress: Option<&'a (dyn Fn(VerifyProgress) + Sync)>,
}

impl Default for VerifyOptions<'_> {
    fn default() -> Self {
        Self { threads: 1, max_problems: DEFAULT_MAX_PROBLEMS, decode: None, progress: None }
    }
}

impl fmt::Debug for VerifyOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifyOptions")
            .field("threads", &self.threads)
            .field("max_problems", &self.max_problems)
            .field("decode", &self.decode.is_some())
            .finish_non_exhaustive()
    }
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifyProgress {
    /// Bytes hashed.
    pub bytes: u64,
    /// Bytes of all files of the dataset, but the manifest.
    pub total_bytes: u64,
    /// Records decoded.
    pub records: u64,
    /// Records of all splits.
    pub total_records: u64,
}

/// What was found.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Files that were checked, shards included.
    pub files: u64,
    /// Bytes hashed.
    pub bytes: u64,
    /// Records decoded.
    pub records: u64,
    /// What is wrong, with its place: other files and indexes first, then shards in their order. The same for any
    /// number of threads.
    pub problems: Vec<Error>,
    /// Problems beyond [`VerifyOptions::max_problems`].
    pub more_problems: u64,
    /// Files below the directory of the dataset that it does not list, sorted: at most as many as problems. Programs that
    /// read whole directories would take them for a part of it, so the dataset is not whole.
    pub unlisted: Vec<String>,
    /// Files that it does not list beyond those in `unlisted`.
    pub more_unlisted: u64,
}

impl VerifyReport {
    /// Whether nothing is wrong.
    pub fn is_ok(&self) -> bool {
        self.problems.is_empty()
            && self.more_problems == 0
            && self.unlisted.is_empty()
            && self.more_unlisted == 0
    }
}

/// Checks every file of `dataset` against its size and SHA-256, decodes every record of every shard in order and
/// compares it with the record index, and checks length index, histogram, summary and counts against each other. Files
/// below its directory that it does not list are reported, too.
///
/// ```no_run
/// use dsconvert_reader::{Dataset, VerifyOptions, verify};
///
/// let report = verify(&Dataset::open("out")?, &VerifyOptions { threads: 4, ..VerifyOptions::default() });
/// for problem in &report.problems {
///     eprintln!("{problem}");
/// }
/// # Ok::<(), dsconvert_reader::error::Error>(())
/// ```
pub fn verify(dataset: &Dataset, options: &VerifyOptions<'_>) -> VerifyReport {
    let checks = Checks::new(dataset, options);
    let run = |check: Check<'_>| {
        let mut problems = Problems::new(options.max_problems);
        if let Err(panic) = caught(|| checks.run(&check, &mut problems)) {
            problems.push(panic.into_error("verifying"));
        }
        problems
    };
    let list = checks.list();
    let threads = options.threads.clamp(1, list.len().max(1));
    let pool = ThreadPoolBuilder::new().num_threads(threads).thread_name(|n| format!("verify-{n}")).build();
    // In the order of the list, whichever thread comes first.
    let found: Vec<Problems> = match pool {
        Ok(pool) => pool.install(|| list.into_par_iter().with_max_len(1).map(run).collect()),
        // The system has no thread to give.
        Err(_) => list.into_iter().map(run).collect(),
    };
    let mut all = Problems::new(options.max_problems);
    found.into_iter().for_each(|problems| all.append(problems));
    let mut unlisted: Vec<String> = checks.unlisted(&mut all).into_iter().collect();
    let more_unlisted = unlisted.len().saturating_sub(options.max_problems) as u64;
    unlisted.truncate(options.max_problems);
    VerifyReport {
        files: checks.files(),
        bytes: checks.counters.bytes.load(Ordering::Relaxed),
        records: checks.counters.records.load(Ordering::Relaxed),
        problems: all.kept,
        more_problems: all.more,
        unlisted,
        more_unlisted,
    }
}

/// Problems up to a limit.
#[derive(Debug)]
struct Problems {
    most: usize,
    kept: Vec<Error>,
    more: u64,
}

impl Problems {
    fn new(most: usize) -> Self {
        Self { most, kept: Vec::new(), more: 0 }
    }

    fn push(&mut self, problem: Error) {
        if self.kept.len() < self.most {
            self.kept.push(problem);
        } else {
            self.more += 1;
        }
    }

    fn append(&mut self, other: Problems) {
        other.kept.into_iter().for_each(|problem| self.push(problem));
        self.more += other.more;
    }
}

/// What all threads count together.
#[derive(Debug, Default)]
struct Counters {
    bytes: AtomicU64,
    records: AtomicU64,
}
