//! Page sections about the dataset as a whole.

use serde_json::Value;

use super::elements::{heading, numbers, pairs};
use crate::numbers::{bytes, count, plural, up_to_three_digits};
use crate::report::escape::{clipped, escape};
use crate::report::gather::{DatasetReport, Problems};
use crate::schema::{Kind, LengthUnit};

/// Maximum number of rows in a table of splits, fields or options.
pub(super) const MAX_ROWS: usize = 200;

/// Returns the total records, shards, bytes and lengths of all splits in the manifest.
fn totals(report: &DatasetReport) -> (u64, u64, u64, u64) {
    report.manifest.splits.values().fold((0, 0, 0, 0), |sum, split| {
        (
            sum.0.saturating_add(split.records),
            sum.1.saturating_add(split.shards),
            sum.2.saturating_add(split.bytes),
            sum.3.saturating_add(split.length.total),
        )
    })
}

/// Returns one line about the dataset.
pub(super) fn lead(report: &DatasetReport) -> String {
    let manifest = &report.manifest;
    let kind = match manifest.kind() {
        Kind::Images => "Image dataset",
        Kind::Text => "Text dataset",
        Kind::Records => "Dataset of records",
    };
    format!("{kind} in {} shards, written by dsconvert {}", manifest.format, manifest.dsconvert)
}

/// Returns the tiles at the top of the page: names and values.
pub(super) fn tiles(report: &DatasetReport) -> Vec<(&'static str, String)> {
    let manifest = &report.manifest;
    let (records, shards, size, length) = totals(report);
    let mut tiles = vec![("Records", count(records)), ("Size", bytes(size)), ("Shards", count(shards))];
    if manifest.schema.label_field().is_some() {
        tiles.push(("Classes", count(manifest.schema.class_names.len() as u64)));
    }
    let short = crate::numbers::short(length as f64);
    tiles.push(match manifest.schema.length_unit() {
        LengthUnit::Tokens => ("Tokens", if length < 1_000_000 { count(length) } else { short }),
        LengthUnit::Pixels => ("Pixels", short),
        LengthUnit::Bytes => ("Bytes", short),
    });
    tiles.push(("Items found", count(manifest.counts.found)));
    for (name, value) in [
        ("Rejected", manifest.counts.rejected),
        ("Filtered", manifest.counts.filtered),
        ("Duplicates", manifest.counts.duplicates),
    ] {
        if value > 0 || name == "Rejected" {
            tiles.push((name, count(value)));
        }
    }
    tiles
}

pub(super) fn header(out: &mut String, report: &DatasetReport, has_run: bool) {
    out.push_str(&format!("<header>\n<h1><bdi>{}</bdi></h1>\n", escape(&report.name)));
    out.push_str(&format!("<p class=\"lead\">{}</p>\n", escape(&lead(report))));
    out.push_str("<nav aria-label=\"Sections\"><ul>\n");
    for (number, split) in report.splits.iter().enumerate() {
        out.push_str(&format!(
            "<li><a href=\"#split-{number}\">Split <bdi>{}</bdi></a></li>\n",
            clipped(&split.name, 40)
        ));
    }
    let mut link = |id: &str, name: &str| out.push_str(&format!("<li><a href=\"#{id}\">{name}</a></li>\n"));
    if !report.rejects.is_empty() {
        link("rejects", "Rejects");
    }
    link("fields", "Fields");
    link("options", "Options");
    if has_run {
        link("run", "Run");
    }
    out.push_str("</ul></nav>\n</header>\n");
    numbers(out, &tiles(report));
}

pub(super) fn problems(out: &mut String, report: &DatasetReport) {
    let Problems { listed, more, .. } = &report.problems;
    if listed.is_empty() {
        return;
    }
    out.push_str("<section class=\"card warn\" aria-label=\"Problems\">\n<h3>Parts of the dataset cannot be read</h3>\n<ul>\n");
    for problem in listed {
        out.push_str(&format!("<li>{}</li>\n", clipped(problem, 600)));
    }
    if *more > 0 {
        out.push_str(&format!("<li>and {}</li>\n", plural(*more, "more problem")));
    }
    out.push_str("</ul>\n<p class=\"note\">The numbers below leave these parts out. <code>dsconvert inspect --verify</code> checks every record.</p>\n</section>\n");
}

