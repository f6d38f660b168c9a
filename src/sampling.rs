//! Selection of sample records and files.
//!
//! One ordinal is chosen in each of many equal parts, by a hash. Evenly spaced ordinals would be wrong without limit for
//! periodic data: in a dataset that alternates between two kinds of records, all of them may be of one kind.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Seed of samples that no option selects.
const SEED: u64 = 0;

/// Returns at most `max` ordinals below `records`, ascending, which are always the same.
pub(crate) fn sample(records: u64, max: u64) -> Vec<u64> {
    seeded(records, max, SEED)
}

/// Returns at most `max` ordinals below `records`, ascending: one of each of that many equal parts, chosen by `seed`.
pub(crate) fn seeded(records: u64, max: u64, seed: u64) -> Vec<u64> {
    let wanted = records.min(max);
    let chosen = |i: u64| {
        let (start, end) = (scaled(records, wanted, i), scaled(records, wanted, i + 1));
        start + xxh3_64_with_seed(&i.to_le_bytes(), seed) % (end - start).max(1)
    };
    (0..wanted).map(chosen).collect()
}

/// Returns `records` × `part` ÷ `parts`, which is at most `records`.
fn scaled(records: u64, parts: u64, part: u64) -> u64 {
    (u128::from(records) * u128::from(part) / u128::from(parts.max(1))) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_ascending_and_in_range() {
        for (records, most) in [(0, 5), (1, 5), (5, 5), (7, 3), (1_000_000, 48), (u64::MAX, 3)] {
            for seed in 0..2 {
                let sample = seeded(records, most, seed);
                assert_eq!(sample.len() as u64, records.min(most));
                assert!(sample.is_sorted_by(|a, b| a < b) && sample.iter().all(|i| *i < records));
            }
        }
        assert_eq!(sample(5, 5), [0, 1, 2, 3, 4]);
        assert_ne!(seeded(1_000_000, 48, 1), seeded(1_000_000, 48, 2));
        assert_eq!(seeded(1_000_000, 48, 1), seeded(1_000_000, 48, 1));
    }

    #[test]
    fn periodic_data_is_represented() {
        for period in [2, 3, 10, 100, 128] {
            let sample = sample(1_000_000, 10_000);
            let first = sample.iter().filter(|&&i| i % period == 0).count() as u64;
            let (found, expected) = (first as f64 / 10_000.0, 1.0 / period as f64);
            // Four standard errors.
            let error = 4.0 * (expected * (1.0 - expected) / 10_000.0).sqrt();
            assert!((found - expected).abs() < error, "{period}: {found}");
        }
    }
}
