//! The page that `dsconvert inspect --html` writes, and checks of its contents.

use std::fs;
use std::path::Path;

use crate::support::*;

/// Runs `dsconvert inspect DATASET ARGS`.
pub fn inspect(dataset: &Path, args: &[&str]) -> Ran {
    let mut command = command(["inspect"]);
    command.arg(dataset).args(args);
    Ran::of(command.output().unwrap())
}

/// Writes the page of a dataset to `file`, with further arguments, and returns it.
pub fn page(dataset: &Path, file: &Path, args: &[&str]) -> String {
    let args: Vec<&str> = ["--html", file.to_str().unwrap()].iter().chain(args).copied().collect();
    let told = inspect(dataset, &args).exits(0).stdout;
    assert!(told.starts_with("wrote "), "{told}");
    fs::read_to_string(file).unwrap()
}

/// Checks that the page contains each of `parts`.
#[track_caller]
pub fn has(page: &str, parts: &[&str]) {
    for part in parts {
        assert!(page.contains(part), "{part:?} is not in the page");
    }
}

/// Checks that the page loads nothing: it has no URL except the namespace of SVG, no script, and no style that its policy
/// does not name.
#[track_caller]
pub fn is_self_contained(page: &str) {
    assert_eq!(page.matches("://").count(), page.matches("http://www.w3.org/2000/svg").count());
    for markup in ["<script", "<iframe", "<object", " onerror=\"", " style=\"", "@import", "url("] {
        assert!(!page.contains(markup), "{markup} is in the page");
    }
    has(page, &["default-src 'none'; style-src 'sha256-", "name=\"viewport\"", "prefers-color-scheme: dark"]);
}
