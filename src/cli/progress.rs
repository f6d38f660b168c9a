//! Progress display: a redrawn line on a terminal, a new line every ten seconds elsewhere, and events with `--verbose`.

use std::collections::VecDeque;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::Thread;
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::flags::with_flags;
use super::verbosity::Verbosity;
use super::{EXIT_FAILED, print};
use crate::error::Result;
use crate::numbers::plural;
use crate::panics;
use crate::pipeline::{Event, EventLevel, Progress, Snapshot, Stop};
use crate::printable::printable;
use crate::testing::panic_point;
use crate::threads;

/// Interval between redraws of the line.
const DRAW_EVERY: Duration = Duration::from_millis(100);
/// Interval between lines where the line is not redrawn.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Window over which rates are measured. The units that a resumed run counts as finished at its start soon leave it.
const RATE_WINDOW: Duration = Duration::from_secs(30);
/// Interval between measurements of a rate.
const RATE_EVERY: Duration = Duration::from_millis(500);

/// Time that a run has to end on its own after a bug, before the process is ended.
const BUG_GRACE: Duration = Duration::from_millis(700);

/// Runs `work` while another thread draws its progress. `items` is the number of items, if known.
pub(super) fn with_progress<T>(
    items: Option<u64>,
    verbosity: Verbosity,
    stop: &Stop,
    work: impl FnOnce(&Progress, &Stop) -> Result<T>,
) -> Result<T> {
    let progress = Progress::default();
    let display = Display::start(&progress, stop, items, verbosity);
    std::thread::scope(|scope| {
        let draw = || {
            let draw = || {
                panic_point("draw");
                display.draw();
            };
            if let Err(panic) = panics::caught(draw) {
                stop.report_bug(&panic.into_error("drawing the progress"));
            }
        };
        // If the thread cannot be started, no progress is drawn.
        let drawing = threads::named("progress").spawn_scoped(scope, draw).ok();
        let result = panics::caught(|| work(&progress, stop));
        if let Some(drawing) = drawing {
            display.finish(drawing.thread());
            // A panic in the thread has already been reported.
            let _ = drawing.join();
        }
        if verbosity != Verbosity::Quiet {
            progress.take_notes().iter().map(|note| with_flags(note)).for_each(print::warning);
        }
        result.unwrap_or_else(|panic| {
            let error = panic.into_error("running the conversion");
            stop.report_bug(&error);
            Err(stop.bug().unwrap_or(error))
        })
    })
}

/// Draws a [`Progress`] until it is finished. After a bug, ends the process if a thread of the run does not return.
pub(super) struct Display<'a> {
    progress: &'a Progress,
    stop: &'a Stop,
    /// Number of items in the plan, if known.
    items: Option<u64>,
    mode: DisplayMode,
    finished: AtomicBool,
    started: Instant,
}

enum DisplayMode {
    Bar(ProgressBar),
    Lines,
    Nothing,
}

impl<'a> Display<'a> {
    pub(super) fn start(
        progress: &'a Progress,
        stop: &'a Stop,
        items: Option<u64>,
        verbosity: Verbosity,
    ) -> Self {
        let mode = if verbosity == Verbosity::Quiet {
            DisplayMode::Nothing
        } else {
            let bar = bar();
            // A terminal that cannot move its cursor (TERM=dumb) hides the bar.
            let has_bar = std::io::stderr().is_terminal() && !bar.is_hidden();
            if has_bar { DisplayMode::Bar(bar) } else { DisplayMode::Lines }
        };
        progress.collect_events(match verbosity {
            Verbosity::Quiet | Verbosity::Normal => EventLevel::Nothing,
            Verbosity::Units => EventLevel::Units,
            Verbosity::Rejects => EventLevel::Rejects,
        });
        Self { progress, stop, items, mode, finished: AtomicBool::new(false), started: Instant::now() }
    }

    /// Draws until [`Display::finish`] is called. Must run on a separate thread.
    pub(super) fn draw(&self) {
        let mut next_line = self.started + LINE_EVERY;
        let mut bug_seen: Option<Instant> = None;
        let mut rate = Rate::default();
        while !self.finished.load(Relaxed) {
            self.print_events();
            let now = self.progress.snapshot();
            rate.measure(self.started.elapsed(), now);
            match &self.mode {
                DisplayMode::Bar(bar) => {
                    let text = self.text(&now, &rate);
                    print::draw_line(|| draw_bar(bar, &now, text));
                }
                DisplayMode::Lines if Instant::now() >= next_line => {
                    print::progress(self.text(&now, &rate));
                    next_line += LINE_EVERY;
                }
                _ => {}
            }
            if let Some(bug) = self.stop.bug()
                && bug_seen.get_or_insert_with(Instant::now).elapsed() >= BUG_GRACE
            {
                print::last_error(&bug);
                signal_hook::low_level::exit(EXIT_FAILED.into());
            }
            std::thread::park_timeout(DRAW_EVERY);
        }
        self.print_events();
        if let DisplayMode::Bar(bar) = &self.mode {
            print::draw_line(|| bar.finish_and_clear());
        }
    }

    /// Stops the thread `drawing` without waiting for its next redraw, so that short runs stay short.
    pub(super) fn finish(&self, drawing: &Thread) {
        self.finished.store(true, Relaxed);
        drawing.unpark();
    }

