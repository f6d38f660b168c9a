//! Starts workers, checks how they end, and counts results.

use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::finding::Finding;
use crate::worker::{Order, State};
use crate::{Result, targets};

/// Time after which a case counts as a hang.
const HANG: Duration = Duration::from_secs(30);
/// Interval between checks of the workers.
const POLL: Duration = Duration::from_millis(20);
/// Maximum number of cases of a worker. Each run of the command leaves a thread that waits for signals, and after about
/// 1,200 of them the limit on the address space is reached: from then on, every case would be refused.
const WORKER_CASES: u64 = 500;

/// Budget of each target.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Budget {
    Cases(u64),
    Time(Duration),
}

/// One target and its results.
struct Job {
    target: &'static str,
    /// Number of the next case.
    next: u64,
    left: Budget,
    total: State,
    aborts: u64,
    hangs: u64,
    running: Option<Running>,
}

struct Running {
    child: Child,
    dir: tempfile::TempDir,
    started: Instant,
    /// The case and stage that were last seen, and since when.
    seen: (u64, u64, Instant),
}

/// Runs `targets` and prints a table. Returns whether nothing went wrong.
pub(crate) fn run(
    targets: &[&'static str],
    seed: u64,
    budget: Budget,
    jobs: usize,
    findings: &Path,
) -> Result<bool> {
    let job = |&target: &&'static str| Job {
        target,
        next: 0,
        left: budget,
        total: State::default(),
        aborts: 0,
        hangs: 0,
        running: None,
    };
    let mut jobs_left: Vec<Job> = targets.iter().rev().map(job).collect();
    let mut active: Vec<Job> = Vec::new();
    let mut done: Vec<Job> = Vec::new();
    while !(jobs_left.is_empty() && active.is_empty()) {
        while active.len() < jobs
            && let Some(mut job) = jobs_left.pop()
        {
            job.start(seed, findings)?;
            active.push(job);
        }
        std::thread::sleep(POLL);
        let mut still = Vec::new();
        for mut job in active.drain(..) {
            if job.poll(seed, findings)? { still.push(job) } else { done.push(job) }
        }
        active = still;
    }
    Ok(report(&done, findings))
}

/// Creates a directory, in memory if possible, because conversions sync every file.
fn scratch() -> Result<tempfile::TempDir> {
    let memory = Path::new("/dev/shm");
    let mut builder = tempfile::Builder::new();
    builder.prefix("dsconvert-fuzz-");
    Ok(if memory.is_dir() { builder.tempdir_in(memory)? } else { builder.tempdir()? })
}

impl Job {
    fn start(&mut self, seed: u64, findings: &Path) -> Result<()> {
        let dir = scratch()?;
        let (cases, time) = match self.left {
            Budget::Cases(cases) => (cases.min(WORKER_CASES), Duration::MAX / 2),
            Budget::Time(time) => (WORKER_CASES, time),
        };
        let order = Order {
            target: self.target.to_owned(),
            seed,
            first: self.next,
            cases,
            time: time.min(Duration::from_secs(1 << 32)),
            findings: findings.to_owned(),
            state: dir.path().join("state"),
        };
        let path = dir.path().join("order");
        order.write(&path)?;
        let child = Command::new(std::env::current_exe()?)
            .arg("--worker")
            .arg(path)
            // Files that an aborted worker leaves are removed with the supervisor's directory.
            .env("TMPDIR", dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(dir.path().join("stderr"))?)
            .spawn()?;
        let now = Instant::now();
        self.running = Some(Running { child, dir, started: now, seen: (self.next, 0, now) });
        Ok(())
    }

    /// Checks the worker. Returns false if the job is done.
    fn poll(&mut self, seed: u64, findings: &Path) -> Result<bool> {
        let Some(running) = &mut self.running else { return Ok(false) };
        let state = State::load(&running.dir.path().join("state"));
        if (state.case, state.stage) != (running.seen.0, running.seen.1) {
            running.seen = (state.case, state.stage, Instant::now());
        }
        let hangs = running.seen.2.elapsed() > HANG;
        if hangs {
            running.child.kill()?;
        }
        let ended = if hangs { Some(running.child.wait()?) } else { running.child.try_wait()? };
        let Some(status) = ended else { return Ok(true) };
        let state = State::load(&running.dir.path().join("state"));
        let spent = running.started.elapsed();
        let printed = std::fs::read(running.dir.path().join("stderr")).unwrap_or_default();
        self.running = None;
        self.total.accepted += state.accepted;
        self.total.refused += state.refused;
        self.total.wrong += state.wrong;
        self.total.panics += state.panics;
        let has_finished = state.stage == 2 && status.success();
        if !has_finished {
            if status.code() == Some(2) || state.stage == 0 {
                let printed = String::from_utf8_lossy(&printed);
                let last = printed.lines().last().unwrap_or_default();
                return Err(format!("the worker of {} failed: {status}: {last}", self.target).into());
            }
            self.ended_by_case(state.case, hangs, status, seed, findings)?;
        }
        let ran = state.case + 1 - self.next;
        self.next = state.case + 1;
        self.left = match self.left {
            Budget::Cases(cases) => Budget::Cases(cases.saturating_sub(ran)),
            Budget::Time(time) => Budget::Time(time.saturating_sub(spent)),
        };
        let over = matches!(self.left, Budget::Cases(0) | Budget::Time(Duration::ZERO));
        if !over {
            self.start(seed, findings)?;
        }
        Ok(!over)
    }

    fn ended_by_case(
        &mut self,
        case: u64,
        hang: bool,
        status: ExitStatus,
        seed: u64,
        findings: &Path,
    ) -> Result<()> {
        let what = if hang {
            self.hangs += 1;
            format!("hang: more than {} s", HANG.as_secs())
        } else {
            self.aborts += 1;
            format!("abort: {status}")
        };
        let scratch = scratch()?;
        let target = targets::build(self.target, scratch.path())?;
        Finding::of(&*target, self.target, seed, case).save(findings, &what)
    }

    fn cases(&self) -> u64 {
        self.total.accepted + self.total.refused + self.bad()
    }

    fn bad(&self) -> u64 {
        self.total.wrong + self.total.panics + self.aborts + self.hangs
    }
}

fn report(jobs: &[Job], findings: &Path) -> bool {
    println!(
        "{:18} {:>10} {:>10} {:>10} {:>7} {:>7} {:>7} {:>7}",
        "target", "mutants", "accepted", "refused", "wrong", "panics", "aborts", "hangs"
    );
    let line = |name: &str, cases, total: &State, aborts, hangs| {
        println!(
            "{name:18} {cases:>10} {:>10} {:>10} {:>7} {:>7} {aborts:>7} {hangs:>7}",
            total.accepted, total.refused, total.wrong, total.panics
        );
    };
    let mut all = State::default();
    for job in jobs {
        line(job.target, job.cases(), &job.total, job.aborts, job.hangs);
        all.accepted += job.total.accepted;
        all.refused += job.total.refused;
        all.wrong += job.total.wrong;
        all.panics += job.total.panics;
    }
    let sum = |of: fn(&Job) -> u64| jobs.iter().map(of).sum::<u64>();
    line("all", sum(Job::cases), &all, sum(|job| job.aborts), sum(|job| job.hangs));
    let bad = sum(Job::bad);
    if bad > 0 {
        println!("{bad} mutants went wrong; they are in {}, for --replay", findings.display());
    }
    bad == 0
}
