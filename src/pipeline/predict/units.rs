//! Rows and shards of a prediction. Both are cut by unit and split, so each of these is rounded up separately.

use std::ops::Range;

use super::stratum::{SampleSize, Stratum, UnitPart};
use crate::options::OutputOptions;
use crate::pipeline::estimate::Estimate;

/// Returns the expected records of all splits of all `units`. `pieces_of` returns the files or sections of a unit: the
/// ordinal of their stratum, their size, and their split; without one, they are in the splits of the sample.
pub(in crate::pipeline) fn unit_parts<I: IntoIterator<Item = (usize, SampleSize, Option<u16>)>>(
    units: &[Range<usize>],
    splits: usize,
    strata: &[&Stratum],
    pieces_of: impl Fn(Range<usize>) -> I,
) -> Vec<UnitPart> {
    let rates: Vec<Vec<UnitPart>> = strata.iter().map(|stratum| stratum.rates()).collect();
    let of_unit = |unit: &Range<usize>| {
        let mut parts = vec![UnitPart::default(); splits];
        for (stratum, size, split) in pieces_of(unit.clone()) {
            for (number, rate) in rates[stratum].iter().enumerate() {
                let part = &mut parts[split.map_or(number, usize::from)];
                part.bytes += size.amount * rate.bytes;
                part.rows += strata[stratum].record_size(size) * rate.rows;
            }
        }
        parts
    };
    units.iter().flat_map(of_unit).collect()
}

/// Estimates the number of packed rows. `rows` is their number if no row had to end with its unit.
pub(super) fn packed_rows(parts: &[UnitPart], rows: Estimate) -> Estimate {
    rows.through(|factor| parts.iter().map(|part| rounded_up(factor * part.rows)).sum())
}

/// Estimates the number of shards. `bytes` and `rows` determine the spread.
pub(super) fn shards(
    parts: &[UnitPart],
    bytes: Estimate,
    rows: Estimate,
    output: &OutputOptions,
) -> Estimate {
    let by = |bytes: f64, rows: f64| -> f64 {
        let scaled = |part: &UnitPart| UnitPart { bytes: bytes * part.bytes, rows: rows * part.rows };
        parts.iter().map(|part| shards_of(scaled(part), output)).sum()
    };
    let (bytes, rows) = (bytes.factors(), rows.factors());
    Estimate { value: by(1.0, 1.0), low: by(bytes.low, rows.low), high: by(bytes.high, rows.high) }
}

fn shards_of(part: UnitPart, output: &OutputOptions) -> f64 {
    if part.bytes <= 0.0 {
        return 0.0;
    }
    let mean_record = if part.rows > 0.0 { part.bytes / part.rows } else { 0.0 };
    // A shard closes before the record that would not fit. On average, half a record remains free in all but the last
    // shard; longer records have shards of their own.
    let free = mean_record / 2.0;
    let used = (output.shard_bytes as f64 - free).max(mean_record);
    let by_records = output.shard_records.map_or(0.0, |n| part.rows / n as f64);
    rounded_up(((part.bytes - free) / used).max(by_records)).max(1.0)
}

/// Rounds up, except for errors of floating-point numbers.
fn rounded_up(x: f64) -> f64 {
    (x - 1e-6).ceil()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cuts records as a unit does, and returns the number of shards.
    fn cut(records: &[u64], output: &OutputOptions) -> u64 {
        let (mut shards, mut bytes) = (0, u64::MAX);
        for record in records {
            if bytes.saturating_add(*record) > output.shard_bytes {
                (shards, bytes) = (shards + 1, 0);
            }
            bytes += record;
        }
        shards
    }

    #[test]
    fn shards_are_closed_before_the_record_that_does_not_fit() {
        let output = OutputOptions { shard_bytes: 1000, ..OutputOptions::default() };
        let predicted = |records: &[u64]| {
            let bytes = records.iter().sum::<u64>() as f64;
            shards_of(UnitPart { bytes, rows: records.len() as f64 }, &output)
        };
        for longest in [10, 100, 400, 800] {
            // A linear congruential generator.
            let mut state = 1u64;
            let records: Vec<u64> = (0..20_000 / longest * 10)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (state >> 33) % longest + 1
                })
                .collect();
            let (shards, about) = (cut(&records, &output) as f64, predicted(&records));
            let plain = (records.iter().sum::<u64>() as f64 / 1000.0).ceil();
            let (error, plain) = ((about - shards).abs(), (plain - shards).abs());
            // Large records leave more than half a record free, because a large one is less likely to fit.
            let is_close = error <= 0.05 * shards || error < 0.5 * plain;
            assert!(is_close, "{longest}: {about}, not {shards}");
        }
        // A unit that fits in a shard has one, and records that are longer than a shard have shards of their own.
        assert_eq!([&[1000][..], &[400, 600], &[1], &[5000; 3]].map(predicted), [1.0, 1.0, 1.0, 3.0]);
        assert_eq!(
            shards(&[UnitPart::default()], Estimate::default(), Estimate::default(), &output).value,
            0.0
        );
    }

    #[test]
    fn every_part_is_rounded_up() {
        let part = |rows: f64| UnitPart { bytes: 100.0 * rows, rows };
        let rows = Estimate { value: 5.0, low: 4.0, high: 6.0 };
        assert_eq!(packed_rows(&[part(2.5), part(2.5)], rows), Estimate { value: 6.0, low: 4.0, high: 6.0 });
        let output = OutputOptions { shard_records: Some(2), ..OutputOptions::default() };
        let parts = [part(3.0), part(2.0)];
        assert_eq!(
            shards(&parts, rows.times(100.0), rows, &output),
            Estimate { value: 3.0, low: 3.0, high: 4.0 }
        );
    }
}
