//! Sidecar files for locating records: the record index, the length index and the shard table.
//!
//! All of them are uncompressed Arrow IPC files, so a reader can map them and look up rows in place, and any Arrow tool
//! can open them. `docs/reference/format-index.md` specifies them column by column.
//!
//! ```text
//! index/<split>.records-0000.arrow   record index     RecordIndexWriter   ─▶ RecordIndex
//! index/<split>.lengths-0000.arrow   length index:    LengthIndexBuilder  ─▶ LengthIndex
//! index/<split>.histogram.arrow        and histogram
//! index/shards.arrow                 shard table      write_shard_table   ─▶ ShardTable
//! ```
//!
//! Readers do not trust the files: schemas, counts and offsets are checked before use. An invalid file is
//! [`ErrorKind::Corrupt`](crate::error::ErrorKind) with its path. The caller compares checksums, which are in the
//! manifest. The `verify` functions run the checks that need a pass over the data.

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

pub use lengths::{LengthIndex, LengthIndexBuilder, LengthRun};
pub use records::{IndexEntry, RecordIndex, RecordIndexWriter};
pub use shards::{SHARD_TABLE_PATH, ShardEntry, ShardTable, SplitShards, write_shard_table};
pub use summary::LengthSummary;

use crate::error::{Error, Result};
use crate::storage::Blob;

/// Directory of the sidecar files in a dataset.
pub const INDEX_DIR: &str = "index";

/// Maximum length of a record, and maximum total length of a split: the largest signed 64-bit integer, because many
/// tools have no other type.
pub const MAX_LENGTH: u64 = i64::MAX as u64;

/// Maximum length of a split name in bytes.
pub const MAX_SPLIT_NAME_BYTES: usize = 64;

/// A written sidecar file, as listed in the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexFile {
    /// Path relative to the dataset, with `/` as separator.
    pub path: String,
    /// Number of rows in the file: records, distinct lengths (histogram) or shards (shard table).
    pub records: u64,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// SHA-256 of the file in lower-case hexadecimal.
    pub sha256: String,
}

/// One opened sidecar file and its expected number of rows.
#[derive(Debug, Clone)]
pub struct Segment {
    /// The file.
    pub blob: Blob,
    /// Number of rows it must have ([`IndexFile::records`]).
    pub records: u64,
}

/// Checks that `name` is a valid split name: 1 to 64 of `A-Z a-z 0-9 _ -`, and not `index`, which is a reserved
/// directory. Split names become directory and file names, so no other characters are allowed.
///
/// # Errors
///
/// [`ErrorKind::Usage`](crate::error::ErrorKind), naming the split.
pub fn check_split_name(name: &str) -> Result<()> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    if name.is_empty() || name.len() > MAX_SPLIT_NAME_BYTES || !name.bytes().all(allowed) {
        return Err(Error::usage(format!("invalid split name {name:?}"))
            .help("use 1 to 64 letters, digits, underscores and hyphens"));
    }
    if name.eq_ignore_ascii_case(INDEX_DIR) {
        return Err(Error::usage(format!("invalid split name {name:?}: it is reserved for the index files"))
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
    fn index_files_round_trip_through_json() {
        let file = IndexFile { path: "index/a.arrow".into(), records: 1, bytes: 2, sha256: "00".into() };
        let json = serde_json::to_string(&file).unwrap();
        assert_eq!(json, r#"{"path":"index/a.arrow","records":1,"bytes":2,"sha256":"00"}"#);
        assert_eq!(serde_json::from_str::<IndexFile>(&json).unwrap(), file);
    }
}
