//! Page section for a split.

use super::elements::heading;
use super::{images, text};
use crate::numbers::{count, mean, percent, plural, share_of_whole};
use crate::report::escape::escape;
use crate::report::gather::{Curves, DatasetReport, SplitReport};
use crate::report::svg::{Plot, plots_of};

pub(super) fn section(out: &mut String, report: &DatasetReport, split: &SplitReport, number: usize) {
    out.push_str("<section>\n");
    heading(out, &format!("split-{number}"), &format!("Split {}", split.name));
    if split.info.records == 0 {
        out.push_str("<p class=\"card soft\">The split has no records.</p>\n</section>\n");
        return;
    }
    let length = &split.info.length;
    out.push_str(&format!(
        "<p class=\"soft\">{}; {} {} to {}, mean {}, median {}, 90% up to {}, 99% up to {}.</p>\n",
        plural(split.info.records, "record"),
        length.unit.name(),
        count(length.min),
        count(length.max),
        mean(length.mean),
        count(length.p50),
        count(length.p90),
        count(length.p99)
    ));
    if let Some(trained) = split.text.as_ref().and_then(|found| found.trained.as_ref()) {
        let found = &trained.summary;
        let without = match found.records_without {
            0 => String::new(),
            none => format!("; {} without any", plural(none, "record")),
        };
        out.push_str(&format!(
            "<p class=\"soft\">{} of {} trained on ({}); of a record: median {}, 10% up to {}, 90% up to {}{without}.</p>\n",
            count(found.tokens),
            plural(length.total, "token"),
            escape(&share_of_whole(found.share)),
            percent(found.share_p50),
            percent(found.share_p10),
            percent(found.share_p90)
        ));
    }
    plots(out, report, number);
    if let Some(found) = &split.images {
        images::section(out, found);
    }
    if let Some(found) = &split.text {
        text::section(out, report, found);
    }
    out.push_str("</section>\n");
}

fn plots(out: &mut String, report: &DatasetReport, number: usize) {
    let Some(split) = report.splits.get(number) else { return };
    out.push_str("<div class=\"plots\">\n");
    let [of_sizes, of_lengths, of_text] = plots_of(&report.splits, number);
    let card = |out: &mut String, plot: &Plot| {
        out.push_str(&format!("<div class=\"card\">{}{}</div>\n", plot.finish(None), plot.numbers));
    };
    of_sizes.iter().chain(&of_lengths).for_each(|plot| card(out, plot));
    if of_lengths.is_empty() {
        out.push_str(
            "<div class=\"card soft\"><p>Lengths and padding are left out: the length index cannot be read.</p></div>\n",
        );
    }
    of_text.iter().for_each(|plot| card(out, plot));
    let sampled = split.images.as_ref().map_or(0, |found| found.sizes.len() as u64);
    let mut note = (sampled > 0 && sampled < split.info.records).then(|| {
        format!(
            "Width, height, aspect ratio and record size are those of a sample of {} records of {}.",
            count(sampled),
            count(split.info.records)
        )
    });
    let mut table = String::new();
    if let Some(padding) = split.text.as_ref().and_then(|found| found.padding.as_ref()) {
        let ends = [("records", &padding.by_records), ("tokens", &padding.by_tokens)]
            .map(|(unit, points)| Some((unit, points.last().filter(|_| points.len() > 1)?)));
        table = padding_table(&ends);
        let simulated = padding
            .simulated
            .map(|n| format!(" Random batches with a budget are simulated with {} records.", count(n)));
        note = (!table.is_empty()).then(|| format!(
            "Padding is the share of a batch that holds no tokens, averaged over epochs: random batches pad to their longest record, bucketed \
             ones hold records of similar length, packed ones are rows of {} tokens (or of the token budget) filled by \
             best fit.{}",
            count(padding.row_tokens),
            simulated.unwrap_or_default()
        ));
    }
    if let Some(note) = note {
        out.push_str(&format!("<div class=\"card about\">{table}<p class=\"note\">{note}</p></div>\n"));
    }
    out.push_str("</div>\n");
}

/// The padding of the largest batch of a curve, with its unit.
type LargestBatch<'a> = Option<(&'static str, &'a (u64, [f64; 3]))>;

/// Returns a table of the padding of the largest batches; empty without any.
fn padding_table(ends: &[LargestBatch<'_>]) -> String {
    let rows: String = ends
        .iter()
        .flatten()
        .map(|(unit, (size, padding))| {
            let cells: String =
                padding.iter().map(|share| format!("<td class=\"n\">{}</td>", percent(*share))).collect();
            format!("<tr><th scope=\"row\">{} {unit}</th>{cells}</tr>\n", count(*size))
        })
        .collect();
    if rows.is_empty() {
        return rows;
    }
    let names: String =
        Curves::NAMES.iter().map(|name| format!("<th scope=\"col\" class=\"n\">{name}</th>")).collect();
    format!(
        "<h3>Padding of the largest batches</h3>\n<table><thead><tr><th scope=\"col\">batch of</th>{names}</tr></thead><tbody>\n{rows}</tbody></table>\n"
    )
}
