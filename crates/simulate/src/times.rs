//! Times of batches: distributions, traces, and runs of slow batches.

use std::sync::Arc;

use crate::error::Error;
use crate::math::{exp, ln, sqrt};
use crate::options::{MAX_CV, MAX_TIME_NS};
use crate::random::{Random, Stream};

/// Family of a distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shape {
    /// Always the mean.
    #[default]
    Constant,
    /// Normal. Values that are not positive are drawn again, which raises the mean: by 3% at a cv of 0.5.
    Normal,
    /// Lognormal: never negative, with a long tail of slow batches.
    Lognormal,
    /// Exponential, whose cv is always 1.
    Exponential,
    /// Gamma: a sum of independent exponential parts, as of samples that are loaded one after another.
    Gamma,
}

impl Shape {
    /// All of them, by name.
    pub const ALL: [(&'static str, Self); 5] = [
        ("constant", Self::Constant),
        ("normal", Self::Normal),
        ("lognormal", Self::Lognormal),
        ("exponential", Self::Exponential),
        ("gamma", Self::Gamma),
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Constant => "constant",
            Self::Normal => "normal",
            Self::Lognormal => "lognormal",
            Self::Exponential => "exponential",
            Self::Gamma => "gamma",
        }
    }
}

/// A distribution of times.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeDistribution {
    /// Family.
    pub shape: Shape,
    /// Mean in nanoseconds.
    pub mean_ns: u64,
    /// Coefficient of variation: standard deviation ÷ mean. Without effect on [`Shape::Constant`].
    pub cv: f64,
}

impl TimeDistribution {
    /// Always `mean_ns`.
    pub fn constant(mean_ns: u64) -> Self {
        Self { shape: Shape::Constant, mean_ns, cv: 0.0 }
    }

    /// A distribution of `shape`.
    pub fn new(shape: Shape, mean_ns: u64, cv: f64) -> Self {
        Self { shape, mean_ns, cv }
    }

    pub(crate) fn check(&self, mean: &'static str, cv: &'static str) -> Result<(), Error> {
        if self.mean_ns == 0 {
            return Err(Error::new(mean, "must be more than 0"));
        }
        if self.mean_ns > MAX_TIME_NS {
            return Err(Error::new(mean, "is above the maximum of one hour"));
        }
        if !(0.0..=MAX_CV).contains(&self.cv) {
            return Err(Error::new(cv, format!("{} is not between 0 and {MAX_CV}", self.cv)));
        }
        if self.shape == Shape::Exponential && self.cv != 1.0 {
            return Err(Error::new(cv, "an exponential distribution has a cv of 1")
                .help("use gamma or lognormal for another cv"));
        }
        Ok(())
    }

    /// Mean of what is drawn, in nanoseconds.
    fn drawn_mean_ns(&self) -> f64 {
        let mean = self.mean_ns as f64;
        if self.shape == Shape::Normal && self.cv > 0.0 { mean * truncated_mean(self.cv) } else { mean }
    }

    fn draw(&self, random: &mut Random) -> u64 {
        let (mean, cv) = (self.mean_ns as f64, self.cv);
        if self.shape == Shape::Constant || cv == 0.0 {
            return self.mean_ns;
        }
        round_ns(match self.shape {
            Shape::Constant => mean,
            Shape::Normal => loop {
                let x = mean * (1.0 + cv * random.normal());
                if x > 0.0 {
                    break x;
                }
            },
            Shape::Lognormal => {
                let variance = ln(1.0 + cv * cv);
                mean * exp(sqrt(variance) * random.normal() - 0.5 * variance)
            }
            Shape::Exponential => mean * random.exponential(),
            Shape::Gamma => {
                let shape = 1.0 / (cv * cv);
                mean * (random.gamma(shape) / shape)
            }
        })
    }
}

/// Mean of a normal variable of mean 1 and standard deviation `cv`, given that it is positive.
fn truncated_mean(cv: f64) -> f64 {
    let z = 1.0 / cv;
    let density = exp(-0.5 * z * z) / 2.506_628_274_631;
    // Abramowitz and Stegun 26.2.17: exact to 7.5e-8.
    let t = 1.0 / (1.0 + 0.231_641_9 * z);
    let tail = density
        * t
        * (0.319_381_53
            + t * (-0.356_563_782 + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429))));
    1.0 + cv * density / (1.0 - tail)
}

