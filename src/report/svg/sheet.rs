//! All plots of a dataset in one SVG file.

use std::fmt::Write;

use super::{HEIGHT, Plot, STYLE, WIDTH, histogram, padding_curves, sizes};
use crate::numbers::plural;
use crate::report::escape::{clipped, escape};
use crate::report::gather::{DatasetReport, SplitReport};

/// Plots per row.
const COLUMNS: usize = 2;
/// Height of a heading.
const HEADING: f64 = 44.0;
/// Maximum number of characters of a name in a heading.
const NAME_CHARACTERS: usize = 60;

/// Returns the plots of a split, in the order of the page.
pub(in crate::report) fn plots_of(split: &SplitReport) -> Vec<Plot> {
    let mut plots = Vec::new();
    if let Some(images) = &split.images {
        if !images.sizes.is_empty() {
            plots.push(sizes(&images.sizes, "Width and height"));
            plots.push(histogram(&images.aspect, "Aspect ratio", "width ÷ height", "image", false));
            plots.push(histogram(&images.bytes, "Record size", "bytes", "record", true));
        }
        if let Some(lengths) = &split.lengths {
            plots.push(histogram(lengths, "Pixels", "pixels", "image", true));
        }
    } else if let Some(lengths) = &split.lengths {
        plots.push(histogram(lengths, "Record length", split.info.length.unit.name(), "record", true));
    }
    if let Some(padding) = split.text.as_ref().and_then(|text| text.padding.as_ref()) {
        if padding.by_records.len() > 1 {
            plots.push(padding_curves(&padding.by_records, "Padding by batch size", "records in a batch"));
        }
        if padding.by_tokens.len() > 1 {
            plots.push(padding_curves(&padding.by_tokens, "Padding by budget", "tokens in a batch"));
        }
    }
    plots
}

/// Returns an SVG with the plots of all gathered splits: sizes and histograms of images, lengths and padding of text.
pub fn plots_svg(report: &DatasetReport) -> String {
    let mut body = String::new();
    let mut y = 0.0;
    let width = WIDTH * COLUMNS as f64;
    for split in &report.splits {
        let things = if report.manifest.schema.holds_images() { "image" } else { "record" };
        let _ = writeln!(
            body,
            "<text class=\"dsc-title\" x=\"16\" y=\"{:.0}\">{} · {} · {}</text>",
            y + 30.0,
            clipped(&report.name, NAME_CHARACTERS),
            clipped(&split.name, NAME_CHARACTERS),
            plural(split.info.records, things)
        );
        y += HEADING;
        let plots = plots_of(split);
        for (i, plot) in plots.iter().enumerate() {
            let place = ((i % COLUMNS) as f64 * WIDTH, y + (i / COLUMNS) as f64 * HEIGHT);
            body.push_str(&plot.finish(Some(place)));
        }
        if plots.is_empty() {
            let _ = writeln!(body, "<text x=\"16\" y=\"{:.0}\">There is nothing to plot.</text>", y + 16.0);
        }
        y += (plots.len().div_ceil(COLUMNS) as f64 * HEIGHT).max(HEADING);
    }
    let label = escape(&format!("Plots of {}: {}", report.name, plural(report.splits.len() as u64, "split")));
    format!(
        "<svg class=\"dsc-plot dsc-sheet\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {y:.0}\" width=\"{width}\" \
         height=\"{y:.0}\" role=\"img\" aria-label=\"{label}\">\n<title>{label}</title>\n<style>{STYLE}\
         .dsc-sheet {{ background: #fff; }} @media (prefers-color-scheme: dark) {{ .dsc-sheet {{ background: #14171c; }} }}\n\
         </style>\n{body}</svg>\n"
    )
}
