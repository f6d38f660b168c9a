//! Arguments of `dsconvert simulate`, and the simulator options they describe.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::lab::simulator as sim;
use clap::builder::{PossibleValue, TypedValueParser};
use sim::{
    LoadTimes, LoadTrace, Options, Order, Shape, SlowRuns, Stop, SweepParameter, SweepRange, TimeDistribution,
};

use crate::error::{Error, Result};
use crate::lab::simulator_error;

/// Maximum size of a file of load times.
const MAX_TRACE_BYTES: u64 = 256 << 20;
const NS_PER_SECOND: f64 = 1e9;
/// Values of `--order`.
const ORDERS: [(&str, Order); 3] = [
    (Order::Pytorch.name(), Order::Pytorch),
    (Order::Completed.name(), Order::Completed),
    (Order::Pool.name(), Order::Pool),
];

/// Arguments of `dsconvert simulate`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    /// Mean time in milliseconds for one worker to load one batch
    #[arg(long, value_name = "MS", value_parser = positive_ms, allow_hyphen_values = true)]
    #[arg(required_unless_present = "load_trace", conflicts_with = "load_trace", help_heading = "Loading")]
    load_ms: Option<u64>,

    /// Distribution of load times [default: constant, or lognormal with --load-cv]
    #[arg(
        long,
        visible_alias = "distribution",
        value_name = "NAME",
        value_parser = NameParser(&Shape::ALL),
        help_heading = "Loading"
    )]
    load_distribution: Option<Shape>,

    /// Coefficient of variation of load times: standard deviation ÷ mean
    #[arg(
        long,
        visible_alias = "cv",
        value_name = "X",
        allow_hyphen_values = true,
        help_heading = "Loading"
    )]
    load_cv: Option<f64>,

    /// Read load times from FILE, one batch per line: a number of milliseconds or a JSON object with `load_ms`; repeated if
    /// the run is longer
    #[arg(long, value_name = "FILE", conflicts_with_all = ["load_distribution", "load_cv"], help_heading = "Loading")]
    load_trace: Option<PathBuf>,

    /// Share of slow batches, between 0 and 1; slow batches occur in runs
    #[arg(long, value_name = "X", allow_hyphen_values = true, help_heading = "Loading")]
    slow_share: Option<f64>,

    /// Factor by which a slow batch takes longer
    #[arg(long, value_name = "X", default_value_t = 5.0, requires = "slow_share", help_heading = "Loading")]
    slow_factor: f64,

    /// Mean number of consecutive slow batches
    #[arg(long, value_name = "X", default_value_t = 5.0, requires = "slow_share", help_heading = "Loading")]
    slow_length: f64,

    /// Number of worker processes or threads
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "N",
        required_unless_present = "sweep",
        help_heading = "Loader"
    )]
    workers: Option<u32>,

    /// Number of batches that each worker loads ahead [default: 2]
    #[arg(long, allow_hyphen_values = true, value_name = "N", help_heading = "Loader")]
    prefetch: Option<u32>,

    /// pytorch: batch k belongs to worker k mod N, delivered in order. completed: delivered as completed (PyTorch's
    /// in_order=False). pool: free workers take the next batch, and share one bounded queue
    #[arg(
        long,
        value_name = "NAME",
        default_value = "pytorch",
        value_parser = NameParser(&ORDERS),
        help_heading = "Loader"
    )]
    order: Order,

    /// Capacity of the queue of --order pool, in batches [default: prefetch × workers]
    #[arg(long, allow_hyphen_values = true, value_name = "N", help_heading = "Loader")]
    queue: Option<u32>,

    /// Time before a worker can start its first batch, in milliseconds
    #[arg(long, value_name = "MS", default_value = "0", value_parser = any_ms, allow_hyphen_values = true)]
    #[arg(help_heading = "Loader")]
    startup_ms: u64,

    /// Start each worker MS milliseconds after the previous one [default without MS: mean load time ÷ workers]
    #[arg(long, value_name = "MS", num_args = 0..=1, require_equals = true, value_parser = stagger)]
    #[arg(default_missing_value = "even", help_heading = "Loader")]
    stagger: Option<Stagger>,

    /// Number of cores that the workers share [default: one per worker]
    #[arg(long, allow_hyphen_values = true, value_name = "N", help_heading = "Loader")]
    cores: Option<u32>,

    /// Run the model on one of --cores, like training on the CPU
    #[arg(long, requires = "cores", help_heading = "Model")]
    step_core: bool,

    /// Mean time in milliseconds of one step of the model
    #[arg(long, value_name = "MS", value_parser = positive_ms, allow_hyphen_values = true, help_heading = "Model")]
    step_ms: u64,

    /// Distribution of step times [default: constant, or lognormal with --step-cv]
    #[arg(long, value_name = "NAME", value_parser = NameParser(&Shape::ALL), help_heading = "Model")]
    step_distribution: Option<Shape>,

    /// Coefficient of variation of step times
    #[arg(long, value_name = "X", allow_hyphen_values = true, help_heading = "Model")]
    step_cv: Option<f64>,

    /// Time in milliseconds to copy a batch to the GPU, which is idle meanwhile
    #[arg(long, value_name = "MS", default_value = "0", value_parser = any_ms, allow_hyphen_values = true)]
    #[arg(help_heading = "Model")]
    transfer_ms: u64,

    /// Simulated time in seconds
    #[arg(long, value_name = "S", default_value_t = 30.0, allow_hyphen_values = true, help_heading = "Run")]
    seconds: f64,

    /// Stop after N batches, instead of after --seconds
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "N",
        conflicts_with = "seconds",
        help_heading = "Run"
    )]
    batches: Option<u64>,

    /// Clock resolution in milliseconds: all events occur at multiples of it [default: exact]
    #[arg(long, value_name = "MS", value_parser = positive_ms, allow_hyphen_values = true, help_heading = "Run")]
    tick_ms: Option<u64>,

    /// Seed for random times
    #[arg(long, allow_hyphen_values = true, value_name = "N", default_value_t = 0, help_heading = "Run")]
    seed: u64,

    /// Simulate each value of a range: workers=1..16, workers=1,2,4,8 or prefetch=1..8
    #[arg(long, value_name = "NAME=RANGE", conflicts_with = "html", help_heading = "Output")]
    pub(super) sweep: Option<String>,

    /// Print the result as JSON
    #[arg(long, help_heading = "Output")]
    pub(super) json: bool,

    /// Write the timeline of the run, or the curve of the sweep, to FILE as SVG
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) svg: Option<PathBuf>,

    /// Write an animated HTML page to FILE, with sliders that rerun the simulation
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) html: Option<PathBuf>,

    /// Title of the SVG and the page
    #[arg(long, value_name = "TEXT", default_value = "Data loader simulation", help_heading = "Output")]
    pub(super) title: String,
}

