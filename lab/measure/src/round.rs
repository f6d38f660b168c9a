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

use super::batch::{LatencyHistogram, LoadedBatch, StageTimes};
use super::order::{BatchOrder, ReadOrder};
use super::target::OpenTarget;
use crate::error::{Error, ErrorKind, Result};
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
    std::thread::scope(|scope| {
        let started = threads::start_up_to(spec.threads, |_| {
            let work = || {
                let found = panics::caught(|| state.work(target));
                results.lock().unwrap_or_else(PoisonError::into_inner).push(found);
            };
            threads::named("bench").spawn_scoped(scope, work)
        });
        started.map(drop)
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let (mut round, mut times) = (Round { seconds, ..Round::default() }, Vec::new());
    for found in results.into_inner().unwrap_or_else(PoisonError::into_inner) {
        let (of_thread, some) = found.map_err(|panic| panic.into_error("loading a batch"))?;
        round.merge(of_thread);
        times.extend(some);
    }
    times.sort_unstable();
    round.batch_ns = times.into_iter().map(|(_, ns)| ns).take(MAX_TRACE).collect();
    Ok(round)
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
