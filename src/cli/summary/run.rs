//! Summary of a finished run.

use std::path::Path;
use std::time::Duration;

use indicatif::{HumanBytes, HumanCount};

use super::chats::add_chats;
use super::{Lines, class_counts, no_labels, sources, splits};
use crate::manifest::{Manifest, Split};
use crate::numbers::{mean, plural, rate};
use crate::pipeline::{PlanSummary, RunOutcome};
use crate::printable::{printable_path, shell_word};
use crate::recipe::EXCLUDE;
use crate::report::RunReport;
use crate::source::list::skipped::SkippedTypes;

/// Formats the summary of a run.
pub(in crate::cli) fn report(
    outcome: &RunOutcome,
    plan: &PlanSummary,
    out: &Path,
    elapsed: Duration,
) -> String {
    let manifest = &outcome.manifest;
    let Some(totals) = &outcome.totals else { return was_complete(outcome, out) };
    let mut lines = Lines::default();
    lines.add(outcomes(manifest, &SkippedTypes::from(&totals.skipped)));
    add_classes(&mut lines, manifest);
    if let Some(text) = no_labels(plan) {
        lines.add(format!("  {text}"));
    }
    lines.add(format!("  splits: {}", splits(plan, split_files(plan, manifest).as_deref())));
    let buckets = plan.buckets.as_ref().and_then(super::plan::buckets_left_out);
    for (name, text) in sources(plan, buckets) {
        lines.add(format!("  {name}: {text}"));
    }
    add_records(&mut lines, manifest, out);
    let seconds = elapsed.as_secs_f64().max(1e-3);
    lines.add(format!(
        "{} in {:.1} s: {} items/s, {}/s of source",
        printable_path(out),
        seconds,
        rate(manifest.counts.found as f64 / seconds),
        HumanBytes((manifest.sources.bytes as f64 / seconds) as u64)
    ));
    lines.0
}

/// Returns the number of files per split. The plan also counts files that turn out to be no items.
fn split_files(plan: &PlanSummary, manifest: &Manifest) -> Option<Vec<u64>> {
    let planned = plan.split_files.as_ref()?;
    let found = |name: &String| manifest.splits.get(name).map_or(0, |split| split.counts.found);
    Some(match plan.items {
        Some(_) => plan.splits.iter().map(found).collect(),
        // Files have several items.
        None => planned.clone(),
    })
}

/// Formats the summary of a merge.
pub(in crate::cli) fn merged(outcome: &RunOutcome, report: &RunReport, out: &Path) -> String {
    let manifest = &outcome.manifest;
    let Some(totals) = &outcome.totals else { return was_complete(outcome, out) };
    let mut lines = Lines::default();
    lines.add(outcomes(manifest, &SkippedTypes::from(&totals.skipped)));
    add_classes(&mut lines, manifest);
    add_records(&mut lines, manifest, out);
    lines.0 + &times(report) + &next_step(out)
}

/// Adds the records of each split, and what became of everything else.
fn add_records(lines: &mut Lines, manifest: &Manifest, out: &Path) {
    add_splits(lines, manifest);
    add_excluded(lines, manifest);
    add_left_out(lines, manifest);
    add_boxes(lines, manifest);
    add_chats(lines, manifest);
    add_damage(lines, manifest, out);
    add_progressive(lines, manifest);
    add_rejects(lines, manifest, out);
}

/// Formats the next step for a committed dataset.
pub(in crate::cli) fn next_step(out: &Path) -> String {
    format!("to check every byte: dsconvert inspect {} --verify\n", shell_word(out))
}

fn was_complete(outcome: &RunOutcome, out: &Path) -> String {
    let (out, outcomes) = (printable_path(out), outcomes(&outcome.manifest, &SkippedTypes::default()));
    match outcome.repaired {
        0 => format!("{out} is already complete: {outcomes}\n"),
        count => {
            format!("{out} is repaired: {} regenerated, byte for byte; {outcomes}\n", plural(count, "file"))
        }
    }
}

/// Formats counts as `29 of 30 items converted, 1 rejected; 1 file skipped: 1 .txt`.
fn outcomes(manifest: &Manifest, skipped: &SkippedTypes) -> String {
    let counts = &manifest.counts;
    let mut text = format!("{} of {} converted", HumanCount(counts.converted), plural(counts.found, "item"));
    for (count, name) in [(counts.rejected, "rejected"), (counts.filtered, "filtered")] {
        if count > 0 {
            text.push_str(&format!(", {} {name}", HumanCount(count)));
        }
    }
    if counts.duplicates > 0 {
        text.push_str(&format!(", {}", plural(counts.duplicates, "duplicate")));
    }
    if manifest.sources.skipped > 0 {
        text.push_str(&format!("; {} skipped", plural(manifest.sources.skipped, "file")));
    }
    if skipped.count() > 0 {
        text.push_str(&format!(": {skipped}"));
    }
    text
}

