//! Storage of the plan in object storage.

use std::path::Path;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::remote::Remote;
use crate::error::{Error, ErrorKind, Result};
use crate::manifest::MANIFEST_NAME;
use crate::pipeline::output_state::{OutputState, WORK_NAME};
use crate::pipeline::stop::Stop;
use crate::storage::objects::Created;
use crate::storage::{lstat, random};

/// Name of the object, in the working folder, that identifies the plan of a prefix.
const PLAN_ID_NAME: &str = "plan.json";
/// Maximum size of this object.
const PLAN_ID_BYTES: u64 = 1 << 10;
/// Number of hexadecimal digits in the identity of a plan.
const ID_DIGITS: usize = 64;

/// Identity of a plan: the content of `plan.json`.
#[derive(Serialize, Deserialize)]
pub(in crate::pipeline) struct PlanId {
    pub plan: String,
    /// Build of dsconvert that made the plan.
    #[serde(default)]
    pub build: String,
}

impl Remote {
    /// Returns the state of the prefix at the start of a run.
    pub(in crate::pipeline) fn state(&self) -> Result<OutputState> {
        // A commit deletes the plan after writing the manifest. In this order, at least one of them is seen.
        let plan = self.plan()?;
        Ok(match (self.manifest()?, plan) {
            (Some(manifest), _) => OutputState::Committed(Box::new(manifest)),
            (None, Some(_)) => OutputState::Planned,
            (None, None) => OutputState::Empty,
        })
    }

    /// Returns the plan of this prefix, if it has one.
    pub(in crate::pipeline) fn plan(&self) -> Result<Option<PlanId>> {
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
    pub(in crate::pipeline) fn store_plan(
        &self,
        work: &Path,
        id: &PlanId,
        files: &[&str],
        stop: &Stop,
    ) -> Result<()> {
        self.probe()?;
        self.store_planned(work, &id.plan, files, stop)?;
        let json = serde_json::to_vec(id).map_err(|e| Error::not_serialized("the id of the plan", e))?;
        let url = self.object(&work_object(PLAN_ID_NAME))?;
        let taken = |what: &str| {
            Error::new(ErrorKind::NotCommitted, what)
                .at_path(self.path())
                .help("choose another prefix for `out`")
        };
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
        match created {
            Created::Other => Err(taken("another run has started to write to this prefix")),
            // The plan could be created because the plan of the committed run is already deleted.
            Created::New => {
                self.bucket.delete(&url)?;
                Err(taken("another run has committed a dataset in this prefix"))
            }
            Created::Same => Err(taken("another run has committed a dataset in this prefix")),
        }
    }

    /// Uploads those of `files` that are in the working directory `work`, as files of the plan `id`.
    pub(in crate::pipeline) fn store_planned(
        &self,
        work: &Path,
        id: &str,
        files: &[&str],
        stop: &Stop,
    ) -> Result<()> {
        for name in files {
            if lstat(&work.join(name))?.is_some() {
                self.upload(&work.join(name), &plan_object(id, name), None, stop)?;
            }
        }
        Ok(())
    }

    /// Downloads the file `name` of the plan `id` to the working directory `work`.
    pub(in crate::pipeline) fn fetch_planned(&self, work: &Path, id: &str, name: &str) -> Result<()> {
        self.download(&plan_object(id, name), None, &work.join(name)).map(drop)
    }

    /// Downloads the file `name` of the plan `id` to the working directory `work`, if there is one. Returns whether there
    /// is.
    pub(in crate::pipeline) fn find_planned(&self, work: &Path, id: &str, name: &str) -> Result<bool> {
        let Some(object) = self.bucket.head(&self.object(&plan_object(id, name))?)? else { return Ok(false) };
        self.download(&plan_object(id, name), Some(object.bytes), &work.join(name)).map(|_| true)
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
