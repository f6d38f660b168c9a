//! The HTML page of a dataset, one self-contained file without scripts, and the summary for notebooks.

mod classes;
mod elements;
mod images;
mod overview;
mod run;
mod runs;
mod splits;
mod text;

use sha2::{Digest, Sha256};

use self::images::contact_sheet;
use self::overview::{lead, tiles};
use super::escape::{clipped, escape};
use super::gather::DatasetReport;
use super::run::RunReport;
use super::svg::{self, plots_of};
use crate::numbers::{bytes, count};
use crate::source::io::base64;

/// Style of the page; the style of the plots is appended to it.
const STYLE: &str = include_str!("style.css");

/// Returns the HTML page of `report`, with the run reports of its conversion: one, or those of its parts.
///
/// The page loads nothing: pictures are `data:` URLs. Its content security policy allows no other pictures, and only
/// the style sheet whose hash it names.
pub fn page_html(report: &DatasetReport, runs: &[RunReport]) -> String {
    let style = format!("{STYLE}{}", svg::STYLE);
    let mut body = String::new();
    overview::header(&mut body, report, !runs.is_empty());
    overview::problems(&mut body, report);
    overview::split_table(&mut body, report);
    classes::section(&mut body, report);
    for (number, split) in report.splits.iter().enumerate() {
        splits::section(&mut body, report, split, number);
    }
    overview::rejects(&mut body, report);
    overview::schema(&mut body, report);
    overview::options(&mut body, report);
    match runs {
        [] => {}
        [run] => run::section(&mut body, report, run),
        runs => runs::section(&mut body, report, runs),
    }
    overview::footer(&mut body, report);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-{}'; img-src data:; \
         base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>{} – dsconvert</title>\n<style>{style}</style>\n</head>\n<body>\n<main>\n\
         {body}</main>\n</body>\n</html>\n",
        base64::encode(&Sha256::digest(style.as_bytes())),
        escape(&report.name),
    )
}

/// Maximum number of splits, fields and problems to list.
const MAX_ROWS: usize = 20;

/// Style of the summary. Colors derive from the text color of the notebook, whose theme may differ from the system's.
const SUMMARY_STYLE: &str = include_str!("summary.css");

/// Returns a compact description of a dataset as an HTML fragment, for `_repr_html_` in notebooks.
pub fn summary_html(report: &DatasetReport) -> String {
    let manifest = &report.manifest;
    let mut out = format!("<div class=\"dsc-summary\">\n<style>{}{SUMMARY_STYLE}</style>\n", svg::STYLE);
    out.push_str(&format!(
        "<p><strong><bdi>{}</bdi></strong><br><span>{}</span></p>\n",
        escape(&report.name),
        escape(&lead(report))
    ));
    let facts: Vec<String> = tiles(report)
        .iter()
        .map(|(name, value)| format!("<span>{} <b>{}</b></span>", escape(name), escape(value)))
        .collect();
    out.push_str(&format!("<p class=\"dsc-facts\">{}</p>\n", facts.join(" ")));
    out.push_str(
        "<table><thead><tr><th>split</th><th>records</th><th>shards</th><th>size</th></tr></thead><tbody>\n",
    );
    for (name, split) in manifest.splits.iter().take(MAX_ROWS) {
        out.push_str(&format!(
            "<tr><td><bdi>{}</bdi></td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
            clipped(name, 60),
            count(split.records),
            count(split.shards),
            bytes(split.bytes)
        ));
    }
    out.push_str("</tbody></table>\n");
    let fields: Vec<String> = manifest
        .schema
        .fields
        .iter()
        .take(MAX_ROWS)
        .map(|field| {
            format!("<code><bdi>{}</bdi></code> {}", clipped(&field.name, 40), escape(&field.ty.name()))
        })
        .collect();
    let more = manifest.schema.fields.len().saturating_sub(MAX_ROWS);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    out.push_str(&format!("<p>{}{more}</p>\n", fields.join(", ")));
    for problem in report.problems.listed.iter().take(MAX_ROWS) {
        out.push_str(&format!("<p role=\"alert\">{}</p>\n", clipped(problem, 300)));
    }
    for (number, split) in report.splits.iter().enumerate() {
        if let Some(images) = split.images.as_ref().filter(|images| !images.thumbnails.is_empty()) {
            contact_sheet(&mut out, &images.thumbnails);
        }
        for plot in plots_of(&report.splits, number).iter().flatten().take(1) {
            out.push_str(&plot.finish(None));
        }
    }
    out.push_str("</div>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn styles_and_markup_satisfy_the_content_security_policy() {
        // A closing tag would end the `style` element.
        assert!(!STYLE.contains("</") && !svg::STYLE.contains("</"));
        // A policy without 'unsafe-inline' forbids style attributes.
        for source in [
            include_str!("classes.rs"),
            include_str!("elements.rs"),
            include_str!("splits.rs"),
            include_str!("images.rs"),
            include_str!("run.rs"),
            include_str!("runs.rs"),
            include_str!("text.rs"),
        ] {
            assert!(!source.contains(concat!("sty", "le=")));
        }
    }
}
