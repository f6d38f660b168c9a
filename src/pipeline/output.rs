//! The output directory before, during and after a run.
//!
//! A directory is in one of these states, and each has one way on:
//!
//! | what is there | refuse (default) | `--resume` | `--overwrite` |
//! |---|---|---|---|
//! | nothing, or an empty directory | convert | convert | convert |
//! | `.dsconvert/` without manifest: a run that did not finish | refused | finished | its files are removed, convert |
//! | `.dsconvert/retired.json`: a removal that did not finish | refused | removal finished, convert | removal finished, convert |
//! | `manifest.json`: a dataset | refused | nothing to do, if it is the same | its files are removed, convert |
//! | anything else | refused | refused | refused |
//!
//! A prefix in object storage is in the same states, but nothing there is ever overwritten: see
//! [`publish`](super::publish). The local directory is then a scratch directory, and starts empty.
//!
//! Files outside `.dsconvert` are removed only if a manifest lists them: that of the dataset (`manifest.json`, then
//! `.dsconvert/retired.json`), or that of a commit that was interrupted (`.dsconvert/pending.json`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::finished::{UnitDirs, UnitResult, UnitShard, UnitSplit, difference};
use super::plan::Plan;
use super::publish::{Remote, ScratchDir};
use crate::error::{Error, ErrorKind, Result};
use crate::index::{Segment, ShardEntry, ShardTable};
use crate::manifest::{MANIFEST_NAME, Manifest, open_listed};
use crate::options::{Existing, SourceSpec};
use crate::storage::{
    Access, DirLock, ObjectUrl, create_dir, find_link, is_empty_dir, list_dir, lstat, remove_dir_all,
    remove_empty_dir, remove_file, rename, resolve, stat, sync_dir, write_file,
};

/// Name of the working directory inside the output directory. It is gone after the commit.
pub(super) const WORK_NAME: &str = ".dsconvert";
/// Name of the file in it that the lock is on.
pub(super) const LOCK_NAME: &str = "lock";
/// The manifest of a dataset that is being removed; empty when an unfinished run is being removed.
const RETIRED_NAME: &str = "retired.json";
/// The manifest of a commit that has begun. It lists all files that the commit may have moved to their final place.
const PENDING_NAME: &str = "pending.json";
/// Folder of the files that a commit will move to their final place.
const STAGED_NAME: &str = "staged";

/// An output directory that this process may write to.
pub(super) struct OutputDir {
    out: PathBuf,
    /// Whether it did not exist before.
    created: bool,
    /// Where the dataset goes from here, unless it stays.
    remote: Option<Remote>,
    _held: Held,
}

/// What keeps other processes out of the directory.
enum Held {
    Lock {
        _lock: DirLock,
    },
    /// It is of this process alone.
    Scratch {
        _dir: ScratchDir,
    },
}

/// Where a run stands when it gets the directory.
pub(super) enum Start {
    /// There is nothing.
    Fresh,
    /// An earlier run has begun, and may be finished.
    Begun,
    /// The dataset is committed.
    Committed(Box<Manifest>),
}

/// Refuses what can be refused without writing: a directory in use, or one that contains or is contained in a source.
pub(super) fn check(
    out: &Path,
    scratch: Option<&Path>,
    existing: Existing,
    sources: &[SourceSpec],
) -> Result<()> {
    if let Some(remote) = Remote::of(out)? {
        return remote.check(existing, scratch, sources);
    }
    for source in sources {
        refuse_overlap(out, "the output directory", source)?;
    }
    if stat(out)?.is_some_and(|meta| !meta.is_dir()) {
        return Err(Error::usage("the output is not a directory").at_path(out).help("choose another --out"));
    }
    if is_empty_dir(out)? {
        return Ok(());
    }
    let dataset = lstat(&out.join(MANIFEST_NAME))?.is_some();
    let begun = lstat(&out.join(WORK_NAME))?.is_some();
    let (what, help) = match existing {
        Existing::Refuse if dataset => {
            ("there is a dataset already", "choose another --out, or replace it with --overwrite")
        }
        Existing::Refuse if begun => (
            "a run into this directory has not finished",
            "finish it with --resume, or start again with --overwrite",
        ),
        Existing::Refuse => ("the output directory is not empty", "choose another --out"),
        _ if dataset || begun => return refuse_links(out),
        _ => (
            "the output directory holds files that are not of a dataset",
            "choose another --out; only what a manifest lists is ever removed",
        ),
    };
    Err(Error::usage(what).at_path(out).help(help))
}

