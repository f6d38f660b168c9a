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
//! [`remote`](super::remote). The local directory is then a scratch directory, and is empty at the start.
//!
//! `removal.rs` says which files are removed.

use std::path::{Path, PathBuf};

use super::layout::{Existing, LOCK_NAME, PLAN_NAME, RETIRED_NAME, ResumeCheck, WORK_NAME};
use super::remote::{PrefixContents, Remote, ScratchDir};
use super::units::{UnitDirs, UnitResult, UnitShard, UnitSplit, UnitState, shard_path};
use crate::error::{Error, ErrorKind, Result};
use crate::index::{INDEX_DIR, ShardTable};
use crate::manifest::{MANIFEST_NAME, Manifest};
use crate::printable::printable_path;
use crate::storage::{
    DirLock, ObjectUrl, check_local, create_dir, find_link, folder_of, is_empty_dir, lstat, real_path,
    remove_dir_all, remove_empty_dir, remove_temporary_files, resolve, stat, sync_dir,
};

/// The manifest of a commit in progress. It lists all files that the commit may have moved to their final location.
const PENDING_NAME: &str = "pending.json";
/// Folder of the files that a commit will move to their final location.
const STAGED_NAME: &str = "staged";

/// State of an output when a run opens it.
pub enum OutputState {
    /// It holds neither a plan nor a dataset.
    Empty,
    /// An earlier run has stored its plan, but has not committed.
    Planned,
    /// The dataset is committed.
    Committed(Box<Manifest>),
}

/// An output directory that this process may write to.
pub struct OutputDir {
    out: PathBuf,
    /// Whether this process created the directory.
    created: bool,
    /// Destination of the dataset, if it is object storage.
    remote: Option<Remote>,
    /// Whether other processes may write units, too.
    joined: bool,
    /// Keeps other processes from opening a local output; shared if this one has joined it.
    _lock: Option<DirLock>,
    /// The directory of this process alone, if the output is object storage.
    _scratch: Option<ScratchDir>,
}

impl OutputDir {
    /// Opens the directory for this run. With [`Existing::Overwrite`], removes an existing dataset or unfinished run.
    /// An interrupted removal is finished in any case.
    pub fn open(out: &Path, scratch: Option<&Path>, existing: Existing) -> Result<(Self, OutputState)> {
        if let Some(remote) = Remote::of(out)? {
            return Self::open_remote(remote, scratch, existing);
        }
        let created = stat(out)?.is_none();
        let work = out.join(WORK_NAME);
        let had_work = lstat(&work)?.is_some();
        create_dir(out)?;
        create_dir(&work)?;
        let lock = Some(DirLock::acquire(&work.join(LOCK_NAME))?);
        let out = out.to_owned();
        let dir = Self { out, created, remote: None, joined: false, _lock: lock, _scratch: None };
        match dir.state(existing == Existing::Overwrite) {
            Ok(state) => Ok((dir, state)),
            // The directory is left as it was, unless a removal has started: the retired manifest is needed to finish
            // that.
            Err(error) if !had_work && matches!(lstat(&dir.retired()), Ok(None)) => {
                Err(combine_errors(error, dir.remove_run()))
            }
            Err(error) => Err(error),
        }
    }

    fn open_remote(
        remote: Remote,
        scratch: Option<&Path>,
        existing: Existing,
    ) -> Result<(Self, OutputState)> {
        remote.check_existing(existing)?;
        let state = remote_state(&remote)?;
        let dir = Self::in_scratch(remote, scratch, false)?;
        create_dir(&dir.work())?;
        Ok((dir, state))
    }

    /// Creates a scratch directory for the output `remote`.
    fn in_scratch(remote: Remote, scratch: Option<&Path>, joined: bool) -> Result<Self> {
        let scratch = ScratchDir::create(scratch)?;
        let out = scratch.path().to_owned();
        Ok(Self { out, created: true, remote: Some(remote), joined, _lock: None, _scratch: Some(scratch) })
    }

