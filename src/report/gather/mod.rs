//! Statistics of a dataset and examples of rejects, gathered once and in bounded memory.

mod buckets;
mod classes;
mod images;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde::Deserialize;

pub(crate) use self::buckets::BucketShare;
pub use self::buckets::BucketShares;
pub use self::classes::{ClassCounts, LabelCounts};
pub use self::images::{ImageStats, Thumbnail};
pub use self::text::Curves;
pub use self::text::{DecodedSample, TextStats, TokenCount, TrainedStats};
use super::histogram::Histogram;
use super::vocabulary::Vocabulary;
use crate::error::{Error, Result};
use crate::manifest::{Manifest, Split as SplitInfo};
use crate::numbers::{count, plural};
use crate::reader::{Dataset, Record, Split};
use crate::storage::{resolve, stat};

/// Maximum number of splits to show in detail.
pub(super) const MAX_SPLITS: usize = 12;
/// Maximum number of problems to list; the others are counted.
const MAX_PROBLEMS: usize = 20;

/// Options of a report.
#[derive(Debug, Clone)]
pub struct ReportOptions<'a> {
    /// Seed that selects the records shown as examples.
    pub seed: u64,
    /// Restricts the report to this split.
    pub split: Option<&'a str>,
    /// Bytes of the `tokenizer.json` that made the ids, for a dataset that does not contain it.
    pub tokenizer: Option<&'a [u8]>,
    /// Thumbnails per split.
    pub thumbnails: usize,
    /// Decoded documents per split.
    pub documents: usize,
    /// Skips what is slow to gather: token counts, padding and classes.
    pub compact: bool,
}

impl Default for ReportOptions<'_> {
    fn default() -> Self {
        Self { seed: 0, split: None, tokenizer: None, thumbnails: 48, documents: 6, compact: false }
    }
}

/// Statistics and examples of a dataset.
#[derive(Debug)]
pub struct DatasetReport {
    /// Name of the directory.
    pub name: String,
    /// Manifest of the dataset.
    pub manifest: Manifest,
    /// Seed of the examples.
    pub seed: u64,
    /// Reports of the splits that were read.
    pub splits: Vec<SplitReport>,
    /// Examples of rejects, by reason.
    pub rejects: Vec<RejectExamples>,
    /// Reason why ids cannot be shown as text.
    pub no_text: Option<String>,
    /// Parts of the dataset that could not be read.
    pub problems: Problems,
}

/// Statistics and examples of a split.
#[derive(Debug)]
pub struct SplitReport {
    /// Name of the split.
    pub name: String,
    /// Entry of the split in the manifest.
    pub info: SplitInfo,
    /// Lengths of all records from the length index, in the unit of the kind.
    pub lengths: Option<Histogram>,
    /// Statistics of images.
    pub images: Option<ImageStats>,
    /// Statistics of text.
    pub text: Option<TextStats>,
}

/// Problems found in a dataset, without duplicates.
#[derive(Debug, Default, Clone)]
pub struct Problems {
    /// The first problems.
    pub listed: Vec<String>,
    /// Number of further problems.
    pub more: u64,
    /// Names of shards that are already listed.
    shards: BTreeSet<String>,
    /// Unreadable records by shard.
    unreadable: BTreeMap<String, UnreadableRecords>,
}

/// Records of one shard that cannot be read, which are one problem.
#[derive(Debug, Default, Clone)]
struct UnreadableRecords {
    /// Position among the listed problems; `None` if it is only counted.
    listed: Option<usize>,
    rows: BTreeSet<u64>,
    first_error: String,
}

impl Problems {
    pub(super) fn add(&mut self, problem: String) {
        if self.listed.contains(&problem) {
            return;
        }
        if self.listed.len() < MAX_PROBLEMS { self.listed.push(problem) } else { self.more += 1 }
    }

    /// Adds an unreadable record. The records of a shard are one problem, and so is a shard that cannot be opened.
    fn add_unreadable(&mut self, error: &Error) {
        match (&error.place().shard, error.place().row) {
            (Some(shard), Some(row)) => self.add_row(shard, row, error),
            (Some(shard), None) => {
                if self.shards.insert(shard.clone()) {
                    self.add(format!("a shard cannot be read: {error}"));
                }
            }
            (None, _) => self.add(format!("a record cannot be read: {error}")),
        }
    }

    /// Adds a row of a shard, and counts it in the listed problem of the shard, if there is one.
    fn add_row(&mut self, shard: &str, row: u64, error: &Error) {
        let Some(known) = self.unreadable.get_mut(shard) else {
            let first_error = error.to_string();
            let listed = Some(self.listed.len()).filter(|listed| *listed < MAX_PROBLEMS);
            self.add(format!("a record cannot be read: {first_error}"));
            let rows = BTreeSet::from([row]);
            self.unreadable.insert(shard.to_owned(), UnreadableRecords { listed, rows, first_error });
            return;
        };
        if known.rows.insert(row)
            && let Some(problem) = known.listed.and_then(|at| self.listed.get_mut(at))
        {
            let records = plural(known.rows.len() as u64, "record");
            *problem = format!("{records} of a shard cannot be read, for example: {}", known.first_error);
        }
    }

