//! Page section for several run reports: the parts of one conversion.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use super::elements::{heading, numbers};
use super::run::{is_of_other_dataset, non_negative, per_second, phases, retries, worker_times};
use crate::numbers::{bytes, count, percent, plural, seconds, short};
use crate::report::escape::clipped;
use crate::report::gather::DatasetReport;
use crate::report::run::{ActivityTimes, RunReport};

/// Maximum number of rows in the table of parts. If there are more, the slowest are shown.
const MAX_ROWS: usize = 200;

pub(super) fn section(out: &mut String, report: &DatasetReport, runs: &[RunReport]) {
    heading(out, "run", "Run");
    warnings(out, report, runs);
    let started_at = runs.iter().map(|run| non_negative(run.started_at)).fold(f64::INFINITY, f64::min);
    tiles(out, runs, started_at);
    out.push_str("<div class=\"pair\">\n<section class=\"card\">\n<h3>Where the time went</h3>\n");
    let sum = |of: fn(&RunReport) -> f64| runs.iter().map(|run| non_negative(of(run))).sum::<f64>();
    let times = ActivityTimes {
        read: sum(|run| run.thread_seconds.read),
        transform: sum(|run| run.thread_seconds.transform),
        write: sum(|run| run.thread_seconds.write),
        sync: sum(|run| run.thread_seconds.sync),
        wait: sum(|run| run.thread_seconds.wait),
    };
    worker_times(out, &times, &plural(runs.len() as u64, "run"));
    out.push_str("</section>\n<section class=\"card\">\n<h3>Phases, summed over the runs</h3>\n");
    phases(out, sum);
    out.push_str("</section>\n</div>\n");
    table(out, runs, started_at);
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

fn tiles(out: &mut String, runs: &[RunReport], started_at: f64) {
    let ended = runs
        .iter()
        .map(|run| non_negative(run.started_at) + non_negative(run.seconds.total))
        .fold(0.0, f64::max);
    let elapsed = (ended - started_at).max(0.0);
    // A merge reports the totals of all parts, so it would count them twice.
    let rate = |of: fn(&RunReport) -> u64| {
        let converting = runs.iter().filter(|run| !run.was_complete && run.command != "merge");
        let amount = converting.fold(0u64, |sum, run| sum.saturating_add(of(run)));
        if elapsed > 0.0 { amount as f64 / elapsed } else { 0.0 }
    };
    let machines: BTreeSet<Option<&str>> = runs.iter().map(|run| run.host.name.as_deref()).collect();
    let mut tiles = vec![
        ("Runs", count(runs.len() as u64)),
        ("Machines", count(machines.len() as u64)),
        ("First start to last end", seconds(elapsed)),
        ("Items", format!("{}/s", short(rate(|run| run.counts.found)))),
        ("Source", per_second(rate(|run| run.bytes_in))),
        ("Shards", per_second(rate(|run| run.bytes_out))),
    ];
    if let Some(peak) = runs.iter().filter_map(|run| run.peak_memory_bytes).max() {
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
