//! Finished units: their results, their directories, checks of their files, and sums over them.
//!
//! The result of a unit, `unit.json`, lists every file of its unit with size and SHA-256, and ends with a digest of its own
//! content. A resumed run relies on it alone: a unit with a missing or altered file is written again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::layout::{Existing, ResumeCheck};
use super::stop::Stop;
use super::workers::{Workers, for_all};
use crate::error::{Error, ErrorKind, Result};
use crate::format::Format;
use crate::manifest::Counts;
use crate::numbers::{count, plural};
use crate::schema::Schema;
use crate::storage::{hash_file, hex, list_dir, lstat, remove_dir_all, resolve, sync_dir};

/// Name of the file with the [`UnitResult`].
pub const RESULT_NAME: &str = "unit.json";

/// The units of a dataset, and what they have in common.
#[derive(Debug, Clone)]
pub struct PlannedUnits {
    /// Identity of what the units are made from and how. A unit with another identity counts as unfinished.
    pub plan: String,
    /// Number of units.
    pub count: u32,
    /// Schema of the records.
    pub schema: Arc<Schema>,
    /// Format of the shards.
    pub format: Format,
    /// Names of the splits.
    pub splits: Vec<String>,
    /// A shard is closed before the canonical size of its records exceeds this many bytes.
    pub shard_bytes: u64,
    /// A shard is closed when it holds this many records.
    pub shard_records: Option<u64>,
}

/// Result of a finished unit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitResult {
    /// Number of the unit.
    pub unit: u32,
    /// Identity of the plan that the unit belongs to.
    pub plan: String,
    /// The parts of all splits, in order, including empty ones.
    pub splits: Vec<UnitSplit>,
    /// All files of the unit except its shards and this result.
    pub files: Vec<UnitFile>,
    /// Number of rejects by reason code.
    pub reject_codes: BTreeMap<String, u64>,
    /// Counts of noteworthy events, by name.
    pub notes: BTreeMap<String, u64>,
    /// Number of files that turned out to be of another kind, by type.
    pub skipped: BTreeMap<String, u64>,
    /// Bytes of the sources that the unit was made from.
    pub source_bytes: u64,
    /// Bytes of the texts that became records.
    pub text_bytes: u64,
    /// XXH3-128 over the content hashes, in hexadecimal.
    pub content: String,
}

/// The part of a unit that belongs to one split.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitSplit {
    /// Name of the split.
    pub name: String,
    /// Item counts by outcome.
    pub counts: Counts,
    /// Number of records.
    pub records: u64,
    /// Number of records by label.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<u64>,
    /// The shards, in order.
    pub shards: Vec<UnitShard>,
}

/// A shard of a unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitShard {
    /// File name.
    pub name: String,
    /// Number of records.
    pub records: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 in hexadecimal.
    pub sha256: String,
}

/// A file of a unit other than a shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitFile {
    /// File name.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 in hexadecimal.
    pub sha256: String,
}

impl UnitResult {
    /// Returns the item counts of all splits.
    pub fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        self.splits.iter().for_each(|s| sum.add(&s.counts));
        sum
    }

    /// Clears the fields that the commit has already added up: the results of all units are in memory at the same time.
    pub(crate) fn clear_summed(&mut self) {
        (self.plan, self.content) = (String::new(), String::new());
        (self.reject_codes, self.notes) = (BTreeMap::new(), BTreeMap::new());
        self.skipped = BTreeMap::new();
        self.splits.iter_mut().for_each(|split| split.labels = Vec::new());
    }

    /// Returns the bytes of `unit.json`: one line of JSON, and a line with its SHA-256.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut bytes =
            serde_json::to_vec(self).map_err(|e| Error::not_serialized("the result of a unit", e))?;
        let digest = digest(&bytes);
        bytes.extend_from_slice(format!("\n{digest}\n").as_bytes());
        Ok(bytes)
    }

    /// Parses `unit.json`; `None` if the bytes are not what [`UnitResult::to_bytes`] returned.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut lines = bytes.strip_suffix(b"\n")?.split(|&byte| byte == b'\n');
        let (json, line) = (lines.next()?, lines.next()?);
        if lines.next().is_some() || line != digest(json).as_bytes() {
            return None;
        }
        serde_json::from_slice(json).ok()
    }
}

/// Adds the counts `more` to `sum`, name by name.
pub(crate) fn add_all(sum: &mut BTreeMap<String, u64>, more: &BTreeMap<String, u64>) {
    for (name, count) in more {
        *sum.entry(name.clone()).or_default() += count;
    }
}

fn digest(json: &[u8]) -> String {
    hex(&Sha256::digest(json))
}

/// State of a unit after an earlier run.
pub enum UnitState {
    /// The unit has no result.
    Missing,
    /// The unit is finished.
    Done(Box<UnitResult>),
    /// The result cannot be used, for this reason.
    Damaged(String),
}

