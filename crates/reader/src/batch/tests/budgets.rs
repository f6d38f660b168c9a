//! Two budgets: tokens, and a column of the record index.

use dsconvert_dataset::error::ErrorKind;
use dsconvert_dataset::packing::{Packing, Row};
use proptest::prelude::*;

use super::*;
use crate::split_mix;

/// Records with a second number.
#[derive(Debug, Clone)]
struct Counted {
    lengths: LengthsInMemory,
    patches: Vec<u64>,
}

impl Counted {
    fn new(records: &[(u64, u64)]) -> Self {
        let (lengths, patches) = records.iter().copied().unzip();
        Self { lengths: LengthsInMemory::new(lengths), patches }
    }
}

impl Lengths for Counted {
    fn records(&self) -> u64 {
        self.lengths.records()
    }

    fn record_at(&self, rank: u64) -> Result<u64, Error> {
        self.lengths.record_at(rank)
    }

    fn length_of(&self, record: u64) -> Result<u64, Error> {
        self.lengths.length_of(record)
    }

    fn column_of(&self, record: u64, name: &str) -> Result<Option<u64>, Error> {
        Ok((name == "patches").then(|| self.patches[record as usize]))
    }

    fn runs(&self) -> Result<Runs<'_>, Error> {
        self.lengths.runs()
    }
}

fn patches(max: u64) -> Option<ColumnBudget> {
    Some(ColumnBudget { column: "patches".to_owned(), max })
}

/// Lengths up to 300, and patches up to 500, of which many records have none.
fn any_records() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let length = prop_oneof![3 => 0u64..60, 1 => 0u64..300];
    let patches = prop_oneof![2 => Just(0u64), 2 => 1u64..100, 1 => 0u64..500];
    prop::collection::vec((length, patches), 0..300)
}

/// Options with two budgets that are compatible.
fn any_budgets() -> impl Strategy<Value = BatchOptions> {
    (any_options(), 20u64..900)
        .prop_map(|(options, max)| BatchOptions { budget: patches(max), ..options })
        .prop_filter("options that contradict each other", |options| options.check().is_ok())
}

fn plan_of(
    records: &[(u64, u64)],
    options: &BatchOptions,
    micro_batches: u64,
) -> Result<BatchPlan<Counted>, Error> {
    BatchPlan::new("data", Counted::new(records), options.clone(), SEED, micro_batches)
}

fn batches_of(plan: &BatchPlan<Counted>, epoch: u64) -> Vec<MicroBatch> {
    let from = Position { epoch, step: 0 };
    plan.batches(Layout::SINGLE, from).unwrap().map(Result::unwrap).collect()
}

