//! Tests of order, resume, memory and shutdown.

use dsconvert_dataset::error::ErrorKind;
use dsconvert_dataset::packing::Packing;

use super::*;
use crate::batch::{Last, Layout, PackOptions};

pub(super) fn ids(batch: &Batch) -> (BatchId, Vec<u64>, Vec<i64>) {
    let ids = batch.array("input_ids").unwrap().as_slice::<i64>().unwrap().to_vec();
    (batch.id(), batch.records().to_vec(), ids)
}

pub(super) fn options(batching: impl Into<Batching>, threads: usize) -> LoaderOptions {
    LoaderOptions { threads, seed: 7, ..LoaderOptions::new(batching) }
}

#[test]
fn batches_do_not_depend_on_threads_or_prefetch() {
    let dir = tempfile::tempdir().unwrap();
    let split = text_split(dir.path(), Format::Arrow);
    let batchings: [Batching; 3] = [
        BatchOptions::new(BatchSize::BatchSize(4)).into(),
        BatchOptions::new(BatchSize::MaxTokens(24)).into(),
        PackOptions::new(10, 2).into(),
    ];
    for batching in batchings {
        let mut expected = None;
        for (threads, prefetch) in [(0, None), (1, Some(1)), (4, None), (3, Some(50))] {
            let options = LoaderOptions { prefetch, ..options(batching.clone(), threads) };
            let mut loader = Loader::new(split.clone(), options).unwrap();
            let mut found = Vec::new();
            for epoch in 0..2 {
                loader.set_epoch(epoch).unwrap();
                found.extend(all(&mut loader).iter().map(ids));
                assert!(loader.next_batch().unwrap().is_none(), "the epoch stays over");
            }
            assert_eq!(found.len() as u64, loader.len().unwrap() * 2);
            assert_eq!(expected.get_or_insert_with(|| found.clone()), &found, "{threads} threads");
        }
    }
}

#[test]
fn a_state_counts_returned_batches_and_fits_other_layouts() {
    let dir = tempfile::tempdir().unwrap();
    let split = text_split(dir.path(), Format::Msgpack);
    let batchings: [Batching; 2] =
        [BatchOptions::new(BatchSize::BatchSize(3)).into(), PackOptions::new(8, 2).into()];
    for batching in batchings {
        let of = |rank, world| LoaderOptions {
            micro_batches: Some(4),
            layout: Layout::new(rank, world).unwrap(),
            ..options(batching.clone(), 2)
        };
        let mut whole: Vec<_> =
            all(&mut Loader::new(split.clone(), of(0, 1)).unwrap()).iter().map(ids).collect();
        whole.sort();
        // Two ranks do one and a half steps. Then one or two ranks continue in the middle of the step.
        let mut done = Vec::new();
        let states: Vec<LoaderState> = (0..2)
            .map(|rank| {
                let mut loader = Loader::new(split.clone(), of(rank, 2)).unwrap();
                done.extend(loader.by_ref().take(3).map(|batch| ids(&batch.unwrap())));
                assert_eq!(loader.remaining().unwrap(), loader.len().unwrap() - 3);
                loader.state()
            })
            .collect();
        assert_eq!(states[0], states[1], "equal on all ranks");
        let json = serde_json::to_string(&states[0]).unwrap();
        let state: LoaderState = serde_json::from_str(&json).unwrap();
        assert_eq!((state.step(), state.micro_batches_done), (1, 2));
        for world in [1, 2] {
            let mut found = done.clone();
            for rank in 0..world {
                let mut loader = Loader::new(split.clone(), of(rank, world)).unwrap();
                loader.restore(&state).unwrap();
                loader.set_epoch(0).unwrap();
                found.extend(loader.by_ref().map(|batch| ids(&batch.unwrap())));
            }
            found.sort();
            assert_eq!(found, whole, "{world} ranks");
        }
        let mut four = Loader::new(split.clone(), of(3, 4)).unwrap();
        assert!(four.restore(&state).unwrap_err().to_string().contains("4 ranks"));
    }
}

