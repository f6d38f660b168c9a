//! Documents in the rows of tables of comma-separated or tab-separated values. An empty value of a kept column is null.

use std::borrow::Cow;
use std::cell::Cell;

use bytes::Bytes;
use serde_json::Value as Json;

use super::cut::Rule;
use super::fields::{SourceDocument, TextFields, object, unread};
use crate::sample::{Reject, RejectCode, Value};
use crate::schema::Field;
use crate::source::table::columns::ColumnNames;
use crate::source::table::delimited::{DelimitedReader, DelimitedRow, Dialect};
use crate::source::table::missing_field::quoted;
use crate::source::table::typed_values::from_text;

/// The column names of a table, and the positions of the requested columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableHeader {
    dialect: Dialect,
    names: Vec<String>,
    text: Vec<Option<usize>>,
    key: Option<usize>,
    kept: Vec<usize>,
    /// Columns that nothing reads, if they are reported.
    unread: Vec<usize>,
}

/// Reader of the rows of a piece of a table.
pub struct TableRows {
    reader: DelimitedReader<Bytes>,
    ended: bool,
}

/// A row of a table.
pub struct TableRow<'a> {
    /// Offset in the piece.
    pub offset: usize,
    /// Whether invalid UTF-8 in a requested value was replaced.
    pub is_replaced: bool,
    /// The document, or the reason why there is none.
    pub document: Result<SourceDocument<'a>, Reject>,
}

/// Names of the columns with the requested fields.
#[derive(Debug, Clone, Copy)]
pub struct RequestedColumns<'a> {
    /// Columns of the text.
    pub text: &'a TextFields,
    /// Column that holds the key.
    pub key: Option<&'a str>,
    /// Columns that become fields.
    pub fields: &'a [Field],
}

/// Returns the rule by which a table is cut into pieces.
pub fn rule(dialect: Dialect) -> Rule {
    match dialect {
        Dialect::Csv => Rule::Rows { delimiter: dialect.delimiter() },
        // Without quoting, a line is a row.
        Dialect::Tsv => Rule::Lines,
    }
}

/// Returns the column names in the first piece of a table; `None` if it has no rows.
pub fn names(dialect: Dialect, piece: &[u8]) -> Option<Vec<String>> {
    DelimitedReader::of_table(dialect, piece).names().ok()?
}

impl TableHeader {
    /// Reads the header of a table from its first piece. Returns it with its end offset.
    ///
    /// # Errors
    ///
    /// Returns a reject if a requested column is missing or occurs twice.
    pub fn read(
        dialect: Dialect,
        piece: &[u8],
        wanted: RequestedColumns<'_>,
    ) -> Result<(Self, usize), Reject> {
        let mut reader = DelimitedReader::of_table(dialect, piece);
        let names = reader
            .names()
            .map_err(|broken| broken.reject)?
            .ok_or_else(|| Reject::new(RejectCode::Empty, "the table has no header line"))?;
        let all = ColumnNames::new(&names);
        let find = |name: &str| match all.find(name) {
            (Some(at), None) => Ok(at),
            (None, _) => {
                let what = format!("there is no column {name:?}; there are {}", quoted(&names));
                Err(Reject::new(RejectCode::MissingField, what))
            }
            _ => Err(Reject::new(RejectCode::Corrupt, format!("two columns are called {name:?}"))),
        };
        let text = wanted.text.names().into_iter().map(|(name, _, is_required)| match find(name) {
            Err(reject) if !is_required && reject.code == RejectCode::MissingField => Ok(None),
            found => found.map(Some),
        });
        let text = text.collect::<Result<Vec<_>, _>>()?;
        let key = wanted.key.map(find).transpose()?;
        let kept = wanted.fields.iter().map(|f| find(&f.name)).collect::<Result<Vec<_>, _>>()?;
        let unread = unread(wanted.text, names.len(), text.iter().flatten().chain(&key).chain(&kept));
        Ok((Self { dialect, names, text, key, kept, unread }, reader.end()))
    }

    /// Returns the reader of the rows of a piece.
    pub fn rows(&self, piece: Bytes) -> TableRows {
        TableRows { reader: DelimitedReader::of_rows(self.dialect, piece), ended: false }
    }

