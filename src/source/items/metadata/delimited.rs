//! Metadata in tables of comma-separated or tab-separated values. An empty cell is a missing value.

use super::columns::WantedMetadata;
use super::rows::{MetadataRow, MetadataTable};
use crate::error::{Error, Result};
use crate::sample::{Reject, Value};
use crate::schema::{Field, FieldType};
use crate::source::table::delimited::{BrokenRow, DelimitedReader, Dialect};
use crate::source::table::typed_values::from_text;

pub(super) fn read(bytes: &[u8], dialect: Dialect, wanted: &WantedMetadata<'_>) -> Result<MetadataTable> {
    let failed = |broken: BrokenRow| {
        Error::usage(format!("line {}: {}", broken.line, broken.reject.message))
            .help("write two quotes for a quote inside a quoted cell")
    };
    let mut reader = DelimitedReader::of_table(dialect, bytes);
    let names = reader.names().map_err(failed)?;
    let names =
        names.ok_or_else(|| Error::usage("the table is empty").help("its first line names the columns"))?;
    let columns = wanted.among(&names)?;
    let fields: Vec<Field> = columns
        .kept
        .iter()
        .map(|(_, k)| Field::nullable(&k.name, k.ty.unwrap_or(FieldType::String)))
        .collect();
    let mut rows = Vec::new();
    while let Some(row) = reader.read().map_err(failed)? {
        let text = |at: usize, name: &str| row.text(at, name, false).map(|t| (!t.is_empty()).then_some(t));
        let read = || -> Result<(Option<String>, Box<[Value]>), Reject> {
            row.check_values(names.len())?;
            let label = columns.label.map(|at| text(at, &names[at])).transpose()?.flatten();
            let kept = columns.kept.iter().zip(&fields).map(|((at, _), field)| {
                let text = text(*at, &field.name)?;
                text.map_or(Ok(Value::Null), |text| from_text(&field.name, field.ty, &text))
            });
            Ok((label.map(String::from), kept.collect::<Result<_, Reject>>()?))
        };
        let (label, values) = match read() {
            Ok((label, values)) => (label, Ok(values)),
            Err(reject) => (None, Err(reject)),
        };
        let name = columns.path.map(|at| row.bytes(at)).filter(|name| !name.is_empty()).map(<[u8]>::to_vec);
        rows.push(MetadataRow { number: row.line, mark: row.offset as u64, name, label, values });
    }
    let has_labels = columns.label.is_some();
    Ok(MetadataTable { path_field: columns.path_field, fields, has_labels, rows, counted: "line" })
}
