//! Splits from the names of sources, folders and files.
//!
//! One rule applies to folders, archives and text: a name denotes a split if one of its words does. A level of folders
//! determines splits if all of its folders name splits, or if two of them name different splits; the names of files
//! matter only if no level does. The words are those of the Hugging Face Hub, so a folder in the layout of the Hub has the
//! splits that `datasets.load_dataset` finds in it. Unlike there, no file is left out: a file that names no split is in the
//! default split, with a warning.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::hub_configs::ConfigFiles;
use super::layout::{FolderLayout, SplitBy};
use super::split_levels::{LevelNames, SeenNames, SplitNames, UnusedFolders, file_name, folders, path_of};
use crate::error::{Error, Result};
use crate::index::check_split_name;
use crate::options::SplitName;
pub use crate::options::split_named;
use crate::printable::printable;
use crate::source::archive::stem;
use crate::source::list::file_list::ChosenFiles;
use crate::source::list::source_file::SourceFile;
use crate::warning::Warning;

/// Split of items that belong to no other split.
pub const DEFAULT_SPLIT: &str = "train";

/// The splits of the files of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Splits {
    /// Criterion that determines the split of a file.
    pub by: SplitBy,
    /// Names of the splits, sorted.
    pub names: Vec<String>,
    /// Names of the folders that determine splits, sorted.
    pub folders: Vec<String>,
    /// Split of files that name none.
    pub(super) default: String,
    /// Levels of folders that determine splits, the most decisive first.
    pub(super) levels: Vec<usize>,
    /// Folders beside split folders that are splits of their own.
    strays: Strays,
    pub(super) of: SplitNames,
    /// The files of splits, if a card lists them.
    #[serde(default, skip_serializing_if = "ConfigFiles::is_empty")]
    config: ConfigFiles,
    /// Folders that are not splits, although their names contain words of splits.
    #[serde(skip)]
    pub(super) unused: Option<UnusedFolders>,
}

/// Folders beside split folders that are splits of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Strays {
    None,
    /// Folders whose names are valid for splits.
    Valid,
    All,
}

impl Splits {
    /// Returns splits with all items in `train`.
    pub fn none() -> Self {
        let default = DEFAULT_SPLIT.to_owned();
        Self {
            by: SplitBy::Nothing,
            names: vec![default.clone()],
            folders: Vec::new(),
            default,
            levels: Vec::new(),
            strays: Strays::None,
            of: SplitNames::OfImages,
            config: ConfigFiles::default(),
            unused: None,
        }
    }

    /// Returns the splits of `files` that `config` lists. Folders of splits are not classes.
    ///
    /// # Errors
    ///
    /// Returns an error if the name of a split is not valid.
    pub fn configured(
        files: &ChosenFiles<'_>,
        config: ConfigFiles,
        names: SplitNames,
    ) -> Result<(Self, Vec<Warning>)> {
        let levels = match names {
            SplitNames::OfImages => SeenNames::of(files, names).deciding_levels(names),
            SplitNames::OfContainers => Vec::new(),
        };
        let mut found = Self { by: SplitBy::Configuration, of: names, config, ..Self::none() };
        let mut warnings = Vec::new();
        found.name_splits(files, FolderLayout::Auto, &mut warnings)?;
        found.levels = levels;
        Ok((found, warnings))
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
        let mut labels = BTreeMap::new();
        for file in files.iter() {
            if !labels.contains_key(label(&file)) {
                labels.insert(label(&file).to_owned(), split_of_label(&file));
            }
        }
        let seen = SeenNames::of(files, names);
        let mut found = Self { of: names, ..Self::none() };
        if let [(label, Some(split))] = labels.iter().collect::<Vec<_>>()[..]
            && SplitName::of(label).is_some_and(|name| name.is_exact())
        {
            found.default = (*split).to_owned();
        }
        found.decide(files, &seen, &labels);
        if layout == FolderLayout::Splits {
            let is_nested = matches!(found.by, SplitBy::NestedFolder | SplitBy::FileName);
            if found.by == SplitBy::Nothing || (is_nested && names == SplitNames::OfImages) {
                (found.by, found.levels) = (SplitBy::Folder, vec![0]);
            }
            if found.by == SplitBy::Folder {
                found.levels.truncate(1);
            }
            if found.by == SplitBy::Folder || found.strays == Strays::Valid {
                found.strays = Strays::All;
            }
        }
        let mut warnings = Vec::new();
        found.name_splits(files, layout, &mut warnings)?;
        if layout == FolderLayout::Auto {
            found.warn(files, &seen, &labels, &mut warnings);
        }
        Ok((found, warnings))
    }

