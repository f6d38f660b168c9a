//! Length and padding statistics of text datasets, printed at the end of a conversion.

use std::io::{self, Write};
use std::path::Path;

use super::inspect::print_histogram;
use crate::error::{Error, Result};
use crate::numbers::{percent, plural};
use crate::pipeline::RunOutcome;
use crate::reader::Dataset;
use crate::reader::batch::{BatchSize, padding};
use crate::report::bytes_per_token;

/// Difference from the mean above which the padding of single epochs is shown, too.
const SHOWN_DIFFERENCE: f64 = 0.003;

/// Formats tokens, bytes per token, lengths, and the padding of batches of `size`.
pub(super) fn text(outcome: &RunOutcome, out: &Path, size: BatchSize) -> Result<String> {
    let manifest = &outcome.manifest;
    let tokens: u64 = manifest.splits.values().map(|s| s.length.total).sum();
    let mut lines = Vec::new();
    let failed = |e: io::Error| Error::io("print", out, e);
    if let Some(totals) = outcome.totals.as_ref().filter(|_| tokens > 0) {
        let each = bytes_per_token(manifest, totals.text_bytes, tokens)
            .map_or_else(String::new, |each| format!(", {each:.2} bytes of text each"));
        writeln!(lines, "{}{each}", plural(tokens, "token")).map_err(failed)?;
    }
    let note = |name: &str| manifest.notes.get(name).copied().unwrap_or(0);
    if note("packed_places") > 0 {
        writeln!(
            lines,
            "rows are {} full; {} of the documents span several rows",
            percent(note("packed_tokens") as f64 / note("packed_places") as f64),
            percent(note("packed_documents_cut") as f64 / manifest.counts.converted.max(1) as f64),
        )
        .map_err(failed)?;
    }
    for split in Dataset::open(out)?.splits() {
        if split.is_empty() {
            continue;
        }
        let found = padding(&split, size)?;
        let batches = match size {
            BatchSize::BatchSize(records) => plural(records, "record"),
            BatchSize::MaxTokens(tokens) | BatchSize::MaxTokensUnpadded(tokens) => plural(tokens, "token"),
        };
        let (random, bucketed) = (percent(found.random), percent(found.bucketed));
        let (least, most) = found.bucketed_epochs;
        let differs = (found.bucketed - least).max(most - found.bucketed) > SHOWN_DIFFERENCE;
        let range = if differs {
            format!(" ({} to {} by epoch)", percent(least), percent(most))
        } else {
            String::new()
        };
        writeln!(lines, "{}:", split.name()).map_err(failed)?;
        print_histogram(&split.describe()?.histogram, &mut lines).map_err(failed)?;
        writeln!(
            lines,
            "  padding in batches of {batches}: {random} at random, {bucketed} with buckets by length{range}"
        )
        .map_err(failed)?;
    }
    Ok(String::from_utf8_lossy(&lines).into_owned())
}
