//! Reports of the parts of a conversion, and of the command that commits them.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Rates, RunLimits, RunReport};
use crate::options::RunOptions;
use crate::pipeline::{Outcome, PartOutcome, Progress, Selection};
use crate::schema::LengthUnit;

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
        let limits = RunLimits { threads: run.threads, memory_bytes: run.memory_bytes };
        let done = progress.converted_units();
        let tokens = (part.kind.length_unit() == LengthUnit::Tokens).then_some(done.length);
        let seconds = total.as_secs_f64().max(1e-9);
        let per_second = |amount: u64| amount as f64 / seconds;
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
            rates: Rates {
                items: per_second(done.counts.found),
                bytes_in: per_second(done.bytes_in),
                bytes_out: per_second(done.bytes_out),
                tokens: tokens.map(per_second),
            },
            counts: done.counts,
            reject_codes: done.reject_codes,
            records: done.records,
            bytes_in: done.bytes_in,
            bytes_out: done.bytes_out,
            text_bytes: tokens.map(|_| done.text_bytes),
            tokens,
            options: part.options.clone(),
            ..Self::measured("run", limits, &run.out, progress, Duration::ZERO, total)
        }
    }

    /// Creates the report of `dsconvert merge`, which converts nothing: its rates are 0.
    pub fn of_merge(
        done: &Outcome,
        out: &Path,
        threads: usize,
        progress: &Progress,
        total: Duration,
    ) -> Self {
        let limits = RunLimits { threads, memory_bytes: 0 };
        let mut report = Self::measured("merge", limits, out, progress, Duration::ZERO, total);
        report.add_dataset(done);
        report
    }
}
