//! Tables of comma-separated values (RFC 4180), and of tab-separated values, which have no quoting.
//!
//! An empty cell is a missing value.

use csv::{ByteRecord, ReaderBuilder};

use super::columns::WantedMetadata;
use super::value::from_text;
use super::{MetadataRow, MetadataTable};
use crate::error::{Error, Result};
use crate::sample::{Reject, RejectCode, Value};
use crate::schema::{Field, FieldType};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Csv,
    Tsv,
}

pub(super) fn read(bytes: &[u8], dialect: Dialect, wanted: &WantedMetadata<'_>) -> Result<MetadataTable> {
    let failed = |e: csv::Error| Error::usage("the table cannot be read").caused_by(e);
    let mut reader = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .delimiter(if dialect == Dialect::Csv { b',' } else { b'\t' })
        .quoting(dialect == Dialect::Csv)
        .from_reader(bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes));
    let skipped = if bytes.starts_with("\u{feff}".as_bytes()) { 3 } else { 0 };
    let mut record = ByteRecord::new();
    if !reader.read_byte_record(&mut record).map_err(failed)? {
        return Err(Error::usage("the table is empty").help("its first line names the columns"));
    }
    let names: Vec<String> = record.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    let columns = wanted.among(&names)?;
    let fields: Vec<Field> = columns
        .kept
        .iter()
        .map(|(_, k)| Field::nullable(&k.name, k.ty.unwrap_or(FieldType::String)))
        .collect();
    let mut rows = Vec::new();
    while reader.read_byte_record(&mut record).map_err(failed)? {
        let (number, mark) = record.position().map_or((0, 0), |p| begin(bytes, p.line(), p.byte() + skipped));
        let cell = |at: usize| record.get(at).filter(|cell| !cell.is_empty());
        let text = |at: usize, name: &str| match cell(at).map(std::str::from_utf8) {
            None => Ok(None),
            Some(Ok(text)) => Ok(Some(text)),
            Some(Err(_)) => {
                Err(Reject::new(RejectCode::InvalidUtf8, format!("the field {name:?} is not UTF-8")))
            }
        };
        let label = columns.label.map_or(Ok(None), |at| text(at, "label"));
        let values: Result<Box<[Value]>, Reject> = if record.len() != names.len() {
            let message = format!("the row has {} cells, the first line {}", record.len(), names.len());
            Err(Reject::new(RejectCode::InvalidValue, message))
        } else {
            let kept = columns.kept.iter().zip(&fields);
            label.clone().and_then(|_| {
                kept.map(|((at, _), field)| match text(*at, &field.name)? {
                    None => Ok(Value::Null),
                    Some(text) => from_text(&field.name, field.ty, text),
                })
                .collect()
            })
        };
        rows.push(MetadataRow {
            number,
            mark,
            name: cell(columns.path).map(<[u8]>::to_vec),
            label: label.ok().flatten().filter(|_| values.is_ok()).map(str::to_owned),
            values,
        });
    }
    let has_labels = columns.label.is_some();
    Ok(MetadataTable { path_field: columns.path_field, fields, has_labels, rows, counted: "line" })
}

/// Returns the line and offset of a row that the reader reports at `line` and `offset`. The reader counts empty lines
/// before a row as part of the row.
pub(in crate::source) fn begin(bytes: &[u8], mut line: u64, mut offset: u64) -> (u64, u64) {
    while let Some(&byte) = bytes.get(offset as usize).filter(|&&b| b == b'\n' || b == b'\r') {
        line += u64::from(byte == b'\n');
        offset += 1;
    }
    (line, offset)
}

#[cfg(test)]
mod tests {
    use super::super::columns::PathColumn;
    use super::*;

    #[test]
    fn rows_know_their_line_and_offset() {
        let wanted = WantedMetadata { path: PathColumn::Named("p"), keep: None, lists: &[] };
        for (text, places) in [
            ("p,q\na,1\n\n\"b\nc\",2\nd,3", [(2, 4), (4, 9), (6, 17)]),
            ("p,q\r\na,1\r\n\r\n\"b\nc\",2\r\nd,3\r\n", [(2, 5), (4, 12), (6, 21)]),
            ("\u{feff}p,q\na,1\nb,2\nd,3\n", [(2, 7), (3, 11), (4, 15)]),
        ] {
            let table = read(text.as_bytes(), Dialect::Csv, &wanted).unwrap();
            let found: Vec<_> = table.rows.iter().map(|r| (r.number, r.mark)).collect();
            assert_eq!(found, places, "{text:?}");
        }
    }
}
