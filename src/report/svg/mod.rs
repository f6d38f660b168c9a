//! SVG plots with axes, units and titles.
//!
//! All plots of a page have the same size, so that they fit side by side on a desktop and below each other on a phone.
//! Colors are CSS classes with a dark variant.

mod plots;

use std::fmt::{self, Write};

pub(super) use self::plots::plots_of;
pub use self::plots::plots_svg;
use super::escape::escape;
use super::histogram::nice_step;
use crate::numbers::short;

/// Size of a plot in units of its view box.
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 300.0;
/// Start of the title, in line with those of the other cards of a page.
const TITLE: f64 = 8.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 48.0;

/// Style of the CSS classes that plots use, in a page or in a file of plots.
pub(super) const STYLE: &str = include_str!("plots.css");

/// Axis of a plot: maps values to positions.
#[derive(Debug, Clone)]
pub(super) struct PlotAxis {
    from: f64,
    to: f64,
    logarithmic: bool,
    /// Labeled values and their labels.
    ticks: Vec<(f64, String)>,
}

impl PlotAxis {
    /// Creates a linear axis with round labels.
    fn linear(from: f64, to: f64) -> Self {
        Self::stepped(from, to, 0.0)
    }

    /// Creates a linear axis with integer labels.
    fn whole(from: f64, to: f64) -> Self {
        Self::stepped(from, to, 1.0)
    }

    fn stepped(from: f64, to: f64, least_step: f64) -> Self {
        let to = if to > from { to } else { from + 1.0 };
        let step = nice_step((to - from) / 6.0).max(least_step);
        let first = (from / step).ceil();
        let ticks = (0..64).map(|i| (first + f64::from(i)) * step).take_while(|v| *v <= to * (1.0 + 1e-9));
        let mut ticks: Vec<(f64, String)> = ticks.map(|v| (v, short(v))).collect();
        // Adjacent ticks that round to the same label would be ambiguous.
        ticks.dedup_by(|later, earlier| later.1 == earlier.1);
        Self { from, to, logarithmic: false, ticks }
    }

    /// Creates a logarithmic axis. `from` must be above 0.
    fn logarithmic(from: f64, to: f64) -> Self {
        let from = from.max(f64::MIN_POSITIVE);
        let to = if to > from { to } else { from * 10.0 };
        let decades = (to / from).log10();
        let every = (decades / 7.0).ceil().max(1.0) as i32;
        let factors: &[f64] = if decades <= 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let (low, high) = (from.log10().floor() as i32, to.log10().ceil() as i32);
        let all = (low..=high).filter(|e| e.rem_euclid(every) == 0);
        let all = all.flat_map(|e| factors.iter().map(move |f| f * 10f64.powi(e)));
        let inside = all.filter(|v| *v >= from * (1.0 - 1e-9) && *v <= to * (1.0 + 1e-9));
        Self { from, to, logarithmic: true, ticks: inside.map(|v| (v, short(v))).collect() }
    }

    /// Creates a logarithmic axis with labels at `values`.
    fn powers(values: &[u64], label: impl Fn(u64) -> String) -> Self {
        let (from, to) = (values.first().copied().unwrap_or(1), values.last().copied().unwrap_or(2));
        let to = if to > from { to as f64 } else { from as f64 * 2.0 };
        let ticks = values.iter().map(|v| (*v as f64, label(*v))).collect();
        Self { from: (from as f64).max(1.0), to, logarithmic: true, ticks }
    }

    /// Returns the position of `value`, from 0 to 1.
    fn at(&self, value: f64) -> f64 {
        let share = match self.logarithmic {
            true => (value.max(self.from) / self.from).ln() / (self.to / self.from).ln(),
            false => (value - self.from) / (self.to - self.from),
        };
        if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// A plot under construction.
#[derive(Debug)]
pub(super) struct Plot {
    title: String,
    description: String,
    x: PlotAxis,
    y: PlotAxis,
    body: String,
    /// The numbers as a collapsed table, for a page.
    pub(super) numbers: String,
}

impl Plot {
    fn new(title: &str, description: &str, x: (PlotAxis, &str), y: (PlotAxis, &str)) -> Self {
        let mut plot = Self {
            title: title.to_owned(),
            description: description.to_owned(),
            x: x.0,
            y: y.0,
            body: String::new(),
            numbers: String::new(),
        };
        plot.frame(x.1, y.1);
        plot
    }

    fn px(&self, value: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * self.x.at(value)
    }

    fn py(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * self.y.at(value)
    }

    /// Appends markup.
    fn add(&mut self, markup: fmt::Arguments<'_>) {
        let _ = self.body.write_fmt(markup);
        self.body.push('\n');
    }

    fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        self.add(format_args!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escape(text)));
    }

