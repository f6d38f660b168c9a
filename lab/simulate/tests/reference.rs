//! Tests of the simulator against closed forms, published runs and queueing theory.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::Dice;
use dsconvert_simulate::{
    Bottleneck, EventKind, LoadTimes, LoadTrace, Options, Order, Run, Shape, Stop, TimeDistribution, Verdict,
    simulate,
};
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const ORDERS: [Order; 3] = [Order::Pytorch, Order::Completed, Order::Pool];

fn base(load_ms: f64) -> Options {
    Options::new(load_ms, 100.0, 7).unwrap()
}

fn drawn(shape: Shape, load_ms: u64, cv: f64, seed: u64) -> Options {
    Options { load: LoadTimes::Drawn(TimeDistribution::new(shape, load_ms * MS, cv)), seed, ..base(1.0) }
}

fn batches(options: &Options) -> u64 {
    simulate(options).unwrap().finished
}

/// Mean number of batches over 100 seeds, at mean load times of 2000, 700 and 350 ms.
fn means(options: impl Fn(u64, u64) -> Options) -> [f64; 3] {
    [2000, 700, 350]
        .map(|load_ms| (0..100).map(|seed| batches(&options(load_ms, seed)) as f64).sum::<f64>() / 100.0)
}

#[track_caller]
fn near(found: [f64; 3], expected: [f64; 3], share: f64) {
    for (found, expected) in found.into_iter().zip(expected) {
        assert!((found - expected).abs() <= expected * share + 0.5, "{found}, not {expected}");
    }
}

#[test]
fn constant_times_give_the_reference_counts() {
    for order in ORDERS {
        let count = |load_ms| batches(&Options { order, ..base(load_ms) });
        assert_eq!([count(2000.0), count(700.0), count(350.0)], [98, 293, 296], "{order:?}");
    }
}

#[test]
fn published_random_runs_are_reproduced_on_average() {
    let in_order = means(|load, seed| drawn(Shape::Normal, load, 0.2, seed));
    near(in_order, [94.0, 276.0, 296.0], 0.02);
    // One run of 60 exponential times varies by several percent.
    let exponential = means(|load, seed| drawn(Shape::Exponential, load, 1.0, seed));
    near(exponential, [58.0, 165.0, 270.0], 0.05);
    let pool = |queue, tick_ns, cv| {
        means(move |load, seed| Options {
            order: Order::Pool,
            queue,
            tick_ns,
            ..drawn(Shape::Normal, load, cv, seed)
        })
    };
    near(pool(Some(1), 1, 0.3), [101.0, 276.0, 297.0], 0.01);
    // A sufficient explanation of 98, 275 and 295 batches: a shared queue and a clock of 100 ms.
    near(pool(None, 100 * MS, 0.1), [99.0, 275.0, 296.0], 0.01);
}

#[test]
fn the_regular_stall_has_its_period_and_length() {
    let run = simulate(&base(2000.0)).unwrap();
    let stalls = run.report().stalls;
    assert_eq!((stalls.mean_ns, stalls.period_ns), (1300e6, Some(2000e6)));
    // Staggered workers stall the model for the same total time, but before every batch.
    let staggered = simulate(&Options { stagger_ns: 2000 * MS / 7, ..base(2000.0) }).unwrap();
    let stalls = staggered.report().stalls;
    assert!((stalls.mean_ns / 1e6 - 185.7).abs() < 0.1 && stalls.count == staggered.finished);
    assert_eq!(staggered.finished, run.finished);
    // Random times hide the regular stall, but the bottleneck stays the same.
    let random = simulate(&drawn(Shape::Lognormal, 2000, 0.5, 1)).unwrap();
    assert!(random.finished <= run.finished);
    assert_eq!(Verdict::of(&random).bottleneck, Bottleneck::Loading);
}