#[test]
fn set_epoch_starts_over_once_a_batch_was_requested() {
    let dir = tempfile::tempdir().unwrap();
    let split = text_split(dir.path(), Format::Arrow);
    for threads in [0, 2] {
        let of = || options(BatchOptions::new(BatchSize::BatchSize(20)), threads);
        let mut loader = Loader::new(split.clone(), of()).unwrap();
        all(&mut loader);
        let end = loader.state();
        let mut resumed = Loader::new(split.clone(), of()).unwrap();
        resumed.restore(&end).unwrap();
        let lengths: Vec<usize> = (0..3)
            .map(|_| {
                resumed.set_epoch(0).unwrap();
                all(&mut resumed).len()
            })
            .collect();
        assert_eq!(lengths, [0, 3, 3], "the rest of the epoch, then all of it");

        let fails = |batch: Batch| {
            if batch.id().step == 1 { Err(Error::usage("deliberate test failure")) } else { Ok(batch) }
        };
        let mut loader = Loader::new(split.clone(), of()).unwrap().finish_with(Arc::new(fails));
        assert!(loader.next_batch().unwrap().is_some());
        let state = loader.state();
        loader.restore(&state).unwrap();
        assert!(loader.next_batch().is_err());
        loader.set_epoch(0).unwrap();
        assert_eq!(loader.remaining().unwrap(), 3, "the first batch after the state failed");
    }
}

#[test]
fn states_of_other_runs_and_invalid_options_are_refused() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let split = text_split(dir.path(), Format::Arrow);
    testing::write(other.path(), Format::Arrow, Kind::Text, &[&[49], &[50]]).unwrap();
    let others = Dataset::open(other.path()).unwrap();
    let plain = || options(BatchOptions::new(BatchSize::BatchSize(4)), 0);
    let state = |split: &Split, options: LoaderOptions| Loader::new(split.clone(), options).unwrap().state();
    let mut loader = Loader::new(split.clone(), plain()).unwrap();
    let before = loader.state();
    let refused = [
        (state(&others.split("train").unwrap(), plain()), "records with lengths"),
        (state(&others.split("validation").unwrap(), plain()), "dataset"),
        (state(&split, LoaderOptions { seed: 8, ..plain() }), "seed"),
        (state(&split, LoaderOptions { micro_batches: Some(2), ..plain() }), "micro-batches"),
        (state(&split, options(BatchOptions::new(BatchSize::BatchSize(5)), 0)), "options"),
        (state(&split, options(PackOptions::new(8, 2), 0)), "packed rows"),
    ];
    for (state, what) in refused {
        let error = loader.restore(&state).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(error.to_string().contains(what), "{error}");
    }
    let mut beyond = before.clone();
    if let SavedPlan::Records(plan) = &mut beyond.plan {
        plan.step = 1000;
    }
    assert_eq!(loader.restore(&beyond).unwrap_err().kind(), ErrorKind::Usage);
    assert!(loader.restore(&LoaderState { micro_batches_done: 9, ..before.clone() }).is_err());
    assert_eq!(loader.state(), before, "nothing has changed");

    let bad = |change: &dyn Fn(&mut LoaderOptions)| {
        let mut options = plain();
        change(&mut options);
        Loader::new(split.clone(), options).unwrap_err()
    };
    let errors = [
        bad(&|o| o.batching = BatchOptions::new(BatchSize::BatchSize(0)).into()),
        bad(&|o| o.micro_batches = Some(0)),
        bad(&|o| (o.layout, o.micro_batches) = (Layout::new(1, 3).unwrap(), Some(4))),
        bad(&|o| o.threads = MAX_THREADS + 1),
        bad(&|o| o.prefetch = Some(0)),
        bad(&|o| o.fields = Some(vec!["color".to_owned()])),
        bad(&|o| o.fields = Some(vec!["key".to_owned(), "key".to_owned()])),
        bad(&|o| (o.text.ids, o.text.pad_id) = (IdType::Int32, u32::MAX)),
        bad(&|o| o.image.hflip = f64::NAN),
        bad(&|o| o.image.crop = Crop::center(0, 5)),
        bad(&|o| {
            o.image.crop = Crop::RandomResized { height: 5, width: 5, scale: (0.5, 0.1), ratio: Crop::RATIO }
        }),
        bad(&|o| {
            o.batching = PackOptions::new(8, 1).into();
            o.fields = Some(vec!["key".to_owned()]);
        }),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Usage, "{error}");
    }
    assert!(Layout::new(2, 2).is_err());
}

/// Waits until `batches` batches are ready, after which the threads can prepare no more. Returns how many are ready of
/// each epoch.
fn ready(loader: &Loader, batches: usize) -> Vec<(u64, usize)> {
    let engine = loader.engine.as_ref().unwrap();
    while engine.ready().iter().map(|(_, ready)| ready).sum::<usize>() < batches {
        std::thread::yield_now();
    }
    engine.ready()
}

