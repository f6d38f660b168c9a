//! Texts about plans: of a dry run, of a stored plan, and warnings.

use std::path::Path;

use indicatif::{HumanBytes, HumanCount};

use super::{Lines, SHOWN_CLASSES, fields, images, left_out, metadata, sidecars, splits};
use crate::cli::flags::with_flags;
use crate::numbers::plural;
use crate::pipeline::{PlanSummary, RunOutcome, Warning};
use crate::printable::{printable, printable_path, shell_word};
use crate::source::labels::converted_classes_of_one_split;

/// Formats the plan of a dry run.
pub(in crate::cli) fn plan(plan: &PlanSummary) -> String {
    let mut lines = Lines::default();
    let items = plan
        .items
        .map_or_else(|| "unknown until the files are read".to_owned(), |n| HumanCount(n).to_string());
    lines.add(format!("kind     {}", plan.kind));
    lines.add(format!("files    {} ({})", HumanCount(plan.files), HumanBytes(plan.bytes)));
    lines.add(format!("items    {items}"));
    lines.add(format!("bytes    {}", plan.bytes));
    lines.add(format!("units    {}", plan.units));
    lines.add(format!("splits   {}", splits(plan, plan.split_files.as_deref())));
    if let Some(classes) = &plan.classes {
        lines.add(format!("classes  {}", class_names(classes)));
    }
    if let Some(metadata) = metadata(plan) {
        lines.add(format!("metadata {metadata}"));
    }
    for sidecar in sidecars(plan) {
        lines.add(format!("sidecars {sidecar}"));
    }
    if let Some(images) = images(plan) {
        lines.add(format!("images   {images}"));
    }
    if let Some(fields) = fields(plan) {
        lines.add(format!("fields   {fields}"));
    }
    if let Some(left_out) = left_out(plan) {
        lines.add(format!("left out {left_out}"));
    }
    for excluded in &plan.exclude {
        let (path, records) = (printable_path(&excluded.path), plural(excluded.records, "record"));
        let compared = if excluded.by_content { "contents" } else { "keys" };
        lines.add(format!("exclude  {path} ({records}, by their {compared})"));
    }
    if plan.skipped.count() > 0 {
        lines.add(format!("skipped  {}: {}", plural(plan.skipped.count(), "file"), plan.skipped));
    }
    lines.0
}

/// Formats the number and the names of classes.
fn class_names(classes: &[String]) -> String {
    let shown: Vec<_> = classes.iter().take(SHOWN_CLASSES).map(|name| printable(name)).collect();
    let more = if classes.len() > SHOWN_CLASSES { ", …" } else { "" };
    match classes.len() {
        0 => "none".to_owned(),
        n => format!("{} ({}{more})", HumanCount(n as u64), shown.join(", ")),
    }
}

/// Formats the warnings of a plan about decisions that may be unintended, with the flags that change them.
pub(in crate::cli) fn warnings(warnings: &[Warning]) -> Vec<String> {
    let text = |warning: &Warning| {
        let mut text = printable(&with_flags(&warning.to_string())).into_owned();
        for remedy in warning.remedies() {
            let flag = remedy.option.replace('_', "-");
            text.push_str(&format!("\n  --{flag} {} {}", remedy.value, remedy.effect));
        }
        text
    };
    warnings.iter().map(text).collect()
}

/// Formats warnings about a committed dataset, except for those of a kind that is among the `planned` ones.
pub(in crate::cli) fn late_warnings(outcome: &RunOutcome, planned: &[Warning]) -> Vec<String> {
    let is_known = planned.iter().any(|warning| matches!(warning, Warning::ClassesOfOneSplit { .. }));
    let found = converted_classes_of_one_split(&outcome.manifest);
    let found = found.filter(|_| !is_known && outcome.totals.is_some());
    warnings(found.as_slice())
}

/// Formats a stored plan, and how to continue.
pub(in crate::cli) fn stored(units: u32, plan: &PlanSummary, out: &Path) -> String {
    let mut lines = Lines::default();
    lines.add(format!(
        "planned {} of {} ({}) in {}; splits: {}",
        plural(units.into(), "unit"),
        plural(plan.files, "file"),
        HumanBytes(plan.bytes),
        printable_path(out),
        splits(plan, plan.split_files.as_deref())
    ));
    let out = shell_word(out);
    lines.add(format!("convert part i of N, in any number of processes: dsconvert run {out} --part i/N"));
    lines.add(format!("then commit:                                      dsconvert merge {out}"));
    lines.0
}
