//! `--quiet` and `--verbose`: how much a run prints.

/// Options for how much a run prints.
#[derive(Debug, Default, clap::Args)]
pub(super) struct VerbosityArgs {
    /// Print only errors
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,

    /// Print a line for each finished work unit; -vv also prints each rejected item
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

/// How much a run prints; each level includes the previous ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verbosity {
    /// Errors.
    Quiet,
    /// Warnings, progress and a summary.
    Normal,
    /// Each finished unit.
    Units,
    /// Each rejected item.
    Rejects,
}

impl VerbosityArgs {
    pub(super) fn level(&self) -> Verbosity {
        match (self.quiet, self.verbose) {
            (true, _) => Verbosity::Quiet,
            (false, 0) => Verbosity::Normal,
            (false, 1) => Verbosity::Units,
            (false, _) => Verbosity::Rejects,
        }
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.level() == Verbosity::Quiet
    }
}
