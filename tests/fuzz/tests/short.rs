//! A short search whose seed changes with the commit: the same cases on every machine.

#![allow(clippy::unwrap_used, reason = "this is a test")]

use std::process::Command;

#[allow(dead_code, unreachable_pub, reason = "this is a test, not a library, and uses only a part")]
#[path = "../../shared/tier.rs"]
mod tier;

/// Cases per target, in a sample and in an exhaustive run.
const CASES: [u64; 2] = [60, 1_000];
/// Number of targets.
const TARGETS: u64 = 22;

#[test]
fn a_short_search_finds_nothing() {
    let cases = CASES[usize::from(tier::is_exhaustive("fuzz"))];
    let findings = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_dsconvert-fuzz"))
        .args(["--cases", &cases.to_string(), "--seed", &tier::seed().to_string(), "--findings"])
        .arg(findings.path())
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{report}{errors}");
    assert!(report.contains(&format!(" {} ", cases * TARGETS)), "every target ran: {report}");
    tier::report(&format!("fuzz: {cases} cases of each of {TARGETS} targets"));
}
