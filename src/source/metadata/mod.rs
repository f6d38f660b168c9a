//! Files named by the rows of a table, with their labels and fields.
//!
//! The whole table is read when the run is planned, because the fields of the records and the classes depend on all
//! rows. Each row is an item. A row that cannot be read, names no file, or has a value that does not fit its field is
//! rejected.

mod columns;
mod delimited;
mod json_lines;
mod labels;
mod lists;
mod parquet;
mod placed;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

pub use self::columns::{Keep, parse_keep};
use self::columns::{PathColumn, WantedMetadata};
pub use self::labels::Labels;
pub use self::placed::{BESIDE_NAMES, list_beside};
use self::placed::{PlacedTable, list_tables};
use super::named_files::Detail;
use super::read_file;
use super::source_file::SourceFile;
use super::table::delimited::Dialect;
use crate::error::{Error, Result};
use crate::options::{SourceSpec, check_local};
use crate::sample::{Reject, Value};
use crate::schema::Field;
use crate::storage::folder_of;

/// Default of `--path-field`.
pub const DEFAULT_PATH_FIELD: &str = "file_name";

/// A table that names files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetadataFile {
    /// A `.csv`, `.tsv`, `.jsonl` (or `.ndjson`) or `.parquet` file.
    #[serde(with = "crate::stored_path")]
    pub path: PathBuf,
    /// Name of the path column.
    pub path_field: String,
    /// Columns that become fields; `None`: all.
    pub keep: Option<Vec<Keep>>,
}

/// The rows of one or more tables.
#[derive(Debug)]
pub struct Metadata {
    /// One file per row, in order.
    pub files: Vec<SourceFile>,
    /// One detail per file.
    pub details: Vec<Detail>,
    /// Fields that the rows have values for.
    pub fields: Vec<Field>,
    /// Names of the classes, if there is a column `label`.
    pub class_names: Option<Vec<String>>,
    /// XXH3-128 of the table; for several tables, of their hashes.
    pub content: u128,
}

/// A table whose files are not yet resolved.
struct MetadataTable {
    /// Name of the path column.
    path_field: String,
    fields: Vec<Field>,
    has_labels: bool,
    rows: Vec<MetadataRow>,
    /// What [`MetadataRow::number`] counts: lines or rows.
    counted: &'static str,
}

struct MetadataRow {
    /// Line or row number, from 1.
    number: u64,
    /// Number of the row in an origin: its byte offset, or its ordinal.
    mark: u64,
    /// Value of the path column.
    name: Option<Vec<u8>>,
    label: Option<String>,
    values: Result<Box<[Value]>, Reject>,
}

impl MetadataFile {
    /// Returns the default base folder of the paths.
    pub fn folder(&self) -> PathBuf {
        folder_of(&self.path).to_owned()
    }

    /// Reads the table and finds its files. If `lists` names columns, rows that name the same file become one entry
    /// with lists in these columns.
    ///
    /// # Errors
    ///
    /// Returns an error if the table cannot be read, lacks a requested column, or has two fields of one name.
    pub fn list(
        &self,
        source: &SourceSpec,
        follow_symlinks: bool,
        classes: Option<&[String]>,
        lists: &[String],
    ) -> Result<Metadata> {
        check_local("metadata", &self.path)?;
        let wanted =
            WantedMetadata { path: PathColumn::Named(&self.path_field), keep: self.keep.as_deref(), lists };
        let table = PlacedTable {
            path: self.path.clone(),
            folder: source.clone(),
            source: 0,
            prefix: PathBuf::new(),
        };
        list_tables(std::slice::from_ref(&table), &wanted, follow_symlinks, classes)
    }
}

/// Reads the table at `path`. Returns it with the hash of its bytes.
fn read_table(path: &Path, wanted: &WantedMetadata<'_>) -> Result<(MetadataTable, u128)> {
    let bytes = read_file(path).map_err(|e| e.of_option("metadata"))?;
    let content = xxh3_128(&bytes);
    let table = match extension(path).as_str() {
        "csv" => delimited::read(&bytes, Dialect::Csv, wanted),
        "tsv" => delimited::read(&bytes, Dialect::Tsv, wanted),
        "jsonl" | "ndjson" => json_lines::read(&bytes, wanted),
        "parquet" => parquet::read(bytes, wanted),
        _ => Err(Error::usage("unknown kind of metadata file")
            .help("metadata is read from .csv, .tsv, .jsonl and .parquet files")),
    };
    Ok((table.map_err(|e| e.at_path(path))?, content))
}

fn extension(path: &Path) -> String {
    path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase()).unwrap_or_default()
}
