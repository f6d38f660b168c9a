//! The report of `dsconvert headspace` as text.

use std::fmt::Write;

use crate::lab::{Headspace, LoadingOutcome};
use crate::numbers::{percent, three_digits};
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
            "padding       {:.0}% of random batches, {} ms of a step",
            padding.random * 100.0,
            three_digits(padding.random_ms)
        );
        if let (Some(share), Some(ms)) = (padding.bucketed, padding.bucketed_ms) {
            let _ =
                write!(text, "; {:.0}% and {} ms with buckets by length", share * 100.0, three_digits(ms));
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
        "{}: {} batch{}, {} ms to load one (p50 {}, p99 {})\n",
        printable(&outcome.path),
        load.batches,
        if load.batches == 1 { "" } else { "es" },
        three_digits(load.mean_ms),
        three_digits(load.p50_ms),
        three_digits(load.p99_ms)
    );
    let hours = if found.steps.is_some() { "  hours" } else { "" };
    let _ = writeln!(text, "workers   ms per step   free loading would save{hours}");
    for row in &outcome.workers {
        let hours = row.gain_hours.map(|hours| format!("{hours:>7.2}")).unwrap_or_default();
        let note = match (row.workers == outcome.workers_enough, outcome.more_do_not_help) {
            (true, true) => "  enough: more do not help",
            (true, false) => "  the best of this list: more may help",
            (false, _) => "",
        };
        let _ = writeln!(
            text,
            "{:>7}   {:>11}   {:>23}{hours}{note}",
            row.workers,
            three_digits(row.ms_per_step),
            percent(row.gain)
        );
    }
    text.push('\n');
}
