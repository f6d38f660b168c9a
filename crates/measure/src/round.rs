//! Rounds: threads, or threads of several processes, load batches and time their stages.
//!
//! A child process gets the arguments of its parent plus a hidden flag, so it finds the same targets. It then
//! answers each [`JobRequest`] on its standard input with a [`Round`] on its standard output, one JSON object per line.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use super::order::{BatchOrder, ReadOrder};
use super::report::LatencyHistogram;
use super::target::OpenTarget;
use crate::error::{Error, ErrorKind, Result};
use crate::numbers::plural;
use crate::{panics, threads};

/// Maximum number of failed items to record.
const MAX_FAILED: usize = 1000;
/// Maximum number of batch times to keep for a trace.
const MAX_TRACE: usize = 1_000_000;

/// Parameters of a round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoundSpec {
    /// Ordinal of the target.
    pub target: usize,
    /// Order of the items.
    pub order: ReadOrder,
    /// Threads of each process.
    pub threads: usize,
    /// Whether items are decoded.
    pub decode: bool,
    /// Seed of the order.
    pub seed: u64,
    /// Ordinal of the process. It takes every `jobs`-th claim, so that processes do not read the same batches.
    pub job: usize,
    /// Number of processes.
    pub jobs: usize,
    /// Maximum time; `None` without a limit.
    pub seconds: Option<f64>,
    /// Number of items after which no batch is started; `None` without a limit.
    pub items: Option<u64>,
    /// Whether the round ends with the epoch, because items that were read once are in the page cache.
    pub single_pass: bool,
}

/// Results of a round: what it delivered, and its times.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Wall time in seconds.
    pub seconds: f64,
    /// Items delivered.
    pub items: u64,
    /// Batches loaded.
    pub batches: u64,
    /// Stored bytes read.
    pub bytes: f64,
    /// Token ids delivered, without padding.
    pub tokens: u64,
    /// Rows × width of all batches of ids.
    pub padded_tokens: u64,
    /// Time in each stage, over all threads.
    pub stages: StageTimes,
    /// Time of all batches, over all threads.
    pub busy_ns: u64,
    /// Times of items.
    pub item_ns: LatencyHistogram,
    /// Times of batches.
    pub batch_hist: LatencyHistogram,
    /// Times of batches in their order, at most 1,000,000.
    pub batch_ns: Vec<u64>,
    /// Items that could not be loaded, with the reasons: at most 1,000.
    pub failed: BTreeMap<u64, String>,
}

impl Round {
    /// Adds the results of another process that ran at the same time.
    pub(super) fn join(&mut self, other: Self) {
        self.seconds = self.seconds.max(other.seconds);
        self.merge(other);
    }

    fn merge(&mut self, other: Self) {
        self.items += other.items;
        self.batches += other.batches;
        self.bytes += other.bytes;
        self.tokens += other.tokens;
        self.padded_tokens += other.padded_tokens;
        self.stages.add(&other.stages);
        self.busy_ns += other.busy_ns;
        self.item_ns.merge(&other.item_ns);
        self.batch_hist.merge(&other.batch_hist);
        self.batch_ns.extend(other.batch_ns);
        self.batch_ns.truncate(MAX_TRACE);
        for (item, why) in other.failed {
            if self.failed.len() < MAX_FAILED {
                self.failed.insert(item, why);
            }
        }
    }

    fn add(&mut self, batch: &LoadedBatch, ns: u64) {
        self.items += batch.delivered;
        self.batches += 1;
        self.bytes += batch.bytes;
        self.tokens += batch.tokens;
        self.padded_tokens += batch.padded_tokens;
        self.stages.add(&batch.stages);
        self.busy_ns += ns;
        self.batch_hist.add(ns);
        let shared = batch.shared_ns / batch.delivered.max(1);
        batch.item_ns.iter().for_each(|own| self.item_ns.add(own + shared));
        for (item, why) in &batch.failed {
            if self.failed.len() < MAX_FAILED {
                self.failed.insert(*item, why.clone());
            }
        }
    }
}

/// State that the threads of a round share.
struct RoundState<'a> {
    spec: &'a RoundSpec,
    order: &'a BatchOrder,
    claims: AtomicU64,
    /// Items of the batches that have been started.
    items_started: AtomicU64,
    deadline: Option<Instant>,
}

