//! Random simulation options, shared by the tests of the simulator.

#![allow(dead_code, unreachable_pub, unused_imports, reason = "each test uses a part")]

mod installed;

pub use installed::is_installed;

use dsconvert_simulate::{LoadTimes, LoadTrace, Options, Order, Shape, SlowRuns, Stop, TimeDistribution};

/// SplitMix64 random number generator.
pub struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A random time of up to 3 s, on a random scale from microseconds to seconds, in whole nanoseconds.
    fn ns(&mut self) -> u64 {
        let scale = [1_000, 1_000_000, 100_000_000, 3_000_000_000][self.below(4) as usize];
        1 + self.below(scale)
    }

    fn times(&mut self) -> TimeDistribution {
        let shape = Shape::ALL[self.below(5) as usize].1;
        let cv = match shape {
            Shape::Constant => 0.0,
            Shape::Exponential => 1.0,
            _ => [0.0, 0.05, 0.3, 1.0, 3.0, 10.0 * self.unit()][self.below(6) as usize],
        };
        TimeDistribution::new(shape, self.ns(), cv)
    }

    /// Random valid options of a short run.
    pub fn options(&mut self) -> Options {
        let load = if self.chance(15) {
            let times: Vec<u64> = (0..=self.below(20)).map(|_| self.ns()).collect();
            LoadTimes::Trace(LoadTrace::new(times).unwrap())
        } else {
            LoadTimes::Drawn(self.times())
        };
        let workers = 1 + if self.chance(5) { self.below(200) } else { self.below(16) } as u32;
        let mut options = Options {
            workers,
            prefetch: 1 + self.below(6) as u32,
            order: [Order::Pytorch, Order::Completed, Order::Pool][self.below(3) as usize],
            queue: self.chance(50).then(|| 1 + self.below(20) as u32),
            load,
            slow: self.chance(25).then(|| SlowRuns {
                share: 0.01 + 0.48 * self.unit(),
                factor: 1.0 + 20.0 * self.unit(),
                length: 1.0 + 9.0 * self.unit(),
            }),
            step: self.times(),
            transfer_ns: if self.chance(30) { self.ns() } else { 0 },
            startup_ns: if self.chance(30) { self.ns() } else { 0 },
            stagger_ns: if self.chance(30) { self.ns() } else { 0 },
            cores: self.chance(40).then(|| 1 + self.below(u64::from(workers) + 2) as u32),
            step_core: false,
            tick_ns: if self.chance(25) { self.ns() } else { 1 },
            seed: self.next(),
            stop: if self.chance(50) {
                Stop::Batches(1 + self.below(150))
            } else {
                // At most 20 s, which keeps the logs short.
                Stop::AfterNs(1 + self.below(20_000_000_000))
            },
        };
        options.step_core = options.cores.is_some() && self.chance(50);
        options
    }

    /// Random options of an ordinary loader: times that vary, and workers that are about fast enough.
    pub fn loader_options(&mut self) -> Options {
        let step_ns = [1, 20, 100, 300][self.below(4) as usize] * 1_000_000;
        let workers = 1 + self.below(16) as u32;
        let shape = [Shape::Constant, Shape::Normal, Shape::Lognormal, Shape::Exponential, Shape::Gamma]
            [self.below(5) as usize];
        let cv = match shape {
            Shape::Constant => 0.0,
            Shape::Exponential => 1.0,
            _ => 0.1 + 0.9 * self.unit(),
        };
        // The workers load 0.4 to 2 times as many batches as the model consumes.
        let load_ns = step_ns as f64 * f64::from(workers) / (0.4 + 1.6 * self.unit());
        Options {
            workers,
            prefetch: 1 + self.below(4) as u32,
            order: [Order::Pytorch, Order::Completed, Order::Pool][self.below(3) as usize],
            load: LoadTimes::Drawn(TimeDistribution::new(shape, load_ns as u64, cv)),
            slow: self.chance(15).then_some(SlowRuns { share: 0.1, factor: 3.0, length: 4.0 }),
            step: TimeDistribution::constant(step_ns),
            transfer_ns: if self.chance(20) { step_ns / 10 } else { 0 },
            startup_ns: if self.chance(20) { 2_000_000_000 } else { 0 },
            stagger_ns: if self.chance(20) { load_ns as u64 / u64::from(workers) } else { 0 },
            cores: self.chance(20).then(|| 1 + self.below(20) as u32),
            seed: self.below(100),
            stop: if self.chance(30) {
                Stop::Batches(20 + self.below(2_000))
            } else {
                Stop::AfterNs(step_ns * (50 + self.below(1_000)))
            },
            ..Options::new(1.0, 1.0, 1).unwrap()
        }
    }
}
