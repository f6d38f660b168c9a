//! Buckets by shape: every micro-batch has one shape, and every record occurs once, whatever the ranks.

use std::collections::{BTreeMap, HashMap};

use dsconvert_dataset::error::{Error, Result};
use proptest::prelude::*;

use super::super::*;

/// Images in memory.
#[derive(Debug, Clone)]
struct Shapes {
    shapes: Vec<ImageShape>,
    lengths: LengthsInMemory,
}

impl Shapes {
    fn new(sizes: &[(u32, u32)]) -> Self {
        let lengths = sizes.iter().map(|&(w, h)| u64::from(w) * u64::from(h)).collect();
        let shapes = sizes.iter().map(|&(width, height)| ImageShape { width, height }).collect();
        Self { shapes, lengths: LengthsInMemory::new(lengths) }
    }
}

impl Lengths for Shapes {
    fn records(&self) -> u64 {
        self.lengths.records()
    }

    fn record_at(&self, rank: u64) -> Result<u64> {
        self.lengths.record_at(rank)
    }

    fn length_of(&self, record: u64) -> Result<u64> {
        self.lengths.length_of(record)
    }

    fn shape_of(&self, record: u64) -> Result<Option<ImageShape>> {
        self.shapes.get(record as usize).copied().map(Some).ok_or_else(|| Error::internal("no such record"))
    }

    fn runs(&self) -> Result<Runs<'_>> {
        self.lengths.runs()
    }
}

fn any_shapes() -> impl Strategy<Value = Vec<(u32, u32)>> {
    // Some of them have equally many pixels.
    let shape = prop::sample::select(vec![(8, 8), (4, 16), (16, 4), (12, 6), (6, 12), (10, 7), (24, 3)]);
    prop::collection::vec(shape, 0..150)
}

fn any_options() -> impl Strategy<Value = BatchOptions> {
    let size = prop_oneof![
        (1u64..12).prop_map(BatchSize::BatchSize),
        (72u64..700).prop_map(BatchSize::MaxTokens),
        (72u64..700).prop_map(BatchSize::MaxTokensUnpadded),
    ];
    let shuffle = prop_oneof![Just(Shuffle::None), Just(Shuffle::Full)];
    let last = prop_oneof![Just(Last::Short), Just(Last::Drop), Just(Last::Pad), Just(Last::Wrap)];
    (size, shuffle, any::<bool>(), last).prop_map(|(size, shuffle, longest_first, last)| BatchOptions {
        shuffle,
        longest_first,
        last,
        bucket: BucketBy::Shape,
        ..BatchOptions::new(size)
    })
}

const SEED: u64 = 5;

fn plan(sizes: &[(u32, u32)], options: &BatchOptions, micro_batches: u64) -> BatchPlan<Shapes> {
    BatchPlan::new("data", Shapes::new(sizes), options.clone(), SEED, micro_batches).unwrap()
}

/// The micro-batches of all ranks of an epoch.
fn epoch_of(plan: &BatchPlan<Shapes>, epoch: u64, world_size: u64) -> Vec<MicroBatch> {
    let from = Position { epoch, step: 0 };
    let rank = |rank| plan.batches(Layout::new(rank, world_size).unwrap(), from).unwrap();
    let mut found: Vec<MicroBatch> = (0..world_size).flat_map(rank).map(Result::unwrap).collect();
    found.sort_by_key(|batch| (batch.step, batch.index));
    found
}

proptest! {
    #[test]
    fn every_record_occurs_once_in_micro_batches_of_one_shape(
        sizes in any_shapes(), options in any_options(), epoch in 0u64..4, (world, each) in (1u64..9, 1u64..3),
    ) {
        let micro_batches = world * each;
        let plan = plan(&sizes, &options, micro_batches);
        let batches = epoch_of(&plan, epoch, world);
        prop_assert_eq!(batches.len() as u64, plan.steps() * micro_batches);
        let mut occurrences: BTreeMap<u64, u64> = BTreeMap::new();
        let mut short: HashMap<ImageShape, u64> = HashMap::new();
        for batch in &batches {
            let shape = batch.shape.unwrap();
            let pixels = u64::from(shape.width) * u64::from(shape.height);
            for (&record, &length) in batch.records.iter().zip(&batch.lengths) {
                prop_assert_eq!((shape.width, shape.height), sizes[record as usize]);
                prop_assert_eq!(length, pixels);
                *occurrences.entry(record).or_default() += 1;
            }
            let most = match options.size {
                BatchSize::BatchSize(n) => n,
                BatchSize::MaxTokens(n) | BatchSize::MaxTokensUnpadded(n) => (n / pixels).max(1),
            };
            prop_assert!(batch.rows() <= most, "{} of {}", batch.rows(), most);
            match options.last {
                Last::Pad | Last::Wrap | Last::Drop => prop_assert_eq!(batch.rows(), most),
                Last::Short if batch.rows() > 0 => *short.entry(shape).or_default() += u64::from(batch.rows() < most),
                Last::Short => prop_assert_eq!(batch.step + 1, plan.steps(), "only the last step has empty ones"),
            }
        }
        prop_assert!(short.values().all(|&count| count <= 1), "{:?}", short);
        let counts = plan.counts(epoch);
        let repeated: u64 = occurrences.values().map(|n| n - 1).sum();
        let filler: u64 = batches.iter().map(|batch| batch.filler_rows).sum();
        prop_assert_eq!(counts.delivered, occurrences.values().sum::<u64>());
        prop_assert_eq!((counts.repeated, counts.filler_rows), (repeated, filler));
        prop_assert_eq!(counts.dropped, sizes.len() as u64 - occurrences.len() as u64);
        if options.last != Last::Drop {
            prop_assert_eq!(occurrences.len(), sizes.len());
        }
        if matches!(options.last, Last::Short | Last::Pad) {
            prop_assert!(occurrences.values().all(|&n| n == 1));
        }
        if options.longest_first && let Some(largest) = batches.iter().map(MicroBatch::padded_tokens).max() {
            prop_assert_eq!(batches[0].padded_tokens(), largest);
        }
    }

    #[test]
    fn resuming_with_other_ranks_yields_the_same_batches(
        sizes in any_shapes(), options in any_options(), stop: prop::sample::Index,
    ) {
        let before = plan(&sizes, &options, 24);
        let expected = epoch_of(&before, 2, 1);
        let step = stop.index(before.steps() as usize + 1) as u64;
        let saved = serde_json::to_string(&before.state(Position { epoch: 2, step }).unwrap()).unwrap();
        let after = plan(&sizes, &options, 24);
        let at = after.resume(&serde_json::from_str(&saved).unwrap()).unwrap();
        for world in [1, 2, 3, 8] {
            let mut found: Vec<MicroBatch> = epoch_of(&before, 2, world).into_iter().filter(|b| b.step < step).collect();
            for rank in 0..world {
                found.extend(after.batches(Layout::new(rank, world).unwrap(), at).unwrap().map(Result::unwrap));
            }
            found.sort_by_key(|batch| (batch.step, batch.index));
            prop_assert_eq!(&found, &expected);
        }
    }
}

