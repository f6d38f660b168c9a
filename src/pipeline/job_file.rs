//! The stored job: the data that another process needs to convert the units of a plan and to commit them.
//!
//! `.dsconvert/job.jsonl` has one JSON value per line:
//!
//! 1. the [`JobHeader`]: identity of the plan, options, schema, splits, sources;
//! 2. the source files in plan order, as blocks of a [`FileList`], each a JSON string of hexadecimal digits;
//! 3. the units and the splits of the files;
//! 4. the lines of the kind of conversion, images or text ([`Conversion::write`]);
//! 5. the SHA-256 of all previous lines, in hexadecimal, as a JSON string.
//!
//! The `tokenizer.json` of a text conversion is stored next to it. Both are written before the plan itself, so a
//! directory with a plan has them. `job.jsonl` is read only by the version of dsconvert that wrote it.

use std::fs::File;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::exclude::Exclusion;
use super::plan::Plan;
use crate::build_id::BUILD_ID;
use crate::error::{Error, ErrorKind, Result};
use crate::manifest::{Sources, TOKENIZER_NAME};
use crate::numbers::listed;
use crate::options::{OutputOptions, SourceSpec};
use crate::printable::{printable, printable_path};
use crate::schema::Schema;
use crate::source::io::planned::read_file;
use crate::source::list::file_list::FileList;
use crate::source::list::skipped::SkippedTypes;
use crate::storage::{NewFile, ObjectUrl, create_dir, from_hex, hex, lstat};
use crate::writer::layout::PLAN_NAME;
use crate::writer::output::OutputDir;
use crate::writer::remote::Remote;
use crate::writer::remote_units::PlanId;
use crate::writer::stop::Stop;
use crate::writer::units::PlannedUnits;

/// Name of the stored job in the working directory.
pub(super) const JOB_NAME: &str = "job.jsonl";

/// The part of a stored job that is needed to run and commit units of any conversion.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct JobHeader {
    /// Build of dsconvert that planned the job.
    pub build: String,
    /// Identity of the plan; empty until the plan is written.
    pub plan: String,
    /// Digest of the names and sizes of the files, as in the manifest; empty until the plan is written.
    pub listing: String,
    /// Options that affect the dataset, as shown in the manifest.
    pub options: serde_json::Value,
    pub output: OutputOptions,
    pub sources: Vec<SourceSpec>,
    /// Whether the sources are walked. The output must then not overlap them.
    pub walked: bool,
    /// Whether symbolic links inside the sources are followed.
    pub follow_symlinks: bool,
    /// Number of source files.
    pub files: u64,
    /// Files that were skipped when the sources were listed.
    pub skipped: SkippedTypes,
    pub units: u32,
    /// Source bytes at which a unit is full.
    pub unit_bytes: u64,
    /// Number of source files, or pieces of divided files, at which a unit is full.
    pub unit_pieces: u64,
    /// The tokenizer entry of the manifest.
    pub tokenizer: Option<serde_json::Value>,
    pub schema: Schema,
    pub splits: Vec<String>,
    /// The datasets whose items are left out.
    pub exclude: Exclusion,
}

impl JobHeader {
    /// Returns the header of a job with this schema, without files and units.
    pub(super) fn new(schema: Schema) -> Self {
        Self {
            build: BUILD_ID.to_owned(),
            plan: String::new(),
            listing: String::new(),
            options: serde_json::Value::Null,
            output: OutputOptions::default(),
            sources: Vec::new(),
            walked: false,
            follow_symlinks: false,
            files: 0,
            skipped: SkippedTypes::default(),
            units: 0,
            unit_bytes: 0,
            unit_pieces: 0,
            tokenizer: None,
            schema,
            splits: Vec::new(),
            exclude: Exclusion::default(),
        }
    }

    /// Returns the plan of the run, which determines whether finished units can be reused.
    pub(super) fn plan_of<'a>(&'a self, files: &'a FileList) -> Plan<'a> {
        Plan { options: &self.options, units: self.units, files }
    }

