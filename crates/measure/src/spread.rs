//! Median and spread of a few repetitions.

use serde::Serialize;

/// Median, extremes and relative spread of repeated values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// Median; for an even number of values, the mean of the middle two.
    pub median: f64,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
    /// (Largest − smallest) ÷ median; 0 if the median is 0.
    pub spread: f64,
}

impl Spread {
    /// Returns the spread of `values`, or `None` if there are none. Values that are not finite are left out.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (&min, &max) = (values.first()?, values.last()?);
        let middle = values.len() / 2;
        let median = match values.len() % 2 {
            0 => f64::midpoint(*values.get(middle - 1)?, *values.get(middle)?),
            _ => *values.get(middle)?,
        };
        let spread = if median == 0.0 { 0.0 } else { (max - min) / median };
        Some(Self { median, min, max, spread })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_and_even_numbers_of_values_have_a_median() {
        let odd = Spread::of([3.0, 1.0, 2.0]).unwrap();
        assert_eq!(odd, Spread { median: 2.0, min: 1.0, max: 3.0, spread: 1.0 });
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
        assert_eq!(Spread::of([5.0]).unwrap().spread, 0.0);
    }

    #[test]
    fn nothing_and_infinities_have_none() {
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([f64::NAN, f64::INFINITY]), None);
        assert_eq!(Spread::of([0.0, 0.0]).unwrap().spread, 0.0);
    }
}
