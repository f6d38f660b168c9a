//! Tests of the quality of plans on realistic lengths.

use super::super::permute::{Permutation, Purpose, key};
use super::*;

/// Returns lengths like those of a text corpus: log-normal with a median of 250 and a heavy tail, cut at `longest`.
fn text_lengths(records: u64, longest: u64) -> Vec<u64> {
    let noise = Permutation::new(1 << 32, key(5, Purpose::Records, 0, 0));
    let uniform = |i: u64| (noise.at(i) as f64 + 0.5) / (1u64 << 32) as f64;
    let normal =
        |i: u64| (-2.0 * uniform(2 * i).ln()).sqrt() * (std::f64::consts::TAU * uniform(2 * i + 1)).cos();
    (0..records).map(|i| ((250f64.ln() + 1.1 * normal(i)).exp() as u64).clamp(1, longest)).collect()
}

/// Returns the padding of random batches that are filled up to the budget.
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
fn buckets_need_little_padding_where_random_batches_need_much() {
    let lengths = text_lengths(60_000, 8192);
    let random = random_padding(&lengths, 16_384);
    assert!(random > 0.4, "random batches: {random}");
    for (micro_batches, most) in [(1, 0.035), (4, 0.035), (8, 0.05)] {
        let plan = plan(&lengths, &BatchOptions::new(BatchSize::MaxTokens(16_384)), micro_batches).unwrap();
        let metrics = Metrics::of(&plan, 0, micro_batches).unwrap();
        assert!(metrics.padding < most, "{micro_batches}: {metrics:?}");
        assert!(metrics.fill > 0.93, "{micro_batches}: {metrics:?}");
        assert!(metrics.skew < 0.03, "{micro_batches}: {metrics:?}");
        assert!(metrics.length_correlation.abs() < 0.15, "{micro_batches}: {metrics:?}");
        assert!(plan.buckets(0).len() < 150, "{} buckets", plan.buckets(0).len());
    }
}

/// Few records and eight micro-batches per step: lengths are so sparse that most steps are graded.
#[test]
fn small_datasets_on_many_ranks_need_little_padding() {
    let lengths = text_lengths(8_000, 8192);
    let plan = plan(&lengths, &BatchOptions::new(BatchSize::MaxTokens(16_384)), 8).unwrap();
    assert!(plan.buckets(0).iter().any(|bucket| bucket.graded.is_some()));
    let metrics = Metrics::of(&plan, 0, 8).unwrap();
    assert!(metrics.padding < 0.05 && metrics.fill > 0.9 && metrics.skew < 0.1, "{metrics:?}");
}

#[test]
fn geometric_buckets_are_nearly_as_good() {
    let lengths = text_lengths(60_000, 8192);
    let bucket = BucketBy::Length(Boundaries::GEOMETRIC);
    let options = BatchOptions { bucket, ..BatchOptions::new(BatchSize::MaxTokens(16_384)) };
    let metrics = Metrics::of(&plan(&lengths, &options, 4).unwrap(), 0, 4).unwrap();
    assert!(metrics.padding < 0.05 && metrics.fill > 0.9, "{metrics:?}");
}

#[test]
fn windows_of_block_shuffled_records_read_few_blocks() {
    let lengths = text_lengths(20_000, 8192);
    let options = BatchOptions {
        bucket: BucketBy::Windows { steps: 8 },
        shuffle: Shuffle::Block { records: 64, group: 16 },
        ..BatchOptions::new(BatchSize::BatchSize(16))
    };
    let plan = plan(&lengths, &options, 8).unwrap();
    for window in epoch_of(&plan, 0).chunks(8 * 8) {
        let blocks: std::collections::BTreeSet<u64> =
            window.iter().flat_map(|b| b.records.iter().map(|r| r / 64)).collect();
        assert!(blocks.len() <= 16, "{} blocks", blocks.len());
    }
}

#[test]
fn sorted_windows_reduce_the_padding_of_fixed_size_batches() {
    let lengths = text_lengths(30_000, 8192);
    let measure = |bucket| {
        let options = BatchOptions { bucket, ..BatchOptions::new(BatchSize::BatchSize(32)) };
        Metrics::of(&plan(&lengths, &options, 2).unwrap(), 0, 2).unwrap()
    };
    let (random, sorted) = (measure(BucketBy::None), measure(BucketBy::WINDOWS));
    assert!(random.padding > 0.5, "{random:?}");
    assert!(sorted.padding < 0.2, "{sorted:?}");
    assert!(sorted.length_correlation.abs() < 0.15, "{sorted:?}");
    assert!(sorted.skew < random.skew, "{sorted:?} {random:?}");
}

