//! JSON output for options, reports and verdicts, written by hand because the crate has no dependencies.

use std::fmt::Write;

use crate::distribution::TimeDistribution;
use crate::load::LoadTimes;
use crate::options::{Options, Stop};
use crate::report::Report;
use crate::verdict::Verdict;

/// A JSON object under construction.
#[derive(Debug, Default)]
pub(crate) struct Object(String);

impl Object {
    /// Adds a member whose value is already JSON.
    pub(crate) fn raw(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        let _ = write!(self.0, "\"{name}\":{value}");
        self
    }

    pub(crate) fn string(self, name: &str, value: &str) -> Self {
        let text = string(value);
        self.raw(name, text)
    }

    pub(crate) fn optional(self, name: &str, value: Option<impl std::fmt::Display>) -> Self {
        match value {
            Some(value) => self.raw(name, value),
            None => self.raw(name, "null"),
        }
    }

    pub(crate) fn finish(mut self) -> String {
        if self.0.is_empty() {
            self.0.push('{');
        }
        self.0.push('}');
        self.0
    }
}

/// Quotes `text` as a JSON string that is also safe inside an HTML `<script>` element.
pub(crate) fn string(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\x1f' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn rounded(x: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (x * scale).round() / scale
}

fn ms(ns: f64) -> f64 {
    rounded(ns / 1e6, 6)
}

fn distribution(times: &TimeDistribution) -> String {
    Object::default()
        .string("shape", times.shape.name())
        .raw("mean_ns", times.mean_ns)
        .raw("cv", times.cv)
        .finish()
}

/// Writes the options in the form that `page/simulate.js` reads. Only the first `used` load times of a trace are
/// written.
pub(crate) fn options(options: &Options, used: usize) -> String {
    let load = match &options.load {
        LoadTimes::Drawn(times) => distribution(times),
        LoadTimes::Trace(trace) => {
            let ns: Vec<String> = trace.ns().iter().take(used.max(1)).map(u64::to_string).collect();
            Object::default().raw("trace_ns", format!("[{}]", ns.join(","))).finish()
        }
    };
    let slow = options.slow.map(|slow| {
        Object::default()
            .raw("share", slow.share)
            .raw("factor", slow.factor)
            .raw("length", slow.length)
            .finish()
    });
    let stop = match options.stop {
        Stop::AfterNs(ns) => Object::default().raw("after_ns", ns),
        Stop::Batches(n) => Object::default().raw("batches", n),
    };
    Object::default()
        .raw("workers", options.workers)
        .raw("prefetch", options.prefetch)
        .string("order", options.order.name())
        .optional("queue", options.queue)
        .raw("load", load)
        .optional("slow", slow)
        .raw("step", distribution(&options.step))
        .raw("transfer_ns", options.transfer_ns)
        .raw("startup_ns", options.startup_ns)
        .raw("stagger_ns", options.stagger_ns)
        .optional("cores", options.cores)
        .raw("step_core", options.step_core)
        .raw("tick_ns", options.tick_ns)
        .raw("seed", format!("[{},{}]", options.seed as u32, options.seed >> 32))
        .raw("stop", stop.finish())
        .finish()
}

impl Options {
    /// Returns all options as JSON, with times in nanoseconds and the seed as its low and high 32 bits.
    ///
    /// `page/simulate.js` reads this form.
    pub fn to_json(&self) -> String {
        options(self, usize::MAX)
    }
}

impl Report {
    /// Returns report and verdict as one JSON object. Times are in milliseconds, shares between 0 and 1.
    ///
    /// ```
    /// use dsconvert_simulate::{Options, Verdict, simulate};
    ///
    /// let run = simulate(&Options::new(2_000.0, 100.0, 7)?)?;
    /// let json = run.report().to_json(&Verdict::of(&run));
    /// assert!(json.starts_with(r#"{"batches":98,"seconds":30,"idle_share":0.67"#));
    /// # Ok::<(), dsconvert_simulate::Error>(())
    /// ```
    pub fn to_json(&self, verdict: &Verdict) -> String {
        let share = |x: f64| rounded(x, 6);
        let stalls = Object::default()
            .raw("count", self.stalls.count)
            .raw("total_ms", ms(self.stalls.total_ns as f64))
            .raw("mean_ms", ms(self.stalls.mean_ns))
            .raw("longest_ms", ms(self.stalls.longest_ns as f64))
            .optional("period_ms", self.stalls.period_ns.map(ms))
            .finish();
        let queue = Object::default()
            .raw("mean", share(self.queue.mean))
            .raw("most", self.queue.most)
            .raw("empty_share", share(self.queue.empty_share))
            .raw("held_mean", share(self.queue.held_mean))
            .finish();
        Object::default()
            .raw("batches", self.batches)
            .raw("seconds", rounded(self.duration_ns as f64 / 1e9, 9))
            .raw("idle_share", share(self.idle_share))
            .raw("wait_share", share(self.wait_share))
            .raw("transfer_share", share(self.transfer_share))
            .raw("stall_share", share(self.stall_share))
            .optional("first_batch_ms", self.first_batch_ns.map(|ns| ms(ns as f64)))
            .raw("batches_per_second", share(self.batches_per_second))
            .raw("loader_limit_per_second", share(self.loader_limit))
            .raw("model_limit_per_second", share(self.model_limit))
            .raw("worker_loading_share", share(self.loading_share))
            .raw("stalls", stalls)
            .raw("queue", queue)
            .string("verdict", verdict.bottleneck.name())
            .string("summary", &verdict.summary)
            .optional("workers_needed", verdict.workers_needed)
            .optional("speedup_needed", verdict.speedup_needed)
            .optional("prefetch_needed", verdict.prefetch_needed)
            .raw("completed_order_helps", verdict.completed_order_helps)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped_for_json_and_html() {
        let text = "</script>\u{1}\"\\&\u{2028}é";
        let json = string(text);
        assert!(!json.contains('<') && !json.contains('&') && !json.contains('\u{2028}'));
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }
}
