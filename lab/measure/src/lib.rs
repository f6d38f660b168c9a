//! Benchmarks: how fast data can be read, and whether training would gain from faster reading.
//!
//! [`Bench`] measures a dataset or raw files ([`RawSource`]), or two of these in alternation. [`Headspace`] feeds the
//! measured load times to the simulator of `dsconvert-simulate`. The commands `dsconvert bench` and `headspace` find what
//! to measure, and print the results.
//!
//! # What is measured
//!
//! A *measurement* is a combination of target, order, number of threads and decoding. It has several *rounds* of a
//! given time or number of items; a warm-up round before the first one does not count. Rounds are interleaved: every
//! measurement runs its first round before any runs its second. With two targets, their rounds alternate, and the
//! targets take turns going first. A machine that slows down therefore slows all measurements alike.
//!
//! In a round, each thread takes the next batch of the order and loads it alone, like a worker of a PyTorch
//! `DataLoader`. The time of a batch is the time that one thread takes to load it. It consists of *stages*:
//!
//! | stage | images | text | dataset |
//! |---|---|---|---|
//! | open | open the file | open the file, once per thread | nothing: shards are opened earlier or while reading |
//! | read | its bytes | the bytes of the document; decompression | records, with page faults and the verification of checksums |
//! | decode | to RGB pixels | UTF-8, parsing of JSON | images to RGB pixels |
//! | transform | resize, turn upright, crop, pad | tokenization | nothing: done at conversion |
//! | collate | copy the pixels into the batch | pad the ids to the longest document, as 64-bit integers | the same |
//!
//! *Other* is the rest of the time of a batch. Without decoding, only open and read remain.
//!
//! # Units and definitions
//!
//! * **items/s**: items delivered in a round ÷ its wall time, over all threads and processes.
//! * **bytes/s**: stored bytes of these items ÷ wall time: file sizes of images, bytes of documents (for compressed
//!   text, in proportion to the size of the compressed file), and for datasets the size of the shards ÷ their records.
//!   A megabyte is 10⁶ bytes.
//! * **tokens/s**: token ids before padding ÷ wall time.
//! * **p50, p99 of a batch**: nearest-rank percentiles of batch times over all rounds, exact to 1.6%. **Of an item**:
//!   the time spent on it alone, plus an equal share of the work done once per batch (reading records, collation).
//! * **shares**: time in a stage ÷ time of all batches, over all threads. They add up to 1.
//! * **padding**: 1 − tokens ÷ (rows × width) over all batches, where width is the longest document of the batch.
//! * **median and spread**: of the rounds; the spread is (largest − smallest) ÷ median. A speed-up is the ratio of two
//!   rounds that ran directly after each other, so its spread is that of the ratios.
//! * **residency**: share of the pages of the files that are in the page cache just before a round, as reported by
//!   `fincore` of util-linux ([`Residency`]). It is unknown without `fincore`, and never estimated from timings.
//! * **device limit**: throughput of plain reads of the same files with as many threads and the same residency: blocks
//!   of 1 MiB in order, and blocks of the mean item size in random order, each once per pass ([`Probe`]).
//!
//! Items that do not decode are counted and named, but do not end a run. The time spent on them counts.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

use dsconvert_dataset::{error, format, numbers, panics, sample, sampling, schema, storage, threads};
use dsconvert_reader::{self as reader, decode};

mod batch;
mod headspace;
mod order;
mod probe;
mod report;
mod round;
mod runner;
mod target;

pub use batch::{
    BatchWorker, BenchBatchSize, DeliveredShape, IdRows, LatencyHistogram, LoadedBatch, StageTimes, Stopwatch,
};
pub use headspace::{
    Headspace, HeadspaceOptions, LoadSummary, LoadingOutcome, PaddingTime, WorkerOutcome, simulator_error,
};
pub use order::ReadOrder;
pub use probe::{Probe, Residency};
pub use report::{
    BenchReport, Comparison, DeviceFraction, Failures, Latency, Measurement, Spread, StageShares,
    TargetReport,
};
pub use round::{JobRequest, Round, RoundSpec, serve_rounds};
pub use runner::{Bench, BenchOptions, Effort, MAX_JOBS, MAX_REPEAT, MAX_THREADS};
pub use target::{BenchTarget, RawFile, RawSource, TargetKind};
