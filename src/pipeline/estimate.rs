//! Estimates of totals from a sample, with 95% confidence intervals.
//!
//! Totals use the estimators for simple random sampling without replacement, with the finite population correction, so
//! a sample of everything has no spread (Cochran, *Sampling Techniques*, chapters 2 and 6). Shares use Wilson's
//! interval ([Wilson 1927](https://doi.org/10.1080/01621459.1927.10502953)), which is meaningful even if no occurrence
//! was sampled.

/// Minimum number of items in a sample: the spread of fewer is not meaningful.
pub const MIN_SAMPLE: u64 = 10;

/// Normal quantile of 95% intervals.
const Z: f64 = 1.959_964;

/// A predicted quantity with its 95% confidence interval.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Estimate {
    /// The most likely value.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl Estimate {
    /// Returns a quantity that is known.
    pub(super) fn exactly(value: f64) -> Self {
        Self { value, low: value, high: value }
    }

    /// Returns the estimate `value` ± `spread`, with a lower end of at least zero.
    pub(super) fn around(value: f64, spread: f64) -> Self {
        Self { value, low: (value - spread).max(0.0), high: value + spread }
    }

    /// Returns this quantity times the constant `factor`.
    pub(super) fn times(self, factor: f64) -> Self {
        Self { value: self.value * factor, low: self.low * factor, high: self.high * factor }
    }

    /// Returns the distance of the upper end from the value.
    pub(super) fn spread(self) -> f64 {
        self.high - self.value
    }

    /// Returns this estimate with an interval that contains the interval of `other`.
    pub(super) fn or_wider(self, other: Self) -> Self {
        Self { value: self.value, low: self.low.min(other.low), high: self.high.max(other.high) }
    }

    /// Returns the value and the interval relative to the value.
    pub(super) fn factors(self) -> Self {
        if self.value == 0.0 { Self::exactly(1.0) } else { self.times(1.0 / self.value) }
    }

    /// Returns a quantity that is computed from this one, multiplied by a factor.
    pub(super) fn through(self, of_factor: impl Fn(f64) -> f64) -> Self {
        let Self { value, low, high } = self.factors();
        Self { value: of_factor(value), low: of_factor(low), high: of_factor(high) }
    }

    /// Returns the sum of this and an independent quantity: the squares of the spreads add up.
    pub(super) fn plus(self, other: Self) -> Self {
        let value = self.value + other.value;
        Self {
            value,
            low: (value - (self.value - self.low).hypot(other.value - other.low)).max(0.0),
            high: value + (self.high - self.value).hypot(other.high - other.value),
        }
    }
}

/// A population and the part of it that was sampled.
#[derive(Debug, Clone, Copy)]
pub(super) struct Population {
    /// Number of items, or their bytes if items cannot be counted without reading.
    pub size: f64,
    /// The part of `size` that was sampled.
    pub sampled: f64,
}

impl Population {
    /// Returns the finite population correction, a factor of the variance.
    fn correction(self) -> f64 {
        (1.0 - self.sampled / self.size).max(0.0)
    }

    /// Estimates the total of a quantity over the population, from the `(size, quantity)` of each sampled item. Sizes
    /// are 1 if items are counted. This is the ratio estimator, which equals the mean for equal sizes.
    pub(super) fn total(self, observed: impl Iterator<Item = (f64, f64)> + Clone) -> Estimate {
        let n = observed.clone().count() as f64;
        let (sizes, sum) = observed.clone().fold((0.0, 0.0), |(s, q), (size, y)| (s + size, q + y));
        if sizes == 0.0 {
            return Estimate::default();
        }
        let ratio = sum / sizes;
        let squares: f64 = observed.map(|(size, y)| (y - ratio * size).powi(2)).sum();
        let spread = if n < 2.0 {
            // A single observation does not show the spread.
            ratio * self.correction()
        } else {
            let deviation = (self.correction() * squares / (n - 1.0) / n).sqrt() / (sizes / n);
            t_quantile(n - 1.0) * deviation
        };
        Estimate::around(ratio, spread).times(self.size)
    }

