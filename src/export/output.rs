//! The output directory or prefix of an export.
//!
//! Files are built in `.dsconvert/staged` and move to their final names when all are complete; `export.json`, which lists
//! them, is written last. In object storage, files are uploaded when they are complete, and `export.json` is created last.
//!
//! | content | default | `resume` |
//! |---|---|---|
//! | nothing | export | export |
//! | `.dsconvert/export.json`: an unfinished export | refuse | continue, if it is the same |
//! | `export.json`: a complete export | refuse | nothing to do, if it is the same |
//! | anything else | refuse | refuse |

use std::path::{Path, PathBuf};

use bytes::Bytes;
use dsconvert_writer::layout::{LOCK_NAME, WORK_NAME};
use dsconvert_writer::remote::{Remote, ScratchDir};
use dsconvert_writer::stop::Continuation;
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::manifest::FileEntry;
use crate::pipeline::Stop;
use crate::storage::objects::Created;
use crate::storage::{
    Access, Blob, DirLock, NewFile, Writeback, Written, check_local, create_dir, folder_of, list_dir, lstat,
    remove_dir_all, rename, resolve, stat, sync_dir, write_file,
};
use crate::testing::pause_point;

/// Name of the description of an export, which is written last.
pub const EXPORT_NAME: &str = "export.json";
/// Directory of the files of an unfinished export.
const STAGED_NAME: &str = "staged";
/// Maximum size of a description in bytes.
const MAX_DESCRIPTION_BYTES: u64 = 256 << 20;

/// An output that this process may write to.
pub(super) struct Output {
    /// Directory that is written to: the output, or a scratch directory.
    local: PathBuf,
    remote: Option<Remote>,
    plan: Vec<u8>,
    pub(super) staged: StagedFiles,
    scratch: Option<ScratchDir>,
    lock: Option<DirLock>,
}

/// State of an output.
pub(super) enum OutputState {
    /// The same export is complete, with these files.
    Complete(Vec<FileEntry>),
    /// The export is to be written, or finished.
    Unfinished(Output),
}

/// The directory where files are built.
pub(super) struct StagedFiles {
    dir: PathBuf,
    writeback: Option<Writeback>,
}

impl StagedFiles {
    /// Creates the file `name`, which may have a folder.
    pub(super) fn create(&self, name: &str) -> Result<NewFile> {
        let path = resolve(&self.dir, name)?;
        create_dir(folder_of(&path))?;
        let file = NewFile::create(&path)?;
        Ok(match &self.writeback {
            Some(writeback) => file.with_writeback(writeback),
            None => file,
        })
    }

    /// Writes the small file `name`.
    pub(super) fn write(&self, name: &str, content: &[u8]) -> Result<Written> {
        use std::io::Write;
        let mut file = self.create(name)?;
        file.write_all(content).map_err(|e| Error::io("write", file.path(), e))?;
        file.commit()
    }
}

impl Output {
    /// Examines the output `out` of the export that `plan` describes. Nothing is written yet.
    pub(super) fn open(
        out: &Path,
        scratch: Option<&Path>,
        resume: bool,
        plan: &Value,
    ) -> Result<OutputState> {
        let remote = Remote::of(out)?;
        if remote.is_none() && scratch.is_some() {
            return Err(
                Error::usage("`scratch` applies only to an output in object storage").help("leave it out")
            );
        }
        if let Some(scratch) = scratch {
            check_local("scratch", scratch)?;
        }
        let (complete, unfinished) = match &remote {
            Some(remote) => (find_object(remote, EXPORT_NAME)?, find_object(remote, &planned_name())?),
            None => (find_file(out, EXPORT_NAME)?, find_file(out, &planned_name())?),
        };
        let refuse = |what: &str, help: &str| {
            Err(Error::usage(what).at_path(out).of_option("out").help(help.to_owned()))
        };
        match (complete, unfinished) {
            (Some(found), _) if resume => {
                let files = found.get("files").cloned().unwrap_or_default();
                check_same(found, plan, out)?;
                // The export that wrote it may have died before it removed its working directory.
                if remote.is_none() {
                    remove_dir_all(&out.join(WORK_NAME))?;
                }
                let files = serde_json::from_value(files).map_err(|e| damaged(out).caused_by(e))?;
                return Ok(OutputState::Complete(files));
            }
            (Some(_), _) => return refuse("an export already exists", "choose another directory or prefix"),
            (None, Some(found)) if resume => check_same(found, plan, out)?,
            (None, Some(_)) => {
                return refuse(
                    "an export into this directory has not finished",
                    "finish it with `resume`, or choose another directory or prefix",
                );
            }
            (None, None) => {
                let is_empty = match &remote {
                    Some(remote) => !remote.bucket().holds(remote.url())?,
                    None => is_free(out)?,
                };
                if !is_empty {
                    return refuse("the directory or prefix is not empty", "choose another one");
                }
            }
        }
        let scratch = remote.as_ref().map(|_| ScratchDir::create(scratch)).transpose()?;
        let local = scratch.as_ref().map_or(out, ScratchDir::path).to_owned();
        let staged = StagedFiles { dir: local.join(WORK_NAME).join(STAGED_NAME), writeback: None };
        let plan = pretty(plan)?;
        Ok(OutputState::Unfinished(Self { local, remote, plan, staged, scratch, lock: None }))
    }

