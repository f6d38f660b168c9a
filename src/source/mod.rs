//! Where items come from: the files of a source in a fixed order, and the items inside a file.

pub mod braces;
pub mod files_from;
pub mod jsonl;
pub mod labels;
pub mod lines;
pub mod listing;
pub mod metadata;
mod name;
pub mod walk;
pub mod webdataset;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use name::portable_name;

use crate::error::{Error, ErrorKind, Result};

/// Pauses between attempts at an operation that failed in the operating system.
const RETRY_PAUSES_MS: [u64; 2] = [50, 250];

/// Runs `operation` again after a failure that may pass. What cannot pass (no such file, no permission) fails at once.
fn retried<T>(mut operation: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for pause in RETRY_PAUSES_MS {
        match operation() {
            Err(e) if !matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
                std::thread::sleep(Duration::from_millis(pause));
            }
            other => return other,
        }
    }
    operation()
}

/// The whole of a file that had `planned_bytes` bytes when it was planned.
///
/// # Errors
///
/// [`ErrorKind::Io`] when it cannot be read, is gone, or has another size now: never the item's fault.
pub fn read_planned(path: &Path, planned_bytes: u64) -> Result<Vec<u8>> {
    let bytes = retried(|| std::fs::read(path)).map_err(|e| {
        Error::io("read", path, e).help("make the file readable, then run the same command with --resume")
    })?;
    if bytes.len() as u64 != planned_bytes {
        return Err(changed(path, planned_bytes, bytes.len() as u64));
    }
    Ok(bytes)
}

/// The folder a file stands in.
fn folder_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn changed(path: &Path, planned: u64, now: u64) -> Error {
    Error::new(
        ErrorKind::Io,
        format!("the file had {planned} bytes when the run was planned and has {now} now"),
    )
    .at_path(path)
    .help("leave the sources alone during a run; start again with --overwrite")
}
