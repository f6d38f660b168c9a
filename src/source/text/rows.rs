//! Documents in the rows of tables of delimited values: comma-separated with quoting (RFC 4180), or tab-separated
//! without quoting. An empty value of a kept column is null.

use std::borrow::Cow;

use csv::{ByteRecord, Reader, ReaderBuilder};

use super::columns::DocumentRow;
use super::cut::Rule;
use super::kind::Format;
use crate::sample::{Reject, RejectCode, Value};
use crate::schema::Field;
use crate::source::metadata::{begin, from_text};

/// The columns of a table, and which of them are requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableHeader {
    format: Format,
    names: Vec<String>,
    text: usize,
    key: Option<usize>,
    kept: Vec<usize>,
}

/// Names of the columns with the requested fields.
#[derive(Debug, Clone, Copy)]
pub struct RequestedColumns<'a> {
    /// Column that holds the text.
    pub text: &'a str,
    /// Column that holds the key.
    pub key: Option<&'a str>,
    /// Columns that become fields.
    pub fields: &'a [Field],
}

/// Returns how a table of `format` is cut into pieces.
pub fn rule(format: Format) -> Rule {
    // Tab-separated values have no quoting: a line is a row.
    if format == Format::Tsv { Rule::Lines } else { Rule::Rows { delimiter: b',' } }
}

fn reader(format: Format, bytes: &[u8]) -> Reader<&[u8]> {
    ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .delimiter(if format == Format::Tsv { b'\t' } else { b',' })
        .quoting(format != Format::Tsv)
        .from_reader(bytes)
}

/// Returns the names of the columns from the first piece of a table; `None` if there are none.
pub fn names(format: Format, piece: &[u8]) -> Option<Vec<String>> {
    let mut record = ByteRecord::new();
    let content = piece.strip_prefix("\u{feff}".as_bytes()).unwrap_or(piece);
    let is_read = reader(format, content).read_byte_record(&mut record).ok()?;
    is_read.then(|| record.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect())
}

impl TableHeader {
    /// Reads the header of a table from its first piece. Returns it with its end offset.
    ///
    /// # Errors
    ///
    /// Returns a reject if a requested column is missing or occurs twice.
    pub fn read(format: Format, piece: &[u8], wanted: RequestedColumns<'_>) -> Result<(Self, usize), Reject> {
        let content = piece.strip_prefix("\u{feff}".as_bytes()).unwrap_or(piece);
        let mut reader = reader(format, content);
        let mut record = ByteRecord::new();
        if !reader.read_byte_record(&mut record).map_err(|e| unreadable(&e))? {
            return Err(Reject::new(RejectCode::Empty, "the table has no line that names its columns"));
        }
        let end = piece.len() - content.len() + reader.position().byte() as usize;
        // The reader stops between the two bytes of a CRLF line end.
        let end = end + usize::from(piece[..end].ends_with(b"\r") && piece[end..].starts_with(b"\n"));
        let names: Vec<String> = record.iter().map(|n| String::from_utf8_lossy(n).into_owned()).collect();
        let find = |name: &str| {
            let mut found = (0..names.len()).filter(|&at| names[at] == name);
            match (found.next(), found.next()) {
                (Some(at), None) => Ok(at),
                (None, _) => Err(Reject::new(
                    RejectCode::MissingField,
                    format!("there is no column {name:?}; there are {}", names.join(", ")),
                )),
                _ => Err(Reject::new(RejectCode::Corrupt, format!("two columns are called {name:?}"))),
            }
        };
        let text = find(wanted.text)?;
        let key = wanted.key.map(find).transpose()?;
        let kept = wanted.fields.iter().map(|f| find(&f.name)).collect::<Result<_, _>>()?;
        Ok((Self { format, names, text, key, kept }, end))
    }

    /// Calls `each` with every row of a piece and its offset in the piece, as long as `each` returns true.
    ///
    /// With `lossy`, invalid UTF-8 is replaced.
    pub fn rows(
        &self,
        piece: &[u8],
        fields: &[Field],
        lossy: bool,
        mut each: impl FnMut(usize, Result<DocumentRow<'_>, Reject>) -> bool,
    ) {
        let mut reader = reader(self.format, piece);
        let mut record = ByteRecord::new();
        loop {
            match reader.read_byte_record(&mut record) {
                Ok(false) => return,
                Ok(true) => {
                    let at = record.position().map_or(0, |p| begin(piece, 0, p.byte()).1 as usize);
                    if !each(at, self.row(&record, fields, lossy)) {
                        return;
                    }
                }
                // Does not happen: the bytes are in memory, and rows may have any number of values.
                Err(e) => {
                    each(0, Err(unreadable(&e)));
                    return;
                }
            }
        }
    }

    fn row<'a>(
        &self,
        record: &'a ByteRecord,
        fields: &[Field],
        lossy: bool,
    ) -> Result<DocumentRow<'a>, Reject> {
        if record.len() != self.names.len() {
            let message = format!("the row has {} values, the first line {}", record.len(), self.names.len());
            return Err(Reject::new(RejectCode::InvalidValue, message));
        }
        let value = |at: usize| {
            let bytes = record.get(at).unwrap_or_default();
            match std::str::from_utf8(bytes) {
                Ok(text) => Ok(Cow::Borrowed(text)),
                Err(_) if lossy => Ok(String::from_utf8_lossy(bytes)),
                Err(_) => {
                    let message = format!("the field {:?} is not UTF-8", self.names[at]);
                    Err(Reject::new(RejectCode::InvalidUtf8, message))
                }
            }
        };
        let key = self.key.map(value).transpose()?.map(Cow::into_owned);
        if key.as_deref() == Some("") {
            return Err(Reject::new(RejectCode::MissingField, "the row has no key"));
        }
        let kept = self.kept.iter().zip(fields);
        let kept = kept.map(|(&at, field)| match &*value(at)? {
            "" => Ok(Value::Null),
            text => from_text(&field.name, field.ty, text),
        });
        Ok(DocumentRow { kept: kept.collect::<Result<_, _>>()?, text: value(self.text)?, key })
    }
}

fn unreadable(error: &csv::Error) -> Reject {
    Reject::new(RejectCode::Corrupt, format!("the table cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::FieldType;

    #[test]
    fn rows_are_taken_apart_with_their_offsets() {
        let fields = [Field::nullable("n", FieldType::Int32)];
        let wanted = RequestedColumns { text: "body", key: Some("id"), fields: &fields };
        let table =
            "\u{feff}id,body,n\r\na,\"one\r\ntwo, \"\"three\"\"\",5\r\n\r\nb,x,\nc,y\nd,z,many\n,k,1\n";
        let (header, end) = TableHeader::read(Format::Csv, table.as_bytes(), wanted).unwrap();
        assert_eq!(&table[end..end + 3], "a,\"");
        let mut found = Vec::new();
        header.rows(&table.as_bytes()[end..], &fields, false, |at, row| {
            let row =
                row.map(|r| (r.text.into_owned(), r.key.unwrap(), r.kept[0].clone())).map_err(|r| r.code);
            found.push((at, row));
            true
        });
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
    fn columns_that_are_not_there_are_named() {
        let wanted = RequestedColumns { text: "text", key: None, fields: &[] };
        let defect = |table: &str| TableHeader::read(Format::Tsv, table.as_bytes(), wanted).unwrap_err();
        assert_eq!(defect("").code, RejectCode::Empty);
        assert_eq!(defect("a\tb\n").message, "there is no column \"text\"; there are a, b");
        assert_eq!(defect("text\ttext\n").code, RejectCode::Corrupt);
    }
}
