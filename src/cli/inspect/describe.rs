//! Human-readable descriptions of datasets and shards.

use std::path::Path;

use indicatif::{HumanBytes, HumanCount};

use super::open_dataset;
use crate::cli::flags::shown;
use crate::cli::lengths::{add_histogram, add_trained};
use crate::cli::print;
use crate::cli::summary::{Lines, class_counts, classes, faster_format};
use crate::error::{Error, Result};
use crate::index::LengthSummary;
use crate::manifest::{Alignment, Binding};
use crate::numbers::{mean, percent, plural};
use crate::printable::{printable, printable_path};
use crate::reader::{DatasetDescription, Description, HistogramBucket, ShardDescription};
use crate::report::{BucketShare, BucketShares, ClassCounts, LabelCounts};
use crate::schema::{LABEL, Schema};
use crate::storage::Access;

/// What was counted in the records of a dataset.
#[derive(Default)]
pub(super) struct Counted {
    pub(super) classes: ClassCounts,
    pub(super) buckets: BucketShares,
}

impl Counted {
    /// Counts the labels and the buckets of the dataset at `path`. Damage is only a warning, so that everything else is
    /// still described.
    pub(super) fn of(path: &Path, description: &Description, access: Access) -> Result<Self> {
        let is_counted = |schema: &Schema| schema.index_of(LABEL).is_some() || BucketShares::exist_in(schema);
        // Opening a dataset in object storage takes requests.
        if !matches!(description, Description::Dataset(described) if is_counted(&described.schema)) {
            return Ok(Self::default());
        }
        let dataset = open_dataset(path, access)?;
        let warn = |what: &str, split: &str, error: &Error| {
            print::warning(format!("{what} of {split} cannot be read: {}", shown(error)));
        };
        Ok(Self {
            classes: ClassCounts::of(&dataset, &mut |split, error| warn("labels", split, error)),
            buckets: BucketShares::of(&dataset, &mut |split, error| warn("sizes", split, error)),
        })
    }

    /// Adds the classes of a split.
    fn add_classes(&self, split: &str, records: u64, lines: &mut Lines) {
        let Some(found) = self.classes.splits.get(split).filter(|found| found.read > 0) else { return };
        let LabelCounts { counts, unlabeled, read } = found;
        let names = &self.classes.names;
        if !names.is_empty() {
            let text = class_counts(names, |label| counts.get(label).copied().unwrap_or(0));
            lines.add(format!("  {text}"));
        }
        if *unlabeled > 0 {
            lines.add(format!("  {} without a label", plural(*unlabeled, "record")));
        }
        if *read < records {
            lines.add(format!("  (counted in the {} that can be read)", plural(*read, "record")));
        }
    }

    /// Adds the buckets of a split.
    fn add_buckets(&self, split: &str, lines: &mut Lines) {
        let all = BucketShare::sum(self.buckets.split(split).map(|(_, share)| share));
        if all.records == 0 {
            return;
        }
        let count = plural(self.buckets.split(split).count() as u64, "bucket");
        lines.add(format!("  {count}; {} of the pixels cropped", percent(all.cropped())));
        for ((width, height), share) in self.buckets.split(split) {
            let (size, records) = (format!("{width}x{height}"), plural(share.records, "record"));
            let of_all = percent(share.records as f64 / all.records as f64);
            lines.add(format!("    {size:<11} {records} ({of_all}), {} cropped", percent(share.cropped())));
        }
    }
}

/// Describes the dataset or shard at `path`.
pub(super) fn text(path: &Path, description: &Description, counted: &Counted) -> String {
    let mut lines = Lines::default();
    match description {
        Description::Dataset(dataset) => add_dataset(path, dataset, counted, &mut lines),
        Description::Shard(shard) => add_shard(path, shard, &mut lines),
    }
    lines.0
}

fn add_dataset(path: &Path, d: &DatasetDescription, counted: &Counted, lines: &mut Lines) {
    lines.add(format!("{}: {} dataset, {}", printable_path(path), d.kind.name(), d.format));
    lines.add(format!(
        "  {} in {}, {}; written by dsconvert {}",
        plural(d.records, "record"),
        plural(d.shards, "shard"),
        HumanBytes(d.bytes),
        printable(&d.dsconvert)
    ));
    if let Some(line) = d.schema.holds_token_ids().then(|| faster_format(d.format)).flatten() {
        lines.add(format!("  {line}"));
    }
    lines.add(format!(
        "  {} found: {} converted, {} filtered, {}, {} rejected",
        HumanCount(d.counts.found),
        HumanCount(d.counts.converted),
        HumanCount(d.counts.filtered),
        plural(d.counts.duplicates, "duplicate"),
        HumanCount(d.counts.rejected)
    ));
    for (code, count) in &d.reject_codes {
        lines.add(format!("    rejected as {}: {}", printable(code), HumanCount(*count)));
    }
    for (name, count) in &d.notes {
        lines.add(format!("    {}: {}", printable(&crate::report::note_name(name)), HumanCount(*count)));
    }
    lines.add(format!(
        "  from {} ({}, {}, {} skipped)",
        printable(&d.sources.labels.join(", ")),
        plural(d.sources.files, "file"),
        HumanBytes(d.sources.bytes),
        plural(d.sources.skipped, "other")
    ));
    if let Some(binding) = &d.binding {
        add_binding(binding, lines);
    }
    add_schema(&d.schema, lines);
    if let Some(tokenizer) = &d.tokenizer {
        lines.add("\ntokenizer");
        add_options(tokenizer, 1, lines);
    }
    lines.add("\noptions");
    add_options(&d.options, 1, lines);
    for (name, split) in &d.splits {
        lines.add(format!(
            "\n{name}: {} in {}, {}",
            plural(split.records, "record"),
            plural(split.shards, "shard"),
            HumanBytes(split.bytes)
        ));
        counted.add_classes(name, split.records, lines);
        counted.add_buckets(name, lines);
        add_lengths(&split.length, &split.histogram, lines);
        add_trained(split.trained.as_ref(), split.length.total, lines);
    }
}

