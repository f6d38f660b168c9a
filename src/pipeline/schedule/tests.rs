//! Tests that panics and invalid results of a conversion end the run instead of hanging it.

use std::path::Path;
use std::time::{Duration, Instant};

use dsconvert_writer::{DatasetWriter, WriterOptions};

use super::*;
use crate::error::ErrorKind;
use crate::format::Format;
use crate::pipeline::job::{Converting, EngineUse, Feed};
use crate::pipeline::outcome::{ConvertedRecord, ItemOutcome, Outcomes};
use crate::pipeline::stage::Stages;
use crate::pipeline::unit::UnitSink;
use crate::sample::{Ids, Record, Value};
use crate::schema::{IdWidth, Schema};

/// Number of tasks per unit.
const TASKS: u64 = 20;

/// Where the test conversion fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fails {
    Never,
    InScratch,
    InOpen,
    InFeed,
    InConvert,
    /// In one task, while another one waits until the run is stopped.
    WhileOthersWork,
    /// An attempt with the reference engine requests another one.
    AlwaysRedoes,
    /// A record does not match the schema.
    InWrite,
}

struct FaultyConversion<'a> {
    fails: Fails,
    stop: &'a Stop,
}

struct NumberFeed {
    fails: Fails,
    next: u64,
}

impl Feed<u64> for NumberFeed {
    fn next_bytes(&self) -> u64 {
        1
    }

    fn next(&mut self) -> Result<Option<(u64, u64)>> {
        assert!(self.fails != Fails::InFeed || self.next < 5, "the feed fails");
        self.next += 1;
        Ok((self.next <= TASKS).then_some((self.next, 1)))
    }
}

impl Conversion for FaultyConversion<'_> {
    type Task = u64;
    type Scratch = ();

    fn scratch(&self) {
        assert_ne!(self.fails, Fails::InScratch, "the scratch fails");
    }

    fn stages(&self, _: &Path) -> Stages {
        Stages::default()
    }

    fn open(&self, _: u32, _: EngineUse) -> Result<Box<dyn Feed<u64> + '_>> {
        assert_ne!(self.fails, Fails::InOpen, "the unit fails");
        Ok(Box::new(NumberFeed { fails: self.fails, next: 0 }))
    }

    fn convert(&self, task: u64, (): &mut (), out: &mut Outcomes) -> Result<Converting> {
        let fails = task == 7 && matches!(self.fails, Fails::InConvert | Fails::WhileOthersWork);
        assert!(!fails, "the task fails");
        if task == 8 && self.fails == Fails::WhileOthersWork {
            let started = Instant::now();
            while !self.stop.is_set() && started.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        if self.fails == Fails::AlwaysRedoes {
            return Ok(Converting::RedoUnit);
        }
        let name = || Value::Text(task.to_string().into());
        let length = if self.fails == Fails::InWrite { Value::Null } else { Value::UInt(1) };
        let ids = Ids::pack(IdWidth::U16, &[1]).unwrap();
        let record = Record { values: vec![name(), Value::Ids(ids), length, name()] };
        out.list.push(ItemOutcome::Converted(ConvertedRecord::new(0, record, 1)));
        Ok(Converting::Done)
    }
}

fn run_with(fails: Fails, threads: usize) -> (Result<FailedUnits>, u64) {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let schema = Schema::text(IdWidth::U16, vec![]).unwrap();
    let options = WriterOptions { format: Format::Msgpack, shard_bytes: 100, ..WriterOptions::new(3, "x") };
    let writer = DatasetWriter::open(&out, &schema, &options).unwrap();
    let (stop, progress) = (Stop::default(), Progress::default());
    let conversion = FaultyConversion { fails, stop: &stop };
    let written = writer.start();
    let sink = |unit| UnitSink::create(unit, &written, Stages::default());
    let context = SchedulerContext {
        conversion: &conversion,
        workers: &Workers::start(threads).unwrap(),
        memory: MemoryPool::new(100),
        progress: &progress,
        stop: &stop,
        sink: &sink,
        uploads: None,
    };
    let result = run(&context, vec![0, 1, 2]);
    (result, progress.snapshot().records)
}

#[test]
fn a_panic_anywhere_ends_the_run_with_an_internal_error() {
    for (fails, message) in [
        (Fails::InScratch, "the scratch fails"),
        (Fails::InOpen, "the unit fails"),
        (Fails::InFeed, "the feed fails"),
        (Fails::InConvert, "the task fails"),
        (Fails::WhileOthersWork, "the task fails"),
    ] {
        for threads in [1, 3] {
            let started = Instant::now();
            let error = run_with(fails, threads).0.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Internal, "{fails:?}: {error}");
            assert!(error.to_string().contains(message), "{fails:?}: {error}");
            let help = error.remedy().unwrap_or_default();
            assert!(help.contains("report") && help.contains("`resume`"), "{help}");
            assert!(started.elapsed() < Duration::from_secs(10), "{fails:?}");
        }
    }
}

#[test]
fn invalid_results_are_internal_errors() {
    for (fails, message) in [(Fails::AlwaysRedoes, "careful attempt"), (Fails::InWrite, "\"length\"")] {
        let error = run_with(fails, 2).0.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal, "{fails:?}: {error}");
        assert!(error.to_string().contains(message), "{fails:?}: {error}");
        assert!(error.remedy().is_some_and(|help| help.contains("`resume`")));
    }
    let (failed, records) = run_with(Fails::Never, 2);
    assert!(failed.unwrap().is_empty());
    assert_eq!(records, 3 * TASKS);
}
