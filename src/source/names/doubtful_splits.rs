//! Splits that may be unintended: unusual names that are splits, and names with words of splits that are not splits.

use std::collections::{BTreeMap, BTreeSet};

use super::layout::SplitBy;
use super::split_levels::{LevelNames, SeenNames, SplitNames, UnusedFolders, file_name, or_splits};
use super::splits::{DEFAULT_SPLIT, Splits};
use crate::numbers::listed;
use crate::options::SplitName;
use crate::source::list::file_list::ChosenFiles;
use crate::warning::{Warning, quoted};

/// Folder names that almost certainly denote splits.
const USUAL: [&str; 5] = ["train", "val", "valid", "validation", "test"];

impl Splits {
    /// Adds warnings about the splits of `files`. The `labels` of the sources have the split that they name.
    pub(super) fn warn(
        &mut self,
        files: &ChosenFiles<'_>,
        seen: &SeenNames,
        labels: &BTreeMap<String, Option<&'static str>>,
        warnings: &mut Vec<Warning>,
    ) {
        if self.by != SplitBy::SourceLabel && labels.len() > 1 && labels.values().any(Option::is_some) {
            warnings.push(mixed_labels(labels));
        }
        let unusual = self.unusual_names(files, seen);
        if !unusual.is_empty() {
            let names: Vec<(String, String)> = unusual.into_iter().collect();
            let pairs = names.iter().map(|(name, split)| format!("{name:?} is read as the split {split}"));
            let warning = Warning::new("unusual-split-names", listed(pairs)).with("names", names);
            warnings.push(or_flat(warning));
        }
        let is_stray = |folder: &&String| SplitName::of(folder).is_none();
        let mut strays: Vec<String> = self.folders.iter().filter(is_stray).cloned().collect();
        if self.by == SplitBy::SourceLabel {
            strays.extend(labels.iter().filter(|(_, split)| split.is_none()).map(|(label, _)| label.clone()));
        }
        if !strays.is_empty() {
            let names = quoted(&strays);
            let message =
                format!("folders or sources next to those of splits become splits of their own: {names}");
            warnings.push(or_flat(Warning::new("stray-folders", message).with("folders", strays)));
        }
        match self.by {
            SplitBy::Folder | SplitBy::NestedFolder => self.warn_of_file_names(seen, warnings),
            SplitBy::Nothing => self.warn_of_unused_names(seen, labels, warnings),
            SplitBy::SourceLabel | SplitBy::ShardName | SplitBy::FileName | SplitBy::Configuration => {}
        }
    }

    /// Returns names that may not be meant as those of splits, with their splits.
    fn unusual_names(&self, files: &ChosenFiles<'_>, seen: &SeenNames) -> BTreeMap<String, String> {
        let mut unusual = BTreeMap::new();
        let is_capitalized = |name: &SplitName<'_>| name.word.contains(char::is_uppercase);
        let mut words: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        let named = || self.folders.iter().filter_map(|folder| Some((folder, SplitName::of(folder)?)));
        for (_, name) in named() {
            words.entry(name.split).or_default().insert(name.word.to_ascii_lowercase());
        }
        let level = self.levels.first().and_then(|&level| seen.levels.get(level));
        for (folder, name) in named() {
            let is_merged = words.get(name.split).is_some_and(|words| words.len() > 1);
            let is_noun = self.of == SplitNames::OfImages
                && !name.is_plain()
                && level.is_some_and(|names| {
                    !names.is_coherent() || (names.splits().len() == 1 && name.split != DEFAULT_SPLIT)
                });
            let is_rare = name.word == *folder && !USUAL.contains(&name.word);
            if is_merged || is_noun || is_rare || name.is_ambiguous() || is_capitalized(&name) {
                unusual.insert(folder.clone(), name.split.to_owned());
            }
        }
        if self.by == SplitBy::FileName {
            for file in files.iter() {
                // The Hub distinguishes case.
                let name = SplitName::of_file(file_name(&file)).filter(is_capitalized);
                if let Some(name) = name.filter(|name| !unusual.contains_key(name.word)) {
                    unusual.insert(name.word.to_owned(), name.split.to_owned());
                }
            }
            let splits = seen.files.splits();
            let is_noun = |name: &&String| SplitName::of_file(name).is_some_and(|name| !name.is_plain());
            if self.of == SplitNames::OfImages && splits.len() == 1 {
                let nouns = seen.files.named().filter(is_noun).take(1);
                unusual.extend(nouns.zip(splits).map(|(name, split)| (name.clone(), split.to_owned())));
            }
        }
        unusual
    }