    /// Determines the criterion for the splits of `files`, trying the most explicit one first.
    fn decide(
        &mut self,
        files: &ChosenFiles<'_>,
        seen: &SeenNames,
        labels: &BTreeMap<String, Option<&'static str>>,
    ) {
        let mut sources = LevelNames::default();
        labels.keys().for_each(|label| sources.add(label));
        let splits: BTreeSet<_> = labels.values().flatten().collect();
        let all_named = labels.values().all(Option::is_some);
        if labels.len() > 1 && (all_named || splits.len() > 1) && sources.is_coherent() {
            self.by = SplitBy::SourceLabel;
            return;
        }
        if self.of == SplitNames::OfContainers {
            let mut shards = files.iter().filter_map(|f| shard_split(&f)).peekable();
            if shards.peek().is_some() && shards.all(|name| check_split_name(&name).is_ok()) {
                self.by = SplitBy::ShardName;
                return;
            }
        }
        self.levels = seen.deciding_levels(self.of);
        match self.levels.first() {
            Some(&level) => {
                self.by = if level == 0 { SplitBy::Folder } else { SplitBy::NestedFolder };
                if seen.has_stray_splits(level) {
                    self.strays = Strays::Valid;
                }
            }
            None if seen.files.decide_by_file(seen.total, self.of) => self.by = SplitBy::FileName,
            None => {}
        }
    }

    /// Finds the names of the splits.
    fn name_splits(
        &mut self,
        files: &ChosenFiles<'_>,
        layout: FolderLayout,
        warnings: &mut Vec<Warning>,
    ) -> Result<()> {
        let (mut named, mut folders) = (BTreeSet::new(), BTreeSet::new());
        let (mut unassigned, mut example) = (0, None);
        for file in files.iter() {
            match self.name_of(&file) {
                Some(name) => {
                    named.insert(name);
                }
                None => {
                    unassigned += 1;
                    example.get_or_insert_with(|| file.origin.clone());
                }
            }
            if self.levels.is_empty() {
                continue;
            }
            let path = path_of(&file, self.of);
            if let Some(folder) = self.split_level(&path).and_then(|level| path.get(level))
                && !folders.contains(folder)
            {
                folders.insert(folder.clone());
            }
        }
        self.folders = folders.into_iter().collect();
        if self.by != SplitBy::Nothing
            && let Some(example) = &example
        {
            if layout == FolderLayout::Splits {
                return Err(Error::usage(format!("{example:?} is not in a split folder"))
                    .help("move it into train, validation or test, or use another layout"));
            }
            let (by, split) = (self.by, &self.default);
            let message = format!(
                "splits are determined {by}, but {unassigned} of the files name none, such as {:?}: they are in {split}",
                printable(example)
            );
            warnings.push(
                Warning::new("unassigned-files", message)
                    .with("by", by)
                    .with("files", unassigned)
                    .with("example", example)
                    .with("split", split)
                    .remedy("layout", "flat", "puts everything into train"),
            );
        }
        if example.is_some() || named.is_empty() {
            named.insert(self.default.clone());
        }
        self.names = named.into_iter().collect();
        for name in &self.names {
            check_split_name(name).map_err(|e| {
                Error::usage(format!("the name of a folder is not valid for a split: {e}"))
                    .help("rename the folder, or use another `layout`")
            })?;
        }
        Ok(())
    }

