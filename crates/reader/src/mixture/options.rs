//! Options of a mixture, and the weights that follow from them.

use std::collections::BTreeMap;

use dsconvert_dataset::error::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::range::check_in_range;

/// Maximum number of sources of a mixture: numbers of sources are 32-bit integers, and 1,000 take no time to choose from.
pub const MAX_SOURCES: usize = 1 << 16;

/// What the weights of a mixture are shares of. Padding is never counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MixtureUnit {
    /// Tokens (images: pixels) after truncation.
    #[default]
    Tokens,
    /// Tokens that are marked to be trained on; all tokens of a source without marks.
    Trained,
    /// Records, or packed rows.
    Records,
    /// Passes over the sources: a source of weight 2 is repeated twice as often as one of weight 1.
    Epochs,
}

/// What is drawn from one source at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Mix {
    /// A record, or a packed row. Batches have records of several sources.
    Record,
    /// A micro-batch, which has records of one source. Each source has its own buckets.
    Batch,
}

/// When an epoch of a mixture ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exhausted {
    /// After [`MixtureOptions::epoch`]. Sources are repeated, each shuffled anew at its own epoch.
    #[default]
    Never,
    /// With the step in which the first source ends.
    FirstExhausted,
    /// With the step in which the last source ends.
    AllExhausted,
}

/// Length of an epoch of a mixture whose sources are repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MixtureEpoch {
    /// Ends with the global step in which so many tokens (images: pixels) are reached.
    Tokens(u64),
    /// Number of global steps.
    Steps(u64),
}

/// What happens when a state was saved with other weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnChange {
    /// The state is refused.
    #[default]
    Refuse,
    /// The sources continue at their positions. Shares are counted anew from there.
    Continue,
}

/// Weights by the names of the sources. They need not add up to 1.
pub type Weights = Vec<(String, f64)>;

/// Options of a [`Mixture`](crate::Mixture).
#[derive(Debug, Clone, PartialEq)]
pub struct MixtureOptions {
    /// The weight of each source, from the first step on.
    pub weights: Weights,
    /// What the weights are shares of.
    pub unit: MixtureUnit,
    /// What is drawn at a time. `None`: a micro-batch if there are buckets, else a record or packed row.
    pub mix: Option<Mix>,
    /// When an epoch ends.
    pub exhausted: Exhausted,
    /// Length of an epoch, with [`Exhausted::Never`].
    pub epoch: Option<MixtureEpoch>,
    /// Other weights from a global step on, counted from the start of training. A source that is not named has weight 0.
    pub schedule: Vec<(u64, Weights)>,
    /// What happens when a state was saved with other weights.
    pub on_change: OnChange,
}

impl MixtureOptions {
    /// Creates the default options for `weights`: shares of tokens; sources are repeated, and `epoch` is to be set.
    pub fn new<N: Into<String>>(weights: impl IntoIterator<Item = (N, f64)>) -> Self {
        Self {
            weights: weights.into_iter().map(|(name, weight)| (name.into(), weight)).collect(),
            unit: MixtureUnit::default(),
            mix: None,
            exhausted: Exhausted::default(),
            epoch: None,
            schedule: Vec::new(),
            on_change: OnChange::default(),
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        let epoch = self.epoch.map(|epoch| match epoch {
            MixtureEpoch::Tokens(tokens) => ("epoch_tokens", tokens),
            MixtureEpoch::Steps(steps) => ("epoch_steps", steps),
        });
        match (self.exhausted, epoch) {
            (Exhausted::Never, None) => Err(Error::usage("the length of an epoch is not set: sources are repeated").help(
                "set `epoch_tokens` or `epoch_steps`; or set `exhausted` to \"first_exhausted\" or \"all_exhausted\"",
            )),
            (Exhausted::Never, Some((name, length))) => check_in_range(name, length, 1..=MAX_EPOCH),
            (_, None) => Ok(()),
            (_, Some((name, _))) => {
                let what = format!("`{name}` does not apply: an epoch ends when a source ends");
                Err(Error::usage(what).help("leave it out, or set `exhausted` to \"never\""))
            }
        }
    }
}

/// Maximum length of an epoch.
const MAX_EPOCH: u64 = 1 << 62;

/// Weights from one global step on.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Segment {
    /// The first global step.
    pub(super) start: u64,
    /// One per source, not normalized.
    pub(super) weights: Vec<f64>,
}

/// Returns one weight per source, whose numbers are given by name.
pub(super) fn by_source(names: &BTreeMap<&str, usize>, weights: &Weights) -> Result<Vec<f64>> {
    let mut of_sources = vec![None; names.len()];
    for (name, weight) in weights {
        let Some(of_source) = names.get(name.as_str()).and_then(|&at| of_sources.get_mut(at)) else {
            let what = format!("there is a weight for {name:?}, which is not a dataset of the mixture");
            let known: Vec<&str> = names.keys().copied().collect();
            return Err(Error::usage(what).help(format!("its datasets are {}", known.join(", "))));
        };
        if !(weight.is_finite() && *weight >= 0.0) {
            let what = format!("the weight of {name:?} is {weight}: expected a finite number from 0");
            return Err(Error::usage(what));
        }
        if of_source.replace(*weight).is_some() {
            return Err(Error::usage(format!("there are two weights for {name:?}")));
        }
    }
    Ok(of_sources.into_iter().map(Option::unwrap_or_default).collect())
}