/// Returns three fractions over some epochs: batches of several records that recur in the next epoch, pairs of records
/// in a batch that share a batch again in the next epoch, and padding.
fn repeated(plan: &BatchPlan<LengthsInMemory>, epochs: u64) -> (f64, f64, f64) {
    let all: Vec<Vec<MicroBatch>> = (0..epochs).map(|epoch| epoch_of(plan, epoch)).collect();
    let (mut batches, mut identical, mut pairs, mut met) = (0, 0, 0, 0);
    for (now, next) in all.iter().zip(&all[1..]) {
        let mut batch_of = std::collections::BTreeMap::new();
        let mut sets = std::collections::BTreeSet::new();
        for (i, batch) in next.iter().enumerate() {
            batch_of.extend(batch.records.iter().map(|&record| (record, i)));
            sets.insert(records_of(std::slice::from_ref(batch)));
        }
        for batch in now.iter().filter(|batch| batch.records.len() > 1) {
            batches += 1;
            identical += u64::from(sets.contains(&records_of(std::slice::from_ref(batch))));
            let mut counts = std::collections::BTreeMap::<usize, u64>::new();
            batch
                .records
                .iter()
                .filter_map(|r| batch_of.get(r))
                .for_each(|&i| *counts.entry(i).or_default() += 1);
            let n = batch.records.len() as u64;
            pairs += n * (n - 1);
            met += counts.values().map(|c| c * (c - 1)).sum::<u64>();
        }
    }
    let sum = |count: fn(&MicroBatch) -> u64| all.iter().flatten().map(count).sum::<u64>() as f64;
    let padding = 1.0 - sum(MicroBatch::tokens) / sum(MicroBatch::padded_tokens);
    (identical as f64 / batches as f64, met as f64 / pairs as f64, padding)
}

/// Few batches recur in the next epoch, and the padding is that of buckets that are the same in every epoch.
#[test]
fn cuttings_regroup_small_datasets_between_epochs() {
    for (records, budget, micro_batches) in [
        (1_000, 4_096, 1),
        (4_000, 16_384, 1),
        (4_000, 16_384, 2),
        (4_000, 16_384, 8),
        (4_000, 4_096, 8),
        (40_000, 16_384, 8),
    ] {
        let lengths = text_lengths(records, budget / 2);
        let mut plan =
            plan(&lengths, &BatchOptions::new(BatchSize::MaxTokens(budget)), micro_batches).unwrap();
        let (identical, met, padding) = repeated(&plan, 9);
        plan.keep_one_cutting();
        let (identical_before, met_before, padding_before) = repeated(&plan, 3);
        let said = format!(
            "{records} records, budget {budget}, {micro_batches} micro-batches: identical {identical:.4} (one cutting \
             {identical_before:.4}), met {met:.3} ({met_before:.3}), padding {padding:.4} ({padding_before:.4})"
        );
        assert!(identical < 0.02 && met < met_before && padding < padding_before + 0.01, "{said}");
    }
}

/// Returns the size in bytes of each document of `fixtures/corpus`, several times over: stories, chats, code and texts
/// in many scripts.
fn corpus_lengths() -> Vec<u64> {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/corpus");
    let mut lengths = Vec::new();
    for name in ["chat.jsonl", "code.jsonl", "stories.jsonl", "world.jsonl"] {
        let file = std::fs::read_to_string(corpus.join(name)).unwrap();
        for line in file.lines() {
            let document: serde_json::Value = serde_json::from_str(line).unwrap();
            lengths.push(document["text"].as_str().unwrap().len() as u64);
        }
    }
    lengths.repeat(8)
}

#[test]
fn documents_of_a_corpus_need_little_padding() {
    let lengths = corpus_lengths();
    assert!(lengths.len() > 4_000);
    let random = random_padding(&lengths, 16_384);
    assert!(random > 0.5, "random batches: {random}");
    for micro_batches in [1, 2, 8] {
        let plan = plan(&lengths, &BatchOptions::new(BatchSize::MaxTokens(16_384)), micro_batches).unwrap();
        let metrics = Metrics::of(&plan, 0, micro_batches).unwrap();
        assert!(metrics.padding <= 0.05 && metrics.fill > 0.9, "{micro_batches}: {metrics:?}");
        assert!(metrics.length_correlation.abs() < 0.3, "{micro_batches}: {metrics:?}");
    }
}

/// Reads one length per line and prints metrics: `DSCONVERT_LENGTHS=file cargo test --lib measure -- --ignored
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
                plan.buckets(0).len(),
                plan.steps()
            );
        }
    }
    let tokens: u64 = lengths.iter().sum();
    for seq_len in [512, 2048, 8192] {
        let lengths = LengthsInMemory::new(lengths.clone());
        let rows =
            PackPlan::new("data", lengths, PackOptions::new(seq_len, 1), SEED, 1).unwrap().rows(0).unwrap();
        eprintln!("best fit, rows of {seq_len}: {rows}, fill {:.4}", tokens as f64 / (rows * seq_len) as f64);
    }
}
