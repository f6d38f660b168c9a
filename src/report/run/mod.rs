//! Run reports: time, memory, retries and machine of a conversion.
//!
//! A run report is operational data. It is never written into the dataset, whose bytes do not depend on the machine.

mod host;

use std::collections::{BTreeMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

pub use self::host::{Host, peak_memory_bytes};
use crate::error::{Error, Result};
use crate::manifest::{Counts, Manifest, Split};
use crate::options::RunOptions;
use crate::pipeline::{Activity, ConvertedUnits, PartOutcome, Phase, Progress, RunOutcome, Selection};
use crate::schema::LengthUnit;
use crate::source::io::retry::retries;
use crate::storage::objects::repeated_requests;
use crate::storage::{Access, Blob, list_dir, stat};

/// Version of the run report format.
pub const RUN_REPORT_VERSION: u32 = 1;

/// Time, memory and counts of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunReport {
    /// Format version: [`RUN_REPORT_VERSION`].
    pub run_report: u32,
    /// Version of dsconvert.
    pub dsconvert: String,
    /// The subcommand that ran: `images`, `text`, `run` or `merge`.
    pub command: String,
    /// Start time in seconds since 1970, by the clock of its machine.
    pub started_at: f64,
    /// `images` or `text`.
    pub kind: String,
    /// Fingerprint of the dataset. Empty for a part, which does not have all of it.
    pub fingerprint: String,
    /// Whether the dataset was committed before this run, which then had nothing to do.
    pub was_complete: bool,
    /// The units of a part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<PartUnits>,
    /// Wall-clock time of the phases of the run, in seconds.
    pub seconds: Phases,
    /// Total time of all threads while units were converted, in seconds.
    pub thread_seconds: ActivityTimes,
    /// Items, source bytes and output bytes per second of the whole run, of the units that this run converted.
    pub rates: Rates,
    /// Outcomes of all items of the dataset. For a part, this and the following counts cover the units it converted.
    pub counts: Counts,
    /// Number of rejects by reason code.
    pub reject_codes: BTreeMap<String, u64>,
    /// Records of the dataset.
    pub records: u64,
    /// Items that this run converted, plus those of units finished before.
    pub items: u64,
    /// Bytes of the source files.
    pub bytes_in: u64,
    /// Bytes of the shards.
    pub bytes_out: u64,
    /// Bytes of the texts that became records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_bytes: Option<u64>,
    /// Tokens of all records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Peak memory of the process, if the system reports it.
    pub peak_memory_bytes: Option<u64>,
    /// Operations on source files that were repeated after a failure.
    pub retries: u64,
    /// Requests to object storage that were sent again after a failure.
    pub request_retries: u64,
    /// Worker threads.
    pub threads: usize,
    /// Limit of the memory in flight; 0 if there is none.
    pub memory_bytes: u64,
    /// The machine.
    pub host: Host,
    /// The semantic options of the dataset.
    pub options: serde_json::Value,
}

/// Wall-clock seconds of the phases of a run.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Phases {
    /// Listing the sources and dividing them into units, without loading a tokenizer.
    pub plan: f64,
    /// Checking finished units and finding duplicates.
    pub prepare: f64,
    /// Converting units.
    pub convert: f64,
    /// Writing indexes and the manifest.
    pub commit: f64,
    /// From the start of the plan to the end.
    pub total: f64,
}

/// Seconds that threads spent in each activity of converting units.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ActivityTimes {
    /// Reading source files and cutting them into items.
    pub read: f64,
    /// Decoding, resizing and encoding images; tokenizing documents.
    pub transform: f64,
    /// Encoding and writing shards.
    pub write: f64,
    /// Making shards durable, on a separate thread.
    pub sync: f64,
    /// Workers waiting for work.
    pub wait: f64,
}

impl ActivityTimes {
    /// Returns the names and times of the workers' activities.
    pub fn of_workers(&self) -> [(&'static str, f64); 4] {
        [
            ("reading", self.read),
            ("transforming", self.transform),
            ("writing", self.write),
            ("waiting", self.wait),
        ]
    }
}

/// Rates per second over the whole run.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Rates {
    /// Items.
    pub items: f64,
    /// Bytes of source files.
    pub bytes_in: f64,
    /// Bytes of shards.
    pub bytes_out: f64,
    /// Tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<f64>,
}

impl Rates {
    /// Returns the rates of a run that took `total` and converted these units. `tokens`: whether lengths are
    /// numbers of tokens.
    fn of(converted: &ConvertedUnits, tokens: bool, total: Duration) -> Self {
        let seconds = total.as_secs_f64().max(1e-9);
        let per_second = |amount: u64| amount as f64 / seconds;
        Self {
            items: per_second(converted.counts.found),
            bytes_in: per_second(converted.bytes_in),
            bytes_out: per_second(converted.bytes_out),
            tokens: tokens.then(|| per_second(converted.length)),
        }
    }
}

