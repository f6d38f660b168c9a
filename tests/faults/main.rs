//! Fault injection: any file system call of a run may fail, and the process may be killed at any of them.
//!
//! A small library in C (`inject.c`) is loaded into the real binary and makes the n-th call of one kind fail. After
//! each fault, the exit status is a documented one, there is no manifest unless the dataset is complete, and the same
//! command with `--resume` (or `--overwrite`) ends with the bytes of an undisturbed run.
//!
//! By default, a fault is injected at a sample of the calls of each scenario. The following command injects one error,
//! one lasting error and kills at every call; with `every-error` instead of `faults`, it injects every error:
//!
//! ```sh
//! DSCONVERT_TESTS=faults cargo test --test faults -- --nocapture
//! ```
//!
//! Power cuts are tested, too: the calls of a run are recorded (`record.c`) and replayed on a model of a disk
//! (`disk.rs`) that loses what was not synced.
//!
//! `DSCONVERT_TEST_SEED` selects another sample, and `DSCONVERT_FAULTS_ONLY` the scenarios whose name contains it.

#![cfg(all(target_os = "linux", target_env = "gnu"))]
#![allow(clippy::panic, clippy::unwrap_used, reason = "this is a test")]
#![allow(unreachable_pub, reason = "this is a test, not a library")]

mod disk;
mod inject;
mod power;
mod power_cases;
mod random;
mod record;
mod scenario;
mod sources;
#[path = "../shared/tier.rs"]
mod tier;
#[path = "../shared/tree.rs"]
mod tree;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use inject::{Action, Fault, KINDS, Library};
use power::{Cuts, Tried};
use random::Random;
use scenario::Scenario;

/// Number of concurrent runs, which partly wait for the starts and ends of their processes.
const THREADS: usize = 4;
/// Number of faults of a scenario in a sample.
const SAMPLE: usize = 8;

const EIO: i32 = 5;
const EINTR: i32 = 4;
const EAGAIN: i32 = 11;
const ENOSPC: i32 = 28;
const ESTALE: i32 = 116;
const ERRORS: [i32; 5] = [EIO, ENOSPC, ESTALE, EAGAIN, EINTR];

/// Returns all faults at the `nth` call of `kind`.
fn faults(kind: &'static str, nth: u32) -> Vec<Fault> {
    let fault = |action| Fault { kind, nth, action };
    let mut faults: Vec<Fault> =
        ERRORS.iter().map(|&errno| fault(Action::Error { errno, always: false })).collect();
    // A call that is interrupted forever never ends.
    let lasting = ERRORS.iter().filter(|&&errno| errno != EINTR);
    faults.extend(lasting.map(|&errno| fault(Action::Error { errno, always: true })));
    if matches!(kind, "read" | "write") {
        faults.push(fault(Action::Short));
    }
    // A kill at a call that changes nothing is the same as a kill at the next call that does.
    if matches!(kind, "open" | "write" | "fsync" | "rename" | "unlink" | "mkdir" | "close") {
        faults.extend([fault(Action::KillBefore), fault(Action::KillAfter)]);
    }
    faults
}

/// How many faults are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// One at each of a few calls of every scenario.
    Sample,
    /// One error, one lasting error and all other faults at every call of every scenario.
    All,
    /// All faults at every call of every scenario.
    Every,
}

impl Extent {
    fn of_run() -> Self {
        match tier::lists("every-error") {
            true => Self::Every,
            false if tier::is_exhaustive("faults") => Self::All,
            false => Self::Sample,
        }
    }
}

/// Keeps one error and one lasting error, chosen by `random`, and all faults that are not errors.
fn few(faults: Vec<Fault>, random: &mut impl FnMut(usize) -> usize) -> Vec<Fault> {
    let (errors, mut few): (Vec<Fault>, Vec<Fault>) =
        faults.into_iter().partition(|fault| matches!(fault.action, Action::Error { .. }));
    for lasting in [false, true] {
        let mut errors = errors.clone();
        errors.retain(|fault| matches!(fault.action, Action::Error { always, .. } if always == lasting));
        few.push(errors[random(errors.len())]);
    }
    few
}