#[test]
fn verdicts_name_the_bottleneck_and_the_remedy() {
    let verdict = |options: &Options| Verdict::of(&simulate(options).unwrap());
    let slow = verdict(&base(2000.0));
    assert_eq!((slow.bottleneck, slow.workers_needed), (Bottleneck::Loading, Some(20)));
    assert!((2.85..2.9).contains(&slow.speedup_needed.unwrap()), "{slow}");
    assert_eq!(verdict(&base(700.0)).bottleneck, Bottleneck::Balanced);
    assert_eq!(verdict(&base(350.0)).bottleneck, Bottleneck::Model);
    let uneven = verdict(&drawn(Shape::Lognormal, 600, 0.5, 1));
    assert_eq!(uneven.bottleneck, Bottleneck::Uneven);
    assert!(uneven.completed_order_helps && uneven.workers_needed.unwrap() > 7);
    let shared = verdict(&Options { cores: Some(2), ..base(2000.0) });
    assert_eq!((shared.bottleneck, shared.workers_needed), (Bottleneck::Loading, None));
    assert!(shared.summary.contains("share 2 cores"), "{shared}");
    let short = verdict(&Options { stop: Stop::AfterNs(MS), ..base(2000.0) });
    assert_eq!(short.bottleneck, Bottleneck::Loading);
    assert!(short.summary.starts_with("no batch arrived"), "{short}");
    let lucky = verdict(&Options { stop: Stop::Batches(7), ..base(2000.0) });
    assert!(lucky.summary.starts_with("loading would be the bottleneck of a longer run"), "{lucky}");
    // The suggested remedy works.
    let more = Options { workers: 20, ..base(2000.0) };
    assert_ne!(verdict(&more).bottleneck, Bottleneck::Loading);
}

#[test]
fn cores_are_shared_evenly() {
    // Four loads of 100 ms on two cores take 200 ms.
    let options = Options { cores: Some(2), stop: Stop::Batches(4), ..Options::new(100.0, 1.0, 4).unwrap() };
    let run = simulate(&options).unwrap();
    assert!(run.batches[..4].iter().all(|b| b.done_ns == Some(200 * MS)));
    // Loads of 50 and 100 ms on one core end at 100 and 150 ms.
    let trace = LoadTrace::new(vec![50 * MS, 100 * MS]).unwrap();
    let options = Options {
        cores: Some(1),
        load: LoadTimes::Trace(trace),
        stop: Stop::Batches(2),
        ..Options::new(1.0, 1.0, 2).unwrap()
    };
    let run = simulate(&options).unwrap();
    assert_eq!(run.batches[0].done_ns, Some(100 * MS));
    assert_eq!(run.batches[1].done_ns, Some(150 * MS));
}

#[test]
fn a_step_on_the_cpu_shares_the_cores_of_the_workers() {
    // One core: loads and steps of 100 ms each add up, with any number of workers.
    for workers in [1, 2, 5] {
        let options = Options {
            cores: Some(1),
            step_core: true,
            stop: Stop::Batches(20),
            ..Options::new(100.0, 100.0, workers).unwrap()
        };
        // Fractions of a nanosecond are rounded.
        assert!(simulate(&options).unwrap().end_ns.abs_diff(20 * 200 * MS) < 1_000);
    }
    // The first load has the core to itself. Then the first step shares it with the second load, and both take 200 ms.
    let options = Options {
        cores: Some(1),
        step_core: true,
        stop: Stop::Batches(2),
        ..Options::new(100.0, 100.0, 1).unwrap()
    };
    let run = simulate(&options).unwrap();
    assert_eq!((run.batches[0].step_ns, run.batches[0].end_ns), (Some(100 * MS), Some(300 * MS)));
    assert_eq!(run.batches[1].done_ns, Some(300 * MS));
    // With enough cores for all, nothing changes.
    let shared = Options { cores: Some(3), step_core: true, ..base(200.0) };
    let free = Options { workers: 2, ..base(200.0) };
    let shared = Options { workers: 2, ..shared };
    assert_eq!(simulate(&shared).unwrap().events, simulate(&free).unwrap().events);
    // Sharing needs a limited number of cores.
    assert!(Options { step_core: true, ..base(200.0) }.check().is_err());
}

#[test]
fn ties_are_resolved_in_the_documented_order() {
    let options = Options { stop: Stop::Batches(2), ..Options::new(10.0, 10.0, 2).unwrap() };
    let log: Vec<String> = simulate(&options).unwrap().events.iter().map(ToString::to_string).collect();
    let expected = [
        "0 start 0 0",
        "0 start 1 1",
        "10000000 done 0 0",
        "10000000 queue 0 0",
        "10000000 done 1 1",
        "10000000 queue 1 1",
        "10000000 take 0 0",
        "10000000 step 0 0",
        "20000000 end 0 0",
        "20000000 take 1 1",
        "20000000 step 1 1",
        "30000000 end 1 1",
    ];
    assert_eq!(log, expected);
}

