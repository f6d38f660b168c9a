//! Property tests of whole plans: the guarantees hold for any lengths and options.

mod budgets;
mod metrics;
mod quality;
mod refusals;
mod shape;

use dsconvert_dataset::error::Error;
use dsconvert_dataset::format::Format;
use dsconvert_dataset::schema::Kind;
use proptest::prelude::*;

pub(super) use self::metrics::Metrics;
use super::*;
use crate::{Dataset, testing};

fn any_lengths() -> impl Strategy<Value = Vec<u64>> {
    let length = prop_oneof![3 => 0u64..60, 1 => 0u64..300, 1 => Just(7u64)];
    prop::collection::vec(length, 0..400)
}

fn any_size() -> impl Strategy<Value = BatchSize> {
    prop_oneof![
        (1u64..20).prop_map(BatchSize::BatchSize),
        (20u64..1500).prop_map(BatchSize::MaxTokens),
        (20u64..1500).prop_map(BatchSize::MaxTokensUnpadded),
    ]
}

fn any_bucket() -> impl Strategy<Value = BucketBy> {
    prop_oneof![
        Just(BucketBy::None),
        (0.001f64..0.3).prop_map(|max_waste| BucketBy::Length(Boundaries::Auto { max_waste })),
        (1u64..40, 1.01f64..3.0)
            .prop_map(|(first, ratio)| BucketBy::Length(Boundaries::Geometric { first, ratio })),
        prop::collection::btree_set(0u64..200, 0..6)
            .prop_map(|b| BucketBy::Length(Boundaries::Given(b.into_iter().collect()))),
        (1u64..8).prop_map(|steps| BucketBy::Windows { steps }),
    ]
}

fn any_shuffle() -> impl Strategy<Value = Shuffle> {
    prop_oneof![
        Just(Shuffle::None),
        Just(Shuffle::Full),
        (1u64..20, 1u64..5).prop_map(|(records, group)| Shuffle::Block { records, group }),
    ]
}

fn any_last() -> impl Strategy<Value = Last> {
    prop_oneof![Just(Last::Short), Just(Last::Drop), Just(Last::Pad), Just(Last::Wrap)]
}

fn any_oversize() -> impl Strategy<Value = Oversize> {
    prop_oneof![Just(Oversize::Error), Just(Oversize::Drop), Just(Oversize::Alone), Just(Oversize::Truncate)]
}

/// Options that are compatible.
fn any_options() -> impl Strategy<Value = BatchOptions> {
    let options =
        (any_size(), 1u64..20, any_bucket(), any_shuffle(), any::<bool>(), any_oversize(), any_last());
    options
        .prop_map(|(size, pad_to_multiple_of, bucket, shuffle, longest_first, oversize, last)| BatchOptions {
            size,
            budget: None,
            pad_to_multiple_of,
            bucket,
            shuffle,
            longest_first,
            oversize,
            last,
        })
        .prop_filter("options that contradict each other", |options| options.check().is_ok())
}

/// World sizes and multiples of them.
fn any_world() -> impl Strategy<Value = (u64, u64)> {
    (1u64..5, 1u64..4).prop_map(|(world, each)| (world, world * each))
}

const SEED: u64 = 11;

fn plan(
    lengths: &[u64],
    options: &BatchOptions,
    micro_batches: u64,
) -> Result<BatchPlan<LengthsInMemory>, Error> {
    BatchPlan::new("data", LengthsInMemory::new(lengths.to_vec()), options.clone(), SEED, micro_batches)
}

fn epoch_of(plan: &BatchPlan<LengthsInMemory>, epoch: u64) -> Vec<MicroBatch> {
    let from = Position { epoch, step: 0 };
    plan.batches(Layout::SINGLE, from).unwrap().map(Result::unwrap).collect()
}

fn records_of(batches: &[MicroBatch]) -> Vec<u64> {
    let mut records: Vec<u64> = batches.iter().flat_map(|b| b.records.iter().copied()).collect();
    records.sort_unstable();
    records
}