    /// Replaces the paths of the sources that have the labels of `sources`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`] if not exactly one source of the plan has a label, if two of `sources` have the same label, or if
    /// a source that was in object storage would be local, or the other way round.
    pub(super) fn replace_sources(&mut self, sources: &[SourceSpec]) -> Result<()> {
        for (i, given) in sources.iter().enumerate() {
            let SourceSpec { label, path } = given;
            if sources[..i].iter().any(|earlier| earlier.label == *label) {
                return Err(Error::usage(format!("two of the given sources have the label {label:?}"))
                    .of_option("source"));
            }
            let mut found = self.sources.iter_mut().filter(|source| source.label == *label);
            let (first, second) = (found.next(), found.next());
            if second.is_some() {
                return Err(Error::usage(format!("several sources of the plan have the label {label:?}"))
                    .of_option("source")
                    .help("plan again with a label for each source, as in LABEL=PATH"));
            }
            let Some(source) = first else {
                let labels = listed(self.sources.iter().map(|source| printable(&source.label).into_owned()));
                return Err(Error::usage(format!("the plan has no source with the label {label:?}"))
                    .of_option("source")
                    .help(format!(
                        "its labels are {labels}; write LABEL=PATH if the name of the path differs"
                    )));
            };
            if ObjectUrl::is_url(path) != ObjectUrl::is_url(&source.path) {
                return Err(Error::usage(format!(
                    "{} cannot replace {}, because only one of them is in object storage",
                    printable_path(path),
                    printable_path(&source.path)
                ))
                .of_option("source")
                .help("plan again with the new source"));
            }
            source.path.clone_from(path);
        }
        Ok(())
    }

    /// Returns what the units have in common.
    pub(super) fn planned_units(&self) -> PlannedUnits {
        PlannedUnits {
            plan: self.plan.clone(),
            count: self.units,
            schema: Arc::new(self.schema.clone()),
            format: self.output.format,
            splits: self.splits.clone(),
            shard_bytes: self.output.shard_bytes,
            shard_records: self.output.shard_records,
        }
    }

    /// Returns whether the source is standard input, which cannot be read again.
    pub(super) fn reads_stdin(&self) -> bool {
        self.options.get("stdin").and_then(serde_json::Value::as_bool).unwrap_or(false)
    }

    /// Returns the sources entry of the manifest, without the content hash.
    pub(super) fn sources(&self, files: &FileList) -> Sources {
        Sources {
            labels: self.sources.iter().map(|s| s.label.clone()).collect(),
            files: files.len() as u64,
            bytes: files.bytes(),
            skipped: self.skipped.count(),
            content: String::new(),
        }
    }
}

/// The part of a stored job that is common to all conversions.
pub(super) struct OpenedJob {
    pub header: JobHeader,
    pub files: FileList,
    pub tokenizer_json: Option<Vec<u8>>,
}

/// Refuses a working directory without a stored job and its plan. The plan is written last: if it is missing, planning
/// was interrupted.
fn check_stored(work: &Path) -> Result<()> {
    match (lstat(&work.join(JOB_NAME))?, lstat(&work.join(PLAN_NAME))?) {
        (Some(_), Some(_)) => Ok(()),
        (None, _) | (_, None) => Err(no_plan(work, "in this directory")),
    }
}

/// Uploads the stored job in the working directory `work` to the output `remote`, for the plan `id`.
pub(super) fn upload(remote: &Remote, work: &Path, id: &str, stop: &Stop) -> Result<()> {
    remote.store_planned(work, id, &[TOKENIZER_NAME, JOB_NAME], stop)
}

/// Uploads the stored job and its plan `id`, and claims the output `remote` for it.
pub(super) fn claim(remote: &Remote, work: &Path, id: &str, stop: &Stop) -> Result<()> {
    let id = PlanId { plan: id.to_owned(), build: BUILD_ID.to_owned() };
    remote.store_plan(work, &id, &[TOKENIZER_NAME, JOB_NAME, PLAN_NAME], stop)
}

/// Downloads the stored job to the working directory `work`. Returns whether there is one.
pub(super) fn fetch(remote: &Remote, work: &Path) -> Result<bool> {
    let Some(id) = plan_of_this_build(remote)? else { return Ok(false) };
    remote.fetch_planned(work, &id, JOB_NAME)?;
    remote.find_planned(work, &id, TOKENIZER_NAME)?;
    Ok(true)
}