    /// Draws title, grid, labels and units.
    fn frame(&mut self, x_unit: &str, y_unit: &str) {
        let title = self.title.clone();
        self.text(TITLE, 22.0, "dsc-title", &title);
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        for (value, label) in self.y.ticks.clone() {
            let y = self.py(value);
            self.add(format_args!("<path class=\"dsc-grid\" d=\"M{LEFT} {y:.1}H{right:.1}\"/>"));
            self.text(LEFT - 7.0, y + 4.0, "dsc-tick dsc-end", &label);
        }
        let mut free_from = f64::MIN;
        for (value, label) in self.x.ticks.clone() {
            let x = self.px(value);
            self.add(format_args!("<path class=\"dsc-axis\" d=\"M{x:.1} {bottom:.1}v4\"/>"));
            // A label that would touch the previous one is left out.
            let half = 3.6 * label.chars().count() as f64;
            if x - half > free_from {
                self.text(x, bottom + 17.0, "dsc-tick dsc-middle", &label);
                free_from = x + half + 4.0;
            }
        }
        self.add(format_args!("<path class=\"dsc-axis\" d=\"M{LEFT} {TOP}V{bottom:.1}H{right:.1}\"/>"));
        self.text((LEFT + right) / 2.0, HEIGHT - 10.0, "dsc-unit dsc-middle", x_unit);
        let middle = (TOP + bottom) / 2.0;
        self.add(format_args!(
            "<text class=\"dsc-unit dsc-middle\" x=\"14\" y=\"{middle:.1}\" transform=\"rotate(-90 14 {middle:.1})\">{}</text>",
            escape(y_unit)
        ));
    }

    /// Returns the `svg` element, at `position` if it is inside another one.
    pub(super) fn finish(&self, position: Option<(f64, f64)>) -> String {
        let (title, description) = (escape(&self.title), escape(&self.description));
        let position = match position {
            Some((x, y)) => format!(" x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{HEIGHT}\""),
            None => String::new(),
        };
        format!(
            "<svg class=\"dsc-plot\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\"{position} role=\"img\" \
             aria-label=\"{title}. {description}\">\n<title>{title}</title>\n<desc>{description}</desc>\n{}</svg>\n",
            self.body
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_labels_inside() {
        let labels = |axis: &PlotAxis| axis.ticks.iter().map(|t| t.1.clone()).collect::<Vec<_>>().join(" ");
        assert_eq!(labels(&PlotAxis::linear(0.0, 1234.0)), "0 500 1k");
        assert_eq!(labels(&PlotAxis::linear(0.0, 0.0)), "0 0.2 0.4 0.6 0.8 1");
        assert_eq!(labels(&PlotAxis::logarithmic(3.0, 250.0)), "5 10 20 50 100 200");
        assert_eq!(labels(&PlotAxis::logarithmic(1.0, 1e6)), "1 10 100 1k 10k 100k 1M");
        for axis in
            [PlotAxis::linear(0.0, f64::MAX), PlotAxis::logarithmic(0.0, 1e300), PlotAxis::linear(5.0, 5.0)]
        {
            assert!([0.0, 5.0, 1e300, f64::NAN].iter().all(|v| (0.0..=1.0).contains(&axis.at(*v))));
        }
    }

    #[test]
    fn plots_have_an_escaped_accessible_name() {
        let axes = || (PlotAxis::linear(0.0, 1.0), "x <unit>");
        let svg = Plot::new("Title & <b>", "\"what\"", axes(), axes()).finish(None);
        assert!(svg.contains("role=\"img\" aria-label=\"Title &amp; &lt;b&gt;. &quot;what&quot;\""));
        assert!(svg.contains("x &lt;unit&gt;") && !svg.contains("<b>"));
    }
}
