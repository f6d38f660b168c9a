//! Tests that verdicts agree with the simulation: recommended settings keep up when they are simulated.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::Dice;
use dsconvert_simulate::{
    Bottleneck, LoadTimes, LoadTrace, Options, Order, Shape, Stop, TimeDistribution, Verdict, simulate,
};

const MS: u64 = 1_000_000;

fn verdict(options: &Options) -> Verdict {
    Verdict::of(&simulate(options).unwrap())
}

fn lognormal(load_ms: u64, cv: f64, workers: u32, seed: u64) -> Options {
    Options {
        load: LoadTimes::Drawn(TimeDistribution::new(Shape::Lognormal, load_ms * MS, cv)),
        seed,
        ..Options::new(1.0, 100.0, workers).unwrap()
    }
}

fn needs_remedy(verdict: &Verdict) -> bool {
    matches!(verdict.bottleneck, Bottleneck::Loading | Bottleneck::Uneven)
}

/// The load times of `options`, divided by `factor`.
fn faster(options: &Options, factor: f64) -> LoadTimes {
    let scaled = |ns: u64| ((ns as f64 / factor).round() as u64).max(1);
    match &options.load {
        LoadTimes::Drawn(load) => {
            LoadTimes::Drawn(TimeDistribution { mean_ns: scaled(load.mean_ns), ..*load })
        }
        LoadTimes::Trace(trace) => {
            let ns: Vec<u64> = trace.ns().iter().map(|&ns| scaled(ns)).collect();
            LoadTimes::Trace(LoadTrace::new(ns).unwrap())
        }
    }
}

/// All options that `verdict` recommends instead of `options`.
fn recommended(options: &Options, verdict: &Verdict) -> Vec<Options> {
    let workers = verdict.workers_needed.map(|workers| Options { workers, ..options.clone() });
    let speedup =
        verdict.speedup_needed.map(|factor| Options { load: faster(options, factor), ..options.clone() });
    let prefetch = verdict.prefetch_needed.map(|n| match options.order {
        Order::Pool => Options { queue: Some(n), ..options.clone() },
        _ => Options { prefetch: n, ..options.clone() },
    });
    let completed =
        verdict.completed_order_helps.then(|| Options { order: Order::Completed, ..options.clone() });
    [workers, speedup, prefetch, completed].into_iter().flatten().collect()
}

/// Asserts that each remedy for `options` works. Returns the number of remedies.
#[track_caller]
fn remedies_work(options: &Options) -> usize {
    let first = verdict(options);
    let all = recommended(options, &first);
    assert!(all.is_empty() || needs_remedy(&first), "{first}");
    for changed in &all {
        let second = verdict(changed);
        assert!(!needs_remedy(&second), "{first}\n{second}\n{}\n{}", options.to_json(), changed.to_json());
    }
    all.len()
}

#[test]
fn recommended_settings_have_no_further_remedy() {
    let mut dice = Dice(5);
    let mut remedies = 0;
    for _ in 0..100 {
        remedies += remedies_work(&dice.loader_options());
    }
    assert!(remedies > 50, "{remedies}");
    for _ in 0..40 {
        let mut options = dice.options();
        // Limits the run to about 2,000 steps.
        if let Stop::AfterNs(ns) = options.stop {
            let fastest = (options.step.mean_ns + options.transfer_ns).max(options.tick_ns);
            options.stop = Stop::AfterNs(ns.min(2_000 * fastest).max(1));
        }
        remedies_work(&options);
    }
}

