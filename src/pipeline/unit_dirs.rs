//! Directories of the units, and checks that the files of finished units are unchanged.
//!
//! A resumed run relies on the [`UnitResult`] alone: a unit with a missing or altered file is converted again.

use std::path::{Path, PathBuf};

use super::output_state::{Existing, ResumeCheck};
use super::stop::Stop;
use super::unit_result::{
    RESULT_NAME, UnitResult, UnitShard, UnitSplit, UnitState, shard_path, unusable_unit,
};
use super::workers::{FILE_THREADS, Workers, for_all};
use crate::error::{Error, Result};
use crate::numbers::{count, plural};
use crate::storage::{hash_file, list_dir, lstat, remove_dir_all, resolve, sync_dir};

/// Name of the folder that a finished attempt is renamed to.
const DONE: &str = "done";

/// Thoroughness of the checks of finished units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CheckLevel {
    /// Sizes of all files, and the SHA-256 of all files except shards.
    Sizes,
    /// The SHA-256 of all files.
    Hashes,
}

impl CheckLevel {
    /// Calls `each` with all `items`. Hashing shards is limited by the processors, so it uses the workers. Checking the
    /// sizes of many files mostly waits for the file system, so it uses [`FILE_THREADS`] threads.
    pub(super) fn for_all<T: Sync>(
        self,
        items: &[T],
        workers: &Workers,
        doing: &str,
        stop: &Stop,
        each: impl Fn(&T) -> Result<()> + Sync,
    ) -> Result<()> {
        match self {
            Self::Sizes => for_all(items, FILE_THREADS, doing, stop, each),
            Self::Hashes => workers.for_all(items, doing, stop, each),
        }
    }

    /// Returns the check that a run does on units finished earlier.
    pub(super) fn of(existing: Existing) -> Self {
        match existing {
            Existing::Resume(ResumeCheck::Hashes | ResumeCheck::Repair) => Self::Hashes,
            Existing::Resume(ResumeCheck::Sizes) | Existing::Refuse | Existing::Overwrite => Self::Sizes,
        }
    }
}

/// Paths of the units of an output directory.
#[derive(Debug, Clone)]
pub(super) struct UnitDirs {
    work: PathBuf,
    root: PathBuf,
}

impl UnitDirs {
    pub(super) fn new(work: &Path) -> Self {
        Self { work: work.to_owned(), root: work.join("units") }
    }

    /// Returns the working directory.
    pub(super) fn work(&self) -> &Path {
        &self.work
    }

    /// Returns whether any unit was ever started.
    pub(super) fn any(&self) -> Result<bool> {
        Ok(!list_dir(&self.root)?.is_empty())
    }

    /// Returns whether an attempt at `unit` was ever started, finished or not.
    pub(super) fn is_started(&self, unit: u32) -> Result<bool> {
        Ok(!list_dir(&self.unit(unit))?.is_empty())
    }

    pub(super) fn unit(&self, unit: u32) -> PathBuf {
        self.root.join(format!("{unit:06}"))
    }

    /// Returns the folder of the finished unit.
    pub(super) fn done(&self, unit: u32) -> PathBuf {
        self.unit(unit).join(DONE)
    }

    /// Removes attempts that died. Only the holder of the lock may do this.
    pub(super) fn remove_unfinished(&self) -> Result<()> {
        let units = list_dir(&self.root)?;
        for_all(&units, FILE_THREADS, "removing unfinished units", &Stop::default(), |unit| {
            for attempt in list_dir(&unit.path)? {
                if attempt.name != DONE {
                    remove_dir_all(&attempt.path)?;
                }
            }
            Ok(())
        })
    }

    /// Removes all units. Only the holder of the lock may do this.
    pub(super) fn remove_all(&self) -> Result<()> {
        let mut units = list_dir(&self.root)?;
        units.retain(|unit| unit.kind.is_dir());
        for_all(&units, FILE_THREADS, "removing units", &Stop::default(), |unit| remove_dir_all(&unit.path))
    }

    /// Removes the result of a unit that has to be converted again.
    pub(super) fn remove(&self, unit: u32) -> Result<()> {
        remove_dir_all(&self.done(unit))?;
        sync_dir(&self.unit(unit))
    }

    /// Makes the final renames of finished `units` durable: the processes that made them may have died before the sync.
    pub(super) fn sync_finished(&self, units: &[u32]) -> Result<()> {
        if units.is_empty() {
            return Ok(());
        }
        for_all(units, FILE_THREADS, "making finished units durable", &Stop::default(), |unit| {
            sync_dir(&self.unit(*unit))
        })?;
        sync_dir(&self.root).and_then(|()| sync_dir(&self.work))
    }

    /// Returns the result of a unit that is finished under the plan `plan`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::error::ErrorKind) if the unit is not finished.
    pub(super) fn result(&self, unit: u32, plan: &str) -> Result<UnitResult> {
        match self.read(unit, plan)? {
            UnitState::Done(result) => Ok(*result),
            UnitState::Missing => Err(self.unusable(unit, "it has no result")),
            UnitState::Damaged(why) => Err(self.unusable(unit, &why)),
        }
    }

    /// Returns the error for a finished unit whose files in this directory differ from its result.
    pub(super) fn unusable(&self, unit: u32, why: &str) -> Error {
        unusable_unit(unit, why, &self.done(unit))
    }

    /// Reads the result of `unit` without checking its other files.
    pub(super) fn read(&self, unit: u32, plan: &str) -> Result<UnitState> {
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
    pub(super) fn check(&self, unit: u32, plan: &str, out: &Path, check: CheckLevel) -> Result<UnitState> {
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
    pub(super) fn find_shard(
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
pub(super) fn difference(path: &Path, bytes: u64, sha256: Option<&str>) -> Result<Option<String>> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::unit_result::tests::result;

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