#[test]
fn no_step_is_unfinished_after_the_last_one() {
    let dir = tempfile::tempdir().unwrap();
    let split = text_split(dir.path(), Format::Arrow);
    let concat = PackOptions { packing: Packing::Concat, ..PackOptions::new(8, 2) };
    let batchings: [Batching; 3] =
        [BatchOptions::new(BatchSize::BatchSize(4)).into(), PackOptions::new(8, 2).into(), concat.into()];
    for batching in batchings {
        let options = LoaderOptions { micro_batches: Some(2), ..options(batching, 0) };
        let mut loader = Loader::new(split.clone(), options).unwrap();
        assert!(loader.next_batch().unwrap().is_some());
        let unfinished = loader.state();
        all(&mut loader);
        let end = loader.state();
        let damaged = LoaderState { micro_batches_done: 1, ..end.clone() };
        let error = loader.restore(&damaged).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(error.to_string().contains("after the last step"), "{error}");
        assert!(error.remedy().unwrap().contains("restore another one"));
        for good in [end, unfinished] {
            loader.restore(&good).unwrap();
        }
    }
}

#[test]
fn the_last_possible_epoch_has_no_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let split = text_split(dir.path(), Format::Msgpack);
    let batching = BatchOptions::new(BatchSize::BatchSize(4));
    let mut loader = Loader::new(split.clone(), options(batching.clone(), 2)).unwrap();
    loader.set_epoch(u64::MAX).unwrap();
    let state = loader.state();
    let mut loader = Loader::new(split, options(batching, 2)).unwrap();
    loader.restore(&state).unwrap();
    assert_eq!(loader.next_epoch().unwrap_err().kind(), ErrorKind::OutOfRange);
    assert_eq!((loader.epoch(), all(&mut loader).len() as u64), (u64::MAX, loader.len().unwrap()));
}

#[test]
fn threads_continue_with_the_next_epoch() {
    let dir = tempfile::tempdir().unwrap();
    let split = text_split(dir.path(), Format::Arrow);
    let batchings: [Batching; 2] =
        [BatchOptions::new(BatchSize::BatchSize(20)).into(), PackOptions::new(32, 3).into()];
    for batching in batchings {
        let with = |threads| LoaderOptions { prefetch: Some(2), ..options(batching.clone(), threads) };
        let mut alone = Loader::new(split.clone(), with(0)).unwrap();
        let mut expected = Vec::new();
        for epoch in 0..3 {
            alone.set_epoch(epoch).unwrap();
            expected.push(all(&mut alone).iter().map(ids).collect::<Vec<_>>());
        }
        for threads in [1, 3] {
            let mut loader = Loader::new(split.clone(), with(threads)).unwrap();
            assert!(loader.len().unwrap() >= 3);
            for (epoch, expected) in (0..).zip(&expected) {
                loader.set_epoch(epoch).unwrap();
                assert_eq!(loader.state().step(), 0);
                let found: Vec<_> = loader.by_ref().map(|batch| ids(&batch.unwrap())).collect();
                assert_eq!(&found, expected);
                // The epoch is over, and stays over, whatever is ready of the next one.
                let state = loader.state();
                assert_eq!((state.epoch(), state.step()), (epoch, loader.steps().unwrap()));
                assert_eq!(ready(&loader, 2), [(epoch, 0), (epoch + 1, 2)]);
                assert!(loader.next_batch().unwrap().is_none());
                assert_eq!(loader.state(), state);
            }
            // An epoch other than the next one starts new threads, and an epoch may be left halfway.
            for epoch in [0, 1, 2, 2, 0] {
                loader.set_epoch(epoch).unwrap();
                let found: Vec<_> = loader.by_ref().take(2).map(|batch| ids(&batch.unwrap())).collect();
                assert_eq!(found, expected[epoch as usize][..2]);
            }
        }
    }
}

#[test]
fn a_batch_keeps_its_memory_until_it_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let split = text_split(dir.path(), Format::Arrow);
    let options =
        LoaderOptions { prefetch: Some(2), ..options(BatchOptions::new(BatchSize::BatchSize(5)), 2) };
    let mut loader = Loader::new(split, options).unwrap();
    let mut held: Vec<(Batch, Vec<i64>)> = Vec::new();
    let mut addresses = Vec::new();
    for epoch in 0..6 {
        loader.set_epoch(epoch).unwrap();
        for batch in loader.by_ref() {
            let batch = batch.unwrap();
            addresses.push(batch.array("input_ids").unwrap().as_ptr());
            let copy = ids(&batch).2;
            held.push((batch, copy));
            if held.len() > 3 {
                let (batch, copy) = held.remove(0);
                assert_eq!(ids(&batch).2, copy, "overwritten while it was held");
            }
        }
    }
    let all = addresses.len();
    addresses.sort();
    addresses.dedup();
    assert!(addresses.len() < all / 2, "{} blocks for {all} batches", addresses.len());
}

