//! The saved state of a plan: small enough for any checkpoint, and equal on every rank.

use dsconvert_dataset::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// A position in an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Position {
    /// Epoch, from 0.
    pub epoch: u64,
    /// Number of global steps of the epoch that are done, which is also the next step.
    pub step: u64,
}

/// State of a [`BatchPlan`](super::BatchPlan): the inputs of the order, and the progress. Ranks, workers and threads
/// are not part of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanState {
    /// Version of the algorithm that produced the order ([`ALGORITHM`](super::ALGORITHM)). Version 1 did not store it.
    #[serde(default = "first_version")]
    pub version: u32,
    /// Fingerprint of the dataset, as passed to the plan.
    pub dataset: String,
    /// Digest of the lengths of its records.
    pub lengths: String,
    /// Fingerprint of the options and of the version of the algorithm.
    pub options: String,
    /// Seed.
    pub seed: u64,
    /// Micro-batches per global step.
    pub micro_batches: u64,
    /// Epoch, from 0.
    pub epoch: u64,
    /// Number of global steps of the epoch that are done.
    pub step: u64,
}

/// Returns the error about a state that no run can have saved.
pub(crate) fn damaged_state(what: String) -> Error {
    Error::usage(what).help("the state is damaged; restore another one")
}

fn first_version() -> u32 {
    1
}

impl PlanState {
    /// Checks that `saved` belongs to the same run as this state.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`](dsconvert_dataset::error::ErrorKind) naming the first difference.
    pub fn check_same_run(&self, saved: &PlanState) -> Result<()> {
        let differs = |what: &str, saved: &str, own: &str, help: &str| {
            Err(Error::usage(format!("the state was saved for {what} {saved}, not {own}"))
                .help(help.to_owned()))
        };
        const OTHER_DATA: &str = "open the dataset and split that the state was saved with, or start over";
        const OTHER_OPTIONS: &str = "resume with the options and seed of the first start, or start over";
        if saved.version != self.version {
            let what = format!(
                "the state was saved for version {} of the batch order, not {}",
                saved.version, self.version
            );
            return Err(Error::usage(what).help(
                "this dsconvert orders records differently: finish the run with the dsconvert that saved the state, or \
                 start over",
            ));
        }
        if saved.dataset != self.dataset {
            return differs("dataset", &saved.dataset, &self.dataset, OTHER_DATA);
        }
        if saved.lengths != self.lengths {
            return differs("records with lengths", &saved.lengths, &self.lengths, OTHER_DATA);
        }
        if saved.micro_batches != self.micro_batches {
            let (saved, own) = (saved.micro_batches.to_string(), self.micro_batches.to_string());
            let help = "the micro-batches per step are fixed at the first start; only the ranks that share them may change";
            return differs("micro-batches per step", &saved, &own, help);
        }
        if saved.seed != self.seed {
            return differs("seed", &saved.seed.to_string(), &self.seed.to_string(), OTHER_OPTIONS);
        }
        if saved.options != self.options {
            return differs("options", &saved.options, &self.options, OTHER_OPTIONS);
        }
        Ok(())
    }
}
