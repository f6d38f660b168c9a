//! Statistics of text datasets, printed at the end of a conversion and by `inspect`: lengths, padding, what is trained on.

use std::path::Path;

use indicatif::HumanCount;

use super::summary::Lines;
use crate::error::Result;
use crate::numbers::{percent, plural, share_of_whole};
use crate::pipeline::RunOutcome;
use crate::reader::batch::{BatchSize, padding};
use crate::reader::{Dataset, HistogramBucket, TrainedSummary};
use crate::report::bytes_per_token;

/// Length of the longest bar, in characters.
const BAR_WIDTH: u64 = 40;
/// Difference from the mean above which the padding of single epochs is shown, too.
const SHOWN_DIFFERENCE: f64 = 0.003;

/// Formats tokens, bytes per token, lengths, and the padding of batches of `size`.
pub(super) fn text(outcome: &RunOutcome, out: &Path, size: BatchSize) -> Result<String> {
    let manifest = &outcome.manifest;
    let tokens: u64 = manifest.splits.values().map(|s| s.length.total).sum();
    let mut lines = Lines::default();
    if let Some(totals) = outcome.totals.as_ref().filter(|_| tokens > 0) {
        let each = bytes_per_token(manifest, totals.text_bytes, tokens)
            .map_or_else(String::new, |each| format!(", {each:.2} bytes of text each"));
        lines.add(format!("{}{each}", plural(tokens, "token")));
    }
    let note = |name: &str| manifest.notes.get(name).copied().unwrap_or(0);
    if note("packed_places") > 0 {
        lines.add(format!(
            "rows are {} full; {} of the documents span several rows",
            percent(note("packed_tokens") as f64 / note("packed_places") as f64),
            percent(note("packed_documents_cut") as f64 / manifest.counts.converted.max(1) as f64),
        ));
    }
    for split in Dataset::open(out)?.splits() {
        if split.is_empty() {
            continue;
        }
        let found = padding(&split, size)?;
        let batches = match size {
            BatchSize::BatchSize(records) => plural(records, "record"),
            BatchSize::MaxTokens(tokens) | BatchSize::MaxTokensUnpadded(tokens) => plural(tokens, "token"),
            _ => "this size".to_owned(), // never: the command passes no other
        };
        let (random, bucketed) = (percent(found.random), percent(found.bucketed));
        let (least, most) = found.bucketed_epochs;
        let differs = (found.bucketed - least).max(most - found.bucketed) > SHOWN_DIFFERENCE;
        let range = if differs {
            format!(" ({} to {} by epoch)", percent(least), percent(most))
        } else {
            String::new()
        };
        lines.add(format!("{}:", split.name()));
        let described = split.describe()?;
        add_histogram(&described.histogram, &mut lines);
        add_trained(described.trained.as_ref(), described.length.total, &mut lines);
        lines.add(format!(
            "  padding in batches of {batches}: {random} at random, {bucketed} with buckets by length{range}"
        ));
    }
    Ok(lines.0)
}

/// Adds a bar for each bucket.
pub(super) fn add_histogram(histogram: &[HistogramBucket], lines: &mut Lines) {
    let highest = histogram.iter().map(|b| b.records).max().unwrap_or(0).max(1);
    let label = |b: &HistogramBucket| HumanCount(b.to - 1).to_string();
    let width = histogram.iter().map(|b| label(b).len()).max().unwrap_or(0);
    let counts = histogram.iter().map(|b| HumanCount(b.records).to_string().len()).max().unwrap_or(0);
    for bucket in histogram {
        // Rounding up gives every non-empty bucket a visible bar.
        let cells =
            (u128::from(bucket.records) * u128::from(BAR_WIDTH)).div_ceil(u128::from(highest)) as usize;
        let line = format!(
            "  {:>width$} – {:>width$}  {:>counts$}  {}",
            HumanCount(bucket.from).to_string(),
            label(bucket),
            HumanCount(bucket.records).to_string(),
            "█".repeat(cells)
        );
        lines.add(line.trim_end());
    }
}

/// Adds how many of `tokens` are trained on.
pub(super) fn add_trained(trained: Option<&TrainedSummary>, tokens: u64, lines: &mut Lines) {
    let Some(found) = trained.filter(|_| tokens > 0) else { return };
    lines.add(format!(
        "  {} of {} trained on ({}); of a record: median {}, 10% up to {}, 90% up to {}",
        HumanCount(found.tokens),
        plural(tokens, "token"),
        share_of_whole(found.share),
        percent(found.share_p50),
        percent(found.share_p10),
        percent(found.share_p90)
    ));
    if found.records_without > 0 {
        lines.add(format!("  {} without a token to train on", plural(found.records_without, "record")));
    }
}
