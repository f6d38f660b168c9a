//! A short search with a fixed seed: the same cases on every machine.

use std::process::Command;

/// Cases per target.
const CASES: u64 = 60;

#[test]
fn a_short_search_finds_nothing() {
    let findings = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_dsconvert-fuzz"))
        .args(["--cases", &CASES.to_string(), "--seed", "1", "--findings"])
        .arg(findings.path())
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{report}{errors}");
    assert!(report.contains(&format!(" {} ", CASES * 17)), "every target ran: {report}");
}
