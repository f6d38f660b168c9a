//! Mixtures: several sources in given shares.
//!
//! A [`Mixture`] is a [`RecordSource`], so any [`Loader`](crate::loader::Loader) takes it, with every option.
//! `docs/reference/batching.md` specifies which records its batches hold.

mod options;
mod plan;
mod prediction;
mod records;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dsconvert_dataset::error::{Error, Result};
use dsconvert_dataset::schema::Schema;

pub use self::options::{
    Exhausted, MAX_SOURCES, Mix, MixtureEpoch, MixtureOptions, MixtureUnit, OnChange, Weights,
};
use self::options::{Segment, by_source};
use self::plan::MixturePlan;
pub(crate) use self::prediction::predict;
pub use self::prediction::{Delivered, MixturePrediction, SourcePrediction};
pub use self::records::MixtureRecords;
use super::batch::{Batching, Lengths, StepPlan};
use super::concatenated::{ClassNames, Concatenated};
use super::range::check_in_range;
use super::record::ReadIds;
use super::source::RecordProperties;
use super::{Record, RecordSource};

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

    fn plan(&self, batching: &Batching, seed: u64, micro_batches: u64) -> Result<MixturePlan> {
        MixturePlan::new(&self.records, &self.options, &self.segments, batching, seed, micro_batches)
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

    fn is_remote(&self) -> bool {
        self.records.is_remote()
    }

    fn reopened(&self) -> Arc<dyn RecordSource> {
        Arc::new(Self { records: self.records.reopen(), ..self.clone() })
    }

    fn properties(&self) -> RecordProperties {
        RecordProperties { is_mixture: true, ..self.records.properties() }
    }

    fn step_plan(
        &self,
        batching: &Batching,
        seed: u64,
        micro_batches: u64,
    ) -> Option<Result<Arc<dyn StepPlan>>> {
        let plan = self.plan(batching, seed, micro_batches);
        Some(plan.map(|plan| Arc::new(plan) as Arc<dyn StepPlan>))
    }

    fn at_record(&self, error: Error, record: u64) -> Error {
        self.records.at_record(error, record)
    }
}
