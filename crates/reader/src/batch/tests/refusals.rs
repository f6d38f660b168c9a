//! Tests of the errors for states, options and lengths that a plan refuses.

use dsconvert_dataset::error::ErrorKind;
use dsconvert_dataset::index::LengthRun;

use super::*;

#[test]
fn a_state_of_another_run_is_refused() {
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
    contains(refusal("other", &lengths, &options, SEED, 2), "dataset data");
    contains(refusal("data", &[5; 99], &options, SEED, 2), "lengths");
    contains(refusal("data", &lengths, &options, 12, 2), "seed 11");
    contains(refusal("data", &lengths, &options, SEED, 4), "micro-batches");
    let other = BatchOptions { last: Last::Drop, ..options.clone() };
    contains(refusal("data", &lengths, &other, SEED, 2), "options");
    let plan = plan(&lengths, &options, 2).unwrap();
    let beyond = PlanState { step: plan.steps() + 1, ..state.clone() };
    let error = plan.resume(&beyond).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Usage);
    assert!(error.remedy().unwrap().contains("restore another one"), "{error}");
    assert!(serde_json::from_str::<PlanState>(r#"{"dataset":"data"}"#).is_err());
}

/// States of version 1 had no version field.
#[test]
fn a_state_of_another_algorithm_version_is_refused() {
    let plan = plan(&[5; 100], &BatchOptions::new(BatchSize::BatchSize(4)), 2).unwrap();
    let mut json = serde_json::to_value(plan.state(Position { epoch: 0, step: 3 }).unwrap()).unwrap();
    assert_eq!(json.as_object_mut().unwrap().remove("version"), Some(ALGORITHM.into()));
    let error = plan.resume(&serde_json::from_value(json).unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Usage);
    assert!(error.to_string().contains("version 1 of the batch order"), "{error}");
    assert!(error.remedy().unwrap().contains("the dsconvert that saved the state"));
}

#[test]
fn invalid_options_are_refused() {
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
    assert_eq!(plan.counts(0).oversize, 1);
    assert!(plan.batches(Layout::new(0, 2).unwrap(), Position::default()).is_err());
    assert_eq!(plan.micro_batch(Position::default(), 3).unwrap_err().kind(), ErrorKind::OutOfRange);
    let beyond = Position { epoch: 0, step: plan.steps() };
    assert_eq!(plan.micro_batch(beyond, 0).unwrap_err().kind(), ErrorKind::OutOfRange);
}

#[test]
fn a_record_over_the_budget_is_named() {
    let error = plan(&[5, 2000, 700, 7], &BatchOptions::new(BatchSize::MaxTokens(100)), 1).unwrap_err();
    assert_eq!((error.kind(), error.place().row), (ErrorKind::Usage, Some(1)));
    let said = error.to_string();
    assert!(said.contains("2 of 4 records are longer than the 100 that `max_tokens` allows"), "{said}");
    assert!(said.contains("the longest has 2000"), "{said}");
    let help = error.remedy().unwrap();
    assert!(help.contains("oversize") && help.contains("`max_tokens` to 2000 or more"), "{help}");
}

#[test]
fn an_empty_split_has_no_steps() {
    let plan = plan(&[], &BatchOptions::new(BatchSize::MaxTokens(100)), 2).unwrap();
    assert_eq!((plan.steps(), plan.counts(0)), (0, Counts::default()));
    assert_eq!(epoch_of(&plan, 0), []);
}

/// A wrong index results in an error, never in a wrong batch.
#[test]
fn inconsistent_lengths_are_corrupt() {
    type MapRun = fn(LengthRun) -> LengthRun;

    #[derive(Debug)]
    struct ForgedLengths(LengthsInMemory, MapRun, fn(u64) -> u64);

    impl Lengths for ForgedLengths {
        fn records(&self) -> u64 {
            self.0.records()
        }
        fn record_at(&self, rank: u64) -> dsconvert_dataset::error::Result<u64> {
            self.0.record_at(rank)
        }
        fn length_of(&self, record: u64) -> dsconvert_dataset::error::Result<u64> {
            self.0.length_of(record).map(self.2)
        }
        fn runs(&self) -> dsconvert_dataset::error::Result<Runs<'_>> {
            Ok(Box::new(self.0.runs()?.map(|run| run.map(self.1))))
        }
    }
    let new = |run: MapRun, length: fn(u64) -> u64| {
        let lengths = ForgedLengths(LengthsInMemory::new((0..100).collect()), run, length);
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
