//! Sources: their files in a fixed order, and the items in each file.

pub mod archive;
pub mod braces;
pub mod broken;
mod compressed_members;
pub mod compression;
pub mod file_list;
pub mod files_from;
pub mod found_files;
pub mod globs;
pub mod image_table;
mod json_array;
pub mod json_line;
pub mod labels;
pub mod layout;
pub mod lines;
pub mod listing;
pub mod metadata;
pub(crate) mod missing_field;
mod name;
pub mod open;
pub mod opened;
mod pages;
pub mod planned;
#[cfg_attr(not(feature = "remote"), path = "no_remote.rs")]
mod remote;
#[cfg_attr(not(feature = "remote"), path = "no_remote_listing.rs")]
mod remote_listing;
pub mod skipped;
pub mod source_file;
pub mod split_by;
pub mod splits;
mod stored_values;
pub mod stream;
pub mod table;
pub mod tar;
pub mod text;
mod typed_values;
pub mod walk;
pub mod warning;
pub mod webdataset;
pub mod zip;
mod zstd_frames;

use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

pub use name::portable_name;
pub use open::{read_file, without_bom};
pub use planned::PlannedFile;
use rustix::io::Errno;

use crate::decode::{is_unreadable_photo, sniff};
use crate::error::{Error, Result};

/// Pauses between attempts of an operation that failed with an operating-system error, in milliseconds.
const RETRY_PAUSES_MS: [u64; 2] = [50, 250];

/// Number of retries in this process.
static RETRIES: AtomicU64 = AtomicU64::new(0);

/// Returns how often this process has repeated an operation on a source file after an operating-system error.
pub fn retries() -> u64 {
    RETRIES.load(Relaxed)
}

/// Returns whether a failure is permanent: damaged data (not an error of the operating system), no such file, no
/// permission, or a link or socket in place of the file. Requests to object storage have already been retried.
fn is_permanent(error: &io::Error) -> bool {
    let Some(code) = error.raw_os_error() else { return true };
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
        || [Errno::LOOP, Errno::NXIO].iter().any(|errno| errno.raw_os_error() == code)
}

/// Runs `operation`, and repeats it after failures that may be temporary.
fn retried<T>(mut operation: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for pause in RETRY_PAUSES_MS {
        match operation() {
            Err(e) if !is_permanent(&e) => {
                RETRIES.fetch_add(1, Relaxed);
                std::thread::sleep(Duration::from_millis(pause));
            }
            other => return other,
        }
    }
    operation()
}

/// Size of the read buffer for each of two compared files, in bytes.
const PIECE_BYTES: usize = 256 << 10;

/// Returns whether two files have the same content.
///
/// # Errors
///
/// Returns an error if one of the files cannot be read or has changed since it was planned.
pub fn same_content(one: &PlannedFile, other: &PlannedFile) -> Result<bool> {
    let (opened_one, opened_other) = (one.open()?, other.open()?);
    let mut a = BufReader::with_capacity(PIECE_BYTES, &opened_one);
    let mut b = BufReader::with_capacity(PIECE_BYTES, &opened_other);
    let same = loop {
        let x = a.fill_buf().map_err(|e| Error::io("read", &one.path, e))?;
        let y = b.fill_buf().map_err(|e| Error::io("read", &other.path, e))?;
        let n = x.len().min(y.len());
        if n == 0 {
            break x.len() == y.len();
        }
        if x[..n] != y[..n] {
            break false;
        }
        a.consume(n);
        b.consume(n);
    };
    opened_one.check_unchanged()?;
    opened_other.check_unchanged()?;
    Ok(same)
}

/// Bytes inspected at the start of a file whose name does not indicate its type.
const SNIFFED_BYTES: u64 = 4096;

/// Returns whether the first bytes of a file are those of an image.
///
/// # Errors
///
/// Returns an error if the file cannot be read.
pub fn begins_as_image(path: &Path) -> Result<bool> {
    Ok(sniff(&PlannedFile::now(path)?.start(SNIFFED_BYTES)?).is_some())
}

/// As [`begins_as_image`], but also accepts AVIF and HEIC images, although they cannot be decoded.
///
/// # Errors
///
/// Returns an error if the file cannot be read.
pub fn begins_as_any_image(file: &PlannedFile) -> Result<bool> {
    let start = file.start(SNIFFED_BYTES)?;
    Ok(sniff(&start).is_some() || is_unreadable_photo(&start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempts(error: impl Fn() -> io::Error) -> usize {
        let mut attempts = 0;
        let result: io::Result<()> = retried(|| {
            attempts += 1;
            Err(error())
        });
        assert!(result.is_err());
        attempts
    }

    #[test]
    fn only_errors_of_the_operating_system_are_retried() {
        assert_eq!(attempts(|| Errno::IO.into()), 1 + RETRY_PAUSES_MS.len());
        assert_eq!(attempts(|| Errno::NOENT.into()), 1);
        assert_eq!(attempts(|| Errno::LOOP.into()), 1);
        assert_eq!(attempts(|| io::ErrorKind::InvalidData.into()), 1, "damaged data");
        assert_eq!(attempts(|| io::ErrorKind::UnexpectedEof.into()), 1);
    }
}
