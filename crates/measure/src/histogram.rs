//! Latency histogram with buckets of constant relative width.

use serde::{Deserialize, Serialize};

/// Buckets per octave. A bucket is at most 1/64 as wide as its lower bound.
const PER_OCTAVE: u64 = 64;

/// Histogram of durations, exact to 1.6%. Merging two loses nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(u16, u64)>", into = "Vec<(u16, u64)>")]
pub struct LatencyHistogram {
    /// Number of durations per bucket.
    counts: Vec<u64>,
    total: u64,
}

/// Returns the bucket of a duration.
fn bucket(ns: u64) -> usize {
    let Some(octave) = ns.checked_ilog2() else { return 0 };
    let shift = u64::from(octave).saturating_sub(6);
    (shift * PER_OCTAVE + (ns >> shift)) as usize
}

/// Returns the middle of a bucket.
fn middle(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * PER_OCTAVE {
        return bucket;
    }
    let shift = bucket / PER_OCTAVE - 1;
    let lower = (bucket - shift * PER_OCTAVE) << shift;
    lower + ((1 << shift) >> 1)
}

impl LatencyHistogram {
    /// Adds a duration.
    pub fn add(&mut self, ns: u64) {
        self.add_many(bucket(ns), 1);
    }

    fn add_many(&mut self, bucket: usize, count: u64) {
        if bucket >= self.counts.len() {
            self.counts.resize(bucket + 1, 0);
        }
        if let Some(slot) = self.counts.get_mut(bucket) {
            *slot += count;
            self.total += count;
        }
    }

    /// Adds the durations of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (bucket, &count) in other.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            self.add_many(bucket, count);
        }
    }

    /// Returns the number of durations.
    pub fn len(&self) -> u64 {
        self.total
    }

    /// Returns whether there are no durations.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Returns the nearest-rank percentile for `share` from 0 to 1: the smallest duration that at least this share of
    /// all durations do not exceed. Returns `None` if there are no durations.
    pub fn percentile(&self, share: f64) -> Option<u64> {
        let rank = ((share * self.total as f64).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        self.counts.iter().enumerate().find_map(|(bucket, &count)| {
            seen += count;
            (count > 0 && seen >= rank).then(|| middle(bucket))
        })
    }
}

impl From<Vec<(u16, u64)>> for LatencyHistogram {
    fn from(counts: Vec<(u16, u64)>) -> Self {
        let mut histogram = Self::default();
        // Drops buckets above that of `u64::MAX`.
        for (at, count) in counts.into_iter().filter(|(at, _)| usize::from(*at) <= bucket(u64::MAX)) {
            histogram.add_many(at.into(), count);
        }
        histogram
    }
}

impl From<LatencyHistogram> for Vec<(u16, u64)> {
    fn from(histogram: LatencyHistogram) -> Self {
        let counts = histogram.counts.into_iter().enumerate().filter(|(_, count)| *count > 0);
        counts.filter_map(|(bucket, count)| Some((u16::try_from(bucket).ok()?, count))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_near_the_middle_of_its_bucket() {
        let mut ns = 1u64;
        while ns < u64::MAX / 3 {
            for near in [ns - 1, ns, ns + 1, ns / 3 * 4] {
                let found = middle(bucket(near));
                assert!(found.abs_diff(near) as f64 <= near as f64 / 64.0, "{near} {found}");
                assert!(bucket(near) <= bucket(near + 1));
            }
            ns = ns * 3 / 2 + 1;
        }
        assert_eq!(bucket(0), 0);
        assert!(bucket(u64::MAX) < usize::from(u16::MAX));
    }

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let mut histogram = LatencyHistogram::default();
        assert_eq!(histogram.percentile(0.5), None);
        (1..=100).for_each(|ns| histogram.add(ns));
        assert_eq!([0.0, 0.5, 0.99, 1.0].map(|p| histogram.percentile(p)), [1, 50, 99, 100].map(Some));
        let mut one = LatencyHistogram::default();
        one.add(7);
        assert_eq!((one.percentile(0.5), one.percentile(0.99)), (Some(7), Some(7)));
    }

    #[test]
    fn merging_and_json_lose_nothing() {
        let (mut a, mut b) = (LatencyHistogram::default(), LatencyHistogram::default());
        [5, 1_000_000, u64::MAX].iter().for_each(|&ns| a.add(ns));
        [5, 80].iter().for_each(|&ns| b.add(ns));
        a.merge(&b);
        assert_eq!(a.len(), 5);
        let json = serde_json::to_string(&a).unwrap();
        assert_eq!(serde_json::from_str::<LatencyHistogram>(&json).unwrap(), a);
        assert!(serde_json::from_str::<LatencyHistogram>("[[65535,1]]").unwrap().is_empty());
    }
}
