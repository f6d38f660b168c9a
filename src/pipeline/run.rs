//! A run: opens the output directory, converts the units, and commits the dataset.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::job::{Conversion, Job};
use super::job_file::{self, JobHeader};
use super::memory::Shares;
use super::plan::{Plan, differing_option};
use super::progress::{Phase, Progress};
use super::run_units::{RunContext, Units};
use super::stored_job;
use super::{skipped_advice, source_checks};
use crate::error::{Error, ErrorKind, Result};
use crate::foreign::Foreign;
use crate::manifest::{CARD_NAME, MANIFEST_NAME, Manifest, PlanInfo, Sources};
use crate::numbers::{listed, plural};
use crate::options::{Existing, MaxRejects, ResumeCheck, RunOptions, SourceSpec};
use crate::printable::{printable_path, shell_word};
use crate::recipe::EXCLUDE;
use crate::source::list::file_list::FileList;
use crate::source::list::skipped::SkippedTypes;
use crate::storage::{ObjectUrl, lstat};
use crate::testing::panic_point;
use crate::writer::DatasetWriter;
use crate::writer::commit::{Commit, CommitFailure, Committed, ManifestParts};
use crate::writer::layout::{PLAN_NAME, WORK_NAME};
use crate::writer::output::{self, CHOOSE_OR_REPLACE, OutputDir, OutputState, adapt_help, may_be_overtaken};
use crate::writer::repair::{Repair, damaged_files, refuse_damaged};
use crate::writer::stop::{Continuation, Stop, restart};
use crate::writer::units::{CheckLevel, Totals};
use crate::writer::workers::Workers;

impl<C: Conversion> Job<C> {
    /// Runs the conversion and commits the dataset.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Usage` if the run is refused before anything is written. After `ErrorKind::NotCommitted`,
    /// `ErrorKind::Io` and `ErrorKind::Interrupted`, finished units are kept for `--resume`.
    pub fn run(&self, run: &RunOptions, progress: &Progress, stop: &Stop) -> Result<RunOutcome> {
        let is_stdin = self.header.reads_stdin();
        if is_stdin && matches!(run.existing, Existing::Resume(_)) {
            let out = shell_word(&run.out);
            return Err(Error::usage("standard input cannot be read again, so there is nothing to resume")
                .help(format!(
                    "if everything was read, but not committed because of too many rejects, commit it with \
                     `dsconvert merge {out} --max-rejects N`; otherwise, start again with `overwrite`, or write it to a \
                     file first"
                )));
        }
        stop.start_writing(match is_stdin {
            true => Continuation::MergeOnly(run.out.clone()),
            false => Continuation::Resume,
        });
        convert_and_commit(self, run, progress, stop).map_err(|error| adapt_help(error, &run.out))
    }

    /// Stores the plan in the output directory, with everything that other processes need to run its units and commit
    /// them: see [`run_units`](super::run_units) and [`merge`](super::merge). Does the preparation that is shared by all
    /// units. Returns the number of units.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`](crate::error::ErrorKind) if the directory holds another plan or a dataset, or if the
    /// sources can be read only once.
    pub fn store(&self, run: &RunOptions, progress: &Progress, stop: &Stop) -> Result<u32> {
        if self.header.reads_stdin() {
            return Err(Error::usage("standard input can only be read once, by one process")
                .help("write it to a file first, or convert it with `dsconvert text`"));
        }
        stop.start_writing(Continuation::Resume);
        write_plan(self, run, progress, stop).map_err(|error| adapt_help(error, &run.out))
    }

    /// Checks that there may be something to convert.
    ///
    /// # Errors
    ///
    /// The error with which the run would end.
    pub fn check_items(&self) -> Result<()> {
        if self.summary.items != Some(0) {
            return Ok(());
        }
        let mut skipped = self.header.skipped.clone();
        self.files.iter().for_each(|file| skipped.add(&file.origin));
        let error = Error::new(ErrorKind::NotCommitted, nothing_found(&self.header, &self.files, &skipped));
        let advice = skipped_advice::advice(&skipped, self.header.schema.kind);
        Err(error.help(advice.unwrap_or_else(|| CHECK_SOURCES.to_owned())))
    }

