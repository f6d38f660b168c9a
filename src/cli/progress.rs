//! Progress: a bar on a terminal, a line every few seconds elsewhere.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::Thread;
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, HumanCount, HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{EXIT_FAILED, print};
use crate::pipeline::{Progress, Snapshot, Stop};

/// Between two drawings of the bar.
const DRAW_EVERY: Duration = Duration::from_millis(100);
/// Between two plain lines.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// What a run has for ending by itself after a bug, before the process is ended.
const BUG_GRACE: Duration = Duration::from_millis(700);

/// Draws a [`Progress`] until it is finished, and ends the process when a bug has broken the run and a thread of it
/// does not come back.
pub(super) struct Display<'a> {
    progress: &'a Progress,
    stop: &'a Stop,
    /// Items of the plan, where they are known.
    items: Option<u64>,
    kind: Kind,
    finished: AtomicBool,
    started: Instant,
}

enum Kind {
    Bar(ProgressBar),
    Lines,
    Nothing,
}

impl<'a> Display<'a> {
    pub(super) fn start(progress: &'a Progress, stop: &'a Stop, items: Option<u64>, quiet: bool) -> Self {
        let kind = if quiet {
            Kind::Nothing
        } else if std::io::stderr().is_terminal() {
            Kind::Bar(bar())
        } else {
            Kind::Lines
        };
        Self { progress, stop, items, kind, finished: AtomicBool::new(false), started: Instant::now() }
    }

    /// Draws until [`Display::finish`]. Meant for a thread of its own.
    pub(super) fn draw(&self) {
        let mut next_line = self.started + LINE_EVERY;
        let mut broken: Option<Instant> = None;
        while !self.finished.load(Relaxed) {
            match &self.kind {
                Kind::Bar(bar) => self.update(bar),
                Kind::Lines if Instant::now() >= next_line => {
                    print::say(self.text(&self.progress.snapshot()));
                    next_line += LINE_EVERY;
                }
                _ => {}
            }
            if let Some(bug) = self.stop.bug()
                && broken.get_or_insert_with(Instant::now).elapsed() >= BUG_GRACE
            {
                print::last_error(&bug);
                signal_hook::low_level::exit(EXIT_FAILED.into());
            }
            std::thread::park_timeout(DRAW_EVERY);
        }
        if let Kind::Bar(bar) = &self.kind {
            bar.finish_and_clear();
        }
    }

    /// Ends the drawing, which `drawing` does, at once: a short run is not made longer by a display.
    pub(super) fn finish(&self, drawing: &Thread) {
        self.finished.store(true, Relaxed);
        drawing.unpark();
    }

    fn update(&self, bar: &ProgressBar) {
        let now = self.progress.snapshot();
        bar.set_length(now.total_bytes);
        bar.set_position(now.source_bytes);
        bar.set_message(self.text(&now));
    }

    /// `1,234 of 5,678 items · 12.3 MB/s · ETA 2m · 3 rejected`
    fn text(&self, now: &Snapshot) -> String {
        let seconds = self.started.elapsed().as_secs_f64().max(1e-3);
        let per_second = now.source_bytes as f64 / seconds;
        let mut text = match self.items {
            Some(all) => format!("{} of {} items", HumanCount(now.items), HumanCount(all)),
            None => format!("{} items", HumanCount(now.items)),
        };
        text.push_str(&format!(" · {}/s", HumanBytes(per_second as u64)));
        let left = now.total_bytes.saturating_sub(now.source_bytes);
        if left > 0 && per_second > 0.0 {
            let eta = Duration::from_secs_f64((left as f64 / per_second).min(1e9));
            text.push_str(&format!(" · ETA {}", HumanDuration(eta)));
        }
        if now.rejected > 0 {
            text.push_str(&format!(" · {} rejected", HumanCount(now.rejected)));
        }
        text
    }
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    // The template is a constant; if it were wrong, the default style would do.
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} {percent:>3}%\n{msg}") {
        bar.set_style(style);
    }
    bar
}