    /// Opens the output `out`, which need not exist, without writing to it: other processes write units, too, or have
    /// written all of them.
    pub fn join(out: &Path, scratch: Option<&Path>, existing: Existing) -> Result<Self> {
        check_scratch(out, scratch)?;
        let Some(remote) = Remote::of(out)? else {
            let out = out.to_owned();
            return Ok(Self { out, created: false, remote: None, joined: true, _lock: None, _scratch: None });
        };
        remote.check_existing(existing)?;
        Self::in_scratch(remote, scratch, true)
    }

    /// Keeps other processes from opening the directory for themselves alone, for an output that this process has joined.
    pub fn share_lock(&mut self) -> Result<()> {
        if self.joined && self.remote.is_none() {
            self._lock = Some(DirLock::share(&self.out.join(WORK_NAME).join(LOCK_NAME))?);
        }
        Ok(())
    }

    /// Returns whether this process has [joined](Self::join) the output.
    pub(crate) fn is_shared(&self) -> bool {
        self.joined
    }

    /// Returns the manifest if the dataset is committed.
    pub fn committed(&self) -> Result<Option<Manifest>> {
        match &self.remote {
            Some(remote) => remote.manifest(),
            None => {
                let is_there = lstat(&self.out.join(MANIFEST_NAME))?.is_some();
                is_there.then(|| Manifest::read(&self.out)).transpose()
            }
        }
    }

