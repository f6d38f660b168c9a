//! Histograms of integers and of fractional values.

/// A bin of a histogram.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bin {
    /// Lower bound, inclusive.
    pub from: f64,
    /// Upper bound, exclusive: the start of the next bin.
    pub to: f64,
    /// Number of values.
    pub count: u64,
}

/// Histogram whose bins have equal width on a linear or a logarithmic axis.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Histogram {
    /// Bins in ascending order, without gaps.
    pub bins: Vec<Bin>,
    /// Whether the bins are equally wide on a logarithmic axis.
    pub logarithmic: bool,
    /// Number of values.
    pub values: u64,
    /// Median: the smallest value that at least half of the values do not exceed.
    pub median: f64,
}

/// Target number of bins.
const BINS: usize = 32;
/// Ratio of the largest value to the smallest above which the axis is logarithmic.
const LOGARITHMIC_RATIO: f64 = 30.0;

impl Histogram {
    /// Builds the histogram of `values`: pairs of value and count, ascending by value. With `whole`, values are
    /// integers and bins start at integers. Values that are negative or not finite are left out.
    pub fn new(values: &[(f64, u64)], whole: bool) -> Self {
        let values: Vec<(f64, u64)> = values
            .iter()
            .copied()
            .filter(|(value, count)| value.is_finite() && *value >= 0.0 && *count > 0)
            .collect();
        let (Some(&(least, _)), Some(&(most, _))) = (values.first(), values.last()) else {
            return Self::default();
        };
        let logarithmic = most / least.max(if whole { 1.0 } else { f64::MIN_POSITIVE }) > LOGARITHMIC_RATIO;
        let mut bins: Vec<Bin> = match logarithmic {
            true => logarithmic_edges(least, most, whole),
            false => linear_edges(least, most, whole),
        }
        .windows(2)
        .filter_map(|edges| Some(Bin { from: *edges.first()?, to: *edges.last()?, count: 0 }))
        .collect();
        let total = values.iter().fold(0u64, |sum, (_, count)| sum.saturating_add(*count));
        let (mut seen, mut median) = (0u64, None);
        let mut at = 0;
        for (value, count) in values {
            while at + 1 < bins.len() && bins.get(at).is_some_and(|bin| value >= bin.to) {
                at += 1;
            }
            if let Some(bin) = bins.get_mut(at) {
                bin.count = bin.count.saturating_add(count);
            }
            seen = seen.saturating_add(count);
            if median.is_none() && seen >= total.div_ceil(2) {
                median = Some(value);
            }
        }
        Self { bins, logarithmic, values: total, median: median.unwrap_or(least) }
    }

    /// Builds the histogram of single values in any order.
    pub fn of(mut values: Vec<f64>, whole: bool) -> Self {
        values.retain(|value| value.is_finite());
        values.sort_unstable_by(f64::total_cmp);
        let counted: Vec<(f64, u64)> = values
            .chunk_by(|a, b| a == b)
            .filter_map(|same| Some((*same.first()?, same.len() as u64)))
            .collect();
        Self::new(&counted, whole)
    }

    /// Builds the histogram of shares from the number of values in each of equal steps from 0% to 100%.
    pub fn of_shares(steps: &[u64], median: f64) -> Self {
        let edge = |at: usize| (at * 100) as f64 / steps.len().max(1) as f64;
        let bins =
            steps.iter().enumerate().map(|(at, &count)| Bin { from: edge(at), to: edge(at + 1), count });
        Self {
            bins: bins.collect(),
            logarithmic: false,
            values: steps.iter().fold(0, |sum: u64, count| sum.saturating_add(*count)),
            median: median * 100.0,
        }
    }

    /// Returns the largest number of values in a bin.
    pub fn highest(&self) -> u64 {
        self.bins.iter().map(|bin| bin.count).max().unwrap_or(0)
    }
}

fn linear_edges(least: f64, most: f64, whole: bool) -> Vec<f64> {
    let raw = (most - least) / BINS as f64;
    let mut step = if raw > 0.0 { nice_step(raw) } else { 1.0 };
    if whole {
        step = step.max(1.0).ceil();
    } else if raw <= 0.0 {
        step = if least > 0.0 { least / 10.0 } else { 1.0 };
    }
    let first = ((least / step).floor() * step).min(least);
    // Computed from the first edge, so that rounding errors do not accumulate.
    let mut edges: Vec<f64> =
        (0..).map(|i| first + f64::from(i) * step).take_while(|edge| *edge <= most).take(BINS * 4).collect();
    edges.push(first + edges.len() as f64 * step);
    edges
}

fn logarithmic_edges(least: f64, most: f64, whole: bool) -> Vec<f64> {
    let start = if whole { least.max(1.0) } else { least.max(most * 1e-12) };
    let ratio = (most / start).powf(1.0 / BINS as f64);
    let mut edges = Vec::new();
    if least < start {
        edges.push(least);
    }
    for i in 0..=BINS as i32 {
        let edge = start * ratio.powi(i);
        let edge = if whole { edge.round() } else { edge };
        if edges.last().is_none_or(|last| edge > *last) {
            edges.push(edge);
        }
    }
    // The last bin includes the largest value.
    if let Some(last) = edges.last_mut() {
        *last = if whole { (most + 1.0).max(most * (1.0 + 1e-12)) } else { most * (1.0 + 1e-9) };
    }
    edges
}

/// Rounds `raw` up to the next of …, 1, 2, 5, 10, ….
pub(super) fn nice_step(raw: f64) -> f64 {
    let power = 10f64.powf(raw.log10().floor());
    [1.0, 2.0, 5.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= raw * (1.0 - 1e-9))
        .unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_value_is_in_one_bin(
            values in prop::collection::vec(prop_oneof![0u64..40, 0u64..70_000, any::<u64>().prop_map(|x| x >> 12)], 1..200),
            whole: bool,
        ) {
            let scale = if whole { 1.0 } else { 0.01 };
            let values: Vec<f64> = values.iter().map(|v| *v as f64 * scale).collect();
            let histogram = Histogram::of(values.clone(), whole);
            prop_assert_eq!(histogram.values, values.len() as u64);
            prop_assert_eq!(histogram.bins.iter().map(|b| b.count).sum::<u64>(), values.len() as u64);
            prop_assert!((1..=BINS * 4 + 2).contains(&histogram.bins.len()));
            for bin in &histogram.bins {
                let inside = values.iter().filter(|v| (bin.from..bin.to).contains(*v)).count() as u64;
                prop_assert_eq!(inside, bin.count, "{:?}", bin);
            }
            prop_assert!(histogram.bins.windows(2).all(|w| w[0].to == w[1].from && w[0].from < w[0].to));
        }
    }

    #[test]
    fn no_values_have_no_bins_and_one_value_has_one() {
        assert_eq!(Histogram::of(vec![], true), Histogram::default());
        assert_eq!(Histogram::of(vec![f64::NAN], true), Histogram::default());
        assert_eq!(Histogram::of(vec![7.0; 3], true).bins, [Bin { from: 7.0, to: 8.0, count: 3 }]);
        assert_eq!(Histogram::new(&[(1.0, 1), (1000.0, 2)], true).median, 1000.0);
    }

    #[test]
    fn steps_are_round() {
        assert_eq!([0.3, 1.0, 11.0, 4.0].map(nice_step), [0.5, 1.0, 20.0, 5.0]);
    }
}
