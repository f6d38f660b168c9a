//! The prefix in object storage that a dataset is written to: scratch directories, uploads and downloads.
//!
//! A run always works in a local output directory. If the output is a URL, that directory is a [`ScratchDir`] of
//! the process, and [`Remote`] copies files between it and the store. Only the store determines what is finished:
//! losing a scratch directory costs only the units in progress, and any machine can continue.
//!
//! | object under the output's prefix | when |
//! |---|---|
//! | `.dsconvert/<plan>/plan.jsonl`, `job.jsonl`, `tokenizer.json` | planning; `<plan>` is the identity of the plan |
//! | `.dsconvert/plan.json` | after them, create-only: the plan that this prefix belongs to |
//! | `.dsconvert/<plan>/excluded`, `excluded.sha256` | after the excluded datasets were read |
//! | `.dsconvert/<plan>/duplicates`, `duplicates.sha256` | after the pass that finds duplicates |
//! | `<split>/<shard>` | when a shard is closed |
//! | `.dsconvert/units/<unit>/…` | when a unit is finished: its small files, then `unit.json`, create-only |
//! | `index/…`, `rejects.jsonl`, … | commit, after all shards were checked |
//! | `manifest.json` | last, create-only |
//!
//! After the commit, everything under `.dsconvert/` is deleted. Two processes that work on the same plan write the same
//! bytes under the same names, and neither starts an upload of a shard or index once the manifest exists. A second plan
//! is refused by the create-only `plan.json` during a run, and by the manifest afterwards.