    /// Returns the value, or adds the error as a problem prefixed with `what`.
    pub(super) fn ok_or_add<T>(&mut self, what: &str, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.add(format!("{what}: {error}"))).ok()
    }
}

impl DatasetReport {
    /// Gathers a report of `dataset`. Damage to shards, indexes and other files is listed in the report.
    ///
    /// # Errors
    ///
    /// If the dataset has no split of the given name, or the given tokenizer is not the one that made its ids.
    pub fn of(dataset: &Dataset, options: &ReportOptions<'_>) -> Result<Self> {
        let manifest = dataset.manifest().clone();
        let mut problems = Problems::default();
        let only = options.split.map(|name| dataset.split(name)).transpose()?;
        let splits: Vec<Split> = match only {
            Some(split) => vec![split],
            None => dataset.splits().take(MAX_SPLITS).collect(),
        };
        let text = manifest.schema.holds_token_ids() && options.documents > 0;
        let (vocabulary, no_text) =
            match text.then(|| Vocabulary::of(dataset, options.tokenizer)).transpose()? {
                Some(Ok(vocabulary)) => (Some(vocabulary), None),
                Some(Err(why)) => (None, Some(why)),
                None => (None, None),
            };
        if !options.compact {
            check_shards(dataset, &mut problems);
        }
        let splits = splits
            .iter()
            .filter_map(|split| split_report(dataset, split, vocabulary.as_ref(), options, &mut problems))
            .collect();
        let rejects = match options.compact {
            true => Vec::new(),
            false => reject_examples(dataset, &mut problems),
        };
        Ok(Self {
            name: name_of(dataset.path()),
            manifest,
            seed: options.seed,
            splits,
            rejects,
            no_text,
            problems,
        })
    }
}

/// Counts what `count` returns for each split of `dataset`, by the name of the split. Its errors, and those of records
/// that it cannot read, are passed to `unreadable`: the first one of each split.
fn in_splits<T>(
    dataset: &Dataset,
    unreadable: &mut dyn FnMut(&str, &Error),
    count: impl Fn(&Split, &mut dyn FnMut(&Error)) -> Result<T>,
) -> BTreeMap<String, T> {
    let mut found = BTreeMap::new();
    for split in dataset.splits() {
        let mut is_first = true;
        let mut note = |error: &Error| {
            if std::mem::take(&mut is_first) {
                unreadable(split.name(), error);
            }
        };
        match count(&split, &mut note) {
            Ok(counts) => drop(found.insert(split.name().to_owned(), counts)),
            Err(error) => note(&error),
        }
    }
    found
}

/// Calls `each` for all records of `split` that can be read, and `unreadable` for the errors of the others.
fn each_record(split: &Split, mut each: impl FnMut(&Record), unreadable: &mut dyn FnMut(&Error)) {
    /// Number of records that are read together.
    const CHUNK: u64 = 2048;
    for start in (0..split.len()).step_by(CHUNK as usize) {
        let chunk: Vec<u64> = (start..split.len().min(start + CHUNK)).collect();
        each_of(split, &chunk, &mut each, unreadable);
    }
}

/// The same for the records with the ordinals `chunk`, which are read together.
fn each_of(split: &Split, chunk: &[u64], each: &mut dyn FnMut(&Record), unreadable: &mut dyn FnMut(&Error)) {
    match split.get_many(chunk) {
        Ok(records) => records.iter().for_each(each),
        // One by one, so that the readable ones are counted.
        Err(_) => chunk.iter().for_each(|&ordinal| match split.get(ordinal) {
            Ok(record) => each(&record),
            Err(error) => unreadable(&error),
        }),
    }
}

