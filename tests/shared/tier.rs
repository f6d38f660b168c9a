//! The extent of expensive tests, as `tests/run` sets it: a sample that rotates with the commit, or everything.

use std::fs::OpenOptions;
use std::io::Write;

/// Returns whether `DSCONVERT_TESTS` lists `word`.
pub fn lists(word: &str) -> bool {
    std::env::var("DSCONVERT_TESTS").is_ok_and(|words| words.split(',').any(|listed| listed == word))
}

/// Returns whether all tests of `subject` run (`tests/run SUBJECT` or `--all`).
pub fn is_exhaustive(subject: &str) -> bool {
    lists(subject) || lists("all")
}

/// Returns the seed of samples.
pub fn seed() -> u64 {
    std::env::var("DSCONVERT_TEST_SEED").map_or(0, |seed| seed.parse().unwrap())
}

/// Adds a line to the report that `tests/run` prints at its end.
pub fn report(line: &str) {
    if let Some(path) = std::env::var_os("DSCONVERT_TEST_REPORT") {
        let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
    }
}