impl UnitState {
    /// Returns the state of `unit`, given the bytes of its `unit.json`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::error::ErrorKind) if the result belongs to another plan than `plan`.
    pub fn of(bytes: &[u8], unit: u32, plan: &str) -> Result<Self> {
        match UnitResult::from_bytes(bytes) {
            None => Ok(Self::Damaged(format!("{RESULT_NAME} was altered"))),
            Some(result) if result.plan != plan || result.unit != unit => {
                Err(Error::corrupt("the result of a finished unit belongs to another plan")
                    .help("start again with `overwrite`"))
            }
            Some(result) => Ok(Self::Done(Box::new(result))),
        }
    }
}

/// Returns the error for a finished unit at `place` that cannot be committed. A run that continues converts it again.
pub(crate) fn unusable_unit(unit: u32, why: &str, place: &Path) -> Error {
    Error::corrupt(format!("unit {unit} cannot be committed: {why}")).at_path(place)
}

/// Returns the error for a unit that two processes finished with different results.
pub(crate) fn different_unit(unit: u32) -> Error {
    let message = format!("another process finished unit {unit} with different records");
    Error::new(ErrorKind::NotCommitted, message).help(
        "all processes must read the same sources with one build of dsconvert; start again with another `out`",
    )
}

/// Returns the path of a shard, relative to the output directory.
pub(crate) fn shard_path(split: &str, name: &str) -> String {
    format!("{split}/{name}")
}

/// Name of the folder that a finished attempt is renamed to.
const DONE: &str = "done";

/// Thoroughness of the checks of finished units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckLevel {
    /// Sizes of all files, and the SHA-256 of all files except shards.
    Sizes,
    /// The SHA-256 of all files.
    Hashes,
}

impl CheckLevel {
    /// Calls `each` with all `items`. Hashing shards is limited by the processors, so it uses the workers. Checking the
    /// sizes of many files mostly waits for the file system, so it uses threads of its own.
    pub(crate) fn for_all<T: Sync>(
        self,
        items: &[T],
        workers: &Workers,
        doing: &str,
        stop: &Stop,
        each: impl Fn(&T) -> Result<()> + Sync,
    ) -> Result<()> {
        match self {
            Self::Sizes => for_all(items, doing, stop, each),
            Self::Hashes => workers.for_all(items, doing, stop, each),
        }
    }

    /// Returns the check that a run does on units finished earlier.
    pub fn of(existing: Existing) -> Self {
        match existing {
            Existing::Resume(ResumeCheck::Hashes | ResumeCheck::Repair) => Self::Hashes,
            Existing::Resume(ResumeCheck::Sizes) | Existing::Refuse | Existing::Overwrite => Self::Sizes,
        }
    }
}

/// Paths of the units of an output directory.
#[derive(Debug, Clone)]
pub struct UnitDirs {
    work: PathBuf,
    root: PathBuf,
}

impl UnitDirs {
    /// Returns the units in the working directory `work`.
    pub fn new(work: &Path) -> Self {
        Self { work: work.to_owned(), root: work.join("units") }
    }

    /// Returns the working directory.
    pub fn work(&self) -> &Path {
        &self.work
    }

    /// Returns whether any unit was ever started.
    pub(crate) fn any(&self) -> Result<bool> {
        Ok(!list_dir(&self.root)?.is_empty())
    }

    /// Returns whether an attempt at `unit` was ever started, finished or not.
    pub fn is_started(&self, unit: u32) -> Result<bool> {
        Ok(!list_dir(&self.unit(unit))?.is_empty())
    }

    pub(crate) fn unit(&self, unit: u32) -> PathBuf {
        self.root.join(format!("{unit:06}"))
    }

    /// Returns the folder of the finished unit.
    pub fn done(&self, unit: u32) -> PathBuf {
        self.unit(unit).join(DONE)
    }

    /// Removes attempts that died. Only the holder of the lock may do this.
    pub(crate) fn remove_unfinished(&self) -> Result<()> {
        let units = list_dir(&self.root)?;
        for_all(&units, "removing unfinished units", &Stop::default(), |unit| {
            for attempt in list_dir(&unit.path)? {
                if attempt.name != DONE {
                    remove_dir_all(&attempt.path)?;
                }
            }
            Ok(())
        })
    }

    /// Removes all units. Only the holder of the lock may do this.
    pub(crate) fn remove_all(&self) -> Result<()> {
        let mut units = list_dir(&self.root)?;
        units.retain(|unit| unit.kind.is_dir());
        for_all(&units, "removing units", &Stop::default(), |unit| remove_dir_all(&unit.path))
    }

    /// Removes the result of a unit that has to be converted again.
    pub fn remove(&self, unit: u32) -> Result<()> {
        remove_dir_all(&self.done(unit))?;
        sync_dir(&self.unit(unit))
    }

