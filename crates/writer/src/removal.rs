//! Removal of a dataset or an unfinished run from its output directory.
//!
//! Only files that a manifest lists are removed: that of the dataset (`manifest.json`, later `.dsconvert/retired.json`),
//! or that of an interrupted commit (`.dsconvert/pending.json`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::layout::{LOCK_NAME, RETIRED_NAME};
use super::output::OutputDir;
use super::units::difference;
use crate::error::{Error, Result};
use crate::index::ShardEntry;
use crate::manifest::{MANIFEST_NAME, Manifest};
use crate::storage::{
    Access, Blob, list_dir, lstat, remove_dir_all, remove_empty_dir, remove_file, rename, resolve, sync_dir,
    write_file,
};

impl OutputDir {
    /// Removes a dataset or an unfinished run.
    ///
    /// The manifest is durably retired first, so that no reader ever sees a dataset with missing parts. Its retired
    /// copy is removed last, so that the next run finishes an interrupted removal. The shard table is removed after the
    /// shards, because nothing else lists them.
    pub(crate) fn clear(&self) -> Result<()> {
        // All files are listed before the first is removed: a dataset that cannot be listed stays as it is.
        let to_remove = self.files_to_remove()?;
        if lstat(&self.path().join(MANIFEST_NAME))?.is_some() {
            rename(&self.path().join(MANIFEST_NAME), &self.retired())?;
        } else if lstat(&self.retired())?.is_none() {
            if to_remove.files.is_empty() && self.leftovers()?.is_empty() {
                return Ok(());
            }
            write_file(&self.retired(), b"")?;
        } else {
            // The run that retired the manifest may have died before the rename was durable. Once its files are
            // removed, the manifest must not reappear after a power cut.
            sync_dir(self.path())?;
            sync_dir(&self.work())?;
        }
        remove_all(&to_remove.files)?;
        remove_all(&to_remove.tables)?;
        let folders: BTreeSet<&Path> =
            to_remove.files.iter().chain(&to_remove.tables).filter_map(|path| path.parent()).collect();
        for folder in folders.into_iter().filter(|&folder| folder != self.path()) {
            remove_empty_dir(folder)?;
        }
        sync_dir(self.path())?;
        for path in self.leftovers()? {
            match lstat(&path)? {
                Some(meta) if meta.is_dir() => remove_dir_all(&path)?,
                _ => remove_file(&path)?,
            }
        }
        sync_dir(&self.work())?;
        remove_file(&self.retired())?;
        sync_dir(&self.work())
    }

    /// Returns the contents of the working directory, except the lock and the retired manifest.
    fn leftovers(&self) -> Result<Vec<PathBuf>> {
        let mut paths: Vec<PathBuf> = list_dir(&self.work())?.into_iter().map(|entry| entry.path).collect();
        paths.retain(|path| !path.ends_with(LOCK_NAME) && !path.ends_with(RETIRED_NAME));
        Ok(paths)
    }

    /// Lists the files outside the working directory that are to be removed.
    fn files_to_remove(&self) -> Result<FilesToRemove> {
        let mut to_remove = FilesToRemove::default();
        for path in [self.path().join(MANIFEST_NAME), self.retired(), self.pending()] {
            if lstat(&path)?.is_none() {
                continue;
            }
            // Does not wait at a FIFO.
            let blob = Blob::open(&path, Access::Read, None)?;
            let json = blob.read(0, blob.len())?;
            if !json.is_empty() {
                let manifest = Manifest::parse(&json).map_err(|e| {
                    e.at_path(&path).help("choose another `out`, or remove this directory by hand")
                })?;
                self.add_files_of(&manifest, &mut to_remove)?;
            }
        }
        Ok(to_remove)
    }

    /// Adds the files that `manifest` lists.
    fn add_files_of(&self, manifest: &Manifest, to_remove: &mut FilesToRemove) -> Result<()> {
        let table = &manifest.shard_table;
        for (path, ..) in manifest.listed_files() {
            let files = if path == table.path { &mut to_remove.tables } else { &mut to_remove.files };
            files.insert(resolve(self.path(), path)?);
        }
        let path = resolve(self.path(), &table.path)?;
        // An interrupted commit may not have moved the table yet.
        let mut why = "is missing".to_owned();
        for root in [self.path(), &self.staged()] {
            let found = resolve(root, &table.path)?;
            if lstat(&found)?.is_some() {
                // A damaged table could name files that are not part of the dataset.
                if let Some(difference) = difference(&found, table.bytes, Some(&table.sha256))? {
                    why = difference;
                    break;
                }
                for path in manifest.read_shards(root)?.shards().map(ShardEntry::path) {
                    to_remove.files.insert(resolve(self.path(), &path)?);
                }
                return Ok(());
            }
        }
        let is_retired = lstat(&self.retired())?.is_some();
        // The table is removed after the shards, so an interrupted removal without a table has no shards left.
        if is_retired && lstat(&path)?.is_none() {
            return Ok(());
        }
        let help = match is_retired {
            true => "choose another `out`, or remove this directory by hand",
            false => {
                "repair the dataset with `resume=repair`, choose another `out`, or remove this directory by hand"
            }
        };
        Err(Error::corrupt(format!(
            "the shard table {why}, so the shards of this dataset cannot be listed and removed"
        ))
        .at_path(path)
        .help(help))
    }
}

/// Paths of the files that are to be removed.
#[derive(Default)]
struct FilesToRemove {
    files: BTreeSet<PathBuf>,
    /// Shard tables, which are removed after the other files.
    tables: BTreeSet<PathBuf>,
}

/// Removes files durably.
fn remove_all(files: &BTreeSet<PathBuf>) -> Result<()> {
    files.iter().try_for_each(|path| remove_file(path))?;
    let folders: BTreeSet<&Path> = files.iter().filter_map(|path| path.parent()).collect();
    for folder in folders {
        if lstat(folder)?.is_some() {
            sync_dir(folder)?;
        }
    }
    Ok(())
}
