//! Texts about plans: of a dry run, of a stored plan, and warnings.

use std::path::Path;

use indicatif::{HumanBytes, HumanCount};

use super::{Lines, SHOWN_CLASSES, no_labels, sources, splits};
use crate::cli::flags::with_flags;
use crate::numbers::plural;
use crate::pipeline::{PlanSummary, RunOutcome, Warning};
use crate::printable::{printable, printable_path, shell_word};
use crate::source::names::doubtful_classes::converted_classes_of_one_split;
use crate::transform::image::{BucketCount, BucketCounts};

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
    if let Some(text) = no_labels(plan) {
        lines.add(text);
    }
    for (name, text) in sources(plan, None) {
        lines.add(format!("{name:<8} {text}"));
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

/// Formats the number of images of each bucket.
pub(in crate::cli) fn buckets(counts: &BucketCounts) -> String {
    let mut lines = Lines::default();
    let BucketCounts { buckets, smaller, filtered, unreadable, left_out, .. } = counts;
    let all: u64 = buckets.iter().map(|bucket| bucket.images).sum();
    let used = buckets.iter().filter(|bucket| bucket.images > 0);
    lines.add(format!(
        "buckets  {} of {} have images, {} by their headers",
        used.clone().count(),
        buckets.len() + left_out.len(),
        plural(all, "image")
    ));
    for BucketCount { width, height, images } in used {
        let share = 100.0 * *images as f64 / all.max(1) as f64;
        lines.add(format!("  {:<11} {} ({share:.1}%)", format!("{width}x{height}"), HumanCount(*images)));
    }
    if let Some(text) = buckets_left_out(counts) {
        lines.add(format!("  {text}"));
    }
    let others = [
        (*smaller, "smaller than their bucket, and left out"),
        (*filtered, "left out by other options"),
        (*unreadable, "without a readable header"),
    ];
    for (count, what) in others.into_iter().filter(|(count, _)| *count > 0) {
        let verb = if count == 1 { "image is" } else { "images are" };
        lines.add(format!("  {} {verb} {what}", HumanCount(count)));
    }
    lines.0
}

/// Formats the buckets that have too few images, and what became of these; `None` if there are none.
pub(super) fn buckets_left_out(counts: &BucketCounts) -> Option<String> {
    let BucketCounts { left_out, moved, .. } = counts;
    let number = left_out.len() as u64;
    let images: u64 = left_out.iter().map(|bucket| bucket.images).sum();
    let text = || {
        format!(
            "{} with too few images left out ({}); {} moved to others",
            plural(number, "bucket"),
            plural(images, "image"),
            HumanCount(*moved)
        )
    };
    (number > 0).then(text)
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
        let mut text = printable(&with_flags(&warning.message)).into_owned();
        for remedy in &warning.remedies {
            let flag = remedy.option.replace('_', "-");
            text.push_str(&format!("\n  --{flag} {} {}", remedy.value, remedy.effect));
        }
        text
    };
    warnings.iter().map(text).collect()
}

/// Formats warnings about a committed dataset, except for those of a kind that is among the `planned` ones.
pub(in crate::cli) fn late_warnings(outcome: &RunOutcome, planned: &[Warning]) -> Vec<String> {
    let found = converted_classes_of_one_split(&outcome.manifest).filter(|_| outcome.totals.is_some());
    let found = found.filter(|late| planned.iter().all(|warning| warning.code != late.code));
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
    if let Some(text) = no_labels(plan) {
        lines.add(text);
    }
    let out = shell_word(out);
    lines.add(format!("convert part i of N, in any number of processes: dsconvert run {out} --part i/N"));
    lines.add(format!("then commit:                                      dsconvert merge {out}"));
    lines.0
}
