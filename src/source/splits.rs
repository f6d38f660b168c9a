//! Splits from the names of sources, folders and files.
//!
//! The split words and their separators are those of the Hugging Face Hub. A folder in the layout of the Hub has the
//! splits that `datasets.load_dataset` finds in it. Unlike there, no file is left out: a file that names no split is in
//! the default split, with a warning.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Component;

use serde::{Deserialize, Serialize};

use super::archive;
use super::file_list::ChosenFiles;
use super::layout::FolderLayout;
use super::portable_name;
use super::source_file::SourceFile;
use super::split_by::SplitBy;
use super::warning::Warning;
use crate::error::{Error, Result};
use crate::index::check_split_name;
pub use crate::options::split_named;

/// Split of items that belong to no other split.
pub const DEFAULT_SPLIT: &str = "train";

/// Folder names that almost certainly denote splits.
const USUAL: [&str; 5] = ["train", "val", "valid", "validation", "test"];

/// The splits of the files of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Splits {
    /// Criterion that determines the split of a file.
    pub by: SplitBy,
    /// Names of the splits, sorted.
    pub names: Vec<String>,
    /// Split of files that name none.
    default: String,
    /// Whether files to which `by` assigns no split get one from the words in their names.
    words: bool,
}

/// The names in which splits are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SplitNames {
    /// Labels of sources and first-level folders.
    Folders,
    /// Also words in the names of folders and files.
    Words,
}

impl Splits {
    /// Returns splits with all items in `train`.
    pub fn none() -> Self {
        let default = DEFAULT_SPLIT.to_owned();
        Self { by: SplitBy::Nothing, names: vec![default.clone()], default, words: false }
    }

    /// Determines the splits of `files` according to `layout`. Returns them with warnings about decisions that may be
    /// unintended.
    ///
    /// # Errors
    ///
    /// Returns an error if a file names no split although [`FolderLayout::Splits`] is given, or if a folder must be a
    /// split and its name is not valid for one.
    pub fn find(
        files: &ChosenFiles<'_>,
        layout: FolderLayout,
        names: SplitNames,
    ) -> Result<(Self, Vec<Warning>)> {
        if matches!(layout, FolderLayout::Flat | FolderLayout::Labels) {
            return Ok((Self::none(), Vec::new()));
        }
        let mut warnings = Vec::new();
        let mut labels = BTreeSet::new();
        for file in files.iter() {
            let label = label(&file);
            if !labels.contains(label) {
                labels.insert(label.to_owned());
            }
        }
        let of_labels: Vec<Option<&str>> = labels.iter().map(|l| split_named(l)).collect();
        let found = Self {
            words: names == SplitNames::Words,
            default: match of_labels[..] {
                [Some(split)] => split.to_owned(),
                _ => DEFAULT_SPLIT.to_owned(),
            },
            ..Self::none()
        };
        let by = found.decide(files, labels.len(), &of_labels);
        let mut found = Self { by, ..found };
        if by == SplitBy::Nothing && layout == FolderLayout::Splits {
            found.by = SplitBy::Folder;
        }
        let mut named = BTreeSet::new();
        let (mut unassigned, mut example) = (0, None);
        for file in files.iter() {
            match found.name_of(&file) {
                Some(name) => {
                    named.insert(name);
                }
                None => {
                    unassigned += 1;
                    example.get_or_insert_with(|| file.origin.clone());
                }
            }
        }
        if found.by != SplitBy::Nothing
            && let Some(example) = &example
        {
            if layout == FolderLayout::Splits {
                return Err(Error::usage(format!("{example:?} is not in a split folder"))
                    .help("move it into train, validation or test, or use another layout"));
            }
            warnings.push(Warning::UnassignedFiles {
                by: found.by,
                files: unassigned,
                example: example.clone(),
                split: found.default.clone(),
            });
        }
        if example.is_some() || named.is_empty() {
            named.insert(found.default.clone());
        }
        found.names = named.into_iter().collect();
        for name in &found.names {
            check_split_name(name).map_err(|e| {
                Error::usage(format!("the name of a folder cannot be that of a split: {e}"))
                    .help("rename the folder, or use another `layout`")
            })?;
        }
        if layout == FolderLayout::Auto {
            found.warn(files, &labels, &of_labels, &mut warnings);
        }
        Ok((found, warnings))
    }