proptest! {
    #[test]
    fn both_budgets_hold_and_every_record_occurs_once(
        records in any_records(), options in any_budgets(), micro_batches in 1u64..5, epoch in 0u64..3,
    ) {
        let (cap, max) = (options.cap().unwrap(), options.budget.as_ref().unwrap().max);
        // Brute force: the records that fit on their own.
        let over = records.iter().filter(|&&(length, patches)| length > cap || patches > max).count() as u64;
        let Ok(plan) = plan_of(&records, &options, micro_batches) else {
            prop_assert!(options.oversize == Oversize::Error && over > 0);
            return Ok(());
        };
        prop_assert!(options.oversize != Oversize::Error || over == 0);
        let batches = batches_of(&plan, epoch);
        for batch in &batches {
            let stored: Vec<u64> = batch.records.iter().map(|&r| records[r as usize].0).collect();
            prop_assert_eq!(&stored, &batch.lengths);
            prop_assert!(stored.iter().all(|&length| length <= batch.width));
            let held = match options.size {
                BatchSize::MaxTokens(_) => batch.padded_tokens(),
                _ => batch.tokens(),
            };
            let patches: u64 = batch.records.iter().map(|&r| records[r as usize].1).sum();
            let is_alone = options.oversize == Oversize::Alone && batch.rows() == 1;
            prop_assert!((held <= cap && patches <= max) || is_alone, "{held} {patches} {batch:?}");
        }
        let counts = plan.counts(epoch);
        let mut found = records_of(&batches);
        prop_assert_eq!((counts.oversize, counts.delivered), (over, found.len() as u64));
        found.dedup();
        let dropped = counts.dropped + if options.oversize == Oversize::Drop { over } else { 0 };
        prop_assert_eq!(found.len() as u64 + dropped, records.len() as u64);
    }

    #[test]
    fn resuming_anywhere_with_other_ranks_yields_the_same_batches(
        records in any_records(), options in any_budgets(), (first, second) in (1u64..4, 1u64..4),
    ) {
        let micro_batches = first * second;
        let Ok(plan) = plan_of(&records, &options, micro_batches) else { return Ok(()) };
        let all = batches_of(&plan, 1);
        for step in 0..=plan.steps() {
            let saved = serde_json::to_string(&plan.state(Position { epoch: 1, step }).unwrap()).unwrap();
            let after = plan_of(&records, &options, micro_batches).unwrap();
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
            prop_assert_eq!(&found, &all);
        }
    }

    #[test]
    fn packed_rows_keep_both_budgets_and_resume_anywhere(
        records in any_records(), (seq_len, max) in (300u64..700, 500u64..900), window in prop::option::of(1u64..60),
        (batch_size, micro_batches) in (1u64..3, 1u64..4), shuffle in any_shuffle(), last in any_last(),
    ) {
        let options = PackOptions {
            budget: patches(max), window, shuffle, last, ..PackOptions::new(seq_len, batch_size)
        };
        let new = || PackPlan::new("data", Counted::new(&records), options.clone(), SEED, micro_batches).unwrap();
        let plan = new();
        let all: Vec<_> = plan.steps(&plan.start(1)).unwrap().map(Result::unwrap).collect();
        prop_assert_eq!(all.len() as u64, plan.steps_of(plan.rows(1).unwrap()));
        prop_assert!(all.len() as u64 <= plan.max_steps());
        let mut seen = vec![0u64; records.len()];
        for (step, _) in &all {
            let own = step.rows.len() - step.repeated as usize;
            for row in &step.rows {
                let patches: u64 = row.pieces.iter().map(|p| records[p.document as usize].1).sum();
                prop_assert!(row.tokens() <= seq_len && row.tokens() > 0 && patches <= max);
                // Whole documents.
                for piece in &row.pieces {
                    let whole = (0, records[piece.document as usize].0, true);
                    prop_assert_eq!((piece.start, piece.len, piece.ends), whole);
                }
            }
            step.rows[..own].iter().flat_map(|row| &row.pieces).for_each(|p| seen[p.document as usize] += 1);
        }
        for (&times, record) in seen.iter().zip(&records) {
            let may_be_left_out = last == Last::Drop && times == 0;
            prop_assert!(times == u64::from(record.0 > 0) || may_be_left_out);
        }
        for (step, (_, state)) in all.iter().enumerate() {
            let saved = serde_json::to_string(state).unwrap();
            let resumed = new();
            let rest = resumed.steps(&serde_json::from_str(&saved).unwrap()).unwrap().map(Result::unwrap);
            prop_assert!(rest.eq(all[step + 1..].iter().cloned()));
        }
    }
}

#[test]
fn a_budget_that_limits_nothing_changes_no_batch() {
    let lengths: Vec<u64> = (0..2000).map(|i| 1 + i * i % 509).collect();
    let records: Vec<(u64, u64)> = lengths.iter().map(|&length| (length, length / 2)).collect();
    let options = BatchOptions::new(BatchSize::MaxTokens(4096));
    let two = BatchOptions { budget: patches(4096), ..options.clone() };
    let (one, two) = (plan(&lengths, &options, 2).unwrap(), plan_of(&records, &two, 2).unwrap());
    assert_eq!(epoch_of(&one, 3), batches_of(&two, 3));
    // The state of one is none of the other.
    let state = one.state(Position { epoch: 0, step: 1 }).unwrap();
    assert!(two.resume(&state).unwrap_err().to_string().contains("saved for options"));
}

