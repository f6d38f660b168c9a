//! `dsconvert simulate`: results, plots and error messages.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::installed::is_installed;
use crate::support::*;

/// Runs `dsconvert simulate` with the options in `text`, which is split at whitespace.
fn simulate(text: &str) -> Ran {
    simulate_with(text, &[])
}

fn simulate_with(text: &str, more: &[&Path]) -> Ran {
    let mut command = command(["simulate"]);
    command.args(text.split_whitespace()).args(more);
    Ran::of(command.output().unwrap())
}

fn json(text: &str) -> Value {
    serde_json::from_str(&simulate(&format!("{text} --json")).exits(0).stdout).unwrap()
}

#[test]
fn reference_cases_have_the_expected_results() {
    for order in ["pytorch", "completed", "pool"] {
        for (load, batches, verdict) in [(2000, 98, "loading"), (700, 293, "balanced"), (350, 296, "model")] {
            let found =
                json(&format!("--load-ms {load} --step-ms 100 --workers 7 --seconds 30 --order {order}"));
            assert_eq!(found["batches"], batches);
            assert_eq!(found["verdict"], verdict);
            let idle = 1.0 - f64::from(batches) * 0.1 / 30.0;
            assert!((found["idle_share"].as_f64().unwrap() - idle).abs() < 0.004, "{found}");
        }
    }
    let found = json("--load-ms 2000 --step-ms 100 --workers 7");
    assert_eq!(found["stalls"]["period_ms"], 2000);
    assert_eq!(found["stalls"]["mean_ms"], 1300);
    assert_eq!(found["workers_needed"], 20);
}

