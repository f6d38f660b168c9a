//! Summary of a dataset for notebooks.

use super::elements::add;
use super::images::contact_sheet;
use super::overview::{lead, tiles};
use crate::numbers::{bytes, count};
use crate::report::escape::{clipped, escape};
use crate::report::gather::DatasetReport;
use crate::report::svg::{self, plots_of};

/// Maximum number of splits, fields and problems to list.
const MAX_ROWS: usize = 20;

/// Style of the summary. Colors derive from the text color of the notebook, whose theme may differ from the system's.
const STYLE: &str = include_str!("summary.css");

/// Returns a compact description of a dataset as an HTML fragment, for `_repr_html_` in notebooks.
pub fn summary_html(report: &DatasetReport) -> String {
    let manifest = &report.manifest;
    let mut out = format!("<div class=\"dsc-summary\">\n<style>{}{STYLE}</style>\n", svg::STYLE);
    add(
        &mut out,
        format_args!(
            "<p><strong><bdi>{}</bdi></strong><br><span>{}</span></p>\n",
            escape(&report.name),
            escape(&lead(report))
        ),
    );
    let facts: Vec<String> = tiles(report)
        .iter()
        .map(|(name, value)| format!("<span>{} <b>{}</b></span>", escape(name), escape(value)))
        .collect();
    add(&mut out, format_args!("<p class=\"dsc-facts\">{}</p>\n", facts.join(" ")));
    out.push_str(
        "<table><thead><tr><th>split</th><th>records</th><th>shards</th><th>size</th></tr></thead><tbody>\n",
    );
    for (name, split) in manifest.splits.iter().take(MAX_ROWS) {
        add(
            &mut out,
            format_args!(
                "<tr><td><bdi>{}</bdi></td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                clipped(name, 60),
                count(split.records),
                count(split.shards),
                bytes(split.bytes)
            ),
        );
    }
    out.push_str("</tbody></table>\n");
    let fields: Vec<String> = manifest
        .schema
        .fields
        .iter()
        .take(MAX_ROWS)
        .map(|field| {
            format!("<code><bdi>{}</bdi></code> {}", clipped(&field.name, 40), escape(field.ty.name()))
        })
        .collect();
    let more = manifest.schema.fields.len().saturating_sub(MAX_ROWS);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    add(&mut out, format_args!("<p>{}{more}</p>\n", fields.join(", ")));
    for problem in report.problems.listed.iter().take(MAX_ROWS) {
        add(&mut out, format_args!("<p role=\"alert\">{}</p>\n", clipped(problem, 300)));
    }
    for split in &report.splits {
        if let Some(images) = split.images.as_ref().filter(|images| !images.thumbnails.is_empty()) {
            contact_sheet(&mut out, &images.thumbnails);
        }
        for plot in plots_of(split).iter().take(1) {
            out.push_str(&plot.finish(None));
        }
    }
    out.push_str("</div>\n");
    out
}
