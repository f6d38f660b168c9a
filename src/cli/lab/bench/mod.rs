//! `dsconvert bench`: measures how fast images, text or a dataset can be read.

mod effort_args;
mod target_args;
mod text;

pub(super) use effort_args::{EffortArgs, announce};
pub(super) use target_args::TargetArgs;

use std::io;
use std::path::PathBuf;
use std::process::Command;

use crate::cli::output_file::{check_output, is_stdout, write_output};
use crate::cli::{Ending, print};
use crate::error::{Error, Result};
use crate::lab::{Bench, BenchOptions, ReadOrder, TargetKind, serve_rounds};
use crate::options::{DEFAULT_SEED, default_threads};

/// Hidden flag of a child process that serves requests for rounds.
const JOB_FLAG: &str = "--serve-rounds";

const EXAMPLES: &str = "\
Examples:
  dsconvert bench photos                               files as they are, in order and shuffled, on 1 and all cores
  dsconvert bench photos-256 --against photos          speedup over the files it was made from
  dsconvert bench corpus.jsonl -t tokenizer.json       lines, JSON and tokenization
  dsconvert bench tokens --batch-tokens 16384          batches with a token budget, and their padding
  dsconvert bench photos --cold --jobs 4               from the disk, with four processes
  dsconvert bench photos --threads 1 --trace load.txt  load times for dsconvert simulate --load-trace load.txt";

/// Arguments of `dsconvert bench`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// Folder of images, .jsonl or .txt files (also .gz, .zst, .xz, .bz2), or directory or URL of a dataset
    #[arg(value_name = "PATH")]
    path: PathBuf,

    /// Compare PATH with this one, in alternating rounds; both must deliver the same images or tokens
    #[arg(long, value_name = "PATH")]
    against: Option<PathBuf>,

    #[command(flatten)]
    target: TargetArgs,

    /// Orders: sequential, random, bucketed (text: batches of similar length) [default: sequential,random, and bucketed
    /// for datasets of text]
    #[arg(long, value_name = "LIST", help_heading = "Measurement")]
    order: Option<String>,

    /// Numbers of threads, such as 1,2,4 or 1..4 [default: 1 and number of cores]
    #[arg(long, value_name = "LIST", help_heading = "Measurement", allow_hyphen_values = true)]
    threads: Option<String>,

    /// Measure with decoding (default; together with --no-decode, both ways)
    #[arg(long, help_heading = "Measurement")]
    decode: bool,

    /// Measure without decoding: only open and read
    #[arg(long, help_heading = "Measurement")]
    no_decode: bool,

    #[command(flatten)]
    effort: EffortArgs,

    /// Drop the files from the page cache before each round (at a URL: open the dataset again), and read each file once
    #[arg(long, help_heading = "Measurement")]
    cold: bool,

    /// Read with N processes at the same time, and sum their throughput
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        help_heading = "Measurement",
        allow_hyphen_values = true
    )]
    jobs: usize,

    /// Seed of random orders
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SEED, help_heading = "Measurement")]
    seed: u64,

    /// Skip the plain reads of the same files, which are measured for comparison
    #[arg(long, help_heading = "Measurement")]
    no_probe: bool,

    /// Write the load times of batches to FILE, for dsconvert simulate --load-trace
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    trace: Option<PathBuf>,

    /// Print the result as JSON
    #[arg(long, help_heading = "Output")]
    json: bool,

    /// Answer requests for rounds on standard input
    #[arg(long = "serve-rounds", hide = true)]
    serve_rounds: bool,
}