/// Parses milliseconds of at least 0 into nanoseconds.
fn any_ms(text: &str) -> std::result::Result<u64, String> {
    let help = "write milliseconds without a unit, such as 2000 for two seconds";
    let ms: f64 = text.parse().map_err(|_| format!("not a number; {help}"))?;
    sim::ns_from_ms("", ms).map_err(|e| e.message)
}

/// Parses milliseconds above 0 into nanoseconds.
fn positive_ms(text: &str) -> std::result::Result<u64, String> {
    match any_ms(text)? {
        0 => Err("must be more than 0".to_owned()),
        ns => Ok(ns),
    }
}

/// Delay between the starts of two workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stagger {
    /// Starts are spread over one mean load time.
    Even,
    Ns(u64),
}

fn stagger(text: &str) -> std::result::Result<Stagger, String> {
    if text == "even" { Ok(Stagger::Even) } else { any_ms(text).map(Stagger::Ns) }
}

/// Parser for one of a fixed set of names, which `--help` and completions list.
#[derive(Debug, Clone, Copy)]
struct NameParser<T: 'static>(&'static [(&'static str, T)]);

impl<T: Copy + Send + Sync + 'static> TypedValueParser for NameParser<T> {
    type Value = T;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> std::result::Result<T, clap::Error> {
        let all = self.0;
        let parse = move |text: &str| {
            all.iter().find(|(name, _)| *name == text).map(|&(_, value)| value).ok_or_else(|| {
                let names: Vec<&str> = all.iter().map(|&(name, _)| name).collect();
                format!("expected one of {}", names.join(", "))
            })
        };
        parse.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().map(|&(name, _)| PossibleValue::new(name))))
    }
}

/// Returns the distribution that `--{part}-distribution` and `--{part}-cv` describe.
fn distribution(part: &str, mean_ns: u64, shape: Option<Shape>, cv: Option<f64>) -> Result<TimeDistribution> {
    let constant = cv.is_none_or(|cv| cv == 0.0);
    match (shape, cv) {
        (Some(Shape::Exponential), cv) => {
            Ok(TimeDistribution::new(Shape::Exponential, mean_ns, cv.unwrap_or(1.0)))
        }
        (Some(Shape::Constant), _) if !constant => {
            Err(Error::usage(format!("--{part}-cv: constant times do not vary"))
                .help("leave out the cv, or use another distribution"))
        }
        (None | Some(Shape::Constant), _) if constant => Ok(TimeDistribution::constant(mean_ns)),
        (Some(shape), None) => {
            Err(Error::usage(format!("--{part}-distribution {} needs --{part}-cv", shape.name()))
                .help("0.1 is nearly constant, 1 varies as much as the exponential distribution"))
        }
        (shape, cv) => {
            Ok(TimeDistribution::new(shape.unwrap_or(Shape::Lognormal), mean_ns, cv.unwrap_or(0.0)))
        }
    }
}