    /// Returns whether a commit may have left its working directory.
    pub fn may_have_work(&self) -> Result<bool> {
        Ok(self.remote.is_some() || lstat(&self.work())?.is_some())
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
    pub fn path(&self) -> &Path {
        &self.out
    }

    /// Returns the location of the dataset, for messages.
    pub fn shown(&self) -> &Path {
        self.remote.as_ref().map_or(&self.out, Remote::path)
    }

    /// Returns the output in object storage, if there is one.
    pub fn remote(&self) -> Option<&Remote> {
        self.remote.as_ref()
    }

    /// Returns a path where the shard of a finished unit can be read; `None` if it is missing.
    pub(crate) fn find_shard(
        &self,
        dirs: &UnitDirs,
        unit: u32,
        split: &UnitSplit,
        shard: &UnitShard,
    ) -> Result<Option<PathBuf>> {
        let Some(remote) = &self.remote else { return dirs.find_shard(unit, split, shard, &self.out) };
        let local = self.work().join(&shard.name);
        if lstat(&local)?.is_none() {
            remote.download(&shard_path(&split.name, &shard.name), shard.bytes, &local)?;
        }
        Ok(Some(local))
    }

    /// Returns the working directory, which is removed after the commit.
    pub fn work(&self) -> PathBuf {
        self.out.join(WORK_NAME)
    }

    /// Returns the path of the manifest of a dataset that is being removed.
    pub(crate) fn retired(&self) -> PathBuf {
        self.work().join(RETIRED_NAME)
    }

    /// Returns the path of the manifest until the files that it lists are in place.
    pub(crate) fn pending(&self) -> PathBuf {
        self.work().join(PENDING_NAME)
    }

    /// Returns the folder of the files that the commit moves to their final location.
    pub(crate) fn staged(&self) -> PathBuf {
        self.work().join(STAGED_NAME)
    }

    /// Removes the leftovers of attempts and commits that died. Only the holder of the lock may do this.
    pub fn remove_leftovers(&self) -> Result<()> {
        let (work, staged) = (self.work(), self.staged());
        for folder in [&work, &staged, &staged.join(INDEX_DIR)] {
            remove_temporary_files(folder)?;
        }
        UnitDirs::new(&work).remove_unfinished()
    }

    /// Removes the working directory after the commit.
    pub fn remove_work(&self) -> Result<()> {
        if let Some(remote) = &self.remote {
            remote.remove_work()?;
        }
        let work = self.work();
        UnitDirs::new(&work).remove_all()?;
        remove_dir_all(&work)
    }

    /// Removes everything of a run that is not worth keeping, and the directory itself if this run created it.
    pub fn abandon(self, units: u32, plan: &str) -> Result<()> {
        if let Some(remote) = &self.remote {
            let dirs = UnitDirs::new(&self.work());
            let mut finished: Vec<UnitResult> = Vec::new();
            for unit in 0..units {
                if let UnitState::Done(result) = dirs.read(unit, plan)? {
                    finished.push(*result);
                }
            }
            return remote.abandon(&finished);
        }
        self.clear()?;
        self.remove_run()
    }

    /// Removes the working directory, and the directory itself if this run created it.
    fn remove_run(&self) -> Result<()> {
        self.remove_work()?;
        if self.created {
            remove_empty_dir(&self.out)?;
        }
        Ok(())
    }

    /// Makes the directory entries of all files of the committed dataset durable.
    pub(crate) fn sync_files(&self, manifest: &Manifest) -> Result<()> {
        let folders =
            manifest.splits.iter().filter(|(_, split)| split.records > 0).map(|(name, _)| name.as_str());
        folders.chain(["index"]).try_for_each(|folder| sync_dir(&resolve(&self.out, folder)?))?;
        sync_dir(&self.out)
    }

    /// Reads the shard table of the committed dataset.
    pub(crate) fn read_shards(&self, manifest: &Manifest) -> Result<ShardTable> {
        let Some(remote) = &self.remote else { return manifest.read_shards(&self.out) };
        let (work, table) = (self.work(), &manifest.shard_table);
        let local = resolve(&work, &table.path)?;
        create_dir(folder_of(&local))?;
        remote.download(&table.path, table.bytes, &local)?;
        manifest.read_shards(&work)
    }
}

/// Returns the state of the prefix at the start of a run.
fn remote_state(remote: &Remote) -> Result<OutputState> {
    // A commit deletes the plan after writing the manifest. In this order, at least one of them is seen.
    let plan = remote.plan()?;
    Ok(match (remote.manifest()?, plan) {
        (Some(manifest), _) => OutputState::Committed(Box::new(manifest)),
        (None, Some(_)) => OutputState::Planned,
        (None, None) => OutputState::Empty,
    })
}

/// Adds the error of a further operation to `error`, which came first.
pub fn combine_errors(error: Error, further: Result<()>) -> Error {
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

/// What the output is called in errors.
pub const OUTPUT: &str = "the output directory";

/// Help for an output that already has a dataset.
pub const CHOOSE_OR_REPLACE: &str = "choose another `out`, or replace it with `overwrite`";

/// Refuses everything that can be refused without writing: a directory in use, or one that contains a source or is
/// inside one.
pub fn check(out: &Path, scratch: Option<&Path>, existing: Existing, sources: &[&Path]) -> Result<()> {
    check_scratch(out, scratch)?;
    if let Some(remote) = Remote::of(out)? {
        return check_remote(&remote, existing, scratch, sources);
    }
    for source in sources {
        refuse_overlap(out, OUTPUT, source)?;
    }
    if stat(out)?.is_some_and(|meta| !meta.is_dir()) {
        return Err(Error::usage("the output is not a directory").at_path(out).help("choose another `out`"));
    }
    if is_empty_dir(out)? {
        return Ok(());
    }
    let dataset = lstat(&out.join(MANIFEST_NAME))?.is_some();
    let unfinished = lstat(&out.join(WORK_NAME))?.is_some();
    let (what, help) = match existing {
        Existing::Refuse if dataset => ("a dataset already exists", CHOOSE_OR_REPLACE),
        Existing::Refuse if unfinished => (
            "a run into this directory has not finished",
            "finish it with `resume`, or start again with `overwrite`",
        ),
        Existing::Refuse => ("the output directory is not empty", "choose another `out`"),
        _ if dataset || unfinished => return refuse_links(out, existing),
        _ => (
            "the output directory contains files that do not belong to a dataset",
            "choose another `out`; only files that a manifest lists are ever removed",
        ),
    };
    Err(Error::usage(what).at_path(out).help(help))
}

/// Refuses everything that can be refused without writing: options that object storage does not support, sources
/// that overlap the output, and a prefix in use.
fn check_remote(
    remote: &Remote,
    existing: Existing,
    scratch: Option<&Path>,
    sources: &[&Path],
) -> Result<()> {
    remote.check_existing(existing)?;
    for source in sources {
        if let Some(url) = ObjectUrl::parse(source)? {
            if url.is_within(&remote.url) || remote.url.is_within(&url) {
                return Err(overlap(remote.path(), "the output", source));
            }
        } else {
            refuse_overlap(&ScratchDir::root(scratch), "the scratch directory", source)
                .map_err(|e| e.help("choose a directory outside the sources with `scratch`"))?;
        }
    }
    let resumed = matches!(existing, Existing::Resume(_));
    let (what, help) = match remote.contents()? {
        PrefixContents::Nothing => return Ok(()),
        PrefixContents::Dataset | PrefixContents::Run if resumed => return Ok(()),
        PrefixContents::Dataset => ("a dataset already exists", "choose another prefix for `out`"),
        PrefixContents::Run => (
            "a run into this prefix has not finished",
            "finish it with `resume`, or choose another prefix for `out`",
        ),
        PrefixContents::Other => {
            ("the prefix contains objects that do not belong to a dataset", "choose another prefix for `out`")
        }
    };
    Err(Error::usage(what).at_path(remote.path()).help(help))
}

/// Refuses a scratch directory that is not local, or that the output does not need.
pub(crate) fn check_scratch(out: &Path, scratch: Option<&Path>) -> Result<()> {
    let Some(scratch) = scratch else { return Ok(()) };
    check_local("scratch", scratch)?;
    if ObjectUrl::is_url(out) {
        return Ok(());
    }
    Err(Error::usage("`scratch` applies only to an output in object storage")
        .help("leave it out: shards are written directly to a local output"))
}

/// Refuses `inputs`, files that the named options give to a run, inside an output directory whose files the run removes.
pub fn refuse_inputs(out: &Path, existing: Existing, inputs: &[(&'static str, PathBuf)]) -> Result<()> {
    if ObjectUrl::is_url(out) {
        return Ok(());
    }
    // An interrupted removal is finished by any run.
    let removes =
        existing == Existing::Overwrite || lstat(&out.join(WORK_NAME).join(RETIRED_NAME))?.is_some();
    if !removes {
        return Ok(());
    }
    let dir = real_path(out)?;
    for (option, path) in inputs {
        if real_path(path)?.starts_with(&dir) {
            return Err(Error::usage(
                "the file is in the output directory, whose dataset is removed before the conversion",
            )
            .of_option(option)
            .at_path(path)
            .help(format!("copy it to another place, and name the copy with `{option}`")));
        }
    }
    Ok(())
}

/// Refuses a dataset for the run to read that is the output `out` itself.
pub fn refuse_excluded(out: &Path, datasets: &[PathBuf]) -> Result<()> {
    let is_url = ObjectUrl::is_url(out);
    for dataset in datasets.iter().filter(|dataset| ObjectUrl::is_url(dataset) == is_url) {
        let is_same = match is_url {
            // Components do not include a slash at the end.
            true => dataset.components().eq(out.components()),
            false => real_path(dataset)? == real_path(out)?,
        };
        if is_same {
            return Err(Error::usage("the dataset is the output itself")
                .at_path(dataset)
                .help("choose another `out` for the new items, and read both datasets together"));
        }
    }
    Ok(())
}

/// Refuses a local directory, called `what` in the error, that contains the source or is inside it.
pub fn refuse_overlap(dir: &Path, what: &str, source: &Path) -> Result<()> {
    if ObjectUrl::is_url(source) {
        return Ok(());
    }
    // A pipe such as /dev/fd/63 has no path to resolve. Only files and folders are read, so it is refused later.
    if stat(source)?.is_some_and(|meta| !meta.is_dir() && !meta.is_file()) {
        return Ok(());
    }
    let (real, source_path) = (real_path(dir)?, real_path(source)?);
    if !real.starts_with(&source_path) && !source_path.starts_with(&real) {
        return Ok(());
    }
    Err(overlap(dir, what, source))
}

/// Returns the error for an output at `out`, called `what`, that contains the source at `source` or is inside it.
pub fn overlap(out: &Path, what: &str, source: &Path) -> Error {
    Error::usage(format!("{what} and the source {} overlap", printable_path(source)))
        .at_path(out)
        .help("choose an `out` that is not inside a source and does not contain one")
}

/// Refuses an output directory that contains a symbolic link: through it, files elsewhere would be written or removed.
fn refuse_links(out: &Path, existing: Existing) -> Result<()> {
    let Some(link) = find_link(out)? else { return Ok(()) };
    let help = match existing {
        Existing::Resume(ResumeCheck::Repair) => "remove the link, then repair again",
        _ => "remove the link or choose another `out`; only the output directory itself may be a link",
    };
    Err(Error::usage("the output directory contains a symbolic link").at_path(link).help(help))
}

/// Returns whether another process may have committed the dataset and removed objects that this process needed.
pub fn may_be_overtaken(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Io | ErrorKind::NotCommitted)
}

/// Adapts the help of an error to the output `out`: object storage has neither `--overwrite` nor `--resume=repair`.
pub fn adapt_help(error: Error, out: &Path) -> Error {
    let replaces = |help: &str| help.contains("`overwrite`") || help.contains("`resume=repair`");
    let Some(help) = error.remedy().filter(|help| ObjectUrl::is_url(out) && replaces(help)) else {
        return error;
    };
    let adapted = help
        .replace(CHOOSE_OR_REPLACE, "choose another prefix for `out`")
        .replace("plan again with `overwrite`", "plan again into another prefix");
    error.help(match replaces(&adapted) {
        true => "repeat the command that was interrupted, or choose another prefix for `out`".to_owned(),
        false => adapted,
    })
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

    #[test]
    fn an_output_that_overlaps_a_source_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("src");
        std::fs::create_dir(&source).unwrap();
        let specs = [source.as_path()];
        assert!(check(&source.join("deep/out"), None, Existing::Refuse, &specs).is_err());
        assert!(check(dir.path(), None, Existing::Overwrite, &specs).is_err());
        assert!(check(&dir.path().join("new/../src/out"), None, Existing::Refuse, &specs).is_err());
        assert!(check(&dir.path().join("src-out"), None, Existing::Refuse, &specs).is_ok());
    }

    #[test]
    fn help_fits_the_output() {
        let adapted = |help: &str, out: &str| {
            let error = Error::usage("x").help(help.to_owned());
            adapt_help(error, Path::new(out)).remedy().unwrap().to_owned()
        };
        let differs = format!("add `seed 1`; or {CHOOSE_OR_REPLACE}");
        for (help, remote) in [
            (CHOOSE_OR_REPLACE, "choose another prefix for `out`"),
            (&differs, "add `seed 1`; or choose another prefix for `out`"),
            ("now, plan again with `overwrite`", "now, plan again into another prefix"),
            (
                "start again with `overwrite`",
                "repeat the command that was interrupted, or choose another prefix for `out`",
            ),
            ("check the disk", "check the disk"),
        ] {
            assert_eq!(adapted(help, "out"), help);
            assert_eq!(adapted(help, "s3://bucket/out"), remote);
        }
    }
}