/// Rounds to whole nanoseconds, at least 1 and at most an hour.
fn round_ns(ns: f64) -> u64 {
    let rounded = (ns + 0.5).floor();
    if rounded < 1.0 {
        1
    } else if rounded > MAX_TIME_NS as f64 {
        MAX_TIME_NS
    } else {
        rounded as u64
    }
}

/// Measured load times. Batch *k* takes entry *k* modulo the length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadTrace(Arc<[u64]>);

impl LoadTrace {
    /// A trace of these nanoseconds.
    ///
    /// # Errors
    ///
    /// If it is empty, or a time is 0 or above an hour.
    pub fn new(ns: impl Into<Arc<[u64]>>) -> Result<Self, Error> {
        let trace = Self(ns.into());
        trace.check()?;
        Ok(trace)
    }

    /// The times in nanoseconds.
    pub fn ns(&self) -> &[u64] {
        &self.0
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.0.is_empty() {
            return Err(Error::new("load-trace", "has no load time"));
        }
        match self.0.iter().position(|&ns| ns == 0 || ns > MAX_TIME_NS) {
            Some(i) => Err(Error::new(
                "load-trace",
                format!("load time {} is not more than 0 and at most one hour", i + 1),
            )),
            None => Ok(()),
        }
    }
}

/// Where load times come from.
#[derive(Debug, Clone, PartialEq)]
pub enum LoadTimes {
    /// Drawn independently for each batch.
    Drawn(TimeDistribution),
    /// Measured.
    Trace(LoadTrace),
}

impl LoadTimes {
    /// Mean of what is drawn, in nanoseconds, without slow runs.
    pub fn mean_ns(&self) -> f64 {
        match self {
            Self::Drawn(load) => load.drawn_mean_ns(),
            Self::Trace(trace) => {
                trace.ns().iter().map(|&ns| ns as f64).sum::<f64>() / trace.ns().len() as f64
            }
        }
    }

    /// The same times multiplied by `factor`.
    pub(crate) fn scaled(&self, factor: f64) -> Self {
        match self {
            Self::Drawn(load) => {
                Self::Drawn(TimeDistribution { mean_ns: round_ns(load.mean_ns as f64 * factor), ..*load })
            }
            Self::Trace(trace) => {
                Self::Trace(LoadTrace(trace.ns().iter().map(|&ns| round_ns(ns as f64 * factor)).collect()))
            }
        }
    }
}

/// Runs of slow batches: large images that lie side by side, or a disk that is busy for a while.
///
/// A two-state Markov chain over consecutive batches. The load times of a slow batch are multiplied by `factor`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SlowRuns {
    /// Share of batches that are slow, between 0 and 1.
    pub share: f64,
    /// How many times longer a slow batch takes.
    pub factor: f64,
    /// Mean number of consecutive slow batches.
    pub length: f64,
}

impl SlowRuns {
    /// Mean of the multiplier over all batches.
    pub fn mean_factor(&self) -> f64 {
        1.0 + self.share * (self.factor - 1.0)
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if !(self.share > 0.0 && self.share < 1.0) {
            return Err(Error::new("slow-share", format!("{} is not between 0 and 1", self.share)));
        }
        if !(1.0..=1000.0).contains(&self.factor) {
            return Err(Error::new("slow-factor", format!("{} is not between 1 and 1000", self.factor)));
        }
        let least = (self.share / (1.0 - self.share)).max(1.0);
        if !(self.length >= least && self.length <= 1e6) {
            return Err(Error::new(
                "slow-length",
                format!("{} is not between {least} and 1000000 for this share", self.length),
            ));
        }
        Ok(())
    }
}

/// Produces the load time of one batch after another.
#[derive(Debug)]
pub(crate) struct LoadSampler<'a> {
    load: &'a LoadTimes,
    slow: Option<SlowRuns>,
    is_slow: bool,
    batch: usize,
    times: Random,
    slowness: Random,
}

impl<'a> LoadSampler<'a> {
    pub(crate) fn new(load: &'a LoadTimes, slow: Option<SlowRuns>, seed: u64) -> Self {
        let mut slowness = Random::new(seed, Stream::Slow);
        let is_slow = slow.is_some_and(|slow| slowness.uniform() < slow.share);
        Self { load, slow, is_slow, batch: 0, times: Random::new(seed, Stream::Load), slowness }
    }

