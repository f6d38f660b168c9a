//! Histogram plots.

use super::{BOTTOM, HEIGHT, LEFT, Plot, PlotAxis, RIGHT, TOP, WIDTH};
use crate::numbers::{count, plural, short};
use crate::report::histogram::{Bin, Histogram};

/// Draws a histogram of `things` by value. `unit` is the title of the horizontal axis; `whole` values are integers.
pub(in crate::report) fn histogram(
    histogram: &Histogram,
    title: &str,
    unit: &str,
    things: &str,
    whole: bool,
) -> Plot {
    let first = histogram.bins.first().map_or(0.0, |bin| bin.from);
    let last = histogram.bins.last().map_or(1.0, |bin| bin.to);
    // On a logarithmic axis, a first bin that starts at 0 is drawn as wide as the next one.
    let start = match histogram.logarithmic && first <= 0.0 {
        true => histogram.bins.get(1).map_or(0.5, |bin| bin.from * bin.from / bin.to),
        false => first,
    };
    let x = match (histogram.logarithmic, whole) {
        (true, _) => PlotAxis::logarithmic(start, last),
        // A single value is a bar in the middle.
        (false, true) if histogram.bins.len() == 1 => {
            let room = (first / 50.0).ceil().max(3.0);
            PlotAxis::whole((first - room).max(0.0), last + room)
        }
        (false, true) => PlotAxis::whole(first, last),
        (false, false) => PlotAxis::linear(first, last),
    };
    let y = PlotAxis::whole(0.0, histogram.highest() as f64 * 1.06);
    let scale = if histogram.logarithmic { ", logarithmic" } else { "" };
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
    plot
}

/// Formats the range of a bin as `64–127`, `0.5–0.6` or `7`.
pub(in crate::report) fn range(bin: &Bin, whole: bool) -> String {
    if whole {
        let (from, to) = (bin.from as u64, (bin.to as u64).saturating_sub(1));
        return if from >= to { count(from) } else { format!("{}–{}", count(from), count(to)) };
    }
    format!("{}–{}", short(bin.from), short(bin.to))
}

fn value(value: f64, whole: bool) -> String {
    if whole { count(value as u64) } else { short(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bin_with_records_has_a_bar() {
        let found = Histogram::of(vec![1.0, 2.0, 2.0, 900.0], true);
        let svg = histogram(&found, "Lengths", "tokens", "record", true).finish(None);
        assert_eq!(svg.matches("dsc-bar").count(), found.bins.iter().filter(|b| b.count > 0).count());
        assert!(svg.contains("tokens, logarithmic") && svg.contains("median 2"));
        let empty = histogram(&Histogram::default(), "Lengths", "tokens", "record", true).finish(None);
        assert_eq!(empty.matches("dsc-bar").count(), 0);
    }
}
