//! Mixtures: several sources in given shares.
//!
//! A [`Mixture`] is a [`RecordSource`], so any [`Loader`](crate::loader::Loader) takes it, with every option.
//! `docs/reference/batching.md` specifies which records its batches hold.

mod plan;
mod prediction;
mod records;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dsconvert_dataset::error::{Error, Result};
use dsconvert_dataset::schema::Schema;
use serde::{Deserialize, Serialize};

pub(crate) use self::plan::MixturePlan;
pub use self::prediction::{Delivered, MixturePrediction, SourcePrediction};
pub use self::records::MixtureRecords;
use super::batch::Lengths;
use super::concatenated::{ClassNames, Concatenated};
use super::range::check_in_range;
use super::source::ReadIds;
use super::{Record, RecordSource};

/// Maximum number of sources of a mixture: numbers of sources are 32-bit integers, and 1,000 take no time to choose from.
pub const MAX_SOURCES: usize = 1 << 16;

/// What the weights of a mixture are shares of. Padding is never counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
pub enum OnChange {
    /// The state is refused.
    #[default]
    Refuse,
    /// The sources continue at their positions. Shares are counted anew from there.
    Continue,
}

/// Weights by the names of the sources. They need not add up to 1.
pub type Weights = Vec<(String, f64)>;

/// Options of a [`Mixture`].
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

    fn check(&self) -> Result<()> {
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

/// Several sources in given shares, of which a [`Loader`](crate::loader::Loader) makes batches.
///
/// Its ordinals are those of the [`Concatenated`] sources. Two sources of the same name are refused.
///
/// ```
/// # mod testing { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/testing/dataset.rs")); }
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path();
/// # testing::write(path, dsconvert_dataset::format::Format::Arrow, dsconvert_dataset::schema::Kind::Text, &[&[40], &[30]])?;
/// use std::sync::Arc;
///
/// use dsconvert_reader::batch::PackOptions;
/// use dsconvert_reader::loader::{Loader, LoaderOptions};
/// use dsconvert_reader::{ClassNames, Dataset, Mixture, MixtureEpoch, MixtureOptions, RecordSource};
///
/// let dataset = Dataset::open(path)?;
/// let sources = vec![
///     ("web".to_owned(), dataset.split("train")?.into()),
///     ("code".to_owned(), dataset.split("validation")?.into()),
/// ];
/// let options = MixtureOptions {
///     epoch: Some(MixtureEpoch::Steps(20)),
///     ..MixtureOptions::new([("web", 0.7), ("code", 0.3)])
/// };
/// let mixture: Arc<dyn RecordSource> = Arc::new(Mixture::new(sources, ClassNames::Equal, options)?);
/// let mut loader = Loader::new(mixture, LoaderOptions::new(PackOptions::new(16, 4)))?;
/// assert_eq!(loader.len()?, 20);
/// while let Some(batch) = loader.next_batch()? {
///     let sources = batch.array("source").and_then(|a| a.as_slice::<i32>()).unwrap_or_default();
///     assert!(sources.iter().all(|&source| source < 2));
/// }
/// let totals = loader.totals()?.unwrap_or_default();
/// assert!(totals.sources.iter().all(|source| (source.requested - source.realized).abs() < 0.05));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Mixture {
    records: Concatenated,
    options: MixtureOptions,
    /// The weights from each step on, for all sources.
    segments: Vec<Segment>,
}

/// Weights from one global step on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Segment {
    /// The first global step.
    start: u64,
    /// One per source, not normalized.
    weights: Vec<f64>,
}

impl Mixture {
    /// Creates a mixture of `sources`, each with the name by which `options` give its weight.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`](dsconvert_dataset::error::ErrorKind) when an option is invalid, a weight is negative, not a
    /// number, missing or for an unknown source, all weights are 0, a source has no records, or two sources cannot be read
    /// as one (see [`Concatenated::new`]).
    pub fn new(
        sources: Vec<(String, Arc<dyn RecordSource>)>,
        classes: ClassNames,
        options: MixtureOptions,
    ) -> Result<Self> {
        options.check()?;
        check_in_range("the number of datasets", sources.len(), 1..=MAX_SOURCES)?;
        let mut names = BTreeMap::new();
        for (at, (name, _)) in sources.iter().enumerate() {
            if names.insert(name.as_str(), at).is_some() {
                return Err(Error::usage(format!("there are two datasets of the name {name:?}")));
            }
        }
        let mut segments = vec![Segment { start: 0, weights: by_source(&names, &options.weights)? }];
        let weighted: BTreeSet<&str> = options.weights.iter().map(|(name, _)| name.as_str()).collect();
        if let Some((name, _)) = sources.iter().find(|(name, _)| !weighted.contains(name.as_str())) {
            return Err(Error::usage(format!("the dataset {name:?} has no weight"))
                .help("give it one, or leave it out"));
        }
        if options.schedule.first().is_some_and(|(start, _)| *start == 0) {
            segments.clear();
        }
        for (start, weights) in &options.schedule {
            let weights = by_source(&names, weights)?;
            if segments.last().is_some_and(|last| last.start >= *start) {
                return Err(Error::usage("the steps of the schedule are not strictly ascending"));
            }
            segments.push(Segment { start: *start, weights });
        }
        for Segment { start, weights } in &segments {
            if weights.iter().all(|&weight| weight == 0.0) {
                return Err(Error::usage(format!("all weights from step {start} on are 0")));
            }
        }
        if let Some((name, _)) = sources.iter().find(|(_, source)| source.lengths().records() == 0) {
            return Err(Error::usage(format!("the dataset {name:?} has no records")).help("leave it out"));
        }
        Ok(Self { records: Concatenated::new(sources, classes)?, options, segments })
    }

    /// Returns the options.
    pub fn options(&self) -> &MixtureOptions {
        &self.options
    }

    /// Returns the names and sources, in order.
    pub fn sources(&self) -> impl ExactSizeIterator<Item = (&str, &Arc<dyn RecordSource>)> {
        self.records.sources()
    }
}

/// Returns one weight per source, whose numbers are given by name.
fn by_source(names: &BTreeMap<&str, usize>, weights: &Weights) -> Result<Vec<f64>> {
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

/// A mixture has the records of its concatenated sources.
impl RecordSource for Mixture {
    fn name(&self) -> &str {
        self.records.name()
    }

    fn fingerprint(&self) -> String {
        self.records.fingerprint()
    }

    fn schema(&self) -> &Schema {
        self.records.schema()
    }

    fn lengths(&self) -> &dyn Lengths {
        self.records.lengths()
    }

    fn get_many(&self, records: &[u64]) -> Result<Vec<Record>> {
        self.records.get_many(records)
    }

    fn lend_ids(&self, records: &[u64], field_index: usize, read: &mut ReadIds<'_>) -> Result<()> {
        self.records.lend_ids(records, field_index, read)
    }

    fn block_end(&self, start: u64, most_bytes: u64) -> Result<u64> {
        self.records.block_end(start, most_bytes)
    }

    fn iter(&self) -> Box<dyn Iterator<Item = Result<Record>> + Send> {
        self.records.iter()
    }

    fn inner(&self) -> Option<&dyn RecordSource> {
        Some(&self.records)
    }

    fn reopened(&self) -> Arc<dyn RecordSource> {
        Arc::new(Self { records: self.records.reopen(), ..self.clone() })
    }

    fn part_ends(&self) -> &[u64] {
        self.records.part_ends()
    }

    fn mixture(&self) -> Option<&Mixture> {
        Some(self)
    }

    fn at_record(&self, error: Error, record: u64) -> Error {
        self.records.at_record(error, record)
    }
}
