//! Benchmark of batch planning: `cargo bench --no-default-features --bench batch_plan`.
//!
//! Lengths are synthetic (log-normal, median 250) and in memory. Only the plan is timed: no record is read. With a second budget, half
//! of the records have images, of 256 patches each.

use std::time::Instant;

use dsconvert::error::Result;
use dsconvert::reader::batch::{
    BatchOptions, BatchPlan, BatchSize, BucketBy, ColumnBudget, Lengths, LengthsInMemory, PackOptions,
    PackPlan, Position, Runs,
};

const RECORDS: u64 = 10_000_000;
const CHATS: u64 = 1_000_000;
const MAX_PATCHES: u64 = 49_152;
const STEPS: u64 = 2_000;
const MICRO_BATCHES: u64 = 8;
const MAX_TOKENS: u64 = 16_384;

#[allow(clippy::print_stdout)]
fn main() -> Result<()> {
    let start = Instant::now();
    let lengths = LengthsInMemory::new((0..RECORDS).map(length).collect());
    println!("{RECORDS} lengths sorted in {:?} (not part of a plan: datasets store this)", start.elapsed());

    let windows = BatchOptions { bucket: BucketBy::WINDOWS, ..BatchOptions::new(BatchSize::BatchSize(32)) };
    for (name, options) in [
        ("batch_size 32, no buckets", BatchOptions::new(BatchSize::BatchSize(32))),
        ("batch_size 32, sorted windows", windows),
        ("max_tokens 16384, buckets", BatchOptions::new(BatchSize::MaxTokens(MAX_TOKENS))),
    ] {
        let start = Instant::now();
        let plan = BatchPlan::new("", &lengths, options, 1, MICRO_BATCHES)?;
        let made = start.elapsed();
        let start = Instant::now();
        let mut records = 0;
        for step in 0..STEPS.min(plan.steps()) {
            for index in 0..MICRO_BATCHES {
                records += plan.micro_batch(Position { epoch: 0, step }, index)?.records.len();
            }
        }
        let each = start.elapsed().as_nanos() / records.max(1) as u128;
        println!("{name}: plan of {} buckets in {made:?}, then {each} ns per record", plan.buckets(0).len());
    }

    let plan = PackPlan::new("", &lengths, PackOptions::new(2048, 8), 1, MICRO_BATCHES)?;
    let start = Instant::now();
    let mut documents = 0;
    for step in plan.steps(&plan.start(0))?.take(STEPS as usize) {
        documents += step?.0.rows.iter().map(|row| row.pieces.len()).sum::<usize>();
    }
    let each = start.elapsed().as_nanos() / documents.max(1) as u128;
    println!("best fit in rows of 2048: {each} ns per document");
    second_budget()
}

/// The cost of one and of two budgets, of the same records.
#[allow(clippy::print_stdout)]
fn second_budget() -> Result<()> {
    let chats = Chats(LengthsInMemory::new((0..CHATS).map(|i| length(i) + patches(i) / 4).collect()));
    let patches = || ColumnBudget { column: "patches".to_owned(), max: MAX_PATCHES };
    for (name, budget) in [("one budget", None), ("two budgets", Some(patches()))] {
        let start = Instant::now();
        let options =
            BatchOptions { budget: budget.clone(), ..BatchOptions::new(BatchSize::MaxTokens(MAX_TOKENS)) };
        let plan = BatchPlan::new("", &chats, options, 1, MICRO_BATCHES)?;
        println!("{name}, {CHATS} records: plan of {} steps in {:?}", plan.steps(), start.elapsed());
        let start = Instant::now();
        let plan = PackPlan::new(
            "",
            &chats,
            PackOptions { budget, ..PackOptions::new(MAX_TOKENS, 1) },
            1,
            MICRO_BATCHES,
        )?;
        let (made, start) = (start.elapsed(), Instant::now());
        let rows = plan.rows(0)?;
        let each = start.elapsed().as_nanos() / u128::from(CHATS);
        println!("{name}, packed: plan in {made:?}, then {rows} rows at {each} ns per document");
    }
    Ok(())
}

/// Lengths of chats, with the patches of their images.
#[derive(Debug)]
struct Chats(LengthsInMemory);

impl Lengths for Chats {
    fn records(&self) -> u64 {
        self.0.records()
    }

    fn record_at(&self, rank: u64) -> Result<u64> {
        self.0.record_at(rank)
    }

    fn length_of(&self, record: u64) -> Result<u64> {
        self.0.length_of(record)
    }

    fn column_of(&self, record: u64, _: &str) -> Result<Option<u64>> {
        Ok(Some(patches(record)))
    }

    fn runs(&self) -> Result<Runs<'_>> {
        self.0.runs()
    }
}

/// Returns the number of patches of a chat: half of them have one to eight images.
fn patches(i: u64) -> u64 {
    if i.is_multiple_of(2) { 0 } else { 256 * (1 + i / 2 % 8) }
}

/// Returns a length as in a text corpus, from two numbers between 0 and 1 that depend on `i`.
fn length(i: u64) -> u64 {
    let uniform = |i: u64| {
        let mixed = (i ^ (i >> 7)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((mixed ^ (mixed >> 32)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 11) as f64 / (1u64 << 53) as f64
    };
    let normal =
        (-2.0 * (1.0 - uniform(2 * i)).ln()).sqrt() * (std::f64::consts::TAU * uniform(2 * i + 1)).cos();
    ((250f64.ln() + 1.1 * normal).exp() as u64).clamp(1, 8192)
}