#[test]
fn columns_outlive_batch_and_loader() {
    let dir = tempfile::tempdir().unwrap();
    let split = text_split(dir.path(), Format::Protobuf);
    let mut loader = Loader::new(split, batches_of(4)).unwrap();
    let columns = loader.next_batch().unwrap().unwrap().take_columns();
    drop(loader);
    let Column::Array(array) = &columns[0].1 else { panic!("{columns:?}") };
    assert_eq!(array.byte_len(), array.shape().iter().product::<usize>() * 8);
}

#[test]
fn an_epoch_can_be_left_at_any_batch() {
    let dir = tempfile::tempdir().unwrap();
    let split = text_split(dir.path(), Format::Arrow);
    for taken in [0, 1, 3, 100] {
        for prefetch in [1, 2, 100] {
            let options = LoaderOptions { prefetch: Some(prefetch), ..batches_of(1) };
            let mut loader = Loader::new(split.clone(), options).unwrap();
            let count = loader.by_ref().take(taken).count();
            assert_eq!(count, taken.min(50));
            loader.set_epoch(3).unwrap();
            assert_eq!(loader.next_batch().unwrap().unwrap().id().epoch, 3);
        }
    }
}

#[test]
fn next_within_returns_at_its_deadline() {
    let dir = tempfile::tempdir().unwrap();
    let split = text_split(dir.path(), Format::Arrow);
    let mut loader = Loader::new(split, batches_of(10)).unwrap();
    let mut batches = 0;
    loop {
        match loader.next_within(Duration::from_micros(50)).unwrap() {
            Next::Batch(_) => batches += 1,
            Next::NotYet => {}
            Next::Done => break,
        }
    }
    assert_eq!(batches, 5);
}

#[test]
fn a_forked_loader_continues_with_its_own_threads() {
    let dir = tempfile::tempdir().unwrap();
    let split = text_split(dir.path(), Format::Arrow);
    let expected: Vec<_> =
        all(&mut Loader::new(split.clone(), batches_of(5)).unwrap()).iter().map(ids).collect();
    let mut loader = Loader::new(split, batches_of(5)).unwrap();
    let mut found: Vec<_> = loader.by_ref().map(Result::unwrap).map(|b| ids(&b)).take(4).collect();
    loader.engine.as_mut().unwrap().pretend_fork();
    found.extend(loader.by_ref().map(|batch| ids(&batch.unwrap())));
    assert_eq!(found, expected);
}

#[test]
fn every_rank_has_as_many_batches_in_the_last_step() {
    let dir = tempfile::tempdir().unwrap();
    let split = text_split(dir.path(), Format::Arrow);
    for last in [Last::Short, Last::Pad, Last::Drop, Last::Wrap] {
        let batching = BatchOptions { last, ..BatchOptions::new(BatchSize::BatchSize(6)) };
        let mut rows = Vec::new();
        for rank in 0..4 {
            let layout = Layout::new(rank, 4).unwrap();
            let options = LoaderOptions { layout, ..options(batching.clone(), 1) };
            let mut loader = Loader::new(split.clone(), options).unwrap();
            let batches = all(&mut loader);
            assert_eq!(batches.len() as u64, loader.len().unwrap());
            for batch in &batches {
                assert_eq!(batch.array("input_ids").unwrap().shape()[0], batch.rows());
                assert_eq!(batch.records().len() + batch.filler_rows(), batch.rows());
                match (last, batch.array("valid")) {
                    (Last::Pad, Some(valid)) => {
                        let valid = valid.as_slice::<bool>().unwrap();
                        assert_eq!(valid.iter().filter(|v| **v).count(), batch.records().len());
                        let lengths = batch.array("lengths").unwrap().as_slice::<i64>().unwrap();
                        assert!(lengths[batch.records().len()..].iter().all(|l| *l == 0));
                    }
                    (Last::Pad, None) => panic!("no valid"),
                    (_, valid) => assert!(valid.is_none()),
                }
            }
            rows.push(batches.iter().map(Batch::rows).collect::<Vec<_>>());
        }
        let last_step: Vec<usize> = rows.iter().map(|r| *r.last().unwrap()).collect();
        let expected = match last {
            Last::Short => vec![1, 1, 0, 0],
            _ => vec![6; 4],
        };
        assert_eq!((last_step, rows[0].len()), (expected, if last == Last::Drop { 2 } else { 3 }));
    }
}
