#![doc = include_str!("../README.md")]

mod bottleneck;
mod distribution;
mod engine;
mod error;
mod format;
mod json;
mod load;
mod math;
mod options;
mod page;
mod random;
mod remedies;
mod report;
mod run;
mod svg;
mod sweep;
mod trace;
mod verdict;
mod waits;

pub use bottleneck::Bottleneck;
pub use distribution::{MAX_CV, MAX_TIME_NS, Shape, TimeDistribution, ns_from_ms};
pub use engine::simulate;
pub use error::Error;
pub use load::{LoadTimes, SlowRuns};
pub use options::{
    DEFAULT_PREFETCH, MAX_BATCHES, MAX_PREFETCH, MAX_QUEUE, MAX_RUN_NS, MAX_WORKERS, Options, Order, Stop,
};
pub use page::{MAX_PAGE_BATCHES, page_html};
pub use report::{Queue, Report, Stalls};
pub use run::{Batch, Event, EventKind, Run};
pub use svg::timeline_svg;
pub use sweep::{Sweep, SweepParameter, SweepPoint, SweepRange};
pub use trace::LoadTrace;
pub use verdict::Verdict;
pub use waits::STALL_TOLERANCE;
