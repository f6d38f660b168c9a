//! The plots: sizes of images, histograms, padding by batch size, and all of them in one file.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{BOTTOM, HEIGHT, LEFT, Plot, PlotAxis, RIGHT, STYLE, TOP, WIDTH};
use crate::numbers::{count, percent, plural, share_of_whole, short};
use crate::report::escape::{clipped, escape};
use crate::report::gather::{Curves, DatasetReport, SplitReport};
use crate::report::histogram::{Bin, Histogram};

/// Side of a cell, in units of the view box. Images in the same cell share a dot.
const CELL: f64 = 7.0;
/// Radius of the largest dot.
const LARGEST: f64 = 11.0;
/// Radius of the dot of a single image.
const SMALLEST: f64 = 2.2;
/// Ratio of the largest to the smallest side above which the axes are logarithmic.
const LOGARITHMIC_RATIO: f64 = 12.0;

/// Images of similar size.
#[derive(Default)]
struct SizeCell {
    images: u64,
    width: u64,
    height: u64,
}

/// Draws the sizes of images in pixels. Images of similar size share a dot, whose area grows with their number. The axes
/// reach to the sizes `of_all` splits.
fn sizes(sizes: &[(u32, u32)], of_all: &[&[(u32, u32)]], title: &str) -> Plot {
    let sides = |side: fn(&(u32, u32)) -> u32, lists: &[&[(u32, u32)]]| {
        let all = || lists.iter().flat_map(|sizes| sizes.iter()).map(side);
        (f64::from(all().min().unwrap_or(0).max(1)), f64::from(all().max().unwrap_or(1).max(1)))
    };
    let both = |lists: &[&[(u32, u32)]]| (sides(|size| size.0, lists), sides(|size| size.1, lists));
    let described = both(&[sizes]);
    let (widths, heights) = both(of_all);
    let logarithmic = widths.1.max(heights.1) / widths.0.min(heights.0) > LOGARITHMIC_RATIO;
    let axis = |(least, most): (f64, f64)| match logarithmic {
        true => PlotAxis::logarithmic(least / 1.15, most * 1.15),
        false => PlotAxis::linear(0.0, most * 1.08),
    };
    let scale = if logarithmic { ", logarithmic" } else { "" };
    let description = format!(
        "Scatter plot of {}: {} to {} pixels wide, {} to {} pixels high.",
        plural(sizes.len() as u64, "image"),
        count(described.0.0 as u64),
        count(described.0.1 as u64),
        count(described.1.0 as u64),
        count(described.1.1 as u64)
    );
    let (x, y) = (axis(widths), axis(heights));
    let mut plot = Plot::new(
        title,
        &description,
        (x, &format!("width (pixels{scale})")),
        (y, &format!("height (pixels{scale})")),
    );
    draw_diagonal(&mut plot);
    let mut cells: BTreeMap<(i32, i32), SizeCell> = BTreeMap::new();
    for &(width, height) in sizes {
        let (column, row) = (plot.px(width.into()) / CELL, plot.py(height.into()) / CELL);
        let cell = cells.entry((column as i32, row as i32)).or_default();
        cell.images += 1;
        cell.width += u64::from(width);
        cell.height += u64::from(height);
    }
    let most = cells.values().map(|cell| cell.images).max().unwrap_or(1);
    // Large dots are drawn first, so that they do not hide smaller ones.
    let mut cells: Vec<SizeCell> = cells.into_values().collect();
    cells.sort_by_key(|cell| std::cmp::Reverse(cell.images));
    for cell in cells {
        let (width, height) =
            (cell.width as f64 / cell.images as f64, cell.height as f64 / cell.images as f64);
        // Dots are scaled by the fullest cell, but by at least 20 images, so that a few images stay small dots.
        let share = ((cell.images - 1) as f64 / (most.max(20) - 1) as f64).sqrt();
        let radius = SMALLEST + (LARGEST - SMALLEST) * share;
        let (x, y) = (plot.px(width), plot.py(height));
        plot.add(format_args!(
            "<circle class=\"dsc-dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\"><title>{:.0}×{:.0}: {}</title></circle>",
            width,
            height,
            plural(cell.images, "image")
        ));
    }
    plot
}

