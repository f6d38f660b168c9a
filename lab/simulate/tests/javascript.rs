//! Tests that the page's JavaScript simulator produces the same event logs as the crate.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use common::Dice;
use dsconvert_simulate::{Options, Shape, Stop, TimeDistribution, Verdict, simulate};

/// The lines that `compare.mjs` prints for `options`.
fn expected(options: &Options) -> String {
    let run = simulate(options).unwrap();
    let report = run.report();
    let mut text = String::new();
    for event in &run.events {
        writeln!(text, "{event}").unwrap();
    }
    let end = run.end_ns;
    let computing: u64 =
        run.batches.iter().filter_map(|b| Some(b.end_ns.unwrap_or(end).min(end) - b.step_ns?)).sum();
    writeln!(
        text,
        "# {} {end} {computing} {} {}",
        report.batches, report.stalls.count, report.stalls.total_ns
    )
    .unwrap();
    text
}

/// What `compare.mjs` prints for `all`, which are passed as JSON.
fn printed_by_node(arguments: &[&str], all: &[Options]) -> String {
    let input: String = all.iter().map(|options| options.to_json() + "\n").collect();
    let mut child = Command::new("node")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/compare.mjs"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn event_logs_are_identical_for_1000_random_options() {
    if !common::is_installed("node") {
        return;
    }
    let mut dice = Dice(2026);
    let mut all = Vec::new();
    while all.len() < 1_000 {
        let mut options = dice.options();
        // Limit the run to about 300 steps; steps of a few microseconds would give millions of batches.
        if let Stop::AfterNs(ns) = options.stop {
            let fastest = (options.step.mean_ns + options.transfer_ns).max(options.tick_ns);
            options.stop = Stop::AfterNs(ns.min(300 * fastest).max(1));
        }
        all.push(options);
    }
    let output = printed_by_node(&[], &all);
    let mut rest = output.as_str();
    let (mut events, mut finished) = (0, 0);
    for (i, options) in all.iter().enumerate() {
        let expected = expected(options);
        events += expected.lines().count() - 1;
        finished += usize::from(simulate(options).unwrap().finished > 0);
        if let Some(after) = rest.strip_prefix(expected.as_str()) {
            rest = after;
            continue;
        }
        let pairs = expected.lines().zip(rest.lines()).enumerate();
        let (line, (ours, theirs)) = pairs.into_iter().find(|(_, (a, b))| a != b).unwrap();
        panic!("options {i}, line {line}: {ours:?} here, {theirs:?} in JavaScript\n{}", options.to_json());
    }
    assert_eq!(rest, "");
    // The comparison is meaningful only if most runs finished batches.
    assert!(events > 100_000 && finished > 800, "{events} events, {finished} runs");
}

#[test]
fn the_page_has_the_same_verdicts() {
    if !common::is_installed("node") {
        return;
    }
    let mut dice = Dice(11);
    let mut all: Vec<Options> = (0..120).map(|_| dice.loader_options()).collect();
    // Runs that mostly wait for their first batch.
    all.extend((0..30).map(|_| {
        let options = dice.loader_options();
        let steps = Stop::AfterNs(5_000_000_000 + 40 * options.step.mean_ns);
        Options { startup_ns: 5_000_000_000, stop: steps, ..options }
    }));
    // Models that compute on the cores of the workers.
    all.extend((0..30).map(|_| {
        let options = dice.loader_options();
        let cores = Some(1 + dice.below(8) as u32);
        Options { cores, step_core: true, ..options }
    }));
    // Models whose mean step is not the given one, because times below 0 are drawn again.
    all.extend((0..30).map(|_| {
        let options = dice.loader_options();
        let step = TimeDistribution::new(Shape::Normal, options.step.mean_ns, 1.0);
        Options { step, ..options }
    }));
    let printed = printed_by_node(&["verdicts"], &all);
    assert_eq!(printed.lines().count(), all.len());
    let mut names = std::collections::BTreeSet::new();
    for (options, line) in all.iter().zip(printed.lines()) {
        let verdict = Verdict::of(&simulate(options).unwrap());
        let (name, text) = line.split_once(": ").unwrap();
        assert_eq!(name, verdict.bottleneck.name(), "{verdict}\n{}", options.to_json());
        names.insert(name);
        // The page leaves out the remedies.
        if ["start", "balanced", "cores"].contains(&name) {
            assert_eq!(text.to_lowercase(), verdict.summary.to_lowercase() + ".");
        }
    }
    assert_eq!(names.len(), 6, "{names:?}");
}