fn add_classes(lines: &mut Lines, manifest: &Manifest) {
    let names = &manifest.schema.class_names;
    if manifest.schema.label_field().is_none() {
        return;
    }
    let mut counts = vec![0; names.len()];
    for split in manifest.splits.values() {
        let of_split = split.class_counts.iter().flatten();
        counts.iter_mut().zip(of_split).for_each(|(sum, records): (&mut u64, _)| *sum += records);
    }
    if !names.is_empty() {
        lines.add(format!("  {}", class_counts(names, |label| counts[label])));
    }
    let all: u64 = manifest.splits.values().map(|split| split.records).sum();
    let unlabeled = all.saturating_sub(counts.iter().sum());
    if unlabeled > 0 {
        lines.add(format!("  {} without a label", plural(unlabeled, "record")));
    }
}

fn add_splits(lines: &mut Lines, manifest: &Manifest) {
    for (name, split) in &manifest.splits {
        let Split { records, shards, bytes, length, .. } = split;
        lines.add(format!(
            "  {name}: {} in {}, {}",
            plural(*records, "record"),
            plural(*shards, "shard"),
            HumanBytes(*bytes)
        ));
        if *records > 0 {
            lines.add(format!(
                "    {}: {} to {}, mean {}, median {}, 99% up to {}",
                length.unit.name(),
                HumanCount(length.min),
                HumanCount(length.max),
                mean(length.mean),
                HumanCount(length.p50),
                HumanCount(length.p99)
            ));
        }
    }
}

/// Adds what damaged files cost, beyond the number of rejects.
fn add_damage(lines: &mut Lines, manifest: &Manifest, out: &Path) {
    if let Some(count) = manifest.notes.get("damaged_kept") {
        lines.add(format!("  {} converted as far as possible (--lenient)", plural(*count, "damaged image")));
    }
    if let Some(count) = manifest.notes.get("tiff_pages_left_out") {
        let noun = plural(*count, "further page");
        lines.add(format!(
            "  {noun} of TIFF files left out: the first page that is not a thumbnail is the image"
        ));
    }
    if let Some(count) = manifest.notes.get("tiff_channels_left_out") {
        let noun = plural(*count, "channel");
        lines.add(format!("  warning: {noun} of TIFF files left out: only gray, colors and alpha are read"));
    }
    if let Some(count) = manifest.notes.get("blank_sidecars") {
        lines.add(format!("  {} beside images with nothing but white space", plural(*count, "file")));
    }
    if let Some(count) = manifest.notes.get("after_damage") {
        lines.add(format!(
            "  {} from compressed data that turned out to be damaged: the content may be wrong",
            plural(*count, "record")
        ));
    }
    if let Some(bytes) = manifest.notes.get("unclosed_quote_bytes") {
        lines.add(format!(
            "  warning: {} lost after a quote that is never closed (see `truncated` in {}/rejects.jsonl)",
            HumanBytes(*bytes),
            printable_path(out)
        ));
    }
    if let Some(count) = manifest.notes.get("control_characters") {
        lines.add(format!(
            "  warning: {} mostly of NUL or control characters: use --encoding utf-16le if the text is UTF-16 without a \
             byte order mark",
            if *count == 1 { "1 document consists".to_owned() } else { format!("{} consist", plural(*count, "document")) }
        ));
    }
}

/// Adds what happened to boxes, beyond those that are stored as they are.
fn add_boxes(lines: &mut Lines, manifest: &Manifest) {
    for (name, what, rest) in [
        ("boxes_outside", "box", "outside of the crop or the image dropped"),
        ("boxes_invalid", "box", "without an area dropped"),
        ("boxes_of_polygons", "polygon", "stored as the box around it"),
        ("keypoints_left_out", "box", "with keypoints, which are not stored"),
        ("masks_left_out", "box", "with a mask, which is not stored"),
        ("confidences_left_out", "box", "with a confidence, which is not stored"),
        ("rotations_left_out", "box", "with an angle, stored as if they were not turned"),
        ("parts_left_out", "box", "of parts, which are not stored"),
        ("ignore_flags_left_out", "box", "marked to be ignored, which is not stored"),
        (
            "boxes_assumed_upright",
            "image",
            "with an orientation: boxes are taken as those of the upright image",
        ),
        ("images_without_boxes", "image", "without boxes"),
        ("images_without_annotations", "image", "without annotations: boxes are null"),
    ] {
        if let Some(count) = manifest.notes.get(name) {
            let counted = match (what, count) {
                ("box", 2..) => format!("{} boxes", HumanCount(*count)),
                _ => plural(*count, what),
            };
            lines.add(format!("  {counted} {rest}"));
        }
    }
}

