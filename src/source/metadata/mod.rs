//! Files named by the rows of a table, with what else the table says of them.
//!
//! The table is read as a whole when the run is planned: which fields the records have, and which classes there are,
//! depends on all of its rows. A row is an item: one that cannot be read, names no file, or holds a value that does not
//! fit its field, is rejected.

mod columns;
mod csv;
mod json_lines;
mod labels;
mod parquet;
mod value;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use self::columns::Wanted;
pub use self::columns::{Keep, parse_keep};
pub(super) use self::csv::begin;
use self::labels::Labels;
pub(super) use self::parquet::{cell, field_type, is_text, json};
pub(super) use self::value::{from_json, from_text};
use super::listing::{Detail, Resolver, check_named_once, nothing};
use super::walk::SourceFile;
use super::{folder_of, portable_name, read_file};
use crate::error::{Error, Result};
use crate::options::SourceSpec;
use crate::sample::{Reject, RejectCode, Value};
use crate::schema::Field;

/// Default of `--path-field`.
pub const DEFAULT_PATH_FIELD: &str = "file_name";

/// A table of files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetadataFile {
    /// A `.csv`, `.tsv`, `.jsonl` (or `.ndjson`) or `.parquet` file.
    #[serde(with = "crate::stored_path")]
    pub path: PathBuf,
    /// The column with the paths.
    pub path_field: String,
    /// The columns that become fields; `None`: all.
    pub keep: Option<Vec<Keep>>,
}

/// What a table says.
#[derive(Debug)]
pub struct Metadata {
    /// One file per row, in order.
    pub files: Vec<SourceFile>,
    /// One per file.
    pub details: Vec<Detail>,
    /// Fields that the rows have values for.
    pub fields: Vec<Field>,
    /// Names of the classes, when there is a column `label`.
    pub class_names: Option<Vec<String>>,
    /// XXH3-128 of the table.
    pub content: u128,
}

/// The rows of a table, before files are looked for.
struct Table {
    fields: Vec<Field>,
    has_labels: bool,
    rows: Vec<Row>,
    /// What [`Row::number`] counts: lines or rows.
    counted: &'static str,
}

struct Row {
    /// Line of the file, or row, from 1.
    number: u64,
    /// What stands for the row in an origin: its byte offset, or its ordinal.
    mark: u64,
    /// What the path column says.
    name: Option<Vec<u8>>,
    label: Option<String>,
    values: Result<Box<[Value]>, Reject>,
}

impl MetadataFile {
    /// The folder that paths are relative to when nothing else is said.
    pub fn folder(&self) -> PathBuf {
        folder_of(&self.path)
    }

    /// Reads the table and looks for its files.
    ///
    /// # Errors
    ///
    /// A table that cannot be read, lacks a column that is asked for, or names a file twice; two fields of one name.
    pub fn list(
        &self,
        source: &SourceSpec,
        follow_links: bool,
        classes: Option<&[String]>,
    ) -> Result<Metadata> {
        let bytes = read_file(&self.path)?;
        let content = xxh3_128(&bytes);
        let table = self.read(bytes).map_err(|e| e.at_path(&self.path))?;
        let labels = table
            .has_labels
            .then(|| Labels::of(table.rows.iter().filter_map(|r| r.label.as_deref()), classes))
            .transpose()
            .map_err(|e| e.at_path(&self.path))?;
        let mut resolver = Resolver::new(source, false, follow_links)?;
        let table_name = self.path.file_name().map(portable_name).unwrap_or_default();
        let (mut files, mut details, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
        for row in table.rows {
            let (file, defect) = match &row.name {
                Some(name) => resolver.resolve(name)?,
                None => {
                    let origin = format!("{}/{table_name}#{}", source.label, row.mark);
                    (nothing(PathBuf::new(), origin), None)
                }
            };
            let (values, defect) = match (row.values, defect) {
                (_, Some(defect)) | (Err(defect), None) => (Box::default(), Some(defect)),
                (Ok(values), None) if row.name.is_none() => (values, Some(no_name(&self.path_field))),
                (Ok(values), None) => (values, None),
            };
            let label = match (&labels, &row.label) {
                (Some(labels), Some(name)) => labels.ordinal(name).map(Some),
                _ => Ok(None),
            };
            let (label, defect) = match (label, defect) {
                (Ok(label), defect) => (label, defect),
                (Err(reject), defect) => (None, Some(defect.unwrap_or(reject))),
            };
            files.push(file);
            details.push(Detail { defect: defect.map(Box::new), label, values });
            numbers.push(row.number);
        }
        check_named_once(&files, &self.path, |i| format!("{} {}", table.counted, numbers[i]))?;
        let class_names = labels.map(Labels::into_names);
        Ok(Metadata { files, details, fields: table.fields, class_names, content })
    }

    fn read(&self, bytes: Vec<u8>) -> Result<Table> {
        let wanted = Wanted { path: &self.path_field, keep: self.keep.as_deref() };
        match extension(&self.path).as_str() {
            "csv" => csv::read(&bytes, csv::Dialect::Csv, &wanted),
            "tsv" => csv::read(&bytes, csv::Dialect::Tsv, &wanted),
            "jsonl" | "ndjson" => json_lines::read(&bytes, &wanted),
            "parquet" => parquet::read(bytes, &wanted),
            _ => Err(Error::usage("this is no kind of metadata file that is read here")
                .help("metadata is read from .csv, .tsv, .jsonl and .parquet files")),
        }
    }
}

fn extension(path: &Path) -> String {
    path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase()).unwrap_or_default()
}

fn no_name(field: &str) -> Reject {
    Reject::new(RejectCode::MissingField, format!("the row names no file in {field:?}"))
}