pub(super) fn split_table(out: &mut String, report: &DatasetReport) {
    let manifest = &report.manifest;
    let unit = manifest.schema.length_unit().name();
    out.push_str("<section class=\"card\" aria-label=\"Splits\">\n<div class=\"scroll\" tabindex=\"0\"><table><thead><tr><th scope=\"col\">Split</th>");
    for name in ["records", "shards", "size", "found", "rejected"] {
        out.push_str(&format!("<th scope=\"col\" class=\"n\">{name}</th>"));
    }
    out.push_str(&format!(
        "<th scope=\"col\" class=\"n\">median {unit}</th><th scope=\"col\" class=\"n\">99% up to</th></tr></thead><tbody>\n"
    ));
    for (name, split) in manifest.splits.iter().take(MAX_ROWS) {
        let length = |value: u64| if split.records > 0 { count(value) } else { "–".to_owned() };
        out.push_str(&format!(
            "<tr><th scope=\"row\"><bdi>{}</bdi></th><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>\n",
            clipped(name, 80),
            count(split.records),
            count(split.shards),
            bytes(split.bytes),
            count(split.counts.found),
            count(split.counts.rejected),
            length(split.length.p50),
            length(split.length.p99),
        ));
    }
    out.push_str("</tbody></table></div>\n");
    let hidden = manifest.splits.len().saturating_sub(MAX_ROWS);
    if hidden > 0 {
        out.push_str(&format!(
            "<p class=\"note\">{} are not listed.</p>\n",
            plural(hidden as u64, "more split")
        ));
    }
    if report.splits.len() < manifest.splits.len() {
        out.push_str(&format!(
            "<p class=\"note\">Details follow for {} of {} splits; <code>dsconvert inspect --html FILE --split NAME</code> chooses another.</p>\n",
            report.splits.len(),
            count(manifest.splits.len() as u64)
        ));
    }
    out.push_str("</section>\n");
}

pub(super) fn rejects(out: &mut String, report: &DatasetReport) {
    if report.rejects.is_empty() {
        return;
    }
    heading(out, "rejects", "Rejects");
    let found = report.manifest.counts.found.max(1);
    for (number, reject) in report.rejects.iter().take(MAX_ROWS).enumerate() {
        let open = if number < 3 { " open" } else { "" };
        out.push_str(&format!(
            "<details class=\"card\"{open}><summary>{}: {} ({}% of the items found)</summary>\n",
            clipped(&reject.code, 80),
            count(reject.count),
            up_to_three_digits(reject.count as f64 / found as f64 * 100.0)
        ));
        if reject.examples.is_empty() {
            out.push_str("<p class=\"soft\">The list of rejects has no example that can be read.</p>");
        } else {
            out.push_str("<table class=\"wide\"><thead><tr><th scope=\"col\">item</th><th scope=\"col\">reason</th></tr></thead><tbody>\n");
            for (origin, message) in &reject.examples {
                out.push_str(&format!(
                    "<tr><td><bdi>{}</bdi></td><td><bdi>{}</bdi></td></tr>\n",
                    clipped(origin, 200),
                    clipped(message, 400)
                ));
            }
            out.push_str("</tbody></table>\n");
        }
        out.push_str("</details>\n");
    }
}

pub(super) fn schema(out: &mut String, report: &DatasetReport) {
    let schema = &report.manifest.schema;
    heading(out, "fields", "Fields");
    out.push_str("<section class=\"card\">\n");
    let rows = schema.fields.iter().take(MAX_ROWS).map(|field| {
        let missing = if field.nullable { ", may be missing" } else { "" };
        (field.name.clone(), format!("{}{missing}", field.ty.name()))
    });
    pairs(out, rows);
    if schema.fields.len() > MAX_ROWS {
        out.push_str(&format!(
            "<p class=\"note\">and {} more</p>\n",
            count((schema.fields.len() - MAX_ROWS) as u64)
        ));
    }
    out.push_str("</section>\n");
}