    /// Determines the criterion for the splits of `files`, trying the most explicit one first.
    fn decide(&self, files: &ChosenFiles<'_>, labels: usize, of_labels: &[Option<&str>]) -> SplitBy {
        if labels > 1 && of_labels.iter().all(Option::is_some) {
            return SplitBy::SourceLabel;
        }
        let first = distinct(files.iter().filter_map(|f| folders(&f).into_iter().next()));
        let named: BTreeSet<&str> = first.iter().filter_map(|name| split_named(name)).collect();
        if named.len() > 1 || (!named.is_empty() && first.iter().all(|name| split_named(name).is_some())) {
            return SplitBy::Folder;
        }
        if !self.words {
            return SplitBy::Nothing;
        }
        let shards: Vec<String> = files.iter().filter_map(|f| shard_split(&f)).collect();
        if !shards.is_empty() && shards.iter().all(|name| check_split_name(name).is_ok()) {
            return SplitBy::ShardName;
        }
        if files.iter().any(|f| folder_word(&f).is_some()) {
            SplitBy::FolderWord
        } else if files.iter().any(|f| file_word(&f).is_some()) {
            SplitBy::FileName
        } else {
            SplitBy::Nothing
        }
    }

    fn warn(
        &self,
        files: &ChosenFiles<'_>,
        labels: &BTreeSet<String>,
        of_labels: &[Option<&str>],
        warnings: &mut Vec<Warning>,
    ) {
        if self.by != SplitBy::SourceLabel && labels.len() > 1 && of_labels.iter().any(Option::is_some) {
            let labeled = |is_split: bool| {
                let of_kind = labels.iter().zip(of_labels).filter(|(_, split)| split.is_some() == is_split);
                of_kind.map(|(label, _)| label.clone()).collect()
            };
            warnings.push(Warning::MixedSourceLabels { splits: labeled(true), others: labeled(false) });
        }
        let mut unusual = BTreeMap::new();
        let mut strays = BTreeSet::new();
        for file in files.iter() {
            let file = &*file;
            match self.by {
                SplitBy::Folder => {
                    let Some(name) = folders(file).into_iter().next() else { continue };
                    match split_named(&name) {
                        Some(_) if USUAL.contains(&name.as_str()) => {}
                        Some(split) => drop(unusual.insert(name, split.to_owned())),
                        None => drop(strays.insert(name)),
                    }
                }
                SplitBy::FolderWord | SplitBy::FileName => {
                    let names = folders(file).into_iter().chain(file_name(file));
                    // The Hub distinguishes case.
                    let capitalized = names.filter(|n| n.contains(char::is_uppercase)).find_map(|name| {
                        let words: Vec<&str> = words(&name).collect();
                        let word = words.iter().find_map(|w| split_named(w).map(|split| (*w, split)));
                        let (word, split) = word.filter(|(w, _)| w.contains(char::is_uppercase))?;
                        Some((word.to_owned(), split.to_owned()))
                    });
                    unusual.extend(capitalized);
                }
                _ => {}
            }
        }
        if !unusual.is_empty() {
            warnings.push(Warning::UnusualSplitNames { names: unusual.into_iter().collect() });
        }
        if !strays.is_empty() {
            warnings.push(Warning::StrayFolders { folders: strays.into_iter().collect() });
        }
        if self.by == SplitBy::Nothing && self.default != DEFAULT_SPLIT {
            let label = labels.iter().next().cloned().unwrap_or_default();
            warnings.push(Warning::SplitOfSource { label, split: self.default.clone() });
        }
    }

    /// Returns the split that `file` names.
    fn name_of(&self, file: &SourceFile) -> Option<String> {
        let word = || folder_word(file).or_else(|| file_word(file)).filter(|_| self.words).map(str::to_owned);
        match self.by {
            SplitBy::Nothing => None,
            SplitBy::SourceLabel => split_named(label(file)).map(str::to_owned),
            SplitBy::Folder => {
                let folder = folders(file).into_iter().next();
                folder.map(|name| split_named(&name).map_or(name, str::to_owned)).or_else(word)
            }
            SplitBy::ShardName => shard_split(file).or_else(word),
            SplitBy::FolderWord => word(),
            SplitBy::FileName => file_word(file).map(str::to_owned),
        }
    }

    /// Returns the index in [`Splits::names`] of the split of `file`.
    pub fn of(&self, file: &SourceFile) -> usize {
        let name = self.name_of(file);
        let name = name.as_deref().unwrap_or(&self.default);
        self.names.iter().position(|n| n == name).unwrap_or(0)
    }

    /// Returns the number of `files` per split.
    pub fn count(&self, files: impl Iterator<Item = impl Borrow<SourceFile>>) -> Vec<u64> {
        let mut counts = vec![0; self.names.len()];
        for file in files {
            if let Some(count) = counts.get_mut(self.of(file.borrow())) {
                *count += 1;
            }
        }
        counts
    }

