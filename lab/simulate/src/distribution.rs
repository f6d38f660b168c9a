//! Probability distributions of load and step times, and limits of times.

use crate::error::Error;
use crate::math::{exp, ln, sqrt};
use crate::random::Xoshiro128;

/// Maximum of a single time: one hour.
pub const MAX_TIME_NS: u64 = 3_600_000_000_000;
/// Maximum coefficient of variation.
pub const MAX_CV: f64 = 10.0;

const NS_PER_MS: f64 = 1e6;

/// Converts milliseconds to nanoseconds, for the option named `option`.
///
/// # Errors
///
/// If `ms` is negative, not finite, or more than an hour.
pub fn ns_from_ms(option: &'static str, ms: f64) -> Result<u64, Error> {
    let max = MAX_TIME_NS as f64 / NS_PER_MS;
    if !ms.is_finite() || ms < 0.0 {
        return Err(Error::new(option, format!("{ms} is not a non-negative number of milliseconds")));
    }
    if ms > max {
        return Err(Error::new(option, format!("{ms} ms is above the maximum of {max} ms (one hour)")));
    }
    Ok((ms * NS_PER_MS + 0.5).floor() as u64)
}

/// Family of a [`TimeDistribution`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shape {
    /// Always the mean.
    #[default]
    Constant,
    /// Normal. Non-positive values are redrawn, which raises the mean: by 3% at a cv of 0.5.
    Normal,
    /// Lognormal: never negative, with a long tail of slow batches.
    Lognormal,
    /// Exponential, whose cv is always 1.
    Exponential,
    /// Gamma: a sum of independent exponential parts, such as samples loaded one after another.
    Gamma,
}

impl Shape {
    /// All shapes in the order of their declaration, with their names.
    pub const ALL: [(&'static str, Self); 5] = [
        ("constant", Self::Constant),
        ("normal", Self::Normal),
        ("lognormal", Self::Lognormal),
        ("exponential", Self::Exponential),
        ("gamma", Self::Gamma),
    ];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].0
    }
}

/// A distribution of times.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeDistribution {
    /// Family.
    pub shape: Shape,
    /// Mean in nanoseconds.
    pub mean_ns: u64,
    /// Coefficient of variation: standard deviation ÷ mean. Ignored by [`Shape::Constant`].
    pub cv: f64,
}

impl TimeDistribution {
    /// Creates a distribution that always returns `mean_ns`.
    pub fn constant(mean_ns: u64) -> Self {
        Self { shape: Shape::Constant, mean_ns, cv: 0.0 }
    }

    /// Creates a distribution.
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

    /// Mean of the drawn times, in nanoseconds; above `mean_ns` for [`Shape::Normal`].
    pub(crate) fn drawn_mean_ns(&self) -> f64 {
        let mean = self.mean_ns as f64;
        if self.shape == Shape::Normal && self.cv > 0.0 { mean * truncated_mean(self.cv) } else { mean }
    }

    pub(crate) fn draw(&self, random: &mut Xoshiro128) -> u64 {
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

/// Mean of a normal variable with mean 1 and standard deviation `cv`, given that it is positive.
fn truncated_mean(cv: f64) -> f64 {
    let z = 1.0 / cv;
    let density = exp(-0.5 * z * z) / 2.506_628_274_631;
    // Abramowitz and Stegun 26.2.17: absolute error below 7.5e-8.
    let t = 1.0 / (1.0 + 0.231_641_9 * z);
    let tail = density
        * t
        * (0.319_381_53
            + t * (-0.356_563_782 + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429))));
    1.0 + cv * density / (1.0 - tail)
}

/// Rounds to whole nanoseconds, clamped to 1 ns to 1 hour.
pub(crate) fn round_ns(ns: f64) -> u64 {
    let rounded = (ns + 0.5).floor();
    if rounded < 1.0 {
        1
    } else if rounded > MAX_TIME_NS as f64 {
        MAX_TIME_NS
    } else {
        rounded as u64
    }
}
