use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::batch::{
    BatchOptions, BatchRows, BatchSize, Batching, BucketBy, MixtureState, Oversize, PackOptions,
};
use crate::testing::InMemory;

/// Returns a source of documents with these lengths.
fn source(name: &str, lengths: Vec<u64>) -> (String, Arc<dyn RecordSource>) {
    let documents: Vec<_> = lengths.iter().map(|&length| (vec![7; length as usize], Vec::new())).collect();
    (name.to_owned(), Arc::new(InMemory::new(&documents, false)))
}

/// Three sources of 30, 50 and 7 records.
fn three() -> Vec<(String, Arc<dyn RecordSource>)> {
    let lengths = |count: u64, factor: u64| (0..count).map(|i| 1 + i * factor % 19).collect();
    vec![source("a", lengths(30, 7)), source("b", lengths(50, 5)), source("c", lengths(7, 3))]
}

fn weights() -> MixtureOptions {
    MixtureOptions {
        epoch: Some(MixtureEpoch::Steps(12)),
        ..MixtureOptions::new([("a", 5.0), ("b", 3.0), ("c", 2.0)])
    }
}

fn plan(options: MixtureOptions, batching: impl Into<Batching>, micro_batches: u64) -> Result<MixturePlan> {
    let mixture = Mixture::new(three(), ClassNames::Equal, options)?;
    mixture.plan(&batching.into(), 7, micro_batches)
}

fn one_by_one(records: u64) -> BatchOptions {
    BatchOptions::new(BatchSize::BatchSize(records))
}

/// Returns the steps of an epoch, and the states after them.
fn epoch(plan: &MixturePlan, start: &MixtureState) -> Vec<(Vec<BatchRows>, MixtureState)> {
    let mut at = start.clone();
    std::iter::from_fn(|| {
        let step = plan.advance(&mut at).unwrap()?;
        Some((step, at.clone()))
    })
    .collect()
}

fn records(step: &[BatchRows]) -> Vec<Vec<u64>> {
    let of_batch = |batch: &BatchRows| match batch {
        BatchRows::Records { batch, .. } => batch.records.clone(),
        BatchRows::Packed { rows, .. } => {
            rows.iter().flat_map(|row| &row.pieces).map(|p| p.document).collect()
        }
    };
    step.iter().map(of_batch).collect()
}

fn number_of(record: u64) -> usize {
    [30, 80].partition_point(|&end| end <= record)
}

/// Runs in progress would break if the order changed.
#[test]
fn the_order_of_a_mixture_never_changes() {
    let by_tokens = plan(weights(), BatchOptions::new(BatchSize::MaxTokens(40)), 2).unwrap();
    let start = by_tokens.start_of(None, 0).unwrap();
    let first: Vec<_> = epoch(&by_tokens, &start).iter().take(2).map(|(step, _)| records(step)).collect();
    assert_eq!(
        format!("{first:?}"),
        "[[[25, 17, 9, 28, 1], [58, 77, 43, 62]], [[85, 86], [0, 19, 11, 3, 22, 14, 6]]]"
    );

    let by_records = plan(weights(), one_by_one(4), 2).unwrap();
    let start = by_records.start_of(None, 0).unwrap();
    let first: Vec<_> = epoch(&by_records, &start).iter().take(2).map(|(step, _)| records(step)).collect();
    assert_eq!(
        format!("{first:?}"),
        "[[[1, 39, 84, 27], [50, 30, 60, 25]], [[24, 83, 10, 66], [85, 28, 26, 40]]]"
    );

    let packed = plan(weights(), PackOptions::new(16, 2), 2).unwrap();
    let start = packed.start_of(None, 0).unwrap();
    let first: Vec<_> = epoch(&packed, &start).iter().take(2).map(|(step, _)| records(step)).collect();
    assert_eq!(format!("{first:?}"), "[[[19, 21, 52], [84, 86, 6, 23, 5]], [[58, 77, 24, 2], [85, 18, 3]]]");
}