/// Adds what a companion belongs to.
fn add_binding(binding: &Binding, lines: &mut Lines) {
    let records: u64 = binding.splits.values().map(|split| split.records).sum();
    let fingerprint = printable(&binding.fingerprint).into_owned();
    lines.add(format!("  fields for the {} of the dataset {fingerprint}", plural(records, "record")));
    let read: Vec<_> = binding.reads().map(|name| printable(name).into_owned()).collect();
    lines.add(match read.as_slice() {
        [] => "  joined by key, whatever their content".to_owned(),
        read => format!("  made from {}, and bound to that content", read.join(", ")),
    });
    for (name, bound) in &binding.fields {
        let name = printable(name);
        if let Some(ids) = &bound.per {
            let what = match bound.aligned {
                Alignment::Target => "as target of the prediction",
                Alignment::Input => "as input",
            };
            lines.add(format!("  {name}: one value for each of {}, {what}", printable(ids)));
        }
        if let Some(ids) = &bound.of {
            lines.add(format!("  {name}: one value for all of {}", printable(ids)));
        }
        if let Some(twin) = &bound.flip {
            lines.add(format!("  {name}: {} for mirrored images", printable(twin)));
        }
    }
}

fn add_shard(path: &Path, s: &ShardDescription, lines: &mut Lines) {
    lines.add(format!("{}: {} shard, {}", printable_path(path), s.kind.name(), s.format));
    lines.add(format!("  {}, {}", plural(s.records, "record"), HumanBytes(s.bytes)));
    add_schema(&s.schema, lines);
    lines.add("");
    add_lengths(&s.length, &s.histogram, lines);
    add_trained(s.trained.as_ref(), s.length.total, lines);
}

fn add_schema(schema: &Schema, lines: &mut Lines) {
    lines.add("\nfields");
    let width = schema.fields.iter().map(|f| f.name.chars().count()).max().unwrap_or(0);
    for field in &schema.fields {
        let nullable = if field.nullable { ", may be missing" } else { "" };
        lines.add(format!("  {:width$}  {}{nullable}", printable(&field.name), field.ty.name()));
    }
    if !schema.class_names.is_empty() {
        lines.add(format!("  {}", classes(&schema.class_names, |_, name| name.to_owned())));
    }
}

/// Adds the members of a JSON object, one per line, with nested objects indented. Null members are omitted.
fn add_options(value: &serde_json::Value, depth: usize, lines: &mut Lines) {
    for (name, value) in value.as_object().into_iter().flatten() {
        let (indent, name) = ("  ".repeat(depth), printable(name));
        match value {
            serde_json::Value::Null => {}
            serde_json::Value::Object(_) => {
                lines.add(format!("{indent}{name}"));
                add_options(value, depth + 1, lines);
            }
            serde_json::Value::String(text) => lines.add(format!("{indent}{name}: {}", printable(text))),
            other => lines.add(format!("{indent}{name}: {}", printable(&other.to_string()))),
        }
    }
}

fn add_lengths(length: &LengthSummary, histogram: &[HistogramBucket], lines: &mut Lines) {
    if histogram.iter().all(|b| b.records == 0) {
        return;
    }
    lines.add(format!(
        "  {} {} to {}, mean {}, median {}, 90% up to {}, 99% up to {}",
        length.unit.name(),
        HumanCount(length.min),
        HumanCount(length.max),
        mean(length.mean),
        HumanCount(length.p50),
        HumanCount(length.p90),
        HumanCount(length.p99)
    ));
    add_histogram(histogram, lines);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_of_options_are_escaped() {
        let options = serde_json::json!({"a\u{1b}[31m": 1, "b": {"c\u{7}": ["\u{9b}2J"]}});
        let mut lines = Lines::default();
        add_options(&options, 0, &mut lines);
        let text = lines.0;
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    }
}
