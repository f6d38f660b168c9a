//! The output directory before, during and after a run.
//!
//! The state of a directory and the option determine what a run does:
//!
//! | state | default | `--resume` | `--overwrite` |
//! |---|---|---|---|
//! | no directory, or an empty one | convert | convert | convert |
//! | `.dsconvert/` without manifest: an unfinished run | refuse | finish it | remove its files, convert |
//! | `.dsconvert/retired.json`: an unfinished removal | refuse | finish it, convert | finish it, convert |
//! | `manifest.json`: a dataset | refuse | nothing to do, if it is the same | remove its files, convert |
//! | anything else | refuse | refuse | refuse |
//!
//! A prefix in object storage has the same states, but no dataset in it is ever replaced: see
//! [`publish`](super::publish). The local directory is then a scratch directory, and is empty at the start.
//!
//! [`removal`](super::removal) says which files are removed.

use std::path::{Path, PathBuf};

use super::output_state::{Existing, LOCK_NAME, OutputState, PLAN_NAME, RETIRED_NAME, WORK_NAME};
use super::publish::{Remote, ScratchDir};
use super::unit_dirs::{UnitDirs, difference};
use super::unit_result::{UnitResult, UnitShard, UnitSplit};
use crate::error::{Error, ErrorKind, Result};
use crate::index::{INDEX_DIR, Segment, ShardTable};
use crate::manifest::{MANIFEST_NAME, Manifest, open_listed};
use crate::storage::{
    Access, DirLock, create_dir, lstat, remove_dir_all, remove_empty_dir, remove_temporary_files, resolve,
    stat, sync_dir,
};

/// The manifest of a commit in progress. It lists all files that the commit may have moved to their final location.
const PENDING_NAME: &str = "pending.json";
/// Folder of the files that a commit will move to their final location.
const STAGED_NAME: &str = "staged";

/// An output directory that this process may write to.
pub(super) struct OutputDir {
    out: PathBuf,
    /// Whether this process created the directory.
    created: bool,
    /// Destination of the dataset, if it is object storage.
    remote: Option<Remote>,
    _guard: DirGuard,
}

/// Protection of the directory against other processes.
enum DirGuard {
    Lock {
        _lock: DirLock,
    },
    /// The directory belongs to this process alone.
    Scratch {
        _dir: ScratchDir,
    },
}

impl OutputDir {
    /// Opens the directory for this run. With [`Existing::Overwrite`], removes an existing dataset or unfinished run.
    /// An interrupted removal is finished in any case.
    pub(super) fn open(
        out: &Path,
        scratch: Option<&Path>,
        existing: Existing,
    ) -> Result<(Self, OutputState)> {
        if let Some(remote) = Remote::of(out)? {
            return Self::open_remote(remote, scratch, existing);
        }
        let created = stat(out)?.is_none();
        let work = out.join(WORK_NAME);
        let had_work = lstat(&work)?.is_some();
        create_dir(out)?;
        create_dir(&work)?;
        let lock = DirLock::acquire(&work.join(LOCK_NAME))?;
        let dir = Self { out: out.to_owned(), created, remote: None, _guard: DirGuard::Lock { _lock: lock } };
        match dir.state(existing == Existing::Overwrite) {
            Ok(state) => Ok((dir, state)),
            // The directory is left as it was, unless a removal has started: the retired manifest is needed to finish
            // that.
            Err(error) if !had_work && matches!(lstat(&dir.retired()), Ok(None)) => {
                Err(dir.abandon_after(error))
            }
            Err(error) => Err(error),
        }
    }

    /// Creates a scratch directory for the output `remote`.
    fn open_remote(
        remote: Remote,
        scratch: Option<&Path>,
        existing: Existing,
    ) -> Result<(Self, OutputState)> {
        remote.check_existing(existing)?;
        let state = remote.state()?;
        let scratch = ScratchDir::create(scratch)?;
        let out = scratch.path().to_owned();
        create_dir(&out.join(WORK_NAME))?;
        let guard = DirGuard::Scratch { _dir: scratch };
        Ok((Self { out, created: true, remote: Some(remote), _guard: guard }, state))
    }

    /// Returns the state of the directory, after the removal of what a run must not keep.
    fn state(&self, overwrite: bool) -> Result<OutputState> {
        let has = |path: PathBuf| Ok::<_, Error>(lstat(&path)?.is_some());
        if !overwrite && !has(self.retired())? {
            if has(self.out.join(MANIFEST_NAME))? {
                // The run that committed the dataset may have died before the manifest was durable.
                sync_dir(&self.out)?;
                let manifest = Manifest::read(&self.out).map_err(|error| match error.kind() {
                    // Everything else in the directory is checked against the manifest.
                    ErrorKind::Corrupt => error.help(
                        "a manifest cannot be repaired: restore it, or remove this directory by hand and convert again",
                    ),
                    _ => error,
                })?;
                return Ok(OutputState::Committed(Box::new(manifest)));
            }
            if has(self.work().join(PLAN_NAME))? {
                return Ok(OutputState::Planned);
            }
        }
        self.clear()?;
        Ok(OutputState::Empty)
    }

    /// Returns the local directory.
    pub(super) fn path(&self) -> &Path {
        &self.out
    }

    /// Returns the location of the dataset, for messages.
    pub(super) fn shown(&self) -> &Path {
        self.remote.as_ref().map_or(&self.out, Remote::path)
    }

    /// Returns the output in object storage, if there is one.
    pub(super) fn remote(&self) -> Option<&Remote> {
        self.remote.as_ref()
    }