impl RoundState<'_> {
    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
            || self.spec.items.is_some_and(|items| self.items_started.load(Relaxed) >= items)
    }

    /// Loads batches until the round is over. Every thread loads at least one batch, if there is one.
    fn work(&self, target: &OpenTarget<'_>) -> (Round, Vec<(u64, u64)>) {
        let mut worker = target.worker();
        let (mut round, mut times) = (Round::default(), Vec::new());
        let mut loaded = LoadedBatch::default();
        let mut is_first = true;
        loop {
            let claim = self.claims.fetch_add(self.spec.jobs.max(1) as u64, Relaxed);
            if self.spec.single_pass && claim >= self.order.claims() {
                return (round, times);
            }
            let batches = self.order.claim(claim);
            if batches.is_empty() {
                return (round, times);
            }
            for number in batches {
                if self.is_over() && !is_first {
                    return (round, times);
                }
                is_first = false;
                let items = self.order.batch(number);
                self.items_started.fetch_add(items.len() as u64, Relaxed);
                loaded.clear();
                let start = Instant::now();
                worker.load(&items, self.spec.decode, &mut loaded);
                let ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
                round.add(&loaded, ns);
                if times.len() < MAX_TRACE {
                    times.push((number, ns));
                }
            }
        }
    }
}

/// Runs a round.
///
/// # Errors
///
/// If no thread could be started, or one panicked.
pub(super) fn run(target: &OpenTarget<'_>, order: &BatchOrder, spec: &RoundSpec) -> Result<Round> {
    let start = Instant::now();
    let state = RoundState {
        spec,
        order,
        claims: AtomicU64::new(spec.job as u64),
        items_started: AtomicU64::new(0),
        deadline: spec.seconds.map(|s| start + Duration::from_secs_f64(s)),
    };
    let results = Mutex::new(Vec::new());
    let panicked = Mutex::new(None);
    std::thread::scope(|scope| {
        let started = threads::start_up_to(spec.threads, |_| {
            let work = || match panics::caught(|| state.work(target)) {
                Ok(found) => results.lock().unwrap_or_else(PoisonError::into_inner).push(found),
                Err(panic) => {
                    *panicked.lock().unwrap_or_else(PoisonError::into_inner) =
                        Some(panic.into_error("loading a batch"));
                }
            };
            threads::named("bench").spawn_scoped(scope, work)
        });
        started.map(drop)
    })?;
    let seconds = start.elapsed().as_secs_f64();
    if let Some(error) = panicked.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let (mut round, mut times) = (Round { seconds, ..Round::default() }, Vec::new());
    for (of_thread, some) in results.into_inner().unwrap_or_else(PoisonError::into_inner) {
        round.merge(of_thread);
        times.extend(some);
    }
    times.sort_unstable();
    round.batch_ns = times.into_iter().map(|(_, ns)| ns).take(MAX_TRACE).collect();
    Ok(round)
}

/// Size of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BenchBatchSize {
    /// A fixed number of items.
    Items(u64),
    /// Text: as many documents as fit into this many tokens when padded to the longest.
    Tokens(u64),
}

/// Nanoseconds in each stage of loading.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageTimes {
    /// Opening files.
    pub open: u64,
    /// Reading bytes or records.
    pub read: u64,
    /// Decoding.
    pub decode: u64,
    /// Resizing, tokenization.
    pub transform: u64,
    /// Assembling the batch.
    pub collate: u64,
}

impl StageTimes {
    /// Sum of all stages.
    pub fn total(&self) -> u64 {
        self.open + self.read + self.decode + self.transform + self.collate
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.open += other.open;
        self.read += other.read;
        self.decode += other.decode;
        self.transform += other.transform;
        self.collate += other.collate;
    }
}

/// Stopwatch for consecutive stages.
#[derive(Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts the stopwatch.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Returns the nanoseconds since the start or the last lap.
    pub fn ns(&mut self) -> u64 {
        let now = Instant::now();
        let ns = now.duration_since(self.0).as_nanos();
        self.0 = now;
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

/// Times and counts of one loaded batch. Reused from batch to batch.
#[derive(Debug, Default)]
pub struct LoadedBatch {
    /// Time in each stage.
    pub stages: StageTimes,
    /// Time spent on each item alone, in batch order.
    pub item_ns: Vec<u64>,
    /// Time of the work done once per batch.
    pub shared_ns: u64,
    /// Number of items in the batch.
    pub delivered: u64,
    /// Their stored bytes.
    pub bytes: f64,
    /// Their token ids.
    pub tokens: u64,
    /// Rows × width of a batch of ids.
    pub padded_tokens: u64,
    /// Items that could not be loaded, with the reasons.
    pub failed: Vec<(u64, String)>,
}

impl LoadedBatch {
    pub(super) fn clear(&mut self) {
        let (mut item_ns, mut failed) = (std::mem::take(&mut self.item_ns), std::mem::take(&mut self.failed));
        item_ns.clear();
        failed.clear();
        *self = Self { item_ns, failed, ..Self::default() };
    }
}

/// Shape of one delivered item. Only targets that deliver equal shapes are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveredShape {
    /// RGB pixels.
    Pixels {
        /// Columns.
        width: u32,
        /// Rows.
        height: u32,
    },
    /// Token ids: their count, and the XXH3-128 of the ids as 32-bit integers.
    Tokens {
        /// Number of ids.
        count: u64,
        /// Digest of the ids.
        digest: u128,
    },
}

