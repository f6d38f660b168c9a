//! Tables of unsigned numbers in Arrow IPC files, shared by the record index, the permutation and the histogram.
//!
//! Columns have a fixed width and no nulls. All record batches of a file except the last have the same number of rows,
//! and so do all files of a table except the last. A row is therefore located with two divisions and read in place.

mod read;
mod write;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};

pub(super) use read::IndexTable;
pub(super) use write::TableWriter;

use crate::error::{Error, ErrorKind, Result};
use crate::schema::{LENGTH, LengthUnit};

/// Schema metadata key that identifies the sidecar file: `<table>/<version>`.
pub(super) const METADATA_KEY: &str = "dsconvert.index";
/// Field metadata key for the unit of a length.
pub(super) const UNIT_KEY: &str = "unit";
/// Version of all sidecar files.
pub(super) const VERSION: u32 = 1;
/// Rows per record batch.
pub(super) const BATCH_ROWS: u64 = 1 << 16;
/// Rows per file of a segmented table.
pub(super) const SEGMENT_ROWS: u64 = 1 << 24;

/// Column of unsigned numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TableColumn {
    pub(super) name: &'static str,
    pub(super) width: Width,
}

/// Size of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    U32,
    U64,
}

impl Width {
    pub(super) fn bytes(self) -> u64 {
        match self {
            Width::U32 => 4,
            Width::U64 => 8,
        }
    }
}

/// Creates a column of 32-bit numbers.
pub(super) const fn u32_column(name: &'static str) -> TableColumn {
    TableColumn { name, width: Width::U32 }
}

/// Creates a column of 64-bit numbers.
pub(super) const fn u64_column(name: &'static str) -> TableColumn {
    TableColumn { name, width: Width::U64 }
}

/// Name and columns of a table.
#[derive(Debug, Clone)]
pub(super) struct Spec {
    /// Name of the table, used in its file names and metadata.
    pub(super) table: &'static str,
    pub(super) columns: Cow<'static, [TableColumn]>,
    /// Unit of the column `length`, if the table has it.
    pub(super) unit: Option<LengthUnit>,
    /// Whether the table is split into numbered files.
    pub(super) segmented: bool,
}

impl Spec {
    pub(super) fn schema(&self) -> SchemaRef {
        let field = |column: &TableColumn| {
            let ty = match column.width {
                Width::U32 => DataType::UInt32,
                Width::U64 => DataType::UInt64,
            };
            let field = Field::new(column.name, ty, false);
            match self.unit {
                Some(unit) if column.name == LENGTH => {
                    field.with_metadata(one(UNIT_KEY, unit.name().to_owned()))
                }
                _ => field,
            }
        };
        let fields: Vec<Field> = self.columns.iter().map(field).collect();
        Arc::new(Schema::new_with_metadata(fields, metadata(self.table)))
    }
}

/// Sizes of record batches and files. Only tests use values other than [`Geometry::STANDARD`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Geometry {
    pub(super) batch_rows: u64,
    pub(super) segment_rows: u64,
}

impl Geometry {
    pub(super) const STANDARD: Geometry = Geometry { batch_rows: BATCH_ROWS, segment_rows: SEGMENT_ROWS };

    /// Returns the rows per file of the table.
    pub(super) fn file_rows(&self, spec: &Spec) -> u64 {
        if spec.segmented { self.segment_rows } else { u64::MAX }
    }
}

/// Returns the schema metadata of a table. It has a single key, because several would be written in hash map order.
pub(super) fn metadata(table: &str) -> HashMap<String, String> {
    one(METADATA_KEY, format!("{table}/{VERSION}"))
}

/// Checks that the file schema `found` equals `expected`. Reports other tables and newer versions as separate errors.
pub(super) fn check_schema(found: &Schema, expected: &Schema, table: &str) -> Result<()> {
    let label = found.metadata.get(METADATA_KEY).map_or("", String::as_str);
    match label.split_once('/') {
        Some((name, version)) if name == table => {
            if version.parse().is_ok_and(|v: u32| v > VERSION) {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!("the index has version {version}; this build reads versions up to {VERSION}"),
                )
                .help("install the dsconvert that wrote the dataset, or a newer one"));
            }
        }
        _ => return Err(Error::corrupt(format!("expected the index {table:?}, found {label:?}"))),
    }
    if found != expected {
        return Err(Error::corrupt(format!("unexpected columns in the index {table:?}")));
    }
    Ok(())
}

fn one(key: &str, value: String) -> HashMap<String, String> {
    HashMap::from([(key.to_owned(), value)])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Existing datasets depend on these constants, so this test never changes.
    #[test]
    fn constants_of_the_tables_never_change() {
        assert_eq!(METADATA_KEY, "dsconvert.index");
        assert_eq!(UNIT_KEY, "unit");
        assert_eq!(VERSION, 1);
        assert_eq!(BATCH_ROWS, 65_536);
        assert_eq!(SEGMENT_ROWS, 16_777_216);
        assert_eq!(metadata("records"), HashMap::from([("dsconvert.index".into(), "records/1".into())]));
    }

    #[test]
    fn newer_versions_and_other_tables_are_different_errors() {
        const COLUMNS: [TableColumn; 1] = [u64_column("x")];
        let spec = Spec { table: "a", columns: Cow::Borrowed(&COLUMNS), unit: None, segmented: false };
        let expected = spec.schema();
        let with = |label: &str| {
            let schema = Schema::clone(&expected).with_metadata(one(METADATA_KEY, label.to_owned()));
            check_schema(&schema, &expected, "a").map_err(|e| e.kind())
        };
        assert_eq!(with("a/1"), Ok(()));
        assert_eq!(with("a/2"), Err(ErrorKind::Unsupported));
        for other in ["b/1", "a/0", "a/x", "a", ""] {
            assert_eq!(with(other), Err(ErrorKind::Corrupt), "{other}");
        }
    }
}
