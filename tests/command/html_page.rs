//! Helpers that write the page of `dsconvert inspect --html` and check its contents.

use std::fs;
use std::path::Path;

use crate::support::*;

/// Runs `dsconvert inspect DATASET ARGS`.
pub fn inspect(dataset: &Path, args: &[&str]) -> Ran {
    let mut command = command(["inspect"]);
    command.arg(dataset).args(args);
    Ran::of(command.output().unwrap())
}

/// Writes the HTML page of a dataset to `file` and returns its text; `args` are added to the command.
pub fn page(dataset: &Path, file: &Path, args: &[&str]) -> String {
    let args: Vec<&str> = ["--html", file.to_str().unwrap()].iter().chain(args).copied().collect();
    let printed = inspect(dataset, &args).exits(0).stdout;
    assert!(printed.starts_with("wrote "), "{printed}");
    fs::read_to_string(file).unwrap()
}

/// Asserts that the page contains each of `parts`.
#[track_caller]
pub fn assert_contains(page: &str, parts: &[&str]) {
    for part in parts {
        assert!(page.contains(part), "{part:?} is not in the page");
    }
}

/// Asserts that the page loads nothing: it has no URL except the SVG namespace, no script, and no style outside its
/// content security policy.
#[track_caller]
pub fn assert_self_contained(page: &str) {
    assert_eq!(page.matches("://").count(), page.matches("http://www.w3.org/2000/svg").count());
    for markup in ["<script", "<iframe", "<object", " onerror=\"", " style=\"", "@import", "url("] {
        assert!(!page.contains(markup), "{markup} is in the page");
    }
    assert_contains(
        page,
        &["default-src 'none'; style-src 'sha256-", "name=\"viewport\"", "prefers-color-scheme: dark"],
    );
}