/// `build_blending_indices` of Megatron-LM.
fn build_blending_indices(weights: &[f64], size: usize) -> Vec<usize> {
    let mut current_samples = vec![0u64; weights.len()];
    let mut dataset_index = Vec::new();
    for sample_idx in 0..size {
        let sample_idx_double = (sample_idx as f64).max(1.0);
        let error = |i: usize| weights[i] * sample_idx_double - current_samples[i] as f64;
        let mut max_error_index = 0;
        for dataset_idx in 1..weights.len() {
            if error(dataset_idx) > error(max_error_index) {
                max_error_index = dataset_idx;
            }
        }
        dataset_index.push(max_error_index);
        current_samples[max_error_index] += 1;
    }
    dataset_index
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn records_are_in_the_order_of_megatron(given in prop::collection::vec(1u32..1000, 3)) {
        let given: Vec<f64> = given.into_iter().map(f64::from).collect();
        let sum: f64 = given.iter().sum();
        let names = ["a", "b", "c"].into_iter().zip(given.clone());
        let options = MixtureOptions {
            unit: MixtureUnit::Records,
            epoch: Some(MixtureEpoch::Steps(300)),
            ..MixtureOptions::new(names)
        };
        let plan = plan(options, one_by_one(1), 1).unwrap();
        let start = plan.start_of(None, 0).unwrap();
        let found: Vec<usize> =
            epoch(&plan, &start).iter().map(|(step, _)| number_of(records(step)[0][0])).collect();
        let normalized: Vec<f64> = given.iter().map(|weight| weight / sum).collect();
        prop_assert_eq!(found, build_blending_indices(&normalized, 300));
    }

    /// At every unit, no source is ahead by more than one unit or behind by more than one and a half.
    #[test]
    fn shares_are_exact_at_every_unit(given in prop::collection::vec(1u32..100, 3), unit in 0usize..3) {
        let unit = [MixtureUnit::Tokens, MixtureUnit::Records, MixtureUnit::Epochs][unit];
        let names = ["a", "b", "c"].into_iter().zip(given.iter().copied().map(f64::from));
        let options = MixtureOptions {
            unit,
            epoch: Some(MixtureEpoch::Steps(400)),
            ..MixtureOptions::new(names)
        };
        for batching in [Batching::from(one_by_one(1)), PackOptions::new(16, 1).into()] {
            let plan = plan(options.clone(), batching, 1).unwrap();
            let largest = if unit == MixtureUnit::Records { 1.0 } else { 19.0 };
            for (_, after) in epoch(&plan, &plan.start_of(None, 0).unwrap()) {
                let total: u64 = after.sources.iter().map(|source| source.used).sum();
                for (source, totals) in after.sources.iter().zip(plan.totals(&after)) {
                    let ahead = source.used as f64 - totals.requested * total as f64;
                    prop_assert!(-1.5 * largest - 1e-6 <= ahead && ahead <= largest + 1e-6, "{ahead}");
                }
            }
        }
    }

    /// A state that was stored and read again continues with the same steps, also of later epochs.
    #[test]
    fn a_stored_state_continues(stop in 0usize..30, exhausted in 0usize..3, batching in 0..4) {
        let exhausted =
            [Exhausted::Never, Exhausted::FirstExhausted, Exhausted::AllExhausted][exhausted];
        let options = MixtureOptions {
            exhausted,
            epoch: (exhausted == Exhausted::Never).then_some(MixtureEpoch::Tokens(600)),
            schedule: vec![(5, vec![("b".to_owned(), 1.0), ("c".to_owned(), 0.5)])],
            ..weights()
        };
        let batching: Batching = match batching {
            0 => one_by_one(3).into(),
            1 => BatchOptions::new(BatchSize::MaxTokens(40)).into(),
            2 => BatchOptions { bucket: BucketBy::None, ..BatchOptions::new(BatchSize::MaxTokensUnpadded(40)) }.into(),
            _ => PackOptions::new(16, 2).into(),
        };
        let run = |from: &MixtureState, plan: &MixturePlan| {
            let mut at = from.clone();
            let mut found = Vec::new();
            for _ in 0..40 {
                match plan.advance(&mut at).unwrap() {
                    Some(step) => found.push((step, at.clone())),
                    None => at = plan.start_of(Some(&at), at.plan.epoch + 1).unwrap(),
                }
            }
            found
        };
        let first = plan(options.clone(), batching.clone(), 2).unwrap();
        let whole = run(&first.start_of(None, 0).unwrap(), &first);
        let stop = stop.min(whole.len() - 2);
        let stored = serde_json::to_string(&whole[stop].1).unwrap();
        let second = plan(options, batching, 2).unwrap();
        let resumed = second.resumed(&serde_json::from_str(&stored).unwrap()).unwrap();
        let rest = run(&resumed, &second);
        let expected = &whole[stop + 1..];
        prop_assert_eq!(&rest[..expected.len()], expected);
        // The start of an epoch does not depend on where the search for it starts.
        let epoch = resumed.plan.epoch;
        let start = second.start_of(None, epoch).unwrap();
        prop_assert_eq!(&second.start_of(Some(&resumed), epoch).unwrap(), &start);
        let next = second.start_of(Some(&resumed), epoch + 1).unwrap();
        prop_assert_eq!(first.start_of(None, epoch + 1).unwrap(), next);
    }
}