    /// Estimates the share of items that have a property that `seen` of `n` sampled items have.
    pub(super) fn share(self, seen: u64, n: u64) -> Estimate {
        if n == 0 {
            return Estimate::default();
        }
        let (n, share) = (n as f64, seen as f64 / n as f64);
        // In a finite population, a sample is as informative as a larger one from an infinite population.
        let effective = n / self.correction().max(f64::MIN_POSITIVE);
        let z2 = Z * Z / effective;
        let center = (share + z2 / 2.0) / (1.0 + z2);
        let half = Z / (1.0 + z2) * (share * (1.0 - share) / effective + z2 / (4.0 * effective)).sqrt();
        Estimate {
            value: share,
            low: (center - half).clamp(0.0, share),
            high: (center + half).clamp(share, 1.0),
        }
    }
}

/// Returns the quantile of Student's t distribution for 95% intervals, by the Cornish–Fisher expansion. It is within 1%
/// from nine degrees of freedom on, which is one reason for [`MIN_SAMPLE`].
fn t_quantile(degrees: f64) -> f64 {
    Z + (Z.powi(3) + Z) / (4.0 * degrees)
        + (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / (96.0 * degrees * degrees)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_match_published_tables() {
        for (degrees, t) in [(9.0, 2.262), (14.0, 2.145), (29.0, 2.045), (1e9, 1.960)] {
            assert!((t_quantile(degrees) - t).abs() < 0.01 * t, "{degrees}");
        }
    }

    #[test]
    fn a_sample_of_everything_has_no_spread() {
        let all = Population { size: 4.0, sampled: 4.0 };
        let total = all.total([1.0, 2.0, 3.0, 5.0].into_iter().map(|y| (1.0, y)));
        assert_eq!(total, Estimate { value: 11.0, low: 11.0, high: 11.0 });
        let count = all.share(1, 4).times(4.0);
        assert!((count.low - 1.0).abs() < 1e-6 && (count.high - 1.0).abs() < 1e-6, "{count:?}");
    }

    #[test]
    fn an_unseen_property_has_a_positive_upper_end() {
        let some = Population { size: 1e6, sampled: 200.0 };
        let count = some.share(0, 200).times(1e6);
        assert_eq!((count.value, count.low), (0.0, 0.0));
        // The rule of three gives 3/n; Wilson gives slightly more.
        assert!((0.015e6..0.02e6).contains(&count.high), "{count:?}");
    }

    #[test]
    fn factors_are_relative() {
        let estimate = |value, spread| Estimate::around(value, spread);
        assert_eq!(estimate(4.0, 1.0).through(|factor| (factor * 8.0).ceil()), estimate(8.0, 2.0));
        assert_eq!(Estimate::default().factors(), Estimate::exactly(1.0));
    }

    /// 95% intervals contain the true value about 95 times in 100.
    #[test]
    fn intervals_cover_the_true_value() {
        let value = |i: u64| (xxhash_rust::xxh3::xxh3_64(&i.to_le_bytes()) % 1000) as f64;
        let truth: f64 = (0..5_000).map(value).sum();
        let covered = (0..400u64)
            .filter(|round| {
                let sample: Vec<f64> = (0..100)
                    .map(|i| {
                        value(
                            xxhash_rust::xxh3::xxh3_64_with_seed(&(i as u64).to_le_bytes(), round + 1)
                                % 5_000,
                        )
                    })
                    .collect();
                let total =
                    Population { size: 5_000.0, sampled: 100.0 }.total(sample.iter().map(|&y| (1.0, y)));
                total.low <= truth && truth <= total.high
            })
            .count();
        assert!((360..=398).contains(&covered), "{covered} of 400");
    }
}
