//! The report of `dsconvert headspace` as text.

use std::fmt::Write;

use crate::bench::{Headspace, LoadingOutcome};
use crate::printable::printable;

/// Formats the whole report. Results of `writeln!` are ignored, because writing to a string cannot fail.
pub(super) fn report(found: &Headspace) -> String {
    let mut text = String::new();
    let outcomes = std::iter::once(&found.loading).chain(&found.against);
    for outcome in outcomes {
        loading(found, outcome, &mut text);
    }
    if let Some(padding) = &found.padding {
        let _ = write!(
            text,
            "padding       {:.0}% of random batches, {:.1} ms of a step",
            padding.random * 100.0,
            padding.random_ms
        );
        if let (Some(share), Some(ms)) = (padding.bucketed, padding.bucketed_ms) {
            let _ = write!(text, "; {:.0}% and {ms:.1} ms with buckets by length", share * 100.0);
        }
        text.push('\n');
    }
    let _ = writeln!(text, "verdict       {}", printable(&found.summary));
    text
}

fn loading(found: &Headspace, outcome: &LoadingOutcome, text: &mut String) {
    let load = &outcome.load;
    let _ = writeln!(
        text,
        "{}: {} batches, {:.2} ms to load one (p50 {:.2}, p99 {:.2})\n",
        printable(&outcome.path),
        load.batches,
        load.mean_ms,
        load.p50_ms,
        load.p99_ms
    );
    let hours = if found.steps.is_some() { "  hours" } else { "" };
    let _ = writeln!(text, "workers   ms per step   free loading would save{hours}");
    for row in &outcome.workers {
        let hours = row.gain_hours.map(|hours| format!("{hours:>7.2}")).unwrap_or_default();
        let enough = if row.workers == outcome.workers_enough { "  enough: more do not help" } else { "" };
        let _ = writeln!(
            text,
            "{:>7}   {:>11.1}   {:>23}{hours}{enough}",
            row.workers,
            row.ms_per_step,
            format!("{:.1}%", row.gain * 100.0)
        );
    }
    text.push('\n');
}
