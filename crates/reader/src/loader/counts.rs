//! Counts the batches of a loader.

use std::sync::{Arc, Mutex, PoisonError};

use dsconvert_dataset::error::Result;

use super::schedule::LoaderPlan;
use super::state::LoaderState;
use crate::RecordSource;
use crate::batch::{BatchPlan, PackPlan};

/// Counts the steps and batches of the epochs of a [`Loader`](super::Loader) and has its plan. It does not depend on the
/// position of the loader, so it can be used while another thread, or the caller of a
/// [`BatchFinisher`](super::BatchFinisher), uses the loader.
#[derive(Debug, Clone)]
pub struct LoaderCounts {
    plan: Arc<LoaderPlan>,
    micro_batches: u64,
    world_size: u64,
    /// The start of the epoch whose steps were last counted, and their number.
    known: Arc<Mutex<Option<(LoaderState, u64)>>>,
}

impl LoaderCounts {
    pub(super) fn new(plan: Arc<LoaderPlan>, micro_batches: u64, world_size: u64) -> Self {
        Self { plan, micro_batches, world_size, known: Arc::default() }
    }

    pub(super) fn plan(&self) -> &Arc<LoaderPlan> {
        &self.plan
    }

    /// Returns the exact number of batches of this rank in the epoch of `state`. For rows packed by best fit, counting
    /// takes a pass over the lengths of the records.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](dsconvert_dataset::error::ErrorKind) when the indexes were altered.
    pub fn batches(&self, state: &LoaderState) -> Result<u64> {
        Ok(self.steps(state)?.saturating_mul(self.per_step()))
    }

    /// Returns the number of batches of this rank that are left in the epoch of `state`.
    ///
    /// # Errors
    ///
    /// Same as [`LoaderCounts::batches`].
    pub fn remaining(&self, state: &LoaderState) -> Result<u64> {
        let turns = state.micro_batches_done / self.world_size;
        let done = state.step().saturating_mul(self.per_step()).saturating_add(turns);
        Ok(self.batches(state)?.saturating_sub(done))
    }

    /// Returns the number of global steps of the epoch of `state`.
    ///
    /// # Errors
    ///
    /// Same as [`LoaderCounts::batches`].
    pub fn steps(&self, state: &LoaderState) -> Result<u64> {
        let start = self.plan.start_in(state, state.epoch())?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, steps)) = known.as_ref().filter(|(of, _)| *of == start) {
            return Ok(*steps);
        }
        let steps = self.plan.steps(&start)?;
        *known = Some((start, steps));
        Ok(steps)
    }

    /// Returns the number of micro-batches of this rank per step.
    fn per_step(&self) -> u64 {
        self.micro_batches / self.world_size
    }

    /// Returns the number of micro-batches of a global step, over all ranks.
    pub fn micro_batches(&self) -> u64 {
        self.micro_batches
    }

    /// Returns the batch plan, which has the content of any step on any rank, for example to normalize a loss. `None`
    /// for packed rows.
    pub fn batch_plan(&self) -> Option<&BatchPlan<Arc<dyn RecordSource>>> {
        match &*self.plan {
            LoaderPlan::Records(plan) => Some(plan),
            LoaderPlan::Packed(_) => None,
        }
    }

    /// Returns the plan of packed rows, or `None` if rows are not packed.
    pub fn pack_plan(&self) -> Option<&PackPlan<Arc<dyn RecordSource>>> {
        match &*self.plan {
            LoaderPlan::Packed(plan) => Some(plan),
            LoaderPlan::Records(_) => None,
        }
    }
}
