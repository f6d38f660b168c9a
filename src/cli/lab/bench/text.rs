//! The report of `dsconvert bench` as text.

use std::fmt::Write;

use indicatif::{HumanCount, HumanDuration};

use crate::cli::flags::with_flags;
use crate::cli::summary::faster_format;
use crate::cli::table::table;
use crate::lab::{BenchReport, Measurement, Probe, Residency, Spread, TargetKind, TargetReport};
use crate::numbers::{plural, short_percent};
use crate::printable::printable;

/// Residency at or above which plain reads count as reads from the page cache.
const CACHED: f64 = 0.99;

/// Formats as `12,345` or `1.23`: three significant digits from 1 to 1,000, and three decimals below 1.
fn number(x: f64) -> String {
    match x {
        x if x >= 1000.0 => HumanCount(x.round() as u64).to_string(),
        x if x >= 100.0 => format!("{x:.0}"),
        x if x >= 10.0 => format!("{x:.1}"),
        x if x >= 1.0 => format!("{x:.2}"),
        x => format!("{x:.3}"),
    }
}

fn megabytes(bytes: f64) -> String {
    number(bytes / 1e6)
}

/// Formats the median of `rounds` values and, for several, `±` half the range, as a share of the median.
fn spread(found: &Spread, rounds: usize) -> String {
    match rounds {
        0 | 1 => number(found.median),
        _ => format!("{} ±{}", number(found.median), short_percent(found.spread / 2.0)),
    }
}

fn residency(found: Option<&Residency>) -> String {
    found.map_or_else(|| "unknown".to_owned(), |r| short_percent(r.share))
}

/// Formats the whole report. Results of `writeln!` are ignored, because writing to a string cannot fail.
pub(super) fn report(report: &BenchReport) -> String {
    let mut text = String::new();
    for target in &report.targets {
        describe(target, &mut text);
    }
    if let (Some(paired), Some(checked)) = (report.paired_items, report.checked_items) {
        let _ = match paired {
            1 => writeln!(text, "both hold the same item, which was compared and matches"),
            _ => writeln!(
                text,
                "both hold the same {} items; {} of them were compared and match",
                HumanCount(paired),
                HumanCount(checked)
            ),
        };
    }
    if report.jobs > 1 {
        let _ = writeln!(text, "throughput summed over {} processes", report.jobs);
    }
    let is_remote = report.targets.iter().any(|target| target.remote);
    let _ = writeln!(
        text,
        "{}; {}\n",
        match report.repeat {
            1 => "one round".to_owned(),
            n => format!("median of {n} interleaved rounds ± half the spread"),
        },
        match (report.cold, is_remote) {
            (true, false) => "cold: files are dropped from the page cache before each round",
            (true, true) => "cold: nothing is kept in memory from one round to the next",
            (false, _) => "after a warm-up",
        }
    );
    let several = report.targets.len() > 1;
    text.push_str(&rates(report, several));
    text.push('\n');
    text.push_str(&shares(report, several));
    if !report.comparison.is_empty() {
        text.push('\n');
        text.push_str(&comparison(report));
    }
    let probes: String = report.targets.iter().filter_map(|t| Some(probe(t, t.probe.as_ref()?))).collect();
    if !probes.is_empty() {
        text.push('\n');
        text.push_str(&probes);
    }
    for target in report.targets.iter().filter(|target| target.remote) {
        let _ = write!(
            text,
            "\n{} is in object storage: there is no page cache to examine, and there are no plain reads\n",
            printable(&target.path)
        );
    }
    text
}

fn describe(target: &TargetReport, text: &mut String) {
    let _ = writeln!(
        text,
        "{}: {}, {} in {} of {} MB{}, found in {}",
        printable(&target.path),
        target.kind.describe(),
        plural(target.items, "item"),
        plural(target.files, "file"),
        megabytes(target.bytes as f64),
        if target.remote { " in object storage" } else { "" },
        match target.prepare_ms {
            ms if ms < 10_000.0 => format!("{} ms", number(ms)),
            ms => HumanDuration(std::time::Duration::from_secs_f64(ms / 1e3)).to_string(),
        }
    );
    let format = target.format.filter(|_| target.kind == TargetKind::TextDataset);
    if let Some(line) = format.and_then(faster_format) {
        let _ = writeln!(text, "  {line}");
    }
    let failures = &target.failures;
    if failures.count > 0 {
        let _ = writeln!(text, "  {} cannot be loaded:", HumanCount(failures.count));
        for (name, why) in &failures.examples {
            let _ = writeln!(text, "    {}: {}", printable(name), printable(&with_flags(why)));
        }
        if failures.count > failures.examples.len() as u64 {
            text.push_str("    …\n");
        }
    }
}

