//! Load times of batches, drawn or measured, and runs of slow batches.

use crate::distribution::{TimeDistribution, round_ns};
use crate::error::Error;
use crate::random::{Stream, Xoshiro128};
use crate::trace::LoadTrace;

/// Source of load times.
#[derive(Debug, Clone, PartialEq)]
pub enum LoadTimes {
    /// Drawn independently for each batch.
    Drawn(TimeDistribution),
    /// Measured times.
    Trace(LoadTrace),
}

impl LoadTimes {
    /// Returns the mean load time in nanoseconds, without slow runs.
    pub fn mean_ns(&self) -> f64 {
        match self {
            Self::Drawn(load) => load.drawn_mean_ns(),
            Self::Trace(trace) => {
                trace.ns().iter().map(|&ns| ns as f64).sum::<f64>() / trace.ns().len() as f64
            }
        }
    }

    /// Returns the same times multiplied by `factor`.
    pub(crate) fn scaled(&self, factor: f64) -> Self {
        match self {
            Self::Drawn(load) => {
                Self::Drawn(TimeDistribution { mean_ns: round_ns(load.mean_ns as f64 * factor), ..*load })
            }
            Self::Trace(trace) => Self::Trace(trace.scaled(factor)),
        }
    }
}

/// Runs of slow batches, for example from adjacent large images or a disk that is busy for a while.
///
/// A two-state Markov chain over consecutive batches. The load time of a slow batch is multiplied by `factor`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SlowRuns {
    /// Share of batches that are slow, between 0 and 1.
    pub share: f64,
    /// Factor by which a slow batch takes longer.
    pub factor: f64,
    /// Mean number of consecutive slow batches.
    pub length: f64,
}

impl SlowRuns {
    /// Returns the mean multiplier over all batches.
    pub fn mean_factor(&self) -> f64 {
        1.0 + self.share * (self.factor - 1.0)
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if !(self.share > 0.0 && self.share < 1.0) {
            return Err(Error::new("slow_share", format!("{} is not between 0 and 1", self.share)));
        }
        if !(1.0..=1000.0).contains(&self.factor) {
            return Err(Error::new("slow_factor", format!("{} is not between 1 and 1000", self.factor)));
        }
        let min_length = (self.share / (1.0 - self.share)).max(1.0);
        if !(self.length >= min_length && self.length <= 1e6) {
            return Err(Error::new(
                "slow_length",
                format!("{} is not between {min_length} and 1000000 for this share", self.length),
            ));
        }
        Ok(())
    }
}

/// Produces the load times of successive batches.
#[derive(Debug)]
pub(crate) struct LoadSampler<'a> {
    load: &'a LoadTimes,
    slow: Option<SlowRuns>,
    is_slow: bool,
    batch: usize,
    times: Xoshiro128,
    slowness: Xoshiro128,
}

impl<'a> LoadSampler<'a> {
    pub(crate) fn new(load: &'a LoadTimes, slow: Option<SlowRuns>, seed: u64) -> Self {
        let mut slowness = Xoshiro128::new(seed, Stream::Slow);
        let is_slow = slow.is_some_and(|slow| slowness.uniform() < slow.share);
        Self { load, slow, is_slow, batch: 0, times: Xoshiro128::new(seed, Stream::Load), slowness }
    }

    pub(crate) fn next_ns(&mut self) -> u64 {
        let mut ns = match self.load {
            LoadTimes::Drawn(load) => load.draw(&mut self.times),
            LoadTimes::Trace(trace) => trace.of_batch(self.batch),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distribution::Shape;

    fn statistics(load: &LoadTimes, slow: Option<SlowRuns>) -> (f64, f64) {
        let mut sampler = LoadSampler::new(load, slow, 3);
        let times: Vec<f64> = (0..100_000).map(|_| sampler.next_ns() as f64).collect();
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        let variance = times.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / times.len() as f64;
        (mean, variance.sqrt() / mean)
    }

    #[test]
    fn means_and_variation_match_the_distribution() {
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
