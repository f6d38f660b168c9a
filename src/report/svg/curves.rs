//! Plots of padding by batch size.

use super::{LEFT, Plot, PlotAxis};
use crate::numbers::{count, percent};
use crate::report::gather::Curves;

/// Horizontal positions of the legend entries.
const LEGEND: [f64; 3] = [244.0, 318.0, 402.0];

/// Draws the padding of random, bucketed and packed batches.
pub(in crate::report) fn padding_curves(points: &[(u64, [f64; 3])], title: &str, unit: &str) -> Plot {
    let values: Vec<u64> = points.iter().map(|point| point.0).collect();
    let highest = points.iter().flat_map(|point| point.1).fold(0.0, f64::max);
    let mut y = PlotAxis::linear(0.0, (highest * 100.0 * 1.1).clamp(1.0, 100.0));
    y.ticks.iter_mut().for_each(|tick| tick.1.push('%'));
    let x = PlotAxis::powers(&values, binary);
    let ends = points.last().map_or([0.0; 3], |point| point.1).map(percent);
    let named: Vec<String> =
        Curves::NAMES.iter().zip(ends).map(|(name, end)| format!("{name} {end}")).collect();
    let description =
        format!("At {} {unit}: {}.", count(values.last().copied().unwrap_or(0)), named.join(", "));
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
    plot
}

/// Formats a value as `64` or `4Ki`.
fn binary(value: u64) -> String {
    match value {
        v if v >= 1024 && v.is_multiple_of(1024) => format!("{}Ki", v / 1024),
        v => v.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_have_points_and_names() {
        let points = [(1, [0.0, 0.0, 0.1]), (32, [0.6, 0.05, 0.1])];
        let svg = padding_curves(&points, "Padding", "records").finish(None);
        assert_eq!(svg.matches("<circle").count(), 6);
        for part in ["random", "bucketed", "packed", "32 records, random: 60.0% padding", "60%"] {
            assert!(svg.contains(part), "{part}");
        }
        assert!(padding_curves(&[], "", "").finish(None).contains("</svg>"));
    }
}
