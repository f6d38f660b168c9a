//! Tests of finishers: functions of the caller that each batch passes.

use std::sync::{Mutex, mpsc};

use super::engine::{ids, options};
use super::*;
use crate::batch::PackOptions;

#[test]
fn a_finisher_gets_each_batch_once_and_changes_neither_order_nor_state() {
    let dir = tempfile::tempdir().unwrap();
    let split = text_split(dir.path(), Format::Arrow);
    let batching: Batching = BatchOptions::new(BatchSize::BatchSize(4)).into();
    let plain: Vec<_> =
        all(&mut Loader::new(split.clone(), options(batching.clone(), 0)).unwrap()).iter().map(ids).collect();
    for threads in [0, 3] {
        let finisher = |mut batch: Batch| {
            if batch.id().step == 2 {
                return Err(Error::usage("deliberate test failure"));
            }
            let sum: i64 = ids(&batch).2.iter().sum();
            batch.take_columns();
            batch.attach(Box::new(sum));
            Ok(batch)
        };
        let mut loader = Loader::new(split.clone(), options(batching.clone(), threads)).unwrap();
        loader = loader.finish_with(Arc::new(finisher));
        for (step, expected) in plain.iter().enumerate() {
            let made = loader.next_batch();
            if step == 2 {
                assert_eq!(made.unwrap_err().to_string(), "deliberate test failure");
                assert_eq!(loader.state().step(), 2, "an error is not counted");
                continue;
            }
            let mut batch = made.unwrap().unwrap();
            assert_eq!((batch.id(), batch.records()), (expected.0, &expected.1[..]));
            assert_eq!(batch.columns().len(), 0);
            let sum = *batch.take_attached().unwrap().downcast::<i64>().unwrap();
            assert_eq!(sum, expected.2.iter().sum::<i64>());
        }
        assert!(loader.next_batch().unwrap().is_none());
    }
}

#[test]
fn a_loader_without_threads_makes_an_interrupted_batch_again() {
    let dir = tempfile::tempdir().unwrap();
    let split = text_split(dir.path(), Format::Arrow);
    let batchings: [Batching; 2] =
        [BatchOptions::new(BatchSize::BatchSize(4)).into(), PackOptions::new(8, 2).into()];
    for batching in batchings {
        let of = || LoaderOptions { micro_batches: Some(2), ..options(batching.clone(), 0) };
        let plain: Vec<_> = all(&mut Loader::new(split.clone(), of()).unwrap()).iter().map(ids).collect();
        let interrupt = Mutex::new(true);
        let finisher = move |batch: Batch| {
            let mut interrupt = interrupt.lock().unwrap();
            *interrupt = !*interrupt;
            if *interrupt { Ok(batch) } else { Err(Error::new(ErrorKind::Interrupted(2), "signal 2")) }
        };
        let mut loader = Loader::new(split.clone(), of()).unwrap().finish_with(Arc::new(finisher));
        for expected in &plain {
            let before = loader.state();
            assert_eq!(loader.next_batch().unwrap_err().kind(), ErrorKind::Interrupted(2));
            assert_eq!(loader.state(), before);
            assert_eq!(ids(&loader.next_batch().unwrap().unwrap()), *expected);
        }
        assert!(loader.next_batch().unwrap().is_none());
        // The interrupted batch of an epoch that is left belongs to no other epoch.
        loader.next_epoch().unwrap();
        assert!(loader.next_batch().is_err());
        loader.next_epoch().unwrap();
        assert!(loader.next_batch().unwrap().is_some_and(|batch| batch.id().epoch == 2));
    }
}

#[test]
fn a_finisher_may_drop_its_loader() {
    let dir = tempfile::tempdir().unwrap();
    let split = text_split(dir.path(), Format::Arrow);
    let (give, given) = mpsc::channel::<Loader>();
    let (done, dropped) = mpsc::channel();
    let given = Mutex::new(given);
    let finisher = move |batch: Batch| {
        if batch.id().step == 1 {
            drop(given.lock().unwrap().recv());
            done.send(()).unwrap();
        }
        Ok(batch)
    };
    let options = options(BatchOptions::new(BatchSize::BatchSize(4)), 2);
    let mut loader = Loader::new(split, options).unwrap().finish_with(Arc::new(finisher));
    assert!(loader.next_batch().unwrap().is_some());
    give.send(loader).unwrap();
    dropped.recv_timeout(Duration::from_secs(60)).unwrap();
}

#[test]
fn a_finisher_may_count_batches() {
    let dir = tempfile::tempdir().unwrap();
    let split = text_split(dir.path(), Format::Arrow);
    for threads in [0, 2] {
        let plain = Loader::new(split.clone(), options(PackOptions::new(10, 2), threads)).unwrap();
        let (counts, start, expected) = (plain.counts().clone(), plain.state(), plain.len().unwrap());
        let finisher = move |batch: Batch| {
            assert_eq!(counts.batches(&start).unwrap(), expected);
            Ok(batch)
        };
        let mut loader = plain.finish_with(Arc::new(finisher));
        assert_eq!(all(&mut loader).len() as u64, expected);
    }
}
