//! What a conversion took: time, memory, retries, on which machine.
//!
//! A run report is operational. It is written beside the dataset and never into it, so that the same sources and options
//! give the same bytes on any machine.

mod host;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::host::{Host, peak_memory_bytes};
use crate::error::{Error, Result};
use crate::manifest::Counts;
use crate::options::RunOptions;
use crate::pipeline::{Phase, Progress, Report, Stage};
use crate::source::retries;
use crate::storage::{Access, Blob};

/// Version of the run report.
pub const RUN_REPORT_VERSION: u32 = 1;

/// Largest run report that is read.
const MAX_REPORT_BYTES: u64 = 16 << 20;

/// What a run took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunReport {
    /// [`RUN_REPORT_VERSION`].
    pub run_report: u32,
    /// Version of the dsconvert that ran.
    pub dsconvert: String,
    /// `images` or `text`.
    pub kind: String,
    /// Fingerprint of the dataset.
    pub fingerprint: String,
    /// The dataset was committed before this run, which had nothing to do.
    pub was_complete: bool,
    /// Wall-clock time of the parts of the run, in seconds.
    pub seconds: Phases,
    /// Time that all threads together spent while units were converted, in seconds.
    pub thread_seconds: StageTimes,
    /// Items, source bytes and output bytes per second of the whole run; source bytes are those that this run read.
    pub rates: Rates,
    /// Outcomes of all items of the dataset.
    pub counts: Counts,
    /// Number of rejects by reason code.
    pub reject_codes: BTreeMap<String, u64>,
    /// Records of the dataset.
    pub records: u64,
    /// Items that this run converted, and those of units that were finished before.
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
    /// Most memory that the process had at one time, where the system tells it.
    pub peak_memory_bytes: Option<u64>,
    /// Operations on source files that were repeated because they failed.
    pub retries: u64,
    /// Worker threads.
    pub threads: usize,
    /// Limit of the memory in flight.
    pub memory_bytes: u64,
    /// The machine.
    pub host: Host,
    /// The semantic options of the dataset.
    pub options: serde_json::Value,
}

/// Wall-clock seconds of the parts of a run.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Phases {
    /// Listing the sources and dividing them into units; loading a tokenizer is not part of it.
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

/// Seconds that threads spent in each stage of converting units.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StageTimes {
    /// Reading source files and cutting them into items.
    pub read: f64,
    /// Decoding, resizing and encoding images; tokenizing documents.
    pub transform: f64,
    /// Encoding and writing shards.
    pub write: f64,
    /// Making shards durable, on a thread of its own.
    pub sync: f64,
    /// Workers without work.
    pub wait: f64,
}

impl StageTimes {
    /// Names and times of what workers did.
    pub fn of_workers(&self) -> [(&'static str, f64); 4] {
        [
            ("reading", self.read),
            ("transforming", self.transform),
            ("writing", self.write),
            ("waiting", self.wait),
        ]
    }
}

/// Per second of the whole run.
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
            kind: String::new(),
            fingerprint: String::new(),
            was_complete: false,
            seconds: Phases::default(),
            thread_seconds: StageTimes::default(),
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
            threads: 0,
            memory_bytes: 0,
            host: Host::default(),
            options: serde_json::Value::Null,
        }
    }
}

impl RunReport {
    /// The report of a run that has ended: what it did, how long its plan and all of it took.
    pub fn new(
        done: &Report,
        run: &RunOptions,
        progress: &Progress,
        plan: Duration,
        total: Duration,
    ) -> Self {
        let manifest = &done.manifest;
        let splits = || manifest.splits.values();
        let tokens: Option<u64> = (manifest.kind() == crate::schema::Kind::Text)
            .then(|| splits().fold(0u64, |sum, s| sum.saturating_add(s.length.total)));
        let bytes_out = splits().fold(0u64, |sum, s| sum.saturating_add(s.bytes));
        let phase = |phase| progress.phase_time(phase).as_secs_f64();
        let stage = |stage| progress.stage_time(stage).as_secs_f64();
        let seconds = total.as_secs_f64().max(1e-9);
        let per_second = |amount: u64| if done.was_complete { 0.0 } else { amount as f64 / seconds };
        Self {
            run_report: RUN_REPORT_VERSION,
            dsconvert: env!("CARGO_PKG_VERSION").to_owned(),
            kind: manifest.kind().name().to_owned(),
            fingerprint: manifest.fingerprint.clone(),
            was_complete: done.was_complete,
            seconds: Phases {
                plan: plan.as_secs_f64(),
                prepare: phase(Phase::Prepare),
                convert: phase(Phase::Convert),
                commit: phase(Phase::Commit),
                total: total.as_secs_f64(),
            },
            thread_seconds: StageTimes {
                read: stage(Stage::Read),
                transform: stage(Stage::Transform),
                write: stage(Stage::Write),
                sync: stage(Stage::Sync),
                wait: stage(Stage::Wait),
            },
            rates: Rates {
                items: per_second(manifest.counts.found),
                bytes_in: per_second(manifest.sources.bytes),
                bytes_out: per_second(bytes_out),
                tokens: tokens.map(per_second),
            },
            counts: manifest.counts,
            reject_codes: manifest.reject_codes.clone(),
            records: splits().fold(0u64, |sum, s| sum.saturating_add(s.records)),
            items: progress.snapshot().items,
            bytes_in: manifest.sources.bytes,
            bytes_out,
            text_bytes: done.totals.as_ref().map(|totals| totals.text_bytes).filter(|_| tokens.is_some()),
            tokens,
            peak_memory_bytes: peak_memory_bytes(),
            retries: retries(),
            threads: run.threads,
            memory_bytes: run.memory_bytes,
            host: Host::of(&run.out),
            options: manifest.options.clone(),
        }
    }

    /// Reads the report in `path`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`](crate::error::ErrorKind) when the file is no run report of a known version.
    pub fn read(path: &Path) -> Result<Self> {
        let no_report = || Error::usage("the file is not a run report").at_path(path);
        let help = "name the file that `dsconvert images` or `dsconvert text` wrote with --report";
        let blob = Blob::open(path, Access::Read, None)?;
        if blob.len() > MAX_REPORT_BYTES {
            return Err(no_report().help(help));
        }
        let bytes = blob.read(0, blob.len())?;
        let value: serde_json::Value =
            serde_json::from_slice(&bytes).map_err(|e| no_report().caused_by(e).help(help))?;
        match value.get("run_report").and_then(serde_json::Value::as_u64) {
            Some(version) if version == u64::from(RUN_REPORT_VERSION) => {}
            Some(version) => {
                let what =
                    format!("the run report has version {version}; this build reads {RUN_REPORT_VERSION}");
                return Err(Error::usage(what).at_path(path));
            }
            None => return Err(no_report().help(help)),
        }
        serde_json::from_value(value).map_err(|e| no_report().caused_by(e).help(help))
    }

    /// The report as JSON.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Internal`](crate::error::ErrorKind) when it is none.
    pub fn to_json(&self) -> Result<Vec<u8>> {
        let mut json = serde_json::to_vec_pretty(self)
            .map_err(|e| Error::internal("the run report cannot be written as JSON").caused_by(e))?;
        json.push(b'\n');
        Ok(json)
    }
}