proptest! {
    #[test]
    fn counts_match_the_delivered_records(
        lengths in any_lengths(), options in any_options(), micro_batches in 1u64..9, epoch in 0u64..3,
    ) {
        let Ok(plan) = plan(&lengths, &options, micro_batches) else {
            prop_assert_eq!(options.oversize, Oversize::Error, "only a record over the budget refuses a plan");
            return Ok(());
        };
        let counts = plan.counts(epoch);
        let batches = epoch_of(&plan, epoch);
        prop_assert_eq!(batches.len() as u64, plan.steps() * micro_batches);
        let records = records_of(&batches);
        let mut distinct = records.clone();
        distinct.dedup();
        let filler: u64 = batches.iter().map(|b| b.filler_rows).sum();
        prop_assert_eq!(counts.records, lengths.len() as u64);
        prop_assert_eq!(counts.delivered, records.len() as u64);
        prop_assert_eq!(counts.repeated, (records.len() - distinct.len()) as u64);
        prop_assert_eq!(counts.filler_rows, filler);
        let left_out = if options.oversize == Oversize::Drop { counts.oversize } else { 0 } + counts.dropped;
        prop_assert_eq!(distinct.len() as u64 + left_out, counts.records);
        if matches!(options.last, Last::Pad | Last::Wrap) {
            for step in batches.chunks(micro_batches as usize) {
                let graded = plan.buckets(epoch)[step[0].bucket].graded.is_some();
                prop_assert!(graded || step.iter().all(|b| b.rows() == step[0].rows()));
            }
        }
    }

    #[test]
    fn the_budget_holds_and_a_step_has_one_bucket(
        lengths in any_lengths(), options in any_options(), micro_batches in 1u64..9,
    ) {
        let Ok(plan) = plan(&lengths, &options, micro_batches) else { return Ok(()) };
        for step in epoch_of(&plan, 0).chunks(micro_batches as usize) {
            prop_assert!(step.iter().all(|b| b.bucket == step[0].bucket));
            for batch in step {
                let stored: Vec<u64> = batch.records.iter().map(|&r| lengths[r as usize]).collect();
                let used = stored.iter().zip(&batch.lengths);
                match options.oversize {
                    Oversize::Truncate => prop_assert!(used.clone().all(|(stored, used)| used <= stored)),
                    _ => prop_assert_eq!(&stored, &batch.lengths),
                }
                prop_assert!(batch.lengths.iter().all(|&l| l <= batch.width));
                prop_assert!(batch.width.is_multiple_of(options.pad_to_multiple_of));
                let (held, budget) = match options.size {
                    BatchSize::BatchSize(n) => (batch.rows(), n),
                    BatchSize::MaxTokens(n) => (batch.padded_tokens(), n),
                    BatchSize::MaxTokensUnpadded(n) => (batch.tokens(), n),
                };
                let alone = options.oversize == Oversize::Alone && batch.rows() == 1;
                prop_assert!(held <= budget || alone, "{} > {}: {:?}", held, budget, batch);
            }
        }
    }

    #[test]
    fn resuming_anywhere_with_any_ranks_yields_the_same_batches(
        lengths in any_lengths(), options in any_options(),
        (first, second) in (1u64..4, 1u64..4), each in 1u64..3, stop: prop::sample::Index,
    ) {
        let micro_batches = first * second * each;
        let Ok(before) = plan(&lengths, &options, micro_batches) else { return Ok(()) };
        let step = stop.index(before.steps() as usize + 1) as u64;
        let saved = serde_json::to_string(&before.state(Position { epoch: 1, step }).unwrap()).unwrap();
        drop(before);
        let after = plan(&lengths, &options, micro_batches).unwrap();
        let at = after.resume(&serde_json::from_str(&saved).unwrap()).unwrap();
        let mut found = Vec::new();
        for (world, from, to) in [(first, 0, step), (second, at.step, after.steps())] {
            for rank in 0..world {
                let from = Position { epoch: 1, step: from };
                let batches = after.batches(Layout::new(rank, world).unwrap(), from).unwrap();
                found.extend(batches.map(Result::unwrap).filter(|b| b.step < to));
            }
        }
        found.sort_by_key(|b| (b.step, b.index));
        prop_assert_eq!(found, epoch_of(&after, 1));
    }

    #[test]
    fn totals_are_sums_over_all_ranks(lengths in any_lengths(), options in any_options(), (world, all) in any_world()) {
        let Ok(plan) = plan(&lengths, &options, all) else { return Ok(()) };
        let mut by_step = vec![StepTotals::default(); plan.steps() as usize];
        for rank in 0..world {
            for batch in plan.batches(Layout::new(rank, world).unwrap(), Position::default()).unwrap() {
                let batch = batch.unwrap();
                let totals = &mut by_step[batch.step as usize];
                totals.records += batch.records.len() as u64;
                totals.tokens += batch.tokens();
                let is_padded = !matches!(options.size, BatchSize::MaxTokensUnpadded(_));
                totals.padded_tokens += if is_padded { batch.padded_tokens() } else { batch.tokens() };
            }
        }
        for (step, expected) in (0..).zip(by_step) {
            prop_assert_eq!(plan.totals(Position { epoch: 0, step }).unwrap(), expected);
        }
    }

    #[test]
    fn longest_first_puts_the_worst_cases_first(
        lengths in any_lengths(), options in any_options(), micro_batches in 1u64..5, epoch in 0u64..3,
    ) {
        let options = BatchOptions { longest_first: true, last: Last::Drop, ..options };
        let Ok(plan) = plan(&lengths, &options, micro_batches) else { return Ok(()) };
        let batches = epoch_of(&plan, epoch);
        let Some(largest) = batches.iter().map(MicroBatch::padded_tokens).max() else { return Ok(()) };
        let first = batches[..micro_batches as usize].iter().map(MicroBatch::padded_tokens).max();
        prop_assert_eq!(first, Some(largest));
        let longest = batches.iter().map(|b| b.width).max().unwrap();
        let head = &batches[..batches.len().min(2 * micro_batches as usize)];
        prop_assert!(head.iter().any(|b| b.width == longest));
    }

    #[test]
    fn buckets_cover_the_ranks_in_order(
        lengths in any_lengths(), options in any_options(), micro_batches in 1u64..9, epoch in 0u64..9,
    ) {
        let Ok(plan) = plan(&lengths, &options, micro_batches) else { return Ok(()) };
        let mut next = (0, 0);
        for (i, bucket) in plan.buckets(epoch).iter().enumerate() {
            prop_assert_eq!((bucket.start, bucket.first_step), next);
            let planned = match &bucket.graded {
                Some(ends) => *ends.last().unwrap(),
                None => bucket.steps * bucket.per_batch * micro_batches + bucket.tail,
            };
            prop_assert_eq!(bucket.records, planned);
            prop_assert!(bucket.tail == 0 || i + 1 == plan.buckets(epoch).len());
            next = (bucket.start + bucket.records, bucket.first_step + bucket.steps);
        }
        let has_last = options.last != Last::Drop && plan.buckets(epoch).last().is_some_and(|b| b.tail > 0);
        prop_assert_eq!(next.1 + u64::from(has_last), plan.steps(), "every epoch is equally long");
    }
}