/// Adds the number of items that excluded datasets have.
fn add_excluded(lines: &mut Lines, manifest: &Manifest) {
    let datasets = manifest.options[EXCLUDE].as_array().map_or(0, Vec::len) as u64;
    let excluded = manifest.notes.get("excluded").copied().unwrap_or_default();
    let those = if datasets == 1 { "the excluded dataset" } else { "the excluded datasets" };
    match excluded {
        _ if datasets == 0 => {}
        0 => lines.add(format!(
            "  warning: no item is in {those}: the label of a source is part of each key (LABEL=PATH sets it)"
        )),
        n => lines.add(format!("  {} in {those}", plural(n, "item"))),
    }
}

/// Adds the images and members of samples and rows that no field holds.
fn add_left_out(lines: &mut Lines, manifest: &Manifest) {
    let text = |name: &str, what: &str, option: &str| {
        let count = manifest.notes.get(name)?;
        let verb = if *count == 1 { "is" } else { "are" };
        Some(format!(
            "  warning: {} {verb} left out: {option} names those that become fields",
            plural(*count, what)
        ))
    };
    let found = [
        text("members_left_out", "sample member", "--keep-fields"),
        text("images_left_out", "list image", "--image-fields"),
        text("features_left_out", "unseen feature", "--keep-fields"),
    ];
    found.into_iter().flatten().for_each(|line| lines.add(line));
}

/// Adds a hint if progressive JPEGs were kept without `--baseline`. With it, only those that cannot be converted are
/// kept.
fn add_progressive(lines: &mut Lines, manifest: &Manifest) {
    let has_option = manifest.options.pointer("/image/baseline").is_some();
    if let Some(count) = manifest.notes.get("progressive_kept").filter(|_| !has_option) {
        lines.add(format!(
            "  {} {} slow to decode: --baseline stores the same pixels as baseline JPEGs, which decode several times as fast",
            plural(*count, "progressive JPEG"),
            if *count == 1 { "is" } else { "are" }
        ));
    }
}

fn add_rejects(lines: &mut Lines, manifest: &Manifest, out: &Path) {
    let out = printable_path(out);
    for (code, count) in &manifest.reject_codes {
        lines.add(format!("  rejected: {} {code} (see {out}/rejects.jsonl)", HumanCount(*count)));
    }
}

/// Formats in one line how the run spent its time, or returns an empty text if there was nothing to do.
pub(in crate::cli) fn times(report: &RunReport) -> String {
    let stages = report.thread_seconds.of_workers();
    let all: f64 = stages.iter().map(|stage| stage.1).sum();
    let is_merge = report.command == "merge";
    if report.was_complete || (all <= 0.0 && !is_merge) {
        return String::new();
    }
    let phases = report.seconds;
    let phases = match report.command.as_str() {
        "run" => format!("checks {:.1} s", phases.prepare),
        "merge" => format!("checks {:.1} s, commit {:.1} s", phases.prepare, phases.commit),
        _ => format!("plan {:.1} s, commit {:.1} s", phases.plan, phases.commit),
    };
    let work = match is_merge {
        true => String::new(),
        false => {
            let share = |(name, time): &(&str, f64)| format!("{:.0}% {name}", time / all * 100.0);
            let shares: Vec<String> = stages.iter().map(share).collect();
            format!("{}: {}; ", plural(report.threads as u64, "thread"), shares.join(", "))
        }
    };
    let memory = report
        .peak_memory_bytes
        .map_or_else(String::new, |peak| format!("; peak memory {}", HumanBytes(peak)));
    let repeated = |count: u64, what: &str| match count {
        0 => String::new(),
        1 => format!("; 1 {what} was repeated"),
        n => format!("; {} {what}s were repeated", HumanCount(n)),
    };
    let (reads, requests) = (repeated(report.retries, "read"), repeated(report.request_retries, "request"));
    format!("  {work}{phases}{memory}{reads}{requests}\n")
}
