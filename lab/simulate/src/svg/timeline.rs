//! SVG timeline of a run: one row per worker, the queue, and the model.

use super::{Canvas, SMALL, SMALL_END, SMALL_MIDDLE, nice_step, worker_fill};
use crate::format::{batches, duration, number, percent};
use crate::run::{Batch, Run};

const WIDTH: f64 = 1000.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 66.0;
const GAP: f64 = 4.0;
const QUEUE_HEIGHT: f64 = 56.0;
const MODEL_HEIGHT: f64 = 32.0;
const MAX_DRAWN_WORKERS: u32 = 64;
/// Longer runs are drawn only up to the start of this batch.
const MAX_DRAWN_BATCHES: usize = 2_000;

struct Timeline<'a> {
    run: &'a Run,
    shown_ns: u64,
    batches: &'a [Batch],
    rows: u32,
    row_height: f64,
}

/// Draws a timeline as SVG with `title`: a bar per batch in the row of its worker, the number of deliverable batches,
/// and the model's steps, with its waits in red.
///
/// Only the first 2,000 batches and the first 64 workers are drawn. The subtitle states when something is left out.
///
/// ```
/// use dsconvert_simulate::{Options, simulate, timeline_svg};
///
/// let run = simulate(&Options::new(2_000.0, 100.0, 7)?)?;
/// let svg = timeline_svg(&run, "Seven workers");
/// assert!(svg.starts_with("<svg") && svg.contains("worker 7") && svg.contains("98 batches in 30 s"));
/// # Ok::<(), dsconvert_simulate::Error>(())
/// ```
pub fn timeline_svg(run: &Run, title: &str) -> String {
    let cut = run.batches.get(MAX_DRAWN_BATCHES).and_then(|b| b.start_ns);
    let rows = run.options.workers.min(MAX_DRAWN_WORKERS);
    let timeline = Timeline {
        run,
        shown_ns: cut.unwrap_or(run.end_ns).max(1),
        batches: &run.batches[..run.batches.len().min(MAX_DRAWN_BATCHES)],
        rows,
        row_height: (280.0 / f64::from(rows)).clamp(8.0, 26.0),
    };
    timeline.draw(title)
}

