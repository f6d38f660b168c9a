//! Selection of sample records.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Returns at most `max` evenly spaced ordinals below `records`, ascending: the middles of that many equal parts.
pub(in crate::report) fn evenly_spaced(records: u64, max: u64) -> impl Iterator<Item = u64> {
    let wanted = records.min(max);
    (0..wanted).map(move |i| scaled(records, wanted, 2 * u128::from(i) + 1, 2))
}

/// Returns at most `max` ordinals below `records`, ascending: one of each of that many equal parts, chosen by `seed`.
pub(crate) fn seeded(records: u64, max: u64, seed: u64) -> Vec<u64> {
    let wanted = records.min(max);
    let chosen = |i: u64| {
        let (start, end) =
            (scaled(records, wanted, i.into(), 1), scaled(records, wanted, u128::from(i) + 1, 1));
        start + xxh3_64_with_seed(&i.to_le_bytes(), seed) % (end - start).max(1)
    };
    (0..wanted).map(chosen).collect()
}

/// Returns `records` × `numerator` ÷ (`parts` × `denominator`).
fn scaled(records: u64, parts: u64, numerator: u128, denominator: u128) -> u64 {
    let scaled = u128::from(records) * numerator / (u128::from(parts.max(1)) * denominator);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_ascending_and_in_range() {
        for (records, most) in [(0, 5), (1, 5), (5, 5), (7, 3), (1_000_000, 48), (u64::MAX, 3)] {
            let even: Vec<u64> = evenly_spaced(records, most).collect();
            let one = seeded(records, most, 1);
            for sample in [&even, &one] {
                assert_eq!(sample.len() as u64, records.min(most));
                assert!(sample.is_sorted_by(|a, b| a < b) && sample.iter().all(|i| *i < records));
            }
        }
        assert!(evenly_spaced(5, 5).eq(0..5));
        assert_ne!(seeded(1_000_000, 48, 1), seeded(1_000_000, 48, 2));
        assert_eq!(seeded(1_000_000, 48, 1), seeded(1_000_000, 48, 1));
    }
}