/// Reads the load times in the file that `option` names.
pub(in crate::cli) fn read_trace(option: &'static str, path: &Path) -> Result<LoadTrace> {
    let failed = |error: Error| error.of_option(option).at_path(path);
    let unreadable = |e: io::Error| failed(Error::usage("cannot read").caused_by(e));
    let bytes = fs::metadata(path).map_err(unreadable)?.len();
    if bytes > MAX_TRACE_BYTES {
        return Err(failed(Error::usage(format!("has {bytes} bytes, more than {MAX_TRACE_BYTES}"))));
    }
    let text = fs::read_to_string(path).map_err(unreadable)?;
    LoadTrace::parse(&text).map_err(|e| failed(simulator_error(e)))
}

impl Args {
    pub(super) fn options(&self, sweep: Option<&SweepRange>) -> Result<Options> {
        let load = match (&self.load_trace, self.load_ms) {
            (Some(path), _) => LoadTimes::Trace(read_trace("load_trace", path)?),
            (None, mean) => LoadTimes::Drawn(distribution(
                "load",
                mean.unwrap_or(0),
                self.load_distribution,
                self.load_cv,
            )?),
        };
        let swept_workers = sweep
            .filter(|range| range.parameter == SweepParameter::Workers)
            .and_then(|range| range.values.first().copied());
        let workers = self
            .workers
            .or(swept_workers)
            .ok_or_else(|| Error::usage("--sweep prefetch needs --workers").help("add --workers N"))?;
        if self.queue.is_some() && self.order != Order::Pool {
            return Err(Error::usage("--queue needs --order pool")
                .help("the other orders limit batches by --prefetch"));
        }
        self.check_used(sweep)?;
        let slow = self.slow_share.map(|share| SlowRuns {
            share,
            factor: self.slow_factor,
            length: self.slow_length,
        });
        let stop = match self.batches {
            Some(batches) => Stop::Batches(batches),
            None => Stop::AfterNs(self.run_ns()?),
        };
        if self.stagger == Some(Stagger::Even) && swept_workers.is_some() {
            return Err(Error::usage("--stagger needs a value when --sweep varies the workers")
                .help("write --stagger=MS, the time between the starts of two workers"));
        }
        let options = Options {
            workers,
            prefetch: self.prefetch.unwrap_or(sim::DEFAULT_PREFETCH),
            order: self.order,
            queue: self.queue,
            stagger_ns: match self.stagger {
                None => 0,
                Some(Stagger::Ns(ns)) => ns,
                Some(Stagger::Even) => (load.mean_ns() / f64::from(workers)).round() as u64,
            },
            load,
            slow,
            step: distribution("step", self.step_ms, self.step_distribution, self.step_cv)?,
            transfer_ns: self.transfer_ms,
            startup_ns: self.startup_ms,
            cores: self.cores,
            step_core: self.step_core,
            tick_ns: self.tick_ms.unwrap_or(1),
            seed: self.seed,
            stop,
        };
        options.check().map_err(simulator_error)?;
        Ok(options)
    }

    /// Refuses options that would have no effect, because the sweep or `--queue` replaces them.
    fn check_used(&self, sweep: Option<&SweepRange>) -> Result<()> {
        let swept = sweep.map(|range| range.parameter);
        let unused = |what: &str, why: &str, help: &str| {
            Err(Error::usage(format!("{what} has no effect: {why}")).help(help.to_owned()))
        };
        if self.queue.is_some() && swept == Some(SweepParameter::Prefetch) {
            return unused("--sweep prefetch", "--queue limits the batches", "leave out --queue");
        }
        let varies = "--sweep varies it";
        match (swept, self.workers, self.prefetch) {
            (Some(SweepParameter::Workers), Some(_), _) => unused("--workers", varies, "leave out --workers"),
            (Some(SweepParameter::Prefetch), _, Some(_)) => {
                unused("--prefetch", varies, "leave out --prefetch")
            }
            (_, _, Some(_)) if self.queue.is_some() => {
                unused("--prefetch", "--queue limits the batches", "leave out one of them")
            }
            _ => Ok(()),
        }
    }

    fn run_ns(&self) -> Result<u64> {
        let most = sim::MAX_RUN_NS as f64 / NS_PER_SECOND;
        if !(self.seconds > 0.0 && self.seconds <= most) {
            return Err(Error::usage(format!(
                "--seconds must be above 0 and at most {most}, not {}",
                self.seconds
            )));
        }
        Ok((self.seconds * NS_PER_SECOND).round() as u64)
    }
}