    /// Marks the output as an unfinished export.
    pub(super) fn start(&mut self, stop: &Stop) -> Result<()> {
        let work = self.local.join(WORK_NAME);
        create_dir(&self.local)?;
        create_dir(&work)?;
        stop.start_writing(Continuation::Resume);
        if self.scratch.is_none() {
            self.lock = Some(DirLock::acquire(&work.join(LOCK_NAME))?);
        }
        match &self.remote {
            Some(remote) => {
                let url = remote.object(&planned_name())?;
                if remote.bucket().create(&url, &Bytes::from(self.plan.clone()))? == Created::Other {
                    return Err(
                        Error::usage("another export is being written to this prefix").at_path(url.as_path())
                    );
                }
            }
            None => drop(write_file(&self.local.join(planned_name()), &self.plan)?),
        }
        // What a killed process was writing.
        create_dir(&self.staged.dir)?;
        self.staged.writeback = Some(Writeback::start());
        Ok(())
    }

    /// Returns the files of the part `number`, if an earlier run has completed them.
    pub(super) fn finished(&self, number: usize) -> Result<Option<Vec<FileEntry>>> {
        let path = self.finished_path(number);
        if lstat(&path)?.is_none() {
            return Ok(None);
        }
        let json = read_small(&path)?;
        let Ok(files) = serde_json::from_slice::<Vec<FileEntry>>(&json) else { return Ok(None) };
        for file in &files {
            let places = [resolve(&self.staged.dir, &file.path)?, resolve(&self.local, &file.path)?];
            let sizes = [lstat(&places[0])?, lstat(&places[1])?].map(|meta| meta.map(|meta| meta.len()));
            if !sizes.contains(&Some(file.bytes)) {
                return Ok(None);
            }
        }
        Ok(Some(files))
    }

    /// Marks the part `number` as complete. In object storage, its files are uploaded.
    pub(super) fn finish(&self, number: usize, files: &[FileEntry], stop: &Stop) -> Result<()> {
        let Some(remote) = &self.remote else {
            let path = self.finished_path(number);
            create_dir(folder_of(&path))?;
            let json =
                serde_json::to_vec(files).map_err(|e| Error::not_serialized("the list of files", e))?;
            return write_file(&path, &json).map(drop);
        };
        for file in files {
            let path = resolve(&self.staged.dir, &file.path)?;
            let expected = Written { bytes: file.bytes, sha256: file.sha256.clone() };
            remote.upload(&path, &file.path, Some(&expected), stop)?;
            crate::storage::remove_file(&path)?;
        }
        Ok(())
    }

    fn finished_path(&self, number: usize) -> PathBuf {
        self.local.join(WORK_NAME).join("parts").join(format!("{number}.json"))
    }