    /// Checks that a run can use its output directory and, unless the output is in object storage, resume what is in it.
    ///
    /// # Errors
    ///
    /// The error with which the run would be refused.
    pub fn check_start(&self, run: &RunOptions) -> Result<()> {
        let (header, files, work) = (&self.header, &self.files, run.out.join(WORK_NAME));
        check_job_output(header, files, run)?;
        let Existing::Resume(check) = run.existing else { return Ok(()) };
        if ObjectUrl::is_url(&run.out) {
            return Ok(());
        }
        if lstat(&run.out.join(MANIFEST_NAME))?.is_some() {
            let repairs = check == ResumeCheck::Repair;
            return check_same(&Manifest::read(&run.out)?, &header.plan_of(files), &header.sources(files))
                .map_err(|differs| differs.refused(&run.out, repairs));
        }
        match lstat(&work.join(PLAN_NAME))? {
            Some(_) => job_file::check_stored_plan(&header.plan_of(files), &work, true),
            None => Ok(()),
        }
    }
}

/// Result of a run.
#[derive(Debug)]
pub struct RunOutcome {
    /// The committed manifest.
    pub manifest: Manifest,
    /// Whether the dataset was already committed; the run then did nothing, except repairs.
    pub was_complete: bool,
    /// Number of damaged files of a committed dataset that were regenerated.
    pub repaired: u64,
    /// Sums over the units, if this run committed them.
    pub totals: Option<Totals>,
}

impl RunOutcome {
    /// Returns the outcome for a dataset that was already committed, without repairs.
    pub(super) fn complete(manifest: Manifest) -> Self {
        Self { manifest, was_complete: true, repaired: 0, totals: None }
    }
}

/// Refuses an output directory that cannot be used, before the sources are listed.
pub fn check_output(run: &RunOptions, sources: &[SourceSpec]) -> Result<()> {
    let sources: Vec<&Path> = sources.iter().map(|source| source.path.as_path()).collect();
    output::check(&run.out, run.scratch.as_deref(), run.existing, &sources)
}