    /// Makes the final renames of finished `units` durable: the processes that made them may have died before the sync.
    pub fn sync_finished(&self, units: &[u32]) -> Result<()> {
        if units.is_empty() {
            return Ok(());
        }
        for_all(units, "making finished units durable", &Stop::default(), |unit| {
            sync_dir(&self.unit(*unit))
        })?;
        sync_dir(&self.root).and_then(|()| sync_dir(&self.work))
    }

    /// Returns the result of a unit that is finished under the plan `plan`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::error::ErrorKind) if the unit is not finished.
    pub fn result(&self, unit: u32, plan: &str) -> Result<UnitResult> {
        match self.read(unit, plan)? {
            UnitState::Done(result) => Ok(*result),
            UnitState::Missing => Err(self.unusable(unit, "it has no result")),
            UnitState::Damaged(why) => Err(self.unusable(unit, &why)),
        }
    }

    /// Returns the error for a finished unit whose files in this directory differ from its result.
    pub(crate) fn unusable(&self, unit: u32, why: &str) -> Error {
        unusable_unit(unit, why, &self.done(unit))
    }

    /// Reads the result of `unit` without checking its other files.
    pub fn read(&self, unit: u32, plan: &str) -> Result<UnitState> {
        // The folder is checked first, because another process may finish the unit between the two calls, and a folder
        // without a result counts as damaged.
        if lstat(&self.done(unit))?.is_none() {
            return Ok(UnitState::Missing);
        }
        let path = self.done(unit).join(RESULT_NAME);
        match lstat(&path)? {
            None => return Ok(UnitState::Damaged(format!("{RESULT_NAME} is missing"))),
            Some(meta) if !meta.is_file() => {
                return Ok(UnitState::Damaged(format!("{RESULT_NAME} is not a regular file")));
            }
            Some(_) => {}
        }
        let bytes = std::fs::read(&path).map_err(|e| Error::io("read", &path, e))?;
        UnitState::of(&bytes, unit, plan).map_err(|e| e.at_path(self.done(unit)))
    }

    /// Reads the result of a unit in the output directory `out`, and checks its files.
    ///
    /// # Errors
    ///
    /// Fails if files cannot be examined, or if the result belongs to another plan.
    pub fn check(&self, unit: u32, plan: &str, out: &Path, check: CheckLevel) -> Result<UnitState> {
        let result = match self.read(unit, plan)? {
            UnitState::Done(result) => result,
            other => return Ok(other),
        };
        let done = self.done(unit);
        for file in &result.files {
            let path = done.join(&file.name);
            if let Some(why) = difference(&path, file.bytes, Some(&file.sha256))? {
                return Ok(UnitState::Damaged(format!("{} {why}", file.name)));
            }
        }
        for split in &result.splits {
            for shard in &split.shards {
                let path = match self.find_shard(unit, split, shard, out)? {
                    Some(path) => path,
                    None => return Ok(UnitState::Damaged(format!("{} is missing", shard.name))),
                };
                let sha256 = (check == CheckLevel::Hashes).then_some(shard.sha256.as_str());
                if let Some(why) = difference(&path, shard.bytes, sha256)? {
                    return Ok(UnitState::Damaged(format!("{} {why}", shard.name)));
                }
            }
        }
        Ok(UnitState::Done(result))
    }

    /// Returns the path of a shard: in the folder of its unit or, if an interrupted commit has already moved it, in its
    /// final location.
    pub(crate) fn find_shard(
        &self,
        unit: u32,
        split: &UnitSplit,
        shard: &UnitShard,
        out: &Path,
    ) -> Result<Option<PathBuf>> {
        let in_unit = self.done(unit).join(&shard.name);
        if lstat(&in_unit)?.is_some() {
            return Ok(Some(in_unit));
        }
        let moved = resolve(out, &shard_path(&split.name, &shard.name))?;
        Ok(lstat(&moved)?.map(|_| moved))
    }
}

/// Compares a file with its recorded size and, if given, SHA-256. Returns how it differs.
pub(crate) fn difference(path: &Path, bytes: u64, sha256: Option<&str>) -> Result<Option<String>> {
    let Some(meta) = lstat(path)? else { return Ok(Some("is missing".to_owned())) };
    if !meta.is_file() {
        return Ok(Some("is not a regular file".to_owned()));
    }
    if meta.len() != bytes {
        return Ok(Some(format!("has {} instead of {}", plural(meta.len(), "byte"), count(bytes))));
    }
    match sha256 {
        // All empty files have the same content.
        Some(sha256) if bytes > 0 && hash_file(path)?.sha256 != sha256 => {
            Ok(Some("does not match its SHA-256".to_owned()))
        }
        _ => Ok(None),
    }
}

