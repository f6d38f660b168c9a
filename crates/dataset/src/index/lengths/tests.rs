//! Tests that compare the length index, built and read back, with a plain sort.

use proptest::prelude::*;

use super::*;
use crate::index::testing::{
    CASES_WITH_FILES, SMALL, any_alteration, reports_damaged_file, segment, segment_of, segments,
};
use crate::index::{IndexEntry, RecordIndexWriter};
use crate::schema::{IdWidth, Schema};
use crate::storage::Access;

/// Existing datasets depend on these columns, so this test never changes.
#[test]
fn columns_of_the_length_index_never_change() {
    let describe = |spec: Spec| {
        let schema = spec.schema();
        let fields = schema.fields().iter().map(|f| (f.name().clone(), f.data_type().to_string()));
        (schema.metadata["dsconvert.index"].clone(), fields.collect::<Vec<_>>())
    };
    let u64 = |name: &str| (name.to_owned(), "UInt64".to_owned());
    assert_eq!(describe(PERMUTATION), ("lengths/1".to_owned(), vec![u64("record")]));
    let (label, columns) = describe(histogram(LengthUnit::Tokens));
    assert_eq!(label, "histogram/1");
    assert_eq!(columns, [u64("length"), u64("count"), u64("first_rank")]);
    let schema = histogram(LengthUnit::Pixels).schema();
    assert_eq!(schema.field(0).metadata()["unit"], "pixels");
    assert!(schema.fields().iter().all(|f| !f.is_nullable()));
}

const TOKENS: LengthUnit = LengthUnit::Tokens;

fn build(dir: &Path, lengths: &[u64], memory: usize, geometry: Geometry) -> (Vec<IndexFile>, LengthSummary) {
    let mut builder = LengthIndexBuilder::with_geometry(dir, memory, geometry);
    lengths.iter().for_each(|&length| builder.push(length).unwrap());
    builder.finish(dir, "train", TOKENS).unwrap()
}

fn open(dir: &Path, files: &[IndexFile], access: Access, geometry: Geometry) -> LengthIndex {
    let mut files = segments(dir, files, access);
    let histogram = files.pop().unwrap();
    LengthIndex::with_geometry(files, histogram, TOKENS, geometry).unwrap()
}

fn naive(lengths: &[u64]) -> Vec<u64> {
    let mut order: Vec<u64> = (0..lengths.len() as u64).collect();
    order.sort_by_key(|&record| lengths[record as usize]); // stable
    order
}

fn varied_lengths(max: usize) -> impl Strategy<Value = Vec<u64>> {
    let length = prop_oneof![0u64..6, 0u64..1 << 40, Just(0)];
    prop::collection::vec(length, 0..max)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES_WITH_FILES))]

    #[test]
    fn the_permutation_matches_a_plain_sort(
        lengths in varied_lengths(80),
        batch_rows in 1u64..9,
        batches in 1u64..4,
        mapped: bool,
    ) {
        let access = if mapped { Access::Map } else { Access::Read };
        let geometry = Geometry { batch_rows, segment_rows: batch_rows * batches };
        let dir = tempfile::tempdir().unwrap();
        let (files, summary) = build(dir.path(), &lengths, 0, geometry);
        let index = open(dir.path(), &files, access, geometry);
        let order = naive(&lengths);
        prop_assert_eq!(index.len(), lengths.len() as u64);
        let found: Vec<_> = index.records_at(0..index.len()).unwrap().map(Result::unwrap).collect();
        prop_assert_eq!(&found, &order);
        for (rank, &record) in (0..).zip(&order) {
            prop_assert_eq!(index.record_at(rank).unwrap(), record);
            prop_assert_eq!(index.length_at(rank).unwrap(), lengths[record as usize]);
        }
        prop_assert_eq!(index.record_at(index.len()).unwrap_err().kind(), ErrorKind::OutOfRange);
        prop_assert_eq!(index.length_at(index.len()).unwrap_err().kind(), ErrorKind::OutOfRange);
        let again = LengthSummary::from_runs(TOKENS, index.len(), index.histogram().unwrap()).unwrap();
        prop_assert_eq!(again, summary);
        prop_assert_eq!(summary.total, lengths.iter().sum::<u64>());
    }

    #[test]
    fn ranks_match_a_count(
        lengths in prop::collection::vec(0u64..20, 0..60),
        start in 0u64..22,
        end in 0u64..22,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (files, _) = build(dir.path(), &lengths, 0, SMALL);
        let index = open(dir.path(), &files, Access::Map, SMALL);
        let shorter = |than: u64| lengths.iter().filter(|&&l| l < than).count() as u64;
        prop_assert_eq!(index.ranks_of(start..end).unwrap(), shorter(start)..shorter(end).max(shorter(start)));
    }
}