/// A mixed set of shapes, with few records of some.
fn mixed() -> Vec<(u32, u32)> {
    (0..200u32).map(|i| [(8, 8), (16, 4), (4, 16), (12, 6)][(i * i % 11 % 4) as usize]).collect()
}

#[test]
fn epochs_are_shuffled_and_shapes_mixed() {
    let options = BatchOptions { bucket: BucketBy::Shape, ..BatchOptions::new(BatchSize::BatchSize(4)) };
    let plan = plan(&mixed(), &options, 2);
    let (first, second) = (epoch_of(&plan, 0, 1), epoch_of(&plan, 1, 1));
    assert_ne!(first, second);
    let mut sets: Vec<Vec<u64>> = first.iter().map(|b| b.records.clone()).collect();
    sets.iter_mut().for_each(|records| records.sort_unstable());
    let again = second.iter().filter(|b| {
        let mut records = b.records.clone();
        records.sort_unstable();
        sets.contains(&records)
    });
    assert!(again.count() < first.len() / 10, "the records of a bucket are batched anew");
    let changes = first.windows(2).filter(|pair| pair[0].shape != pair[1].shape).count();
    assert!(changes > first.len() / 3, "{changes} of {}", first.len());
    assert!(first.chunks(2).any(|step| step[0].shape != step[1].shape), "ranks may have different shapes");
}

#[test]
fn images_over_the_budget_follow_the_policy() {
    let sizes = [vec![(8, 8); 5], vec![(100, 100); 3]].concat();
    let with = |oversize| {
        let options = BatchOptions {
            bucket: BucketBy::Shape,
            oversize,
            ..BatchOptions::new(BatchSize::MaxTokens(200))
        };
        BatchPlan::new("data", Shapes::new(&sizes), options, SEED, 1)
    };
    let refused = with(Oversize::Error).unwrap_err();
    assert!(
        refused.to_string().contains("3 of 8 records are longer than the 200 that `max_pixels` allows"),
        "{refused}"
    );
    let dropped = with(Oversize::Drop).unwrap();
    assert_eq!((dropped.counts(0).delivered, dropped.counts(0).oversize), (5, 3));
    assert!(epoch_of(&dropped, 0, 1).iter().flat_map(|b| &b.records).all(|&record| record < 5));
    let alone = with(Oversize::Alone).unwrap();
    assert_eq!((alone.counts(0).delivered, alone.steps()), (8, 2 + 3));
}

#[test]
fn other_records_and_options_are_refused() {
    let by_shape = BatchOptions { bucket: BucketBy::Shape, ..BatchOptions::new(BatchSize::BatchSize(4)) };
    let lengths = LengthsInMemory::new(vec![1, 2, 3]);
    let error = BatchPlan::new("data", lengths, by_shape.clone(), SEED, 1).unwrap_err();
    assert!(error.to_string().contains("the records have no width and height"), "{error}");
    for (wrong, what) in [
        (BatchOptions { shuffle: Shuffle::BLOCK, ..by_shape.clone() }, "buckets by shape separate them"),
        (BatchOptions { pad_to_multiple_of: 8, ..by_shape }, "pad_to_multiple_of 8 does not apply"),
    ] {
        let error = BatchPlan::new("data", Shapes::new(&mixed()), wrong, SEED, 1).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
}

/// States of runs in progress depend on these: they change only with `ALGORITHM`.
#[test]
fn the_order_by_shape_never_changes() {
    let options = BatchOptions { bucket: BucketBy::Shape, ..BatchOptions::new(BatchSize::MaxTokens(256)) };
    let plan = plan(&mixed()[..20], &options, 2);
    let found: Vec<Vec<u64>> = epoch_of(&plan, 1, 1).into_iter().map(|batch| batch.records).collect();
    let expected: [&[u64]; 8] =
        [&[14, 18, 7, 8], &[10, 3, 4], &[17], &[5, 6, 16], &[12, 15, 19, 1], &[2], &[0, 13, 9, 11], &[]];
    assert_eq!(found, expected);
    let state = plan.state(Position { epoch: 1, step: 2 }).unwrap();
    let digests = ("b0eb0996386813069ec43a3449374ab0", "472832592bd323605fc16bc3a414c1e0");
    assert_eq!((state.lengths.as_str(), state.options.as_str()), digests);
}
