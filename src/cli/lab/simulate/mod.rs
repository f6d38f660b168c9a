//! `dsconvert simulate`: simulates how long a model waits for its data loader.

mod args;

pub(in crate::cli) use args::{Args, read_trace};

use crate::lab::simulator as sim;
use sim::{Options, Sweep, SweepPoint, SweepRange, Verdict};

use crate::cli::output_file::{check_output, is_same_file, is_stdout, write_output};
use crate::cli::{Ending, print};
use crate::error::{Error, Result};
use crate::lab::simulator_error;
use crate::storage::interrupt;

/// Runs `dsconvert simulate`.
pub(super) fn exec(args: &Args) -> Result<Ending> {
    let text = output(args)?;
    if ![&args.svg, &args.html].into_iter().flatten().any(|file| is_stdout(file)) {
        print::out(&text)?;
    }
    Ok(Ending::Success)
}

/// Writes the requested files, and returns the text that the command prints.
pub(in crate::cli) fn output(args: &Args) -> Result<String> {
    if let (Some(svg), Some(html)) = (&args.svg, &args.html)
        && is_same_file(svg, html)
    {
        return Err(Error::usage("--svg and --html name the same file"));
    }
    for (option, file) in [("svg", &args.svg), ("html", &args.html)] {
        file.as_deref().map_or(Ok(()), |file| check_output(option, file, None))?;
    }
    let range = args.sweep.as_deref().map(str::parse::<SweepRange>).transpose().map_err(simulator_error)?;
    let options = args.options(range.as_ref())?;
    match &range {
        Some(range) => sweep(args, &options, range),
        None => simulate(args, &options),
    }
}

fn simulate(args: &Args, options: &Options) -> Result<String> {
    let run = sim::simulate(options).map_err(simulator_error)?;
    // Built before any file is written, so that a failure writes nothing.
    let html =
        args.html.as_ref().map(|_| sim::page_html(&run, &args.title)).transpose().map_err(simulator_error)?;
    if let Some(path) = &args.svg {
        write_output(path, sim::timeline_svg(&run, &args.title).as_bytes())?;
    }
    if let (Some(path), Some(html)) = (&args.html, html) {
        write_output(path, html.as_bytes())?;
    }
    let (report, verdict) = (run.report(), Verdict::of(&run));
    Ok(if args.json {
        format!("{}\n", report.to_json(&verdict))
    } else {
        format!("{report}{:<14}{verdict}\n", "verdict")
    })
}

fn sweep(args: &Args, options: &Options, range: &SweepRange) -> Result<String> {
    let mut sweep = Sweep { parameter: range.parameter, points: Vec::new() };
    for &value in &range.values {
        // In Python, signals are handled only here.
        interrupt::check()?;
        let point = SweepPoint::run(options, range.parameter, value).map_err(simulator_error)?;
        sweep.points.push(point);
    }
    if let Some(path) = &args.svg {
        write_output(path, sweep.to_svg(&args.title).as_bytes())?;
    }
    Ok(if args.json { format!("{}\n", sweep.to_json()) } else { sweep.to_string() })
}
