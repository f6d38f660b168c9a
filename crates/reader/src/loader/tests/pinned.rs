//! The order of batches and the saved states, compared with digests that were computed once. A run that was saved before
//! a change continues after it.

use std::fmt::Write;

use xxhash_rust::xxh3::xxh3_128;

use super::*;
use crate::batch::{BucketBy, Last, Layout, Oversize, PackOptions, SourceTotals};
use crate::testing::InMemory;
use crate::{ClassNames, Exhausted, Mix, Mixture, MixtureEpoch, MixtureOptions, MixtureUnit};

fn documents(count: u64, factor: u64) -> Arc<dyn RecordSource> {
    let documents: Vec<_> = (0..count)
        .map(|i| {
            let length = (1 + i * factor % 19) as usize;
            (vec![7; length], (0..length).map(|at| (at % 2) as u8).collect())
        })
        .collect();
    Arc::new(InMemory::new(&documents, true))
}

fn mixture(options: MixtureOptions) -> Arc<dyn RecordSource> {
    let sources = vec![("a".to_owned(), documents(40, 7)), ("b".to_owned(), documents(23, 5))];
    Arc::new(Mixture::new(sources, ClassNames::Equal, options).unwrap())
}

/// Writes everything that a run of three epochs shows of its order: records, ids, states, totals and numbers of batches.
fn transcript(source: &Arc<dyn RecordSource>, batching: &Batching, layout: Layout) -> String {
    let options = LoaderOptions {
        seed: 11,
        micro_batches: Some(2),
        layout,
        threads: 0,
        ..LoaderOptions::new(batching.clone())
    };
    let mut loader = Loader::new(Arc::clone(source), options.clone()).unwrap();
    let mut out = String::new();
    for epoch in [0, 1, 4] {
        loader.set_epoch(epoch).unwrap();
        writeln!(out, "epoch {epoch}: {} batches, {} steps", loader.len().unwrap(), loader.steps().unwrap())
            .unwrap();
        let mut at = loader.state();
        loop {
            // A loader that continues from the stored state returns the same batch.
            let stored = serde_json::to_string(&at).unwrap();
            let mut other = Loader::new(Arc::clone(source), options.clone()).unwrap();
            other.restore(&serde_json::from_str(&stored).unwrap()).unwrap();
            let (batch, again) = (loader.next_batch().unwrap(), other.next_batch().unwrap());
            let rows = |batch: &Option<Batch>| {
                batch.as_ref().map(|batch| (batch.id(), batch.records().to_vec(), batch.rows()))
            };
            assert_eq!(rows(&batch), rows(&again));
            let Some(batch) = batch else { break };
            at = loader.state();
            assert_eq!(other.state(), at);
            let BatchId { epoch, step, micro_batch } = batch.id();
            writeln!(out, "{epoch} {step} {micro_batch} {:?} {} {stored}", batch.records(), batch.rows())
                .unwrap();
            let totals = loader.totals().unwrap().unwrap();
            let LoaderTotals { rows, tokens, padded_tokens, labels, trained, sources, .. } = totals;
            writeln!(out, "{rows} {tokens} {padded_tokens} {labels:?} {trained:?}").unwrap();
            for SourceTotals { name, requested, realized, epochs } in sources {
                writeln!(out, "{name} {requested} {realized} {epochs}").unwrap();
            }
            writeln!(out, "{} left", loader.remaining().unwrap()).unwrap();
        }
    }
    out
}

#[test]
fn orders_and_states_never_change() {
    let steps = |steps| Some(MixtureEpoch::Steps(steps));
    let mixed = |unit, mix, exhausted, epoch| {
        let weights = MixtureOptions::new([("a", 0.7), ("b", 0.3)]);
        mixture(MixtureOptions {
            unit,
            mix,
            exhausted,
            epoch,
            schedule: vec![(5, vec![("b".into(), 1.0)])],
            ..weights
        })
    };
    let records = documents(57, 11);
    let by_length =
        BatchOptions { oversize: Oversize::Truncate, ..BatchOptions::new(BatchSize::MaxTokens(40)) };
    let fixed = BatchOptions { bucket: BucketBy::None, ..BatchOptions::new(BatchSize::BatchSize(3)) };
    let packed = |last| PackOptions { last, ..PackOptions::new(16, 2) };
    let cases: [(Arc<dyn RecordSource>, Batching); 9] = [
        (Arc::clone(&records), by_length.clone().into()),
        (Arc::clone(&records), BatchOptions { last: Last::Pad, ..fixed.clone() }.into()),
        (Arc::clone(&records), packed(Last::Short).into()),
        (Arc::clone(&records), packed(Last::Wrap).into()),
        (Arc::clone(&records), packed(Last::Drop).into()),
        (mixed(MixtureUnit::Tokens, None, Exhausted::Never, steps(12)), packed(Last::Short).into()),
        (mixed(MixtureUnit::Trained, None, Exhausted::FirstExhausted, None), fixed.clone().into()),
        (mixed(MixtureUnit::Epochs, Some(Mix::Batch), Exhausted::AllExhausted, None), by_length.into()),
        (mixed(MixtureUnit::Records, None, Exhausted::Never, Some(MixtureEpoch::Tokens(300))), fixed.into()),
    ];
    let layouts = [Layout::SINGLE, Layout::new(1, 2).unwrap()];
    let digest = |(source, batching): &(_, _)| {
        let runs = layouts.map(|layout| transcript(source, batching, layout));
        format!("{:032x}", xxh3_128(runs.concat().as_bytes()))
    };
    assert_eq!(cases.each_ref().map(digest), DIGESTS);
}

/// They are never edited: a new case gets a new digest.
const DIGESTS: [&str; 9] = [
    "3f5cd98f66aa37cb2b8fe376220d4977",
    "95e3e7af3f936506befd3fe096e60223",
    "afdc576173f73217f21826cbef45a6dd",
    "d4db706accc2c61b962b032a36d75f64",
    "695ea8ebb777d874a35b8be37c5f2c9a",
    "fd533f4d6acb1b0d8aeeaa7d02f661cd",
    "37ed9ced68dfbb77d44c40dfd4a2295a",
    "2c3323df340f61426dd86d269ca2b200",
    "7da9b0b12fbb34d1ce387a6020194623",
];