#[test]
fn limits_end_a_run_with_an_error() {
    let tiny = Options::new(0.000_001, 0.000_001, 8).unwrap();
    assert_eq!(simulate(&tiny).unwrap_err().option, "seconds");
    let endless = Options { stop: Stop::Batches(1_000_000), ..Options::new(3_600_000.0, 1.0, 1).unwrap() };
    assert_eq!(simulate(&endless).unwrap_err().option, "batches");
}

/// Checks invariants that hold for every run.
fn check_invariants(run: &Run) {
    let options = &run.options;
    let report = run.report();
    let outstanding_limit = options.workers * options.prefetch;
    let (mut outstanding, mut queued, mut loading) = (0_i64, 0_i64, 0_i64);
    let mut last = 0;
    let mut delivered = Vec::new();
    for event in &run.events {
        assert!(event.ns >= last && event.ns <= run.end_ns);
        last = event.ns;
        match event.kind {
            EventKind::Start => {
                loading += 1;
                outstanding += 1;
            }
            EventKind::Done => loading -= 1,
            EventKind::Queue => queued += 1,
            EventKind::Take => {
                queued -= 1;
                outstanding -= 1;
                delivered.push(event.batch);
            }
            EventKind::Step | EventKind::End => {}
        }
        assert!(queued >= 0 && loading <= i64::from(options.workers));
        if options.order == Order::Pool {
            // A finished batch enters a full queue only when the model takes one.
            assert!(queued <= i64::from(options.queue_capacity()));
        } else {
            assert!(outstanding <= i64::from(outstanding_limit));
        }
    }
    if options.order == Order::Pytorch {
        assert!(delivered.iter().copied().eq(0..delivered.len() as u32));
        assert!(
            run.batches.iter().enumerate().all(|(k, b)| b.worker as usize == k % options.workers as usize)
        );
    }
    delivered.sort_unstable();
    delivered.dedup();
    assert!(delivered.len() as u64 >= run.finished, "a batch was delivered twice");
    for batch in &run.batches {
        let times =
            [batch.start_ns, batch.done_ns, batch.queued_ns, batch.taken_ns, batch.step_ns, batch.end_ns];
        let known: Vec<u64> = times.iter().flatten().copied().collect();
        assert!(known.is_sorted());
        assert!(times.iter().skip_while(|t| t.is_some()).all(Option::is_none));
        if let (Some(start), Some(done)) = (batch.start_ns, batch.done_ns) {
            assert!(done - start >= batch.load_ns, "a load is never faster than its work");
        }
    }
    for share in [report.idle_share, report.wait_share, report.queue.empty_share, report.loading_share] {
        assert!((-1e-9..=1.0 + 1e-9).contains(&share), "{share}");
    }
    assert!((report.wait_share + report.transfer_share - report.idle_share).abs() < 1e-9);
}

#[test]
fn invariants_hold_for_random_options() {
    let mut dice = Dice(7);
    for _ in 0..2_000 {
        let mut options = dice.options();
        if let Stop::AfterNs(ns) = options.stop {
            options.stop = Stop::AfterNs(ns.min(200 * options.step.mean_ns.max(options.tick_ns)).max(1));
        }
        let run = simulate(&options).unwrap();
        check_invariants(&run);
        assert_eq!(run, simulate(&options).unwrap(), "the same seed gives the same run");
    }
}

