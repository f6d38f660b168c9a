//! Plans, units and commits of datasets in object storage.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::layout::WORK_NAME;
use super::remote::Remote;
use super::stop::Stop;
use super::units::{
    RESULT_NAME, UnitDirs, UnitFile, UnitResult, UnitState, difference, different_unit, shard_path,
    unusable_unit,
};
use super::workers::for_all;
use crate::error::{Error, ErrorKind, Result};
use crate::manifest::{MANIFEST_NAME, Manifest};
use crate::numbers::{count, plural};
use crate::storage::objects::Created;
use crate::storage::{Written, create_dir, lstat, random, remove_dir_all, resolve, write_file};

/// Name of the object, in the working folder, that identifies the plan of a prefix.
const PLAN_ID_NAME: &str = "plan.json";
/// Maximum size of this object.
const PLAN_ID_BYTES: u64 = 1 << 10;
/// Number of hexadecimal digits in the identity of a plan.
const ID_DIGITS: usize = 64;

/// Identity of a plan: the content of `plan.json`.
#[derive(Serialize, Deserialize)]
pub struct PlanId {
    /// The plan.
    pub plan: String,
    /// Build of dsconvert that made the plan.
    #[serde(default)]
    pub build: String,
}

impl Remote {
    /// Returns the plan of this prefix, if it has one.
    pub fn plan(&self) -> Result<Option<PlanId>> {
        let url = self.object(&work_object(PLAN_ID_NAME))?;
        let Some((json, _)) = self.bucket.find(&url, PLAN_ID_BYTES)? else { return Ok(None) };
        let is_id =
            |id: &PlanId| id.plan.len() == ID_DIGITS && id.plan.bytes().all(|b| b.is_ascii_hexdigit());
        match serde_json::from_slice(&json).ok().filter(is_id) {
            None => Err(Error::corrupt("this object does not identify a plan").at_path(url.as_path())),
            id => Ok(id),
        }
    }

    /// Uploads `files`, which other processes need to write units of the plan `id`, from the working directory `work`, and
    /// claims the prefix for this plan.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] if the store has no create-only writes; [`ErrorKind::NotCommitted`] if another run
    /// has claimed the prefix meanwhile.
    pub fn store_plan(&self, work: &Path, id: &PlanId, files: &[&str], stop: &Stop) -> Result<()> {
        self.probe()?;
        self.store_planned(work, &id.plan, files, stop)?;
        let json = serde_json::to_vec(id).map_err(|e| Error::not_serialized("the id of the plan", e))?;
        let url = self.object(&work_object(PLAN_ID_NAME))?;
        let created = self.bucket.create(&url, &Bytes::from(json))?;
        if created != Created::Other && self.bucket.head(&self.object(MANIFEST_NAME)?)?.is_none() {
            return Ok(());
        }
        // The uploaded objects belong to no run, unless another process has stored the same plan.
        if created != Created::Same {
            for name in files {
                self.bucket.delete(&self.object(&plan_object(&id.plan, name))?)?;
            }
        }
        // The plan could be created because the plan of the committed run is already deleted.
        if created == Created::New {
            self.bucket.delete(&url)?;
        }
        let what = match created {
            Created::Other => "another run has started to write to this prefix",
            Created::New | Created::Same => "another run has committed a dataset in this prefix",
        };
        Err(Error::new(ErrorKind::NotCommitted, what)
            .at_path(self.path())
            .help("choose another prefix for `out`"))
    }

    /// Uploads those of `files` that are in the working directory `work`, as files of the plan `id`.
    pub fn store_planned(&self, work: &Path, id: &str, files: &[&str], stop: &Stop) -> Result<()> {
        for name in files {
            if lstat(&work.join(name))?.is_some() {
                self.upload(&work.join(name), &plan_object(id, name), None, stop)?;
            }
        }
        Ok(())
    }

    /// Downloads the file `name` of the plan `id` to the working directory `work`.
    pub fn fetch_planned(&self, work: &Path, id: &str, name: &str) -> Result<()> {
        if self.find_planned(work, id, name)? {
            return Ok(());
        }
        let url = self.object(&plan_object(id, name))?;
        Err(Error::new(ErrorKind::Io, "there is no such object").at_path(url.as_path()))
    }

    /// Downloads the file `name` of the plan `id` to the working directory `work`, if there is one. Returns whether there
    /// is.
    pub fn find_planned(&self, work: &Path, id: &str, name: &str) -> Result<bool> {
        let Some(object) = self.bucket.head(&self.object(&plan_object(id, name))?)? else { return Ok(false) };
        self.download(&plan_object(id, name), object.bytes, &work.join(name)).map(|_| true)
    }

