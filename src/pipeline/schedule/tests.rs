//! Tests that panics and invalid results of a conversion end the run instead of hanging it.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use dsconvert_writer::{DatasetWriter, WriterOptions};

use super::*;
use crate::error::ErrorKind;
use crate::format::Format;
use crate::options::RunOptions;
use crate::pipeline::job::{Converting, EngineUse, Feed};
use crate::pipeline::job_file::{JobHeader, JobReader, JobWriter};
use crate::pipeline::memory::MemoryPool;
use crate::pipeline::plan::PlanSummary;
use crate::pipeline::predict::testing::run_options;
use crate::sample::{Ids, Record, Value};
use crate::schema::{IdWidth, Schema};
use crate::source::list::file_list::FileList;
use crate::source::names::splits::Splits;
use crate::writer::outcome::{ConvertedRecord, ItemOutcome, Outcomes};
use crate::writer::stage::{Finished, NextStage, Stage, Stages};
use crate::writer::unit::UnitSink;

/// Number of tasks per unit.
const TASKS: u64 = 100;
/// Memory of a task: at least the memory of its outcome.
const TASK_BYTES: u64 = 4 << 10;

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
        TASK_BYTES
    }

    fn next(&mut self) -> Result<Option<(u64, u64)>> {
        assert!(self.fails != Fails::InFeed || self.next < 5, "the feed fails");
        self.next += 1;
        Ok((self.next <= TASKS).then_some((self.next, TASK_BYTES)))
    }
}

impl Conversion for FaultyConversion<'_> {
    type Options = ();
    type Task = u64;
    type Scratch = ();
    type Duplicates = ();

    fn plan((): ()) -> Result<Job<Self>> {
        Err(Error::internal("the test creates the job"))
    }

    fn write(&self, _: &mut JobWriter) -> Result<()> {
        Ok(())
    }

    fn read(_: Option<Vec<u8>>, _: &mut JobReader) -> Result<Self> {
        Err(Error::internal("the test does not store the job"))
    }

    fn files_of(&self, _: Range<usize>) -> BTreeSet<usize> {
        BTreeSet::new()
    }

    fn duplicates(_: &Job<Self>, _: &Path, _: &Workers, _: &MemoryPool, _: &Stop) -> Result<()> {
        Ok(())
    }

    fn scratch(job: &Job<Self>, _: &Shares) {
        assert_ne!(job.conversion.fails, Fails::InScratch, "the scratch fails");
    }

    fn stages(_: &Job<Self>, _: &Path) -> Stages {
        Stages::default()
    }

    fn feed<'a>(job: &'a Job<Self>, (): &'a (), _: u32, _: EngineUse) -> Result<Box<dyn Feed<u64> + 'a>> {
        let fails = job.conversion.fails;
        assert_ne!(fails, Fails::InOpen, "the unit fails");
        Ok(Box::new(NumberFeed { fails, next: 0 }))
    }

    fn convert(job: &Job<Self>, task: u64, (): &mut (), out: &mut Outcomes) -> Result<Converting> {
        let Self { fails: place, stop } = job.conversion;
        let fails = task == 7 && matches!(place, Fails::InConvert | Fails::WhileOthersWork);
        assert!(!fails, "the task fails");
        if task == 8 && place == Fails::WhileOthersWork {
            let started = Instant::now();
            while !stop.is_set() && started.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        if place == Fails::AlwaysRedoes {
            return Ok(Converting::RedoUnit);
        }
        let name = || Value::Text(task.to_string().into());
        let length = if place == Fails::InWrite { Value::Null } else { Value::UInt(1) };
        let ids = Ids::pack(IdWidth::U16, &[1]).unwrap();
        let record = Record { values: vec![name(), Value::Ids(ids), length, name()] };
        out.list.push(ItemOutcome::Converted(ConvertedRecord::new(0, record, 1)));
        Ok(Converting::Done)
    }
}

fn run_with(fails: Fails, threads: usize) -> (Result<FailedUnits>, u64) {
    run_units(fails, threads, 3, 100, None)
}

/// A stage that counts the writers that are in it at the same time. It is slow until three of them are.
#[derive(Default, Clone)]
struct SlowWrite(Arc<WriterCounts>);

#[derive(Default)]
struct WriterCounts {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Stage for SlowWrite {
    fn push(&mut self, converted: ConvertedRecord, next: &mut NextStage<'_>) -> Result<()> {
        let WriterCounts { now, most } = &*self.0;
        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        let started = Instant::now();
        while most.load(Ordering::SeqCst) < 3 && started.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(1));
        }
        now.fetch_sub(1, Ordering::SeqCst);
        next(converted)
    }

    fn finish(&mut self, _: &mut NextStage<'_>) -> Result<Finished> {
        Ok(Finished::Yes)
    }
}

/// Runs `units` with memory for `memory_tasks` tasks.
fn run_units(
    fails: Fails,
    threads: usize,
    units: u32,
    memory_tasks: u64,
    slow: Option<&SlowWrite>,
) -> (Result<FailedUnits>, u64) {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let schema = Schema::text(IdWidth::U16, vec![]).unwrap();
    // Many small shards, unless writing is slow: each is synced to disk.
    let shard_bytes = if slow.is_some() { 1 << 20 } else { 100 };
    let options = WriterOptions { format: Format::Msgpack, shard_bytes, ..WriterOptions::new(units, "x") };
    let writer = DatasetWriter::open(&out, &schema, &options).unwrap();
    let (stop, progress) = (Stop::default(), Progress::default());
    let job = Job::new(
        JobHeader::new(schema),
        FileList::default(),
        Vec::new(),
        Splits::none(),
        PlanSummary::default(),
        FaultyConversion { fails, stop: &stop },
    );
    let written = writer.start();
    let sink = |unit| UnitSink::create(unit, &written, Stages::default().and(slow.cloned()));
    let context = SchedulerContext {
        job: &job,
        duplicates: &(),
        workers: &Workers::start(threads).unwrap(),
        memory: Shares::of(&RunOptions {
            memory_bytes: 4 * memory_tasks * TASK_BYTES,
            ..run_options(dir.path(), threads)
        }),
        progress: &progress,
        stop: &stop,
        sink: &sink,
        uploads: None,
    };
    let result = run(&context, (0..units).collect());
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

/// A unit has one writer. If its outcomes took all memory, the writer would limit the speed of all threads.
#[test]
fn units_are_written_at_the_same_time_if_writing_is_slow() {
    let slow = SlowWrite::default();
    let (failed, records) = run_units(Fails::Never, 16, 6, 64, Some(&slow));
    assert!(failed.unwrap().is_empty());
    assert_eq!(records, 6 * TASKS);
    assert!(slow.0.most.load(Ordering::SeqCst) >= 3, "{:?}", slow.0.most);
}