impl RunReport {
    /// Creates the report of a finished conversion. `plan` and `total` are the times of planning and of the whole run.
    pub fn new(
        done: &RunOutcome,
        run: &RunOptions,
        progress: &Progress,
        plan: Duration,
        total: Duration,
    ) -> Self {
        let command = done.manifest.kind().name();
        let mut report = Self {
            memory_bytes: run.memory_bytes,
            ..Self::measured(command, run.threads, &run.out, progress, plan, total)
        };
        report.add_dataset(done);
        // The rates of a resumed run must not count the units that an earlier run finished.
        report.rates = Rates::of(&progress.converted_units(), report.tokens.is_some(), total);
        report
    }

    /// Creates a report of the measurements of a run that took `total`, without its dataset.
    fn measured(
        command: &str,
        threads: usize,
        out: &Path,
        progress: &Progress,
        plan: Duration,
        total: Duration,
    ) -> Self {
        let phase = |phase| progress.phase_time(phase).as_secs_f64();
        let activity = |activity| progress.activity_time(activity).as_secs_f64();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self {
            run_report: RUN_REPORT_VERSION,
            dsconvert: env!("CARGO_PKG_VERSION").to_owned(),
            command: command.to_owned(),
            started_at: now.saturating_sub(total).as_secs_f64(),
            seconds: Phases {
                plan: plan.as_secs_f64(),
                prepare: phase(Phase::Prepare),
                convert: phase(Phase::Convert),
                commit: phase(Phase::Commit),
                total: total.as_secs_f64(),
            },
            thread_seconds: ActivityTimes {
                read: activity(Activity::Read),
                transform: activity(Activity::Transform),
                write: activity(Activity::Write),
                sync: activity(Activity::Sync),
                wait: activity(Activity::Wait),
            },
            items: progress.snapshot().items,
            peak_memory_bytes: peak_memory_bytes(),
            retries: retries(),
            request_retries: repeated_requests(),
            threads,
            host: Host::of(out),
            ..Self::default()
        }
    }

    /// Adds the values of the committed dataset.
    fn add_dataset(&mut self, done: &RunOutcome) {
        let manifest = &done.manifest;
        let sum = |of: fn(&Split) -> u64| {
            manifest.splits.values().fold(0u64, |sum, split| sum.saturating_add(of(split)))
        };
        let is_text = manifest.schema.holds_token_ids();
        self.kind = manifest.kind().name().to_owned();
        self.fingerprint = manifest.fingerprint.clone();
        self.was_complete = done.was_complete;
        self.counts = manifest.counts;
        self.reject_codes = manifest.reject_codes.clone();
        self.records = sum(|split| split.records);
        self.bytes_in = manifest.sources.bytes;
        self.bytes_out = sum(|split| split.bytes);
        self.text_bytes = done.totals.as_ref().filter(|_| is_text).map(|totals| totals.text_bytes);
        self.tokens = is_text.then(|| sum(|split| split.length.total));
        self.options = manifest.options.clone();
    }

    /// Returns the report as JSON.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Internal`](crate::error::ErrorKind) if it cannot be serialized.
    pub fn to_json(&self) -> Result<Vec<u8>> {
        let mut json =
            serde_json::to_vec_pretty(self).map_err(|e| Error::not_serialized("the run report", e))?;
        json.push(b'\n');
        Ok(json)
    }
}

/// Returns the bytes of source text per token of the dataset, or `None` if its tokens are not those of the whole texts:
/// documents were truncated, or split into pieces that overlap.
pub fn bytes_per_token(manifest: &Manifest, text_bytes: u64, tokens: u64) -> Option<f64> {
    let notes = |name: &str| manifest.notes.get(name).copied().unwrap_or(0);
    let overflow = manifest.options.get("overflow").and_then(|value| value.as_str());
    let has_overlap = notes("split") > 0 && overflow != Some("split");
    let is_whole = notes("truncated") == 0 && !has_overlap;
    // Token ids that exist already have no text.
    let has_text = manifest.options.pointer("/ids/ids_field").is_none();
    (is_whole && has_text && tokens > 0).then(|| text_bytes as f64 / tokens as f64)
}