/// Returns the cells that identify a measurement.
fn key(measurement: &Measurement, several: bool) -> Vec<String> {
    let mut cells = Vec::new();
    if several {
        cells.push(printable(&measurement.path).into_owned());
    }
    let decode = if measurement.decode { "" } else { ", no decode" };
    cells.push(format!("{}{decode}", measurement.order.name()));
    cells.push(measurement.threads.to_string());
    cells
}

fn header(several: bool, names: &[&str]) -> Vec<String> {
    let first: &[&str] = if several { &["path", "order", "threads"] } else { &["order", "threads"] };
    first.iter().chain(names).map(|name| (*name).to_owned()).collect()
}

fn rates(report: &BenchReport, several: bool) -> String {
    let tokens = report.measurements.iter().any(|m| m.tokens_per_second.is_some());
    let mut names = vec!["items/s", "MB/s"];
    if tokens {
        names.extend(["tokens/s", "padding"]);
    }
    names.extend(["item p50", "p99 ms", "batch p50", "p99 ms", "in cache"]);
    let device = report.measurements.iter().any(|m| m.device.is_some());
    if device {
        names.push("of plain reads");
    }
    let mut rows = vec![header(several, &names)];
    for m in &report.measurements {
        let mut row = key(m, several);
        row.extend([spread(&m.items_per_second, report.repeat), megabytes(m.bytes_per_second.median)]);
        if tokens {
            row.push(m.tokens_per_second.as_ref().map_or_else(String::new, |t| number(t.median)));
            row.push(m.padding.map_or_else(String::new, short_percent));
        }
        let times = [m.item_ms.p50, m.item_ms.p99, m.batch_ms.p50, m.batch_ms.p99];
        row.extend(times.map(number));
        let is_remote = report.targets.get(m.target).is_some_and(|target| target.remote);
        row.push(if is_remote { "remote".to_owned() } else { residency(m.residency.as_ref()) });
        if device {
            row.push(m.device.as_ref().map_or_else(String::new, |d| short_percent(d.fraction)));
        }
        rows.push(row);
    }
    table(&rows, if several { 2 } else { 1 })
}

fn shares(report: &BenchReport, several: bool) -> String {
    let mut rows = vec![header(several, &["open", "read", "decode", "transform", "collate", "other"])];
    for m in &report.measurements {
        let mut row = key(m, several);
        row.extend(m.shares.named().map(|(_, share)| short_percent(share)));
        rows.push(row);
    }
    table(&rows, if several { 2 } else { 1 })
}

fn comparison(report: &BenchReport) -> String {
    let mut text = String::new();
    let [Some(a), Some(b)] = [report.targets.first(), report.targets.get(1)] else { return text };
    for found in &report.comparison {
        let Spread { median, min, max, .. } = found.speedup;
        // The faster target comes first.
        let (fast, slow, median, min, max) = match median >= 1.0 {
            true => (a, b, median, min, max),
            false => (b, a, 1.0 / median, 1.0 / max, 1.0 / min),
        };
        let _ = writeln!(
            text,
            "{}{}, {}: {} is {} times as fast as {} ({} to {})",
            found.order.name(),
            if found.decode { "" } else { " without decoding" },
            plural(found.threads as u64, "thread"),
            printable(&fast.path),
            number(median),
            printable(&slow.path),
            number(min),
            number(max)
        );
    }
    text
}

fn probe(target: &TargetReport, found: &Probe) -> String {
    let place = match found.residency {
        [Some(a), Some(b)] if a.share.min(b.share) >= CACHED => "from the page cache, not the device",
        [Some(a), Some(b)] if a.share.max(b.share) <= 1.0 - CACHED => "from the device",
        [Some(_), Some(_)] => "partly from the page cache",
        _ => "from the device or the page cache (unknown)",
    };
    format!(
        "plain reads of {} with {}, {place}: {} MB/s in order, {} MB/s at random ({} reads/s of {} KiB)\n",
        printable(&target.path),
        plural(found.threads as u64, "thread"),
        megabytes(found.sequential_bytes_per_second),
        megabytes(found.random_bytes_per_second),
        number(found.random_reads_per_second),
        found.random_read_bytes >> 10
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!(
            [12345.6, 123.4, 12.34, 1.234, 0.01234].map(number),
            ["12,346", "123", "12.3", "1.23", "0.012"]
        );
    }

    #[test]
    fn one_round_has_no_spread() {
        let found = Spread::of([90.0, 100.0, 120.0]).unwrap();
        assert_eq!(spread(&found, 3), "100 ±15%");
        assert_eq!(spread(&Spread::of([100.0]).unwrap(), 1), "100");
    }
}