#[test]
fn text_has_every_part_of_the_report() {
    let text = simulate("--load-ms 2000 --step-ms 100 --workers 7 --transfer-ms 5").exits(0).stdout;
    for part in [
        "98 in 30 s",
        "idle 67",
        "transferring",
        "first batch",
        "one every 2 s",
        "mean",
        "20 workers",
        "loading is the bottleneck",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

#[test]
fn every_option_changes_the_result_and_the_seed_reproduces_it() {
    let base = "--load-ms 300 --load-cv 0.5 --step-ms 50 --workers 4 --seconds 20";
    let plain = json(base);
    assert_eq!(json(base), plain);
    assert_eq!(json(&format!("{base} --load-distribution lognormal")), plain);
    for option in [
        "--seed 1",
        "--order completed",
        "--order pool --queue 1",
        "--prefetch 1",
        "--load-distribution gamma",
        "--cv 1 --load-distribution normal",
        "--stagger",
        "--stagger=200",
        "--cores 2",
        "--cores 2 --step-core",
        "--tick-ms 100",
        "--transfer-ms 10",
        "--startup-ms 500",
        "--step-cv 0.3",
        "--slow-share 0.1 --slow-factor 4 --slow-length 3",
    ] {
        let options =
            if option.contains("--cv") { base.replace("--load-cv 0.5", "") } else { base.to_owned() };
        assert_ne!(json(&format!("{options} {option}")), plain, "{option}");
    }
    assert_eq!(json(&format!("{} --batches 10", base.replace("--seconds 20", "")))["batches"], 10);
    json("--load-ms 30 --load-distribution exponential --step-ms 5 --workers 4");
}

#[test]
fn load_times_come_from_a_trace() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("loads.txt");
    fs::write(&trace, "# ms per batch\n200\n{\"batch\": 1, \"load_ms\": 400}\n").unwrap();
    let run = "--step-ms 10 --workers 1 --prefetch 1 --batches 4 --json --load-trace";
    let found: Value = serde_json::from_str(&simulate_with(run, &[&trace]).exits(0).stdout).unwrap();
    assert_eq!(found["seconds"], 1.21);
    for (text, message) in [
        ("", "has no load time"),
        ("1\nx\n", "line 2: \"x\" is not a number"),
        ("1\n0\n", "line 2: \"0\" must be above 0"),
        ("2 s\n", "line 1: \"2 s\" is not a number"),
        ("\u{1b}[31m\n", "\\u{1b}[31m"),
    ] {
        fs::write(&trace, text).unwrap();
        simulate_with(run, &[&trace]).exits(2).says(&["--load-trace", message, "loads.txt"]);
    }
    fs::write(&trace, [0xff, 0xfe, 0]).unwrap();
    simulate_with(run, &[&trace]).exits(2).says(&["--load-trace: cannot read"]);
    simulate_with(run, &[&dir.path().join("missing")])
        .exits(2)
        .says(&["--load-trace: cannot read", "missing"]);
    simulate_with(run, &[dir.path()]).exits(2).says(&["--load-trace"]);
}

/// Returns the options of the command that `page` shows, without the program and the subcommand.
fn shown_command(page: &Path) -> String {
    let script = r#"
        const fs = require("node:fs");
        const Words = new Function(`${fs.readFileSync(process.argv[1], "utf8")}; return Words;`)();
        const page = fs.readFileSync(process.argv[2], "utf8");
        const [, options] = page.match(/<script type="application\/json" id="options">(.*?)<\/script>/s);
        process.stdout.write(Words.command(JSON.parse(options)).join(" "));
    "#;
    let words = concat!(env!("CARGO_MANIFEST_DIR"), "/lab/simulate/page/words.js");
    let output = Command::new("node").args(["-e", script, words]).arg(page).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let command = String::from_utf8(output.stdout).unwrap();
    command.strip_prefix("dsconvert simulate ").unwrap().to_owned()
}

#[test]
fn the_command_on_the_page_reproduces_its_run() {
    if !is_installed("node") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("loads.txt");
    fs::write(&trace, "200\n431.5\n90\n").unwrap();
    let trace = trace.to_str().unwrap();
    let model =
        "--step-ms 50 --step-distribution gamma --step-cv 0.3 --transfer-ms 1.5 --cores 3 --step-core";
    let loader = "--workers 4 --order pool --queue 5 --startup-ms 70.25 --stagger=20";
    let slow = "--slow-share 0.1 --slow-factor 4 --slow-length 3";
    for run in [
        format!(
            "--load-ms 120 --load-distribution normal --load-cv 0.5 {slow} {loader} {model} --tick-ms 0.5 \
             --seconds 2.5 --seed 18446744073709551615"
        ),
        format!("--load-trace {trace} {slow} {loader} {model} --batches 40 --seed 3"),
        format!(
            "--load-ms 90 --load-distribution exponential --workers 4 --prefetch 3 --order completed {model} --seed 1"
        ),
    ] {
        let page = dir.path().join("page.html");
        let found = simulate_with(&format!("{run} --json --html"), &[&page]).exits(0).stdout;
        let shown = shown_command(&page).replace("FILE", trace);
        assert_eq!(serde_json::from_str::<Value>(&found).unwrap(), json(&shown), "{shown}");
        for option in run.split_whitespace().filter(|word| word.starts_with("--")) {
            assert!(shown.contains(option), "{option} is not in {shown}");
        }
    }
}

#[test]
fn completions_offer_orders_and_distributions() {
    let script = Ran::of(command(["completions", "bash"]).output().unwrap()).exits(0).stdout;
    let simulate = script.split("dsconvert__subcmd__simulate)").nth(1).unwrap();
    let simulate = simulate.split("dsconvert__subcmd__").next().unwrap();
    for (option, values) in [
        ("--order)", "pytorch completed pool"),
        ("--load-distribution)", "constant normal lognormal exponential gamma"),
        ("--distribution)", "constant normal lognormal exponential gamma"),
        ("--step-distribution)", "constant normal lognormal exponential gamma"),
    ] {
        let case = simulate.split(option).nth(1).unwrap().split(";;").next().unwrap();
        assert!(case.contains(&format!("\"{values}\"")), "{option} {case}");
    }
}

#[test]
fn a_sweep_prints_a_table_json_and_a_curve() {
    let dir = tempfile::tempdir().unwrap();
    let svg = dir.path().join("sweep.svg");
    let run = "--load-ms 400 --step-ms 100 --sweep workers=1..8";
    let text = simulate_with(&format!("{run} --svg"), &[&svg]).exits(0).stdout;
    assert_eq!(text.lines().count(), 9, "{text}");
    assert!(text.contains("GPU idle") && text.contains('█'));
    let picture = fs::read_to_string(svg).unwrap();
    assert!(picture.starts_with("<svg") && picture.contains("batches per second"));
    let found = json(run);
    assert_eq!(found["parameter"], "workers");
    let rates: Vec<f64> = found["points"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p["batches_per_second"].as_f64().unwrap())
        .collect();
    assert!(rates[..4].is_sorted() && rates[3] > 3.5 * rates[0] && rates[7] == rates[3], "{rates:?}");
    json("--load-ms 400 --load-cv 1 --step-ms 100 --workers 4 --sweep prefetch=1,2,8");
}

#[test]
fn plots_and_pages_are_escaped_and_leave_no_temporary_files() {
    let dir = tempfile::tempdir().unwrap();
    let (svg, html) = (dir.path().join("a.svg"), dir.path().join("a.html"));
    let run = "--load-ms 700 --step-ms 100 --workers 7 --title <script>x</script> --svg";
    for _ in 0..2 {
        simulate_with(run, &[&svg, Path::new("--html"), &html]).exits(0);
    }
    let (svg_text, html_text) = (fs::read_to_string(&svg).unwrap(), fs::read_to_string(&html).unwrap());
    assert!(svg_text.contains("&lt;script&gt;x") && !svg_text.contains("<script>"));
    assert!(html_text.contains("<h1>&lt;script&gt;x") && !html_text.contains("<script>x"));
    assert_eq!(html_text.matches("type=\"range\" min=").count(), 6);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "no temporary file is left");
    fs::create_dir(dir.path().join("sub")).unwrap();
    for same in [svg.clone(), dir.path().join("sub/../a.svg")] {
        simulate_with(run, &[&svg, Path::new("--html"), &same]).exits(2).says(&["same file"]);
    }
    let nowhere = dir.path().join("missing/a.svg");
    simulate_with(run, &[&nowhere]).exits(2).says(&["--svg", "missing", "no such folder"]);
}

