//! Files named by the rows of a table, with their labels and fields.
//!
//! The whole table is read when the run is planned, because the fields of the records and the classes depend on all
//! rows. Each row is an item. A row that cannot be read, names no file, or has a value that does not fit its field is
//! rejected.

mod below;
mod columns;
mod delimited;
mod json_lines;
mod labels;
mod lists;
mod parquet;
mod path_columns;
mod placed;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub(crate) use self::columns::field_not_seen;
pub use self::columns::{Keep, KeptField, parse_keep, parse_kept};
use self::columns::{PathColumn, WantedMetadata};
pub use self::labels::Labels;
pub use self::placed::{BESIDE_NAMES, list_beside};
use self::placed::{PlacedTable, list_tables};
use crate::error::{Error, Result};
use crate::options::{SourceSpec, check_local};
use crate::sample::{Reject, Value};
use crate::schema::{Field, HEIGHT, IMAGE, KEY, LABEL, ORIGIN, WIDTH};
use crate::source::io::encoding::to_utf8;
use crate::source::io::encoding::without_bom;
use crate::source::list::listed_names::ListedNames;
use crate::source::list::named_files::Detail;
use crate::source::list::source_file::SourceFile;
use crate::source::table::delimited::Dialect;
use crate::storage::folder_of;
use crate::warning::Warning;

/// Default of `--path-field`.
pub const DEFAULT_PATH_FIELD: &str = "file_name";

/// Returns whether `name` is that of a field of every image dataset.
pub(crate) fn is_built_in(name: &str) -> bool {
    [KEY, IMAGE, WIDTH, HEIGHT, LABEL, ORIGIN].contains(&name)
}

/// A table that names files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetadataFile {
    /// A `.csv`, `.tsv`, `.jsonl` (or `.ndjson`), `.parquet` or `.arrow` (or `.feather`, `.ipc`) file.
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
    /// One file per row, in order, followed by those of its further images.
    pub files: Vec<SourceFile>,
    /// One detail per file.
    pub details: Vec<Detail>,
    /// Fields that the rows have values for.
    pub fields: Vec<Field>,
    /// Names of the classes, if there is a column with classes.
    pub class_names: Option<Vec<String>>,
    /// XXH3-128 of the table; for several tables, of their hashes.
    pub content: u128,
    /// Names of the fields with further images, and of the columns with their paths. The files are among the files, each
    /// after that of its row.
    pub image_fields: Vec<(String, String)>,
    /// Warning about names that were found below the folder.
    pub below: Option<Warning>,
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

    /// Reads the table and finds its files. `label` names the column with the classes, if it has another name than usual. If
    /// `lists` names columns, rows that name the same file become one entry with lists in these columns.
    ///
    /// # Errors
    ///
    /// Returns an error if the table cannot be read, lacks a requested column, or has two fields of one name.
    pub fn list(
        &self,
        source: &SourceSpec,
        follow_symlinks: bool,
        classes: Option<&[String]>,
        label: Option<&str>,
        lists: &[String],
        listed: Option<ListedNames<'_>>,
    ) -> Result<Metadata> {
        check_local("metadata", &self.path)?;
        let path = PathColumn::Named(&self.path_field);
        let wanted = WantedMetadata { path, label, keep: self.keep.as_deref(), lists };
        let table = PlacedTable {
            path: self.path.clone(),
            bytes: None,
            folder: source.clone(),
            source: 0,
            prefix: PathBuf::new(),
        };
        list_tables(vec![table], &wanted, follow_symlinks, classes, listed, true)
    }
}

/// Parses a table whose file has the given extension.
fn parse_table(bytes: Vec<u8>, extension: &str, wanted: &WantedMetadata<'_>) -> Result<MetadataTable> {
    let text = |bytes| to_utf8(bytes, None).map_err(|reject| Error::usage(reject.message));
    match extension {
        "csv" => text(bytes).and_then(|text| delimited::read(&text, Dialect::Csv, wanted)),
        "tsv" => text(bytes).and_then(|text| delimited::read(&text, Dialect::Tsv, wanted)),
        "jsonl" | "ndjson" => text(bytes).and_then(|text| json_lines::read(&text, wanted)),
        "parquet" => parquet::read(bytes, wanted),
        "arrow" | "feather" | "ipc" => parquet::read_arrow(bytes, wanted),
        "json" if is_coco(&bytes) => Err(Error::usage("this is a file of COCO annotations, not a table")
            .help("give it with `annotations`")),
        _ => Err(Error::usage("unknown kind of metadata file")
            .help("metadata is read from .csv, .tsv, .jsonl, .parquet and .arrow (.feather, .ipc) files")),
    }
}

/// Returns whether `bytes` are a JSON object with the lists of COCO annotations.
fn is_coco(bytes: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Coco {
        #[serde(rename = "images")]
        _images: Vec<serde::de::IgnoredAny>,
    }
    serde_json::from_slice::<Coco>(without_bom(bytes)).is_ok()
}

fn extension(path: &Path) -> String {
    path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase()).unwrap_or_default()
}