/// Refuses a local directory, called `what`, that contains the source or is contained in it.
pub(super) fn refuse_overlap(dir: &Path, what: &str, source: &SourceSpec) -> Result<()> {
    if ObjectUrl::is_url(&source.path) {
        return Ok(());
    }
    let (real, source_path) = (real_path(dir)?, real_path(&source.path)?);
    if !real.starts_with(&source_path) && !source_path.starts_with(&real) {
        return Ok(());
    }
    Err(overlap(dir, what, source))
}

/// The error of an output at `out`, called `what`, that contains the source or is contained in it.
pub(super) fn overlap(out: &Path, what: &str, source: &SourceSpec) -> Error {
    Error::usage(format!("{what} and the source {} overlap", crate::printable::printable_path(&source.path)))
        .at_path(out)
        .help("choose an --out that is not inside a source and does not contain one")
}

/// Refuses an output directory with a symbolic link anywhere below it: files elsewhere would be written or removed
/// through the link.
fn refuse_links(out: &Path) -> Result<()> {
    match find_link(out)? {
        None => Ok(()),
        Some(link) => Err(Error::usage("the output directory contains a symbolic link")
            .at_path(link)
            .help("remove the link or choose another --out; only the output directory itself may be a link")),
    }
}

/// The path without links, also for a path whose last parts do not exist yet.
fn real_path(path: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(path).map_err(|e| Error::io("resolve the path", path, e))?;
    let mut missing = Vec::new();
    let mut existing = absolute.as_path();
    while stat(existing)?.is_none() {
        match (existing.parent(), existing.file_name()) {
            (Some(parent), Some(name)) => {
                missing.push(name.to_owned());
                existing = parent;
            }
            _ => return Ok(absolute),
        }
    }
    let real = existing.canonicalize().map_err(|e| Error::io("resolve the path", existing, e))?;
    Ok(missing.iter().rev().fold(real, |real, name| real.join(name)))
}

impl OutputDir {
    /// Takes the directory for this run. With [`Existing::Overwrite`] what a dataset or an unfinished run left is
    /// removed; a removal that was interrupted is finished in any case.
    pub(super) fn open(out: &Path, scratch: Option<&Path>, existing: Existing) -> Result<(Self, Start)> {
        if let Some(remote) = Remote::of(out)? {
            return Self::open_remote(remote, scratch, existing);
        }
        let created = stat(out)?.is_none();
        let work = out.join(WORK_NAME);
        let had_work = lstat(&work)?.is_some();
        create_dir(out)?;
        create_dir(&work)?;
        let lock = DirLock::acquire(&work.join(LOCK_NAME))?;
        let dir = Self { out: out.to_owned(), created, remote: None, _held: Held::Lock { _lock: lock } };
        match dir.start(existing == Existing::Overwrite) {
            Ok(start) => Ok((dir, start)),
            // What was there is left as it was, unless its removal has started: the retired manifest is needed to finish
            // that.
            Err(error) if !had_work && matches!(lstat(&dir.retired()), Ok(None)) => {
                Err(dir.abandon_after(error))
            }
            Err(error) => Err(error),
        }
    }

    /// A scratch directory for the output `remote`.
    fn open_remote(remote: Remote, scratch: Option<&Path>, existing: Existing) -> Result<(Self, Start)> {
        remote.check_existing(existing)?;
        let start = remote.start()?;
        let scratch = ScratchDir::create(scratch)?;
        let out = scratch.path().to_owned();
        create_dir(&out.join(WORK_NAME))?;
        let held = Held::Scratch { _dir: scratch };
        Ok((Self { out, created: true, remote: Some(remote), _held: held }, start))
    }