pub(super) fn options(out: &mut String, report: &DatasetReport) {
    let manifest = &report.manifest;
    heading(out, "options", "Options and sources");
    out.push_str("<div class=\"pair\">\n<section class=\"card\">\n<h3>Options</h3>\n");
    table_of(out, &manifest.options);
    out.push_str("</section>\n<div>\n<section class=\"card\">\n<h3>Sources</h3>\n");
    let labels: Vec<&str> = manifest.sources.labels.iter().take(20).map(String::as_str).collect();
    let more = manifest.sources.labels.len().saturating_sub(labels.len());
    let labels = format!(
        "{}{}",
        labels.join(", "),
        if more > 0 { format!(" and {more} more") } else { String::new() }
    );
    pairs(
        out,
        [
            ("labels", labels),
            ("files", count(manifest.sources.files)),
            ("bytes", bytes(manifest.sources.bytes)),
            ("other files skipped", count(manifest.sources.skipped)),
            ("fingerprint", manifest.fingerprint.clone()),
        ],
    );
    out.push_str("</section>\n");
    if !manifest.notes.is_empty() {
        out.push_str("<section class=\"card\">\n<h3>Notes</h3>\n");
        pairs(
            out,
            manifest.notes.iter().take(MAX_ROWS).map(|(name, n)| (crate::report::note_name(name), count(*n))),
        );
        out.push_str("</section>\n");
    }
    if let Some(tokenizer) = &manifest.tokenizer {
        out.push_str("<section class=\"card\">\n<h3>Tokenizer</h3>\n");
        table_of(out, tokenizer);
        out.push_str("</section>\n");
    }
    out.push_str("</div>\n</div>\n");
}

/// Appends a table of the members of an object, with nested names joined by dots. Null members are omitted.
pub(super) fn table_of(out: &mut String, value: &Value) {
    let mut rows = Vec::new();
    flatten("", value, 0, &mut rows);
    let more = rows.len().saturating_sub(MAX_ROWS);
    rows.truncate(MAX_ROWS);
    if rows.is_empty() {
        out.push_str("<p class=\"soft\">none</p>\n");
        return;
    }
    pairs(out, rows);
    if more > 0 {
        out.push_str("<p class=\"note\">More are in the manifest.</p>\n");
    }
}

fn flatten(name: &str, value: &Value, depth: usize, rows: &mut Vec<(String, String)>) {
    /// Maximum depth of joined names.
    const MAX_DEPTH: usize = 8;
    if rows.len() > MAX_ROWS {
        return;
    }
    match value {
        Value::Null => {}
        Value::Object(members) if depth < MAX_DEPTH => {
            for (member, value) in members {
                let joined = if name.is_empty() { member.clone() } else { format!("{name}.{member}") };
                flatten(&joined, value, depth + 1, rows);
            }
        }
        Value::String(text) => rows.push((name.to_owned(), text.clone())),
        other => rows.push((name.to_owned(), other.to_string())),
    }
}

pub(super) fn footer(out: &mut String, report: &DatasetReport) {
    out.push_str(&format!(
        "<footer>Made by <code>dsconvert inspect --html</code> {}; examples are chosen with seed {}.</footer>\n",
        env!("CARGO_PKG_VERSION"),
        report.seed
    ));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn options_are_rows_with_joined_names() {
        let mut rows = Vec::new();
        flatten("", &json!({"a": {"b": 1, "c": null}, "d": "<x>", "e": [1, 2]}), 0, &mut rows);
        let expected = [("a.b", "1"), ("d", "<x>"), ("e", "[1,2]")];
        assert!(rows.iter().map(|(n, v)| (n.as_str(), v.as_str())).eq(expected));
        let mut out = String::new();
        table_of(&mut out, &Value::Object((0..100_000).map(|i| (i.to_string(), json!("<b>"))).collect()));
        assert!(out.len() < 60_000 && !out.contains("<b>") && out.contains("More are in the manifest"));
    }
}