#[test]
fn epochs_end_with_their_sources() {
    for (exhausted, sources) in [(Exhausted::FirstExhausted, 1), (Exhausted::AllExhausted, 3)] {
        let options = MixtureOptions { exhausted, epoch: None, ..weights() };
        let plan = plan(options, one_by_one(3), 2).unwrap();
        let mut start = plan.start_of(None, 0).unwrap();
        for number in 0..3 {
            let steps = epoch(&plan, &start);
            let ended = |state: &MixtureState| state.sources.iter().filter(|s| s.has_ended).count();
            let (last, before) = (&steps[steps.len() - 1].1, &steps[steps.len() - 2].1);
            assert!(ended(last) >= sources && ended(before) < sources);
            assert_eq!(plan.steps_of(&start).unwrap(), steps.len() as u64);
            assert!(steps.iter().all(|(step, _)| records(step).iter().all(|batch| batch.len() == 3)));
            start = plan.start_of(Some(last), number + 1).unwrap();
            assert!(start.sources.iter().all(|source| source.cursor == Default::default()));
        }
    }
}

#[test]
fn every_record_occurs_once_per_pass() {
    for batching in [
        Batching::from(one_by_one(3)),
        BatchOptions::new(BatchSize::MaxTokens(40)).into(),
        PackOptions::new(64, 1).into(),
    ] {
        let options = MixtureOptions { exhausted: Exhausted::AllExhausted, epoch: None, ..weights() };
        let plan = plan(options, batching, 1).unwrap();
        let mut counts = vec![0; 87];
        for (step, _) in epoch(&plan, &plan.start_of(None, 0).unwrap()) {
            records(&step).concat().into_iter().for_each(|record| counts[record as usize] += 1);
        }
        for of_source in [&counts[..30], &counts[30..80], &counts[80..]] {
            let (least, most) = (of_source.iter().min().unwrap(), of_source.iter().max().unwrap());
            assert!(*least >= 1 && most - least <= 1, "{of_source:?}");
        }
    }
}

#[test]
fn a_thousand_sources_take_part() {
    let names: Vec<String> = (0..1000).map(|i| format!("s{i}")).collect();
    let sources = names.iter().enumerate().map(|(i, name)| source(name, vec![1 + i as u64 % 7; 3])).collect();
    let options = MixtureOptions {
        unit: MixtureUnit::Records,
        epoch: Some(MixtureEpoch::Steps(500)),
        ..MixtureOptions::new(names.iter().map(|name| (name.as_str(), 1.0)))
    };
    let mixture = Mixture::new(sources, ClassNames::Equal, options).unwrap();
    let plan = mixture.plan(&one_by_one(4).into(), 7, 1).unwrap();
    let steps = epoch(&plan, &plan.start_of(None, 0).unwrap());
    assert!(steps[499].1.sources.iter().all(|source| source.used == 2));
}

