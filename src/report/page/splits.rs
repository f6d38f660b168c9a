//! Page section for a split.

use super::elements::heading;
use super::{images, text};
use crate::numbers::{count, mean, percent, plural, share_of_whole};
use crate::report::escape::escape;
use crate::report::gather::{DatasetReport, SplitReport};
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
    let [of_sizes, of_lengths, of_text] = plots_of(split);
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
    if let Some(padding) = split.text.as_ref().and_then(|found| found.padding.as_ref()) {
        let has_plot = padding.by_records.len().max(padding.by_tokens.len()) > 1;
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
