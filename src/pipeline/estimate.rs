//! What a sample says about the whole: totals with 95% confidence intervals.
//!
//! Totals are those of simple random sampling without replacement, with the finite population correction, so a sample of
//! everything has no spread (Cochran, *Sampling Techniques*, chapters 2 and 6). Shares use Wilson's interval, which says
//! something even when nothing was seen ([Wilson 1927](https://doi.org/10.1080/01621459.1927.10502953)).

/// Fewest items of a sample: fewer have no spread to speak of.
pub const MIN_SAMPLE: u64 = 10;

/// Quantile of the normal distribution for intervals of 95%.
const Z: f64 = 1.959_964;

/// A predicted quantity, and the interval that holds it in 95 of 100 cases.
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
    /// `value` give or take `spread`; never below zero.
    fn around(value: f64, spread: f64) -> Self {
        Self { value, low: (value - spread).max(0.0), high: value + spread }
    }

    /// This quantity times the constant `factor`.
    pub(super) fn times(self, factor: f64) -> Self {
        Self { value: self.value * factor, low: self.low * factor, high: self.high * factor }
    }

    /// The sum with an independent quantity: spreads add as squares do.
    pub(super) fn plus(self, other: Self) -> Self {
        let value = self.value + other.value;
        Self {
            value,
            low: (value - (self.value - self.low).hypot(other.value - other.low)).max(0.0),
            high: value + (self.high - self.value).hypot(other.high - other.value),
        }
    }
}

/// A sample of `observed.len()` items out of some.
#[derive(Debug, Clone, Copy)]
pub(super) struct Population {
    /// Items in all, or their bytes where items cannot be counted without reading.
    pub size: f64,
    /// The same of the sample.
    pub sampled: f64,
}

impl Population {
    /// Factor of the variance of a sample without replacement.
    fn correction(self) -> f64 {
        (1.0 - self.sampled / self.size).max(0.0)
    }

    /// The total of a quantity over the population, from `(size, quantity)` of each item of the sample; sizes are 1 when
    /// items are counted. (The ratio estimator, which with equal sizes is the mean.)
    pub(super) fn total(self, observed: impl Iterator<Item = (f64, f64)> + Clone) -> Estimate {
        let n = observed.clone().count() as f64;
        let (sizes, sum) = observed.clone().fold((0.0, 0.0), |(s, q), (size, y)| (s + size, q + y));
        if sizes == 0.0 {
            return Estimate::default();
        }
        let ratio = sum / sizes;
        let squares: f64 = observed.map(|(size, y)| (y - ratio * size).powi(2)).sum();
        let spread = if n < 2.0 {
            // One observation says nothing about the spread.
            ratio * self.correction()
        } else {
            let deviation = (self.correction() * squares / (n - 1.0) / n).sqrt() / (sizes / n);
            t_quantile(n - 1.0) * deviation
        };
        Estimate::around(ratio, spread).times(self.size)
    }

    /// How many of the population have what `seen` of `n` in the sample have.
    pub(super) fn count(self, items: f64, seen: u64, n: u64) -> Estimate {
        if n == 0 {
            return Estimate::default();
        }
        let (n, share) = (n as f64, seen as f64 / n as f64);
        // A finite population makes the sample worth more.
        let worth = n / self.correction().max(f64::MIN_POSITIVE);
        let z2 = Z * Z / worth;
        let middle = (share + z2 / 2.0) / (1.0 + z2);
        let half = Z / (1.0 + z2) * (share * (1.0 - share) / worth + z2 / (4.0 * worth)).sqrt();
        Estimate {
            value: share * items,
            low: (middle - half).clamp(0.0, share) * items,
            high: (middle + half).clamp(share, 1.0) * items,
        }
    }
}

/// Quantile of Student's t distribution for intervals of 95%, by the Cornish–Fisher expansion; within 1% from nine
/// degrees of freedom on, which is one reason for [`MIN_SAMPLE`].
fn t_quantile(degrees: f64) -> f64 {
    Z + (Z.powi(3) + Z) / (4.0 * degrees)
        + (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / (96.0 * degrees * degrees)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quantile_is_that_of_tables() {
        for (degrees, t) in [(9.0, 2.262), (14.0, 2.145), (29.0, 2.045), (1e9, 1.960)] {
            assert!((t_quantile(degrees) - t).abs() < 0.01 * t, "{degrees}");
        }
    }

    #[test]
    fn a_sample_of_everything_has_no_spread() {
        let all = Population { size: 4.0, sampled: 4.0 };
        let total = all.total([1.0, 2.0, 3.0, 5.0].into_iter().map(|y| (1.0, y)));
        assert_eq!(total, Estimate { value: 11.0, low: 11.0, high: 11.0 });
        let count = all.count(4.0, 1, 4);
        assert!((count.low - 1.0).abs() < 1e-6 && (count.high - 1.0).abs() < 1e-6, "{count:?}");
    }

    #[test]
    fn nothing_seen_still_has_an_upper_end() {
        let some = Population { size: 1e6, sampled: 200.0 };
        let count = some.count(1e6, 0, 200);
        assert_eq!((count.value, count.low), (0.0, 0.0));
        // The rule of three says 3/n; Wilson says a little more.
        assert!((0.015e6..0.02e6).contains(&count.high), "{count:?}");
    }

    /// 95% intervals hold the truth about 95 times in 100.
    #[test]
    fn intervals_hold_what_they_say() {
        let value = |i: u64| (xxhash_rust::xxh3::xxh3_64(&i.to_le_bytes()) % 1000) as f64;
        let truth: f64 = (0..5_000).map(value).sum();
        let held = (0..400u64)
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
        assert!((360..=398).contains(&held), "{held} of 400");
    }
}