/// Weights whose sum, or whose product with the size of a source, exceeds the range of numbers.
#[test]
fn shares_of_huge_and_tiny_weights_are_exact() {
    for (unit, factor) in
        [(MixtureUnit::Records, 1e308), (MixtureUnit::Epochs, 1e308), (MixtureUnit::Records, 5e-324)]
    {
        let of = |factor: f64| {
            let options = MixtureOptions {
                unit,
                epoch: Some(MixtureEpoch::Steps(60)),
                ..MixtureOptions::new([("a", factor), ("b", factor), ("c", factor)])
            };
            let plan = plan(options, one_by_one(1), 1).unwrap();
            let steps = epoch(&plan, &plan.start_of(None, 0).unwrap());
            plan.totals(&steps[59].1)
        };
        for (found, expected) in of(factor).into_iter().zip(of(1.0)) {
            assert!((found.requested - expected.requested).abs() < 1e-9, "{found:?} {expected:?}");
            assert!((found.realized - found.requested).abs() < 0.05, "{found:?}");
        }
    }
}

/// Every step counts what it delivers, also inside a window.
#[test]
fn passes_over_packed_documents_are_counted_by_tokens() {
    let plan = plan(weights(), PackOptions::new(16, 1), 2).unwrap();
    let all: Vec<u64> = three()
        .iter()
        .map(|(_, source)| {
            let runs = source.lengths().runs().unwrap().map(Result::unwrap);
            runs.map(|run| run.length * run.count).sum()
        })
        .collect();
    let mut delivered = [0; 3];
    for (step, after) in epoch(&plan, &plan.start_of(None, 0).unwrap()) {
        for batch in step {
            let BatchRows::Packed { rows, .. } = batch else { panic!("{batch:?}") };
            rows.iter().for_each(|row| delivered[number_of(row.pieces[0].document)] += row.tokens());
        }
        for ((totals, delivered), all) in plan.totals(&after).iter().zip(delivered).zip(&all) {
            assert!((totals.epochs - delivered as f64 / *all as f64).abs() < 1e-9, "{totals:?}");
        }
    }
}

#[test]
fn weights_change_by_the_schedule_and_on_request() {
    let only = |name: &str| vec![(name.to_owned(), 1.0)];
    let options = MixtureOptions { schedule: vec![(3, only("c")), (5, only("b"))], ..weights() };
    let scheduled = plan(options.clone(), one_by_one(2), 2).unwrap();
    let steps = epoch(&scheduled, &scheduled.start_of(None, 0).unwrap());
    let numbers: Vec<Vec<usize>> =
        steps.iter().map(|(step, _)| records(step).concat().into_iter().map(number_of).collect()).collect();
    assert!(numbers[3..5].concat().iter().all(|&number| number == 2));
    assert!(numbers[5..].concat().iter().all(|&number| number == 1));
    let totals = scheduled.totals(&steps[4].1);
    let shares: Vec<_> = totals.iter().map(|source| (source.requested, source.realized)).collect();
    assert_eq!(shares, [(0.0, 0.0), (0.0, 0.0), (1.0, 1.0)]);

    let state = &steps[7].1;
    let other = |on_change| {
        let options = MixtureOptions { on_change, ..weights() };
        plan(options, one_by_one(2), 2).unwrap().resumed(state)
    };
    let error = other(OnChange::Refuse).unwrap_err();
    assert!(error.to_string().contains("other weights"), "{error}");
    assert!(error.remedy().is_some_and(|help| help.contains("on_change")));
    let resumed = other(OnChange::Continue).unwrap();
    let positions = |state: &MixtureState| {
        state.sources.iter().map(|source| (source.epoch, source.cursor)).collect::<Vec<_>>()
    };
    assert_eq!(positions(&resumed), positions(state));
    assert!(resumed.sources.iter().all(|source| source.used == 0));
    assert_eq!((resumed.steps, resumed.plan.step), (state.steps, state.plan.step));
}