use std::fs::{DirBuilder, File};
use std::io::{Read, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;

use super::layout::{Existing, ResumeCheck, WORK_NAME};
use super::stop::Stop;
use crate::error::{Error, ErrorKind, Result};
use crate::manifest::{MANIFEST_NAME, MAX_MANIFEST_BYTES, Manifest};
use crate::storage::objects::{Bucket, Created, is_cut_short};
use crate::storage::{
    DirLock, NewFile, ObjectUrl, Written, create_dir, list_dir, lstat, random, remove_dir_all, rename,
};

/// Number of checks before a prefix is considered to hold unrelated objects.
const CONTENT_CHECKS: u32 = 3;
/// Pause between two checks.
const PAUSE: Duration = Duration::from_millis(100);

/// An output in object storage.
#[derive(Debug, Clone)]
pub struct Remote {
    pub(crate) url: ObjectUrl,
    pub(crate) bucket: Bucket,
}

/// Contents of a prefix.
pub(crate) enum PrefixContents {
    Nothing,
    Dataset,
    /// An unfinished run.
    Run,
    /// Objects that do not belong to a dataset.
    Other,
}

impl Remote {
    /// Returns the output `out` if it is a URL. Sends no requests.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`](crate::error::ErrorKind) if this URL cannot be written to, or the environment does not
    /// configure its store.
    pub fn of(out: &Path) -> Result<Option<Self>> {
        let Some(url) = ObjectUrl::parse(out).map_err(|e| e.of_option("out"))? else { return Ok(None) };
        if url.is_server() {
            return Err(Error::usage("a dataset cannot be written to a web server")
                .at_path(url.as_path())
                .of_option("out")
                .help("use a local directory, or a URL that starts with s3://, gs:// or az://"));
        }
        let bucket = Bucket::of(&url).map_err(|e| e.of_option("out"))?;
        Ok(Some(Self { url, bucket }))
    }

    /// Returns the location of the dataset, for messages.
    pub fn path(&self) -> &Path {
        self.url.as_path()
    }

    /// Returns the prefix.
    pub fn url(&self) -> &ObjectUrl {
        &self.url
    }

    /// Returns the client of the store.
    pub fn bucket(&self) -> &Bucket {
        &self.bucket
    }

    /// Returns the URL of the object called `name` under the prefix.
    ///
    /// # Errors
    ///
    /// If `name` is not a plain relative path.
    pub fn object(&self, name: &str) -> Result<ObjectUrl> {
        self.url.join(name)
    }

    /// Refuses options that datasets in object storage do not support.
    pub(crate) fn check_existing(&self, existing: Existing) -> Result<()> {
        let (what, help) = match existing {
            Existing::Refuse | Existing::Resume(ResumeCheck::Sizes) => return Ok(()),
            Existing::Overwrite => {
                ("a dataset in object storage cannot be overwritten", "choose another prefix for `out`")
            }
            Existing::Resume(ResumeCheck::Hashes) => (
                "shards in object storage can only be checked by size",
                "leave out the check, and verify the committed dataset with `dsconvert inspect --verify`",
            ),
            Existing::Resume(ResumeCheck::Repair) => (
                "a dataset in object storage cannot be repaired",
                "convert again into another prefix, and copy the damaged shard from there",
            ),
        };
        Err(Error::usage(what).at_path(self.path()).help(help))
    }

    /// Returns the contents of the prefix. Another run may start or end between the requests, and no order of the
    /// requests is right for both. So contents that appear unrelated to a dataset are checked again.
    pub(crate) fn contents(&self) -> Result<PrefixContents> {
        for _ in 0..CONTENT_CHECKS {
            if !self.bucket.holds(&self.url)? {
                return Ok(PrefixContents::Nothing);
            }
            // A run removes its working objects after writing the manifest.
            let is_run = self.bucket.holds(&self.object(WORK_NAME)?)?;
            if self.bucket.head(&self.object(MANIFEST_NAME)?)?.is_some() {
                return Ok(PrefixContents::Dataset);
            }
            if is_run {
                return Ok(PrefixContents::Run);
            }
            std::thread::sleep(PAUSE);
        }
        Ok(PrefixContents::Other)
    }

    /// Returns the manifest if the dataset is committed.
    pub fn manifest(&self) -> Result<Option<Manifest>> {
        let url = self.object(MANIFEST_NAME)?;
        let found = self.bucket.find(&url, MAX_MANIFEST_BYTES)?;
        found.map(|(json, _)| Manifest::parse(&json).map_err(|e| e.at_path(url.as_path()))).transpose()
    }

    /// Refuses to upload more files once another process has committed a dataset. An upload that has already started is
    /// not stopped: it replaces an object by one with the same bytes.
    pub(crate) fn check_uncommitted(&self) -> Result<()> {
        match self.bucket.head(&self.object(MANIFEST_NAME)?)? {
            None => Ok(()),
            Some(_) => {
                let message = "a dataset was committed to this prefix by another process";
                Err(Error::new(ErrorKind::NotCommitted, message)
                    .at_path(self.path())
                    .help("choose another prefix for `out`"))
            }
        }
    }

    /// Creates an object that must not already exist with other content. If it does, `differs` returns the error.
    pub fn create(&self, url: &ObjectUrl, content: Vec<u8>, differs: impl FnOnce() -> Error) -> Result<()> {
        match self.bucket.create(url, &Bytes::from(content))? {
            Created::New | Created::Same => Ok(()),
            Created::Other => Err(differs().at_path(url.as_path())),
        }
    }
}

/// Name of the lock file in a scratch directory. The lock is held until the process ends.
const LOCK_NAME: &str = "lock";
/// Name prefix of a directory that is not locked yet.
const UNLOCKED: &str = "new-";

/// A local directory of one process. It is removed on drop or, after its process was killed, by the next process on the
/// same machine.
#[derive(Debug)]
pub struct ScratchDir {
    path: PathBuf,
    _lock: DirLock,
}

impl ScratchDir {
    /// Creates a directory in `parent` or, without one, in the system's directory for temporary files.
    pub fn create(parent: Option<&Path>) -> Result<Self> {
        Self::create_in(&Self::root(parent)).map_err(|error| match error.remedy() {
            None => error.help(HELP),
            Some(_) => error,
        })
    }

    fn create_in(root: &Path) -> Result<Self> {
        create_private(root)?;
        remove_dead(root);
        let name = format!("{}-{:016x}", host(), random());
        let unlocked = root.join(format!("{UNLOCKED}{name}"));
        create_dir(&unlocked)?;
        let lock = DirLock::acquire(&unlocked.join(LOCK_NAME))?;
        // Only directories with this name may be removed as dead, and by then the directory is locked.
        let path = root.join(name);
        rename(&unlocked, &path)?;
        Ok(Self { path, _lock: lock })
    }

    /// Returns the parent of all scratch directories of this user.
    pub(crate) fn root(parent: Option<&Path>) -> PathBuf {
        let user = rustix::process::getuid().as_raw();
        let temporary = std::env::temp_dir();
        parent.unwrap_or(&temporary).join(format!("dsconvert-{user}"))
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        // Leftovers are removed by the next process.
        let _ = remove_dir_all(&self.path);
    }
}

/// Creates `root` for this user only. The directory for temporary files is shared by all users, so another user may
/// have created something at this path.
fn create_private(root: &Path) -> Result<()> {
    if let Some(parent) = root.parent() {
        create_dir(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(root) {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
        created => created.map_err(|e| Error::io("create the directory", root, e))?,
    }
    let user = rustix::process::getuid().as_raw();
    match lstat(root)? {
        Some(meta) if meta.is_dir() && meta.uid() == user => Ok(()),
        _ => Err(Error::io("use the directory", root, std::io::ErrorKind::PermissionDenied.into())),
    }
}

const HELP: &str = "choose another scratch directory with `scratch`";

/// Removes the directories of dead processes on this machine. Locks do not work across machines on every file system.
fn remove_dead(root: &Path) {
    let prefix = format!("{}-", host());
    for entry in list_dir(root).unwrap_or_default() {
        if !entry.kind.is_dir() || !entry.name.to_string_lossy().starts_with(&prefix) {
            continue;
        }
        if let Ok(_lock) = DirLock::acquire(&entry.path.join(LOCK_NAME)) {
            // The next process tries again.
            let _ = remove_dir_all(&entry.path);
        }
    }
}

/// Returns the name of this machine as part of a file name.
fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || ".-".contains(*c)).collect();
    if name.is_empty() || name.starts_with(UNLOCKED) { format!("host{name}") } else { name }
}

/// Bytes read from a file at a time.
const CHUNK_BYTES: usize = 1 << 20;
/// Maximum bytes per request. Objects up to this size are downloaded with a single request.
const REQUEST_BYTES: u64 = 8 << 20;
/// Bytes of an object that are downloaded concurrently.
const WINDOW_BYTES: u64 = 64 << 20;

/// Number of attempts to upload a file from its start.
const UPLOAD_ATTEMPTS: usize = 5;

impl Remote {
    /// Uploads the file `from` to the object called `name`. `expected` describes the content that was written to the
    /// file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or differs from `expected`, if the store refuses it, or after a stop request.
    pub fn upload(&self, from: &Path, name: &str, expected: Option<&Written>, stop: &Stop) -> Result<()> {
        // The client retries single requests, but if the response to a whole upload is cut short, the upload fails.
        for _ in 1..UPLOAD_ATTEMPTS {
            match self.upload_once(from, name, expected, stop) {
                Err(error) if error.kind() == ErrorKind::Io && is_cut_short(&error) => {}
                result => return result,
            }
        }
        self.upload_once(from, name, expected, stop)
    }

    fn upload_once(&self, from: &Path, name: &str, expected: Option<&Written>, stop: &Stop) -> Result<()> {
        let url = self.object(name)?;
        let fail = |e| Error::io("read", from, e);
        let mut file = File::open(from).map_err(fail)?;
        let mut upload = self.bucket.upload(&url)?;
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            stop.check()?;
            let count = match file.read(&mut chunk) {
                Ok(0) => break,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                read => read.map_err(fail)?,
            };
            upload.write_all(&chunk[..count]).map_err(|e| match e.downcast::<Error>() {
                Ok(error) => error,
                Err(e) => Error::io("upload", url.as_path(), e),
            })?;
        }
        let sent = upload.finish()?;
        match expected {
            Some(expected) if *expected != sent => {
                let message = "the uploaded bytes are not those that were written to this file";
                Err(Error::new(ErrorKind::Io, message)
                    .at_path(from)
                    .help("check the disk, or choose another folder with `scratch`"))
            }
            _ => Ok(()),
        }
    }

    /// Downloads the object called `name`, which has `bytes` bytes, to the file `to`.
    pub(crate) fn download(&self, name: &str, bytes: u64, to: &Path) -> Result<Written> {
        let url = self.object(name)?;
        let fail = |e| Error::io("write", to, e);
        let mut file = NewFile::create(to)?;
        if bytes <= REQUEST_BYTES {
            let (content, _) = self.bucket.get(&url, bytes)?;
            file.write_all(&content).map_err(fail)?;
            return file.finish();
        }
        let (mut at, mut etag) = (0, None);
        while at < bytes {
            let end = bytes.min(at + WINDOW_BYTES);
            let starts = (at..end).step_by(REQUEST_BYTES as usize);
            let ranges: Vec<Range<u64>> = starts.map(|start| start..end.min(start + REQUEST_BYTES)).collect();
            let (parts, found) = self.bucket.get_ranges(&url, bytes, etag.as_deref(), &ranges)?;
            parts.iter().try_for_each(|part| file.write_all(part)).map_err(fail)?;
            (at, etag) = (end, found);
        }
        file.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_object_stores_are_remote_outputs() {
        assert!(Remote::of(Path::new("out")).unwrap().is_none());
        for refused in ["https://host/x", "file:///x", "s3://", "s3://b/../x"] {
            assert!(Remote::of(Path::new(refused)).is_err(), "{refused}");
        }
    }

    #[test]
    fn directories_of_dead_processes_are_removed_and_no_others() {
        let parent = tempfile::tempdir().unwrap();
        let alive = ScratchDir::create(Some(parent.path())).unwrap();
        std::fs::write(alive.path().join("x"), "x").unwrap();
        let root = ScratchDir::root(Some(parent.path()));
        let dead = root.join(format!("{}-{:016x}", host(), 1));
        let elsewhere = root.join("some-other-machine-0000000000000001");
        for dir in [&dead, &elsewhere] {
            std::fs::create_dir(dir).unwrap();
            std::fs::write(dir.join("train.rows"), "x").unwrap();
        }
        let next = ScratchDir::create(Some(parent.path())).unwrap();
        assert_ne!(next.path(), alive.path());
        assert!(!dead.exists() && elsewhere.exists() && alive.path().join("x").exists());
        let path = next.path().to_owned();
        drop(next);
        assert!(!path.exists() && alive.path().exists());
    }

    #[test]
    fn a_planted_link_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), ScratchDir::root(Some(parent.path()))).unwrap();
        let error = ScratchDir::create(Some(parent.path())).unwrap_err();
        assert!(error.remedy().is_some_and(|help| help.contains("`scratch`")), "{error}");
        assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }
}