    fn print_events(&self) {
        let events = self.progress.take_events();
        if events.is_empty() {
            return;
        }
        let elapsed = clock(self.started.elapsed());
        let print =
            || events.iter().for_each(|event| print::progress(format!("{elapsed}  {}", event_text(event))));
        match &self.mode {
            // Keeps events from mixing with the bar.
            DisplayMode::Bar(bar) => print::draw_line(|| bar.suspend(print)),
            _ => print(),
        }
    }

    /// `1,234 of 5,678 items · 3 rejected · 523/s · 2:05 left · 0:42 elapsed · 12.3 MiB/s`
    fn text(&self, now: &Snapshot, rate: &Rate) -> String {
        let mut text = match self.items {
            Some(all) => format!("{} of {}", HumanCount(now.items), plural(all, "item")),
            None => plural(now.items, "item"),
        };
        // What matters most comes first, because a narrow terminal cuts the end.
        if now.rejected > 0 {
            text.push_str(&format!(" · {} rejected", HumanCount(now.rejected)));
        }
        let (items, bytes) = rate.per_second();
        text.push_str(&format!(" · {}/s", HumanCount(items as u64)));
        let left = now.total_bytes.saturating_sub(now.source_bytes);
        if left > 0 && bytes > 0.0 {
            let left = Duration::from_secs_f64((left as f64 / bytes).min(1e9));
            text.push_str(&format!(" · {} left", clock(left)));
        }
        let elapsed = clock(self.started.elapsed());
        text.push_str(&format!(" · {elapsed} elapsed · {}/s", HumanBytes(bytes as u64)));
        text
    }
}

/// Formats an event as text.
fn event_text(event: &Event) -> String {
    match event {
        Event::UnitFinished { unit, items, records, rejected, source_bytes, shard_bytes } => format!(
            "unit {unit}: {}, {}, {} rejected; {} read, {} written",
            plural(*items, "item"),
            plural(*records, "record"),
            HumanCount(*rejected),
            HumanBytes(*source_bytes),
            HumanBytes(*shard_bytes)
        ),
        Event::Rejected { origin, code, message } => {
            format!("rejected {}: {code}: {}", printable(origin), printable(&with_flags(message)))
        }
        Event::Dropped(count) => format!("and {} that are not shown", plural(*count, "more event")),
    }
}

/// Formats a duration as `0:42` or `2:05:10`.
fn clock(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

/// Items and bytes per second over the last [`RATE_WINDOW`].
#[derive(Default)]
struct Rate {
    /// Time since the start, items, bytes.
    measured: VecDeque<(Duration, u64, u64)>,
}

impl Rate {
    fn measure(&mut self, at: Duration, now: Snapshot) {
        if self.measured.back().is_some_and(|last| at.saturating_sub(last.0) < RATE_EVERY) {
            return;
        }
        self.measured.push_back((at, now.items, now.source_bytes));
        while self.measured.get(1).is_some_and(|second| at.saturating_sub(second.0) >= RATE_WINDOW) {
            self.measured.pop_front();
        }
    }

    /// Returns items and bytes per second. Both are zero until there are two measurements.
    fn per_second(&self) -> (f64, f64) {
        let (Some(first), Some(last)) = (self.measured.front(), self.measured.back()) else {
            return (0.0, 0.0);
        };
        let seconds = last.0.saturating_sub(first.0).as_secs_f64();
        let rate = |first: u64, last: u64| {
            if seconds > 0.0 { last.saturating_sub(first) as f64 / seconds } else { 0.0 }
        };
        (rate(first.1, last.1), rate(first.2, last.2))
    }
}

/// Creates the progress bar. At first it has no percentage, because the size of standard input is unknown.
///
/// Templates end with a carriage return, which leaves the cursor at the start of the line between redraws. A terminal
/// echoes Ctrl-C as `^C`: after a line of full width it would wrap, and the row above would not be cleared. They start
/// with a space, because indicatif then fills the width of the line with one more character than it counts.
fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    bar.set_style(style(" {wide_msg}\r"));
    bar
}

/// Redraws the bar.
fn draw_bar(bar: &ProgressBar, now: &Snapshot, text: String) {
    if now.total_bytes > 0 && bar.length().is_none() {
        bar.set_style(style(" {percent:>3}% {bar:10} {wide_msg}\r"));
        bar.set_length(now.total_bytes);
    }
    bar.set_message(text);
    bar.set_position(now.source_bytes);
}

fn style(template: &str) -> ProgressStyle {
    // The templates are constants; if one were invalid, the default style would do.
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.progress_chars("━╸─")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_on_a_clock() {
        for (seconds, text) in [(0, "0:00"), (42, "0:42"), (125, "2:05"), (7510, "2:05:10")] {
            assert_eq!(clock(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn a_rate_covers_only_its_window() {
        let mut rate = Rate::default();
        assert_eq!(rate.per_second(), (0.0, 0.0));
        // Finished units are counted at the start; after that, each second adds 2 items and 10 bytes.
        for second in 0..100 {
            let items = if second == 0 { 0 } else { 1_000_000 + 2 * second };
            let now = Snapshot { items, source_bytes: 5 * items, ..Snapshot::default() };
            rate.measure(Duration::from_secs(second), now);
        }
        assert_eq!(rate.per_second(), (2.0, 10.0));
        assert!(rate.measured.len() <= 32);
    }
}
