//! Access to an output that holds a plan, for callers that convert or inspect its units.

use std::path::{Path, PathBuf};

use super::output_check::check_scratch;
use super::output_state::{Existing, WORK_NAME};
use super::publish::{Remote, ScratchDir};
use crate::error::Result;
use crate::manifest::{MANIFEST_NAME, Manifest};
use crate::storage::lstat;

/// An output that holds a plan or a dataset.
pub(super) enum PlannedOutput {
    Local(PathBuf),
    Remote { remote: Remote, scratch: ScratchDir },
}

impl PlannedOutput {
    /// Opens the output `out`, which need not exist.
    pub(super) fn open(out: &Path, scratch: Option<&Path>, existing: Existing) -> Result<Self> {
        check_scratch(out, scratch)?;
        match Remote::of(out)? {
            None => Ok(Self::Local(out.to_owned())),
            Some(remote) => {
                remote.check_existing(existing)?;
                Ok(Self::Remote { remote, scratch: ScratchDir::create(scratch)? })
            }
        }
    }

    /// Returns the manifest if the dataset is committed.
    pub(super) fn committed(&self) -> Result<Option<Manifest>> {
        match self {
            Self::Remote { remote, .. } => remote.manifest(),
            Self::Local(out) => {
                let is_there = lstat(&out.join(MANIFEST_NAME))?.is_some();
                is_there.then(|| Manifest::read(out)).transpose()
            }
        }
    }

    /// Returns whether a merge may have left its working directory after the commit.
    pub(super) fn may_have_work(&self) -> Result<bool> {
        match self {
            Self::Local(out) => Ok(lstat(&out.join(WORK_NAME))?.is_some()),
            Self::Remote { .. } => Ok(true),
        }
    }

    /// Returns the local directory.
    pub(super) fn dir(&self) -> &Path {
        match self {
            Self::Local(out) => out,
            Self::Remote { scratch, .. } => scratch.path(),
        }
    }

    /// Returns the output in object storage, if there is one.
    pub(super) fn remote(&self) -> Option<&Remote> {
        match self {
            Self::Local(_) => None,
            Self::Remote { remote, .. } => Some(remote),
        }
    }
}