    fn start(&self, overwrite: bool) -> Result<Start> {
        let has = |path: PathBuf| Ok::<_, Error>(lstat(&path)?.is_some());
        if !overwrite && !has(self.retired())? {
            if has(self.out.join(MANIFEST_NAME))? {
                // The run that committed it may have died before its manifest was durable.
                sync_dir(&self.out)?;
                let manifest = Manifest::read(&self.out).map_err(|error| match error.kind() {
                    // Everything else in the directory is checked against it.
                    ErrorKind::Corrupt => error.help(
                        "a manifest cannot be repaired: restore it, or remove this directory by hand and convert again",
                    ),
                    _ => error,
                })?;
                return Ok(Start::Committed(Box::new(manifest)));
            }
            if has(self.work().join(super::plan::PLAN_NAME))? {
                return Ok(Start::Begun);
            }
        }
        self.clear()?;
        Ok(Start::Fresh)
    }

    /// The local directory.
    pub(super) fn path(&self) -> &Path {
        &self.out
    }

    /// Where the dataset is, for messages.
    pub(super) fn shown(&self) -> &Path {
        self.remote.as_ref().map_or(&self.out, Remote::path)
    }

    /// The output in object storage, if it is there.
    pub(super) fn remote(&self) -> Option<&Remote> {
        self.remote.as_ref()
    }

    /// Refuses `plan` when it is not the one that an earlier run has stored.
    pub(super) fn check_same_plan(&self, plan: &Plan<'_>, resumes: bool) -> Result<()> {
        match &self.remote {
            None => plan.check_same(&self.work(), resumes),
            Some(remote) => remote.check_same_plan(plan, &self.work(), resumes),
        }
    }

    /// Where the shard of a finished unit can be read; `None` when it is missing.
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

    fn retired(&self) -> PathBuf {
        self.work().join(RETIRED_NAME)
    }

    /// Where the manifest waits for the files that it lists.
    pub(super) fn pending(&self) -> PathBuf {
        self.work().join(PENDING_NAME)
    }

    /// Where files wait for the commit that moves them to their final place.
    pub(super) fn staged(&self) -> PathBuf {
        self.work().join(STAGED_NAME)
    }

    /// Removes the working directory, when the run is committed.
    pub(super) fn remove_work(&self) -> Result<()> {
        if let Some(remote) = &self.remote {
            remote.remove_work()?;
        }
        let work = self.work();
        UnitDirs::new(&work).remove_all()?;
        remove_dir_all(&work)
    }

    /// Removes all of a run of which nothing is worth keeping, and the directory itself if this run created it.
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

    /// Removes the working directory because of `error`, and the directory itself if this run created it.
    fn abandon_after(self, error: Error) -> Error {
        let removed = self.remove_work().and_then(|()| match self.created {
            true => remove_empty_dir(&self.out).map(drop),
            false => Ok(()),
        });
        also(error, removed)
    }

    /// Removes a dataset, or an unfinished run.
    ///
    /// The manifest is retired first, durably, so that no reader ever sees a dataset with parts missing; its retired
    /// copy is removed last, so that whatever interrupts the removal, the next run finishes it. The shard table is
    /// removed after the shards, because nothing else lists them.
    fn clear(&self) -> Result<()> {
        // Everything is listed before anything is removed: a dataset that cannot be listed stays as it is.
        let listed = self.listed()?;
        if lstat(&self.out.join(MANIFEST_NAME))?.is_some() {
            rename(&self.out.join(MANIFEST_NAME), &self.retired())?;
        } else if lstat(&self.retired())?.is_none() {
            if listed.files.is_empty() && self.leftovers()?.is_empty() {
                return Ok(());
            }
            write_file(&self.retired(), b"")?;
        } else {
            // The run that retired the manifest may have died before this was durable: with its files removed, it must
            // not be back after a power cut.
            sync_dir(&self.out)?;
            sync_dir(&self.work())?;
        }
        remove_all(&listed.files)?;
        remove_all(&listed.tables)?;
        let folders: BTreeSet<&Path> =
            listed.files.iter().chain(&listed.tables).filter_map(|path| path.parent()).collect();
        for folder in folders.into_iter().filter(|&folder| folder != self.out) {
            remove_empty_dir(folder)?;
        }
        sync_dir(&self.out)?;
        for path in self.leftovers()? {
            match lstat(&path)? {
                Some(meta) if meta.is_dir() => remove_dir_all(&path)?,
                _ => remove_file(&path)?,
            }
        }
        sync_dir(&self.work())?;
        remove_file(&self.retired())?;
        sync_dir(&self.work())
    }