    pub(crate) fn next_ns(&mut self) -> u64 {
        let mut ns = match self.load {
            LoadTimes::Drawn(load) => load.draw(&mut self.times),
            LoadTimes::Trace(trace) => trace.0.get(self.batch % trace.0.len()).copied().unwrap_or(1),
        };
        self.batch += 1;
        if let Some(slow) = self.slow {
            if self.is_slow {
                ns = round_ns(ns as f64 * slow.factor);
            }
            let change = if self.is_slow {
                1.0 / slow.length
            } else {
                slow.share / (slow.length * (1.0 - slow.share))
            };
            if self.slowness.uniform() < change {
                self.is_slow = !self.is_slow;
            }
        }
        ns
    }
}

/// Produces the time of one step after another.
#[derive(Debug)]
pub(crate) struct StepSampler {
    step: TimeDistribution,
    random: Random,
}

impl StepSampler {
    pub(crate) fn new(step: TimeDistribution, seed: u64) -> Self {
        Self { step, random: Random::new(seed, Stream::Step) }
    }

    pub(crate) fn next_ns(&mut self) -> u64 {
        self.step.draw(&mut self.random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statistics(load: &LoadTimes, slow: Option<SlowRuns>) -> (f64, f64) {
        let mut sampler = LoadSampler::new(load, slow, 3);
        let times: Vec<f64> = (0..100_000).map(|_| sampler.next_ns() as f64).collect();
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        let variance = times.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / times.len() as f64;
        (mean, variance.sqrt() / mean)
    }

    #[test]
    fn means_and_variation_are_those_asked_for() {
        for (shape, cv) in [
            (Shape::Constant, 0.0),
            (Shape::Normal, 0.3),
            (Shape::Normal, 0.05),
            (Shape::Lognormal, 0.5),
            (Shape::Lognormal, 1.0),
            (Shape::Exponential, 1.0),
            (Shape::Gamma, 0.1),
            (Shape::Gamma, 0.5),
            (Shape::Gamma, 1.5),
        ] {
            let load = LoadTimes::Drawn(TimeDistribution::new(shape, 50_000_000, cv));
            let (mean, found) = statistics(&load, None);
            assert!((mean / 5e7 - 1.0).abs() < 0.02, "{shape:?} {cv}: mean {mean}");
            assert!((found - cv).abs() <= 0.05 * cv, "{shape:?} {cv}: {found}");
        }
    }

    #[test]
    fn the_mean_of_a_truncated_normal_is_known() {
        for cv in [0.5, 1.0, 3.0] {
            let load = LoadTimes::Drawn(TimeDistribution::new(Shape::Normal, 50_000_000, cv));
            let (mean, _) = statistics(&load, None);
            assert!((mean / load.mean_ns() - 1.0).abs() < 0.01, "{cv}: {mean} {}", load.mean_ns());
        }
    }

    #[test]
    fn slow_runs_have_their_share_and_length() {
        let slow = SlowRuns { share: 0.2, factor: 5.0, length: 8.0 };
        let load = LoadTimes::Drawn(TimeDistribution::constant(1_000));
        let mut sampler = LoadSampler::new(&load, Some(slow), 1);
        let times: Vec<u64> = (0..200_000).map(|_| sampler.next_ns()).collect();
        let slow_batches = times.iter().filter(|&&t| t == 5_000).count() as f64;
        let runs = times.windows(2).filter(|pair| pair[0] == 1_000 && pair[1] == 5_000).count() as f64;
        assert!((slow_batches / 200_000.0 - 0.2).abs() < 0.02);
        assert!((slow_batches / runs - 8.0).abs() < 0.5);
    }

    #[test]
    fn a_trace_repeats() {
        let load = LoadTimes::Trace(LoadTrace::new(vec![3, 5, 7]).unwrap());
        let mut sampler = LoadSampler::new(&load, None, 0);
        assert_eq!((0..5).map(|_| sampler.next_ns()).collect::<Vec<_>>(), [3, 5, 7, 3, 5]);
        assert_eq!(load.mean_ns(), 5.0);
        assert!(LoadTrace::new(vec![]).is_err());
        assert!(LoadTrace::new(vec![1, 0]).is_err());
    }
}