    /// Moves all files to their final names, and writes the description of the export.
    pub(super) fn commit(self, plan: &Value, files: &[FileEntry]) -> Result<()> {
        if let Some(writeback) = &self.staged.writeback {
            writeback.check()?;
        }
        let mut description = plan.clone();
        if let Some(members) = description.as_object_mut() {
            members.insert("files".to_owned(), json!(files));
        }
        let description = pretty(&description)?;
        if let Some(remote) = &self.remote {
            let url = remote.object(EXPORT_NAME)?;
            let differs = || Error::usage("another export was written to this prefix");
            remote.create(&url, description, differs)?;
            return remote.bucket().delete(&remote.object(&planned_name())?);
        }
        for file in files {
            let (from, to) = (resolve(&self.staged.dir, &file.path)?, resolve(&self.local, &file.path)?);
            // An earlier run may have moved it.
            if lstat(&from)?.is_some() {
                create_dir(folder_of(&to))?;
                rename(&from, &to)?;
            }
        }
        for file in files {
            sync_dir(folder_of(&resolve(&self.local, &file.path)?))?;
        }
        pause_point("export commit");
        write_file(&self.local.join(EXPORT_NAME), &description)?;
        remove_dir_all(&self.local.join(WORK_NAME))
    }
}

/// Returns the name of the description of an unfinished export.
fn planned_name() -> String {
    format!("{WORK_NAME}/{EXPORT_NAME}")
}

/// Returns whether the directory `out` does not exist or holds nothing but the lock of an export that has not started.
fn is_free(out: &Path) -> Result<bool> {
    match stat(out)? {
        None => return Ok(true),
        Some(meta) if !meta.is_dir() => {
            return Err(Error::usage("this is a file")
                .at_path(out)
                .of_option("out")
                .help("name a directory"));
        }
        Some(_) => {}
    }
    let items = list_dir(out)?;
    match items.as_slice() {
        [] => Ok(true),
        [item] if item.name == WORK_NAME && item.kind.is_dir() => Ok(list_dir(&item.path)?
            .iter()
            .all(|item| item.name == LOCK_NAME || item.name.to_string_lossy().ends_with(".tmp"))),
        _ => Ok(false),
    }
}

fn find_file(out: &Path, name: &str) -> Result<Option<Value>> {
    let path = out.join(name);
    match lstat(&path)? {
        None => Ok(None),
        Some(_) => parse(&read_small(&path)?, out).map(Some),
    }
}

fn find_object(remote: &Remote, name: &str) -> Result<Option<Value>> {
    let found = remote.bucket().find(&remote.object(name)?, MAX_DESCRIPTION_BYTES)?;
    found.map(|(json, _)| parse(&json, remote.path())).transpose()
}

fn read_small(path: &Path) -> Result<Bytes> {
    let blob = Blob::open(path, Access::Read, None)?;
    match blob.len() {
        bytes if bytes > MAX_DESCRIPTION_BYTES => Err(damaged(path)),
        bytes => blob.read(0, bytes),
    }
}

fn parse(json: &[u8], out: &Path) -> Result<Value> {
    serde_json::from_slice(json).map_err(|e| damaged(out).caused_by(e))
}

fn damaged(out: &Path) -> Error {
    Error::usage(format!("{EXPORT_NAME} in it is not from an export"))
        .at_path(out)
        .of_option("out")
        .help("choose another directory or prefix")
}

/// Refuses to continue or repeat an export with another `plan` than the one that was `found`.
fn check_same(found: Value, plan: &Value, out: &Path) -> Result<()> {
    let differs = |name: &&str| found.get(name) != plan.get(name);
    let names =
        ["format", "options", "mixture", "fields", "fingerprint", "splits", "dsconvert", "export_version"];
    match names.iter().find(|name| differs(name)) {
        None => Ok(()),
        Some(&name) => {
            let what = match name {
                "fingerprint" => "of another dataset".to_owned(),
                name => {
                    let shown = |value: Option<&Value>| value.cloned().unwrap_or_default();
                    format!("with {name} {}, and now {}", shown(found.get(name)), shown(plan.get(name)))
                }
            };
            Err(Error::usage(format!("the export in it was made {what}"))
                .at_path(out)
                .of_option("out")
                .help("give the same options and dataset, or choose another directory or prefix"))
        }
    }
}

fn pretty(value: &Value) -> Result<Vec<u8>> {
    let mut json = serde_json::to_vec_pretty(value).map_err(|e| Error::not_serialized("the export", e))?;
    json.push(b'\n');
    Ok(json)
}
