//! Comparison of the content of two files.

use std::io::{BufRead, BufReader};

use super::planned::PlannedFile;
use crate::error::{Error, Result};

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