#[test]
fn bad_input_is_refused_by_name() {
    let weights_of = |pairs: &[(&str, f64)]| MixtureOptions {
        epoch: Some(MixtureEpoch::Steps(9)),
        ..MixtureOptions::new(pairs.iter().copied())
    };
    let all = [("a", 1.0), ("b", 1.0), ("c", 1.0)];
    let of = |options: MixtureOptions| Mixture::new(three(), ClassNames::Equal, options).map(drop);
    let with = |name: &str, weight: f64| {
        of(weights_of(&all.map(|(other, w)| (other, if other == name { weight } else { w }))))
    };
    let empty = vec![source("a", vec![3]), source("none", vec![])];
    let scheduled = |steps: &[u64]| {
        let schedule = steps.iter().map(|&step| (step, vec![("a".to_owned(), 1.0)])).collect();
        of(MixtureOptions { schedule, ..weights_of(&all) })
    };
    for (result, message) in [
        (with("b", -1.0), "the weight of \"b\" is -1: expected a finite number from 0"),
        (with("b", f64::NAN), "the weight of \"b\" is NaN"),
        (with("c", f64::INFINITY), "the weight of \"c\" is inf"),
        (of(weights_of(&[("a", 0.0), ("b", 0.0), ("c", 0.0)])), "all weights from step 0 on are 0"),
        (of(weights_of(&[("a", 1.0), ("b", 1.0)])), "the dataset \"c\" has no weight"),
        (of(weights_of(&[("a", 1.0), ("b", 1.0), ("c", 1.0), ("d", 1.0)])), "there is a weight for \"d\""),
        (
            of(weights_of(&[("a", 1.0), ("a", 1.0), ("b", 1.0), ("c", 1.0)])),
            "there are two weights for \"a\"",
        ),
        (of(MixtureOptions { epoch: None, ..weights_of(&all) }), "the length of an epoch is not set"),
        (
            of(MixtureOptions { exhausted: Exhausted::AllExhausted, ..weights_of(&all) }),
            "`epoch_steps` does not apply",
        ),
        (
            of(MixtureOptions { epoch: Some(MixtureEpoch::Tokens(0)), ..weights_of(&all) }),
            "`epoch_tokens` is 0, not between 1 and",
        ),
        (scheduled(&[5, 5]), "not strictly ascending"),
        (scheduled(&[0, 4, 3]), "not strictly ascending"),
        (scheduled(&[4, 0]), "not strictly ascending"),
        (scheduled(&[0, 0]), "not strictly ascending"),
        (
            Mixture::new(empty, ClassNames::Equal, weights_of(&[("a", 1.0), ("none", 1.0)])).map(drop),
            "the dataset \"none\" has no records",
        ),
        (
            Mixture::new(
                vec![source("a", vec![3]), source("a", vec![3])],
                ClassNames::Equal,
                weights_of(&[("a", 1.0)]),
            )
            .map(drop),
            "there are two datasets of the name \"a\"",
        ),
    ] {
        let error = result.unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
    }
    assert!(scheduled(&[0, 4]).is_ok());
}

#[test]
fn options_that_no_source_can_follow_are_refused() {
    let budget =
        |oversize, tokens| BatchOptions { oversize, ..BatchOptions::new(BatchSize::MaxTokens(tokens)) };
    let of = |mix, batching: Batching| plan(MixtureOptions { mix, ..weights() }, batching, 2).map(drop);
    for (result, message) in [
        (of(None, budget(Oversize::Error, 18).into()), "the dataset \"a\": "),
        (of(Some(Mix::Record), budget(Oversize::Drop, 30).into()), "`mix \"record\"` does not apply"),
        (of(Some(Mix::Batch), PackOptions::new(8, 2).into()), "`mix \"batch\"` does not apply"),
    ] {
        let error = result.unwrap_err();
        assert!(error.to_string().contains(message) && error.remedy().is_some(), "{error}");
    }
    let long = vec![source("a", vec![3]), source("long", vec![90, 95])];
    let options = MixtureOptions {
        epoch: Some(MixtureEpoch::Steps(9)),
        ..MixtureOptions::new([("a", 1.0), ("long", 1.0)])
    };
    let mixture = Mixture::new(long, ClassNames::Equal, options).unwrap();
    let error = mixture.plan(&budget(Oversize::Drop, 60).into(), 7, 1).unwrap_err();
    assert!(error.to_string().contains("the dataset \"long\" fills no micro-batch"), "{error}");
}