    /// Warns if folders denote only one split, but the names of files several.
    fn warn_of_file_names(&self, seen: &SeenNames, warnings: &mut Vec<Warning>) {
        let of_folders: BTreeSet<&str> =
            self.folders.iter().filter_map(|folder| Some(SplitName::of(folder)?.split)).collect();
        let splits = seen.files.splits();
        if let [split] = of_folders.into_iter().collect::<Vec<_>>()[..]
            && splits.len() > 1
            && seen.files.decide_by_file(seen.total, self.of)
        {
            let others = seen
                .files
                .named()
                .filter(|name| SplitName::of_file(name).is_some_and(|name| name.split != split));
            let examples: Vec<String> = others.take(2).cloned().collect();
            let message = format!(
                "folders determine splits, so all files are in {split}, although the names of files such as {} denote other \
                 splits",
                quoted(&examples)
            );
            let warning = Warning::new("file-names-unused", message);
            warnings.push(or_flat(warning.with("examples", examples).with("split", split)));
        }
    }

    /// Warns about names of splits where nothing determines splits.
    fn warn_of_unused_names(
        &mut self,
        seen: &SeenNames,
        labels: &BTreeMap<String, Option<&'static str>>,
        warnings: &mut Vec<Warning>,
    ) {
        let label = labels.keys().next().cloned().unwrap_or_default();
        if self.default != DEFAULT_SPLIT {
            let split = &self.default;
            let message =
                format!("everything is in the split {split}, because the source is called {label:?}");
            let warning = Warning::new("split-of-source", message);
            warnings.push(or_flat(warning.with("label", label).with("split", split)));
        } else if labels.len() == 1
            && let Some(split) = labels.values().flatten().find(|split| **split != DEFAULT_SPLIT)
        {
            let message = format!(
                "everything is in train, although the source is called {label:?}; label it as {split}=PATH to make it the \
                 split {split}"
            );
            warnings
                .push(Warning::new("split-named-source", message).with("label", label).with("split", split));
        }
        let named = seen.levels.iter().enumerate().find(|(_, names)| names.named().next().is_some());
        self.unused = named.map(|(level, names)| UnusedFolders {
            folders: names.named().cloned().collect(),
            others: names.others.iter().cloned().collect(),
            level,
        });
        warnings.extend(self.unused.as_ref().map(|unused| unused.warning(false)));
        let mut of_files = Some(&seen.files).filter(|_| self.of == SplitNames::OfContainers);
        let folders = seen.levels.iter().find_map(LevelNames::nearly_named);
        if let Some(names) = folders.or_else(|| of_files.take()?.nearly_named()) {
            let message = format!(
                "{} are not splits, because the words train, test and so on are not separated from the rest; sources that are \
                 labeled as splits, such as train=DIR, always are",
                quoted(&names)
            );
            warnings.push(or_splits(Warning::new("near-split-names", message).with("names", names)));
        }
    }
}

/// Returns the warning about sources that are not splits, because only some are named like splits.
fn mixed_labels(labels: &BTreeMap<String, Option<&'static str>>) -> Warning {
    let labeled = |is_split: bool| -> Vec<String> {
        let of_kind = labels.iter().filter(|(_, split)| split.is_some() == is_split);
        of_kind.map(|(label, _)| label.clone()).collect()
    };
    let (splits, others) = (labeled(true), labeled(false));
    let names = quoted(&splits);
    let why = match others.is_empty() {
        true => format!("the names {names} differ in more than the split"),
        false => format!("only {names} has the name of one, {} has not", quoted(&others)),
    };
    let message = format!("the sources are not splits, because {why}; label them as train=PATH");
    Warning::new("mixed-source-labels", message).with("splits", splits).with("others", others)
}

/// Adds the option with which there are no splits.
fn or_flat(warning: Warning) -> Warning {
    warning.remedy("layout", "flat", "puts everything into train")
}
