//! Human-readable descriptions of datasets and shards.

use std::io::{self, Write};
use std::path::Path;

use indicatif::{HumanBytes, HumanCount};

use super::{buckets, classes as class_counts};
use crate::cli::lengths::{print_histogram, print_trained};
use crate::cli::summary::classes;
use crate::index::LengthSummary;
use crate::numbers::{mean, plural};
use crate::printable::{printable, printable_path};
use crate::reader::{DatasetDescription, Description, HistogramBucket, ShardDescription};
use crate::report::{BucketShares, ClassCounts};
use crate::schema::Schema;

/// What was counted in the records of a dataset.
#[derive(Clone, Copy)]
pub(super) struct Counted<'a> {
    pub(super) classes: &'a ClassCounts,
    pub(super) buckets: &'a BucketShares,
}

pub(super) fn print(
    path: &Path,
    description: &Description,
    counted: Counted<'_>,
    out: &mut impl Write,
) -> io::Result<()> {
    match description {
        Description::Dataset(dataset) => print_dataset(path, dataset, counted, out),
        Description::Shard(shard) => print_shard(path, shard, out),
    }
}

fn print_dataset(
    path: &Path,
    d: &DatasetDescription,
    counted: Counted<'_>,
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(out, "{}: {} dataset, {}", printable_path(path), d.kind.name(), d.format)?;
    writeln!(
        out,
        "  {} in {}, {}; written by dsconvert {}",
        plural(d.records, "record"),
        plural(d.shards, "shard"),
        HumanBytes(d.bytes),
        printable(&d.dsconvert)
    )?;
    writeln!(
        out,
        "  {} found: {} converted, {} filtered, {}, {} rejected",
        HumanCount(d.counts.found),
        HumanCount(d.counts.converted),
        HumanCount(d.counts.filtered),
        plural(d.counts.duplicates, "duplicate"),
        HumanCount(d.counts.rejected)
    )?;
    for (code, count) in &d.reject_codes {
        writeln!(out, "    rejected as {}: {}", printable(code), HumanCount(*count))?;
    }
    for (name, count) in &d.notes {
        writeln!(out, "    {}: {}", printable(&name.replace('_', " ")), HumanCount(*count))?;
    }
    writeln!(
        out,
        "  from {} ({}, {}, {} skipped)",
        printable(&d.sources.labels.join(", ")),
        plural(d.sources.files, "file"),
        HumanBytes(d.sources.bytes),
        plural(d.sources.skipped, "other")
    )?;
    print_schema(&d.schema, out)?;
    if let Some(tokenizer) = &d.tokenizer {
        writeln!(out, "\ntokenizer")?;
        print_options(tokenizer, 1, out)?;
    }
    writeln!(out, "\noptions")?;
    print_options(&d.options, 1, out)?;
    for (name, split) in &d.splits {
        writeln!(
            out,
            "\n{name}: {} in {}, {}",
            plural(split.records, "record"),
            plural(split.shards, "shard"),
            HumanBytes(split.bytes)
        )?;
        class_counts::print(counted.classes, name, split.records, out)?;
        buckets::print(counted.buckets, name, out)?;
        print_lengths(&split.length, &split.histogram, out)?;
        print_trained(split.trained.as_ref(), split.length.total, out)?;
    }
    Ok(())
}

fn print_shard(path: &Path, s: &ShardDescription, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}: {} shard, {}", printable_path(path), s.kind.name(), s.format)?;
    writeln!(out, "  {}, {}", plural(s.records, "record"), HumanBytes(s.bytes))?;
    print_schema(&s.schema, out)?;
    writeln!(out)?;
    print_lengths(&s.length, &s.histogram, out)?;
    print_trained(s.trained.as_ref(), s.length.total, out)
}

fn print_schema(schema: &Schema, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\nfields")?;
    let width = schema.fields.iter().map(|f| f.name.chars().count()).max().unwrap_or(0);
    for field in &schema.fields {
        let nullable = if field.nullable { ", may be missing" } else { "" };
        writeln!(out, "  {:width$}  {}{nullable}", printable(&field.name), field.ty.name())?;
    }
    if !schema.class_names.is_empty() {
        writeln!(out, "  {}", classes(&schema.class_names, |_, name| name.to_owned()))?;
    }
    Ok(())
}

/// Prints the members of a JSON object, one per line, with nested objects indented. Null members are omitted.
fn print_options(value: &serde_json::Value, depth: usize, out: &mut impl Write) -> io::Result<()> {
    for (name, value) in value.as_object().into_iter().flatten() {
        let (indent, name) = ("  ".repeat(depth), printable(name));
        match value {
            serde_json::Value::Null => {}
            serde_json::Value::Object(_) => {
                writeln!(out, "{indent}{name}")?;
                print_options(value, depth + 1, out)?;
            }
            serde_json::Value::String(text) => writeln!(out, "{indent}{name}: {}", printable(text))?,
            other => writeln!(out, "{indent}{name}: {}", printable(&other.to_string()))?,
        }
    }
    Ok(())
}

fn print_lengths(
    length: &LengthSummary,
    histogram: &[HistogramBucket],
    out: &mut impl Write,
) -> io::Result<()> {
    if histogram.iter().all(|b| b.records == 0) {
        return Ok(());
    }
    writeln!(
        out,
        "  {} {} to {}, mean {}, median {}, 90% up to {}, 99% up to {}",
        length.unit.name(),
        HumanCount(length.min),
        HumanCount(length.max),
        mean(length.mean),
        HumanCount(length.p50),
        HumanCount(length.p90),
        HumanCount(length.p99)
    )?;
    print_histogram(histogram, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_of_options_are_escaped() {
        let options = serde_json::json!({"a\u{1b}[31m": 1, "b": {"c\u{7}": ["\u{9b}2J"]}});
        let mut out = Vec::new();
        print_options(&options, 0, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    }
}