#[test]
fn records_over_one_of_the_budgets_are_refused_by_name() {
    let records = [(10, 20), (300, 0), (10, 901), (10, 900)];
    let options = BatchOptions { budget: patches(900), ..BatchOptions::new(BatchSize::MaxTokens(256)) };
    let error = plan_of(&records, &options, 1).unwrap_err();
    let expected = "2 of 4 records exceed a budget: `max_tokens` allows 256 tokens, and the budget for \"patches\" is 900; \
                    the first has 300 tokens and 0";
    assert!(error.to_string().contains(expected), "{error}");
    assert_eq!(error.remedy().unwrap(), "set `oversize` to \"alone\" or \"drop\", or raise the budget");
    for (oversize, delivered, steps) in [(Oversize::Drop, 2, 2), (Oversize::Alone, 4, 4)] {
        let plan = plan_of(&records, &BatchOptions { oversize, ..options.clone() }, 1).unwrap();
        assert_eq!((plan.counts(0).delivered, plan.counts(0).oversize), (delivered, 2));
        assert_eq!(plan.steps(), steps);
    }
    let packed = PackOptions { budget: patches(900), ..PackOptions::new(256, 1) };
    let error = PackPlan::new("data", Counted::new(&records), packed, SEED, 1).unwrap_err();
    assert!(
        error.to_string().contains("2 of 4 records exceed a budget: `seq_len` allows 256 tokens"),
        "{error}"
    );
}