/// Draws a dashed line where width equals height.
fn draw_diagonal(plot: &mut Plot) {
    let (from, to) = (plot.x.from.max(plot.y.from), plot.x.to.min(plot.y.to));
    if from < to {
        let (x1, y1, x2, y2) = (plot.px(from), plot.py(from), plot.px(to), plot.py(to));
        plot.add(format_args!("<path class=\"dsc-guide\" d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\"/>"));
        if y2 > TOP + 24.0 || x2 > LEFT + 80.0 {
            let (x, y) = ((x2 - 6.0).max(LEFT + 44.0), (y2 + 4.0).clamp(TOP + 4.0, HEIGHT - BOTTOM));
            plot.text(x, y, "dsc-tick dsc-end", "square");
        }
    }
}

/// Horizontal positions of the legend entries.
const LEGEND: [f64; 3] = [244.0, 318.0, 402.0];

/// Padding by batch size: of random, bucketed and packed batches.
type PaddingPoints = [(u64, [f64; 3])];

/// Draws the padding of random, bucketed and packed batches. The axes reach to the points `of_all` splits.
fn padding_curves(points: &PaddingPoints, of_all: &[&PaddingPoints], title: &str, unit: &str) -> Plot {
    let mut values: Vec<u64> = of_all.iter().flat_map(|points| points.iter()).map(|point| point.0).collect();
    values.sort_unstable();
    values.dedup();
    let highest =
        of_all.iter().flat_map(|points| points.iter()).flat_map(|point| point.1).fold(0.0, f64::max);
    let mut y = PlotAxis::linear(0.0, (highest * 100.0 * 1.1).clamp(1.0, 100.0));
    y.ticks.iter_mut().for_each(|tick| tick.1.push('%'));
    let x = PlotAxis::powers(&values, binary);
    let ends = points.last().map_or([0.0; 3], |point| point.1).map(percent);
    let named: Vec<String> =
        Curves::NAMES.iter().zip(ends).map(|(name, end)| format!("{name} {end}")).collect();
    let description =
        format!("At {} {unit}: {}.", count(points.last().map_or(0, |point| point.0)), named.join(", "));
    let mut plot = Plot::new(title, &description, (x, &format!("{unit}, logarithmic")), (y, "padding"));
    for (series, name) in Curves::NAMES.iter().enumerate() {
        let of = |point: &(u64, [f64; 3])| point.1.get(series).copied().unwrap_or(0.0);
        let path: Vec<String> = points
            .iter()
            .map(|point| format!("{:.1} {:.1}", plot.px(point.0 as f64), plot.py(of(point) * 100.0)))
            .collect();
        plot.add(format_args!("<path class=\"dsc-line dsc-s{series}\" d=\"M{}\"/>", path.join("L")));
        for point in points {
            let (x, y) = (plot.px(point.0 as f64), plot.py(of(point) * 100.0));
            plot.add(format_args!(
                "<circle class=\"dsc-p{series}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.2\"><title>{} {unit}, {name}: {} padding</title></circle>",
                count(point.0),
                percent(of(point))
            ));
        }
        let x = LEGEND.get(series).copied().unwrap_or(LEFT);
        plot.add(format_args!("<path class=\"dsc-line dsc-s{series}\" d=\"M{x:.1} 18h14\"/>"));
        plot.text(x + 18.0, 22.0, "dsc-tick", name);
    }
    padding_data(&mut plot.numbers, points, unit);
    plot
}

