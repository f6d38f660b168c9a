//! What is printed at the end of a run, and instead of one.

use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use indicatif::{HumanBytes, HumanCount};

use crate::manifest::Manifest;
use crate::pipeline::{Estimate, PlanSummary, Prediction, Report, SplitBy, Warning};
use crate::printable::{printable, printable_path};
use crate::report::RunReport;
use crate::source::warning::listed;

/// Class names that are printed before the rest is left out.
const SHOWN_CLASSES: usize = 8;

/// Lines of text.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, line: impl Display) {
        self.0.push_str(&line.to_string());
        self.0.push('\n');
    }
}

/// The plan of a dry run.
pub(super) fn plan(plan: &PlanSummary) -> String {
    let mut lines = Lines::default();
    let items =
        plan.items.map_or_else(|| "as many as the files hold".to_owned(), |n| HumanCount(n).to_string());
    lines.add(format!("kind     {}", plan.kind));
    lines.add(format!("files    {} ({})", HumanCount(plan.files), HumanBytes(plan.bytes)));
    lines.add(format!("items    {items}"));
    lines.add(format!("bytes    {}", plan.bytes));
    lines.add(format!("units    {}", plan.units));
    lines.add(format!("splits   {}", splits(plan)));
    if let Some(classes) = &plan.classes {
        lines.add(format!("classes  {}", class_names(classes)));
    }
    if let Some(metadata) = metadata(plan) {
        lines.add(format!("metadata {metadata}"));
    }
    if plan.skipped > 0 {
        lines.add(format!("skipped  {} files that are not read here", HumanCount(plan.skipped)));
    }
    lines.0
}

/// Names of the splits, with what decides them.
fn splits(plan: &PlanSummary) -> String {
    let counts = plan
        .split_files
        .iter()
        .flatten()
        .map(|n| format!(" ({} file{})", HumanCount(*n), if *n == 1 { "" } else { "s" }));
    let counts = counts.chain(std::iter::repeat(String::new()));
    let names: Vec<String> =
        plan.splits.iter().zip(counts).map(|(name, count)| format!("{name}{count}")).collect();
    let by = match plan.split_by {
        None => ", by hash of the key".to_owned(),
        Some(SplitBy::Nothing) => String::new(),
        Some(by) => format!(", {by}"),
    };
    format!("{}{by}", names.join(", "))
}

/// Number and names of classes.
fn class_names(classes: &[String]) -> String {
    let shown: Vec<_> = classes.iter().take(SHOWN_CLASSES).map(|name| printable(name)).collect();
    let more = if classes.len() > SHOWN_CLASSES { ", …" } else { "" };
    match classes.len() {
        0 => "none".to_owned(),
        n => format!("{} ({}{more})", HumanCount(n as u64), shown.join(", ")),
    }
}

/// The metadata files that are used, with the fields they add.
fn metadata(plan: &PlanSummary) -> Option<String> {
    if plan.metadata.is_empty() {
        return None;
    }
    let files = listed(plan.metadata.iter().map(|path| printable_path(path)));
    let fields = listed(plan.fields.iter().map(|name| printable(name).into_owned()));
    let fields = if fields.is_empty() { "no fields".to_owned() } else { format!("fields {fields}") };
    Some(format!("{files} ({fields})"))
}

/// What the plan decided and may not be meant, with the flags that change it.
pub(super) fn warnings(warnings: &[Warning]) -> Vec<String> {
    let text = |warning: &Warning| {
        let mut text = printable(&warning.to_string()).into_owned();
        for remedy in warning.remedies() {
            let flag = remedy.option.replace('_', "-");
            text.push_str(&format!("\n  --{flag} {} {}", remedy.value, remedy.effect));
        }
        text
    };
    warnings.iter().map(text).collect()
}

/// What a sample says about the run.
pub(super) fn prediction(prediction: &Prediction, threads: usize, dedup: bool) -> String {
    let mut lines = Lines::default();
    let count = |e: Estimate| spread(e, |x| HumanCount(x.round() as u64).to_string());
    let Prediction { sampled, found, records, rejected, filtered, bytes, shards, seconds, .. } = prediction;
    lines.add(format!("\nFrom a sample of {} items, with 95% intervals:", HumanCount(*sampled)));
    lines.add(format!("found    {}", count(*found)));
    lines.add(format!("records  {}", count(*records)));
    lines.add(format!("rejected {}", count(*rejected)));
    for (code, seen) in &prediction.reject_codes {
        lines.add(format!("         {} of the sample {code}", HumanCount(*seen)));
    }
    lines.add(format!("filtered {}", count(*filtered)));
    lines.add(format!("size     {}", spread(*bytes, |x| HumanBytes(x as u64).to_string())));
    lines.add(format!("shards   {}", count(*shards)));
    lines.add(format!(
        "time     {} on {threads} threads, and waiting for the disk",
        spread(*seconds, |x| if x < 100.0 { format!("{x:.2} s") } else { duration(x) })
    ));
    if dedup {
        lines.add("duplicates are not looked for in a sample: there may be fewer records");
    }
    lines.0
}

/// `12 (10 to 14)`, or only the value when it is certain.
fn spread(e: Estimate, text: impl Fn(f64) -> String) -> String {
    let (value, low, high) = (text(e.value), text(e.low), text(e.high));
    if low == high { value } else { format!("{value} ({low} to {high})") }
}