    /// Returns the split that `file` names.
    fn name_of(&self, file: &SourceFile) -> Option<String> {
        let owned = |name: SplitName<'_>| name.split.to_owned();
        let of_file = || SplitName::of_file(file_name(file)).map(owned);
        let of_containers = |split: Option<String>| split.filter(|_| self.of == SplitNames::OfContainers);
        match self.by {
            SplitBy::Nothing => None,
            SplitBy::SourceLabel => {
                let stray = || Some(label(file)).filter(|label| check_split_name(label).is_ok());
                split_of_label(file).or_else(stray).map(str::to_owned)
            }
            SplitBy::Folder | SplitBy::NestedFolder => {
                let path = path_of(file, self.of);
                let folder = self.split_level(&path).and_then(|level| path.get(level));
                let split = folder.map(|name| SplitName::of(name).map_or_else(|| name.clone(), owned));
                split.or_else(|| of_containers(of_file()))
            }
            SplitBy::ShardName => shard_split(file).or_else(|| {
                let path = path_of(file, self.of);
                let of_folder = path.iter().find_map(|name| SplitName::of(name).map(owned));
                of_containers(of_folder.or_else(of_file))
            }),
            SplitBy::FileName => of_file(),
            SplitBy::Configuration => self.config.split_of(file).map(str::to_owned),
        }
    }

    /// Returns the level of the folder in `path` that denotes a split.
    fn split_level(&self, path: &[String]) -> Option<usize> {
        let is_named = |level: &&usize| path.get(**level).is_some_and(|name| SplitName::of(name).is_some());
        let named = self.levels.iter().find(is_named);
        let is_stray = |level: &&usize| match (self.strays, path.get(**level)) {
            (Strays::All, Some(_)) => true,
            (Strays::Valid, Some(name)) => check_split_name(name).is_ok(),
            (Strays::None, _) | (_, None) => false,
        };
        named.or_else(|| self.levels.first().filter(is_stray)).copied()
    }

    /// Returns the first level of the `path` of a file whose folder may be a class.
    pub(super) fn first_class_level(&self, path: &[String]) -> usize {
        let level = self.split_level(path).or_else(|| self.levels.first().copied());
        level.map_or(0, |level| level + 1)
    }

    /// Returns whether folders determine splits.
    pub fn are_folders(&self) -> bool {
        matches!(self.by, SplitBy::Folder | SplitBy::NestedFolder)
    }