    /// Returns whether names already define the splits, so that splitting by hash would conflict with them.
    pub fn are_given(&self) -> bool {
        self.by != SplitBy::Nothing && self.names != [DEFAULT_SPLIT]
    }
}

/// Returns the names of the folders between the source and a file, outermost first.
pub(super) fn folders(file: &SourceFile) -> Vec<String> {
    let parts = file.relative.components().filter_map(|part| match part {
        Component::Normal(name) => Some(portable_name(name)),
        _ => None,
    });
    let mut names: Vec<String> = parts.collect();
    // Damage to an archive is an item in the folder that the archive is.
    if !file.member.as_ref().is_some_and(|member| member.is_damage()) {
        names.pop();
    }
    if let Some(member) = &file.member {
        let inside = (member.archive_parts as usize).min(names.len());
        let root_end = names.len().min(inside + member.root_parts as usize);
        names.drain(inside..root_end);
        // `train.zip` has the same meaning as a folder `train`.
        if let Some(archive) = names[..inside].last_mut() {
            archive.truncate(archive::stem(archive).len());
        }
    }
    names
}

/// Returns the part of the origin that the user named: the label of the source, or for a match of a pattern, the part
/// of the label before the name of the match.
fn label(file: &SourceFile) -> &str {
    let label = file.origin.split('/').next().unwrap_or_default();
    match &file.member {
        Some(member) if member.archive_parts == 0 => archive::stem(label),
        _ => label,
    }
}

/// Returns the name of the archive that contains `file`, without its extension, if the archive is itself a source.
pub(super) fn named_archive(file: &SourceFile) -> Option<String> {
    file.member.as_ref().filter(|member| member.archive_parts == 0)?;
    let inside = file.relative.components().count();
    let name = file.origin.rsplit('/').nth(inside)?;
    Some(archive::stem(name).to_owned())
}

fn file_name(file: &SourceFile) -> Option<String> {
    file.origin.rsplit('/').next().map(str::to_owned)
}

/// Returns the distinct `names`. `collect` would first hold all of them, one for each file.
pub(super) fn distinct(names: impl Iterator<Item = String>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    found.extend(names);
    found
}

/// Returns whether `name` denotes a split as a whole.
pub(super) fn is_split_name(name: &str) -> bool {
    split_named(name).is_some()
}

/// Returns whether a folder of this name is almost certainly a split.
pub(super) fn is_usual(name: &str) -> bool {
    USUAL.iter().any(|usual| usual.eq_ignore_ascii_case(name))
}

/// Divides a name at the word separators of the Hub.
fn words(name: &str) -> impl Iterator<Item = &str> {
    name.split(|c: char| "-._ ".contains(c) || c.is_ascii_digit())
}

/// Returns the split of the outermost folder that names one.
fn folder_word(file: &SourceFile) -> Option<&'static str> {
    // The label of a match of a pattern may contain folders.
    let label = file.is_named().then(|| file.origin.rsplit_once('/').map(|(folders, _)| folders.split('/')));
    let of_label = label.flatten().into_iter().flatten().map(str::to_owned);
    of_label.chain(folders(file)).find_map(|name| words(&name).find_map(split_named))
}

/// Returns the split that the file name denotes. On the Hub, something must follow the word, if only the extension.
fn file_word(file: &SourceFile) -> Option<&'static str> {
    let name = file_name(file)?;
    let words: Vec<&str> = words(&name).collect();
    words.split_last()?.1.iter().find_map(|word| split_named(word))
}