/// Returns the faults to try in a scenario whose run makes `counts` calls of each kind.
fn faults_to_try(
    scenario: &Scenario,
    counts: &BTreeMap<&'static str, u32>,
    extent: Extent,
    seed: u64,
) -> Vec<Fault> {
    let mut random = Random::new(&scenario.name, seed);
    let mut random = |below: usize| random.below(below);
    let calls = KINDS.iter().flat_map(|&kind| {
        let count = counts.get(kind).copied().unwrap_or_default();
        (1..=count).map(move |nth| (kind, nth))
    });
    match extent {
        Extent::Every => return calls.flat_map(|(kind, nth)| faults(kind, nth)).collect(),
        Extent::All => return calls.flat_map(|(kind, nth)| few(faults(kind, nth), &mut random)).collect(),
        Extent::Sample => {}
    }
    let mut left: Vec<(&'static str, u32)> = calls.collect();
    let mut sample = Vec::new();
    while sample.len() < SAMPLE && !left.is_empty() {
        let (kind, nth) = left.swap_remove(random(left.len()));
        let mut faults = faults(kind, nth);
        sample.push(faults.swap_remove(random(faults.len())));
    }
    sample
}

#[test]
fn no_fault_leaves_an_incomplete_dataset() {
    let (extent, seed) = (Extent::of_run(), tier::seed());
    let only = std::env::var("DSCONVERT_FAULTS_ONLY").unwrap_or_default();
    // Syncing to a real disk would take most of the time, and the tests do not depend on it.
    let memory = std::path::Path::new("/dev/shm");
    let root = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    let library = Library::compile(root.path());
    let failures: Mutex<Vec<String>> = Mutex::default();
    let (mut total, mut calls) = (0, 0);
    println!("| scenario | calls | faults | exit 0 | exit 3 | killed | not reached |");
    println!("|---|---|---|---|---|---|---|");
    for mut scenario in scenario::all(root.path()) {
        if !scenario.name.contains(&only) {
            continue;
        }
        scenario.prepare(&library);
        let counts = scenario.count_calls(&library);
        let faults = faults_to_try(&scenario, &counts, extent, seed);
        let next = AtomicUsize::new(0);
        let ends: Mutex<BTreeMap<scenario::End, usize>> = Mutex::default();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (scenario, library, faults) = (&scenario, &library, &faults);
                let (next, ends, failures) = (&next, &ends, &failures);
                scope.spawn(move || {
                    while let Some(fault) = faults.get(next.fetch_add(1, Ordering::Relaxed)) {
                        match scenario.survives(library, fault, thread) {
                            Ok(end) => *ends.lock().unwrap().entry(end).or_default() += 1,
                            Err(why) => {
                                let failure = format!("{}, {fault}: {why}", scenario.name);
                                println!("{failure}");
                                failures.lock().unwrap().push(failure);
                            }
                        }
                    }
                });
            }
        });
        let ends = ends.into_inner().unwrap();
        let of = |end| ends.get(&end).copied().unwrap_or_default();
        let scenario_calls: u32 = counts.values().sum();
        println!(
            "| {} | {scenario_calls} | {} | {} | {} | {} | {} |",
            scenario.name,
            faults.len(),
            of(scenario::End::Succeeded),
            of(scenario::End::Failed),
            of(scenario::End::Killed),
            of(scenario::End::NotFired)
        );
        total += faults.len();
        calls += scenario_calls;
    }
    println!("| all | {calls} | {total} | | | | |");
    tier::report(&format!("faults: {total} at {calls} calls"));
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} of {total} faults:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn no_power_cut_leaves_an_incomplete_dataset() {
    let cuts = match Extent::of_run() {
        Extent::Every => Cuts { finished: None, kills: None },
        Extent::All => Cuts { finished: Some(60), kills: None },
        Extent::Sample => Cuts { finished: Some(8), kills: Some(6) },
    };
    let seed = tier::seed();
    let only = std::env::var("DSCONVERT_FAULTS_ONLY").unwrap_or_default();
    let memory = std::path::Path::new("/dev/shm");
    let root = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    let library = Library::compile(root.path());
    let mut cases = power_cases::all(root.path(), &library);
    cases.retain(|case| case.name.contains(&only));
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    println!("| case | recordings | calls | contents checked | finished from |");
    println!("|---|---|---|---|---|");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let disk = root.path().join(format!("disk-{thread}"));
            let (cases, library, next, failures) = (&cases, &library, &next, &failures);
            scope.spawn(move || {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let tried = case.try_all(library, &disk, cuts, seed);
                    let Tried { recordings, calls, checked, finished, .. } = tried;
                    println!("| {} | {recordings} | {calls} | {checked} | {finished} |", case.name);
                    assert!(checked > 100 && finished > 0, "{}: {tried:?}", case.name);
                    failures.lock().unwrap().extend(tried.failures);
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}
