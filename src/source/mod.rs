//! Where items come from: the files of a source in a fixed order, and the items inside a file.

pub mod braces;
pub mod compression;
pub mod files_from;
pub mod globs;
pub mod jsonl;
pub mod labels;
pub mod lines;
pub mod listing;
mod members;
pub mod metadata;
mod name;
pub mod splits;
pub mod stream;
pub mod text;
pub mod walk;
pub mod warning;
pub mod webdataset;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use name::portable_name;
use xxhash_rust::xxh3::Xxh3;

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

/// Bytes of a file that are held while it is read piece by piece.
const PIECE_BYTES: usize = 256 << 10;

/// XXH3-128 of a file that had `planned_bytes` bytes when it was planned.
///
/// # Errors
///
/// As [`read_planned`].
pub fn hash_planned(path: &Path, planned_bytes: u64) -> Result<u128> {
    let fail = |e| Error::io("read", path, e);
    let mut file = retried(|| File::open(path)).map_err(fail)?;
    let mut piece = vec![0; PIECE_BYTES];
    let (mut hash, mut bytes) = (Xxh3::new(), 0);
    loop {
        match retried(|| file.read(&mut piece)).map_err(fail)? {
            0 if bytes == planned_bytes => return Ok(hash.digest128()),
            0 => return Err(changed(path, planned_bytes, bytes)),
            n => {
                hash.update(&piece[..n]);
                bytes += n as u64;
            }
        }
    }
}

/// Whether two files have the same bytes.
///
/// # Errors
///
/// One of them cannot be read.
pub fn same_content(one: &Path, other: &Path) -> Result<bool> {
    let open = |path: &Path| {
        let file = retried(|| File::open(path)).map_err(|e| Error::io("read", path, e))?;
        Ok::<_, Error>(BufReader::with_capacity(PIECE_BYTES, file))
    };
    let (mut a, mut b) = (open(one)?, open(other)?);
    loop {
        let x = a.fill_buf().map_err(|e| Error::io("read", one, e))?;
        let y = b.fill_buf().map_err(|e| Error::io("read", other, e))?;
        let n = x.len().min(y.len());
        if n == 0 {
            return Ok(x.len() == y.len());
        }
        if x[..n] != y[..n] {
            return Ok(false);
        }
        a.consume(n);
        b.consume(n);
    }
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
