//! The commands of the loader lab: `bench`, `headspace` and `simulate`.

mod bench;
mod headspace;
pub(super) mod simulate;

use clap::Subcommand;

use super::{Ending, examples};
use crate::error::Result;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Measure how fast images, text or a dataset can be read
    Bench(Box<bench::Args>),
    /// Estimate how much training would gain from faster loading
    Headspace(Box<headspace::Args>),
    /// Simulate data loader workers, their queue and the model
    #[command(after_long_help = examples::SIMULATE)]
    Simulate(Box<simulate::Args>),
}

/// Executes a command of the lab.
pub(super) fn exec(command: &Command) -> Result<Ending> {
    match command {
        Command::Bench(args) => bench::exec(args),
        Command::Headspace(args) => headspace::exec(args),
        Command::Simulate(args) => simulate::exec(args),
    }
}
