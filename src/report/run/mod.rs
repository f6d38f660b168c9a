//! Run reports: time, memory, retries and machine of a conversion.
//!
//! A run report is operational data. It is never written into the dataset, whose bytes do not depend on the machine.

mod files;
mod host;
mod part;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

pub use self::files::run_reports;
pub use self::host::{Host, peak_memory_bytes};
pub use self::part::PartUnits;
use crate::error::{Error, Result};
use crate::manifest::{Counts, Split};
use crate::options::RunOptions;
use crate::pipeline::{Activity, Outcome, Phase, Progress};
use crate::source::retries;
use crate::storage::objects::repeated_requests;

/// Version of the run report format.
pub const RUN_REPORT_VERSION: u32 = 1;

/// Time, memory and counts of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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

impl Default for RunReport {
    fn default() -> Self {
        Self {
            run_report: RUN_REPORT_VERSION,
            dsconvert: String::new(),
            command: String::new(),
            started_at: 0.0,
            kind: String::new(),
            fingerprint: String::new(),
            was_complete: false,
            part: None,
            seconds: Phases::default(),
            thread_seconds: ActivityTimes::default(),
            rates: Rates::default(),
            counts: Counts::default(),
            reject_codes: BTreeMap::new(),
            records: 0,
            items: 0,
            bytes_in: 0,
            bytes_out: 0,
            text_bytes: None,
            tokens: None,
            peak_memory_bytes: None,
            retries: 0,
            request_retries: 0,
            threads: 0,
            memory_bytes: 0,
            host: Host::default(),
            options: serde_json::Value::Null,
        }
    }
}

/// Resource limits of a run.
#[derive(Debug, Clone, Copy)]
struct RunLimits {
    threads: usize,
    memory_bytes: u64,
}

impl RunReport {
    /// Creates the report of a finished conversion. `plan` and `total` are the times of planning and of the whole run.
    pub fn new(
        done: &Outcome,
        run: &RunOptions,
        progress: &Progress,
        plan: Duration,
        total: Duration,
    ) -> Self {
        let limits = RunLimits { threads: run.threads, memory_bytes: run.memory_bytes };
        let command = done.manifest.kind().name();
        let mut report = Self::measured(command, limits, &run.out, progress, plan, total);
        report.add_dataset(done);
        // The rates of a resumed run must not count the units that an earlier run finished.
        let converted = progress.converted_units();
        let seconds = total.as_secs_f64().max(1e-9);
        let per_second = |amount: u64| amount as f64 / seconds;
        report.rates = Rates {
            items: per_second(converted.counts.found),
            bytes_in: per_second(converted.bytes_in),
            bytes_out: per_second(converted.bytes_out),
            tokens: report.tokens.map(|_| per_second(converted.length)),
        };
        report
    }

    /// Creates a report of the measurements of a run that took `total`, without its dataset.
    fn measured(
        command: &str,
        limits: RunLimits,
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
            threads: limits.threads,
            memory_bytes: limits.memory_bytes,
            host: Host::of(out),
            ..Self::default()
        }
    }

    /// Adds the values of the committed dataset.
    fn add_dataset(&mut self, done: &Outcome) {
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
