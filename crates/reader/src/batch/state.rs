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
        const OTHER_DATA: &str = "open the dataset and split that the state was saved with, or start over";
        const FIXED: &str = "the micro-batches per step are fixed at the first start; only the ranks that share them may change";
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
        let compared = [
            ("dataset", saved.dataset.clone(), self.dataset.clone(), OTHER_DATA),
            ("records with lengths", saved.lengths.clone(), self.lengths.clone(), OTHER_DATA),
            (
                "micro-batches per step",
                saved.micro_batches.to_string(),
                self.micro_batches.to_string(),
                FIXED,
            ),
            ("seed", saved.seed.to_string(), self.seed.to_string(), OTHER_OPTIONS),
            ("options", saved.options.clone(), self.options.clone(), OTHER_OPTIONS),
        ];
        match compared.into_iter().find(|(_, saved, own, _)| saved != own) {
            None => Ok(()),
            Some((what, saved, own, help)) => {
                Err(Error::usage(format!("the state was saved for {what} {saved}, not {own}")).help(help))
            }
        }
    }
}

/// A position in the documents of an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackCursor {
    /// Number of documents before the current window, in the order of the epoch.
    pub document: u64,
    /// Number of tokens of the window's first document that previous windows used.
    pub token: u64,
    /// Number of rows of the window that are done.
    pub row: u64,
}

/// State of a [`PackPlan`](super::PackPlan): equal on every rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackState {
    /// The inputs of the order, and the step.
    pub plan: PlanState,
    /// Where the step starts.
    pub cursor: PackCursor,
}

/// State of a mixture: equal on every rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixtureState {
    /// The inputs of the order, and the step.
    pub plan: PlanState,
    /// Fingerprint of the weights and of what ends an epoch.
    pub weights: String,
    /// Number of global steps since the start of training.
    pub steps: u64,
    /// Number of tokens (images: pixels) in this epoch.
    pub tokens: u64,
    /// The sources before the next step.
    pub sources: Vec<SourceState>,
    /// The sources at the start of the epoch.
    pub start: Vec<SourceState>,
}

/// State of one source of a mixture.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceState {
    /// Number of passes over the source that are done, which is also its epoch.
    pub epoch: u64,
    /// The position in the pass. Of records and micro-batches, `document` is the number of those that are done.
    pub cursor: PackCursor,
    /// Where documents are packed, the number of tokens of the pass that are done.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tokens: u64,
    /// The amount used since the weights changed, in the unit of the weights.
    pub used: u64,
    /// Whether a pass ended in this epoch of the mixture.
    pub has_ended: bool,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// State of a [`StepPlan`](super::StepPlan).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SavedPlan {
    /// One record per row.
    Records(PlanState),
    /// Packed rows.
    Packed(PackState),
    /// Records or packed rows of a [`Mixture`](crate::Mixture).
    Mixture(MixtureState),
}

impl SavedPlan {
    /// Returns the inputs of the order, and the step.
    pub fn state(&self) -> &PlanState {
        match self {
            SavedPlan::Records(plan) => plan,
            SavedPlan::Packed(packed) => &packed.plan,
            SavedPlan::Mixture(mixture) => &mixture.plan,
        }
    }

    /// Returns the error about a state of another kind of plan than that of `own`.
    pub(crate) fn of_other_plan(&self, own: &str) -> Error {
        let saved = match self {
            SavedPlan::Records(_) => "records",
            SavedPlan::Packed(_) => "packed rows",
            SavedPlan::Mixture(_) => "a mixture",
        };
        Error::usage(format!("the state was saved for {saved}, not for {own}"))
            .help("resume with the options of the first start, or start over")
    }
}
