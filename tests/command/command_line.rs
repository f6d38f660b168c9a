//! Possible values in help, suggestions for mistyped values, shell completions and manual pages.

use std::path::Path;

use crate::support::*;

fn run(args: &[&str]) -> Ran {
    Ran::of(command(args).output().unwrap())
}

#[test]
fn help_lists_the_values_of_an_option() {
    for (subcommand, values) in [
        (
            "images",
            ["[possible values: parquet, arrow, msgpack, protobuf]", "lanczos3, catmullrom, bilinear, box"],
        ),
        ("text", ["[possible values: parquet, arrow, msgpack, protobuf]", "auto, splits, flat"]),
    ] {
        let help = run(&[subcommand, "--help"]).exits(0).stdout;
        // Lines are wrapped at the width of the terminal.
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        for value in values {
            assert!(help.contains(value), "{value:?} is not in {help}");
        }
    }
}

#[test]
fn a_value_that_is_nearly_right_gets_a_suggestion() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let photos = fixture("photos");
    for (options, suggestion) in [
        ("--resize 256", "did you mean shorter:256?"),
        ("--encode jpg:90", "did you mean jpeg:90?"),
        ("--crop 224x224", "did you mean center:224x224?"),
        ("--format parket", "'parquet'"),
        ("--filter lanczos", "'lanczos3'"),
        ("--layout label", "'labels'"),
        ("--resise shorter:9", "'--resize'"),
    ] {
        convert("images", &photos, &out, options).exits(2).says(&[suggestion]);
        assert!(!out.exists());
    }
}

#[test]
fn completions_offer_subcommands_options_and_values() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(&["completions", shell]).exits(0).stdout;
        for part in ["inspect", "unit-bytes", "msgpack"] {
            // Not every shell's script completes values.
            assert!(part == "msgpack" || script.contains(part), "{part} is not in the script for {shell}");
        }
    }
    assert!(run(&["completions", "fish"]).stdout.contains("msgpack"));
    // Bash can source its script, which then completes a subcommand.
    let script = run(&["completions", "bash"]).stdout;
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("script"), script).unwrap();
    let mut bash = std::process::Command::new("bash");
    let test = "source ./script && COMP_WORDS=(dsconvert imag) COMP_CWORD=1 && _dsconvert dsconvert imag dsconvert && \
                test \"${COMPREPLY[0]}\" = images";
    Ran::of(bash.args(["--norc", "-c", test]).current_dir(dir.path()).output().unwrap()).exits(0);
}

#[test]
fn there_is_a_manual_page_for_every_subcommand() {
    let dir = tempfile::tempdir().unwrap();
    let man = dir.path().join("share/man1");
    run(&["man", man.to_str().unwrap()]).exits(0);
    let help = run(&["--help"]).stdout;
    let subcommands = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .map_while(|line| line.strip_prefix("  ").and_then(|line| line.split_whitespace().next()));
    let mut pages = 0;
    for subcommand in subcommands.filter(|name| *name != "help") {
        let page = std::fs::read_to_string(man.join(format!("dsconvert-{subcommand}.1"))).unwrap();
        assert!(page.contains(".SH OPTIONS") || page.contains(".SH SUBCOMMANDS"), "{subcommand}: {page}");
        pages += 1;
    }
    assert!(pages >= 9, "{pages} pages");
    assert!(man.join("dsconvert.1").exists());
    run(&["man", Path::new("/dev/null/x").to_str().unwrap()]).exits(3);
}
