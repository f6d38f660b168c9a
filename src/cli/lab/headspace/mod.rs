//! `dsconvert headspace`: estimates how much training would gain from faster loading.

mod text;

use std::path::PathBuf;

use crate::lab::simulator::LoadTrace;

use super::bench::{EffortArgs, TargetArgs, announce, counts};
use super::simulate::read_trace;
use crate::cli::{Ending, print};
use crate::error::{Error, Result};
use crate::lab::{
    Bench, BenchOptions, BenchReport, Headspace, HeadspaceOptions, PaddingTime, ReadOrder, TargetKind,
};
use crate::numbers::plural;
use crate::options::{DEFAULT_SEED, default_threads};

/// Maximum number of workers to consider.
const MAX_WORKERS: u64 = crate::lab::simulator::MAX_WORKERS as u64;

const EXAMPLES: &str = "\
Examples:
  dsconvert headspace photos --step-ms 200 --resize shorter:256 --batch-size 64
  dsconvert headspace photos --step-ms 200 --batch-size 64 --against photos-256 --steps 200000
  dsconvert headspace corpus.jsonl -t tokenizer.json --step-ms 90 --workers 4
  dsconvert headspace --trace load.txt --step-ms 200   load times of dsconvert bench --trace, or of your own loader

Step time is the time of one training step on a batch that is reused, without loading.";

/// Arguments of `dsconvert headspace`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// Folder of images, .jsonl or .txt files, or directory or URL of a dataset
    #[arg(value_name = "PATH", required_unless_present = "trace")]
    path: Option<PathBuf>,

    /// Read the load times of batches on one worker from FILE, instead of measuring PATH
    #[arg(long, value_name = "FILE", conflicts_with_all = ["path", "against", "EffortArgs", "TargetArgs"])]
    trace: Option<PathBuf>,

    /// Also predict training on this dataset, which must deliver the same images or tokens
    #[arg(long, value_name = "DATASET")]
    against: Option<PathBuf>,

    /// Time of one training step without loading, in milliseconds
    #[arg(long, value_name = "MS", allow_hyphen_values = true)]
    step_ms: f64,

    /// Numbers of workers to consider, such as 4, 0,2,4 or 1..8; 0 loads in the training process [default: 0, 1, 2, 4, … up
    /// to the number of cores]
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    workers: Option<String>,

    /// Number of steps of a training run, to report the gain in hours
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    steps: Option<u64>,

    /// Number of batches that each worker loads ahead
    #[arg(long, value_name = "N", default_value_t = 2, allow_hyphen_values = true)]
    prefetch: u32,

    /// Number of cores that the workers share [default: number of cores of this machine]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    cores: Option<u32>,

    #[command(flatten)]
    effort: EffortArgs,

    #[command(flatten)]
    target: TargetArgs,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Returns 0, the powers of two below `cores`, and `cores`.
fn default_workers(cores: u32) -> Vec<u32> {
    let powers = std::iter::successors(Some(1u32), |n| n.checked_mul(2)).take_while(|n| *n < cores);
    std::iter::once(0).chain(powers).chain([cores]).collect()
}

impl Args {
    fn options(&self) -> Result<HeadspaceOptions> {
        let cores = self.cores.unwrap_or_else(|| u32::try_from(default_threads()).unwrap_or(u32::MAX));
        let workers = match &self.workers {
            Some(text) => counts("--workers", text, 0, MAX_WORKERS)?.into_iter().map(|n| n as u32).collect(),
            None => default_workers(cores.min(MAX_WORKERS as u32)),
        };
        Ok(HeadspaceOptions {
            step_ms: self.step_ms,
            workers,
            prefetch: self.prefetch,
            cores,
            steps: self.steps,
        })
    }

    /// Measures batches on one thread, alternating between the targets, and the padding of text. The order is random,
    /// or sequential if files are compressed.
    fn measure(&self, path: &std::path::Path) -> Result<(BenchReport, Option<PaddingTime>)> {
        let targets = self.target.find(path, self.against.as_deref())?;
        let compressed = targets.iter().any(|target| target.is_compressed());
        let options = BenchOptions {
            orders: vec![if compressed { ReadOrder::Sequential } else { ReadOrder::Random }],
            threads: vec![1],
            decode: vec![true],
            batch: self.target.batch(),
            effort: self.effort.effort(),
            repeat: self.effort.repeat,
            cold: false,
            jobs: 1,
            seed: DEFAULT_SEED,
            probe: false,
        };
        let bench = Bench::new(targets, options)?;
        announce(&bench);
        // A single job starts no child process, so this command never runs.
        let report = bench.run(|| std::process::Command::new("true"))?;
        let padding = match bench.padding()? {
            Some(known) => Some(PaddingTime::new(known.random, Some(known.bucketed), self.step_ms)),
            None => {
                let random = report.measurements.iter().find(|m| m.order == ReadOrder::Random);
                random.and_then(|m| m.padding).map(|share| PaddingTime::new(share, None, self.step_ms))
            }
        };
        Ok((report, padding))
    }
}

/// Returns the path and the load times of the first measurement of `target`.
fn trace_of(report: &BenchReport, target: usize) -> Result<(String, LoadTrace)> {
    let found = report.measurements.iter().find(|m| m.target == target);
    let found = found.ok_or_else(|| Error::internal("a target was not measured"))?;
    let ns: Vec<u64> = found.batch_ns.iter().map(|ns| (*ns).max(1)).collect();
    let trace = LoadTrace::new(ns);
    Ok((found.path.clone(), trace.map_err(|e| Error::internal("invalid load times").caused_by(e))?))
}

/// Runs `dsconvert headspace`.
pub(super) fn exec(args: &Args) -> Result<Ending> {
    let options = args.options()?;
    // Rejects invalid options before anything is measured.
    options.check()?;
    let found = match (&args.path, &args.trace) {
        (_, Some(file)) => {
            let name = file.to_string_lossy().into_owned();
            Headspace::of(&options, (&name, &read_trace("trace", file)?), None, None)?
        }
        (Some(path), None) => {
            let (report, padding) = args.measure(path)?;
            let failures: u64 = report.targets.iter().map(|target| target.failures.count).sum();
            if failures > 0 {
                let items = plural(failures, "item");
                print::warning(format!("{items} cannot be loaded; dsconvert bench names them"));
            }
            if report.targets.iter().any(|t| t.kind == TargetKind::RawText)
                && report.measurements.iter().all(|m| m.tokens_per_second.is_none())
            {
                print::warning("documents are only parsed; give --tokenizer to tokenize them as well");
            }
            let loading = trace_of(&report, 0)?;
            let against = args.against.as_ref().map(|_| trace_of(&report, 1)).transpose()?;
            let against = against.as_ref().map(|(path, trace)| (path.as_str(), trace));
            Headspace::of(&options, (&loading.0, &loading.1), against, padding)?
        }
        (None, None) => return Err(Error::usage("name a PATH to measure, or load times with --trace")),
    };
    if args.json {
        print::json(&found)?
    } else {
        print::out(&text::report(&found))?
    }
    Ok(Ending::Success)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_double_up_to_the_cores() {
        assert_eq!(default_workers(1), [0, 1]);
        assert_eq!(default_workers(6), [0, 1, 2, 4, 6]);
        assert_eq!(default_workers(8), [0, 1, 2, 4, 8]);
    }
}
