//! Page section for one run report.

use super::elements::{heading, numbers, pairs};
use super::overview::table_of;
use crate::numbers::{bytes, count, percent, plural, seconds, short};
use crate::report::bytes_per_token;
use crate::report::escape::escape;
use crate::report::gather::DatasetReport;
use crate::report::run::{ActivityTimes, RunReport};

pub(super) fn section(out: &mut String, report: &DatasetReport, run: &RunReport) {
    heading(out, "run", "Run");
    if is_of_other_dataset(report, run) {
        out.push_str("<p class=\"card warn\">The run report belongs to another dataset.</p>\n");
    }
    if run.was_complete {
        out.push_str(
            "<p class=\"card soft\">The dataset was complete before this run, which had nothing to do.</p>\n",
        );
    }
    let mut tiles = vec![("Time", seconds(run.seconds.total))];
    if run.command != "merge" {
        tiles.extend([
            ("Items", format!("{}/s", short(run.rates.items))),
            ("Source", per_second(run.rates.bytes_in)),
            ("Shards", per_second(run.rates.bytes_out)),
        ]);
    }
    if let Some(tokens) = run.rates.tokens {
        tiles.push(("Tokens", format!("{}/s", short(tokens))));
    }
    if let Some(peak) = run.peak_memory_bytes {
        tiles.push(("Peak memory", bytes(peak)));
    }
    tiles.push(("Retries", count(retries(run))));
    numbers(out, &tiles);
    out.push_str("<div class=\"pair\">\n<section class=\"card\">\n<h3>Where the time went</h3>\n");
    worker_times(out, &run.thread_seconds, &plural(run.threads as u64, "thread"));
    phases(out, |of| of(run));
    out.push_str("</section>\n<section class=\"card\">\n<h3>Machine and run</h3>\n");
    let host = &run.host;
    let unknown = || "unknown".to_owned();
    pairs(
        out,
        [
            ("Name", host.name.clone().unwrap_or_else(unknown)),
            ("Processor", host.cpu.clone().unwrap_or_else(unknown)),
            ("Cores", count(host.cores as u64)),
            ("Memory", host.memory_bytes.map_or_else(unknown, bytes)),
            ("Kernel", host.kernel.clone().unwrap_or_else(unknown)),
            ("File system", host.file_system.clone().unwrap_or_else(unknown)),
            ("Threads", count(run.threads as u64)),
            ("Memory limit", if run.memory_bytes == 0 { "none".to_owned() } else { bytes(run.memory_bytes) }),
            ("Source bytes", bytes(run.bytes_in)),
            ("Shard bytes", bytes(run.bytes_out)),
            ("dsconvert", run.dsconvert.clone()),
        ],
    );
    let each = run.text_bytes.zip(run.tokens);
    let each = each.and_then(|(text, tokens)| bytes_per_token(&report.manifest, text, tokens));
    if let Some(each) = each {
        out.push_str(&format!("<p class=\"note\">{each:.2} bytes of source text per token.</p>\n"));
    }
    if run.options != report.manifest.options {
        out.push_str("<details><summary>Options of the run</summary>\n");
        table_of(out, &run.options);
        out.push_str("</details>\n");
    }
    out.push_str("</section>\n</div>\n");
}

/// Returns whether the run report belongs to another dataset. A part has no fingerprint of all sources, so its options,
/// source files and number of planned units are compared.
pub(super) fn is_of_other_dataset(report: &DatasetReport, run: &RunReport) -> bool {
    let manifest = &report.manifest;
    match &run.part {
        None => run.fingerprint != manifest.fingerprint,
        Some(part) => {
            run.options != manifest.options
                || manifest.plan.as_ref().is_some_and(|plan| {
                    plan.units != part.planned
                        || part.listing.as_ref().is_some_and(|listing| *listing != plan.listing)
                })
        }
    }
}

/// Returns the number of repeated reads and requests.
pub(super) fn retries(run: &RunReport) -> u64 {
    run.retries.saturating_add(run.request_retries)
}

pub(super) fn per_second(value: f64) -> String {
    format!("{}/s", bytes(value.max(0.0) as u64))
}

/// Replaces times that are negative or not finite by 0.
pub(super) fn non_negative(time: f64) -> f64 {
    if time.is_finite() { time.max(0.0) } else { 0.0 }
}

/// Appends the phases of runs. `time` sums what a function returns for each run.
pub(super) fn phases(out: &mut String, time: impl Fn(fn(&RunReport) -> f64) -> f64) {
    let phases = [
        ("Listing and planning", time(|run| run.seconds.plan)),
        ("Checks and duplicates", time(|run| run.seconds.prepare)),
        ("Converting", time(|run| run.seconds.convert)),
        ("Indexes and commit", time(|run| run.seconds.commit)),
        ("Total", time(|run| run.seconds.total)),
    ];
    pairs(out, phases.map(|(name, time)| (name, seconds(time))));
}

/// Appends the shares of the workers' time as a bar with a legend.
pub(super) fn worker_times(out: &mut String, times: &ActivityTimes, on: &str) {
    let stages = times.of_workers();
    let all: f64 = stages.iter().map(|stage| non_negative(stage.1)).sum();
    if all <= 0.0 {
        return;
    }
    let label: Vec<String> =
        stages.iter().map(|(name, time)| format!("{name} {}", percent(non_negative(*time) / all))).collect();
    out.push_str(&format!(
        "<p class=\"soft\">{} of work on {} while units were converted:</p>\n<div class=\"stack\"><svg viewBox=\"0 0 1000 22\" \
         preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">",
        seconds(all),
        escape(on),
        escape(&label.join(", "))
    ));
    let mut left = 0.0;
    for (number, (_, time)) in stages.iter().enumerate() {
        let width = non_negative(*time) / all * 1000.0;
        out.push_str(&format!(
            "<rect class=\"s{number}\" x=\"{left:.1}\" width=\"{width:.1}\" height=\"22\"/>"
        ));
        left += width;
    }
    out.push_str("</svg></div>\n<ul class=\"keys\">\n");
    for (number, (name, time)) in stages.iter().enumerate() {
        out.push_str(&format!(
            "<li><svg viewBox=\"0 0 12 12\" aria-hidden=\"true\"><rect class=\"s{number}\" width=\"12\" height=\"12\" rx=\"2\"/></svg>{name} {}, {}</li>\n",
            percent(non_negative(*time) / all),
            seconds(non_negative(*time))
        ));
    }
    out.push_str(&format!(
        "</ul>\n<p class=\"note\">In addition, {} passed until shards were durable, or uploaded to object storage.</p>\n",
        seconds(non_negative(times.sync))
    ));
}