#[test]
fn a_model_on_the_cores_of_the_workers_is_limited_by_them() {
    let on_cores = |load_ms: f64, workers, cores| Options {
        cores: Some(cores),
        step_core: true,
        ..Options::new(load_ms, 100.0, workers).unwrap()
    };
    let long = Options { stop: Stop::Batches(20_000), ..on_cores(700.0, 7, 2) };
    // The model does not wait, with a queue that is never empty; or it waits, because few workers fill the cores.
    for (options, rate, shown) in [
        (long, 2.5, "share 2 cores, enough for 2.5 batches/s, and the model alone could consume 10;"),
        (on_cores(50.0, 4, 1), 20.0 / 3.0, "share 1 core, enough for 6.67 batches/s"),
        (on_cores(700.0, 2, 2), 2.5, "the model waits 62.1% of the time, but more workers would not help"),
    ] {
        let run = simulate(&options).unwrap();
        let report = run.report();
        let found = Verdict::of(&run);
        assert_eq!(found.bottleneck, Bottleneck::Cores, "{found}");
        assert!(found.summary.contains(shown), "{found}");
        assert!((report.batches_per_second / rate - 1.0).abs() < 0.02, "{report}");
        assert!((report.model_limit / rate - 1.0).abs() < 1e-9, "{report}");
        assert!((report.loader_limit / rate - 1.0).abs() < 1e-9, "{report}");
        assert!(recommended(&options, &found).is_empty());
    }
    // With cores to spare, the limits are those of a model with its own device.
    let report = simulate(&on_cores(50.0, 4, 8)).unwrap().report();
    assert!((report.model_limit - 10.0).abs() < 1e-9 && (report.loader_limit - 80.0).abs() < 1e-9);
    // One worker does not fill two cores.
    let slow = verdict(&on_cores(700.0, 1, 2));
    assert_eq!(slow.bottleneck, Bottleneck::Loading);
    assert!(slow.summary.contains("the cores that loading and the model share allow 2.5"), "{slow}");
}

/// Redrawn times below 0 raise the mean of normal times, which limits the model.
#[test]
fn a_model_with_widely_varying_normal_steps_is_limited_by_their_real_mean() {
    let step = TimeDistribution::new(Shape::Normal, 10 * MS, 1.0);
    let run = simulate(&Options {
        step,
        prefetch: 256,
        stop: Stop::Batches(50_000),
        ..Options::new(11.0, 10.0, 1).unwrap()
    })
    .unwrap();
    let report = run.report();
    assert!(report.idle_share < 0.001, "{report}");
    assert!((report.batches_per_second / report.model_limit - 1.0).abs() < 0.02, "{report}");
    assert_eq!(Verdict::of(&run).bottleneck, Bottleneck::Model);
}

#[test]
fn verdicts_of_models_on_shared_cores_agree_with_their_throughput() {
    let mut dice = Dice(8);
    let mut limited = 0;
    for _ in 0..60 {
        let options = dice.loader_options();
        let cores = Some(1 + dice.below(8) as u32);
        let options = Options { cores, step_core: true, slow: None, stop: Stop::Batches(2_000), ..options };
        let run = simulate(&options).unwrap();
        let (report, found) = (run.report(), Verdict::of(&run));
        let limit = report.model_limit.min(report.loader_limit);
        assert!(report.batches_per_second < limit * 1.1, "{report}{found}\n{}", options.to_json());
        if found.bottleneck == Bottleneck::Cores {
            limited += 1;
        }
        remedies_work(&options);
    }
    assert!(limited > 10, "{limited}");
}

#[test]
fn the_recommended_number_of_workers_does_not_grow() {
    // In short and long runs alike, and with the seed of the how-to guide.
    let random = lognormal(2000, 0.5, 7, 1);
    assert_eq!(remedies_work(&random), 2);
    for seconds in [30, 3_000] {
        let options = Options { stop: Stop::AfterNs(seconds * 1_000 * MS), ..random.clone() };
        let workers = verdict(&options).workers_needed.unwrap();
        for seconds in [30, 300, 3_000] {
            let more = Options { workers, stop: Stop::AfterNs(seconds * 1_000 * MS), ..random.clone() };
            let report = simulate(&more).unwrap().report();
            assert!(seconds < 3_000 || report.stall_share < 0.02, "{workers}: {}", report.stall_share);
        }
    }
}

#[test]
fn waits_at_the_start_are_named_instead_of_a_remedy() {
    let options = Options { prefetch: 8, ..lognormal(800, 0.5, 9, 0) };
    let found = verdict(&options);
    assert_eq!(found.bottleneck, Bottleneck::Start, "{found}");
    assert!(
        found.summary.starts_with("only the start is slow: the model waits 3.7% of the time, but only"),
        "{found}"
    );
    assert!(found.summary.contains("after the first"), "{found}");
    assert!(recommended(&options, &found).is_empty());
    // The recommended prefetch factor does not remove the waits at the start.
    let few = Options { prefetch: 2, ..options.clone() };
    let needed = verdict(&few);
    assert!(needed.prefetch_needed.unwrap() <= 8);
    assert!(needed.summary.ends_with("would remove it, except at the start of the run"), "{needed}");
    // A run that ends while the workers load their first batches.
    let short = Options { stop: Stop::Batches(10), ..options };
    let found = verdict(&short);
    assert!(found.summary.contains("of a run of 20000 batches"), "{found}");
}