#[test]
fn epochs_and_seeds_differ() {
    let lengths: Vec<u64> = (0..500).map(|i| 10 + i % 50).collect();
    for bucket in [
        BucketBy::None,
        BucketBy::Length(Boundaries::Auto { max_waste: 0.1 }),
        BucketBy::Windows { steps: 4 },
    ] {
        let options = BatchOptions { bucket, ..BatchOptions::new(BatchSize::BatchSize(5)) };
        let here = plan(&lengths, &options, 2).unwrap();
        assert_ne!(epoch_of(&here, 0), epoch_of(&here, 1));
        assert_eq!(epoch_of(&here, 1), epoch_of(&here, 1));
        let other =
            BatchPlan::new("data", LengthsInMemory::new(lengths.clone()), options, SEED + 1, 2).unwrap();
        assert_ne!(epoch_of(&here, 0), epoch_of(&other, 0));
    }
}

#[test]
fn each_epoch_drops_other_records() {
    // A bucket of the two longest would not fill a step: they would be dropped in every epoch.
    let mut lengths = vec![10; 100];
    lengths.extend([900, 901]);
    let options = BatchOptions { last: Last::Drop, ..BatchOptions::new(BatchSize::MaxTokens(1000)) };
    let plan = plan(&lengths, &options, 4).unwrap();
    assert!((0..20).all(|epoch| plan.counts(epoch).dropped > 0 || plan.counts(epoch).delivered == 102));
    let longest_seen = (0..20).any(|epoch| epoch_of(&plan, epoch).iter().any(|b| b.records.contains(&101)));
    assert!(longest_seen);
}

const STATE: &str = concat!(
    r#"{"version":2,"dataset":"data","lengths":"c8fb6efb91cd38a31b3cab8af194baa8","#,
    r#""options":"1800fd59773ab0c779588d46f2486124","seed":11,"micro_batches":2,"epoch":1,"step":2}"#,
);

/// States of runs in progress depend on these: they change only with `ALGORITHM`.
#[test]
fn the_order_never_changes() {
    let lengths: Vec<u64> = (0..40).map(|i| 3 + i * 7 % 23).collect();
    let options = BatchOptions::new(BatchSize::MaxTokens(64));
    let plan = plan(&lengths, &options, 2).unwrap();
    let records: Vec<Vec<u64>> =
        (0..3).map(|step| plan.micro_batch(Position { epoch: 1, step }, step % 2).unwrap().records).collect();
    assert_eq!(records, [vec![18, 5, 28, 15], vec![9, 32, 19], vec![13, 26]]);
    let state = plan.state(Position { epoch: 1, step: 2 }).unwrap();
    assert_eq!(serde_json::to_string(&state).unwrap(), STATE);
}

/// A plan is the same from an opened split and from the lengths in memory.
#[test]
fn a_split_gives_the_same_plan_as_its_lengths() {
    let lengths: Vec<u64> = (0..200).map(|i| i * 7 % 13).collect(); // what `testing` writes
    let dir = tempfile::tempdir().unwrap();
    testing::write(dir.path(), Format::Msgpack, Kind::Text, &[&[150, 50]]).unwrap();
    let split = Dataset::open(dir.path()).unwrap().split("train").unwrap();
    let options = BatchOptions::new(BatchSize::MaxTokens(64));
    let expected = plan(&lengths, &options, 2).unwrap();
    let of_split = BatchPlan::new("data", split, options, SEED, 2).unwrap();
    let start = Position::default();
    assert_eq!(of_split.state(start).unwrap(), expected.state(start).unwrap());
    for step in 0..expected.steps() {
        let at = Position { epoch: 4, step };
        for index in 0..2 {
            let batch = expected.micro_batch(at, index).unwrap();
            assert_eq!(of_split.micro_batch(at, index).unwrap(), batch);
        }
    }
}
