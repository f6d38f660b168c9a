//! Tests of pages and pictures in headless Chromium; `browser.mjs` contains the checks.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use dsconvert_simulate::{
    LoadTimes, LoadTrace, Options, Order, Shape, SlowRuns, Stop, Sweep, TimeDistribution, page_html,
    simulate, timeline_svg,
};
use serde_json::{Value, json};

const HOSTILE: &str =
    "</title></script><script>window.hacked=1</script><img src=x onerror=hacked=1> \"'& {{view}} \u{202e}ünï";

fn base(load_ms: f64) -> Options {
    Options::new(load_ms, 100.0, 7).unwrap()
}

fn drawn(load_ms: u64, shape: Shape, cv: f64) -> LoadTimes {
    LoadTimes::Drawn(TimeDistribution::new(shape, load_ms * 1_000_000, cv))
}

/// A run of one worker with one step, which ends after 20 µs.
fn brief() -> Options {
    Options { stop: Stop::AfterNs(20_000), ..Options::new(0.01, 0.01, 1).unwrap() }
}

fn pages() -> BTreeMap<&'static str, (&'static str, Options)> {
    let traced = LoadTrace::parse("800\n{\"load_ms\": 120.5}\n400\n").unwrap();
    BTreeMap::from([
        ("bottleneck.html", ("Bottleneck", base(2000.0))),
        ("fast.html", ("Fast", base(350.0))),
        ("hostile.html", (HOSTILE, base(700.0))),
        (
            "everything.html",
            (
                "Everything at once",
                Options {
                    workers: 20,
                    prefetch: 3,
                    order: Order::Pool,
                    queue: Some(9),
                    load: drawn(900, Shape::Gamma, 0.8),
                    slow: Some(SlowRuns { share: 0.1, factor: 4.0, length: 3.0 }),
                    step: TimeDistribution::new(Shape::Normal, 70_000_000, 0.2),
                    transfer_ns: 5_000_000,
                    startup_ns: 300_000_000,
                    stagger_ns: 40_000_000,
                    cores: Some(12),
                    tick_ns: 1_000_000,
                    seed: u64::MAX,
                    ..base(1.0)
                },
            ),
        ),
        (
            "traced.html",
            (
                "From a trace",
                Options { load: LoadTimes::Trace(traced), stop: Stop::Batches(60), ..base(1.0) },
            ),
        ),
        ("brief.html", ("One batch", brief())),
        ("short.html", ("Nothing arrives", Options { stop: Stop::AfterNs(50_000_000), ..base(2000.0) })),
    ])
}

fn count(options: &Options) -> u64 {
    simulate(options).unwrap().finished
}

fn write(dir: &Path) {
    let mut found = serde_json::Map::new();
    for (file, (title, options)) in pages() {
        let run = simulate(&options).unwrap();
        fs::write(dir.join(file), page_html(&run, title).unwrap()).unwrap();
        let page = json!({ "title": title, "batches": run.finished, "workers": options.workers });
        found.insert(file.to_owned(), page);
    }
    let mut pictures = serde_json::Map::new();
    let mut picture = |file: &str, svg: String, texts: Value| {
        fs::write(dir.join(file), svg).unwrap();
        pictures.insert(file.to_owned(), texts);
    };
    let run = simulate(&base(2000.0)).unwrap();
    picture(
        "timeline.svg",
        timeline_svg(&run, "Seven workers"),
        json!(["Seven workers", "98 batches in 30 s", "worker 7", "simulated time (s)", "queue", "model"]),
    );
    let brief = timeline_svg(&simulate(&brief()).unwrap(), "One batch");
    picture("brief.svg", brief, json!(["1 batch in 20 µs; GPU idle", "simulated time (µs)"]));
    picture("hostile.svg", timeline_svg(&run, HOSTILE), json!(["</script>"]));
    let many = Options { workers: 300, stop: Stop::Batches(5_000), ..base(500.0) };
    let many = timeline_svg(&simulate(&many).unwrap(), "Many");
    picture("many.svg", many, json!(["64 of 300 workers are shown", "the first "]));
    let sweep = Sweep::run(&base(800.0), &"workers=1..16".parse().unwrap()).unwrap();
    picture("sweep.svg", sweep.to_svg(HOSTILE), json!(["batches per second", "workers", "16"]));
    let seed = |options: Options| Options { seed: 1, ..options };
    let presets = json!({
        "This run": 98,
        "Bottleneck": 98,
        "Balanced": 293,
        "Twice as fast": 296,
        "High variance": count(&seed(Options { load: drawn(2000, Shape::Lognormal, 0.5), ..base(1.0) })),
        "Desynchronized": count(&seed(Options { stagger_ns: 285_714_286, ..base(2000.0) })),
        "Converted dataset": count(&Options::new(100.0, 100.0, 2).unwrap()),
    });
    let expected = json!({ "pages": found, "pictures": pictures, "presets": presets });
    fs::write(dir.join("expected.json"), expected.to_string()).unwrap();
}

#[test]
fn pages_and_pictures_work_in_a_browser() {
    if !common::is_installed("node") || !common::is_installed("chromium") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    write(dir.path());
    let mut command = Command::new("node");
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/browser.mjs")).arg(dir.path());
    // Saves screenshots for manual inspection.
    command.args(std::env::var_os("DSCONVERT_SCREENSHOTS"));
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    println!("{printed}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success());
    assert_eq!(printed.matches("ok: ").count(), 11);
}

#[test]
fn runs_too_large_for_a_page_are_errors() {
    let crowded = simulate(&Options { workers: 65, ..base(2000.0) }).unwrap();
    assert_eq!(page_html(&crowded, "").unwrap_err().option, "workers");
    let long = Options { stop: Stop::Batches(20_001), ..Options::new(1.0, 1.0, 2).unwrap() };
    assert_eq!(page_html(&simulate(&long).unwrap(), "").unwrap_err().option, "html");
}

#[test]
fn pages_are_self_contained() {
    let html = page_html(&simulate(&base(700.0)).unwrap(), HOSTILE).unwrap();
    // The title appears only as text, including its braces.
    assert!(!html.contains("<img") && !html.contains("<script>window"));
    assert_eq!(html.matches("{{").count(), html.matches("{{view}} ").count());
    let scripts: Vec<&str> = html.split("<script").skip(1).collect();
    assert!(scripts.len() == 5 && scripts.iter().all(|s| !s.split('>').next().unwrap().contains("src")));
    let addresses: Vec<&str> = html.matches("://").collect();
    assert_eq!(addresses.len(), html.matches("http://www.w3.org/2000/svg").count());
}