proptest! {
    /// Number of batches in 30 s with constant times: the first ends at `load + step`, then one every
    /// `max(load ÷ workers, step)`, in groups of `workers`.
    #[test]
    fn constant_times_have_a_closed_form(load in 1_u64..3_000, step in 1_u64..300, workers in 1_u32..12, order in 0..3_usize) {
        let seconds = 30_u64;
        let options = Options { order: ORDERS[order], ..Options::new(load as f64, step as f64, workers).unwrap() };
        let found = batches(&options);
        let end = seconds * 1_000;
        // Batch k is ready when its worker has finished loading, which starts once the batch is assigned.
        let mut expected = 0;
        let mut free = 0;
        let prefetch = 2_u64;
        let mut taken = Vec::new();
        let mut done = vec![0_u64; workers as usize];
        for k in 0_u64.. {
            let w = (k % u64::from(workers)) as usize;
            let assigned = k.checked_sub(prefetch * u64::from(workers)).map_or(0, |j: u64| taken[j as usize]);
            done[w] = done[w].max(assigned) + load;
            let start = free.max(done[w]);
            taken.push(start);
            free = start + step;
            if free > end { break }
            expected += 1;
        }
        if order == 0 {
            prop_assert_eq!(found, expected);
        } else {
            prop_assert!(found.abs_diff(expected) <= u64::from(workers) + 1);
        }
        let bound = (end as f64 / step as f64).min(f64::from(workers) * end as f64 / load as f64);
        prop_assert!(found as f64 <= bound + 1e-9);
        // Only the start-up and at most one group are lost.
        prop_assert!(found as f64 >= bound - f64::from(workers) - load as f64 / step as f64 - 2.0);
    }

    /// In every order, throughput stays below the limit of all workers and that of the model.
    #[test]
    fn throughput_stays_below_both_limits(seed in any::<u64>(), cv in 0.0..2.0_f64, workers in 1_u32..16, load in 5_u64..400) {
        for order in ORDERS {
            let options = Options {
                order, workers, seed,
                load: LoadTimes::Drawn(TimeDistribution::new(Shape::Gamma, load * MS, cv)),
                ..Options::new(1.0, 20.0, 1).unwrap()
            };
            let run = simulate(&options).unwrap();
            let report = run.report();
            let work: u64 = run.batches.iter().filter(|b| b.done_ns.is_some()).map(|b| b.load_ns).sum();
            prop_assert!(work <= u64::from(workers) * run.end_ns);
            prop_assert!(report.batches <= 1_500);
            check_invariants(&run);
        }
    }

    /// One worker, prefetch 1, no queueing: every cycle lasts as long as the longer of load and step.
    #[test]
    fn a_single_worker_alternates_with_the_model(loads in proptest::collection::vec(1_u64..500, 1..40), step in 1_u64..500) {
        let n = loads.len() as u64;
        let trace = LoadTrace::new(loads.iter().map(|ms| ms * MS).collect::<Vec<_>>()).unwrap();
        let options = Options {
            prefetch: 1,
            load: LoadTimes::Trace(trace),
            stop: Stop::Batches(n),
            ..Options::new(1.0, step as f64, 1).unwrap()
        };
        // The next load starts when the model takes a batch.
        let expected = loads[0] + loads[1..].iter().map(|load| (*load).max(step)).sum::<u64>() + step;
        prop_assert_eq!(simulate(&options).unwrap().end_ns, expected * MS);
    }

    /// Little's law: mean queue length = throughput × mean time in the queue.
    #[test]
    fn littles_law_holds(seed in any::<u64>()) {
        let options = Options { seed, stop: Stop::Batches(400), ..drawn(Shape::Gamma, 600, 0.7, seed) };
        let run = simulate(&options).unwrap();
        let waits: u64 = run.batches.iter().map(|b| b.taken_ns.unwrap() - b.queued_ns.unwrap()).sum();
        let expected = waits as f64 / run.end_ns as f64;
        prop_assert!((run.report().queue.mean - expected).abs() < 1e-9);
    }
}

/// A large shared queue fed by many slow exponential workers is close to M/D/1: below saturation, its mean length
/// follows the Pollaczek–Khinchine formula.
#[test]
fn many_exponential_workers_make_a_poisson_process() {
    let workers = 500;
    let mut load = 0.0;
    for seed in 0..4 {
        let options = Options {
            workers,
            order: Order::Pool,
            queue: Some(100_000),
            load: LoadTimes::Drawn(TimeDistribution::new(Shape::Exponential, 500 * 20 * MS, 1.0)),
            stop: Stop::Batches(20_000),
            seed,
            ..Options::new(1.0, 14.0, workers).unwrap()
        };
        // Arrivals every 20 ms, steps of 14 ms: utilization 0.7.
        load += simulate(&options).unwrap().report().queue.mean / 4.0;
    }
    let rho: f64 = 0.7;
    let expected = rho * rho / (2.0 * (1.0 - rho));
    assert!((load - expected).abs() < 0.15 * expected, "{load}, not {expected}");
}
