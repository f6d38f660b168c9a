//! Verifies a whole dataset: every byte is what was written, and all parts agree.
//!
//! `get` checks only the record it reads. Verification reads everything and finds what no single `get` can: a length
//! index that is not a permutation, damage to a file that was never read, counts that do not add up.

mod checks;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::Ordering;

use dsconvert_dataset::error::Error;
use dsconvert_dataset::panics::caught;
use rayon::ThreadPoolBuilder;
use rayon::iter::{IndexedParallelIterator as _, IntoParallelIterator as _, ParallelIterator as _};

use self::checks::{Check, Checks};
use super::{Dataset, Record};

/// Default number of problems that are reported. Further problems are only counted.
pub const DEFAULT_MAX_PROBLEMS: usize = 100;

/// Checks the content of a record beyond its bytes, for example by decoding the image. The error is one sentence.
pub type DecodeFn<'a> = dyn Fn(&Record) -> Result<(), String> + Sync + 'a;

/// Options of [`verify`].
#[derive(Clone, Copy)]
pub struct VerifyOptions<'a> {
    /// Number of threads, at least 1.
    pub threads: usize,
    /// Maximum number of problems that are reported ([`DEFAULT_MAX_PROBLEMS`]).
    pub max_problems: usize,
    /// Called with each record that passes its checks.
    pub decode: Option<&'a DecodeFn<'a>>,
    /// Called with the progress from time to time, from any thread.
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

/// Progress of [`verify`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifyProgress {
    /// Bytes hashed.
    pub bytes: u64,
    /// Bytes of all files of the dataset except the manifest.
    pub total_bytes: u64,
    /// Records decoded.
    pub records: u64,
    /// Records of all splits.
    pub total_records: u64,
}

/// Result of [`verify`].
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Files that were checked, shards included.
    pub files: u64,
    /// Bytes hashed.
    pub bytes: u64,
    /// Records decoded.
    pub records: u64,
    /// Problems with their locations: other files and indexes first, then shards in order. The same for any number of
    /// threads.
    pub problems: Vec<Error>,
    /// Number of problems beyond [`VerifyOptions::max_problems`].
    pub more_problems: u64,
    /// Files below the dataset directory that the dataset does not list, sorted; at most
    /// [`VerifyOptions::max_problems`]. Programs that read whole directories would mistake them for part of the
    /// dataset, so they count as damage.
    pub unlisted: Vec<String>,
    /// Number of unlisted files beyond those in `unlisted`.
    pub more_unlisted: u64,
}

impl VerifyReport {
    /// Returns whether all problems are those of reading: a store did not respond or refused requests, or files exist but
    /// could not be read. Nothing is then known to be damaged.
    pub fn is_incomplete(&self) -> bool {
        !self.problems.is_empty() && self.problems.iter().all(Error::is_unavailable)
    }

    /// Returns whether there are no problems and no unlisted files.
    pub fn is_ok(&self) -> bool {
        self.problems.is_empty()
            && self.more_problems == 0
            && self.unlisted.is_empty()
            && self.more_unlisted == 0
    }
}

/// Checks every file of `dataset` against its size and SHA-256. Decodes every record of every shard in order and
/// compares it with the record index. Checks length index, histogram, summary and counts against each other, and the labels
/// against the number of records per class. Files below the dataset directory that the dataset does not list are reported,
/// too.
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
        let done = caught(|| checks.run(&check, &mut problems));
        if let Err(problem) = done.unwrap_or_else(|panic| Err(panic.into_error("verifying"))) {
            problems.push(problem);
        }
        problems
    };
    let list = checks.list();
    let threads = options.threads.clamp(1, list.len().max(1));
    let pool = ThreadPoolBuilder::new().num_threads(threads).thread_name(|n| format!("verify-{n}")).build();
    // In list order, whichever thread finishes first.
    let found: Vec<Problems> = match pool {
        Ok(pool) => pool.install(|| list.into_par_iter().with_max_len(1).map(run).collect()),
        // If no threads can be started, the calling thread runs the checks.
        Err(_) => list.into_iter().map(run).collect(),
    };
    let mut all = Problems::new(options.max_problems);
    found.into_iter().for_each(|problems| all.append(problems));
    if all.kept.is_empty() && all.more == 0 {
        checks.labels(&mut all);
    }
    let mut unlisted: Vec<String> = checks.unlisted(&mut all).into_iter().collect();
    let more_unlisted = unlisted.len().saturating_sub(options.max_problems) as u64;
    unlisted.truncate(options.max_problems);
    VerifyReport {
        files: checks.files(),
        bytes: checks.hashed_bytes.load(Ordering::Relaxed),
        records: checks.decoded_records.load(Ordering::Relaxed),
        problems: all.kept,
        more_problems: all.more,
        unlisted,
        more_unlisted,
    }
}

/// A list of problems up to a limit.
#[derive(Debug)]
struct Problems {
    most: usize,
    kept: Vec<Error>,
    /// The texts of the kept problems.
    texts: HashSet<String>,
    more: u64,
}

impl Problems {
    fn new(most: usize) -> Self {
        Self { most, kept: Vec::new(), texts: HashSet::new(), more: 0 }
    }

    fn push(&mut self, problem: Error) {
        // Several checks read the same file.
        let text = problem.to_string();
        if self.texts.contains(&text) {
            return;
        }
        if self.kept.len() < self.most {
            self.kept.push(problem);
            self.texts.insert(text);
        } else {
            self.more += 1;
        }
    }

    fn append(&mut self, other: Problems) {
        other.kept.into_iter().for_each(|problem| self.push(problem));
        self.more += other.more;
    }
}
