//! Finished units, in a directory or in object storage.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::publish::Remote;
use super::stop::Stop;
use super::unit_dirs::{CheckLevel, UnitDirs};
use super::unit_result::{UnitResult, UnitState};
use super::workers::Workers;
use crate::error::Result;

/// Where the units of a plan are stored.
pub(super) struct UnitStore<'a> {
    pub(super) dirs: &'a UnitDirs,
    /// The output directory.
    pub(super) out: &'a Path,
    /// Destination of finished units, if it is object storage.
    pub(super) remote: Option<&'a Remote>,
    /// Identity of the plan.
    pub(super) plan: &'a str,
    /// Number of units in the plan.
    pub(super) planned: u32,
}

impl UnitStore<'_> {
    /// Checks `units` on all threads, because all their bytes may have to be read. Returns the unfinished ones, and
    /// calls `done` with the results of the others, in any order.
    pub(super) fn check(
        &self,
        units: Vec<u32>,
        check: CheckLevel,
        workers: &Workers,
        stop: &Stop,
        done: &(dyn Fn(&UnitResult) + Sync),
    ) -> Result<BTreeMap<u32, UnitState>> {
        let unfinished = Mutex::new(BTreeMap::new());
        let add = |unit, state| match state {
            UnitState::Done(result) => done(&result),
            other => drop(unfinished.lock().unwrap_or_else(PoisonError::into_inner).insert(unit, other)),
        };
        if let Some(remote) = self.remote {
            remote.check_units(&units, self.planned, self.plan, stop, &add)?;
            return Ok(unfinished.into_inner().unwrap_or_else(PoisonError::into_inner));
        }
        // In most runs, no unit was finished before.
        if !self.dirs.any()? {
            return Ok(units.into_iter().map(|unit| (unit, UnitState::Missing)).collect());
        }
        check.for_all(&units, workers, "checking finished units", stop, |&unit| {
            add(unit, self.dirs.check(unit, self.plan, self.out, check)?);
            Ok(())
        })?;
        Ok(unfinished.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Marks `unit` as unfinished.
    pub(super) fn remove(&self, unit: u32) -> Result<()> {
        match self.remote {
            None => self.dirs.remove(unit),
            Some(remote) => remote.remove_unit(unit),
        }
    }
}