/// Returns the identity of the plan in `remote`, if there is one, and refuses a plan of another build.
fn plan_of_this_build(remote: &Remote) -> Result<Option<String>> {
    let Some(PlanId { plan, build }) = remote.plan()? else { return Ok(None) };
    check_build(&build).map_err(|e| e.at_path(remote.path()))?;
    Ok(Some(plan))
}

/// Refuses `plan` if the output `dir` has another one; the error names the first difference.
pub(super) fn check_same_plan(dir: &OutputDir, plan: &Plan<'_>, resumes: bool) -> Result<()> {
    let work = dir.work();
    let Some(remote) = dir.remote() else { return check_stored_plan(plan, &work, resumes) };
    match plan_of_this_build(remote)? {
        Some(id) if id != plan.id() => {
            remote.fetch_planned(&work, &id, PLAN_NAME)?;
            plan.check_same(&work, resumes).map_err(|e| e.at_path(remote.path()))?;
            Err(Error::usage("cannot resume: the run was started with another plan"))
        }
        _ => Ok(()),
    }
}

/// Refuses `plan` if it differs from the one that is stored in the working directory `work`.
pub(super) fn check_stored_plan(plan: &Plan<'_>, work: &Path, resumes: bool) -> Result<()> {
    plan.check_same(work, resumes)?;
    check_stored_build(work)
}

/// Refuses an output without a stored job.
pub(super) fn check_output(output: &OutputDir) -> Result<()> {
    match output.remote() {
        None => check_stored(&output.work()),
        Some(remote) if remote.plan()?.is_none() => Err(no_plan(remote.path(), "at this URL")),
        Some(_) => Ok(()),
    }
}

/// Returns the working directory of `output`, in which there must be a stored job; for object storage, fetches it.
pub(super) fn work_of(output: &OutputDir) -> Result<PathBuf> {
    let work = output.work();
    match output.remote() {
        None => check_stored(&work)?,
        Some(remote) => {
            create_dir(&work)?;
            if !fetch(remote, &work)? {
                return Err(no_plan(remote.path(), "at this URL"));
            }
        }
    }
    Ok(work)
}

/// Returns the error for an output without a plan, at `place`. `which` says where.
fn no_plan(place: &Path, which: &str) -> Error {
    Error::usage(format!("there is no plan {which}"))
        .at_path(place)
        .help("create one with `dsconvert plan images|text … --out DIR`")
}

/// Opens the stored job in the working directory, and reads what is needed to commit its units.
///
/// # Errors
///
/// [`ErrorKind::Usage`] if there is none; [`ErrorKind::Unsupported`] if another version planned it;
/// [`ErrorKind::Corrupt`] if it is damaged.
pub(super) fn open(work: &Path) -> Result<(OpenedJob, JobReader)> {
    let path = work.join(JOB_NAME);
    if lstat(&path)?.is_none() {
        return Err(no_plan(work, "in this directory"));
    }
    check_digest(&path)?;
    let mut reader = JobReader::open(path)?;
    // The build is checked first, because the header of another version may differ.
    let first: serde_json::Value = reader.line()?;
    check_build(first["build"].as_str().unwrap_or_default()).map_err(|e| e.at_path(&reader.path))?;
    let header: JobHeader = serde_json::from_value(first).map_err(|e| reader.damaged().caused_by(e))?;
    let mut files = FileList::default();
    while (files.len() as u64) < header.files {
        let block: String = reader.line()?;
        if !from_hex(&block).is_some_and(|block| files.add_block(block)) {
            return Err(reader.damaged());
        }
    }
    let tokenizer_json = match header.tokenizer.as_ref().map(|info| &info["sha256"]) {
        Some(serde_json::Value::String(sha256)) => Some(stored_tokenizer(work, sha256)?),
        _ => None,
    };
    Ok((OpenedJob { header, files, tokenizer_json }, reader))
}

/// Refuses a plan that another build made: its units and those of this build may have different bytes.
fn check_build(build: &str) -> Result<()> {
    if build == BUILD_ID {
        return Ok(());
    }
    let message = format!("the plan was made by dsconvert {build}, but this is dsconvert {BUILD_ID}");
    Err(Error::new(ErrorKind::Unsupported, message)
        .help("use the build that made the plan, or plan again with `overwrite`"))
}

