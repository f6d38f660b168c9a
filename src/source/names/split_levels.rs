//! Folder names at each level of the sources, and the levels that determine splits.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Component;

use serde::{Deserialize, Serialize};

use crate::options::{Affix, SplitName, split_affixes};
use crate::source::archive::stem;
use crate::source::io::name::portable_name;
use crate::source::list::file_list::ChosenFiles;
use crate::source::list::source_file::SourceFile;
use crate::warning::{Warning, quoted};

/// Levels beyond this one are not examined.
const MAX_LEVELS: usize = 32;
/// Maximum number of names that are kept of each kind.
const KEPT_NAMES: usize = 4096;
/// Maximum number of names without the word of a split that are kept, as examples.
const KEPT_OTHERS: usize = 5;

/// The kind of files whose names are examined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SplitNames {
    /// Images. Their folders may be classes.
    OfImages,
    /// Files with many records, which are named for their content. Their folders are never classes.
    OfContainers,
}

/// The names of a level of folders, of files, or of sources.
#[derive(Debug, Default)]
pub(super) struct LevelNames {
    /// Whether the names are those of files.
    of_files: bool,
    /// Whether names that only start or end with the word of a split are kept.
    keeps_affixed: bool,
    /// Names that contain the word of a split, by split.
    named: BTreeMap<&'static str, BTreeSet<String>>,
    /// Some of the other names.
    pub(in crate::source) others: BTreeSet<String>,
    /// Number of files with a name at this level.
    files: u64,
    /// Number of files whose names at this level contain the word of a split.
    named_files: u64,
    /// Names that start or end with the word of a split, by the rest of the name and by split.
    affixed: BTreeMap<Affix, BTreeMap<&'static str, String>>,
    last: Option<(String, bool)>,
}

impl LevelNames {
    fn parse<'a>(&self, name: &'a str) -> Option<SplitName<'a>> {
        if self.of_files { SplitName::of_file(name) } else { SplitName::of(name) }
    }

    /// Adds the name that a file has at this level.
    pub(in crate::source) fn add(&mut self, name: &str) {
        self.files += 1;
        // Files in one folder follow each other.
        if let Some((last, is_named)) = &self.last
            && last == name
        {
            self.named_files += u64::from(*is_named);
            return;
        }
        let split = self.parse(name).map(|name| name.split);
        self.named_files += u64::from(split.is_some());
        self.last = Some((name.to_owned(), split.is_some()));
        let (names, limit) = match split {
            Some(split) => (self.named.entry(split).or_default(), KEPT_NAMES),
            None => (&mut self.others, KEPT_OTHERS),
        };
        if names.len() < limit {
            names.insert(name.to_owned());
        }
        if split.is_none() && self.keeps_affixed && self.affixed.len() < KEPT_NAMES {
            for (split, affix) in split_affixes(name) {
                self.affixed.entry(affix).or_default().entry(split).or_insert_with(|| name.to_owned());
            }
        }
    }

    /// Returns the names that contain the word of a split.
    pub(in crate::source) fn named(&self) -> impl Iterator<Item = &String> {
        self.named.values().flatten()
    }

    /// Returns whether there is only one name.
    fn is_single(&self) -> bool {
        self.named().count() + self.others.len() == 1
    }

    /// Returns two names that only differ in words of different splits, which are not whole words: `trainA` and `testA`.
    pub(super) fn nearly_named(&self) -> Option<Vec<String>> {
        let pairs = self.affixed.values().find(|by_split| by_split.len() > 1)?;
        Some(pairs.values().cloned().collect())
    }

    fn split_names(&self) -> impl Iterator<Item = SplitName<'_>> {
        self.named().filter_map(|name| self.parse(name))
    }

    /// Returns the splits that the names denote.
    pub(in crate::source) fn splits(&self) -> BTreeSet<&'static str> {
        self.named.keys().copied().collect()
    }

    /// Returns whether all names denote splits.
    pub(super) fn all_named(&self) -> bool {
        self.others.is_empty() && !self.named.is_empty()
    }

    fn all_exact(&self) -> bool {
        self.split_names().all(|name| name.is_exact())
    }

    /// Returns whether the names belong together, as those of splits do, rather than being unrelated nouns such as
    /// `bullet_train`, `train_station` and `test_tube`.
    pub(super) fn is_coherent(&self) -> bool {
        let splits = self.splits();
        let is_split = |split| splits.contains(split);
        // Hardly any noun contains a word of the split `validation`.
        let is_clear = is_split("validation") || (splits.len() == 1 && !is_split("train"));
        if is_clear || self.is_single() || self.split_names().any(|name| name.is_plain()) {
            return true;
        }
        // `seg_train` and `seg_test` share a word.
        let mut seen: BTreeMap<String, &str> = BTreeMap::new();
        for name in self.split_names() {
            for word in name.meaningful() {
                match seen.insert(word.to_ascii_lowercase(), name.split) {
                    Some(other) if other != name.split || splits.len() == 1 => return true,
                    _ => {}
                }
            }
        }
        false
    }

    /// Returns whether the names of a level of folders determine splits.
    fn decides(&self, names: SplitNames) -> bool {
        let is_clear = self.all_named() || self.has_several();
        match names {
            // No classes are lost.
            SplitNames::OfContainers => is_clear || self.split_names().any(|name| name.is_plain()),
            SplitNames::OfImages => is_clear && self.is_coherent(),
        }
    }

    /// Returns whether the names denote several splits.
    fn has_several(&self) -> bool {
        self.splits().len() > 1
    }

    /// Returns whether the names of files determine splits. `total` is the number of files.
    pub(super) fn decide_by_file(&self, total: u64, names: SplitNames) -> bool {
        let splits = self.splits();
        match names {
            SplitNames::OfContainers => !splits.is_empty(),
            // A word in the names of few images, such as `test.jpg`, is a coincidence.
            SplitNames::OfImages => {
                let is_common = self.named_files * 2 >= total && (self.all_named() || splits.len() > 1);
                is_common && self.is_coherent() && !splits.iter().all(|split| *split == "train")
            }
        }
    }

    /// Sorts levels: see [`SeenNames::deciding_levels`].
    fn rank(&self, level: usize) -> impl Ord + use<> {
        let splits = self.splits().len();
        (splits > 1, self.all_named(), self.all_exact(), splits, Reverse(level))
    }
}

