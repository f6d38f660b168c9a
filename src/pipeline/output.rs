//! The output directory before, during and after a run.
//!
//! A directory is in one of these states, and each has one way on:
//!
//! | what is there | refuse (default) | `--resume` | `--overwrite` |
//! |---|---|---|---|
//! | nothing, or an empty directory | convert | convert | convert |
//! | `.dsconvert/` without manifest: a run that did not finish | refused | finished | its files are removed, convert |
//! | `manifest.json`: a dataset | refused | nothing to do, if it is the same | its files are removed, convert |
//! | anything else | refused | refused | refused |

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::unit::{UnitDirs, UnitResult};
use crate::error::{Error, Result};
use crate::index::{Segment, ShardEntry, ShardTable};
use crate::manifest::{MANIFEST_NAME, Manifest, open_listed};
use crate::options::{Existing, SourceSpec};
use crate::storage::{
    Access, DirLock, create_dir, is_empty_dir, remove_dir_all, remove_file, rename, resolve,
};

/// Name of the working directory inside the output directory. It is gone after the commit.
pub(super) const WORK_NAME: &str = ".dsconvert";
/// A manifest on its way out: its dataset is being removed.
const RETIRED_NAME: &str = "retired.json";

/// An output directory that this process may write to.
pub(super) struct OutputDir {
    out: PathBuf,
    /// Whether it did not exist before.
    created: bool,
    _lock: DirLock,
}

/// Where a run stands when it gets the directory.
pub(super) enum Start {
    /// There is nothing.
    Fresh,
    /// An earlier run has begun, and may be finished.
    Begun,
    /// The dataset is committed.
    Committed(Box<Manifest>),
}

/// Refuses what can be refused without writing: a directory in use, or one that contains or is contained in a source.
pub(super) fn check(out: &Path, existing: Existing, sources: &[SourceSpec]) -> Result<()> {
    let real = real_path(out);
    for source in sources {
        let source_path = real_path(&source.path);
        if real.starts_with(&source_path) || source_path.starts_with(&real) {
            return Err(Error::usage(format!(
                "the output directory and the source {} overlap",
                crate::printable::printable_path(&source.path)
            ))
            .at_path(out)
            .help("choose an --out that is not inside a source and does not contain one"));
        }
    }
    if out.exists() && !out.is_dir() {
        return Err(Error::usage("the output is not a directory").at_path(out).help("choose another --out"));
    }
    if is_empty_dir(out)? {
        return Ok(());
    }
    let (dataset, begun) = (out.join(MANIFEST_NAME).exists(), out.join(WORK_NAME).exists());
    let (what, help) = match existing {
        Existing::Refuse if dataset => {
            ("there is a dataset already", "choose another --out, or replace it with --overwrite")
        }
        Existing::Refuse if begun => (
            "a run into this directory has not finished",
            "finish it with --resume, or start again with --overwrite",
        ),
        Existing::Refuse => ("the output directory is not empty", "choose another --out"),
        _ if dataset || begun => return Ok(()),
        _ => (
            "the output directory holds files that are not of a dataset",
            "choose another --out; only what a manifest lists is ever removed",
        ),
    };
    Err(Error::usage(what).at_path(out).help(help))
}

/// The path without links, also for a path whose last parts do not exist yet.
fn real_path(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut missing = Vec::new();
    let mut existing = absolute.as_path();
    loop {
        if let Ok(real) = existing.canonicalize() {
            return missing.iter().rev().fold(real, |real, name| real.join(name));
        }
        match (existing.parent(), existing.file_name()) {
            (Some(parent), Some(name)) => {
                missing.push(name.to_owned());
                existing = parent;
            }
            _ => return absolute,
        }
    }
}

impl OutputDir {
    /// Takes the directory for this run. With [`Existing::Overwrite`] what a dataset or an unfinished run left is removed.
    pub(super) fn open(out: &Path, existing: Existing) -> Result<(Self, Start)> {
        let created = !out.exists();
        let work = out.join(WORK_NAME);
        create_dir(out)?;
        create_dir(&work)?;
        let lock = DirLock::acquire(&work.join("lock"))?;
        let dir = Self { out: out.to_owned(), created, _lock: lock };
        if existing == Existing::Overwrite {
            dir.clear()?;
            return Ok((dir, Start::Fresh));
        }
        if work.join(RETIRED_NAME).exists() {
            // An --overwrite was interrupted while it removed the old dataset.
            dir.clear()?;
        }
        let start = if out.join(MANIFEST_NAME).exists() {
            Start::Committed(Box::new(Manifest::read(out)?))
        } else if work.join(super::plan::PLAN_NAME).exists() {
            Start::Begun
        } else {
            Start::Fresh
        };
        Ok((dir, start))
    }