/// Returns `SPLIT` for `data/SPLIT-00000-of-00001.parquet`.
fn shard_split(file: &SourceFile) -> Option<String> {
    let [folder] = &folders(file)[..] else { return None };
    let name = file_name(file).filter(|_| folder == "data")?;
    let digits = |text: &str| text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
    name.match_indices("-of-").find_map(|(at, of)| {
        let (before, after) = (&name[..at], &name[at + of.len()..]);
        let (split, number) = before.rsplit_once('-')?;
        let (total, rest) = (after.get(..5)?, after.get(5..)?);
        (digits(number) && digits(total) && rest.contains('.') && !split.is_empty()).then(|| split.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates source files from their origins; the source is the part before `|`, or the whole if there is none.
    fn files(paths: &[&str]) -> Vec<SourceFile> {
        paths
            .iter()
            .map(|p| {
                let (label, relative) = p.split_once('|').unwrap_or((p, ""));
                let origin =
                    if relative.is_empty() { label.to_owned() } else { format!("{label}/{relative}") };
                SourceFile::for_test(relative, &origin, 1)
            })
            .collect()
    }

    fn found(paths: &[&str], layout: FolderLayout) -> Result<(SplitBy, Vec<String>, Vec<Warning>)> {
        let files = files(paths);
        let (splits, warnings) = Splits::find(&ChosenFiles::all(&files[..]), layout, SplitNames::Words)?;
        let of = files.iter().map(|f| splits.names[splits.of(f)].clone()).collect();
        Ok((splits.by, of, warnings))
    }

    fn auto(paths: &[&str]) -> (SplitBy, Vec<String>, Vec<Warning>) {
        found(paths, FolderLayout::Auto).unwrap()
    }

    #[test]
    fn names_of_the_hub_are_splits() {
        for (paths, by, splits) in [
            (&["s|train/a.jsonl", "s|val/b.jsonl"][..], SplitBy::Folder, &["train", "validation"][..]),
            (&["s|train.jsonl", "s|dev.jsonl"], SplitBy::FileName, &["train", "validation"]),
            (&["s|en/train-00.gz", "s|en/my_test_file.gz"], SplitBy::FileName, &["train", "test"]),
            (&["s|wiki.valid.txt", "s|eval1.txt"], SplitBy::FileName, &["validation", "test"]),
            (&["s|x/train-clean/a.txt", "s|x/test.other/b.txt"], SplitBy::FolderWord, &["train", "test"]),
            (
                &["s|data/train-00000-of-00001.parquet", "s|data/extra-00000-of-00001-abc.parquet"],
                SplitBy::ShardName,
                &["train", "extra"],
            ),
            (&["train", "test"], SplitBy::SourceLabel, &["train", "test"]),
            (&["train|dog/a.txt", "val|b.txt"], SplitBy::SourceLabel, &["train", "validation"]),
            (&["s|a.txt", "s|retrain.txt", "s|latest.txt"], SplitBy::Nothing, &["train", "train", "train"]),
        ] {
            let (found_by, of, warnings) = auto(paths);
            assert_eq!((found_by, &of.iter().map(String::as_str).collect::<Vec<_>>()[..]), (by, splits));
            assert!(warnings.is_empty(), "{paths:?}: {warnings:?}");
        }
    }

    #[test]
    fn unintended_splits_cause_warnings() {
        let (by, of, warnings) = auto(&["s|Train/a.txt", "s|testing/b.txt"]);
        assert_eq!((by, of), (SplitBy::Folder, vec!["train".to_owned(), "test".to_owned()]));
        assert!(matches!(&warnings[..], [Warning::UnusualSplitNames { names }] if names.len() == 2));
        let (by, of, warnings) = auto(&["s|train/a.txt", "s|val/b.txt", "s|extra/c.txt", "s|d.txt"]);
        assert_eq!(
            (by, of),
            (SplitBy::Folder, ["train", "validation", "extra", "train"].map(String::from).into())
        );
        assert!(matches!(
            &warnings[..],
            [Warning::UnassignedFiles { files: 1, .. }, Warning::StrayFolders { folders }] if folders == &["extra"]
        ));
        let (_, of, warnings) = auto(&["s|a.txt", "s|TEST.txt"]);
        assert_eq!(of, ["train", "test"]);
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        let (_, of, warnings) = auto(&["test|a.txt"]);
        assert_eq!(of, ["test"]);
        assert!(matches!(&warnings[..], [Warning::SplitOfSource { .. }]));
        let (_, of, warnings) = auto(&["test|a.txt", "other|a.txt"]);
        assert_eq!(of, ["train", "train"]);
        assert!(matches!(&warnings[..], [Warning::MixedSourceLabels { .. }]));
    }

    #[test]
    fn an_explicit_layout_is_followed() {
        let all = ["s|train/a.txt", "s|test/b.txt"];
        assert_eq!(found(&all, FolderLayout::Flat).unwrap().1, ["train", "train"]);
        assert_eq!(
            found(&["s|fold1/a.txt", "s|fold2/b.txt"], FolderLayout::Splits).unwrap().1,
            ["fold1", "fold2"]
        );
        let error = found(&["s|fold1/a.txt", "s|b.txt"], FolderLayout::Splits).unwrap_err();
        assert!(error.to_string().contains("s/b.txt"));
        let error = found(&["s|my stuff/a.txt"], FolderLayout::Splits).unwrap_err();
        assert!(error.to_string().contains("my stuff"));
    }
}