/// Refuses files that options name for the run to read, and that the run would remove from its output directory. `inputs`
/// are options and paths.
pub fn check_inputs(run: &RunOptions, inputs: &[(&'static str, PathBuf)]) -> Result<()> {
    output::refuse_inputs(&run.out, run.existing, inputs)
}

/// Refuses a dataset whose items are to be left out, if it is the output itself.
pub fn check_excluded(run: &RunOptions, datasets: &[PathBuf]) -> Result<()> {
    output::refuse_excluded(&run.out, datasets).map_err(|e| e.of_option(EXCLUDE))
}

/// Refuses an output directory that cannot be used for a planned job, before anything is written.
fn check_job_output(header: &JobHeader, files: &FileList, run: &RunOptions) -> Result<()> {
    check_output(run, if header.walked { &header.sources } else { &[] })?;
    source_checks::refuse_files(&run.out, header, files)
}

/// The opened output directory of a job.
struct OpenedOutput {
    dir: OutputDir,
    /// The job header, with the identity of the plan.
    header: JobHeader,
    /// State of the directory before. If it was empty, the plan is stored in it now.
    state: OutputState,
}

/// Opens the output directory of `job`, and stores the plan in it if it has none.
///
/// # Errors
///
/// [`ErrorKind::Usage`](crate::error::ErrorKind) if the directory cannot be used or holds another plan.
fn open_output<C: Conversion>(
    job: &Job<C>,
    run: &RunOptions,
    progress: &Progress,
    stop: &Stop,
) -> Result<OpenedOutput> {
    let (mut header, files) = (job.header.clone(), &job.files);
    check_job_output(&header, files, run)?;
    progress.planned(header.files, files.bytes());
    let (dir, state) = OutputDir::open(&run.out, run.scratch.as_deref(), run.existing)?;
    let plan = header.plan_of(files);
    let id = match &state {
        OutputState::Committed(_) => plan.id(),
        OutputState::Planned => {
            job_file::check_same_plan(&dir, &plan, matches!(run.existing, Existing::Resume(_)))?;
            plan.id()
        }
        OutputState::Empty => {
            // The plan is committed last, because it marks the run as started.
            let (id, written) = plan.write(&dir.work())?;
            stored_job::store(job, &id, &dir.work())?;
            written.commit()?;
            if let Some(remote) = dir.remote() {
                job_file::claim(remote, &dir.work(), &id, stop)?;
            }
            id
        }
    };
    header.plan = id;
    Ok(OpenedOutput { dir, header, state })
}

fn write_plan<C: Conversion>(
    job: &Job<C>,
    run: &RunOptions,
    progress: &Progress,
    stop: &Stop,
) -> Result<u32> {
    let workers = Workers::start(run.threads)?;
    let OpenedOutput { dir, header, state } = open_output(job, run, progress, stop)?;
    match state {
        OutputState::Committed(_) => {
            return Err(Error::usage("a committed dataset already exists")
                .at_path(dir.shown())
                .help(CHOOSE_OR_REPLACE));
        }
        // The paths of the sources may differ from those of the first planning.
        OutputState::Planned => {
            stored_job::store(job, &header.plan, &dir.work())?;
            if let Some(remote) = dir.remote() {
                job_file::upload(remote, &dir.work(), &header.plan, stop)?;
            }
        }
        OutputState::Empty => {}
    }
    let writer = DatasetWriter::new(dir, header.planned_units());
    let context = RunContext { workers: &workers, progress, stop };
    Units { writer: &writer, context }.prepare(job, &Shares::of(run))?;
    Ok(header.units)
}

/// Converts all units and commits the dataset.
fn convert_and_commit<C: Conversion>(
    job: &Job<C>,
    run: &RunOptions,
    progress: &Progress,
    stop: &Stop,
) -> Result<RunOutcome> {
    let workers = Workers::start(run.threads)?;
    let context = RunContext { workers: &workers, progress, stop };
    let OpenedOutput { dir, header, state } = open_output(job, run, progress, stop)?;
    let files = &job.files;
    let writer = DatasetWriter::new(dir, header.planned_units());
    let dir = writer.dir();
    if let OutputState::Committed(manifest) = state {
        return already_committed(&writer, &header, job, run, context, *manifest);
    }
    dir.remove_leftovers()?;
    let units = Units { writer: &writer, context };
    let all = (0..header.units).collect();
    let converted =
        units.unfinished(all, CheckLevel::of(run.existing)).and_then(|todo| units.convert(job, todo, run));
    if let Err(error) = converted {
        let committed =
            may_be_overtaken(&error).then(|| committed_by_another(dir, &header, files, progress)).flatten();
        return committed.ok_or(error);
    }
    panic_point("commit");
    let card = dir.path().join(CARD_NAME);
    let has_card = run.existing == Existing::Overwrite && dir.remote().is_none() && lstat(&card)?.is_some();
    let outcome =
        commit(writer, &header, files, job.conversion.tokenizer_json(), run.max_rejects, progress, stop)?;
    if has_card {
        progress.note(format!(
            "{} describes the earlier dataset, and `datasets.load_dataset` reads class names from it: remove it, then \
             write a new one with `dsconvert inspect {} --card`",
            printable_path(&card),
            shell_word(&run.out)
        ));
    }
    Ok(outcome)
}

/// Commits the finished units of a plan.
pub(super) fn commit(
    writer: DatasetWriter,
    header: &JobHeader,
    files: &FileList,
    tokenizer_json: Option<&[u8]>,
    max_rejects: MaxRejects,
    progress: &Progress,
    stop: &Stop,
) -> Result<RunOutcome> {
    let started = Instant::now();
    let plan = header.plan_of(files);
    let fingerprint = |content: &str| plan.fingerprint(content);
    let nothing_found = |skipped: &BTreeMap<String, u64>| {
        let skipped = SkippedTypes::from(skipped);
        let found = nothing_found(header, files, &skipped);
        match header.sources.iter().find_map(|source| Foreign::within(&source.path)) {
            Some(foreign) => {
                let path = printable_path(&foreign.path);
                (
                    format!("{found}; {path} is {}", foreign.format.name),
                    Some(foreign.format.remedy.to_owned()),
                )
            }
            None => (found, skipped_advice::advice(&skipped, header.schema.kind)),
        }
    };
    let parts = ManifestParts {
        options: &header.options,
        tokenizer: header.tokenizer.as_ref(),
        tokenizer_json,
        sources: header.sources(files),
        skipped: header.skipped.counts(),
        plan: Some(PlanInfo {
            listing: plan.listing(),
            units: header.units,
            unit_bytes: header.unit_bytes,
            unit_pieces: header.unit_pieces,
        }),
        fingerprint: &fingerprint,
        nothing_found: &nothing_found,
    };
    let committed = Commit { writer: &writer, parts: &parts, max_rejects, stop }.run();
    let dir = writer.dir();
    progress.end_phase(Phase::Commit, started);
    match committed {
        Ok(Committed { manifest, totals }) => {
            note_leftovers(progress, dir.remove_work());
            Ok(RunOutcome { manifest, was_complete: false, repaired: 0, totals: Some(totals) })
        }
        Err(CommitFailure { error, worth_resuming: false }) => Err(match stop.continuation() {
            // A merge removes nothing that other processes made.
            Continuation::SameMerge => {
                let restart = restart(dir.shown());
                let help = error
                    .remedy()
                    .map_or_else(|| restart.to_owned(), |help| format!("{help}, and {restart}"));
                error.help(help)
            }
            _ => output::combine_errors(error, writer.abandon()),
        }),
        Err(failure) => committed_by_another(dir, header, files, progress)
            .ok_or_else(|| stop.continuation().add_to(failure.error.never_usage())),
    }
}

/// Returns the outcome if another process has meanwhile committed the same dataset in object storage. That process has
/// removed objects that this one needed to finish.
fn committed_by_another(
    dir: &OutputDir,
    header: &JobHeader,
    files: &FileList,
    progress: &Progress,
) -> Option<RunOutcome> {
    let manifest = dir.remote()?.manifest().ok().flatten()?;
    check_same(&manifest, &header.plan_of(files), &header.sources(files)).ok()?;
    note_leftovers(progress, dir.remove_work());
    Some(RunOutcome::complete(manifest))
}

/// Adds a note if the working directory could not be removed. The dataset is committed in any case.
fn note_leftovers(progress: &Progress, removed: Result<()>) {
    if let Err(error) = removed {
        progress.note(format!(
            "the dataset is committed, but its working directory could not be removed: {error}"
        ));
    }
}

/// Checks a dataset that is already committed with the same sources and options, and repairs it if requested.
fn already_committed<C: Conversion>(
    writer: &DatasetWriter,
    header: &JobHeader,
    job: &Job<C>,
    options: &RunOptions,
    context: RunContext<'_>,
    manifest: Manifest,
) -> Result<RunOutcome> {
    let RunContext { workers, progress, stop } = context;
    let dir = writer.dir();
    let repairs = options.existing == Existing::Resume(ResumeCheck::Repair);
    let same = check_same(&manifest, &header.plan_of(&job.files), &header.sources(&job.files))
        .map_err(|differs| differs.refused(dir.shown(), repairs));
    let repaired = same.and_then(|()| match repairs {
        true => {
            let write = |all: Vec<u32>| {
                let units = Units { writer, context };
                let todo = units.unfinished(all, CheckLevel::Hashes)?;
                units.convert(job, todo, options)
            };
            let made_from = |unit| listed(job.files_of_unit(unit).into_iter().map(|file| file.origin));
            let note = |note| progress.note(note);
            let (tokenizer_json, write, made_from) = (job.conversion.tokenizer_json(), &write, &made_from);
            Repair { writer, tokenizer_json, write, made_from, note: &note, workers, stop }.run(&manifest)
        }
        false => {
            let check = CheckLevel::of(options.existing);
            let damaged = damaged_files(dir, &manifest, check, workers, stop)?;
            refuse_damaged(damaged, dir).map(|()| 0)
        }
    });
    // The working directory is useless after the commit, unless an interrupted repair can continue with it.
    let can_continue = |e: &Error| !matches!(e.kind(), ErrorKind::Corrupt | ErrorKind::Usage);
    if !(repairs && repaired.as_ref().is_err_and(can_continue)) {
        note_leftovers(progress, dir.remove_work());
    }
    repaired.map(|repaired| RunOutcome { manifest, was_complete: true, repaired, totals: None })
}

/// Help if nothing was found.
const CHECK_SOURCES: &str = "check the sources and their file types";

/// Returns a message such as `nothing was found to convert in photos; 3 files were skipped: 2 .pdf, 1 .md`.
fn nothing_found(header: &JobHeader, files: &FileList, skipped: &SkippedTypes) -> String {
    let instead = match skipped.count() {
        0 if !files.is_empty() => {
            let items = header.schema.layout().items;
            format!("; there are no {items} in {}", plural(files.len() as u64, "file"))
        }
        0 if header.options["files_from"] == true => "; the list of files names none".to_owned(),
        0 if header.options.get("metadata").is_some() => "; the table names no files".to_owned(),
        0 => "; there are no files".to_owned(),
        1 => format!("; 1 file was skipped: {skipped}"),
        count => format!("; {count} files were skipped: {skipped}"),
    };
    let paths = listed(header.sources.iter().map(|source| printable_path(&source.path)));
    format!("nothing was found to convert in {paths}{instead}")
}

/// How the run differs from the one that committed a dataset.
struct RunDifference {
    what: String,
    /// How to make them equal.
    remedy: String,
}

impl RunDifference {
    /// Returns the error of a run, or with `repairs` of a repair, of the dataset in `dir`.
    fn refused(self, dir: &Path, repairs: bool) -> Error {
        let Self { what, remedy } = self;
        match repairs {
            true => Error::usage(format!("the dataset cannot be repaired, because {what}"))
                .at_path(dir)
                .help(remedy),
            false => Error::usage(format!("a committed dataset already exists, but {what}"))
                .at_path(dir)
                .help(format!("{remedy}; or {CHOOSE_OR_REPLACE}")),
        }
    }
}

/// Checks that a committed dataset has the options, sources and version of this run.
fn check_same(manifest: &Manifest, plan: &Plan<'_>, sources: &Sources) -> Result<(), RunDifference> {
    if let Some(what) = differing_option(&manifest.options, plan.options) {
        return Err(RunDifference { what, remedy: "give the options that it was made with".to_owned() });
    }
    let (old, new) = (&manifest.sources.labels, &sources.labels);
    if old != new {
        let (old, new) = (old.join(", "), new.join(", "));
        return Err(RunDifference {
            what: format!("its sources have the labels {old}, and now {new}"),
            remedy: "give the same sources in the same order, with their labels as in LABEL=PATH".to_owned(),
        });
    }
    if plan.fingerprint(&manifest.sources.content) != manifest.fingerprint {
        return Err(RunDifference {
            what: "its sources or its version of dsconvert differ".to_owned(),
            remedy: "give the sources that it was made from, unchanged, to the same version".to_owned(),
        });
    }
    Ok(())
}