    /// Checks that create-only writes work: all coordination between concurrent processes relies on them.
    fn probe(&self) -> Result<()> {
        let url = self.object(&work_object(&format!("probe-{:016x}", random())))?;
        let once = || -> Result<bool> {
            self.bucket.create(&url, &Bytes::from_static(b"first\n"))?;
            // If the first object is kept, the second is reported as different.
            Ok(self.bucket.create(&url, &Bytes::from_static(b"second\n"))? == Created::Other)
        };
        let result = once();
        let deleted = self.bucket.delete(&url);
        if !result? {
            let message = "the store does not support create-only writes: it replaced an existing object";
            return Err(Error::new(ErrorKind::Unsupported, message)
                .at_path(self.path())
                .help("use a store with conditional writes (If-None-Match: *), or write to a local `out` and copy it"));
        }
        deleted
    }
}

/// Returns the name of an object in the working folder.
fn work_object(name: &str) -> String {
    format!("{WORK_NAME}/{name}")
}

/// Returns the name of an object of the plan `id`.
fn plan_object(id: &str, name: &str) -> String {
    work_object(&format!("{id}/{name}"))
}

/// Number of shards and units uploaded at a time. Each takes up to 40 MiB of memory.
pub const UPLOADS: usize = 4;
/// Maximum size of a `unit.json`.
const RESULT_BYTES: u64 = 1 << 30;
/// Objects are listed instead of requested individually if at least one in this many units is checked.
const LISTED_SHARE: usize = 4;

/// Objects of a listing, by their name under the prefix.
pub(super) type ObjectListing = HashMap<String, ListedObject>;

pub(super) struct ListedObject {
    bytes: u64,
    modified_ns: i128,
}

impl Remote {
    /// Lists the objects under `folder`, or all objects.
    pub(crate) fn listing(&self, folder: Option<&str>) -> Result<ObjectListing> {
        let url = folder.map_or_else(|| Ok(self.url.clone()), |folder| self.object(folder))?;
        let prefix = self.url.as_str().len() + 1;
        let listed = self.bucket.list(&url)?.into_iter().map(|object| {
            let name = object.url.as_str().get(prefix..).unwrap_or_default().to_owned();
            (name, ListedObject { bytes: object.bytes, modified_ns: object.modified_ns })
        });
        Ok(listed.collect())
    }

    /// Calls `found` with the states of `units`, out of `planned` units, under the plan `plan`.
    pub(crate) fn check_units(
        &self,
        units: &[u32],
        planned: u32,
        plan: &str,
        stop: &Stop,
        found: &(dyn Fn(u32, UnitState) + Sync),
    ) -> Result<()> {
        // A small part of a large plan requests only its own units, so that a thousand parts do not each list
        // everything.
        let is_large_share = units.len() * LISTED_SHARE >= planned as usize;
        let listing = is_large_share.then(|| self.listing(None)).transpose()?;
        for_all(units, "checking finished units", stop, |&unit| {
            found(unit, self.check_unit(unit, plan, listing.as_ref())?);
            Ok(())
        })
    }

    /// Returns the state of `unit` under the plan `plan`.
    pub(super) fn check_unit(
        &self,
        unit: u32,
        plan: &str,
        listing: Option<&ObjectListing>,
    ) -> Result<UnitState> {
        let name = unit_object(unit, RESULT_NAME);
        if listing.is_some_and(|listing| !listing.contains_key(&name)) {
            return Ok(UnitState::Missing);
        }
        let url = self.object(&name)?;
        let Some((json, _)) = self.bucket.find(&url, RESULT_BYTES)? else { return Ok(UnitState::Missing) };
        let state = UnitState::of(&json, unit, plan).map_err(|e| e.at_path(url.as_path()))?;
        if let UnitState::Done(result) = &state {
            let files = result.files.iter().map(|file| (unit_object(unit, &file.name), file.bytes));
            for (name, bytes) in files.chain(shards(result)) {
                if let Some(why) = self.object_difference(&name, bytes, listing)? {
                    return Ok(UnitState::Damaged(format!("{name} {why}")));
                }
            }
        }
        Ok(state)
    }

    /// Returns how an object differs from the one with `bytes` bytes that was written.
    pub(crate) fn object_difference(
        &self,
        name: &str,
        bytes: u64,
        listing: Option<&ObjectListing>,
    ) -> Result<Option<String>> {
        // Otherwise, it is requested: a listing may be outdated.
        if listing.and_then(|listing| listing.get(name)).is_some_and(|listed| listed.bytes == bytes) {
            return Ok(None);
        }
        Ok(match self.bucket.head(&self.object(name)?)? {
            None => Some("is missing".to_owned()),
            Some(object) if object.bytes != bytes => {
                Some(format!("has {} instead of {}", plural(object.bytes, "byte"), count(bytes)))
            }
            Some(_) => None,
        })
    }

    /// Marks a unit as unfinished, by deleting its result.
    pub(crate) fn remove_unit(&self, unit: u32) -> Result<()> {
        self.bucket.delete(&self.object(&unit_object(unit, RESULT_NAME))?)
    }