/// Parses a list such as `1,2,4` or a range such as `1..4`.
pub(super) fn counts(flag: &str, text: &str, min: u64, max: u64) -> Result<Vec<u64>> {
    let bad = |what: &str| {
        Error::usage(format!("{flag}: `{what}` is not a number from {min} to {max}"))
            .help("write a list such as 1,2,4 or a range such as 1..4")
    };
    let number = |part: &str| match part.trim().parse::<u64>() {
        Ok(n) if (min..=max).contains(&n) => Ok(n),
        _ => Err(bad(part.trim())),
    };
    let mut found: Vec<u64> = match text.split_once("..") {
        Some((first, last)) => (number(first)?..=number(last.trim_start_matches('='))?).collect(),
        None => text.split(',').map(number).collect::<Result<_>>()?,
    };
    if found.is_empty() {
        return Err(bad(text));
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

impl Args {
    fn orders(&self, kinds: &[TargetKind], compressed: bool) -> Result<Vec<ReadOrder>> {
        let Some(text) = &self.order else {
            let mut orders = vec![ReadOrder::Sequential];
            if !compressed {
                orders.push(ReadOrder::Random);
            }
            if kinds.iter().all(|kind| *kind == TargetKind::TextDataset) {
                orders.push(ReadOrder::Bucketed);
            }
            return Ok(orders);
        };
        let mut orders = Vec::new();
        for name in text.split(',') {
            let order = crate::cli::values::parse("order", name.trim())?;
            if !orders.contains(&order) {
                orders.push(order);
            }
        }
        Ok(orders)
    }

    fn threads(&self) -> Result<Vec<usize>> {
        let Some(text) = &self.threads else {
            let mut threads = vec![1, default_threads()];
            threads.dedup();
            return Ok(threads);
        };
        let max = crate::lab::MAX_THREADS as u64;
        Ok(counts("--threads", text, 1, max)?.into_iter().map(|n| n as usize).collect())
    }

    /// Finds the targets and checks the options.
    fn bench(&self) -> Result<Bench> {
        let targets = self.target.find(&self.path, self.against.as_deref())?;
        for target in &targets {
            let dataset = target.kind.is_dataset().then_some(target.path.as_path());
            self.trace.as_deref().map_or(Ok(()), |file| check_output("trace", file, dataset))?;
        }
        let kinds: Vec<TargetKind> = targets.iter().map(|target| target.kind).collect();
        let compressed = targets.iter().any(|target| target.is_compressed());
        let options = BenchOptions {
            orders: self.orders(&kinds, compressed)?,
            threads: self.threads()?,
            decode: match (self.decode, self.no_decode) {
                (true, true) => vec![true, false],
                (false, true) => vec![false],
                _ => vec![true],
            },
            batch: self.target.batch(),
            effort: self.effort.effort(),
            repeat: self.effort.repeat,
            cold: self.cold,
            jobs: self.jobs,
            seed: self.seed,
            probe: !self.no_probe,
        };
        Bench::new(targets, options)
    }
}

/// Returns this command with [`JOB_FLAG`], for a child process that serves rounds.
fn job() -> Command {
    let mut args = std::env::args_os();
    let mut command = Command::new(args.next().unwrap_or_else(|| "dsconvert".into()));
    command.args(args).arg(JOB_FLAG);
    command
}

/// Runs `dsconvert bench`.
pub(super) fn exec(args: &Args) -> Result<Ending> {
    let bench = args.bench()?;
    if args.serve_rounds {
        serve_rounds(io::stdin().lock(), io::stdout(), bench.answer())?;
        return Ok(Ending::Success);
    }
    announce(&bench);
    let report = bench.run(job)?;
    if let (Some(path), Some(measurement)) = (&args.trace, report.trace_source()) {
        write_output(path, measurement.trace().as_bytes())?;
    }
    if args.trace.as_deref().is_some_and(is_stdout) {
        return Ok(Ending::Success);
    }
    if args.json {
        print::json(&report)?
    } else {
        print::out(&text::report(&report))?
    }
    Ok(Ending::Success)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_lists_or_ranges() {
        let parsed = |text| counts("--threads", text, 1, 64).ok();
        assert_eq!(parsed("1,2,4"), Some(vec![1, 2, 4]));
        assert_eq!(parsed("1..4"), Some(vec![1, 2, 3, 4]));
        assert_eq!(parsed("8, 2,2"), Some(vec![2, 8]));
        for bad in ["", "0", "65", "4..2", "x", "1..", "-1", "1,,2", "1..1000000000"] {
            assert_eq!(parsed(bad), None, "{bad}");
        }
    }
}