#[test]
fn an_altered_index_is_an_error_or_stays_in_bounds() {
    let dir = tempfile::tempdir().unwrap();
    let (files, _) = build(dir.path(), &[5, 3, 9, 5, 5, 1, 2], 0, SMALL);
    let whole = segments(dir.path(), &files, Access::Map);
    let bytes = [0, 1].map(|i| std::fs::read(dir.path().join(&files[i].path)).unwrap());
    proptest!(ProptestConfig::with_cases(1000), |(alteration in any_alteration(), victim in 0usize..2)| {
        let mut both = whole.clone();
        both[victim] = segment_of(alteration.apply(&bytes[victim]), files[victim].records);
        let histogram = both.pop().unwrap();
        let read = LengthIndex::with_geometry(both, histogram, TOKENS, SMALL).and_then(|index| {
            let ranks = index.ranks_of(3..6)?;
            assert!(ranks.start <= ranks.end && ranks.end <= 7);
            for rank in 0..7 {
                assert!(index.record_at(rank)? < 7);
                index.length_at(rank)?;
            }
            index.histogram()?.collect::<Result<Vec<_>>>()
        });
        if let Err(e) = read {
            prop_assert!(reports_damaged_file(&e), "{e}");
        }
    });
}

#[test]
fn spilling_does_not_change_the_index() {
    // The minimum memory holds 65,536 rows, so this makes four runs.
    let lengths: Vec<u64> = (0..200_000u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48).collect();
    let dir = tempfile::tempdir().unwrap();
    let (little, summary) = build(dir.path(), &lengths, 0, Geometry::STANDARD);
    let index = open(dir.path(), &little, Access::Map, Geometry::STANDARD);
    let found = index.records_at(0..index.len()).unwrap().collect::<Result<Vec<_>>>().unwrap();
    assert!(found == naive(&lengths));
    let (ample, same_summary) = build(dir.path(), &lengths, 1 << 30, Geometry::STANDARD);
    assert_eq!((little, summary), (ample, same_summary));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "only the index is left");
}

#[test]
fn verification_finds_every_wrong_rank() {
    let lengths = [5, 3, 9, 5, 5, 1, 2];
    let dir = tempfile::tempdir().unwrap();
    let (files, _) = build(dir.path(), &lengths, 0, Geometry::STANDARD);
    let schema = Schema::text(IdWidth::U16, vec![]).unwrap();
    let records = |lengths: &[u64]| {
        let mut writer = RecordIndexWriter::create(dir.path(), "train", &schema).unwrap();
        for &length in lengths {
            writer.push(&IndexEntry { length, ..IndexEntry::default() }).unwrap();
        }
        let files = writer.finish().unwrap();
        RecordIndex::open(segments(dir.path(), &files, Access::Map), &schema).unwrap()
    };
    let index = open(dir.path(), &files, Access::Map, Geometry::STANDARD);
    index.verify(&records(&lengths)).unwrap();
    for i in 0..lengths.len() {
        let mut other = lengths;
        other[i] += 1;
        assert_eq!(index.verify(&records(&other)).unwrap_err().kind(), ErrorKind::Corrupt);
    }
    assert!(index.verify(&records(&lengths[1..])).is_err());

    // Swaps two records of equal length in the permutation: each rank has the right length, but the order is wrong.
    let mut bytes = std::fs::read(dir.path().join(&files[0].path)).unwrap();
    let order: Vec<u8> = naive(&lengths).iter().flat_map(|r| r.to_le_bytes()).collect();
    let at = bytes.windows(order.len()).position(|window| window == order).unwrap();
    bytes[at + 3 * 8..at + 5 * 8].rotate_left(8);
    let swapped =
        LengthIndex::open(vec![segment_of(bytes, 7)], segment(dir.path(), &files[1]), TOKENS).unwrap();
    assert_eq!(swapped.verify(&records(&lengths)).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn a_histogram_of_other_records_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let (files, _) = build(dir.path(), &[1, 2, 3], 0, SMALL);
    let other = tempfile::tempdir().unwrap();
    let (others, _) = build(other.path(), &[1, 2, 3, 3], 0, SMALL);
    let permutation = vec![segment(dir.path(), &files[0])];
    let histogram = segment(other.path(), &others[1]);
    let refused = LengthIndex::with_geometry(permutation.clone(), histogram, TOKENS, SMALL).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Corrupt);
    let histogram = segment(dir.path(), &files[1]);
    assert!(LengthIndex::with_geometry(permutation, histogram, LengthUnit::Pixels, SMALL).is_err());
}

#[test]
fn a_split_without_records_has_an_index() {
    let dir = tempfile::tempdir().unwrap();
    let (files, summary) = build(dir.path(), &[], 0, Geometry::STANDARD);
    assert_eq!(files.iter().map(|f| f.records).collect::<Vec<_>>(), [0, 0]);
    assert_eq!((summary.max, summary.mean), (0, 0.0));
    let index = open(dir.path(), &files, Access::Map, Geometry::STANDARD);
    assert!(index.is_empty());
    assert_eq!(index.ranks_of(0..u64::MAX).unwrap(), 0..0);
}

#[test]
fn lengths_beyond_the_limit_are_rejected() {
    let mut builder = LengthIndexBuilder::new("unused", 0);
    builder.push(MAX_LENGTH).unwrap();
    assert_eq!(builder.push(1).unwrap_err().kind(), ErrorKind::Usage);
}