impl DeliveredShape {
    /// Returns the number and the digest of `ids`.
    pub fn of_ids(ids: &[u32]) -> Self {
        let mut hash = Xxh3::new();
        ids.iter().for_each(|id| hash.update(&id.to_le_bytes()));
        Self::Tokens { count: ids.len() as u64, digest: hash.digest128() }
    }
}

impl std::fmt::Display for DeliveredShape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pixels { width, height } => write!(f, "{width}×{height} pixels"),
            Self::Tokens { count, digest } => {
                write!(f, "{} ({:08x}…)", plural(*count, "token"), digest >> 96)
            }
        }
    }
}

/// Loads batches on one thread.
pub trait BatchWorker {
    /// Loads `items` into a batch, with or without decoding.
    fn load(&mut self, items: &[u64], decode: bool, out: &mut LoadedBatch);

    /// Loads one item and returns its shape, or the reason why it cannot be loaded.
    fn shape(&mut self, item: u64) -> Result<DeliveredShape, String>;
}

/// Documents of a batch, padded to the longest: `rows × width` 64-bit ids.
#[derive(Debug, Default)]
pub struct IdRows {
    /// Concatenated ids of all documents.
    pub flat: Vec<u32>,
    /// End of each document in `flat`.
    pub ends: Vec<usize>,
    padded: Vec<i64>,
}

impl IdRows {
    /// Removes all documents.
    pub fn clear(&mut self) {
        self.flat.clear();
        self.ends.clear();
    }

    /// Ends the document whose ids were added to `flat`.
    pub fn end_document(&mut self) {
        self.ends.push(self.flat.len());
    }

    /// Copies the ids to padded rows, and sets the token counts in `out`.
    pub fn pad(&mut self, out: &mut LoadedBatch) {
        let starts = || std::iter::once(0).chain(self.ends.iter().copied());
        let width = starts().zip(&self.ends).map(|(start, end)| end - start).max().unwrap_or(0);
        // Padding is written for every batch, because a loader allocates a new tensor for each.
        self.padded.clear();
        self.padded.resize(self.ends.len() * width, 0);
        if width > 0 {
            for ((start, &end), row) in starts().zip(&self.ends).zip(self.padded.chunks_exact_mut(width)) {
                let ids = self.flat.get(start..end).unwrap_or_default();
                row.iter_mut().zip(ids).for_each(|(to, &id)| *to = i64::from(id));
            }
        }
        std::hint::black_box(&self.padded);
        out.tokens = self.flat.len() as u64;
        out.padded_tokens = self.padded.len() as u64;
    }
}

/// Request to a child process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobRequest {
    /// Close all targets, so that their pages can leave the page cache. Answered with an empty round.
    Close,
    /// Open the target and run a round.
    Run(RoundSpec),
}

/// A child process that runs rounds.
#[derive(Debug)]
struct JobProcess {
    child: Child,
    /// Closed before waiting for the process.
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

/// Child processes that run rounds at the same time.
#[derive(Debug)]
pub(super) struct Jobs(Vec<JobProcess>);

fn failed(what: &str) -> Error {
    Error::new(ErrorKind::Io, format!("a child process of the benchmark {what}"))
        .help("see its message above; try again with a single job")
}

impl Jobs {
    /// Starts `count` processes with `command`.
    pub(super) fn start(count: usize, mut command: impl FnMut() -> Command) -> Result<Self> {
        // If a process cannot be started, dropping `jobs` ends those that were.
        let mut jobs = Self(Vec::with_capacity(count));
        for _ in 0..count {
            let mut command = command();
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().map_err(|e| failed("could not be started").caused_by(e))?;
            let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
                return Err(Error::internal("a child process has no pipes"));
            };
            jobs.0.push(JobProcess { child, requests: Some(requests), answers: BufReader::new(answers) });
        }
        Ok(jobs)
    }