    /// Returns the index in [`Splits::names`] of the split of `file`.
    pub fn of(&self, file: &SourceFile) -> usize {
        let name = self.name_of(file);
        let position = |name: &str| self.names.iter().position(|n| n == name);
        name.and_then(|name| position(&name)).or_else(|| position(&self.default)).unwrap_or(0)
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

/// Returns the split that the label of the source of `file` denotes.
fn split_of_label(file: &SourceFile) -> Option<&'static str> {
    match file.is_named() {
        // The name of a file has an extension.
        true => split_named(label(file)),
        false => SplitName::of(label(file)).map(|name| name.split),
    }
}

/// Returns the part of the origin that the user named: the label of the source, or for a match of a pattern, the part
/// of the label before the name of the match.
fn label(file: &SourceFile) -> &str {
    let label = file.origin.split('/').next().unwrap_or_default();
    match &file.member {
        Some(member) if member.archive_parts == 0 => stem(label),
        _ => label,
    }
}

/// Returns the name of the archive that contains `file`, without its extension, if the archive is itself a source.
pub(super) fn named_archive(file: &SourceFile) -> Option<String> {
    file.member.as_ref().filter(|member| member.archive_parts == 0)?;
    let inside = file.relative.components().count();
    let name = file.origin.rsplit('/').nth(inside)?;
    Some(stem(name).to_owned())
}

/// Returns `SPLIT` for `data/SPLIT-00000-of-00001.parquet`.
fn shard_split(file: &SourceFile) -> Option<String> {
    let name =
        Some(file_name(file)).filter(|_| folders(file).last().is_some_and(|folder| folder == "data"))?;
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
    use serde_json::json;

    use super::*;
    use crate::source::list::file_list::FileList;

    /// Creates source files from their origins; the source is the part before `|`, or the whole if there is none.
    fn files(paths: &[&str]) -> FileList {
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
        let (splits, warnings) = Splits::find(&ChosenFiles::all(&files), layout, SplitNames::OfContainers)?;
        let of = files.iter().map(|f| splits.names[splits.of(&f)].clone()).collect();
        Ok((splits.by, of, warnings))
    }

    fn codes(warnings: &[Warning]) -> Vec<&'static str> {
        warnings.iter().map(|warning| warning.code).collect()
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
            (&["s|x/train-clean/a.txt", "s|x/test.other/b.txt"], SplitBy::NestedFolder, &["train", "test"]),
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
        assert_eq!(codes(&warnings), ["unusual-split-names"]);
        assert_eq!(warnings[0].value("names").as_array().unwrap().len(), 2);
        let (by, of, warnings) = auto(&["s|train/a.txt", "s|val/b.txt", "s|extra/c.txt", "s|d.txt"]);
        assert_eq!(
            (by, of),
            (SplitBy::Folder, ["train", "validation", "extra", "train"].map(String::from).into())
        );
        assert_eq!(codes(&warnings), ["unassigned-files", "stray-folders"]);
        assert_eq!(
            (warnings[0].value("files"), warnings[1].value("folders")),
            (&json!(1), &json!(["extra"]))
        );
        let (_, of, warnings) = auto(&["s|a.txt", "s|TEST.txt"]);
        assert_eq!(of, ["train", "test"]);
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        let (_, of, warnings) = auto(&["test|a.txt"]);
        assert_eq!(of, ["test"]);
        assert_eq!(codes(&warnings), ["split-of-source"]);
        let (_, of, warnings) = auto(&["train|a.txt", "test|a.txt", "other|a.txt"]);
        assert_eq!(of, ["train", "test", "other"]);
        assert_eq!(codes(&warnings), ["stray-folders"]);
        assert_eq!(warnings[0].value("folders"), &json!(["other"]));
        let (_, of, warnings) = auto(&["test|a.txt", "other|a.txt"]);
        assert_eq!(of, ["train", "train"]);
        assert_eq!(codes(&warnings), ["mixed-source-labels"]);
    }

    fn images(paths: &[&str]) -> (SplitBy, Vec<String>, Vec<Warning>) {
        let files = files(paths);
        let (splits, warnings) =
            Splits::find(&ChosenFiles::all(&files), FolderLayout::Auto, SplitNames::OfImages).unwrap();
        let of = files.iter().map(|f| splits.names[splits.of(&f)].clone()).collect();
        (splits.by, of, warnings)
    }

    #[test]
    fn words_in_folders_of_images_at_any_level_are_splits() {
        use SplitBy::{FileName, Folder, NestedFolder, Nothing, SourceLabel};
        for (paths, by, splits) in [
            (&["s|train2017/a", "s|val2017/b"][..], Folder, &["train", "validation"][..]),
            (&["s|images/train/a", "s|images/val/b"], NestedFolder, &["train", "validation"]),
            (&["s|a/training_set/c/1", "s|a/test_set/c/2"], NestedFolder, &["train", "test"]),
            (&["s|seg_train/x/1", "s|seg_test/x/2"], Folder, &["train", "test"]),
            (&["s|DIV2K_train_HR/1", "s|DIV2K_valid_HR/2"], Folder, &["train", "validation"]),
            (&["s|val/1", "s|val/2"], Folder, &["validation", "validation"]),
            // The wrapper names only one split.
            (&["s|my-test-data/train/1", "s|my-test-data/val/2"], NestedFolder, &["train", "validation"]),
            // Levels at different depths.
            (
                &["s|a/train/1", "s|a/test/2", "s|b/x/train/3", "s|b/x/test/4"],
                NestedFolder,
                &["train", "test", "train", "test"],
            ),
            // A class is called like a split.
            (
                &["s|train/train/1", "s|train/car/2", "s|val/train/3"],
                Folder,
                &["train", "train", "validation"],
            ),
            // Few files are that deep.
            (&["s|cat/1", "s|cat/2", "s|dog/3", "s|dog/x/4", "s|z/test/5"], Nothing, &["train"; 5]),
            (&["s|train_1.jpg", "s|c/test_2.jpg"], FileName, &["train", "test"]),
            (&["s|a.jpg", "s|b.jpg", "s|test.jpg"], Nothing, &["train"; 3]),
            (&["train2017|c/a", "val2017|c/b"], SourceLabel, &["train", "validation"]),
        ] {
            let (found_by, of, warnings) = images(paths);
            assert_eq!((found_by, &of.iter().map(String::as_str).collect::<Vec<_>>()[..]), (by, splits));
            let is_named = |warning: &Warning| warning.code == "split-named-folders";
            assert!(warnings.iter().all(is_named), "{paths:?}: {warnings:?}");
        }
    }

