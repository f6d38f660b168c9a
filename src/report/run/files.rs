//! Reading run reports.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{RUN_REPORT_VERSION, RunReport};
use crate::error::{Error, Result};
use crate::storage::{Access, Blob, list_dir, stat};

/// Maximum size of a run report.
const MAX_REPORT_BYTES: u64 = 16 << 20;
/// Maximum number of run reports.
const MAX_REPORTS: usize = 1 << 17;

/// Reads the run reports in `paths`: files, and folders whose `*.json` files are reports, in the order of their names.
///
/// # Errors
///
/// [`ErrorKind::Usage`](crate::error::ErrorKind) if a file is not a run report of a known version, a folder holds none,
/// or one file is named twice.
pub fn run_reports(paths: &[PathBuf]) -> Result<Vec<RunReport>> {
    let mut files = Vec::new();
    for path in paths {
        if stat(path)?.is_some_and(|meta| meta.is_dir()) {
            let before = files.len();
            let found = list_dir(path)?.into_iter().map(|item| path.join(item.name));
            files.extend(found.filter(|file| file.extension().is_some_and(|extension| extension == "json")));
            if files.len() == before {
                return Err(Error::usage("the folder holds no run reports").at_path(path).help(HELP));
            }
        } else {
            files.push(path.clone());
        }
        if files.len() > MAX_REPORTS {
            return Err(Error::usage(format!("there are more than {MAX_REPORTS} run reports")).at_path(path));
        }
    }
    let mut identities = HashSet::new();
    for file in &files {
        // A path has several spellings, and a file several paths.
        if let Some(meta) = stat(file)?
            && !identities.insert((meta.dev(), meta.ino()))
        {
            return Err(Error::usage("the run report is named twice").at_path(file));
        }
    }
    files.iter().map(|file| RunReport::read(file)).collect()
}

const HELP: &str = "name a file that a command wrote with `report`, or a folder of such files";

impl RunReport {
    /// Reads the report in `path`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`](crate::error::ErrorKind) if the file is not a run report of a known version.
    pub fn read(path: &Path) -> Result<Self> {
        let not_a_report = || Error::usage("the file is not a run report").at_path(path);
        let blob = Blob::open(path, Access::Read, None)?;
        if blob.len() > MAX_REPORT_BYTES {
            return Err(not_a_report().help(HELP));
        }
        let bytes = blob.read(0, blob.len())?;
        let value: serde_json::Value =
            serde_json::from_slice(&bytes).map_err(|e| not_a_report().caused_by(e).help(HELP))?;
        match value.get("run_report").and_then(serde_json::Value::as_u64) {
            Some(version) if version == u64::from(RUN_REPORT_VERSION) => {}
            Some(version) => {
                let what =
                    format!("the run report has version {version}; this build reads {RUN_REPORT_VERSION}");
                return Err(Error::usage(what).at_path(path));
            }
            None => return Err(not_a_report().help(HELP)),
        }
        serde_json::from_value(value).map_err(|e| not_a_report().caused_by(e).help(HELP))
    }
}