    /// What is in the working directory, apart from the lock and the retired manifest.
    fn leftovers(&self) -> Result<Vec<PathBuf>> {
        let mut paths: Vec<PathBuf> = list_dir(&self.work())?.into_iter().map(|entry| entry.path).collect();
        paths.retain(|path| !path.ends_with(LOCK_NAME) && !path.ends_with(RETIRED_NAME));
        Ok(paths)
    }

    /// The files outside of the working directory that are to be removed.
    fn listed(&self) -> Result<Listed> {
        let mut listed = Listed::default();
        for path in [self.out.join(MANIFEST_NAME), self.retired(), self.pending()] {
            let json = match std::fs::read(&path) {
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
                other => other.map_err(|e| Error::io("read", &path, e))?,
            };
            if !json.is_empty() {
                let manifest = Manifest::parse(&json).map_err(|e| {
                    e.at_path(&path).help("choose another --out, or remove this directory by hand")
                })?;
                self.list(&manifest, &mut listed)?;
            }
        }
        Ok(listed)
    }

    /// Makes the names of all files of the committed dataset durable.
    pub(super) fn sync_files(&self, manifest: &Manifest) -> Result<()> {
        let folders =
            manifest.splits.iter().filter(|(_, split)| split.records > 0).map(|(name, _)| name.as_str());
        folders.chain(["index"]).try_for_each(|folder| sync_dir(&resolve(&self.out, folder)?))?;
        sync_dir(&self.out)
    }

    /// All files of the committed dataset: relative path, size, SHA-256. Without shards when the shard table, which lists them, is
    /// damaged.
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

    /// Adds what `manifest` lists.
    fn list(&self, manifest: &Manifest, listed: &mut Listed) -> Result<()> {
        let table = &manifest.shard_table;
        for (path, ..) in manifest.listed_files() {
            let files = if path == table.path { &mut listed.tables } else { &mut listed.files };
            files.insert(resolve(&self.out, path)?);
        }
        // A commit that was interrupted may not have moved the table yet.
        for root in [&self.out, &self.staged()] {
            if lstat(&resolve(root, &table.path)?)?.is_some() {
                let blob = open_listed(root, &table.path, table.bytes, Access::Read)?;
                let shards = ShardTable::read(Segment { blob, records: table.records })?;
                for path in shards.shards().map(ShardEntry::path) {
                    listed.files.insert(resolve(&self.out, &path)?);
                }
                return Ok(());
            }
        }
        // The table is removed after the shards, so a removal that was interrupted has none left.
        if lstat(&self.retired())?.is_some() {
            return Ok(());
        }
        Err(Error::corrupt("the shard table is missing, so the shards of this dataset are not known")
            .at_path(self.out.join(&table.path))
            .help("choose another --out, or remove this directory by hand"))
    }
}

/// Paths of files that are to be removed.
#[derive(Default)]
struct Listed {
    files: BTreeSet<PathBuf>,
    /// Shard tables.
    tables: BTreeSet<PathBuf>,
}

/// Removes files, durably.
fn remove_all(files: &BTreeSet<PathBuf>) -> Result<()> {
    files.iter().try_for_each(|path| remove_file(path))?;
    let folders: BTreeSet<&Path> = files.iter().filter_map(|path| path.parent()).collect();
    for folder in folders {
        if lstat(folder)?.is_some() {
            sync_dir(folder)?;
        }
    }
    Ok(())
}

/// `error`, with that of a further operation that failed because of it or after it.
pub(super) fn also(error: Error, further: Result<()>) -> Error {
    let Err(further) = further else { return error };
    let message = format!("{error}; and then: {further}");
    let kind = match error.kind() {
        // Something was written and is still there.
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

    #[test]
    fn an_output_that_overlaps_a_source_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("src");
        std::fs::create_dir(&source).unwrap();
        let specs = [SourceSpec { label: "src".into(), path: source.clone() }];
        assert!(check(&source.join("deep/out"), None, Existing::Refuse, &specs).is_err());
        assert!(check(dir.path(), None, Existing::Overwrite, &specs).is_err());
        assert!(check(&dir.path().join("src-out"), None, Existing::Refuse, &specs).is_ok());
    }
}
