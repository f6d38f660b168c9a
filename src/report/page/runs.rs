//! Page section for several run reports: the parts of one conversion.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use super::elements::{heading, numbers, pairs};
use super::run::{is_of_other_dataset, non_negative, per_second, retries, worker_times};
use crate::numbers::{bytes, count, percent, plural, seconds, short};
use crate::report::escape::clipped;
use crate::report::gather::DatasetReport;
use crate::report::run::{ActivityTimes, RunReport};

/// Maximum number of rows in the table of parts. If there are more, the slowest are shown.
const MAX_ROWS: usize = 200;

pub(super) fn section(out: &mut String, report: &DatasetReport, runs: &[RunReport]) {
    heading(out, "run", "Run");
    warnings(out, report, runs);
    let sums = RunSums::of(runs);
    tiles(out, &sums, runs);
    out.push_str("<div class=\"pair\">\n<section class=\"card\">\n<h3>Where the time went</h3>\n");
    worker_times(out, &sums.times, &plural(runs.len() as u64, "run"));
    out.push_str("</section>\n<section class=\"card\">\n<h3>Phases, summed over the runs</h3>\n");
    let phase = |of: fn(&RunReport) -> f64| seconds(runs.iter().map(|run| non_negative(of(run))).sum());
    pairs(
        out,
        [
            ("Listing and planning", phase(|run| run.seconds.plan)),
            ("Checks and duplicates", phase(|run| run.seconds.prepare)),
            ("Converting", phase(|run| run.seconds.convert)),
            ("Indexes and commit", phase(|run| run.seconds.commit)),
            ("Total", phase(|run| run.seconds.total)),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    out.push_str("</section>\n</div>\n");
    table(out, runs, sums.started_at);
}

fn warnings(out: &mut String, report: &DatasetReport, runs: &[RunReport]) {
    let mut warn =
        |text: String| out.push_str(&format!("<p class=\"card warn\">{}</p>\n", clipped(&text, 600)));
    let other = runs.iter().filter(|run| is_of_other_dataset(report, run)).count() as u64;
    if other > 0 {
        warn(format!("{} for another dataset.", plural(other, "run report")));
    }
    let parts = || runs.iter().filter_map(|run| run.part.as_ref());
    let plans: BTreeSet<&str> = parts().filter_map(|part| part.plan.as_deref()).collect();
    if plans.len() > 1 {
        warn("The run reports come from different plans.".to_owned());
    }
    let planned = parts().map(|part| part.planned).max().unwrap_or(0);
    let converted = parts().fold(0u32, |sum, part| sum.saturating_add(part.converted));
    if converted < planned && runs.iter().all(|run| run.part.is_some() || run.command == "merge") {
        let (converted, planned) = (count(converted.into()), count(planned.into()));
        warn(format!(
            "These run reports cover {converted} of {planned} units; those of the others are missing."
        ));
    }
}

/// Sums over all runs.
struct RunSums {
    times: ActivityTimes,
    /// Start of the first run.
    started_at: f64,
    /// Time from the start of the first run to the end of the last one.
    elapsed: f64,
    items: u64,
    bytes_in: u64,
    bytes_out: u64,
    peak_memory: Option<u64>,
    machines: usize,
}

impl RunSums {
    fn of(runs: &[RunReport]) -> Self {
        let mut times = ActivityTimes::default();
        for run in runs {
            let of = &run.thread_seconds;
            times.read += non_negative(of.read);
            times.transform += non_negative(of.transform);
            times.write += non_negative(of.write);
            times.sync += non_negative(of.sync);
            times.wait += non_negative(of.wait);
        }
        let started_at = runs.iter().map(|run| non_negative(run.started_at)).fold(f64::INFINITY, f64::min);
        let ended = runs
            .iter()
            .map(|run| non_negative(run.started_at) + non_negative(run.seconds.total))
            .fold(0.0, f64::max);
        // A merge reports the totals of all parts, so it would count them twice.
        let sum = |of: fn(&RunReport) -> u64| {
            let converting = runs.iter().filter(|run| !run.was_complete && run.command != "merge");
            converting.fold(0u64, |sum, run| sum.saturating_add(of(run)))
        };
        let machines: BTreeSet<Option<&str>> = runs.iter().map(|run| run.host.name.as_deref()).collect();
        Self {
            times,
            started_at,
            elapsed: (ended - started_at).max(0.0),
            items: sum(|run| run.counts.found),
            bytes_in: sum(|run| run.bytes_in),
            bytes_out: sum(|run| run.bytes_out),
            peak_memory: runs.iter().filter_map(|run| run.peak_memory_bytes).max(),
            machines: machines.len(),
        }
    }
}

fn tiles(out: &mut String, sums: &RunSums, runs: &[RunReport]) {
    let rate = |amount: u64| if sums.elapsed > 0.0 { amount as f64 / sums.elapsed } else { 0.0 };
    let mut tiles = vec![
        ("Runs", count(runs.len() as u64)),
        ("Machines", count(sums.machines as u64)),
        ("First start to last end", seconds(sums.elapsed)),
        ("Items", format!("{}/s", short(rate(sums.items)))),
        ("Source", per_second(rate(sums.bytes_in))),
        ("Shards", per_second(rate(sums.bytes_out))),
    ];
    if let Some(peak) = sums.peak_memory {
        tiles.push(("Largest peak memory", bytes(peak)));
    }
    tiles.push(("Retries", count(runs.iter().fold(0, |sum, run| retries(run).saturating_add(sum)))));
    numbers(out, &tiles);
}

fn table(out: &mut String, runs: &[RunReport], started_at: f64) {
    let mut shown: Vec<&RunReport> = runs.iter().collect();
    if runs.len() > MAX_ROWS {
        let slower = |a: &&RunReport, b: &&RunReport| {
            b.seconds.total.partial_cmp(&a.seconds.total).unwrap_or(Ordering::Equal)
        };
        shown.sort_by(slower);
        shown.truncate(MAX_ROWS);
    }
    out.push_str(
        "<section class=\"card\" aria-label=\"Runs\">\n<div class=\"scroll\" tabindex=\"0\"><table><thead><tr>\
         <th scope=\"col\">Part</th><th scope=\"col\">Machine</th>",
    );
    for name in ["start", "time", "units", "items", "items", "source", "shards"] {
        out.push_str(&format!("<th scope=\"col\" class=\"n\">{name}</th>"));
    }
    for (name, _) in ActivityTimes::default().of_workers() {
        out.push_str(&format!("<th scope=\"col\" class=\"n\">{name}</th>"));
    }
    out.push_str("<th scope=\"col\" class=\"n\">peak memory</th><th scope=\"col\" class=\"n\">retries</th></tr></thead><tbody>\n");
    for run in shown {
        row(out, run, started_at);
    }
    out.push_str("</tbody></table></div>\n");
    if runs.len() > MAX_ROWS {
        out.push_str(&format!(
            "<p class=\"note\">The {MAX_ROWS} slowest of {} are shown.</p>\n",
            plural(runs.len() as u64, "run")
        ));
    }
    out.push_str("</section>\n");
}

fn row(out: &mut String, run: &RunReport, started_at: f64) {
    let (name, units) = match &run.part {
        Some(part) => (part.selection.as_str(), count(part.converted.into())),
        None => (run.command.as_str(), "–".to_owned()),
    };
    let is_merge = run.command == "merge";
    let converted = |text: String| if is_merge { "–".to_owned() } else { text };
    let start = non_negative(non_negative(run.started_at) - started_at);
    out.push_str(&format!(
        "<tr><th scope=\"row\"><bdi>{}</bdi></th><td><bdi>{}</bdi></td>",
        clipped(name, 40),
        clipped(run.host.name.as_deref().unwrap_or("unknown"), 80)
    ));
    let times = run.thread_seconds.of_workers().map(|(_, time)| non_negative(time));
    let all: f64 = times.iter().sum();
    let share = |time: f64| if all > 0.0 { percent(time / all) } else { "–".to_owned() };
    let cells = [
        format!("+{}", seconds(start)),
        seconds(run.seconds.total),
        units,
        converted(count(run.counts.found)),
        converted(format!("{}/s", short(non_negative(run.rates.items)))),
        converted(per_second(run.rates.bytes_in)),
        converted(per_second(run.rates.bytes_out)),
    ];
    let last = [run.peak_memory_bytes.map_or_else(|| "unknown".to_owned(), bytes), count(retries(run))];
    for cell in cells.into_iter().chain(times.map(share)).chain(last) {
        out.push_str(&format!("<td class=\"n\">{cell}</td>"));
    }
    out.push_str("</tr>\n");
}
