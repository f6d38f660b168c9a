//! SVG curve of a sweep: throughput against a parameter, with the limits of loader and model.

use super::{Canvas, SMALL, SMALL_END, SMALL_MIDDLE, nice_step};
use crate::format::{number, percent};
use crate::sweep::{Sweep, SweepParameter};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 60.0;
const BOTTOM: f64 = 76.0;

impl Sweep {
    /// Draws throughput against the parameter as SVG, with `title`. Dashed lines show the limits of the model and of
    /// the workers.
    ///
    /// ```
    /// use dsconvert_simulate::{Options, Sweep};
    ///
    /// let sweep = Sweep::run(&Options::new(400.0, 100.0, 1)?, &"workers=1..8".parse()?)?;
    /// let svg = sweep.to_svg("How many workers?");
    /// assert!(svg.contains("batches per second") && svg.contains(">workers<"));
    /// # Ok::<(), dsconvert_simulate::Error>(())
    /// ```
    pub fn to_svg(&self, title: &str) -> String {
        let mut canvas = Canvas::default();
        let min = self.points.iter().map(|p| p.value).min().unwrap_or(0);
        let max = self.points.iter().map(|p| p.value).max().unwrap_or(1).max(min + 1);
        let model = self.points.first().map_or(0.0, |p| p.report.model_limit);
        let highest =
            self.points.iter().map(|p| p.report.batches_per_second).fold(model, f64::max).max(1e-9) * 1.08;
        let x = |value: f64| LEFT + (WIDTH - LEFT - RIGHT) * (value - f64::from(min)) / f64::from(max - min);
        let y = |rate: f64| HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (rate / highest);

        canvas.text(LEFT, 26.0, "class=\"title\"", title);
        let step = nice_step(highest, 8.0);
        let mut i = 0.0;
        while i * step <= highest {
            let at = y(i * step);
            canvas.path("grid", format_args!("M{LEFT} {at:.1}H{:.1}", WIDTH - RIGHT));
            canvas.text(LEFT - 8.0, at + 4.0, SMALL_END, &number(i * step));
            i += 1.0;
        }
        let step = nice_step(f64::from(max - min), 16.0).max(1.0) as u32;
        for value in (min..=max).filter(|value| value % step == 0 || *value == min) {
            canvas.text(x(f64::from(value)), HEIGHT - BOTTOM + 18.0, SMALL_MIDDLE, &value.to_string());
        }
        canvas.path("axis", format_args!("M{LEFT} {TOP}V{:.1}H{:.1}", HEIGHT - BOTTOM, WIDTH - RIGHT));
        let middle = (TOP + HEIGHT - BOTTOM) / 2.0;
        let turned = format!("{SMALL_MIDDLE} transform=\"rotate(-90 18 {middle:.1})\"");
        canvas.text(18.0, middle, &turned, "batches per second");
        let unit = match self.parameter {
            SweepParameter::Workers => "workers",
            SweepParameter::Prefetch => "prefetch factor",
        };
        canvas.text((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - BOTTOM + 36.0, SMALL_MIDDLE, unit);

        canvas.path("limit", format_args!("M{LEFT} {:.1}H{:.1}", y(model), WIDTH - RIGHT));
        let path = |rate: &dyn Fn(&crate::SweepPoint) -> f64| {
            let points =
                self.points.iter().map(|p| format!("{:.1} {:.1}", x(f64::from(p.value)), y(rate(p))));
            format!("M{}", points.collect::<Vec<_>>().join("L"))
        };
        canvas.add(format_args!(
            "<clipPath id=\"plot\"><rect x=\"{LEFT}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\"/></clipPath>",
            WIDTH - LEFT - RIGHT,
            HEIGHT - TOP - BOTTOM
        ));
        canvas.add(format_args!(
            "<path class=\"limit2\" clip-path=\"url(#plot)\" d=\"{}\"/>",
            path(&|p| p.report.loader_limit)
        ));
        canvas.path("line", format_args!("{}", path(&|p| p.report.batches_per_second)));
        for point in &self.points {
            canvas.add(format_args!(
                "<circle class=\"dot\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\"><title>{} {}: {} batches per second, GPU idle {}</title></circle>",
                x(f64::from(point.value)),
                y(point.report.batches_per_second),
                point.value,
                unit,
                number(point.report.batches_per_second),
                percent(point.report.idle_share)
            ));
        }
        let legend = HEIGHT - 14.0;
        for (at, class, text) in [
            (0.0, "line", "simulated"),
            (130.0, "limit", "limit of the model"),
            (350.0, "limit2", "limit of the workers"),
        ] {
            let left = LEFT + at;
            canvas.path(class, format_args!("M{left:.1} {:.1}h24", legend - 4.0));
            canvas.text(left + 30.0, legend, SMALL, text);
        }
        canvas.finish(WIDTH, HEIGHT, title, "Throughput in batches per second")
    }
}