    /// Finishes a unit whose shards are uploaded. Its small files are in `dir`. The last request makes it final.
    pub(crate) fn finish_unit(&self, result: &UnitResult, dir: &Path, stop: &Stop) -> Result<()> {
        for UnitFile { name, bytes, sha256 } in &result.files {
            let written = Written { bytes: *bytes, sha256: sha256.clone() };
            self.upload(&dir.join(name), &unit_object(result.unit, name), Some(&written), stop)?;
        }
        let url = self.object(&unit_object(result.unit, RESULT_NAME))?;
        self.create(&url, result.to_bytes()?, || different_unit(result.unit))
    }

    /// Downloads the small files of the units that this process has not converted, out of `units` units.
    pub(crate) fn fetch_units(&self, dirs: &UnitDirs, units: u32, plan: &str, stop: &Stop) -> Result<()> {
        let units: Vec<u32> = (0..units).collect();
        for_all(&units, "downloading finished units", stop, |&unit| {
            if matches!(dirs.read(unit, plan)?, UnitState::Done(_)) {
                return Ok(());
            }
            let url = self.object(&unit_object(unit, RESULT_NAME))?;
            let (json, _) = self.bucket.get(&url, RESULT_BYTES)?;
            let state = UnitState::of(&json, unit, plan).map_err(|e| e.at_path(url.as_path()))?;
            let UnitState::Done(result) = state else {
                return Err(dirs.unusable(unit, "its result was altered"));
            };
            let done = dirs.done(unit);
            remove_dir_all(&done)?;
            create_dir(&done)?;
            for file in &result.files {
                let path = done.join(&file.name);
                self.download(&unit_object(unit, &file.name), file.bytes, &path)?;
                if let Some(why) = difference(&path, file.bytes, Some(&file.sha256))? {
                    return Err(self.unusable(unit, &file.name, &why));
                }
            }
            write_file(&done.join(RESULT_NAME), &json).map(drop)
        })
    }

    /// Returns the error for a finished unit whose object `name` differs from its result.
    pub(crate) fn unusable(&self, unit: u32, name: &str, why: &str) -> Error {
        unusable_unit(unit, &format!("{name} {why}"), self.path())
    }

    /// Returns the results of all finished units and their modification times in nanoseconds, for callers that only
    /// inspect them.
    pub fn finished_units(&self, plan: &str, stop: &Stop) -> Result<BTreeMap<u32, (UnitResult, i128)>> {
        let listing = self.listing(Some(&format!("{WORK_NAME}/units")))?;
        let results: Vec<(u32, i128)> = listing
            .iter()
            .filter_map(|(name, object)| Some((unit_of_result(name)?, object.modified_ns)))
            .collect();
        let found = Mutex::new(BTreeMap::new());
        for_all(&results, "reading finished units", stop, |&(unit, modified_ns)| {
            let url = self.object(&unit_object(unit, RESULT_NAME))?;
            if let Some((json, _)) = self.bucket.find(&url, RESULT_BYTES)?
                && let UnitState::Done(result) =
                    UnitState::of(&json, unit, plan).map_err(|e| e.at_path(url.as_path()))?
            {
                found.lock().unwrap_or_else(PoisonError::into_inner).insert(unit, (*result, modified_ns));
            }
            Ok(())
        })?;
        Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Returns the names and sizes of the shards of a unit.
pub(crate) fn shards(result: &UnitResult) -> impl Iterator<Item = (String, u64)> + '_ {
    result.splits.iter().flat_map(|split| {
        split.shards.iter().map(|shard| (shard_path(&split.name, &shard.name), shard.bytes))
    })
}

/// Returns the name of an object of a unit.
fn unit_object(unit: u32, name: &str) -> String {
    format!("{WORK_NAME}/units/{unit:06}/{name}")
}

/// Returns the unit whose result is called `name`.
fn unit_of_result(name: &str) -> Option<u32> {
    let unit = name.strip_prefix(WORK_NAME)?.strip_prefix("/units/")?.strip_suffix(RESULT_NAME)?;
    let unit = unit.strip_suffix('/')?.parse().ok()?;
    (unit_object(unit, RESULT_NAME) == name).then_some(unit)
}

impl Remote {
    /// Commits the dataset: checks all shards of `units`, uploads the files in `staged`, then creates the manifest with
    /// the content `json`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotCommitted`](crate::error::ErrorKind) if a dataset was committed meanwhile.
    pub fn commit(
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
    pub fn remove_work(&self) -> Result<()> {
        let objects = self.bucket.list(&self.object(WORK_NAME)?)?;
        for_all(&objects, "deleting objects", &Stop::default(), |object| self.bucket.delete(&object.url))
    }

    /// Deletes everything of a run that is not worth keeping: the shards of `units`, and the objects that only a run
    /// needs.
    pub fn abandon(&self, units: &[UnitResult]) -> Result<()> {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_found_by_the_name_of_their_result() {
        for unit in [0, 42, 1_234_567] {
            assert_eq!(unit_of_result(&unit_object(unit, RESULT_NAME)), Some(unit));
        }
        for other in [".dsconvert/units/42/unit.json", ".dsconvert/units/000042/train.rows", "unit.json", ""]
        {
            assert_eq!(unit_of_result(other), None, "{other}");
        }
    }
}
