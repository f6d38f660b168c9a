//! Prediction of a run from a sample.

use indicatif::{HumanBytes, HumanCount};

use super::Lines;
use crate::numbers::plural;
use crate::pipeline::{Estimate, PlanSummary, Prediction};

/// Formats the prediction of a run from a sample.
pub(in crate::cli) fn prediction(prediction: &Prediction, threads: usize, plan: &PlanSummary) -> String {
    let mut lines = Lines::default();
    let count = |e: Estimate| spread(e, |x, round| HumanCount(round(x) as u64).to_string());
    let Prediction { sampled, found, records, rejected, filtered, bytes, shards, seconds, .. } = prediction;
    lines.add(format!("\nFrom a sample of {}, with 95% intervals:", plural(*sampled, "item")));
    lines.add(format!("found    {}", count(*found)));
    lines.add(format!("records  {}", count(*records)));
    if let Some(tokens) = prediction.tokens {
        lines.add(format!("tokens   {}", count(tokens)));
    }
    lines.add(format!("rejected {}", count(*rejected)));
    for (code, seen) in &prediction.reject_codes {
        lines.add(format!("         {} of the sample {code}", HumanCount(*seen)));
    }
    lines.add(format!("filtered {}", count(*filtered)));
    lines.add(format!("size     {}", spread(*bytes, size)));
    lines.add(format!("shards   {}", count(*shards)));
    lines.add(format!(
        "time     {} on {}, plus waiting for the disk",
        spread(*seconds, |x, _| if x < 100.0 { format!("{x:.2} s") } else { duration(x) }),
        plural(threads as u64, "thread")
    ));
    if plan.dedup {
        lines.add("a sample is not searched for duplicates, so there may be fewer records");
    }
    if !plan.exclude.is_empty() {
        lines.add("a sample is not compared with the excluded datasets, so there may be fewer records");
    }
    lines.0
}

/// A function that rounds to an integer.
type Round = fn(f64) -> f64;

/// Formats an estimate as `12 (10 to 14)`, or as the value alone if it is certain. The ends of the interval are rounded
/// outward, so that what is shown contains the interval.
fn spread(e: Estimate, text: impl Fn(f64, Round) -> String) -> String {
    // Sums of floating-point numbers are not exact.
    let margin = 1e-9 * e.value;
    let (low, high) = (text(e.low + margin, f64::floor), text(e.high - margin, f64::ceil));
    let value = text(e.value, f64::round);
    if e.high - e.low <= 2.0 * margin || low == high { value } else { format!("{value} ({low} to {high})") }
}

/// Formats a number of bytes with two decimals. `round` rounds the last one.
fn size(bytes: f64, round: Round) -> String {
    let unit = 1024f64.powf((bytes.max(1.0).log2() / 10.0).floor());
    let step = if unit > 1.0 { unit / 100.0 } else { 1.0 };
    HumanBytes((round(bytes / step) * step).round() as u64).to_string()
}

fn duration(seconds: f64) -> String {
    let minutes = (seconds / 60.0).round() as u64;
    if minutes < 100 { format!("{minutes} min") } else { format!("{}:{:02} h", minutes / 60, minutes % 60) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_rounded_outward() {
        let shown = |value, low, high| spread(Estimate { value, low, high }, size);
        assert_eq!(shown(1_750_000.0, 1_749_000.0, 1_751_000.0), "1.67 MiB (1.66 MiB to 1.67 MiB)");
        assert_eq!(shown(1_750_000.0, 1_741_160.0, 1_751_200.0), "1.67 MiB (1.66 MiB to 1.68 MiB)");
        assert_eq!(shown(2_097_152.0, 2_097_152.0, 2_097_152.0), "2.00 MiB");
        assert_eq!(shown(500.0, 499.5, 1024.0), "500 B (499 B to 1.00 KiB)");
        let count = |e| spread(e, |x, round| (round(x) as u64).to_string());
        assert_eq!(count(Estimate { value: 7.4, low: 6.9, high: 8.1 }), "7 (6 to 9)");
        assert_eq!(count(Estimate { value: 7.0, low: 7.0 - 1e-9, high: 7.0 + 1e-9 }), "7");
    }
}