    #[test]
    fn nouns_with_words_of_splits_are_not_splits() {
        for paths in [
            &["s|train_station/1", "s|cat/2"][..],
            &["s|bullet_train/1", "s|train_station/2", "s|test_tube/3"],
            &["s|bullet_train/1", "s|train_station/2", "s|test_tube/3", "s|cat/4"],
            &["s|x/bullet_train/bullet_train_1.jpg", "s|x/test_tube/test_tube_1.jpg"],
            &["s|train/1", "s|extra/2"],
        ] {
            let (by, of, warnings) = images(paths);
            assert_eq!(by, SplitBy::Nothing, "{paths:?}");
            assert!(of.iter().all(|split| split == "train"));
            assert_eq!(codes(&warnings), ["split-named-folders"], "{paths:?}");
        }
        // Of text, folders are never classes.
        assert_eq!(auto(&["s|en/1", "s|test/2"]).1, ["train", "test"]);
        assert_eq!(auto(&["s|cooking/1", "s|test_tube/2"]).1, ["train", "train"]);
    }

    #[test]
    fn doubtful_decisions_cause_warnings() {
        for (paths, expected) in [
            (&["s|trainA/1", "s|testA/2"][..], &["near-split-names"][..]),
            (&["s|DIV2K_valid_HR/1"], &["unusual-split-names"]),
            (&["s|train_val2018/1", "s|test2018/2"], &["unusual-split-names"]),
            (&["s|x/train/1", "s|x/dev/2", "s|x/val/3"], &["unusual-split-names"]),
            (&["s|train/train_1.jpg", "s|train/val_2.jpg"], &["file-names-unused"]),
            (&["DIV2K_valid_HR|1"], &["split-named-source"]),
            (&["val2017|1"], &["split-of-source"]),
            (&["bullet_train|1", "test_tube|2"], &["mixed-source-labels"]),
            (&["s|x/train/1", "s|x/val/2", "s|x/my stuff/3"], &["unassigned-files"]),
            (&["s|ILSVRC2012_val_1.jpg", "s|ILSVRC2012_val_2.jpg"], &["unusual-split-names"]),
        ] {
            assert_eq!(codes(&images(paths).2), expected, "{paths:?}");
        }
    }

    #[test]
    fn an_explicit_layout_is_followed() {
        let all = ["s|train/a.txt", "s|test/b.txt"];
        assert_eq!(found(&all, FolderLayout::Flat).unwrap().1, ["train", "train"]);
        assert_eq!(
            found(&["s|fold1/a.txt", "s|fold2/b.txt"], FolderLayout::Splits).unwrap().1,
            ["fold1", "fold2"]
        );
        let nested = files(&["s|fold1/train/a.png", "s|fold2/val/b.png"]);
        let chosen = ChosenFiles::all(&nested);
        let splits = Splits::find(&chosen, FolderLayout::Splits, SplitNames::OfImages).unwrap().0;
        assert_eq!(splits.names, ["fold1", "fold2"]);
        let error = found(&["s|fold1/a.txt", "s|b.txt"], FolderLayout::Splits).unwrap_err();
        assert!(error.to_string().contains("s/b.txt"));
        let error = found(&["s|my stuff/a.txt"], FolderLayout::Splits).unwrap_err();
        assert!(error.to_string().contains("my stuff"));
    }
}
