//! Finalization of closed shards and units, outside the workers.

use std::collections::{BTreeMap, VecDeque};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Instant;

use crate::error::{Error, Result};
use crate::panics::caught;
use crate::pipeline::progress::{Activity, Event, EventLevel, Progress};
use crate::testing::panic_point;
use crate::threads;
use crate::writer::stop::Stop;
use crate::writer::unit::{ClosedShard, ClosedUnit, unit_of_shard};
use crate::writer::units::UnitShard;

/// A closed shard or unit that is to be finalized. The shards of a unit come before the unit.
pub(super) enum Closed {
    Shard(Box<ClosedShard>),
    Unit(Box<ClosedUnit>),
}

impl Closed {
    pub(super) fn shard(shard: ClosedShard) -> Self {
        Closed::Shard(Box::new(shard))
    }
}

/// Finalizer of shards and units.
#[derive(Clone, Copy)]
pub(super) struct Finalizer<'a> {
    pub(super) progress: &'a Progress,
    pub(super) stop: &'a Stop,
}

/// Finalized shards by the attempt that they belong to, with the ordinals of their splits, in the order in which they
/// were closed.
type ShardsByAttempt = BTreeMap<u64, Vec<(usize, UnitShard)>>;

impl Finalizer<'_> {
    /// Finalizes files sequentially: the disk is the limit, so more threads would not make it faster.
    pub(super) fn sequentially(self, closed: impl Iterator<Item = Closed>) -> Result<()> {
        let mut shards = ShardsByAttempt::new();
        for next in closed {
            match next {
                Closed::Shard(shard) => {
                    let attempt = shard.attempt;
                    shards.entry(attempt).or_default().push(self.shard(*shard)?);
                }
                Closed::Unit(unit) => {
                    let shards = shards.remove(&unit.attempt).unwrap_or_default();
                    self.unit(*unit, shards)?;
                }
            }
        }
        Ok(())
    }

    /// Finalizes files in object storage, uploading up to `at_a_time` files concurrently. A request to stop ends it at
    /// once.
    pub(super) fn concurrently(self, closed: impl Iterator<Item = Closed>, at_a_time: usize) -> Result<()> {
        std::thread::scope(|scope| {
            let mut uploads =
                Uploads { scope, stop: self.stop, running: VecDeque::new(), shards: ShardsByAttempt::new() };
            for next in closed {
                self.stop.check()?;
                uploads.wait_while(|uploads| uploads.len() >= at_a_time)?;
                match next {
                    Closed::Shard(shard) => {
                        let attempt = shard.attempt;
                        // An abandoned attempt at the same unit writes to the same names.
                        let unit = unit_of_shard(&shard.name);
                        uploads.wait_while(|uploads| {
                            uploads.iter().any(|upload| upload.unit == unit && upload.attempt != attempt)
                        })?;
                        uploads.start(unit, attempt, move || self.shard(*shard).map(Some))?;
                    }
                    Closed::Unit(unit) => {
                        let attempt = unit.attempt;
                        uploads
                            .wait_while(|uploads| uploads.iter().any(|upload| upload.attempt == attempt))?;
                        let shards = uploads.shards.remove(&attempt).unwrap_or_default();
                        uploads.start(Some(unit.result.unit), attempt, move || {
                            self.unit(*unit, shards).map(|()| None)
                        })?;
                    }
                }
            }
            uploads.wait_while(|uploads| !uploads.is_empty())
        })
    }

    fn shard(self, shard: ClosedShard) -> Result<(usize, UnitShard)> {
        panic_point("close");
        let started = Instant::now();
        let shard = shard.commit(self.stop)?;
        self.progress.add_time(Activity::Sync, started.elapsed());
        Ok(shard)
    }

    fn unit(self, unit: ClosedUnit, shards: Vec<(usize, UnitShard)>) -> Result<()> {
        panic_point("close");
        let started = Instant::now();
        let length = unit.length;
        let result = unit.finish(shards, self.stop)?;
        self.progress.add_converted_unit(&result, length);
        self.progress.add_event(EventLevel::Units, || Event::of_unit(&result));
        self.progress.add_time(Activity::Sync, started.elapsed());
        Ok(())
    }
}

/// An uploaded shard; `None` for a unit.
type UploadResult = Result<Option<(usize, UnitShard)>>;

/// A file that is being uploaded.
struct RunningUpload<'scope> {
    unit: Option<u32>,
    attempt: u64,
    thread: ScopedJoinHandle<'scope, UploadResult>,
}

/// Uploads in progress, each on its own thread.
struct Uploads<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    stop: &'scope Stop,
    /// In the order in which they were started.
    running: VecDeque<RunningUpload<'scope>>,
    shards: ShardsByAttempt,
}

impl<'scope> Uploads<'scope, '_> {
    fn start(
        &mut self,
        unit: Option<u32>,
        attempt: u64,
        work: impl FnOnce() -> UploadResult + Send + 'scope,
    ) -> Result<()> {
        let stop = self.stop;
        let work = move || {
            caught(work).unwrap_or_else(|panic| {
                let error = panic.into_error("uploading a file");
                stop.report_bug(&error);
                Err(error)
            })
        };
        let thread = threads::named("upload").spawn_scoped(self.scope, work).map_err(threads::refused)?;
        self.running.push_back(RunningUpload { unit, attempt, thread });
        Ok(())
    }

    /// Waits for the oldest uploads while `more` returns true for the running ones.
    fn wait_while(&mut self, more: impl Fn(&VecDeque<RunningUpload<'scope>>) -> bool) -> Result<()> {
        while more(&self.running)
            && let Some(RunningUpload { attempt, thread, .. }) = self.running.pop_front()
        {
            let uploaded = thread.join().unwrap_or_else(|_| Err(Error::internal("a thread died")))?;
            if let Some(shard) = uploaded {
                self.shards.entry(attempt).or_default().push(shard);
            }
        }
        Ok(())
    }
}
