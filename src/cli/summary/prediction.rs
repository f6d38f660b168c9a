//! Prediction of a run from a sample.

use indicatif::{HumanBytes, HumanCount};

use super::Lines;
use crate::numbers::plural;
use crate::pipeline::{Estimate, Prediction};

/// Formats the prediction of a run from a sample.
pub(in crate::cli) fn prediction(prediction: &Prediction, threads: usize, dedup: bool) -> String {
    let mut lines = Lines::default();
    let count = |e: Estimate| spread(e, |x| HumanCount(x.round() as u64).to_string());
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
    lines.add(format!("size     {}", spread(*bytes, |x| HumanBytes(x as u64).to_string())));
    lines.add(format!("shards   {}", count(*shards)));
    lines.add(format!(
        "time     {} on {}, plus waiting for the disk",
        spread(*seconds, |x| if x < 100.0 { format!("{x:.2} s") } else { duration(x) }),
        plural(threads as u64, "thread")
    ));
    if dedup {
        lines.add("a sample is not searched for duplicates, so there may be fewer records");
    }
    lines.0
}

/// Formats an estimate as `12 (10 to 14)`, or as the value alone if it is certain.
fn spread(e: Estimate, text: impl Fn(f64) -> String) -> String {
    let (value, low, high) = (text(e.value), text(e.low), text(e.high));
    if low == high { value } else { format!("{value} ({low} to {high})") }
}

fn duration(seconds: f64) -> String {
    let minutes = (seconds / 60.0).round() as u64;
    if minutes < 100 { format!("{minutes} min") } else { format!("{}:{:02} h", minutes / 60, minutes % 60) }
}