    /// Returns a path where the shard of a finished unit can be read; `None` if it is missing.
    pub(super) fn find_shard(
        &self,
        dirs: &UnitDirs,
        unit: u32,
        split: &UnitSplit,
        shard: &UnitShard,
    ) -> Result<Option<PathBuf>> {
        let Some(remote) = &self.remote else { return dirs.find_shard(unit, split, shard, &self.out) };
        let local = self.work().join(&shard.name);
        if lstat(&local)?.is_none() {
            remote.fetch_shard(&split.name, &shard.name, shard.bytes, &local)?;
        }
        Ok(Some(local))
    }

    pub(super) fn work(&self) -> PathBuf {
        self.out.join(WORK_NAME)
    }

    /// Returns the path of the manifest of a dataset that is being removed.
    pub(super) fn retired(&self) -> PathBuf {
        self.work().join(RETIRED_NAME)
    }

    /// Returns the path of the manifest until the files that it lists are in place.
    pub(super) fn pending(&self) -> PathBuf {
        self.work().join(PENDING_NAME)
    }

    /// Returns the folder of the files that the commit moves to their final location.
    pub(super) fn staged(&self) -> PathBuf {
        self.work().join(STAGED_NAME)
    }

    /// Removes the leftovers of attempts and commits that died. Only the holder of the lock may do this.
    pub(super) fn remove_leftovers(&self) -> Result<()> {
        let (work, staged) = (self.work(), self.staged());
        for folder in [&work, &staged, &staged.join(INDEX_DIR)] {
            remove_temporary_files(folder)?;
        }
        UnitDirs::new(&work).remove_unfinished()
    }

    /// Removes the working directory after the commit.
    pub(super) fn remove_work(&self) -> Result<()> {
        if let Some(remote) = &self.remote {
            remote.remove_work()?;
        }
        let work = self.work();
        UnitDirs::new(&work).remove_all()?;
        remove_dir_all(&work)
    }

    /// Removes everything of a run that is not worth keeping, and the directory itself if this run created it.
    pub(super) fn abandon(self, units: u32, plan: &str) -> Result<()> {
        if let Some(remote) = &self.remote {
            let dirs = UnitDirs::new(&self.work());
            let units: Result<Vec<UnitResult>> = (0..units).map(|unit| dirs.result(unit, plan)).collect();
            return remote.abandon(&units?);
        }
        self.clear()?;
        self.remove_work()?;
        if self.created {
            remove_empty_dir(&self.out)?;
        }
        Ok(())
    }

    /// Removes the working directory after `error`, and the directory itself if this run created it.
    fn abandon_after(self, error: Error) -> Error {
        let removed = self.remove_work().and_then(|()| match self.created {
            true => remove_empty_dir(&self.out).map(drop),
            false => Ok(()),
        });
        combine_errors(error, removed)
    }

    /// Makes the directory entries of all files of the committed dataset durable.
    pub(super) fn sync_files(&self, manifest: &Manifest) -> Result<()> {
        let folders =
            manifest.splits.iter().filter(|(_, split)| split.records > 0).map(|(name, _)| name.as_str());
        folders.chain(["index"]).try_for_each(|folder| sync_dir(&resolve(&self.out, folder)?))?;
        sync_dir(&self.out)
    }

    /// Returns all files of the committed dataset: relative path, size, SHA-256. Omits the shards if the shard table,
    /// which lists them, is damaged.
    pub(super) fn files_of(&self, manifest: &Manifest) -> Result<Vec<(String, u64, String)>> {
        let mut files = Vec::new();
        for (path, bytes, sha256) in manifest.listed_files() {
            files.push((path.to_owned(), bytes, sha256.to_owned()));
        }
        let table = &manifest.shard_table;
        let path = resolve(&self.out, &table.path)?;
        if difference(&path, table.bytes, Some(&table.sha256))?.is_some() {
            return Ok(files);
        }
        let blob = open_listed(&self.out, &table.path, table.bytes, Access::Read)?;
        for shard in ShardTable::read(Segment { blob, records: table.records })?.shards() {
            files.push((shard.path(), shard.bytes, shard.sha256.clone()));
        }
        Ok(files)
    }
}

/// Adds the error of a further operation to `error`, which came first.
pub(super) fn combine_errors(error: Error, further: Result<()>) -> Error {
    let Err(further) = further else { return error };
    let message = format!("{error}; and then: {further}");
    let kind = match error.kind() {
        // Files were written and still exist.
        ErrorKind::Usage => ErrorKind::Io,
        kind => kind,
    };
    match error.remedy() {
        Some(help) => Error::new(kind, message).help(help.to_owned()),
        None => Error::new(kind, message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{NewFile, list_dir};

    #[test]
    fn files_of_a_commit_that_died_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (output, _) = OutputDir::open(dir.path(), None, Existing::Refuse).unwrap();
        output.remove_leftovers().unwrap();
        let index = output.staged().join("index");
        std::fs::create_dir_all(&index).unwrap();
        let folders = [&output.work(), &output.staged(), &index];
        for folder in folders {
            std::mem::forget(NewFile::create_shared(&folder.join("a")).unwrap());
            std::fs::write(folder.join("kept"), "").unwrap();
        }
        output.remove_leftovers().unwrap();
        for folder in folders {
            assert!(folder.join("kept").exists());
            let left = list_dir(folder).unwrap();
            assert!(left.iter().all(|item| item.path.extension().is_none()), "{left:?}");
        }
    }
}
