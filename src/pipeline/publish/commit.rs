//! Commit of a dataset in object storage, cleanup after a run, and checks of committed datasets.

use std::path::Path;

use super::remote::Remote;
use super::transfer::for_all;
use super::units::shards;
use crate::error::{Error, ErrorKind, Result};
use crate::index::{Segment, ShardEntry, ShardTable};
use crate::manifest::{MANIFEST_NAME, Manifest, open_listed};
use crate::pipeline::output_state::WORK_NAME;
use crate::pipeline::stop::Stop;
use crate::pipeline::unit_result::UnitResult;
use crate::storage::{Access, Written, create_dir, resolve};

impl Remote {
    /// Commits the dataset: checks all shards of `units`, uploads the files in `staged`, then creates the manifest with
    /// the content `json`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotCommitted`](crate::error::ErrorKind) if a dataset was committed meanwhile.
    pub(in crate::pipeline) fn commit(
        &self,
        units: &[UnitResult],
        staged: &Path,
        manifest: &Manifest,
        json: Vec<u8>,
        stop: &Stop,
    ) -> Result<()> {
        // A listing takes one request per thousand objects. Objects that it does not list with the expected size are
        // requested individually.
        let listing = self.listing(None)?;
        for_all(units, "checking shards", stop, |unit| {
            for (name, bytes) in shards(unit) {
                if let Some(why) = self.object_difference(&name, bytes, Some(&listing))? {
                    return Err(self.unusable(unit.unit, &name, &why));
                }
            }
            Ok(())
        })?;
        let files: Vec<(&str, u64, &str)> = manifest.listed_files().collect();
        for_all(&files, "uploading indexes", stop, |&(name, bytes, sha256)| {
            let written = Written { bytes, sha256: sha256.to_owned() };
            self.check_uncommitted()?;
            self.upload(&resolve(staged, name)?, name, Some(&written), stop)
        })?;
        self.create(&self.object(MANIFEST_NAME)?, json, || {
            let message = "another dataset was committed to this prefix during this run";
            Error::new(ErrorKind::NotCommitted, message).help("choose another prefix for `out`")
        })
    }

    /// Deletes the objects that only a run needs.
    pub(in crate::pipeline) fn remove_work(&self) -> Result<()> {
        let objects = self.bucket.list(&self.object(WORK_NAME)?)?;
        for_all(&objects, "deleting objects", &Stop::default(), |object| self.bucket.delete(&object.url))
    }

    /// Deletes everything of a run that is not worth keeping: the shards of `units`, and the objects that only a run
    /// needs.
    pub(in crate::pipeline) fn abandon(&self, units: &[UnitResult]) -> Result<()> {
        if self.manifest()?.is_some() {
            return Ok(());
        }
        let stop = Stop::default();
        // Unit results are deleted before shards, so that no unit counts as finished without its shards.
        for_all(units, "deleting units", &stop, |unit| self.remove_unit(unit.unit))?;
        for_all(units, "deleting shards", &stop, |unit| {
            shards(unit).try_for_each(|(name, _)| self.bucket.delete(&self.object(&name)?))
        })?;
        self.remove_work()
    }

    /// Returns the files of a committed dataset that are missing or have the wrong size: name and difference. `scratch`
    /// is a local folder for the shard table.
    pub(in crate::pipeline) fn find_damaged(
        &self,
        manifest: &Manifest,
        scratch: &Path,
        stop: &Stop,
    ) -> Result<Vec<(String, String)>> {
        let listing = self.listing(None)?;
        let mut damaged = Vec::new();
        let mut check = |name: &str, bytes: u64| -> Result<()> {
            stop.check()?;
            if let Some(why) = self.object_difference(name, bytes, Some(&listing))? {
                damaged.push((name.to_owned(), why));
            }
            Ok(())
        };
        for (name, bytes, _) in manifest.listed_files() {
            check(name, bytes)?;
        }
        let table = &manifest.shard_table;
        let is_damaged = self.object_difference(&table.path, table.bytes, Some(&listing))?.is_some();
        if !is_damaged {
            let local = resolve(scratch, &table.path)?;
            create_dir(local.parent().unwrap_or(scratch))?;
            self.download(&table.path, Some(table.bytes), &local)?;
            let blob = open_listed(scratch, &table.path, table.bytes, Access::Read)?;
            for shard in ShardTable::read(Segment { blob, records: table.records })?.shards() {
                check(&ShardEntry::path(shard), shard.bytes)?;
            }
        }
        Ok(damaged)
    }
}
