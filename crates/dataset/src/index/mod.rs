//! Sidecars that find records: the record index, the length index and the shard table.
//!
//! All are Arrow IPC files without compression, so that a reader maps them and looks up a row where it lies, and any
//! Arrow tool opens them. `docs/reference/format-index.md` specifies them column by column.
//!
//! ```text
//! index/<split>.records-0000.arrow   record index     RecordIndexWriter   ─▶ RecordIndex
//! index/<split>.lengths-0000.arrow   length index:    LengthIndexBuilder  ─▶ LengthIndex
//! index/<split>.histogram.arrow        and histogram
//! index/shards.arrow                 shard table      write_shard_table   ─▶ ShardTable
//! ```
//!
//! Readers trust nothing in the files: schemas, counts and offsets are checked before use and a file that breaks its
//! promise is [`ErrorKind::Corrupt`](crate::error::ErrorKind) with its path. Checksums are the caller's business (they
//! stand in the manifest); `verify` functions check what costs a pass over the data.

mod ipc;
mod lengths;
mod records;
mod shards;
pub mod sort;
mod summary;
mod table;
#[cfg(test)]
mod testing;

use serde::{Deserialize, Serialize};

pub use lengths::{Bucket, LengthIndex, LengthIndexBuilder, LengthRun};
pub use records::{IndexEntry, RecordIndex, RecordIndexWriter};
pub use shards::{SHARD_TABLE_PATH, ShardEntry, ShardTable, SplitShards, write_shard_table};
pub use summary::LengthSummary;

use crate::error::{Error, Result};
use crate::storage::Blob;

/// Directory of the sidecars inside a dataset.
pub const INDEX_DIR: &str = "index";

/// The largest length, and the largest sum of the lengths of a split: what a signed 64-bit integer holds, because
/// many tools have no other.
pub const MAX_LENGTH: u64 = i64::MAX as u64;

/// Longest name of a split, in bytes.
pub const MAX_SPLIT_NAME_BYTES: usize = 64;

/// A sidecar that was written, as the manifest lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IndexFile {
    /// Path relative to the dataset, with `/`.
    pub path: String,
    /// Rows in the file: records, distinct lengths (histogram) or shards (shard table).
    pub records: u64,
    /// Size of the file.
    pub bytes: u64,
    /// SHA-256 of the file, in lower-case hexadecimal.
    pub sha256: String,
}

/// One file of a sidecar, opened, and how many rows the manifest says it has.
#[derive(Debug, Clone)]
pub struct Segment {
    /// The file.
    pub blob: Blob,
    /// Rows it must have ([`IndexFile::records`]).
    pub records: u64,
}

/// Checks that `name` can be the name of a split: 1 to 64 of `A-Z a-z 0-9 _ -`, and not `index`, whose directory is
/// taken. Splits name directories and files, so nothing else is let through.
///
/// # Errors
///
/// [`ErrorKind::Usage`](crate::error::ErrorKind) naming the split.
pub fn check_split_name(name: &str) -> Result<()> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    if name.is_empty() || name.len() > MAX_SPLIT_NAME_BYTES || !name.bytes().all(allowed) {
        return Err(Error::usage(format!("{name:?} cannot be the name of a split"))
            .help("use 1 to 64 letters, digits, underscores and hyphens"));
    }
    if name.eq_ignore_ascii_case(INDEX_DIR) {
        return Err(Error::usage(format!(
            "{name:?} cannot be the name of a split: it is the directory of indexes"
        ))
        .help("choose another name"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_names_are_plain_words() {
        for good in ["train", "validation", "test_2", "A-b", &"x".repeat(64)] {
            check_split_name(good).unwrap();
        }
        for bad in ["", ".", "..", "a/b", "a b", "a.b", "ä", "a\0", "index", "Index", &"x".repeat(65)] {
            assert!(check_split_name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_index_file_survives_json() {
        let file = IndexFile { path: "index/a.arrow".into(), records: 1, bytes: 2, sha256: "00".into() };
        let json = serde_json::to_string(&file).unwrap();
        assert_eq!(json, r#"{"path":"index/a.arrow","records":1,"bytes":2,"sha256":"00"}"#);
        assert_eq!(serde_json::from_str::<IndexFile>(&json).unwrap(), file);
    }
}
