//! Detection of programs that tests require.

use std::process::{Command, Stdio};

/// Returns whether `program` runs; a test that needs it is skipped otherwise. If `DSCONVERT_TESTS` is set, as in
/// `tests/run`, a missing program is a failure.
#[allow(clippy::print_stdout, reason = "reports a skipped test")]
pub fn is_installed(program: &str) -> bool {
    let found = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    assert!(
        found || std::env::var_os("DSCONVERT_TESTS").is_none(),
        "{program} is not installed; tests/run installs it"
    );
    if !found {
        println!("{program} is not installed; the test is skipped");
    }
    found
}
