//! The saved state of a loader.

use dsconvert_dataset::error::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::batch::{Layout, SavedPlan, StepPlan, damaged_state};

/// State of a [`Loader`](super::Loader): the batches that were returned, not those that are prepared. Equal on all
/// ranks that have returned the same number of batches; threads and prefetch are not part of it. It serializes to a few
/// hundred bytes of JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoaderState {
    /// The step in progress, or the next one.
    pub plan: SavedPlan,
    /// Number of its micro-batches that are done, over all ranks: 0 between steps. The number of ranks can change
    /// freely only between steps.
    pub micro_batches_done: u64,
}

impl LoaderState {
    /// Returns the state at the start of `epoch` of a plan, in the run of a state or else in a new one.
    pub(super) fn start(plan: &dyn StepPlan, run: Option<&LoaderState>, epoch: u64) -> Result<Self> {
        Ok(Self { plan: plan.start(run.map(|state| &state.plan), epoch)?, micro_batches_done: 0 })
    }

    /// Returns the state with which a plan continues from this one, which must belong to it.
    pub(super) fn resumed(&self, plan: &dyn StepPlan) -> Result<Self> {
        let resumed = plan.resume(&self.plan)?;
        // The number of steps may be unknown. Whether there is another one is found faster.
        if self.micro_batches_done > 0 && matches!(plan.step(&mut resumed.clone()), Ok(None)) {
            self.check_unfinished_step(self.step())?;
        }
        Ok(Self { plan: resumed, ..self.clone() })
    }

    /// Returns the epoch, from 0.
    pub fn epoch(&self) -> u64 {
        self.plan.state().epoch
    }

    /// Returns the number of global steps of the epoch that are done.
    pub fn step(&self) -> u64 {
        self.plan.state().step
    }

    /// Returns the number of micro-batches of the open step that each rank of `layout` has done, out of `micro_batches` of
    /// all ranks.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`](dsconvert_dataset::error::ErrorKind) if the ranks cannot share what is done, or the state is
    /// damaged.
    pub fn turns(&self, layout: Layout, micro_batches: u64) -> Result<u64> {
        let done = self.micro_batches_done;
        if done > 0 && done >= micro_batches {
            let what =
                format!("the state has {done} of {micro_batches} micro-batches done in an unfinished step");
            return Err(damaged_state(what));
        }
        if !done.is_multiple_of(layout.world_size()) {
            let what = format!(
                "{done} micro-batches of the unfinished step are done, which cannot be shared by {} ranks",
                layout.world_size()
            );
            return Err(Error::usage(what).help(
                "resume with the number of ranks that saved the state, or save it between two global steps",
            ));
        }
        Ok(done / layout.world_size())
    }

    /// Checks that no step after the last one of an epoch of `steps` steps is unfinished.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`](dsconvert_dataset::error::ErrorKind) if one is.
    pub fn check_unfinished_step(&self, steps: u64) -> Result<()> {
        if self.micro_batches_done == 0 || self.step() < steps {
            return Ok(());
        }
        Err(damaged_state(format!(
            "the state has {} micro-batches done after the last step of the epoch",
            self.micro_batches_done
        )))
    }
}
