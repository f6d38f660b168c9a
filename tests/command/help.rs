//! `--help`, `-h` and `--version`; the examples of `--help` are run as they are printed.

use std::path::Path;
use std::process::Command;

use crate::support::*;

/// Subcommands whose examples run for minutes or write into the home directory.
const NOT_RUN: [&str; 3] = ["bench", "headspace", "completions"];

fn run(args: &[&str]) -> Ran {
    Ran::of(command(args).output().unwrap())
}

/// Every subcommand as a list of arguments, such as `["plan", "images"]`.
fn subcommands() -> Vec<Vec<String>> {
    let help = run(&["--help"]).exits(0).stdout;
    let names = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .map_while(|line| line.strip_prefix("  ").and_then(|line| line.split_whitespace().next()));
    let mut all: Vec<Vec<String>> =
        names.filter(|&name| name != "help").map(|n| vec![n.to_owned()]).collect();
    all.extend(["images", "text"].map(|kind| vec!["plan".to_owned(), kind.to_owned()]));
    all
}

fn help(subcommand: &[String], option: &str) -> String {
    let args: Vec<&str> = subcommand.iter().map(String::as_str).chain([option]).collect();
    run(&args).exits(0).stdout
}

/// The commands under `Examples:`; a backslash continues a line.
fn examples(help: &str) -> Vec<String> {
    let (_, examples) = help.split_once("\nExamples:\n").unwrap_or_default();
    let joined = examples.replace("\\\n", " ");
    let commands =
        joined.lines().map(str::trim).filter(|l| l.starts_with("dsconvert ") || l.starts_with("cat "));
    commands.map(str::to_owned).collect()
}

/// Runs a shell command line in `dir`, with the binary under test first in `PATH`.
fn shell(line: &str, dir: &Path) -> Ran {
    let binary = Path::new(env!("CARGO_BIN_EXE_dsconvert")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let mut bash = Command::new("bash");
    bash.args(["-o", "pipefail", "-ec", line]).current_dir(dir).env("PATH", path);
    Ran::of(bash.output().unwrap())
}

#[test]
fn the_examples_of_every_subcommand_work() {
    let dir = tempfile::tempdir().unwrap();
    copy_dir(&fixture("photos"), &dir.path().join("photos"));
    copy_dir(&fixture("corpus"), &dir.path().join("corpus"));
    std::fs::copy(fixture("tokenizers/bpe.json"), dir.path().join("tokenizer.json")).unwrap();
    let mut count = 0;
    for subcommand in subcommands() {
        let examples = examples(&help(&subcommand, "--help"));
        assert!(!examples.is_empty(), "{subcommand:?} has no examples");
        assert!(
            examples.iter().any(|example| example.contains(&subcommand.join(" "))),
            "{subcommand:?}: {examples:?}"
        );
        if NOT_RUN.contains(&subcommand[0].as_str()) {
            continue;
        }
        for example in examples {
            let ran = shell(&example, dir.path());
            assert_eq!(ran.status, 0, "{example}\n{}{}", ran.stdout, ran.stderr);
            count += 1;
        }
    }
    assert!(count >= 25, "{count} examples");
    for line in examples(&run(&["--help"]).stdout) {
        // The datasets exist by now, so the conversions that the top-level help shows are refused.
        let status = if line.contains("inspect") { 0 } else { 2 };
        assert_eq!(shell(&line, dir.path()).status, status, "{line}");
    }
}

#[test]
fn short_help_has_a_line_for_each_option_and_long_help_explains() {
    for (subcommand, explanation) in [("images", "Shards never span units"), ("text", "are escapes")] {
        let subcommand = [subcommand.to_owned()];
        let (short, long) = (help(&subcommand, "-h"), help(&subcommand, "--help"));
        assert!(long.contains(explanation), "{long}");
        assert!(!short.contains(explanation) && !short.contains("\nExamples:"), "{short}");
        assert!(short.contains("-j, --threads <N>") && short.contains("-v, --verbose"), "{short}");
        assert!(short.lines().count() < 200, "{short}");
    }
}

#[test]
fn version_has_what_a_bug_report_needs() {
    let short = run(&["-V"]).exits(0).stdout;
    assert_eq!(short, format!("dsconvert {}\n", env!("CARGO_PKG_VERSION")));
    let long = run(&["--version"]).exits(0).stdout;
    let value = |name: &str| {
        let found = long.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        found.unwrap_or_else(|| panic!("no {name} in {long}")).trim().to_owned()
    };
    assert!(long.starts_with(short.trim()), "{long}");
    let commit = value("commit");
    let hash = commit.trim_end_matches(" (modified)");
    let is_hash = hash.len() >= 40 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(is_hash || ["unknown", "not recorded (development build)"].contains(&&*commit), "{commit}");
    assert!(value("features").split(", ").any(|feature| feature == "cli"), "{long}");
    // Such as `aarch64-unknown-linux-gnu`.
    assert!(value("target").starts_with(&format!("{}-", std::env::consts::ARCH)), "{long}");
}