/// Refuses a working directory whose plan another build made. A damaged job does not stop a run that has planned
/// again.
fn check_stored_build(work: &Path) -> Result<()> {
    let Ok(mut reader) = JobReader::open(work.join(JOB_NAME)) else { return Ok(()) };
    let first: serde_json::Value = reader.line().unwrap_or_default();
    first["build"].as_str().map_or(Ok(()), check_build).map_err(|e| e.at_path(&reader.path))
}

fn stored_tokenizer(work: &Path, sha256: &str) -> Result<Vec<u8>> {
    let path = work.join(TOKENIZER_NAME);
    let json = read_file(&path)?;
    if hex(&Sha256::digest(&json)) != sha256 {
        return Err(Error::corrupt("this is not the tokenizer that was stored with the plan")
            .at_path(&path)
            .help("plan again with `overwrite`"));
    }
    Ok(json)
}

/// Verifies the digest in the last line.
fn check_digest(path: &Path) -> Result<()> {
    let fail = |e| Error::io("read", path, e);
    let mut lines = BufReader::new(File::open(path).map_err(fail)?);
    let (mut hash, mut line, mut next) = (Sha256::new(), Vec::new(), Vec::new());
    lines.read_until(b'\n', &mut line).map_err(fail)?;
    loop {
        next.clear();
        if lines.read_until(b'\n', &mut next).map_err(fail)? == 0 {
            break;
        }
        hash.update(&line);
        std::mem::swap(&mut line, &mut next);
    }
    if line == digest_line(hash).as_bytes() {
        return Ok(());
    }
    Err(damaged(path))
}

fn digest_line(hash: Sha256) -> String {
    format!("\"{}\"\n", hex(&hash.finalize()))
}

fn damaged(path: &Path) -> Error {
    Error::corrupt("the stored plan is damaged").at_path(path).help("plan again with `overwrite`")
}

/// Writer of the lines of a stored job.
pub struct JobWriter {
    path: PathBuf,
    file: NewFile,
    hash: Sha256,
}

impl JobWriter {
    /// Creates the file at `path`.
    pub(super) fn create(path: PathBuf) -> Result<Self> {
        Ok(Self { file: NewFile::create_shared(&path)?, path, hash: Sha256::new() })
    }

    /// Writes `value` as one line.
    pub(super) fn line(&mut self, value: &impl Serialize) -> Result<()> {
        let mut json = serde_json::to_vec(value).map_err(|e| Error::not_serialized("the plan", e))?;
        json.push(b'\n');
        self.hash.update(&json);
        self.file.write_all(&json).map_err(|e| Error::io("write", &self.path, e))
    }

    /// Writes a list of any length, one line each.
    pub(super) fn list(&mut self, values: &[impl Serialize]) -> Result<()> {
        self.line(&values.len())?;
        values.iter().try_for_each(|value| self.line(value))
    }

    pub(super) fn finish(mut self) -> Result<()> {
        let digest = digest_line(self.hash);
        self.file.write_all(digest.as_bytes()).map_err(|e| Error::io("write", &self.path, e))?;
        self.file.commit()?;
        Ok(())
    }
}

/// Reader of the lines of a stored job.
pub struct JobReader {
    path: PathBuf,
    lines: Lines<BufReader<File>>,
}

impl JobReader {
    fn open(path: PathBuf) -> Result<Self> {
        let file = File::open(&path).map_err(|e| Error::io("open", &path, e))?;
        Ok(Self { lines: BufReader::new(file).lines(), path })
    }

    /// Reads the next line.
    pub(super) fn line<T: DeserializeOwned>(&mut self) -> Result<T> {
        let line = self.lines.next().ok_or_else(|| self.damaged())?;
        let line = line.map_err(|e| Error::io("read", &self.path, e))?;
        serde_json::from_str(&line).map_err(|e| self.damaged().caused_by(e))
    }

    /// Reads a list.
    pub(super) fn list<T: DeserializeOwned>(&mut self) -> Result<Vec<T>> {
        let count: usize = self.line()?;
        (0..count).map(|_| self.line()).collect()
    }

    fn damaged(&self) -> Error {
        damaged(&self.path)
    }
}