    /// Sends each process its request, and joins the answers into one round.
    pub(super) fn ask(&mut self, request: impl Fn(usize) -> JobRequest) -> Result<Round> {
        for (ordinal, job) in self.0.iter_mut().enumerate() {
            let line = serde_json::to_string(&request(ordinal));
            let line = line.map_err(|e| Error::not_serialized("a request", e))?;
            let sent = job.requests.as_mut().map(|pipe| writeln!(pipe, "{line}").and_then(|()| pipe.flush()));
            match sent {
                Some(Ok(())) => {}
                Some(Err(e)) => return Err(failed("ended").caused_by(e)),
                None => return Err(failed("ended")),
            }
        }
        let mut all = Round::default();
        for job in &mut self.0 {
            let mut line = String::new();
            let read = job.answers.read_line(&mut line).map_err(|e| failed("cannot be read").caused_by(e))?;
            if read == 0 {
                return Err(failed("ended"));
            }
            all.join(serde_json::from_str(&line).map_err(|e| failed("sent an invalid answer").caused_by(e))?);
        }
        Ok(all)
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        for job in &mut self.0 {
            job.requests = None;
            // Closing the pipe ends an idle process, but not one in the middle of a round.
            let _ = job.child.kill();
            let _ = job.child.wait();
        }
    }
}

/// Answers requests until there are no more.
///
/// # Errors
///
/// If a round fails, or requests or answers cannot be transferred.
pub fn serve_rounds(
    requests: impl BufRead,
    mut answers: impl Write,
    mut run: impl FnMut(JobRequest) -> Result<Round>,
) -> Result<()> {
    let broken = |e: std::io::Error| failed("lost the connection to its parent").caused_by(e);
    for line in requests.lines() {
        let request = serde_json::from_str(&line.map_err(broken)?);
        let request = request.map_err(|e| Error::usage("invalid benchmark request").caused_by(e))?;
        let round = serde_json::to_string(&run(request)?);
        let round = round.map_err(|e| Error::not_serialized("a round", e))?;
        writeln!(answers, "{round}").and_then(|()| answers.flush()).map_err(broken)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_padded_to_the_longest_document() {
        let mut rows = IdRows::default();
        for ids in [&[1u32, 2, 3][..], &[], &[4]] {
            rows.flat.extend_from_slice(ids);
            rows.end_document();
        }
        let mut out = LoadedBatch::default();
        rows.pad(&mut out);
        assert_eq!(rows.padded, [1, 2, 3, 0, 0, 0, 4, 0, 0]);
        assert_eq!((out.tokens, out.padded_tokens), (4, 9));
        rows.clear();
        rows.pad(&mut out);
        assert_eq!((out.tokens, out.padded_tokens), (0, 0));
    }

    #[test]
    fn requests_are_answered_line_by_line() {
        let spec = RoundSpec {
            target: 1,
            order: ReadOrder::Random,
            threads: 2,
            decode: true,
            seed: 3,
            job: 1,
            jobs: 2,
            seconds: None,
            items: Some(4),
            single_pass: false,
        };
        let lines: Vec<String> = [JobRequest::Close, JobRequest::Run(spec.clone())]
            .iter()
            .map(|request| serde_json::to_string(request).unwrap())
            .collect();
        let (mut seen, mut answers) = (Vec::new(), Vec::new());
        serve_rounds(lines.join("\n").as_bytes(), &mut answers, |request| {
            seen.push(request);
            Ok(Round { items: seen.len() as u64, ..Round::default() })
        })
        .unwrap();
        assert_eq!(seen, [JobRequest::Close, JobRequest::Run(spec)]);
        let rounds: Vec<Round> =
            answers.split(|b| *b == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
        assert_eq!(rounds.iter().map(|r| r.items).collect::<Vec<_>>(), [1, 2]);
        assert!(serve_rounds(&b"nonsense\n"[..], Vec::new(), |_| Ok(Round::default())).is_err());
    }

    #[test]
    fn a_process_that_ends_early_is_an_error() {
        let mut jobs = Jobs::start(2, || Command::new("true")).unwrap();
        assert!(jobs.ask(|_| JobRequest::Close).is_err());
        assert!(Jobs::start(1, || Command::new("/nonexistent/program")).is_err());
    }
}
