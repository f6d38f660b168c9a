//! Page section for a split.

use super::elements::{data, heading};
use super::{images, text};
use crate::numbers::{count, mean, percent, plural, share_of_whole};
use crate::report::escape::escape;
use crate::report::gather::{DatasetReport, SplitReport};
use crate::report::svg::{TRAINED_TITLE, TRAINED_UNIT, histogram, padding_curves, sizes};

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
    plots(out, split);
    if let Some(found) = &split.images {
        images::section(out, found);
    }
    if let Some(found) = &split.text {
        text::section(out, report, found);
    }
    out.push_str("</section>\n");
}

fn plots(out: &mut String, split: &SplitReport) {
    out.push_str("<div class=\"plots\">\n");
    let mut note = None;
    if let Some(found) = split.images.as_ref().filter(|found| !found.sizes.is_empty()) {
        out.push_str(&format!(
            "<div class=\"card\">{}</div>\n",
            sizes(&found.sizes, "Width and height").finish(None)
        ));
        card(out, &found.aspect, "Aspect ratio", ("width ÷ height", "image"), false);
        card(out, &found.bytes, "Record size", ("bytes", "record"), true);
        if (found.sizes.len() as u64) < split.info.records {
            note = Some(format!(
                "Width, height, aspect ratio and record size are those of a sample of {} records of {}.",
                count(found.sizes.len() as u64),
                count(split.info.records)
            ));
        }
    }
    match &split.lengths {
        Some(lengths) => {
            let (title, thing) = if split.images.is_some() { ("Pixels", "image") } else { ("Record length", "record") };
            card(out, lengths, title, (split.info.length.unit.name(), thing), true);
        }
        None => out.push_str(
            "<div class=\"card soft\"><p>Lengths and padding are left out: the length index cannot be read.</p></div>\n",
        ),
    }
    if let Some(trained) = split.text.as_ref().and_then(|found| found.trained.as_ref()) {
        card(out, &trained.shares, TRAINED_TITLE, (TRAINED_UNIT, "record"), false);
    }
    if let Some(padding) = split.text.as_ref().and_then(|found| found.padding.as_ref()) {
        let curves = [
            (&padding.by_records, "Padding by batch size", "records in a batch"),
            (&padding.by_tokens, "Padding by budget", "tokens in a batch"),
        ];
        let is_drawn = |points: &[(u64, [f64; 3])]| points.len() > 1;
        let has_plot = curves.iter().any(|(points, ..)| is_drawn(points));
        for (points, title, unit) in curves.into_iter().filter(|(points, ..)| is_drawn(points)) {
            out.push_str(&format!(
                "<div class=\"card\">{}",
                padding_curves(points, title, unit).finish(None)
            ));
            text::padding_data(out, points, unit);
            out.push_str("</div>\n");
        }
        let simulated = padding
            .simulated
            .map(|n| format!(" Random batches with a budget are simulated with {} records.", count(n)));
        note = has_plot.then(|| format!(
            "Padding is the share of a batch that holds no tokens, averaged over epochs: random batches pad to their longest record, bucketed \
             ones hold records of similar length, packed ones are rows of {} tokens (or of the token budget) filled by \
             best fit.{}",
            count(padding.row_tokens),
            simulated.unwrap_or_default()
        ));
    }
    if let Some(note) = note {
        out.push_str(&format!("<div class=\"card about\"><p class=\"note\">{note}</p></div>\n"));
    }
    out.push_str("</div>\n");
}

fn card(
    out: &mut String,
    found: &crate::report::histogram::Histogram,
    title: &str,
    (unit, thing): (&str, &str),
    whole: bool,
) {
    out.push_str(&format!(
        "<div class=\"card\">{}",
        histogram(found, title, unit, thing, whole).finish(None)
    ));
    data(out, found, unit, &format!("{thing}s"), whole);
    out.push_str("</div>\n");
}