#[test]
fn a_long_wait_for_the_first_batch_is_named() {
    let options = Options {
        prefetch: 1,
        order: Order::Pool,
        startup_ns: 3_000 * MS,
        stop: Stop::AfterNs(5_000 * MS),
        ..Options::new(300.0, 130.0, 4).unwrap()
    };
    let run = simulate(&options).unwrap();
    let found = Verdict::of(&run);
    assert_eq!(found.bottleneck, Bottleneck::Start, "{found}");
    let words =
        "only the start is slow: the model waits 66.0% of the time, but only 0.0% after the first 3.3 s; ";
    assert!(found.summary.starts_with(words), "{found}");
    assert!(run.report().to_string().contains("none after the first batch"));
    // In a longer run, the wait does not matter.
    let long = Options { stop: Stop::AfterNs(100_000 * MS), ..options.clone() };
    assert_eq!(verdict(&long).bottleneck, Bottleneck::Model);
    // Without a first batch, no time is after it.
    let empty = simulate(&Options { stop: Stop::AfterNs(3_000 * MS), ..options }).unwrap();
    assert!(!empty.report().to_string().contains("after the first batch"), "{}", empty.report());
}

#[test]
fn a_run_without_waits_is_judged_by_a_longer_one() {
    // The first 12 batches happen to be fast enough.
    let lucky = (0..1_000)
        .map(|seed| Options { stop: Stop::Batches(12), ..lognormal(560, 0.4, 6, seed) })
        .find(|options| simulate(options).unwrap().report().stall_share <= 0.01)
        .unwrap();
    let found = verdict(&lucky);
    assert_eq!(found.bottleneck, Bottleneck::Uneven);
    assert!(found.summary.starts_with("uneven loading would be the bottleneck of a longer run"), "{found}");
    remedies_work(&lucky);
}

#[test]
fn the_best_setting_is_named_if_none_suffices() {
    // Two workers on four cores, which could load 0.4 times as much as the model consumes.
    let options = Options { cores: Some(4), ..Options::new(1_000.0, 100.0, 2).unwrap() };
    let found = verdict(&options);
    assert_eq!(found.workers_needed, None);
    assert!(found.summary.contains("; 4 workers would reduce it to 6"), "{found}");
    assert!(found.summary.contains("more do not help, because they share 4 cores"), "{found}");
    // Four workers are told only that more do not help.
    let found = verdict(&Options { workers: 4, ..options });
    assert!(found.summary.ends_with("; more workers do not help, because they share 4 cores"), "{found}");
    // One batch of 50 takes 10 s: with 1,024 times faster loading, the model still waits for it.
    let mut ns = vec![1_000; 49];
    ns.push(10_000 * MS);
    let load = LoadTimes::Trace(LoadTrace::new(ns).unwrap());
    let found = verdict(&Options { load, stop: Stop::Batches(500), ..Options::new(1.0, 0.25, 1).unwrap() });
    assert!(found.summary.contains("; no remedy that was tried would remove it; "), "{found}");
    assert!(found.summary.contains(" would reduce it to "), "{found}");
}

#[test]
fn workers_that_start_late_are_a_matter_of_the_start() {
    // Each worker starts 10 s after the previous one, and two are enough.
    let run = |seconds: u64| Options {
        stagger_ns: 10_000 * MS,
        stop: Stop::AfterNs(seconds * 1_000 * MS),
        ..Options::new(180.0, 100.0, 3).unwrap()
    };
    for seconds in [15, 30, 300] {
        let found = verdict(&run(seconds));
        assert_eq!(found.bottleneck, Bottleneck::Start, "{found}");
    }
    assert_eq!(verdict(&run(3_000)).bottleneck, Bottleneck::Model);
}
