//! Packed epochs: every token once, resume anywhere, full rows.

use std::collections::BTreeMap;

use dsconvert_dataset::error::ErrorKind;
use dsconvert_dataset::packing::{Piece, best_fit_rows};
use proptest::prelude::*;

use super::super::{Last, Lengths, LengthsInMemory, Runs, Shuffle};
use super::*;

const SEED: u64 = 3;

fn plan(lengths: &[u64], options: &PackOptions, micro_batches: u64) -> PackPlan<LengthsInMemory> {
    let lengths = LengthsInMemory::new(lengths.to_vec());
    PackPlan::new("data", lengths, options.clone(), SEED, micro_batches).unwrap()
}

fn steps(plan: &PackPlan<LengthsInMemory>, from: &PackState) -> Vec<(PackedStep, PackState)> {
    plan.steps(from).unwrap().map(Result::unwrap).collect()
}

fn any_lengths() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(prop_oneof![2 => 0u64..20, 1 => 0u64..150], 0..150)
}

fn any_options() -> impl Strategy<Value = PackOptions> {
    let packing = prop_oneof![Just(Packing::Concat), Just(Packing::BestFit)];
    let shuffle =
        prop_oneof![Just(Shuffle::None), Just(Shuffle::Full), Just(Shuffle::Block { records: 7, group: 2 }),];
    let last = prop_oneof![Just(Last::Short), Just(Last::Drop), Just(Last::Pad), Just(Last::Wrap)];
    (1u64..50, packing, prop::option::weighted(0.8, 1u64..40), 1u64..5, shuffle, last).prop_map(
        |(seq_len, packing, window, batch_size, shuffle, last)| PackOptions {
            seq_len,
            budget: None,
            packing,
            window,
            batch_size,
            shuffle,
            last,
        },
    )
}

proptest! {
    #[test]
    fn every_token_occurs_once(lengths in any_lengths(), options in any_options(), micro_batches in 1u64..4) {
        let plan = plan(&lengths, &options, micro_batches);
        let steps = steps(&plan, &plan.start(2));
        let rows = plan.rows(2).unwrap();
        prop_assert_eq!(steps.len() as u64, plan.steps_of(rows));
        let mut pieces = BTreeMap::<(u64, u64), Piece>::new();
        let (mut found, mut repeated) = (0, 0);
        for (step, _) in &steps {
            let own = step.rows.len() - step.repeated as usize;
            repeated += step.repeated;
            found += own as u64;
            for row in &step.rows {
                prop_assert!(row.tokens() <= options.seq_len && row.tokens() > 0);
            }
            for &piece in step.rows[..own].iter().flat_map(|row| &row.pieces) {
                prop_assert!(pieces.insert((piece.document, piece.start), piece).is_none());
            }
            let shared: Vec<&Row> = (0..micro_batches).flat_map(|i| step.micro_batch(i)).collect();
            prop_assert!(shared.into_iter().eq(&step.rows));
            for index in 0..micro_batches {
                let rows = step.micro_batch(index).len() as u64 + step.filler_rows(index);
                prop_assert!(rows <= options.batch_size);
                prop_assert!(rows == options.batch_size || options.last == Last::Short);
            }
        }
        let per_step = options.batch_size * micro_batches;
        match options.last {
            Last::Drop => prop_assert_eq!(found, rows / per_step * per_step),
            Last::Wrap => prop_assert_eq!((found, repeated), (rows, steps.len() as u64 * per_step - rows)),
            Last::Short | Last::Pad => prop_assert_eq!(found, rows),
        }
        if options.last != Last::Drop {
            let mut seen = vec![0; lengths.len()];
            for ((document, start), piece) in pieces {
                prop_assert_eq!(start, seen[document as usize]);
                seen[document as usize] += piece.len;
                prop_assert_eq!(piece.ends, seen[document as usize] == lengths[document as usize]);
            }
            prop_assert_eq!(seen, lengths);
        }
    }

    #[test]
    fn resuming_anywhere_yields_the_same_steps(
        lengths in any_lengths(), options in any_options(), micro_batches in 1u64..4, stop: prop::sample::Index,
    ) {
        let all = {
            let plan = plan(&lengths, &options, micro_batches);
            steps(&plan, &plan.start(1))
        };
        if all.is_empty() {
            return Ok(());
        }
        let stop = stop.index(all.len());
        let saved = serde_json::to_string(&all[stop].1).unwrap();
        let plan = plan(&lengths, &options, micro_batches);
        let rest = steps(&plan, &serde_json::from_str(&saved).unwrap());
        prop_assert_eq!(&rest, &all[stop + 1..]);
    }

    #[test]
    fn a_forged_state_never_panics(
        lengths in any_lengths(), options in any_options(), document in 0u64..200, token: u64, row: u64,
    ) {
        let plan = plan(&lengths, &options, 1);
        let start = plan.start(0);
        let cursor = PackCursor { document, token, row };
        let step = u64::from(cursor != start.cursor);
        let state = PackState { cursor, plan: PlanState { step, ..start.plan } };
        if let Ok(steps) = plan.steps(&state) {
            for step in steps.take(100) {
                let (step, _) = step.unwrap();
                prop_assert!(step.rows.iter().all(|row| row.tokens() <= options.seq_len));
            }
        }
    }
}