impl Timeline<'_> {
    fn x(&self, ns: u64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * (ns.min(self.shown_ns) as f64 / self.shown_ns as f64)
    }

    fn draw(&self, title: &str) -> String {
        let mut canvas = Canvas::default();
        let queue_top = TOP + f64::from(self.rows) * (self.row_height + GAP) + 12.0;
        let model_top = queue_top + QUEUE_HEIGHT + 14.0;
        let bottom = model_top + MODEL_HEIGHT;
        let summary = self.summary();
        canvas.text(LEFT, 26.0, "class=\"title\"", title);
        canvas.text(LEFT, 46.0, SMALL, &summary);
        self.axis(&mut canvas, bottom);
        self.workers(&mut canvas);
        self.queue(&mut canvas, queue_top);
        self.model(&mut canvas, model_top);
        self.legend(&mut canvas, bottom + 58.0);
        canvas.finish(WIDTH, bottom + 72.0, title, &summary)
    }

    fn summary(&self) -> String {
        let report = self.run.report();
        let mut text = format!(
            "{} in {}; GPU idle {} of the time",
            batches(report.batches),
            duration(report.duration_ns),
            percent(report.idle_share)
        );
        if self.shown_ns < self.run.end_ns {
            text.push_str(&format!("; the first {} are shown", duration(self.shown_ns)));
        }
        if self.rows < self.run.options.workers {
            text.push_str(&format!("; {} of {} workers are shown", self.rows, self.run.options.workers));
        }
        text
    }

    fn axis(&self, canvas: &mut Canvas, bottom: f64) {
        let seconds = self.shown_ns as f64 / 1e9;
        let (scale, unit) = if seconds < 1e-3 {
            (1e6, "µs")
        } else if seconds < 1.0 {
            (1e3, "ms")
        } else {
            (1.0, "s")
        };
        let step = nice_step(seconds * scale, 12.0);
        let mut i = 0.0;
        while i * step <= seconds * scale * (1.0 + 1e-9) {
            let value = i * step;
            let x = LEFT + (WIDTH - LEFT - RIGHT) * (value / (seconds * scale)).min(1.0);
            canvas.path("grid", format_args!("M{x:.1} {TOP}V{:.1}", bottom + 4.0));
            canvas.text(x, bottom + 18.0, SMALL_MIDDLE, &number(value));
            i += 1.0;
        }
        canvas.path("axis", format_args!("M{LEFT} {:.1}H{:.1}", bottom + 4.0, WIDTH - RIGHT));
        let middle = (LEFT + WIDTH - RIGHT) / 2.0;
        canvas.text(middle, bottom + 36.0, SMALL_MIDDLE, &format!("simulated time ({unit})"));
    }

    fn workers(&self, canvas: &mut Canvas) {
        let height = self.row_height;
        let top = |worker: u32| TOP + f64::from(worker) * (height + GAP);
        for worker in 0..self.rows {
            let y = top(worker);
            canvas.add(format_args!(
                "<rect class=\"row\" x=\"{LEFT}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{height:.1}\"/>",
                WIDTH - LEFT - RIGHT
            ));
            if height >= 12.0 || worker % 4 == 0 {
                let label = format!("worker {}", worker + 1);
                canvas.text(LEFT - 8.0, y + height / 2.0 + 4.0, "text-anchor=\"end\"", &label);
            }
        }
        for (number, batch) in self.batches.iter().enumerate() {
            let Some(start) = batch.start_ns.filter(|&start| start < self.shown_ns) else { continue };
            if batch.worker >= self.rows {
                continue;
            }
            let (x, end) = (self.x(start), self.x(batch.done_ns.unwrap_or(u64::MAX)));
            let (width, y) = ((end - x - 0.5).max(0.3), top(batch.worker));
            let opacity = if batch.done_ns.is_some() { "" } else { " fill-opacity=\".45\"" };
            canvas.add(format_args!(
                "<rect x=\"{x:.2}\" y=\"{y:.1}\" width=\"{width:.2}\" height=\"{height:.1}\" fill=\"{}\"{opacity}>\
                 <title>batch {} loads</title></rect>",
                worker_fill(batch.worker),
                number + 1
            ));
            if width > 26.0 && height >= 14.0 {
                let text = (number + 1).to_string();
                canvas.text(x + width / 2.0, y + height / 2.0 + 3.5, "class=\"in\"", &text);
            }
        }
    }

    fn queue(&self, canvas: &mut Canvas, top: f64) {
        let mut changes: Vec<(u64, i64)> = Vec::new();
        for batch in self.batches {
            if let Some(queued) = batch.queued_ns.filter(|_| batch.queued_ns != batch.taken_ns) {
                changes.push((queued, 1));
                changes.extend(batch.taken_ns.map(|at| (at, -1)));
            }
        }
        changes.sort_unstable_by_key(|&(at, change)| (at, -change));
        let (mut count, mut most) = (0, 1);
        for &(_, change) in &changes {
            count += change;
            most = most.max(count);
        }
        let y = |count: i64| top + QUEUE_HEIGHT * (1.0 - count as f64 / most as f64);
        canvas.text(LEFT - 8.0, top + QUEUE_HEIGHT / 2.0, "text-anchor=\"end\"", "queue");
        canvas.text(LEFT - 8.0, top + QUEUE_HEIGHT / 2.0 + 13.0, SMALL_END, "(batches)");
        canvas.text(LEFT - 8.0, top + 9.0, SMALL_END, &most.to_string());
        canvas.text(LEFT - 8.0, top + QUEUE_HEIGHT, SMALL_END, "0");
        let mut path = format!("M{LEFT} {:.1}", y(0));
        count = 0;
        for (at, change) in changes.into_iter().filter(|&(at, _)| at <= self.shown_ns) {
            count += change;
            path.push_str(&format!("H{:.2}V{:.1}", self.x(at), y(count)));
        }
        path.push_str(&format!("H{:.1}V{:.1}Z", WIDTH - RIGHT, y(0)));
        canvas.path("queue", format_args!("{path}"));
        canvas.path("axis", format_args!("M{LEFT} {:.1}H{:.1}", y(0), WIDTH - RIGHT));
    }

    fn model(&self, canvas: &mut Canvas, top: f64) {
        canvas.text(LEFT - 8.0, top + MODEL_HEIGHT / 2.0 + 4.0, "text-anchor=\"end\"", "model");
        let mut rect = |attributes: &str, from: u64, to: u64, label: &str| {
            if from >= self.shown_ns || to <= from {
                return;
            }
            let (x, end) = (self.x(from), self.x(to));
            canvas.add(format_args!(
                "<rect {attributes} x=\"{x:.2}\" y=\"{top:.1}\" width=\"{:.2}\" height=\"{MODEL_HEIGHT}\"><title>{label}</title></rect>",
                (end - x).max(0.2)
            ));
        };
        let mut taken: Vec<(u64, usize)> =
            self.batches.iter().enumerate().filter_map(|(i, b)| Some((b.taken_ns?, i))).collect();
        taken.sort_unstable();
        let mut free = 0;
        for (at, i) in taken {
            let batch = &self.batches[i];
            rect("class=\"wait\"", free, at, "the model waits for data");
            let step = batch.step_ns.unwrap_or(self.run.end_ns);
            let end = batch.end_ns.unwrap_or(self.run.end_ns);
            rect("class=\"copy\"", at, step, "transfer");
            let fill = format!("fill=\"{}\"", worker_fill(batch.worker));
            rect(&fill, step, end, &format!("batch {}", i + 1));
            free = end;
        }
        rect("class=\"wait\"", free, self.run.end_ns, "the model waits for data");
    }

    fn legend(&self, canvas: &mut Canvas, y: f64) {
        let mut x = LEFT;
        for (attributes, text) in [
            (format!("fill=\"{}\"", worker_fill(0)), "loading, then the step on that batch"),
            ("class=\"row\"".to_owned(), "worker has nothing to do"),
            ("class=\"queue\"".to_owned(), "batches ready for the model"),
            ("class=\"wait\"".to_owned(), "model waits for data"),
        ] {
            canvas.add(format_args!(
                "<rect {attributes} x=\"{x:.1}\" y=\"{:.1}\" width=\"14\" height=\"10\"/>",
                y - 9.0
            ));
            canvas.text(x + 20.0, y, SMALL, text);
            x += 42.0 + text.len() as f64 * 6.0;
        }
    }
}