fn duration(seconds: f64) -> String {
    let minutes = (seconds / 60.0).round() as u64;
    if minutes < 100 { format!("{minutes} min") } else { format!("{}:{:02} h", minutes / 60, minutes % 60) }
}

/// What a run did.
pub(super) fn report(report: &Report, plan: &PlanSummary, out: &Path, elapsed: Duration) -> String {
    let mut lines = Lines::default();
    let manifest = &report.manifest;
    let out = printable_path(out);
    if report.was_complete {
        lines.add(format!("{out} is complete already: {}", outcomes(manifest)));
        return lines.0;
    }
    let seconds = elapsed.as_secs_f64().max(1e-3);
    lines.add(outcomes(manifest));
    lines.add(format!("  splits: {}", splits(plan)));
    if let Some(classes) = &plan.classes {
        lines.add(format!("  classes: {}", class_names(classes)));
    }
    if let Some(metadata) = metadata(plan) {
        lines.add(format!("  metadata: {metadata}"));
    }
    for (name, split) in &manifest.splits {
        lines.add(format!(
            "  {name}: {} records in {} shards, {}",
            HumanCount(split.records),
            HumanCount(split.shards),
            HumanBytes(split.bytes)
        ));
        if split.records > 0 {
            let l = &split.length;
            lines.add(format!(
                "    {}: {} to {}, mean {:.1}, median {}, 99% up to {}",
                l.unit.name(),
                HumanCount(l.min),
                HumanCount(l.max),
                l.mean,
                HumanCount(l.p50),
                HumanCount(l.p99)
            ));
        }
    }
    if let Some(count) = manifest.notes.get("after_damage") {
        lines.add(format!(
            "  {} records come from compressed data that turned out to be damaged: they may be wrong",
            HumanCount(*count)
        ));
    }
    for (code, count) in &manifest.reject_codes {
        lines.add(format!("  rejected: {} {code} (see {out}/rejects.jsonl)", HumanCount(*count)));
    }
    lines.add(format!(
        "{out} in {:.1} s: {:.0} items/s, {}/s of source",
        seconds,
        manifest.counts.found as f64 / seconds,
        HumanBytes((manifest.sources.bytes as f64 / seconds) as u64)
    ));
    lines.0
}

/// A plan that was stored, and how to go on.
pub(super) fn stored(units: u32, plan: &PlanSummary, out: &Path) -> String {
    let mut lines = Lines::default();
    let out = printable_path(out);
    lines.add(format!(
        "planned {} units of {} files ({}) in {out}; splits: {}",
        HumanCount(units.into()),
        HumanCount(plan.files),
        HumanBytes(plan.bytes),
        splits(plan)
    ));
    lines.add(format!("convert part i of N, in any number of processes: dsconvert run {out} --part i/N"));
    lines.add(format!("then commit:                                      dsconvert merge {out}"));
    lines.0
}

/// What a merge committed.
pub(super) fn merged(report: &Report, out: &Path) -> String {
    let mut lines = Lines::default();
    let (manifest, out) = (&report.manifest, printable_path(out));
    if report.was_complete {
        lines.add(format!("{out} is complete already: {}", outcomes(manifest)));
        return lines.0;
    }
    lines.add(outcomes(manifest));
    for (name, split) in &manifest.splits {
        lines.add(format!(
            "  {name}: {} records in {} shards, {}",
            HumanCount(split.records),
            HumanCount(split.shards),
            HumanBytes(split.bytes)
        ));
    }
    for (code, count) in &manifest.reject_codes {
        lines.add(format!("  rejected: {} {code} (see {out}/rejects.jsonl)", HumanCount(*count)));
    }
    lines.0
}

/// Where the time of a run went, in one line; nothing when there was nothing to do.
pub(super) fn times(took: &RunReport) -> String {
    let stages = took.thread_seconds.of_workers();
    let all: f64 = stages.iter().map(|stage| stage.1).sum();
    if took.was_complete || all <= 0.0 {
        return String::new();
    }
    let shares: Vec<String> =
        stages.iter().map(|(name, time)| format!("{:.0}% {name}", time / all * 100.0)).collect();
    let phases = took.seconds;
    let memory = took
        .peak_memory_bytes
        .map_or_else(String::new, |peak| format!("; {} at most in memory", HumanBytes(peak)));
    let threads = if took.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", took.threads) };
    let retries = match took.retries {
        0 => String::new(),
        1 => "; 1 read was repeated".to_owned(),
        n => format!("; {} reads were repeated", HumanCount(n)),
    };
    format!(
        "  {threads}: {}; plan {:.1} s, commit {:.1} s{memory}{retries}\n",
        shares.join(", "),
        phases.plan,
        phases.commit
    )
}

fn outcomes(manifest: &Manifest) -> String {
    let counts = &manifest.counts;
    let mut text =
        format!("{} of {} items converted", HumanCount(counts.converted), HumanCount(counts.found));
    for (count, name) in
        [(counts.rejected, "rejected"), (counts.filtered, "filtered"), (counts.duplicates, "duplicates")]
    {
        if count > 0 {
            text.push_str(&format!(", {} {name}", HumanCount(count)));
        }
    }
    if manifest.sources.skipped > 0 {
        text.push_str(&format!("; {} other files skipped", HumanCount(manifest.sources.skipped)));
    }
    text
}