#[test]
fn best_fit_fills_rows_and_concat_fills_all_but_one() {
    // Lengths of 1 to 1500, many short and few long.
    let lengths: Vec<u64> =
        (0..20_000u64).map(|i| 1 + (i * 7919 % 100) * (i * 104_729 % 15) + i % 100).collect();
    let tokens: u64 = lengths.iter().sum();
    for (packing, least) in [(Packing::Concat, 0.999), (Packing::BestFit, 0.99)] {
        let plan = plan(&lengths, &PackOptions { packing, ..PackOptions::new(2048, 8) }, 2);
        let fill = tokens as f64 / (plan.rows(0).unwrap() * 2048) as f64;
        assert!(fill > least, "{packing:?}: {fill}");
    }
}

#[test]
fn invalid_options_and_states_are_refused() {
    let lengths = || LengthsInMemory::new(vec![5, 6]);
    let good = PackOptions::new(8, 2);
    for (options, what) in [
        (PackOptions { seq_len: 0, ..good.clone() }, "seq_len"),
        (PackOptions { seq_len: 1 << 31, ..good.clone() }, "seq_len"),
        (PackOptions { batch_size: 0, ..good.clone() }, "batch_size"),
        (PackOptions { batch_size: 1 << 30, ..good.clone() }, "batch_size"),
        (PackOptions { window: Some(0), ..good.clone() }, "window"),
        (PackOptions { shuffle: Shuffle::Block { records: 0, group: 1 }, ..good.clone() }, "block"),
    ] {
        let error = PackPlan::new("data", lengths(), options, SEED, 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(error.to_string().contains(what), "{error}");
    }
    let plan = |seed| PackPlan::new("data", lengths(), good.clone(), seed, 1).unwrap();
    let saved = plan(1).start(0);
    assert_eq!(plan(2).steps(&saved).err().unwrap().kind(), ErrorKind::Usage);
    let at = |step, document, row| {
        let cursor = PackCursor { document, token: 0, row };
        PackState { plan: PlanState { step, ..saved.plan.clone() }, cursor }
    };
    for damaged in [at(1, 3, 0), at(12, 0, 1), at(u64::MAX, 0, 1), at(0, 0, 1), at(0, 1, 0), at(1, 0, 0)] {
        let error = plan(1).steps(&damaged).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Usage, "{damaged:?}");
        assert!(error.remedy().unwrap().contains("restore another one"), "{damaged:?}");
    }
    assert_eq!(plan(1).steps(&at(1, 0, 1)).unwrap().count(), 1);
    // No position in a document or window is too large.
    let far = PackCursor { document: 1, token: u64::MAX, row: u64::MAX };
    assert_eq!(plan(1).steps(&PackState { cursor: far, ..at(1, 0, 0) }).unwrap().count(), 0);
}

/// Lengths of which one cannot be read. Counts those that were requested.
#[derive(Debug)]
struct Damaged {
    lengths: LengthsInMemory,
    damaged: u64,
    requested: std::sync::atomic::AtomicU64,
}

impl Lengths for Damaged {
    fn records(&self) -> u64 {
        self.lengths.records()
    }

    fn record_at(&self, rank: u64) -> Result<u64> {
        self.lengths.record_at(rank)
    }

    fn length_of(&self, record: u64) -> Result<u64> {
        self.requested.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        match record == self.damaged {
            true => Err(Error::corrupt("damaged").at_row(record)),
            false => self.lengths.length_of(record),
        }
    }

    fn runs(&self) -> Result<Runs<'_>> {
        self.lengths.runs()
    }
}

