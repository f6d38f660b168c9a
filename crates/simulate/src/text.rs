//! Terminal output of reports, verdicts and sweeps.

use std::fmt;

use crate::format::{duration, number, percent, time};
use crate::report::Report;
use crate::sweep::Sweep;
use crate::verdict::Verdict;

const BAR_WIDTH: usize = 40;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |f: &mut fmt::Formatter<'_>, name: &str, text: String| writeln!(f, "{name:<14}{text}");
        line(
            f,
            "batches",
            format!(
                "{} in {}, {} batches/s",
                self.batches,
                duration(self.duration_ns),
                number(self.batches_per_second)
            ),
        )?;
        let mut idle = format!("idle {} of the time", percent(self.idle_share));
        if self.transfer_share > 0.0 {
            idle.push_str(&format!(
                ": waiting {}, transferring {}",
                percent(self.wait_share),
                percent(self.transfer_share)
            ));
        }
        line(f, "GPU", idle)?;
        line(
            f,
            "first batch",
            self.first_batch_ns.map_or_else(|| "never".to_owned(), |ns| format!("after {}", time(ns as f64))),
        )?;
        let stalls = &self.stalls;
        let mut text = match stalls.count {
            0 if self.first_batch_ns.is_none() => "none".to_owned(),
            0 => "none after the first batch".to_owned(),
            n => format!("{n}, mean {}, longest {}", time(stalls.mean_ns), time(stalls.longest_ns as f64)),
        };
        if let Some(period) = stalls.period_ns {
            text.push_str(&format!(", one every {}", time(period)));
        }
        line(f, "stalls", text)?;
        let queue = &self.queue;
        let mut text = format!(
            "mean {} batches, max {}, empty {} of the time",
            number(queue.mean),
            queue.most,
            percent(queue.empty_share)
        );
        if queue.held_mean > 0.0005 {
            text.push_str(&format!("; {} more held back", number(queue.held_mean)));
        }
        line(f, "queue", text)?;
        line(
            f,
            "workers",
            format!(
                "loading {} of the time; they could load {} batches/s, the model could consume {}",
                percent(self.loading_share),
                number(self.loader_limit),
                number(self.model_limit)
            ),
        )
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary)
    }
}

impl fmt::Display for Sweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = self.points.iter().map(|p| p.report.batches_per_second).fold(0.0, f64::max).max(1e-9);
        writeln!(f, "{:>8}  {:>8}  {:>8}  {:>8}", self.parameter.name(), "batches", "per s", "GPU idle")?;
        for point in &self.points {
            let rate = point.report.batches_per_second;
            let bar = "█".repeat((rate / most * BAR_WIDTH as f64).round() as usize);
            writeln!(
                f,
                "{:>8}  {:>8}  {:>8}  {:>8}  {bar}",
                point.value,
                point.report.batches,
                number(rate),
                percent(point.report.idle_share)
            )?;
        }
        Ok(())
    }
}
