//! Arguments that describe a mixture of datasets. Names, values and defaults are those of `dsconvert.Mixture`.

use std::path::{Path, PathBuf};

use super::values::names;
use crate::error::{Error, Result};
use crate::numbers::plural;
use crate::reader::{
    ClassNames, Dataset, Exhausted, Mix, Mixture, MixtureEpoch, MixtureOptions, MixtureUnit, RecordSource,
    Split,
};

/// Values of `--unit`.
const UNITS: [&str; 4] = ["tokens", "trained", "records", "epochs"];
/// Values of `--exhausted`.
const ENDS: [&str; 3] = ["never", "first_exhausted", "all_exhausted"];
/// The split that is read by default.
const DEFAULT_SPLIT: &str = "train";

/// Arguments that describe a mixture.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Mixture")]
pub(super) struct MixtureArgs {
    /// Mix the datasets: the weight of each, in their order, such as 0.7,0.2,0.1; weights need not add up to 1
    #[arg(long, value_name = "W,W,…", value_delimiter = ',', allow_hyphen_values = true)]
    mixture: Option<Vec<f64>>,

    /// What the weights are shares of: tokens after truncation (images: pixels), tokens that are trained on, records (or
    /// packed rows), or passes over the datasets [default: tokens]
    #[arg(long, value_name = "UNIT", requires = "mixture", value_parser = names::<MixtureUnit>(&UNITS))]
    unit: Option<MixtureUnit>,

    /// End an epoch with the step that reaches N tokens (images: pixels); datasets are repeated
    #[arg(long, value_name = "N", requires = "mixture", conflicts_with = "epoch_steps", value_parser = clap::value_parser!(u64).range(1..))]
    epoch_tokens: Option<u64>,

    /// End an epoch after N global steps; datasets are repeated
    #[arg(long, value_name = "N", requires = "mixture", value_parser = clap::value_parser!(u64).range(1..))]
    epoch_steps: Option<u64>,

    /// When an epoch ends: never (after --epoch-tokens or --epoch-steps), or with the step in which the first or last
    /// dataset ends
    #[arg(long, value_name = "WHEN", requires = "mixture", value_parser = names::<Exhausted>(&ENDS))]
    exhausted: Option<Exhausted>,

    /// Take classes of the same name as one, if the datasets have different classes
    #[arg(long, requires = "mixture")]
    merge_classes: bool,
}

impl MixtureArgs {
    /// Returns whether the datasets are mixed.
    pub(super) fn is_given(&self) -> bool {
        self.mixture.is_some()
    }

    /// Refuses several datasets that are not mixed.
    pub(super) fn check_several(&self, paths: &[PathBuf]) -> Result<()> {
        match paths {
            [_, second, ..] if !self.is_given() => Err(Error::usage("several datasets are not mixed")
                .at_path(second)
                .help("give the weight of each with `mixture`, or name one dataset")),
            _ => Ok(()),
        }
    }

    /// Returns when an epoch ends, if an option says so.
    pub(super) fn exhausted(&self) -> Option<Exhausted> {
        let has_length = self.epoch_tokens.is_some() || self.epoch_steps.is_some();
        self.exhausted.or(has_length.then_some(Exhausted::Never))
    }

    /// Mixes `splits`, each with the path of its dataset.
    pub(super) fn mix(
        &self,
        splits: Vec<(&Path, Split)>,
        mix: Option<Mix>,
        exhausted: Exhausted,
    ) -> Result<Mixture> {
        let weights = self.mixture.as_deref().unwrap_or_default();
        if weights.len() != splits.len() {
            let (given, datasets) = (weights.len() as u64, splits.len() as u64);
            let are = if given == 1 { "is" } else { "are" };
            let what = format!("there {are} {} for {}", plural(given, "weight"), plural(datasets, "dataset"));
            return Err(Error::usage(what).of_option("mixture").help("give one weight for each dataset"));
        }
        let name = |path: &Path| path.display().to_string();
        let names = splits.iter().map(|(path, _)| name(path));
        let options = MixtureOptions {
            unit: self.unit.unwrap_or_default(),
            mix,
            exhausted,
            epoch: self.epoch_tokens.map(MixtureEpoch::Tokens).or(self.epoch_steps.map(MixtureEpoch::Steps)),
            ..MixtureOptions::new(names.zip(weights.iter().copied()))
        };
        let classes = if self.merge_classes { ClassNames::Merged } else { ClassNames::Equal };
        let sources = splits.into_iter().map(|(path, split)| (name(path), split.into()));
        Mixture::new(sources.collect::<Vec<(_, std::sync::Arc<dyn RecordSource>)>>(), classes, options)
    }
}

/// Returns the split `name` of a dataset; by default `train`, or the only one.
pub(super) fn mixed_split(dataset: &Dataset, name: Option<&str>) -> Result<Split> {
    let mut splits = dataset.splits();
    match (name, splits.next(), splits.next()) {
        (None, Some(only), None) => Ok(only),
        (name, ..) => dataset.split(name.unwrap_or(DEFAULT_SPLIT)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::values::named;

    #[test]
    fn all_values_are_those_of_the_reader() {
        assert!(UNITS.iter().all(|text| named::<MixtureUnit>(text).is_ok()));
        assert!(ENDS.iter().all(|text| named::<Exhausted>(text).is_ok()));
        let error = named::<MixtureUnit>("bytes").unwrap_err();
        assert!(error.to_string().contains("bytes"), "{error}");
    }
}
