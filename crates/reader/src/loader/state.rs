//! Where a loader stands.

use dsconvert_dataset::error::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::batch::{Layout, PackState, PlanState};

/// State of a [`Loader`](super::Loader): what was handed out, not what was prepared. Equal on every rank that has
/// handed out as many batches; threads and prefetch are no part of it. It serialises to a few hundred bytes of JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoaderState {
    /// The step that is under way, or the next one.
    pub plan: SavedPlan,
    /// How many of its micro-batches are done, over all ranks: 0 between steps. Only between steps may the number of
    /// ranks change freely.
    pub micro_batches_done: u64,
}

/// State of the plan behind a loader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SavedPlan {
    /// One record per row.
    Records(PlanState),
    /// Packed rows.
    Packed(PackState),
}

impl LoaderState {
    /// Epoch, from 0.
    pub fn epoch(&self) -> u64 {
        self.plan_state().epoch
    }

    /// Global steps of the epoch that are done.
    pub fn step(&self) -> u64 {
        self.plan_state().step
    }

    pub(super) fn plan_state(&self) -> &PlanState {
        match &self.plan {
            SavedPlan::Records(plan) => plan,
            SavedPlan::Packed(packed) => &packed.plan,
        }
    }

    /// Micro-batches of the open step that each rank has done.
    pub(super) fn turns(&self, layout: Layout, micro_batches: u64) -> Result<u64> {
        let done = self.micro_batches_done;
        if done > 0 && done >= micro_batches {
            let what = format!("the state has {done} of {micro_batches} micro-batches of an open step");
            return Err(Error::usage(what).help("the state is damaged: take another one"));
        }
        if !done.is_multiple_of(layout.world_size()) {
            let what = format!(
                "{done} micro-batches of a step are done, which {} ranks cannot have done together",
                layout.world_size()
            );
            return Err(Error::usage(what)
                .help("go on with as many ranks as saved the state, or save it between two global steps"));
        }
        Ok(done / layout.world_size())
    }
}