/// Units of a plan that a part has to convert.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PartUnits {
    /// Identity of the plan; missing if the dataset was committed before.
    pub plan: Option<String>,
    /// Digest of the source files of the plan, as in the manifest; missing in reports of older versions.
    pub listing: Option<String>,
    /// Selected units: a part as `2/8`, units as `3,7-9`, or `all`.
    pub selection: String,
    /// Number of selected units.
    pub units: u32,
    /// Number of units that this process converted. The others were finished before.
    pub converted: u32,
    /// Number of units in the whole plan.
    pub planned: u32,
}

impl RunReport {
    /// Creates the report of `dsconvert run`: what one process converted.
    pub fn of_part(
        part: &PartOutcome,
        selection: &Selection,
        run: &RunOptions,
        progress: &Progress,
        total: Duration,
    ) -> Self {
        let done = progress.converted_units();
        let tokens = (part.kind.length_unit() == LengthUnit::Tokens).then_some(done.length);
        Self {
            kind: part.kind.name().to_owned(),
            was_complete: part.was_committed,
            part: Some(PartUnits {
                plan: part.plan.clone(),
                listing: part.listing.clone(),
                selection: selection.to_string(),
                units: part.units,
                converted: part.converted,
                planned: part.planned,
            }),
            rates: Rates::of(&done, tokens.is_some(), total),
            counts: done.counts,
            reject_codes: done.reject_codes,
            records: done.records,
            bytes_in: done.bytes_in,
            bytes_out: done.bytes_out,
            text_bytes: tokens.map(|_| done.text_bytes),
            tokens,
            memory_bytes: run.memory_bytes,
            options: part.options.clone(),
            ..Self::measured("run", run.threads, &run.out, progress, Duration::ZERO, total)
        }
    }

    /// Creates the report of `dsconvert merge`, which converts nothing: its rates are 0.
    pub fn of_merge(
        done: &RunOutcome,
        out: &Path,
        threads: usize,
        progress: &Progress,
        total: Duration,
    ) -> Self {
        let mut report = Self::measured("merge", threads, out, progress, Duration::ZERO, total);
        report.add_dataset(done);
        report
    }
}

/// Maximum size of a run report.
const MAX_REPORT_BYTES: u64 = 16 << 20;
/// Maximum number of run reports.
const MAX_REPORTS: usize = 1 << 17;

/// Reads the run reports in `paths`: files, and folders whose `*.json` files are reports, in the order of their names.
///
/// # Errors
///
/// [`ErrorKind::Usage`](crate::error::ErrorKind) if a file is not a run report of a known version, a folder holds none,
/// or one file is named twice.
pub fn run_reports(paths: &[PathBuf]) -> Result<Vec<RunReport>> {
    let mut files = Vec::new();
    for path in paths {
        if stat(path)?.is_some_and(|meta| meta.is_dir()) {
            let before = files.len();
            let found = list_dir(path)?.into_iter().map(|item| path.join(item.name));
            files.extend(found.filter(|file| file.extension().is_some_and(|extension| extension == "json")));
            if files.len() == before {
                return Err(Error::usage("the folder holds no run reports").at_path(path).help(HELP));
            }
        } else {
            files.push(path.clone());
        }
        if files.len() > MAX_REPORTS {
            return Err(Error::usage(format!("there are more than {MAX_REPORTS} run reports")).at_path(path));
        }
    }
    let mut identities = HashSet::new();
    for file in &files {
        // A path has several spellings, and a file several paths.
        if let Some(meta) = stat(file)?
            && !identities.insert((meta.dev(), meta.ino()))
        {
            return Err(Error::usage("the run report is named twice").at_path(file));
        }
    }
    files.iter().map(|file| RunReport::read(file)).collect()
}

const HELP: &str = "name a file that a command wrote with `report`, or a folder of such files";

impl RunReport {
    /// Reads the report in `path`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`](crate::error::ErrorKind) if the file is not a run report of a known version.
    pub fn read(path: &Path) -> Result<Self> {
        let not_a_report = || Error::usage("the file is not a run report").at_path(path);
        let blob = Blob::open(path, Access::Read, None)?;
        if blob.len() > MAX_REPORT_BYTES {
            return Err(not_a_report().help(HELP));
        }
        let bytes = blob.read(0, blob.len())?;
        let value: serde_json::Value =
            serde_json::from_slice(&bytes).map_err(|e| not_a_report().caused_by(e).help(HELP))?;
        match value.get("run_report").and_then(serde_json::Value::as_u64) {
            Some(version) if version == u64::from(RUN_REPORT_VERSION) => {}
            Some(version) => {
                let what =
                    format!("the run report has version {version}; this build reads {RUN_REPORT_VERSION}");
                return Err(Error::usage(what).at_path(path));
            }
            None => return Err(not_a_report().help(HELP)),
        }
        serde_json::from_value(value).map_err(|e| not_a_report().caused_by(e).help(HELP))
    }
}