#[test]
fn damaged_states_are_refused() {
    let plan = plan(weights(), one_by_one(2), 2).unwrap();
    let state = plan.start_of(None, 0).unwrap();
    let damage = |change: fn(&mut MixtureState)| {
        let mut state = state.clone();
        change(&mut state);
        plan.resumed(&state).unwrap_err().to_string()
    };
    assert!(damage(|state| state.sources[1].cursor.document = 50).contains("number 50 of the 50"));
    assert!(damage(|state| state.start[0].cursor.row = 1).contains("points at"));
    assert!(damage(|state| state.sources.truncate(2)).contains("other sources"));
    assert!(damage(|state| state.plan.step = 5).contains("other sources"));
    assert!(damage(|state| state.plan.seed = 1).contains("seed"));
    let far = plan.start_of(None, 1 << 40).unwrap_err();
    assert!(far.to_string().contains("epochs after"), "{far}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// The prediction equals a count over all rows of the steps.
    #[test]
    fn an_epoch_is_predicted(exhausted in 0usize..3, batching in 0..4, micro_batches in 1u64..4) {
        let exhausted =
            [Exhausted::Never, Exhausted::FirstExhausted, Exhausted::AllExhausted][exhausted];
        let epoch_end = (exhausted == Exhausted::Never).then_some(MixtureEpoch::Tokens(900));
        let options = MixtureOptions { exhausted, epoch: epoch_end, ..weights() };
        let batching: Batching = match batching {
            0 => one_by_one(3).into(),
            1 => BatchOptions::new(BatchSize::MaxTokens(40)).into(),
            2 => BatchOptions { pad_to_multiple_of: 8, ..one_by_one(4) }.into(),
            _ => PackOptions::new(16, 2).into(),
        };
        let plan = plan(options, batching, micro_batches).unwrap();
        let lengths: Vec<u64> = three()
            .iter()
            .flat_map(|(_, source)| (0..source.lengths().records()).map(|at| source.lengths().length_of(at).unwrap()))
            .collect();
        let steps = epoch(&plan, &plan.start_of(None, 0).unwrap());
        let mut expected = [[0u64; 3]; 3];
        for batch in steps.iter().flat_map(|(step, _)| step) {
            match batch {
                BatchRows::Records { batch, .. } => {
                    for &record in &batch.records {
                        let of_source = &mut expected[number_of(record)];
                        for (sum, amount) in of_source.iter_mut().zip([1, lengths[record as usize], batch.width]) {
                            *sum += amount;
                        }
                    }
                }
                BatchRows::Packed { rows, .. } => {
                    for row in rows {
                        let of_source = &mut expected[number_of(row.pieces[0].document)];
                        let tokens = row.pieces.iter().map(|piece| piece.len).sum();
                        of_source.iter_mut().zip([1, tokens, 16]).for_each(|(sum, amount)| *sum += amount);
                    }
                }
            }
        }
        let ends = [30, 80, 87];
        let predict = |pads| predict(&plan, micro_batches, &ends, pads, 16).unwrap().unwrap();
        let found = predict(true);
        prop_assert_eq!(found.steps, steps.len() as u64);
        prop_assert_eq!(found.batches, steps.len() as u64 * micro_batches);
        let amounts = |delivered: Delivered| [delivered.rows, delivered.tokens, delivered.padded_tokens];
        let of_sources: Vec<_> = found.sources.iter().map(|source| amounts(source.delivered)).collect();
        prop_assert_eq!(of_sources, expected.to_vec());
        let sum = |at: usize| expected.iter().map(|amounts| amounts[at]).sum::<u64>();
        prop_assert_eq!(amounts(found.delivered()), [sum(0), sum(1), sum(2)]);
        let unpadded = predict(false).delivered();
        prop_assert_eq!((unpadded.padded_tokens, unpadded.padding()), (unpadded.tokens, 0.0));
    }
}