    /// Returns the next row; `None` at the end. With `lossy`, invalid UTF-8 is replaced.
    pub fn next_row<'a>(
        &self,
        rows: &'a mut TableRows,
        wanted: RequestedColumns<'_>,
        lossy: bool,
    ) -> Option<TableRow<'a>> {
        if rows.ended {
            return None;
        }
        match rows.reader.read() {
            Ok(None) => None,
            Ok(Some(row)) => {
                let is_replaced = Cell::new(false);
                let document = self.document(&row, wanted, lossy, &is_replaced);
                Some(TableRow { offset: row.offset, is_replaced: is_replaced.get(), document })
            }
            Err(broken) => {
                rows.ended = broken.reject.code != RejectCode::TooLarge;
                let document = Err(broken.reject);
                Some(TableRow { offset: broken.offset, is_replaced: false, document })
            }
        }
    }

    /// Returns the document of a row, and notes in `is_replaced` whether invalid UTF-8 in it was replaced.
    fn document<'a>(
        &self,
        row: &DelimitedRow<'a>,
        wanted: RequestedColumns<'_>,
        lossy: bool,
        is_replaced: &Cell<bool>,
    ) -> Result<SourceDocument<'a>, Reject> {
        row.check_values(self.names.len())?;
        let value = |at: usize| {
            let text = row.text(at, &self.names[at], lossy)?;
            // A value is a copy only if something in it was replaced.
            is_replaced.set(is_replaced.get() || matches!(text, Cow::Owned(_)));
            Ok::<_, Reject>(text)
        };
        let key = self.key.map(value).transpose()?.map(String::from);
        if key.as_deref() == Some("") {
            return Err(Reject::new(RejectCode::MissingField, "the row has no key"));
        }
        let kept = self.kept.iter().zip(wanted.fields);
        let kept = kept.map(|(&at, field)| match &*value(at)? {
            "" => Ok(Value::Null),
            text => from_text(&field.name, field.ty, text),
        });
        let kept = kept.collect::<Result<_, _>>()?;
        let column = |at: usize| self.text.get(at).copied().flatten();
        let text = match wanted.text {
            // A plan refuses ids in such tables.
            TextFields::Ids(_) => Cow::Borrowed(""),
            TextFields::Text(_) => column(0).map_or(Ok(Cow::Borrowed("")), value)?,
            TextFields::Json(members) => Cow::Owned(object(members, |at, _| {
                let text = column(at).map(value).transpose()?;
                Ok(text.filter(|text| !text.is_empty()).map(|text| Json::from(&*text).to_string()))
            })?),
        };
        let is_filled = |at: &usize| row.text(*at, "", true).is_ok_and(|text| !text.is_empty());
        let unread = self.unread.iter().filter(|at| is_filled(at)).map(|&at| self.names[at].clone());
        Ok(SourceDocument { kept, text, ids: None, key, unread: unread.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::FieldType;

    #[test]
    fn rows_are_parsed_with_their_offsets() {
        let fields = [Field::nullable("n", FieldType::Int32)];
        let wanted =
            RequestedColumns { text: &TextFields::Text("body".to_owned()), key: Some("id"), fields: &fields };
        let table =
            "\u{feff}id,body,n\r\na,\"one\r\ntwo, \"\"three\"\"\",5\r\n\r\nb,x,\nc,y\nd,z,many\n,k,1\n";
        let (header, end) = TableHeader::read(Dialect::Csv, table.as_bytes(), wanted).unwrap();
        assert_eq!(&table[end..end + 3], "a,\"");
        let mut found = Vec::new();
        let mut rows = header.rows(Bytes::copy_from_slice(&table.as_bytes()[end..]));
        while let Some(row) = header.next_row(&mut rows, wanted, false) {
            let document = row.document.map(|r| (r.text.into_owned(), r.key.unwrap(), r.kept[0].clone()));
            found.push((row.offset, document.map_err(|reject| reject.code)));
        }
        let ok = |text: &str, key: &str, n| Ok((text.to_owned(), key.to_owned(), n));
        assert_eq!(
            found,
            [
                (0, ok("one\r\ntwo, \"three\"", "a", Value::Int(5))),
                (29, ok("x", "b", Value::Null)),
                (34, Err(RejectCode::InvalidValue)),
                (38, Err(RejectCode::InvalidValue)),
                (47, Err(RejectCode::MissingField)),
            ]
        );
    }

    #[test]
    fn missing_columns_are_named() {
        let wanted = RequestedColumns { text: &TextFields::Text("text".to_owned()), key: None, fields: &[] };
        let defect = |table: &str| TableHeader::read(Dialect::Tsv, table.as_bytes(), wanted).unwrap_err();
        assert_eq!(defect("").code, RejectCode::Empty);
        assert_eq!(defect("a\tb\n").message, "there is no column \"text\"; there are \"a\", \"b\"");
        let wide = (0..52).map(|n| format!("c{n}")).collect::<Vec<_>>().join("\t");
        assert!(defect(&wide).message.ends_with("\"c18\", \"c19\" and 32 more"));
        assert!(defect(&"x".repeat(10_000)).message.len() < 200);
        assert_eq!(defect("text\ttext\n").code, RejectCode::Corrupt);
    }
}
