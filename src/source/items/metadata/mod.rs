//! Files named by the rows of a table, with their labels and fields.
//!
//! The whole table is read when the run is planned, because the fields of the records and the classes depend on all
//! rows. Each row is an item. A row that cannot be read, names no file, or has a value that does not fit its field is
//! rejected.

mod below;
pub mod columns;
mod delimited;
mod json_lines;
pub mod labels;
mod lists;
mod parquet;
mod path_columns;
pub mod placed;
pub(crate) mod rows;

use std::path::Path;

use serde::Deserialize;

use self::columns::WantedMetadata;
use self::rows::MetadataTable;

use crate::error::{Error, Result};
use crate::source::io::encoding::{to_utf8, without_bom};
use crate::source::table::delimited::Dialect;

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