/// Sums over the units that this process has converted, excluding those that were finished before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConvertedUnits {
    /// Number of units.
    pub units: u32,
    /// Item counts by outcome.
    pub counts: Counts,
    /// Number of rejects by reason code.
    pub reject_codes: BTreeMap<String, u64>,
    /// Number of records.
    pub records: u64,
    /// Bytes of the source files.
    pub bytes_in: u64,
    /// Bytes of the shards.
    pub bytes_out: u64,
    /// Bytes of the texts that became records.
    pub text_bytes: u64,
    /// Sum of the lengths of all records.
    pub length: u64,
}

impl ConvertedUnits {
    /// Adds a unit. `length` is the sum of the lengths of its records.
    pub fn add(&mut self, result: &UnitResult, length: u64) {
        self.units += 1;
        self.counts.add(&result.counts());
        add_all(&mut self.reject_codes, &result.reject_codes);
        for split in &result.splits {
            self.records += split.records;
            self.bytes_out += split.shards.iter().map(|shard| shard.bytes).sum::<u64>();
        }
        self.bytes_in += result.source_bytes;
        self.text_bytes += result.text_bytes;
        self.length = self.length.saturating_add(length);
    }
}

/// Statistics of what a run read and wrote, beyond the manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes of the texts that became records.
    pub text_bytes: u64,
    /// Number of files that were skipped, when the sources were listed or when they were read, by type.
    pub skipped: BTreeMap<String, u64>,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A unit of one shard and one other file, whose contents are "abc" and "xy".
    pub(crate) fn result() -> UnitResult {
        let shard = UnitShard {
            name: "train-000003-00.pb".into(),
            records: 1,
            bytes: 3,
            sha256: hex(&Sha256::digest("abc")),
        };
        UnitResult {
            unit: 3,
            plan: "p".into(),
            splits: vec![UnitSplit {
                name: "train".into(),
                labels: vec![0, 1],
                shards: vec![shard],
                ..UnitSplit::default()
            }],
            files: vec![UnitFile { name: "train.rows".into(), bytes: 2, sha256: hex(&Sha256::digest("xy")) }],
            ..UnitResult::default()
        }
    }

    #[test]
    fn results_round_trip_and_any_change_is_detected() {
        let bytes = result().to_bytes().unwrap();
        assert_eq!(UnitResult::from_bytes(&bytes), Some(result()));
        for at in 0..bytes.len() {
            assert_eq!(UnitResult::from_bytes(&bytes[..at]), None, "cut at {at}");
            let mut altered = bytes.clone();
            altered[at] ^= 1;
            assert_eq!(UnitResult::from_bytes(&altered), None, "altered at {at}");
        }
    }

    #[test]
    fn any_damage_to_a_finished_unit_is_detected() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path();
        let dirs = UnitDirs::new(&out.join(".dsconvert"));
        let done = dirs.done(3);
        let write = |name: &str, bytes: &[u8]| std::fs::write(done.join(name), bytes).unwrap();
        let state = |check| match dirs.check(3, "p", out, check).unwrap() {
            UnitState::Missing => "missing".to_owned(),
            UnitState::Done(_) => "done".to_owned(),
            UnitState::Damaged(why) => why,
        };
        assert_eq!(state(CheckLevel::Sizes), "missing");
        std::fs::create_dir_all(&done).unwrap();
        assert_eq!(state(CheckLevel::Sizes), "unit.json is missing");
        write(RESULT_NAME, &result().to_bytes().unwrap());
        assert_eq!(state(CheckLevel::Sizes), "train.rows is missing");
        write("train.rows", b"xy");
        assert_eq!(state(CheckLevel::Sizes), "train-000003-00.pb is missing");
        write("train-000003-00.pb", b"abd");
        assert_eq!(state(CheckLevel::Sizes), "done");
        assert!(state(CheckLevel::Hashes).contains("SHA-256"));
        write("train-000003-00.pb", b"abc");
        assert_eq!(state(CheckLevel::Hashes), "done");
        for (altered, why) in [(&b"xz"[..], "SHA-256"), (b"x", "1 byte ")] {
            write("train.rows", altered);
            assert!(state(CheckLevel::Sizes).contains(why));
        }
        write("train.rows", b"xy");
        // An interrupted commit has moved the shard.
        std::fs::create_dir(out.join("train")).unwrap();
        let moved = out.join("train/train-000003-00.pb");
        std::fs::rename(done.join("train-000003-00.pb"), &moved).unwrap();
        assert_eq!(state(CheckLevel::Hashes), "done");
        std::fs::write(&moved, "ab").unwrap();
        assert!(state(CheckLevel::Sizes).contains("2 bytes"));
        assert!(dirs.check(3, "other", out, CheckLevel::Sizes).is_err());
        dirs.remove(3).unwrap();
        assert_eq!(state(CheckLevel::Sizes), "missing");
    }
}
