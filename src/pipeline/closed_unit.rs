//! Units whose records are all written, and the steps that make them final.

use std::path::PathBuf;
use std::sync::Arc;

use super::stop::Stop;
use super::unit_dirs::UnitDirs;
use super::unit_options::UnitOptions;
use super::unit_result::{RESULT_NAME, UnitFile, UnitResult, UnitShard, shard_path};
use crate::error::{Error, ErrorKind, Result};
use crate::storage::{NewFile, Written, lstat, remove_dir_all, remove_file, rename, write_file};

/// A shard that is completely written but not yet durable. Finalizing it may wait for the disk, so it happens outside
/// the workers.
pub(super) struct ClosedShard {
    pub(super) attempt: u64,
    pub(super) options: Arc<UnitOptions>,
    pub(super) split: usize,
    pub(super) name: String,
    pub(super) records: u64,
    pub(super) file: NewFile,
}

/// A unit whose records are all written; [`ClosedUnit::finish`] makes it final.
pub(super) struct ClosedUnit {
    pub(super) attempt: u64,
    pub(super) options: Arc<UnitOptions>,
    pub(super) dirs: UnitDirs,
    pub(super) dir: PathBuf,
    pub(super) result: UnitResult,
    pub(super) length: u64,
    pub(super) sidecars: Vec<NewFile>,
}

impl ClosedShard {
    /// Returns the number of the attempt, unique in this process.
    pub(super) fn attempt(&self) -> u64 {
        self.attempt
    }

    /// Waits until the shard is durable on disk or uploaded to object storage.
    pub(super) fn commit(self, stop: &Stop) -> Result<(usize, UnitShard)> {
        let written = match &self.options.remote {
            None => self.file.commit()?,
            Some(remote) => {
                let path = self.file.path().to_owned();
                let written = self.file.finish()?;
                let name = shard_path(&self.options.splits[self.split], &self.name);
                remote.check_uncommitted()?;
                remote.upload(&path, &name, Some(&written), stop)?;
                remove_file(&path)?;
                written
            }
        };
        let Written { bytes, sha256 } = written;
        Ok((self.split, UnitShard { name: self.name, records: self.records, bytes, sha256 }))
    }
}

impl ClosedUnit {
    /// Returns the number of the attempt, unique in this process.
    pub(super) fn attempt(&self) -> u64 {
        self.attempt
    }

    /// Returns the sum of the lengths of all records.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Makes the unit final. `shards` are all its shards, in the order in which they were closed.
    pub(super) fn finish(mut self, shards: Vec<(usize, UnitShard)>, stop: &Stop) -> Result<UnitResult> {
        for (split, shard) in shards {
            self.result.splits[split].shards.push(shard);
        }
        for sidecar in self.sidecars {
            let name = sidecar.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
            let Written { bytes, sha256 } = sidecar.commit()?;
            self.result.files.push(UnitFile { name, bytes, sha256 });
        }
        write_file(&self.dir.join(RESULT_NAME), &self.result.to_bytes()?)?;
        if let Some(remote) = &self.options.remote {
            remote.finish_unit(&self.result, &self.dir, stop)?;
        }
        let done = self.dirs.done(self.result.unit);
        if let Err(error) = rename(&self.dir, &done) {
            // If another process has finished the same unit meanwhile, the first result stays.
            if lstat(&done.join(RESULT_NAME))?.is_none() {
                return Err(error);
            }
            remove_dir_all(&self.dir)?;
            if self.dirs.result(self.result.unit, &self.result.plan)? != self.result {
                return Err(different_unit(self.result.unit).at_path(done));
            }
        }
        Ok(self.result)
    }
}

/// Returns the error for a unit that two processes finished with different results.
pub(super) fn different_unit(unit: u32) -> Error {
    let message = format!("another process finished unit {unit} with different records");
    Error::new(ErrorKind::NotCommitted, message).help(
        "all processes must read the same sources with one build of dsconvert; start again with another `out`",
    )
}