    pub(super) fn path(&self) -> &Path {
        &self.out
    }

    pub(super) fn work(&self) -> PathBuf {
        self.out.join(WORK_NAME)
    }

    /// Removes the working directory: the run is committed, or nothing of it is worth keeping.
    pub(super) fn remove_work(&self) -> Result<()> {
        remove_dir_all(&self.work())
    }

    /// Undoes the creation of the directory, when nothing is in it.
    pub(super) fn abandon(self) -> Result<()> {
        self.remove_work()?;
        if self.created && is_empty_dir(&self.out)? {
            remove_dir_all(&self.out)?;
        }
        Ok(())
    }

    /// Removes a dataset, or an unfinished run. The manifest goes first, durably, so that no reader ever sees a
    /// dataset with parts missing.
    fn clear(&self) -> Result<()> {
        let manifest = self.out.join(MANIFEST_NAME);
        let retired = self.work().join(RETIRED_NAME);
        if manifest.exists() {
            // Read first: what is not a manifest of ours must not be taken away.
            Manifest::read(&self.out)?;
            rename(&manifest, &retired)?;
        }
        let mut listed = BTreeSet::new();
        if retired.exists() {
            let json = std::fs::read(&retired).map_err(|e| Error::io("read", &retired, e))?;
            listed.extend(self.listed_by(&Manifest::parse(&json)?));
        }
        listed.extend(self.listed_by_units());
        let mut folders = BTreeSet::new();
        for relative in &listed {
            let path = resolve(&self.out, relative)?;
            remove_file(&path)?;
            folders.extend(path.parent().map(Path::to_owned).filter(|p| p != &self.out));
        }
        for folder in folders {
            if folder.is_dir() && is_empty_dir(&folder)? {
                remove_dir_all(&folder)?;
            }
        }
        for name in [super::plan::PLAN_NAME, RETIRED_NAME] {
            remove_file(&self.work().join(name))?;
        }
        remove_dir_all(&self.work().join("units"))
    }

    /// Paths of all files of a dataset. A shard table that is damaged or gone lists nothing: its shards stay.
    fn listed_by(&self, manifest: &Manifest) -> Vec<String> {
        let mut paths: Vec<String> = manifest.listed_files().map(|(path, ..)| path.to_owned()).collect();
        let table = &manifest.shard_table;
        let shards = open_listed(&self.out, &table.path, table.bytes, Access::Read)
            .and_then(|blob| ShardTable::read(Segment { blob, records: table.records }));
        if let Ok(table) = shards {
            paths.extend(table.shards().map(ShardEntry::path));
        }
        paths
    }

    /// Paths of shards that an unfinished commit has already moved to their place.
    fn listed_by_units(&self) -> Vec<String> {
        let mut paths = Vec::new();
        let Ok(units) = std::fs::read_dir(self.work().join("units")) else { return paths };
        for unit in units.flatten() {
            let number = unit.file_name().to_str().and_then(|n| n.parse().ok());
            let result = number.and_then(|n: u32| UnitDirs::new(&self.work()).any_result(n).ok().flatten());
            let Some(UnitResult { splits, .. }) = result else { continue };
            for shard in splits.into_iter().flat_map(|s| s.shards) {
                if let Some(split) = split_of_shard(&shard.name) {
                    paths.push(shard_path(split, &shard.name));
                }
            }
        }
        paths
    }
}

/// Path of a shard under the output directory.
pub(super) fn shard_path(split: &str, name: &str) -> String {
    format!("{split}/{name}")
}

/// The split in a shard name `<split>-<unit>-<ordinal>.<extension>`.
fn split_of_shard(name: &str) -> Option<&str> {
    let (rest, _) = name.rsplit_once('-')?;
    Some(rest.rsplit_once('-')?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_split_stands_in_the_shard_name() {
        assert_eq!(split_of_shard("my-split-000001-00.parquet"), Some("my-split"));
    }

    #[test]
    fn an_output_that_overlaps_a_source_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("src");
        std::fs::create_dir(&source).unwrap();
        let specs = [SourceSpec { label: "src".into(), path: source.clone() }];
        assert!(check(&source.join("deep/out"), Existing::Refuse, &specs).is_err());
        assert!(check(dir.path(), Existing::Overwrite, &specs).is_err());
        assert!(check(&dir.path().join("src-out"), Existing::Refuse, &specs).is_ok());
    }
}