/// Returns the last component of the path; for a path such as `.`, the name of that directory.
fn name_of(path: &Path) -> String {
    let named = path.file_name().map(std::ffi::OsStr::to_os_string);
    let named = named.or_else(|| path.canonicalize().ok()?.file_name().map(std::ffi::OsStr::to_os_string));
    named.map_or_else(|| "dataset".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Lists shards that are missing or have the wrong size. Their content is checked when records are read.
fn check_shards(dataset: &Dataset, problems: &mut Problems) {
    // An object cannot be truncated, and a missing one is noticed when its records are read.
    if dataset.location().is_remote() {
        return;
    }
    for shard in dataset.shards().shards() {
        let path = shard.path();
        let problem = match resolve(dataset.path(), &path).and_then(|file| stat(&file)) {
            Ok(Some(meta)) if meta.len() == shard.bytes => continue,
            Ok(Some(meta)) => {
                format!(
                    "shard {path} has {} instead of {}; its records are left out",
                    plural(meta.len(), "byte"),
                    count(shard.bytes)
                )
            }
            Ok(None) => format!("shard {path} is missing; its records are left out"),
            Err(error) => format!("shard {path} cannot be examined: {error}"),
        };
        problems.add(problem);
        problems.shards.insert(shard.name.clone());
    }
}

fn split_report(
    dataset: &Dataset,
    split: &Split,
    vocabulary: Option<&Vocabulary>,
    options: &ReportOptions<'_>,
    problems: &mut Problems,
) -> Option<SplitReport> {
    let (name, info) = (split.name().to_owned(), split.info()?.clone());
    let mut report = SplitReport { name, info, lengths: None, images: None, text: None };
    if split.is_empty() {
        return Some(report);
    }
    let what = format!("split {}: the length index cannot be read", report.name);
    report.lengths = problems.ok_or_add(&what, lengths(split));
    if dataset.schema().holds_images() {
        report.images = Some(images::gather(dataset, split, options, problems));
    }
    if dataset.schema().holds_token_ids() {
        report.text = Some(text::gather(split, vocabulary, options, problems));
    }
    Some(report)
}

/// Returns the histogram of all lengths. There may be as many distinct lengths as records, so lengths after the first
/// `MAX_RUNS` distinct ones are counted as the last of these.
fn lengths(split: &Split) -> Result<Histogram> {
    /// Maximum number of distinct lengths to distinguish.
    const MAX_RUNS: usize = 1 << 20;
    let mut values: Vec<(f64, u64)> = Vec::new();
    for run in split.histogram()? {
        let run = run?;
        let full = values.len() >= MAX_RUNS;
        match values.last_mut() {
            Some(last) if full => last.1 = last.1.saturating_add(run.count),
            _ => values.push((run.length as f64, run.count)),
        }
    }
    Ok(Histogram::new(&values, true))
}

/// Name of the file that lists rejects.
const REJECTS_NAME: &str = "rejects.jsonl";
/// Maximum number of examples per reason.
const EXAMPLES: usize = 5;
/// Maximum number of bytes of the list to read.
const MAX_BYTES: u64 = 32 << 20;
/// Maximum length of a line, in bytes.
const MAX_LINE: u64 = 1 << 20;

/// Rejects with the same reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RejectExamples {
    /// Reason code.
    pub code: String,
    /// Number of rejects.
    pub count: u64,
    /// Origin and message of the first rejects.
    pub examples: Vec<(String, String)>,
}

#[derive(Deserialize)]
struct StoredReject {
    origin: String,
    code: String,
    message: String,
}

/// Returns the first rejects of every reason, the most frequent reason first.
fn reject_examples(dataset: &Dataset, problems: &mut Problems) -> Vec<RejectExamples> {
    let manifest = dataset.manifest();
    let mut found: Vec<RejectExamples> = manifest
        .reject_codes
        .iter()
        .map(|(code, count)| RejectExamples { code: code.clone(), count: *count, examples: Vec::new() })
        .collect();
    found.sort_by_key(|reject| std::cmp::Reverse(reject.count));
    let Some(file) =
        manifest.files.iter().find(|file| file.path == REJECTS_NAME).filter(|_| !found.is_empty())
    else {
        return found;
    };
    let mut read_examples = || -> Result<(), Error> {
        let blob = dataset.open_file(file)?;
        let failed = |e| Error::io("read", blob.path(), e);
        let bytes = blob.read(0, blob.len().min(MAX_BYTES))?;
        let mut reader = BufReader::new(&bytes[..]);
        let mut line = Vec::new();
        while found.iter().any(|reject| (reject.examples.len() as u64) < reject.count.min(EXAMPLES as u64)) {
            line.clear();
            if reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line).map_err(failed)? == 0 {
                break;
            }
            let Ok(parsed) = serde_json::from_slice::<StoredReject>(&line) else { continue };
            if let Some(reject) = found.iter_mut().find(|reject| reject.code == parsed.code)
                && reject.examples.len() < EXAMPLES
            {
                reject.examples.push((parsed.origin, parsed.message));
            }
        }
        Ok(())
    };
    let read = read_examples();
    problems.ok_or_add("the list of rejects cannot be read", read);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_records_of_a_shard_are_one_problem() {
        let mut problems = Problems::default();
        let error = |shard: &str, row| Error::corrupt("damaged").at_shard(shard).at_row(row);
        problems.add_unreadable(&error("a", 7));
        assert_eq!(problems.listed, ["a record cannot be read: shard a, row 7: damaged"]);
        for row in [8, 7, 9, 8] {
            problems.add_unreadable(&error("a", row));
        }
        problems.add_unreadable(&error("b", 1));
        let a = "3 records of a shard cannot be read, for example: shard a, row 7: damaged";
        assert_eq!(problems.listed, [a, "a record cannot be read: shard b, row 1: damaged"]);
        // Shards after the last listed problem are counted once.
        (2..MAX_PROBLEMS).for_each(|i| problems.add(i.to_string()));
        (0..3).for_each(|row| problems.add_unreadable(&error("c", row)));
        assert_eq!((problems.listed.len(), problems.more), (MAX_PROBLEMS, 1));
    }
}
