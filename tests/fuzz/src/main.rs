//! `cargo run -p dsconvert-fuzz -- --time 60s`: mutates files that dsconvert reads, and counts what goes wrong.
//!
//! A case is a target, a seed and a number: the same three give the same bytes. Cases run in worker processes with a
//! limited address space, so that a failed allocation, a stack overflow or a hang ends the worker and not the search.
//! `docs/explanation/testing.md` describes targets and findings.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool")]

mod finding;
mod mutate;
mod random;
mod supervisor;
mod targets;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use self::supervisor::Budget;

/// Errors of the tool itself; findings are counted instead.
type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T, E = Error> = std::result::Result<T, E>;

/// Mutate files that dsconvert reads, and count panics, aborts, hangs and wrong records.
#[derive(Debug, Parser)]
#[command(name = "dsconvert-fuzz", max_term_width = 100)]
struct Args {
    /// Time for all targets together, such as 30s, 10m or 2h
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with = "cases", default_value = "60s")]
    time: Duration,
    /// Cases of each target, instead of a time; the run is then deterministic
    #[arg(long, value_name = "N")]
    cases: Option<u64>,
    /// Seed of the mutations
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Targets to run, instead of all
    #[arg(long = "target", value_name = "NAME", value_parser = targets::NAMES)]
    targets: Vec<String>,
    /// Number of concurrent worker processes
    #[arg(long, value_name = "N", default_value_t = 2)]
    jobs: usize,
    /// Directory for mutants that went wrong
    #[arg(long, value_name = "DIR", default_value = "target/fuzz-findings")]
    findings: PathBuf,
    /// Run one saved mutant in this process
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cases", "targets"])]
    replay: Option<PathBuf>,
    /// Run a worker process with the order in this file
    #[arg(long, hide = true)]
    worker: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::from(2)
        }
    }
}

/// Returns whether nothing went wrong.
fn run(args: &Args) -> Result<bool> {
    if let Some(progress) = &args.worker {
        return worker::run(progress).map(|()| true);
    }
    if let Some(file) = &args.replay {
        return finding::replay(file);
    }
    let names: Vec<&'static str> = match args.targets.is_empty() {
        true => targets::NAMES.to_vec(),
        false => targets::NAMES.into_iter().filter(|name| args.targets.iter().any(|t| t == name)).collect(),
    };
    let budget = match args.cases {
        Some(cases) => Budget::Cases(cases),
        None => Budget::Time(args.time.mul_f64(args.jobs.clamp(1, names.len()) as f64 / names.len() as f64)),
    };
    supervisor::run(&names, args.seed, budget, args.jobs.max(1), &args.findings)
}

fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err("expected a number and s, m or h".to_owned()),
    };
    let number: u64 = number.parse().map_err(|_| "expected a number and s, m or h".to_owned())?;
    Ok(Duration::from_secs(number.saturating_mul(seconds)))
}