/// Appends the numbers of a padding plot as a collapsed table.
fn padding_data(out: &mut String, points: &[(u64, [f64; 3])], unit: &str) {
    out.push_str(&format!(
        "<details class=\"data\"><summary>Numbers</summary><div class=\"scroll\" tabindex=\"0\"><table><thead><tr><th scope=\"col\">{unit}</th>"
    ));
    for name in Curves::NAMES {
        out.push_str(&format!("<th scope=\"col\" class=\"n\">{name}</th>"));
    }
    out.push_str("</tr></thead><tbody>\n");
    for (size, shares) in points {
        out.push_str(&format!("<tr><td>{}</td>", count(*size)));
        for share in shares {
            out.push_str(&format!("<td class=\"n\">{}</td>", percent(*share)));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div></details>\n");
}

/// Formats a value as `64` or `4Ki`.
fn binary(value: u64) -> String {
    match value {
        v if v >= 1024 && v.is_multiple_of(1024) => format!("{}Ki", v / 1024),
        v => v.to_string(),
    }
}

/// The horizontal axis of a histogram, which it shares with those of the other splits.
struct HistogramAxis {
    start: f64,
    end: f64,
    logarithmic: bool,
    /// Whether there is one value, which is a bar in the middle.
    single: bool,
}

impl HistogramAxis {
    fn of(histograms: &[&Histogram]) -> Self {
        let filled = || histograms.iter().filter(|histogram| !histogram.bins.is_empty());
        let logarithmic = filled().any(|histogram| histogram.logarithmic);
        let start = |histogram: &Histogram| {
            let first = histogram.bins.first().map_or(0.0, |bin| bin.from);
            // On a logarithmic axis, a first bin that starts at 0 is drawn as wide as the next one.
            match logarithmic && first <= 0.0 {
                true => histogram.bins.get(1).map_or(0.5, |bin| bin.from * bin.from / bin.to),
                false => first,
            }
        };
        let end = |histogram: &Histogram| histogram.bins.last().map_or(1.0, |bin| bin.to);
        let first = filled().map(|histogram| start(histogram)).reduce(f64::min);
        let last = filled().map(|histogram| end(histogram)).reduce(f64::max);
        Self {
            start: first.unwrap_or(0.0),
            end: last.unwrap_or(1.0),
            logarithmic,
            single: filled().count() == 1 && filled().all(|histogram| histogram.bins.len() == 1),
        }
    }

    fn axis(&self, whole: bool) -> PlotAxis {
        match (self.logarithmic, whole) {
            (true, _) => PlotAxis::logarithmic(self.start, self.end),
            (false, true) if self.single => {
                let room = (self.start / 50.0).ceil().max(3.0);
                PlotAxis::whole((self.start - room).max(0.0), self.end + room)
            }
            (false, true) => PlotAxis::whole(self.start, self.end),
            (false, false) => PlotAxis::linear(self.start, self.end),
        }
    }
}

/// Draws a histogram of `things` by value, on an axis for the histograms `of_all` splits. `unit` is the title of the
/// horizontal axis; `whole` values are integers.
fn histogram(
    histogram: &Histogram,
    of_all: &[&Histogram],
    title: &str,
    unit: &str,
    things: &str,
    whole: bool,
) -> Plot {
    let shared = HistogramAxis::of(of_all);
    let (start, x) = (shared.start, shared.axis(whole));
    let y = PlotAxis::whole(0.0, histogram.highest() as f64 * 1.06);
    let scale = if shared.logarithmic { ", logarithmic" } else { "" };
    let mode = histogram.bins.iter().max_by_key(|bin| bin.count);
    let description = format!(
        "Histogram of {}; median {} {unit}, most frequent {}.",
        plural(histogram.values, things),
        value(histogram.median, whole),
        mode.map_or_else(|| "none".to_owned(), |bin| range(bin, whole)),
    );
    let mut plot = Plot::new(title, &description, (x, &format!("{unit}{scale}")), (y, &format!("{things}s")));
    let bottom = HEIGHT - BOTTOM;
    for bin in histogram.bins.iter().filter(|bin| bin.count > 0) {
        let (left, right) = (plot.px(bin.from.max(start)), plot.px(bin.to));
        // Every non-empty bin is visible.
        let top = plot.py(bin.count as f64).min(bottom - 1.0);
        let gap = if right - left > 4.0 { 1.0 } else { 0.0 };
        plot.add(format_args!(
            "<rect class=\"dsc-bar\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>{} {unit}: {}</title></rect>",
            (right - left - gap).max(0.7),
            bottom - top,
            range(bin, whole),
            plural(bin.count, things)
        ));
    }
    if histogram.bins.len() > 1 {
        let at = plot.px(histogram.median.max(start));
        plot.add(format_args!("<path class=\"dsc-guide\" d=\"M{at:.1} {TOP}V{bottom:.1}\"/>"));
        // The label is placed on the side with more room.
        let (class, x) = if at < (LEFT + WIDTH - RIGHT) / 2.0 {
            ("dsc-tick", at + 5.0)
        } else {
            ("dsc-tick dsc-end", at - 5.0)
        };
        plot.text(x, TOP + 4.0, class, &format!("median {}", value(histogram.median, whole)));
    }
    data(&mut plot.numbers, histogram, unit, &format!("{things}s"), whole);
    plot
}

/// Appends the numbers of a histogram as a collapsed table.
fn data(out: &mut String, histogram: &Histogram, unit: &str, things: &str, whole: bool) {
    out.push_str("<details class=\"data\"><summary>Numbers</summary><div class=\"scroll\" tabindex=\"0\"><table><thead><tr>");
    out.push_str(&format!(
        "<th scope=\"col\">{unit}</th><th scope=\"col\" class=\"n\">{things}</th><th scope=\"col\" class=\"n\">share</th></tr></thead><tbody>\n"
    ));
    for bin in histogram.bins.iter().filter(|bin| bin.count > 0) {
        out.push_str(&format!(
            "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>\n",
            range(bin, whole),
            count(bin.count),
            escape(&share_of_whole(bin.count as f64 / histogram.values.max(1) as f64))
        ));
    }
    out.push_str("</tbody></table></div></details>\n");
}

/// Formats the range of a bin as `64–127`, `0.5–0.6` or `7`.
fn range(bin: &Bin, whole: bool) -> String {
    if whole {
        let (from, to) = (bin.from as u64, (bin.to as u64).saturating_sub(1));
        return if from >= to { count(from) } else { format!("{}–{}", count(from), count(to)) };
    }
    format!("{}–{}", short(bin.from), short(bin.to))
}

fn value(value: f64, whole: bool) -> String {
    if whole { count(value as u64) } else { short(value) }
}

/// Plots per row.
const COLUMNS: usize = 2;
/// Height of a heading.
const HEADING: f64 = 44.0;
/// Maximum number of characters of a name in a heading.
const NAME_CHARACTERS: usize = 60;

/// Returns the plots of the split with the ordinal `number`, in the order of the page: those of the sizes of images, of
/// lengths, and of text. The splits of a report share their horizontal axes, so that they can be compared.
pub(in crate::report) fn plots_of(splits: &[SplitReport], number: usize) -> [Vec<Plot>; 3] {
    let (mut of_sizes, mut of_lengths, mut of_text) = (Vec::new(), Vec::new(), Vec::new());
    let Some(split) = splits.get(number) else { return [of_sizes, of_lengths, of_text] };
    let images = || splits.iter().filter_map(|split| split.images.as_ref());
    if let Some(found) = split.images.as_ref().filter(|images| !images.sizes.is_empty()) {
        let all: Vec<&[(u32, u32)]> = images().map(|images| images.sizes.as_slice()).collect();
        of_sizes.push(sizes(&found.sizes, &all, "Width and height"));
        let all: Vec<&Histogram> = images().map(|images| &images.aspect).collect();
        of_sizes.push(histogram(&found.aspect, &all, "Aspect ratio", "width ÷ height", "image", false));
        let all: Vec<&Histogram> = images().map(|images| &images.bytes).collect();
        of_sizes.push(histogram(&found.bytes, &all, "Record size", "bytes", "record", true));
    }
    if let Some(lengths) = &split.lengths {
        let (title, thing) =
            if split.images.is_some() { ("Pixels", "image") } else { ("Record length", "record") };
        let all: Vec<&Histogram> = splits.iter().filter_map(|split| split.lengths.as_ref()).collect();
        of_lengths.push(histogram(lengths, &all, title, split.info.length.unit.name(), thing, true));
    }
    let text = || splits.iter().filter_map(|split| split.text.as_ref());
    if let Some(trained) = split.text.as_ref().and_then(|text| text.trained.as_ref()) {
        let unit = "% of the tokens of a record";
        let all: Vec<&Histogram> =
            text().filter_map(|text| text.trained.as_ref()).map(|trained| &trained.shares).collect();
        of_text.push(histogram(&trained.shares, &all, "Trained on", unit, "record", false));
    }
    if let Some(padding) = split.text.as_ref().and_then(|text| text.padding.as_ref()) {
        let all = || text().filter_map(|text| text.padding.as_ref());
        if padding.by_records.len() > 1 {
            let all: Vec<&PaddingPoints> = all().map(|padding| padding.by_records.as_slice()).collect();
            let title = "Padding by batch size";
            of_text.push(padding_curves(&padding.by_records, &all, title, "records in a batch"));
        }
        if padding.by_tokens.len() > 1 {
            let all: Vec<&PaddingPoints> = all().map(|padding| padding.by_tokens.as_slice()).collect();
            of_text.push(padding_curves(&padding.by_tokens, &all, "Padding by budget", "tokens in a batch"));
        }
    }
    [of_sizes, of_lengths, of_text]
}

/// Returns an SVG with the plots of all gathered splits: sizes and histograms of images, lengths and padding of text.
pub fn plots_svg(report: &DatasetReport) -> String {
    let mut body = String::new();
    let mut y = 0.0;
    let width = WIDTH * COLUMNS as f64;
    for (number, split) in report.splits.iter().enumerate() {
        let things = if report.manifest.schema.holds_images() { "image" } else { "record" };
        let _ = writeln!(
            body,
            "<text class=\"dsc-title\" x=\"8\" y=\"{:.0}\">{} · {} · {}</text>",
            y + 30.0,
            clipped(&report.name, NAME_CHARACTERS),
            clipped(&split.name, NAME_CHARACTERS),
            plural(split.info.records, things)
        );
        y += HEADING;
        let plots = plots_of(&report.splits, number).into_iter().flatten().collect::<Vec<_>>();
        for (i, plot) in plots.iter().enumerate() {
            let place = ((i % COLUMNS) as f64 * WIDTH, y + (i / COLUMNS) as f64 * HEIGHT);
            body.push_str(&plot.finish(Some(place)));
        }
        if plots.is_empty() {
            let _ = writeln!(body, "<text x=\"8\" y=\"{:.0}\">There is nothing to plot.</text>", y + 16.0);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn of_one(found: &[(u32, u32)]) -> Plot {
        sizes(found, &[found], "Sizes")
    }

    #[test]
    fn splits_share_their_axes() {
        let (large, small): (Vec<_>, Vec<_>) = (vec![(900, 600), (20, 30)], vec![(500, 500)]);
        let [a, b] = [&large, &small].map(|found| sizes(found, &[&large, &small], ""));
        assert_eq!((a.x.ticks, a.y.ticks), (b.x.ticks, b.y.ticks));
        // Alone, one would be logarithmic and the other linear.
        let (wide, narrow) =
            (Histogram::of(vec![0.0, 3.0, 9000.0], true), Histogram::of(vec![40.0, 50.0], true));
        assert!(wide.logarithmic && !narrow.logarithmic);
        let [a, b] =
            [&wide, &narrow].map(|found| histogram(found, &[&wide, &narrow], "", "tokens", "record", true));
        assert!(a.x.logarithmic && b.x.logarithmic && a.x.from > 0.0);
        assert_eq!((a.x.from, a.x.to, a.x.ticks), (b.x.from, b.x.to, b.x.ticks));
        let (many, few) =
            (vec![(1, [0.0; 3]), (64, [0.9, 0.1, 0.0])], vec![(1, [0.0; 3]), (4, [0.2, 0.1, 0.0])]);
        let [a, b] = [&many, &few].map(|found| padding_curves(found, &[&many, &few], "", ""));
        assert_eq!((a.x.ticks, a.y.ticks), (b.x.ticks, b.y.ticks));
    }

    #[test]
    fn images_of_one_size_share_a_dot() {
        let svg = of_one(&vec![(256, 256); 100_000]).finish(None);
        assert_eq!(svg.matches("<circle").count(), 1);
        assert!(svg.contains("256×256: 100,000 images"));
        let many: Vec<(u32, u32)> = (0..100_000).map(|i| (1 + i % 331, 1 + i / 331)).collect();
        assert!(of_one(&many).finish(None).len() < 600_000);
        assert!(of_one(&[(0, 0), (u32::MAX, 1)]).finish(None).contains("<circle"));
        assert_eq!(of_one(&[]).finish(None).matches("<circle").count(), 0);
    }
}

#[cfg(test)]
mod curves_tests {
    use super::*;

    #[test]
    fn curves_have_points_and_names() {
        let points = [(1, [0.0, 0.0, 0.1]), (32, [0.6, 0.05, 0.1])];
        let svg = padding_curves(&points, &[&points], "Padding", "records").finish(None);
        assert_eq!(svg.matches("<circle").count(), 6);
        for part in ["random", "bucketed", "packed", "32 records, random: 60.0% padding", "60%"] {
            assert!(svg.contains(part), "{part}");
        }
        assert!(padding_curves(&[], &[], "", "").finish(None).contains("</svg>"));
    }
}

#[cfg(test)]
mod bars_tests {
    use super::*;

    #[test]
    fn each_bin_with_records_has_a_bar() {
        let found = Histogram::of(vec![1.0, 2.0, 2.0, 900.0], true);
        let svg = histogram(&found, &[&found], "Lengths", "tokens", "record", true).finish(None);
        assert_eq!(svg.matches("dsc-bar").count(), found.bins.iter().filter(|b| b.count > 0).count());
        assert!(svg.contains("tokens, logarithmic") && svg.contains("median 2"));
        let empty = histogram(&Histogram::default(), &[], "Lengths", "tokens", "record", true).finish(None);
        assert_eq!(empty.matches("dsc-bar").count(), 0);
    }

    #[test]
    fn shares_of_bins_are_neither_rounded_to_all_nor_to_nothing() {
        let mut out = String::new();
        let histogram = Histogram::new(&[(1.0, 3000), (2.0, 1)], true);
        data(&mut out, &histogram, "tokens", "records", true);
        assert!(out.contains(">&gt;99.9%<") && out.contains(">&lt;0.1%<"), "{out}");
    }
}