/// The names of folders and files.
#[derive(Debug)]
pub(super) struct SeenNames {
    /// By level, outermost first.
    pub(in crate::source) levels: Vec<LevelNames>,
    pub(in crate::source) files: LevelNames,
    pub(in crate::source) total: u64,
}

impl SeenNames {
    pub(in crate::source) fn of(files: &ChosenFiles<'_>, names: SplitNames) -> Self {
        let keeps_affixed = names == SplitNames::OfContainers;
        let of_files = LevelNames { of_files: true, keeps_affixed, ..LevelNames::default() };
        let mut seen = Self { levels: Vec::new(), files: of_files, total: 0 };
        for file in files.iter() {
            seen.total += 1;
            for (level, folder) in path_of(&file, names).iter().take(MAX_LEVELS).enumerate() {
                if seen.levels.len() == level {
                    seen.levels.push(LevelNames { keeps_affixed: true, ..LevelNames::default() });
                }
                seen.levels[level].add(folder);
            }
            seen.files.add(file_name(&file));
        }
        seen
    }

    /// Returns the levels whose folders determine splits, the most decisive first. A level with several splits precedes
    /// one with one split; then a level whose folders all name splits; then one whose names are only those of splits;
    /// then one with more splits; then the outermost. If most files are not that deep, a level only serves for files to
    /// which no other level assigns a split.
    pub(super) fn deciding_levels(&self, names: SplitNames) -> Vec<usize> {
        let is_common = |level: usize| {
            level == 0 || names == SplitNames::OfContainers || self.levels[level].files * 2 >= self.total
        };
        let mut levels: Vec<usize> =
            (0..self.levels.len()).filter(|&level| self.levels[level].decides(names)).collect();
        levels.sort_by_cached_key(|&level| Reverse((is_common(level), self.levels[level].rank(level))));
        if !levels.first().is_some_and(|&level| is_common(level)) {
            return Vec::new();
        }
        let is_certain = |names: &LevelNames| names.all_named() || (names.has_several() && names.all_exact());
        let rest = levels.split_off(1).into_iter().filter(|&level| is_certain(&self.levels[level]));
        levels.extend(rest);
        levels
    }

    /// Returns whether the folders beside the split folders of a level are splits, too.
    pub(super) fn has_stray_splits(&self, level: usize) -> bool {
        let names = &self.levels[level];
        self.has_one_parent(level) && (names.has_several() || names.all_named())
    }

    /// Returns whether all folders at this level are in the same folder.
    fn has_one_parent(&self, level: usize) -> bool {
        self.levels[..level].iter().all(LevelNames::is_single)
    }
}

/// Returns the names of the folders that may denote splits, outermost first: those below the source, and those in the
/// label of a match of a pattern.
pub(in crate::source) fn path_of(file: &SourceFile, names: SplitNames) -> Vec<String> {
    let below = file.relative.components().count();
    let mut label: Vec<&str> = file.origin.split('/').collect();
    label.truncate(label.len().saturating_sub(below.max(1)));
    if names == SplitNames::OfImages || (below > 0 && label.len() == 1) {
        return folders(file);
    }
    label.into_iter().map(str::to_owned).chain(folders(file)).collect()
}

/// Returns the names of the folders between the source and a file, outermost first.
pub(in crate::source) fn folders(file: &SourceFile) -> Vec<String> {
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
            archive.truncate(stem(archive).len());
        }
    }
    names
}

pub(in crate::source) fn file_name(file: &SourceFile) -> &str {
    file.origin.rsplit('/').next().unwrap_or_default()
}

/// Folders whose names contain words of splits, and that are not splits because of the folders next to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnusedFolders {
    pub(super) folders: Vec<String>,
    /// Some of the other folders at the same level.
    pub(super) others: Vec<String>,
    /// Level of the folders, from 0.
    pub(super) level: usize,
}

impl UnusedFolders {
    /// Returns the warning about these folders, which may be classes.
    pub(super) fn warning(&self, are_classes: bool) -> Warning {
        let Self { folders, others, level } = self;
        let (ending, verb, splits) = match (folders.len(), are_classes) {
            (1, true) => ("", "is a class, not a split", "it is"),
            (1, false) => ("", "is not a split", "it is"),
            (_, true) => ("s", "are classes, not splits", "they are"),
            (_, false) => ("s", "are not splits", "they are"),
        };
        let why = match others.is_empty() {
            true => "the names differ in more than the split".to_owned(),
            false => format!("{splits} next to {}", quoted(others)),
        };
        let message = format!(
            "the folder{ending} {} {verb}, because {why}; sources that are labeled as splits, such as train=DIR, always are",
            quoted(folders)
        );
        let warning = Warning::new("split-named-folders", message)
            .with("folders", folders)
            .with("others", others)
            .with("level", level)
            .with("are_classes", are_classes);
        if *level == 0 { or_splits(warning) } else { warning }
    }
}

/// Adds the option that makes folders splits.
pub(super) fn or_splits(warning: Warning) -> Warning {
    warning.remedy("layout", "splits", "makes the folders splits")
}
