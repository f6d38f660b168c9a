//! Arguments of `bench` and `headspace` for the length and number of rounds.

use crate::cli::print;
use crate::lab::{Bench, Effort};

/// Expected duration, in seconds, above which a note announces it.
const LONG_SECONDS: f64 = 5.0;

/// Duration and number of rounds.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct EffortArgs {
    /// Duration of a round in seconds
    #[arg(
        long,
        value_name = "S",
        default_value_t = 3.0,
        help_heading = "Measurement",
        allow_hyphen_values = true
    )]
    seconds: f64,

    /// Number of items per round instead, rounded up to whole batches
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "seconds",
        help_heading = "Measurement",
        allow_hyphen_values = true
    )]
    items: Option<u64>,

    /// Number of rounds per measurement; rounds of all measurements are interleaved
    #[arg(
        long,
        value_name = "K",
        default_value_t = 3,
        help_heading = "Measurement",
        allow_hyphen_values = true
    )]
    pub(in crate::cli) repeat: usize,
}

impl EffortArgs {
    /// Returns the length of a round.
    pub(in crate::cli) fn effort(&self) -> Effort {
        self.items.map_or(Effort::Seconds(self.seconds), Effort::Items)
    }
}

/// Announces the expected duration if it exceeds [`LONG_SECONDS`].
pub(in crate::cli) fn announce(bench: &Bench) {
    if let Some(seconds) = bench.expected_seconds().filter(|seconds| *seconds > LONG_SECONDS) {
        print::note(format!("measuring for about {seconds:.0} s"));
    }
}
