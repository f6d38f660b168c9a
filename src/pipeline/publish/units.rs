//! Finished units in object storage.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::remote::Remote;
use super::transfer::for_all;
use crate::error::{Error, Result};
use crate::numbers::{count, plural};
use crate::pipeline::closed_unit::different_unit;
use crate::pipeline::output_state::WORK_NAME;
use crate::pipeline::stop::Stop;
use crate::pipeline::unit_dirs::{UnitDirs, difference};
use crate::pipeline::unit_result::{RESULT_NAME, UnitFile, UnitResult, UnitState, shard_path, unusable_unit};
use crate::storage::{Written, create_dir, remove_dir_all, write_file};

/// Number of shards and units uploaded at a time. Each takes up to 40 MiB of memory.
pub(in crate::pipeline) const UPLOADS: usize = 4;
/// Maximum size of a `unit.json`.
const RESULT_BYTES: u64 = 1 << 30;
/// Objects are listed instead of requested individually if at least one in this many units is checked.
const LISTED_SHARE: usize = 4;

/// Objects of a listing, by their name under the prefix.
pub(super) struct ObjectListing(HashMap<String, ListedObject>);

#[derive(Clone, Copy)]
struct ListedObject {
    bytes: u64,
    modified_ns: i128,
}

impl ObjectListing {
    /// Returns whether the object `name` is listed with `bytes` bytes. Otherwise, it is requested: a listing may be
    /// outdated.
    fn has(&self, name: &str, bytes: u64) -> bool {
        self.0.get(name).is_some_and(|object| object.bytes == bytes)
    }
}

impl Remote {
    /// Lists the objects under `folder`, or all objects.
    pub(super) fn listing(&self, folder: Option<&str>) -> Result<ObjectListing> {
        let url = folder.map_or_else(|| Ok(self.url.clone()), |folder| self.object(folder))?;
        let prefix = self.url.as_str().len() + 1;
        let found = self.bucket.list(&url)?.into_iter().map(|object| {
            let name = object.url.as_str().get(prefix..).unwrap_or_default().to_owned();
            (name, ListedObject { bytes: object.bytes, modified_ns: object.modified_ns })
        });
        Ok(ObjectListing(found.collect()))
    }

    /// Calls `found` with the states of `units`, out of `planned` units, under the plan `plan`.
    pub(in crate::pipeline) fn check_units(
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

    fn check_unit(&self, unit: u32, plan: &str, listing: Option<&ObjectListing>) -> Result<UnitState> {
        let name = unit_object(unit, RESULT_NAME);
        if listing.is_some_and(|listing| !listing.0.contains_key(&name)) {
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
    pub(super) fn object_difference(
        &self,
        name: &str,
        bytes: u64,
        listing: Option<&ObjectListing>,
    ) -> Result<Option<String>> {
        if listing.is_some_and(|listing| listing.has(name, bytes)) {
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
    pub(in crate::pipeline) fn remove_unit(&self, unit: u32) -> Result<()> {
        self.bucket.delete(&self.object(&unit_object(unit, RESULT_NAME))?)
    }

    /// Finishes a unit whose shards are uploaded. Its small files are in `dir`. The last request makes it final.
    pub(in crate::pipeline) fn finish_unit(
        &self,
        result: &UnitResult,
        dir: &Path,
        stop: &Stop,
    ) -> Result<()> {
        for UnitFile { name, bytes, sha256 } in &result.files {
            let written = Written { bytes: *bytes, sha256: sha256.clone() };
            self.upload(&dir.join(name), &unit_object(result.unit, name), Some(&written), stop)?;
        }
        let url = self.object(&unit_object(result.unit, RESULT_NAME))?;
        self.create(&url, result.to_bytes()?, || different_unit(result.unit))
    }

    /// Downloads the small files of the units that this process has not converted, out of `units` units.
    pub(in crate::pipeline) fn fetch_units(
        &self,
        dirs: &UnitDirs,
        units: u32,
        plan: &str,
        stop: &Stop,
    ) -> Result<()> {
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
                self.download(&unit_object(unit, &file.name), Some(file.bytes), &path)?;
                if let Some(why) = difference(&path, file.bytes, Some(&file.sha256))? {
                    return Err(self.unusable(unit, &file.name, &why));
                }
            }
            write_file(&done.join(RESULT_NAME), &json).map(drop)
        })
    }

    /// Returns the error for a finished unit whose object `name` differs from its result.
    pub(super) fn unusable(&self, unit: u32, name: &str, why: &str) -> Error {
        unusable_unit(unit, &format!("{name} {why}"), self.path())
    }

    /// Returns the results of all finished units and their modification times in nanoseconds, for callers that only
    /// inspect them.
    pub(in crate::pipeline) fn finished_units(
        &self,
        plan: &str,
        stop: &Stop,
    ) -> Result<BTreeMap<u32, (UnitResult, i128)>> {
        let listing = self.listing(Some(&format!("{WORK_NAME}/units")))?;
        let results: Vec<(u32, i128)> = listing
            .0
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

    /// Downloads a shard to the file `to`.
    pub(in crate::pipeline) fn fetch_shard(
        &self,
        split: &str,
        name: &str,
        bytes: u64,
        to: &Path,
    ) -> Result<()> {
        self.download(&shard_path(split, name), Some(bytes), to).map(drop)
    }
}

/// Returns the names and sizes of the shards of a unit.
pub(super) fn shards(result: &UnitResult) -> impl Iterator<Item = (String, u64)> + '_ {
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
