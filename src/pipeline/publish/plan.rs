//! Storage of the plan in object storage.

use std::path::Path;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::remote::Remote;
use crate::build_id::BUILD_ID;
use crate::error::{Error, ErrorKind, Result};
use crate::manifest::{MANIFEST_NAME, TOKENIZER_NAME};
use crate::pipeline::dedup::{DUPLICATE_PAIRS_HASH_NAME, DUPLICATE_PAIRS_NAME};
use crate::pipeline::job_file::{JOB_NAME, check_build};
use crate::pipeline::output_state::{OutputState, WORK_NAME};
use crate::pipeline::plan::{PLAN_NAME, Plan};
use crate::pipeline::stop::Stop;
use crate::storage::objects::Created;
use crate::storage::{lstat, random};

/// Name of the object, in the working folder, that identifies the plan of a prefix.
const PLAN_ID_NAME: &str = "plan.json";
/// Maximum size of this object.
const PLAN_ID_BYTES: u64 = 1 << 10;
/// Number of hexadecimal digits in the identity of a plan.
const ID_DIGITS: usize = 64;

/// Content of `plan.json`.
#[derive(Serialize, Deserialize)]
struct PlanId {
    plan: String,
    /// Build of dsconvert that made the plan.
    #[serde(default)]
    build: String,
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

    /// Returns the identity of the plan of this prefix, if it has one.
    pub(in crate::pipeline) fn plan(&self) -> Result<Option<String>> {
        Ok(self.find_plan()?.map(|id| id.plan))
    }

    /// Returns the identity of the plan of this prefix, if it has one, and refuses that of another build.
    fn plan_of_this_build(&self) -> Result<Option<String>> {
        let Some(PlanId { plan, build }) = self.find_plan()? else { return Ok(None) };
        check_build(&build).map_err(|e| e.at_path(self.path()))?;
        Ok(Some(plan))
    }

    fn find_plan(&self) -> Result<Option<PlanId>> {
        let url = self.object(&work_object(PLAN_ID_NAME))?;
        let Some((json, _)) = self.bucket.find(&url, PLAN_ID_BYTES)? else { return Ok(None) };
        let is_id =
            |id: &PlanId| id.plan.len() == ID_DIGITS && id.plan.bytes().all(|b| b.is_ascii_hexdigit());
        match serde_json::from_slice(&json).ok().filter(is_id) {
            None => Err(Error::corrupt("this object does not identify a plan").at_path(url.as_path())),
            id => Ok(id),
        }
    }

    /// Refuses `plan` if this prefix has another one; the error names the first difference.
    pub(in crate::pipeline) fn check_same_plan(
        &self,
        plan: &Plan<'_>,
        work: &Path,
        resumes: bool,
    ) -> Result<()> {
        match self.plan_of_this_build()? {
            Some(id) if id != plan.id() => {
                self.download(&plan_object(&id, PLAN_NAME), None, &work.join(PLAN_NAME))?;
                plan.check_same(work, resumes).map_err(|e| e.at_path(self.path()))?;
                Err(Error::usage("cannot resume: the run was started with another plan"))
            }
            _ => Ok(()),
        }
    }

    /// Uploads the plan `id` from the working directory `work_dir`, and claims the prefix for it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] if the store has no create-only writes; [`ErrorKind::NotCommitted`] if another run
    /// has claimed the prefix meanwhile.
    pub(in crate::pipeline) fn store_plan(&self, work_dir: &Path, id: &str, stop: &Stop) -> Result<()> {
        self.probe()?;
        self.store_job(work_dir, id, stop)?;
        self.upload(&work_dir.join(PLAN_NAME), &plan_object(id, PLAN_NAME), None, stop)?;
        let json = serde_json::to_vec(&PlanId { plan: id.to_owned(), build: BUILD_ID.to_owned() })
            .map_err(|e| Error::not_serialized("the id of the plan", e))?;
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
            for name in [PLAN_NAME, JOB_NAME, TOKENIZER_NAME] {
                self.bucket.delete(&self.object(&plan_object(id, name))?)?;
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

    /// Uploads the data that other processes need to run the units of the plan `id`.
    pub(in crate::pipeline) fn store_job(&self, work: &Path, id: &str, stop: &Stop) -> Result<()> {
        for name in [TOKENIZER_NAME, JOB_NAME] {
            if lstat(&work.join(name))?.is_some() {
                self.upload(&work.join(name), &plan_object(id, name), None, stop)?;
            }
        }
        Ok(())
    }

    /// Downloads the stored job to the working directory `work`. Returns whether there is one.
    pub(in crate::pipeline) fn fetch_job(&self, work: &Path) -> Result<bool> {
        let Some(id) = self.plan_of_this_build()? else { return Ok(false) };
        self.download(&plan_object(&id, JOB_NAME), None, &work.join(JOB_NAME))?;
        let tokenizer = plan_object(&id, TOKENIZER_NAME);
        if let Some(object) = self.bucket.head(&self.object(&tokenizer)?)? {
            self.download(&tokenizer, Some(object.bytes), &work.join(TOKENIZER_NAME))?;
        }
        Ok(true)
    }

    /// Downloads the duplicates that an earlier process found in the pass over all sources, if there are any.
    pub(in crate::pipeline) fn fetch_prepared(&self, work: &Path, id: &str) -> Result<()> {
        let hash = plan_object(id, DUPLICATE_PAIRS_HASH_NAME);
        if let Some(object) = self.bucket.head(&self.object(&hash)?)? {
            self.download(&plan_object(id, DUPLICATE_PAIRS_NAME), None, &work.join(DUPLICATE_PAIRS_NAME))?;
            self.download(&hash, Some(object.bytes), &work.join(DUPLICATE_PAIRS_HASH_NAME))?;
        }
        Ok(())
    }

    /// Uploads the duplicates found in the pass over all sources, if there was one.
    pub(in crate::pipeline) fn store_prepared(&self, work: &Path, id: &str, stop: &Stop) -> Result<()> {
        for name in [DUPLICATE_PAIRS_NAME, DUPLICATE_PAIRS_HASH_NAME] {
            if lstat(&work.join(name))?.is_some() {
                self.upload(&work.join(name), &plan_object(id, name), None, stop)?;
            }
        }
        Ok(())
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