#[test]
fn invalid_options_are_named() {
    let good = "--step-ms 100 --workers 7 --load-ms 2000";
    for (options, message) in [
        ("--step-ms 100 --workers 7", "--load-ms"),
        ("--load-ms 100 --workers 7", "--step-ms"),
        ("--load-ms 100 --step-ms 100", "--workers"),
        ("--step-ms 100 --workers 7 --load-ms 2s", "without a unit"),
        ("--step-ms 100ms --workers 7 --load-ms 20", "without a unit"),
        ("--step-ms 100 --workers 7 --load-ms 0", "more than 0"),
        ("--step-ms 100 --workers 7 --load-ms -5", "non-negative"),
        ("--step-ms 100 --workers 7 --load-ms nan", "number"),
        ("--step-ms 100 --workers 7 --load-ms inf", "number"),
        ("--step-ms 100 --workers 7 --load-ms 1e12", "one hour"),
        ("--step-ms 0 --workers 7 --load-ms 10", "more than 0"),
        ("--step-ms 100 --load-ms 20 --workers 0", "--workers: must be at least 1"),
        ("--step-ms 100 --load-ms 20 --workers 1000000", "--workers: 1000000 is above the maximum of 1024"),
        ("--step-ms 100 --load-ms 20 --workers -1", "--workers"),
    ] {
        simulate(options).exits(2).says(&[message]);
    }
    for (options, message) in [
        ("--prefetch 0", "--prefetch: must be at least 1"),
        ("--order sorted", "expected one of pytorch, completed, pool"),
        ("--queue 3", "--queue needs --order pool"),
        ("--order pool --queue 0", "--queue: must be at least 1"),
        ("--load-distribution uniform", "expected one of constant"),
        ("--load-distribution gamma", "needs --load-cv"),
        ("--load-cv -1", "--load-cv: -1 is not between 0 and 10"),
        ("--load-cv nan", "--load-cv"),
        ("--load-distribution exponential --load-cv 2", "cv of 1"),
        ("--load-distribution constant --load-cv 2", "constant times do not vary"),
        ("--cores 0", "--cores: must be at least 1"),
        ("--tick-ms 0", "more than 0"),
        ("--seconds 0", "--seconds must be above 0"),
        ("--seconds -1", "--seconds"),
        ("--seconds nan", "--seconds"),
        ("--seconds 1e9", "at most 1000000"),
        ("--batches 0", "--batches: must be at least 1"),
        ("--batches 10000000", "--batches: 10000000 is above"),
        ("--batches 3 --seconds 3", "cannot be used with"),
        ("--slow-share 2", "--slow-share: 2 is not between 0 and 1"),
        ("--slow-share 0.5 --slow-factor 0", "--slow-factor"),
        ("--slow-share 0.9 --slow-length 2", "--slow-length"),
        ("--slow-factor 2", "--slow-share"),
        ("--order pool --queue 3 --prefetch 9", "--prefetch has no effect: --queue"),
        ("--order pool --queue 3 --sweep prefetch=1,2", "--sweep prefetch has no effect: --queue"),
        ("--prefetch 9 --sweep prefetch=1,2", "--prefetch has no effect: --sweep varies it"),
        ("--sweep workers=1,2", "--workers has no effect: --sweep varies it"),
        ("--sweep cores=1..2", "expected workers or prefetch"),
        ("--sweep workers=5..2", "empty range"),
        ("--sweep workers=1..1000000", "not a number from 1 to 1024"),
        ("--sweep workers=1..4 --html x.html", "cannot be used with"),
        ("--load-trace x", "cannot be used with"),
        ("--seed -1", "--seed"),
    ] {
        simulate(&format!("{good} {options}")).exits(2).says(&[message]);
    }
    simulate("--step-ms 100 --load-ms 2000 --sweep workers=1..4 --stagger").exits(2).says(&["--stagger=MS"]);
    simulate("--step-ms 0.000001 --load-ms 0.000001 --workers 8")
        .exits(2)
        .says(&["more than 1000000 batches", "shorter"]);
    simulate(&format!("{good} --workers 7")).exits(2);
    let crowded = "--step-ms 100 --load-ms 100 --workers 100 --html";
    let dir = tempfile::tempdir().unwrap();
    simulate_with(crowded, &[&dir.path().join("a.html")]).exits(2).says(&["at most 64 workers", "--svg"]);
    simulate_with("--step-ms 1 --load-ms 1 --workers 2 --html", &[&dir.path().join("a.html")])
        .exits(2)
        .says(&["at most 20000 batches"]);
}

#[test]
fn every_command_in_the_documentation_runs() {
    let dir = tempfile::tempdir().unwrap();
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let page = ["how-to/measure-loading.md", "explanation/simulation.md"]
        .map(|name| fs::read_to_string(docs.join(name)).unwrap())
        .concat();
    let commands: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("dsconvert ")).collect();
    assert!(commands.len() >= 10);
    for (i, text) in commands.into_iter().enumerate() {
        let mut run = command(text.split_whitespace());
        let ran = Ran::of(run.current_dir(dir.path()).output().unwrap()).exits(0);
        if i == 0 {
            assert!(page.contains(&ran.stdout), "the page does not show the output\n{}", ran.stdout);
        }
    }
    assert!(dir.path().join("converted.html").exists() && dir.path().join("workers.svg").exists());
}