#[test]
fn lengths_are_looked_up_in_advance_without_effect() {
    for packing in [Packing::Concat, Packing::BestFit] {
        for (damaged, window) in [(0, 1), (40, 5), (41, 20), (63, 64), (64, 64), (199, 100)] {
            let lengths = LengthsInMemory::new(vec![8; 200]);
            let lengths = Damaged { lengths, damaged, requested: 0.into() };
            let shuffle = Shuffle::None;
            let options = PackOptions { packing, window: Some(window), shuffle, ..PackOptions::new(8, 1) };
            let plan = PackPlan::new("data", lengths, options, SEED, 1).unwrap();
            let mut steps = plan.steps(&plan.start(0)).unwrap();
            // The rows of the windows before that of the record.
            for _ in 0..damaged / window * window {
                steps.next().unwrap().unwrap();
            }
            let error = steps.next().unwrap().unwrap_err();
            assert_eq!(error.place().row, Some(damaged), "{packing:?} {window}");
            let requested = plan.lengths.requested.load(std::sync::atomic::Ordering::Relaxed);
            assert!(requested <= (damaged / window + 1) * (16 + 2 * window), "{requested} {window}");
        }
    }
}

/// Returns a digest of the pieces of all rows.
fn rows_digest(steps: &[(PackedStep, PackState)]) -> String {
    let mut digest = Xxh3::new();
    for piece in steps.iter().flat_map(|(step, _)| &step.rows).flat_map(|row| &row.pieces) {
        for number in [piece.document, piece.start, piece.len] {
            digest.update(&number.to_le_bytes());
        }
    }
    format!("{:032x}", digest.digest128())
}

/// The digests are those of the first version with windows of a number of documents.
#[test]
fn windows_of_a_number_of_documents_never_change() {
    let lengths: Vec<u64> = (0..20_000u64).map(|i| 1 + i * 7919 % 100).collect();
    let plan_of = |window| plan(&lengths, &PackOptions { window, ..PackOptions::new(2048, 4) }, 2);
    let (plan, default) = (plan_of(Some(4096)), plan_of(None));
    let all = steps(&plan, &plan.start(1));
    assert_eq!((all.len(), rows_digest(&all[30..])), (62, "4bc980d294eaee7a415058ed992b8e5d".to_owned()));
    assert_eq!(plan.rows(1).unwrap(), 496);
    assert_eq!(rows_digest(&steps(&plan, &plan.start(2))), "d9c3e8f8b7f96c561ae5e92f339dd005");
    // The states before the end of a window and after it continue exactly.
    for at in [31, 47, 55] {
        assert_eq!(steps(&plan, &all[at].1), all[at + 1..]);
    }
    // The default has larger windows, and its states belong to no number of documents.
    assert_ne!(rows_digest(&steps(&default, &default.start(2))), "d9c3e8f8b7f96c561ae5e92f339dd005");
    let error = plan.steps(&default.start(2)).err().unwrap();
    assert!(error.to_string().contains("options"), "{error}");
    // The rows of `concat` are full with any windows, so its default is the same.
    let concat = |window| PackOptions { packing: Packing::Concat, window, ..PackOptions::new(2048, 4) };
    let state = |window| {
        super::PackPlan::new("", LengthsInMemory::new(vec![9]), concat(window), 1, 1).unwrap().start(0)
    };
    assert_eq!(state(None), state(Some(4096)));
}

#[test]
fn default_windows_are_nearly_as_good_as_packing_everything() {
    for (mean, seq_len, documents) in [
        (20, 512, 30_000),
        (20, 32_768, 460_000),
        (200, 2_048, 30_000),
        (200, 131_072, 190_000),
        (2_000, 512, 10_000),
        (2_000, 131_072, 20_000),
    ] {
        // Lengths with a long tail, from a random permutation of evenly spread quantiles.
        let length = |i: u64| {
            let quantile = ((i * 1_000_003 % documents) as f64 + 0.5) / documents as f64;
            ((-quantile.ln()).powf(1.5) * mean as f64 / 1.33) as u64 + 1
        };
        let lengths: Vec<u64> = (0..documents).map(length).collect();
        let tokens: u64 = lengths.iter().sum();
        let mut rests: Vec<u64> =
            lengths.iter().map(|length| length % seq_len).filter(|rest| *rest > 0).collect();
        rests.sort_unstable_by_key(|&rest| std::cmp::Reverse(rest));
        let runs = rests.chunk_by(|a, b| a == b).map(|same| (same[0], same.len() as u64));
        let best = lengths.iter().map(|length| length / seq_len).sum::<u64>() + best_fit_rows(runs, seq_len);
        let padding = |rows: u64| 1.0 - tokens as f64 / (rows * seq_len) as f64;
        let rows = plan(&lengths, &PackOptions::new(seq_len, 1), 1).rows(0).unwrap();
        let more = padding(rows) - padding(best);
        assert!((0.0..0.005).contains(&more), "{mean}, {seq_len}: {more} more than {}", padding(best));
    }
}
