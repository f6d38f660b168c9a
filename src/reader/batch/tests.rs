//! Whole plans: what they promise for any lengths and options, and how good they are on realistic lengths.

use proptest::prelude::*;

use super::permute::{Permutation, Purpose, key};
use super::*;
use crate::error::ErrorKind;
use crate::index::LengthRun;

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

/// Options that go together.
fn any_options() -> impl Strategy<Value = BatchOptions> {
    let options =
        (any_size(), 1u64..20, any_bucket(), any_shuffle(), any::<bool>(), any_oversize(), any_last());
    options
        .prop_map(|(size, pad_to_multiple_of, bucket, shuffle, longest_first, oversize, last)| BatchOptions {
            size,
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
) -> crate::error::Result<BatchPlan<LengthsInMemory>> {
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
    fn every_record_comes_as_often_as_is_counted(
        lengths in any_lengths(), options in any_options(), micro_batches in 1u64..9, epoch in 0u64..3,
    ) {
        let Ok(plan) = plan(&lengths, &options, micro_batches) else {
            prop_assert_eq!(options.oversize, Oversize::Error, "only a record over the budget refuses a plan");
            return Ok(());
        };
        let counts = plan.counts();
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
                let graded = plan.buckets()[step[0].bucket].graded.is_some();
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
    fn resuming_anywhere_with_any_ranks_goes_on_as_if_nothing_had_been(
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
    fn totals_are_those_of_all_ranks(lengths in any_lengths(), options in any_options(), (world, all) in any_world()) {
        let Ok(plan) = plan(&lengths, &options, all) else { return Ok(()) };
        let mut by_step = vec![StepTotals::default(); plan.steps() as usize];
        for rank in 0..world {
            for batch in plan.batches(Layout::new(rank, world).unwrap(), Position::default()).unwrap() {
                let batch = batch.unwrap();
                let totals = &mut by_step[batch.step as usize];
                totals.records += batch.records.len() as u64;
                totals.tokens += batch.tokens();
                totals.padded_tokens += batch.padded_tokens();
            }
        }
        for (step, expected) in (0..).zip(by_step) {
            prop_assert_eq!(plan.totals(Position { epoch: 0, step }).unwrap(), expected);
        }
    }

    #[test]
    fn the_worst_comes_first_when_asked_for(
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
    fn buckets_are_the_ranks_in_order(lengths in any_lengths(), options in any_options(), micro_batches in 1u64..9) {
        let Ok(plan) = plan(&lengths, &options, micro_batches) else { return Ok(()) };
        let mut next = (0, 0);
        for (i, bucket) in plan.buckets().iter().enumerate() {
            prop_assert_eq!((bucket.start, bucket.first_step), next);
            let planned = match &bucket.graded {
                Some(ends) => *ends.last().unwrap(),
                None => bucket.steps * bucket.per_batch * micro_batches + bucket.tail,
            };
            prop_assert_eq!(bucket.records, planned);
            prop_assert!(bucket.tail == 0 || i + 1 == plan.buckets().len());
            next = (bucket.start + bucket.records, bucket.first_step + bucket.steps);
        }
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
fn what_is_dropped_changes_with_the_epoch() {
    // The two longest alone would fill no step: they would be dropped in every epoch.
    let mut lengths = vec![10; 100];
    lengths.extend([900, 901]);
    let options = BatchOptions { last: Last::Drop, ..BatchOptions::new(BatchSize::MaxTokens(1000)) };
    let plan = plan(&lengths, &options, 4).unwrap();
    assert!(plan.counts().dropped > 0 || plan.counts().delivered == 102);
    let longest_seen = (0..20).any(|epoch| epoch_of(&plan, epoch).iter().any(|b| b.records.contains(&101)));
    assert!(longest_seen);
}

#[test]
fn a_state_of_something_else_is_refused() {
    let lengths = vec![5; 100];
    let options = BatchOptions::new(BatchSize::BatchSize(4));
    let state = plan(&lengths, &options, 2).unwrap().state(Position { epoch: 0, step: 3 }).unwrap();
    let refusal = |dataset: &str, lengths: &[u64], options: &BatchOptions, seed, micro_batches| {
        let lengths = LengthsInMemory::new(lengths.to_vec());
        let plan = BatchPlan::new(dataset, lengths, options.clone(), seed, micro_batches).unwrap();
        plan.resume(&state).map_err(|e| {
            assert_eq!(e.kind(), ErrorKind::Usage);
            e.to_string()
        })
    };
    assert_eq!(refusal("data", &lengths, &options, SEED, 2), Ok(Position { epoch: 0, step: 3 }));
    let contains = |result: Result<Position, String>, what: &str| {
        let message = result.unwrap_err();
        assert!(message.contains(what), "{message}");
    };
    contains(
        refusal("other", &lengths, &options, SEED, 2),
        "dataset other".replace("other", "data").as_str(),
    );
    contains(refusal("data", &[5; 99], &options, SEED, 2), "lengths");
    contains(refusal("data", &lengths, &options, 12, 2), "seed 11");
    contains(refusal("data", &lengths, &options, SEED, 4), "micro-batches");
    let other = BatchOptions { last: Last::Drop, ..options.clone() };
    contains(refusal("data", &lengths, &other, SEED, 2), "options");
    let plan = plan(&lengths, &options, 2).unwrap();
    let beyond = PlanState { step: plan.steps() + 1, ..state.clone() };
    assert_eq!(plan.resume(&beyond).unwrap_err().kind(), ErrorKind::OutOfRange);
    assert!(serde_json::from_str::<PlanState>(r#"{"dataset":"data"}"#).is_err());
}

#[test]
fn options_that_cannot_be_are_refused() {
    let base = BatchOptions::new(BatchSize::MaxTokens(100));
    let auto = |max_waste| BucketBy::Length(Boundaries::Auto { max_waste });
    let geometric = |first, ratio| BucketBy::Length(Boundaries::Geometric { first, ratio });
    let block = |records, group| Shuffle::Block { records, group };
    let none = BucketBy::None;
    for (options, what) in [
        (BatchOptions { size: BatchSize::BatchSize(0), ..base.clone() }, "batch_size"),
        (BatchOptions { size: BatchSize::MaxTokens(0), ..base.clone() }, "max_tokens"),
        (
            BatchOptions { size: BatchSize::MaxTokensUnpadded(u64::MAX), ..base.clone() },
            "max_tokens_unpadded",
        ),
        (BatchOptions { pad_to_multiple_of: 0, ..base.clone() }, "pad_to_multiple_of"),
        (BatchOptions { pad_to_multiple_of: 101, ..base.clone() }, "pad_to_multiple_of"),
        (BatchOptions { bucket: auto(0.0), ..base.clone() }, "max_waste"),
        (BatchOptions { bucket: auto(f64::NAN), ..base.clone() }, "max_waste"),
        (BatchOptions { bucket: geometric(0, 1.1), ..base.clone() }, "boundary"),
        (BatchOptions { bucket: geometric(8, 1.0), ..base.clone() }, "ratio"),
        (BatchOptions { bucket: BucketBy::Length(Boundaries::Given(vec![3, 3])), ..base.clone() }, "ascend"),
        (BatchOptions { bucket: BucketBy::Windows { steps: 0 }, ..base.clone() }, "window"),
        (BatchOptions { bucket: none.clone(), shuffle: block(0, 1), ..base.clone() }, "block"),
        (BatchOptions { bucket: none.clone(), shuffle: block(1, 0), ..base.clone() }, "group"),
        (BatchOptions { shuffle: block(8, 8), ..base.clone() }, "block"),
        (BatchOptions { bucket: none.clone(), oversize: Oversize::Alone, ..base.clone() }, "alone"),
        (
            BatchOptions { bucket: none, shuffle: Shuffle::None, oversize: Oversize::Drop, ..base.clone() },
            "stored",
        ),
    ] {
        let error = plan(&[1, 2, 3], &options, 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(error.to_string().contains(what), "{what}: {error}");
    }
    assert!(plan(&[1], &base, 0).unwrap_err().to_string().contains("micro-batches"));
    let plan = plan(&[1, 2, 101], &BatchOptions { oversize: Oversize::Drop, ..base }, 3).unwrap();
    assert_eq!(plan.counts().oversize, 1);
    assert!(plan.batches(Layout::new(0, 2).unwrap(), Position::default()).is_err());
    assert_eq!(plan.micro_batch(Position::default(), 3).unwrap_err().kind(), ErrorKind::OutOfRange);
    let beyond = Position { epoch: 0, step: plan.steps() };
    assert_eq!(plan.micro_batch(beyond, 0).unwrap_err().kind(), ErrorKind::OutOfRange);
}

#[test]
fn a_record_over_the_budget_is_named() {
    let error = plan(&[5, 2000, 7], &BatchOptions::new(BatchSize::MaxTokens(100)), 1).unwrap_err();
    assert_eq!((error.kind(), error.place().row), (ErrorKind::Usage, Some(1)));
    assert!(error.remedy().unwrap().contains("truncate"));
}

#[test]
fn no_records_are_no_steps() {
    let plan = plan(&[], &BatchOptions::new(BatchSize::MaxTokens(100)), 2).unwrap();
    assert_eq!((plan.steps(), plan.counts()), (0, Counts::default()));
    assert_eq!(epoch_of(&plan, 0), []);
}

/// An index that lies is an error, never a wrong batch.
#[test]
fn lengths_that_contradict_each_other_are_corrupt() {
    type MapRun = fn(LengthRun) -> LengthRun;

    #[derive(Debug)]
    struct Lies(LengthsInMemory, MapRun, fn(u64) -> u64);

    impl Lengths for Lies {
        fn records(&self) -> u64 {
            self.0.records()
        }
        fn record_at(&self, rank: u64) -> crate::error::Result<u64> {
            self.0.record_at(rank)
        }
        fn length_of(&self, record: u64) -> crate::error::Result<u64> {
            self.0.length_of(record).map(self.2)
        }
        fn runs(&self) -> crate::error::Result<Runs<'_>> {
            Ok(Box::new(self.0.runs()?.map(|run| run.map(self.1))))
        }
    }
    let new = |run: MapRun, length: fn(u64) -> u64| {
        let lengths = Lies(LengthsInMemory::new((0..100).collect()), run, length);
        BatchPlan::new("data", lengths, BatchOptions::new(BatchSize::MaxTokens(200)), 0, 1)
    };
    let runs: [MapRun; 5] = [
        |run| LengthRun { count: run.count + 1, ..run },
        |run| LengthRun { length: 7, ..run },
        |run| LengthRun { first_rank: 0, ..run },
        |run| LengthRun { count: 0, ..run },
        |run| LengthRun { count: u64::MAX, ..run },
    ];
    for run in runs {
        assert_eq!(new(run, |l| l).unwrap_err().kind(), ErrorKind::Corrupt);
    }
    let plan = new(|run| run, |length| length + 150).unwrap();
    let error = plan.micro_batch(Position::default(), 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.place().row.is_some());
}

/// Lengths like those of a text corpus: log-normal with a median of 250 and a heavy tail, cut at `longest`.
fn text_lengths(records: u64, longest: u64) -> Vec<u64> {
    let noise = Permutation::new(1 << 32, key(5, Purpose::Records, 0, 0));
    let uniform = |i: u64| (noise.at(i) as f64 + 0.5) / (1u64 << 32) as f64;
    let normal =
        |i: u64| (-2.0 * uniform(2 * i).ln()).sqrt() * (std::f64::consts::TAU * uniform(2 * i + 1)).cos();
    (0..records).map(|i| ((250f64.ln() + 1.1 * normal(i)).exp() as u64).clamp(1, longest)).collect()
}

/// Padding of random batches that are filled up to the budget.
fn random_padding(lengths: &[u64], budget: u64) -> f64 {
    let order = Permutation::new(lengths.len() as u64, 1);
    let (mut padded, mut rows, mut width) = (0, 0, 0);
    for i in 0..lengths.len() as u64 {
        let length = lengths[order.at(i) as usize].min(budget);
        if (rows + 1) * width.max(length) > budget {
            padded += rows * width;
            (rows, width) = (0, 0);
        }
        rows += 1;
        width = width.max(length);
    }
    padded += rows * width;
    1.0 - lengths.iter().map(|&l| l.min(budget)).sum::<u64>() as f64 / padded as f64
}

#[test]
fn buckets_waste_little_where_random_batches_waste_much() {
    let lengths = text_lengths(60_000, 8192);
    let random = random_padding(&lengths, 16_384);
    assert!(random > 0.4, "random batches: {random}");
    for (micro_batches, most) in [(1, 0.03), (4, 0.03), (8, 0.05)] {
        let plan = plan(&lengths, &BatchOptions::new(BatchSize::MaxTokens(16_384)), micro_batches).unwrap();
        let metrics = Metrics::of(&plan, 0, micro_batches).unwrap();
        assert!(metrics.padding < most, "{micro_batches}: {metrics:?}");
        assert!(metrics.fill > 0.93, "{micro_batches}: {metrics:?}");
        assert!(metrics.skew < 0.03, "{micro_batches}: {metrics:?}");
        assert!(metrics.length_correlation.abs() < 0.15, "{micro_batches}: {metrics:?}");
        assert!(plan.buckets().len() < 150, "{} buckets", plan.buckets().len());
    }
}

/// A few hundred records, eight micro-batches per step: lengths are so sparse that most steps are graded.
#[test]
fn small_datasets_on_many_ranks_waste_little() {
    let lengths = text_lengths(8_000, 8192);
    let plan = plan(&lengths, &BatchOptions::new(BatchSize::MaxTokens(16_384)), 8).unwrap();
    assert!(plan.buckets().iter().any(|bucket| bucket.graded.is_some()));
    let metrics = Metrics::of(&plan, 0, 8).unwrap();
    assert!(metrics.padding < 0.05 && metrics.fill > 0.9 && metrics.skew < 0.1, "{metrics:?}");
}

#[test]
fn sorted_windows_save_padding_of_fixed_batches() {
    let lengths = text_lengths(30_000, 8192);
    let measure = |bucket| {
        let options = BatchOptions { bucket, ..BatchOptions::new(BatchSize::BatchSize(32)) };
        Metrics::of(&plan(&lengths, &options, 2).unwrap(), 0, 2).unwrap()
    };
    let (random, sorted) =
        (measure(BucketBy::None), measure(BucketBy::Windows { steps: DEFAULT_WINDOW_STEPS }));
    assert!(random.padding > 0.5, "{random:?}");
    assert!(sorted.padding < 0.2, "{sorted:?}");
    assert!(sorted.length_correlation.abs() < 0.15, "{sorted:?}");
    assert!(sorted.skew < random.skew, "{sorted:?} {random:?}");
}

const STATE: &str = concat!(
    r#"{"dataset":"data","lengths":"c8fb6efb91cd38a31b3cab8af194baa8","#,
    r#""options":"90c07e851645aa6776aa05c3a219dd1f","seed":11,"micro_batches":2,"epoch":1,"step":2}"#,
);

/// States of runs in progress depend on these: the test never changes.
#[test]
fn the_order_never_changes() {
    let lengths: Vec<u64> = (0..40).map(|i| 3 + i * 7 % 23).collect();
    let options = BatchOptions::new(BatchSize::MaxTokens(64));
    let plan = plan(&lengths, &options, 2).unwrap();
    let records: Vec<Vec<u64>> =
        (0..3).map(|step| plan.micro_batch(Position { epoch: 1, step }, step % 2).unwrap().records).collect();
    assert_eq!(records, [vec![0, 23, 10, 33, 20, 7, 30, 17], vec![29, 16], vec![11, 34, 21, 8]]);
    let state = plan.state(Position { epoch: 1, step: 2 }).unwrap();
    assert_eq!(serde_json::to_string(&state).unwrap(), STATE);
}

/// Reads one length per line and prints measures: `DSCONVERT_LENGTHS=file cargo test --lib measure -- --ignored
/// --nocapture`.
#[test]
#[ignore = "needs a file of lengths"]
#[allow(clippy::print_stderr)]
fn measure_lengths_of_a_file() {
    let file = std::env::var("DSCONVERT_LENGTHS").unwrap();
    let lengths: Vec<u64> =
        std::fs::read_to_string(file).unwrap().lines().map(|line| line.parse().unwrap()).collect();
    eprintln!("random batches of the same budget: padding {:.4}", random_padding(&lengths, 16_384));
    for max_waste in [0.02, 0.04, 0.06] {
        for micro_batches in [1, 2, 8] {
            let bucket = BucketBy::Length(Boundaries::Auto { max_waste });
            let oversize = Oversize::Truncate;
            let options =
                BatchOptions { bucket, oversize, ..BatchOptions::new(BatchSize::MaxTokens(16_384)) };
            let plan = plan(&lengths, &options, micro_batches).unwrap();
            let metrics = Metrics::of(&plan, 0, micro_batches).unwrap();
            eprintln!(
                "max_waste {max_waste}, {micro_batches} micro-batches: {} buckets, {} steps, {metrics:?}",
                plan.buckets().len(),
                plan.steps()
            );
        }
    }
}