#[test]
fn budgets_that_do_not_apply_are_refused() {
    let tokens = BatchOptions { budget: patches(9), ..BatchOptions::new(BatchSize::MaxTokens(256)) };
    let of = |bucket| BatchOptions { bucket, ..tokens.clone() };
    for (options, named) in [
        (BatchOptions { budget: patches(0), ..tokens.clone() }, "the budget for \"patches\" is 0"),
        (BatchOptions { budget: patches(9), ..BatchOptions::new(BatchSize::BatchSize(4)) }, "fixed number"),
        (of(BucketBy::Shape), "shape"),
        (of(BucketBy::Length(Boundaries::GEOMETRIC)), "boundaries are lengths"),
        (of(BucketBy::Length(Boundaries::Given(vec![8]))), "boundaries are lengths"),
        (BatchOptions { oversize: Oversize::Truncate, ..tokens.clone() }, "truncate"),
    ] {
        let error = plan_of(&[(1, 1)], &options, 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(error.to_string().contains(named), "{error}");
    }
    let concat = PackOptions { budget: patches(9), packing: Packing::Concat, ..PackOptions::new(256, 1) };
    let error = PackPlan::new("data", Counted::new(&[(1, 1)]), concat, SEED, 1).unwrap_err();
    assert!(error.to_string().contains("documents are cut"), "{error}");
    let other = ColumnBudget { column: "frames".to_owned(), max: 9 };
    let unknown = BatchOptions { budget: Some(other), ..tokens };
    let error = plan_of(&[(1, 1)], &unknown, 1).unwrap_err();
    assert!(error.to_string().contains("no column \"frames\""), "{error}");
}

/// Chats like those that vision-language models are trained on: half of them texts, and half with one to eight photographs of
/// common sizes, at the image limits of Qwen2.5-VL that its users set (1,280 tokens per image).
pub(in crate::batch) fn chats(count: usize) -> Vec<(u64, u64)> {
    let sizes: [(u64, u64); 12] = [
        (480, 640),
        (640, 480),
        (375, 500),
        (500, 333),
        (1080, 1920),
        (768, 1024),
        (3000, 4000),
        (427, 640),
        (683, 1024),
        (224, 224),
        (336, 336),
        (1200, 1600),
    ];
    let images = [1, 1, 1, 1, 2, 2, 3, 4, 5, 6, 7, 8];
    let mut random = 5;
    let mut below = |n: u64| split_mix::next(&mut random) % n;
    let log_normal = |median: f64, sigma: f64, below: &mut dyn FnMut(u64) -> u64| {
        let mut unit = || (below(1 << 53) as f64 + 0.5) / (1u64 << 53) as f64;
        let normal = (-2.0 * unit().ln()).sqrt() * (std::f64::consts::TAU * unit()).cos();
        (median * (sigma * normal).exp()) as u64
    };
    let mut chat = || {
        if below(2) == 0 {
            return (20 + log_normal(400.0, 0.9, &mut below), 0);
        }
        let (mut tokens, mut patches) = (30 + log_normal(150.0, 0.8, &mut below), 0);
        for _ in 0..images[below(12) as usize] {
            let of_image = patches_of(sizes[below(12) as usize], 1280 * 28 * 28);
            patches += of_image;
            // One token for four patches, and two around the image.
            tokens += of_image / 4 + 2;
        }
        (tokens, patches)
    };
    (0..count).map(|_| chat()).collect()
}

/// Returns the number of patches of 14 pixels of an image that is resized as Qwen2.5-VL does it.
fn patches_of((height, width): (u64, u64), max_pixels: u64) -> u64 {
    let (h, w) = (height as f64, width as f64);
    let round = |side: f64| ((side / 28.0).round_ties_even() * 28.0).max(28.0);
    let (mut to_h, mut to_w) = (round(h), round(w));
    if to_h * to_w > max_pixels as f64 {
        let scale = (h * w / max_pixels as f64).sqrt();
        let floor = |side: f64| ((side / scale / 28.0).floor() * 28.0).max(28.0);
        (to_h, to_w) = (floor(h), floor(w));
    }
    (to_h / 14.0 * to_w / 14.0) as u64
}

/// The rows have at least 97% of the tokens that the budgets allow: those of the fewest rows that could hold all tokens and
/// all patches.
#[test]
fn rows_of_texts_and_images_are_full() {
    assert_eq!([patches_of((480, 640), 1 << 30), patches_of((1080, 1920), 1 << 30)], [4 * 391, 4 * 2691]);
    let records: Vec<(u64, u64)> =
        chats(40_000).into_iter().filter(|&(tokens, _)| tokens <= 16_384).collect();
    let sums = records.iter().fold((0, 0), |sums, record| (sums.0 + record.0, sums.1 + record.1));
    for (seq_len, max) in [(16_384, 65_536), (16_384, 49_152), (32_768, 98_304), (16_384, 40_960)] {
        let options = PackOptions { budget: patches(max), ..PackOptions::new(seq_len, 1) };
        let plan = PackPlan::new("data", Counted::new(&records), options, SEED, 1).unwrap();
        let rows = plan.rows(0).unwrap();
        let fewest = sums.0.div_ceil(seq_len).max(sums.1.div_ceil(max));
        let (fill, tokens) = (fewest as f64 / rows as f64, sums.0 as f64 / (rows * seq_len) as f64);
        println!(
            "{seq_len} tokens and {max} patches: {rows} rows, {:.2}% of the fewest; {:.2}% tokens",
            100.0 * fill,
            100.0 * tokens
        );
        assert!(fill >= 0.97, "{seq_len}, {max}: {fill}");
        // Where patches are no bottleneck, this is the share of the row that holds tokens.
        assert!(tokens >= 0.97 || sums.1 * seq_len > sums.0 * max, "{seq_len}, {max}: {tokens}");
    }
}

#[test]
fn rows_do_not_depend_on_who_asks_for_them() {
    let records = chats(3_000);
    let longest = records.iter().map(|r| r.0).max().unwrap();
    let most = records.iter().map(|r| r.1).max().unwrap();
    let options =
        PackOptions { budget: patches(most + 7), window: Some(500), ..PackOptions::new(longest + 9, 2) };
    let plan = |_| PackPlan::new("data", Counted::new(&records), options.clone(), SEED, 2).unwrap();
    let rows = |plan: &PackPlan<Counted>| -> Vec<Row> {
        plan.steps(&plan.start(0)).unwrap().flat_map(|step| step.unwrap().0.rows).collect()
    };
    let (one, other) = (plan(0), plan(1));
    let all = rows(&one);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| rows(&other))).collect();
        threads.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), all));
    });
}
