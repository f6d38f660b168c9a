//! `dsconvert headspace` names the bottleneck, and refuses what it cannot measure.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::bench::{json, number, photos, run};
use crate::support::*;

#[test]
fn headspace_reports_the_bottleneck() {
    let photos = photos("--resize shorter:48");
    let options = "--items 24 --repeat 1 --batch-size 4 --workers 0..2 --cores 2";
    let paths: [&Path; 3] = [&photos.raw, Path::new("--against"), &photos.dataset];
    // With a step of one microsecond, loading is the bottleneck; with one of 15 minutes, the model is.
    let slow = json("headspace", &paths, &format!("{options} --step-ms 0.001 --steps 1000000"));
    assert_eq!(slow["verdict"], "loading");
    assert!(slow["summary"].as_str().unwrap().contains("loading is the bottleneck"));
    for side in ["loading", "against"] {
        let workers = slow[side]["workers"].as_array().unwrap();
        assert_eq!(workers.len(), 3);
        let ms: Vec<f64> = workers.iter().map(|w| number(&w["ms_per_step"])).collect();
        assert!(ms[0] >= ms[1] && ms[1] > ms[2], "two workers are faster than one: {ms:?}");
        for found in workers {
            let (gain, ms) = (number(&found["gain"]), number(&found["ms_per_step"]));
            assert!((gain - (1.0 - 0.001 / ms)).abs() < 1e-9);
            assert!((number(&found["gain_hours"]) - 1e6 * (ms - 0.001) / 3.6e6).abs() < 1e-6);
        }
        assert_eq!(slow[side]["best"]["workers"], slow[side]["workers_enough"]);
    }
    run("headspace", &paths[..1], &format!("{options} --step-ms 1"))
        .exits(0)
        .says(&["1 item cannot be loaded"]);
    let fast = json("headspace", &paths[..1], &format!("{options} --step-ms 900000"));
    assert_eq!(
        (&fast["verdict"], &fast["against"], &fast["padding"]),
        (&"model".into(), &Value::Null, &Value::Null)
    );
    assert!(fast["summary"].as_str().unwrap().starts_with("stop here: optimize the model"));
    let text = run("headspace", &paths, &format!("{options} --step-ms 0.001")).exits(0).stdout;
    assert!(text.contains("free loading would save") && text.contains("verdict"), "{text}");
}

#[test]
fn headspace_says_when_more_workers_may_help() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("load.txt");
    fs::write(&trace, "4\n").unwrap();
    let found = |options: &str| {
        run("headspace", &[Path::new("--trace"), &trace], &format!("--cores 16 {options}")).exits(0).stdout
    };
    // Four workers would remove the wait.
    for workers in ["0", "1", "1,2"] {
        let text = found(&format!("--step-ms 1 --workers {workers}"));
        assert!(text.contains("the best of this list: more may help"), "{text}");
        assert!(text.contains(", the best of this list, a step takes") && !text.contains("enough"), "{text}");
    }
    let text = found("--step-ms 1 --workers 1,4,8");
    assert!(text.contains("  enough: more do not help") && !text.contains("list"), "{text}");
    let text = found("--step-ms 0.05 --workers 16");
    assert!(text.contains("instead of 0.0500 ms"), "{text}");
}

#[test]
fn headspace_of_text_reports_padding() {
    let dir = tempfile::tempdir().unwrap();
    let (raw, dataset) = (dir.path().join("a.jsonl"), dir.path().join("ids"));
    corpus(&raw, 300);
    convert("text", &raw, &dataset, "--tokenizer bytes").exits(0);
    let found = json("headspace", &[&dataset], "--items 300 --repeat 1 --step-ms 200");
    let padding = &found["padding"];
    assert!(number(&padding["bucketed"]) < number(&padding["random"]), "{padding}");
    assert!((number(&padding["random_ms"]) - 200.0 * number(&padding["random"])).abs() < 1e-9);
    // A dataset has the lengths of all its documents; raw files give only those of the documents that were read.
    let both: [&Path; 3] = [&raw, Path::new("--against"), &dataset];
    let compared = json("headspace", &both, "--items 30 --repeat 1 --step-ms 200");
    assert_eq!(&compared["padding"], padding);
    let alone = json("headspace", &[&raw], "--items 30 --repeat 1 --step-ms 200 --tokenizer bytes");
    assert!(number(&alone["padding"]["random"]) > 0.0 && alone["padding"]["bucketed"].is_null());
    run("headspace", &[&raw], "--items 30 --repeat 1 --step-ms 200")
        .exits(0)
        .says(&["only parsed", "--tokenizer"]);
}

#[test]
fn headspace_refuses_invalid_options_and_traces() {
    let dir = tempfile::tempdir().unwrap();
    let (raw, trace) = (dir.path().join("a.jsonl"), dir.path().join("load.txt"));
    corpus(&raw, 10);
    fs::write(&trace, "12\nnonsense\n").unwrap();
    for (options, message) in [
        ("", "--step-ms"),
        ("--step-ms 0", "--step-ms"),
        ("--step-ms -5", "--step-ms"),
        ("--step-ms nan", "--step-ms"),
        ("--step-ms 10 --workers 1000000", "--workers"),
        ("--step-ms 10 --workers none", "--workers"),
        ("--step-ms 10 --cores 0", "--cores"),
        ("--step-ms 10 --prefetch 0", "--prefetch"),
        ("--step-ms 10 --steps 0", "--steps"),
        ("--step-ms 10 --trace load.txt", "cannot be used with"),
    ] {
        run("headspace", &[&raw], options).exits(2).says(&[message]);
    }
    run("headspace", &[], "--step-ms 10").exits(2).says(&["PATH"]);
    run("headspace", &[Path::new("--trace"), &trace], "--step-ms 10")
        .exits(2)
        .says(&["--trace: line 2", "load.txt"]);
    for nothing in ["", "# only a comment\n"] {
        fs::write(&trace, nothing).unwrap();
        let ran = run("headspace", &[Path::new("--trace"), &trace], "--step-ms 10");
        ran.exits(2).says(&["--trace: has no load time", "load.txt"]);
    }
    run("headspace", &[&dir.path().join("missing")], "--step-ms 10").exits(2).says(&["no such file"]);
}

#[test]
fn options_of_the_measurement_are_refused_with_a_trace() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("load.txt");
    fs::write(&trace, "4\n").unwrap();
    for option in
        ["--batch-size 4", "--seconds 1", "--resize shorter:32", "--documents line", "--split train"]
    {
        let flag = option.split(' ').next().unwrap();
        let ran = run("headspace", &[Path::new("--trace"), &trace], &format!("--step-ms 1 {option}"));
        ran.exits(2).says(&["--trace", flag, "cannot be used with"]);
    }
}

#[test]
fn all_times_of_a_long_trace_count() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("loads.txt");
    // Fast batches from a cache, then slow ones.
    fs::write(&trace, "1\n".repeat(2_500) + &"10\n".repeat(7_500)).unwrap();
    let options = [
        "headspace",
        "--trace",
        trace.to_str().unwrap(),
        "--step-ms",
        "5",
        "--workers",
        "0,1",
        "--cores",
        "4",
        "--json",
    ];
    let found: Value =
        serde_json::from_str(&Ran::of(command(options).output().unwrap()).exits(0).stdout).unwrap();
    let ms: Vec<f64> =
        found["loading"]["workers"].as_array().unwrap().iter().map(|w| number(&w["ms_per_step"])).collect();
    assert!((ms[0] - 12.75).abs() < 0.01 && (ms[1] - 8.75).abs() < 0.1, "{ms:?}");
}
