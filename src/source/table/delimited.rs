//! Tables of comma-separated values (RFC 4180), and of tab-separated values, which have no quoting.
//!
//! The first row names the columns. A byte order mark before it is ignored. The caller decides what an empty cell
//! means.
//!
//! The `csv` crate accepts a quote that is never closed: the rest of the file is then one cell. Here it is an error.

use std::borrow::Cow;
use std::io::Cursor;

use csv::{ByteRecord, Reader, ReaderBuilder};
use serde::{Deserialize, Serialize};

use super::row_scan::RowScanner;
use crate::sample::{Reject, RejectCode};
use crate::source::io::encoding::without_bom;

/// Maximum number of cells in a row: the `csv` crate stores the end of each, which takes many times the bytes of a row of
/// empty cells.
const MAX_CELLS: usize = 1 << 19;

/// How cells are separated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dialect {
    /// By commas. A cell in quotes may contain commas, line ends and doubled quotes.
    Csv,
    /// By tabs. A line is a row, and quotes have no meaning.
    Tsv,
}

impl Dialect {
    /// Returns the byte between two cells.
    pub fn delimiter(self) -> u8 {
        match self {
            Self::Csv => b',',
            Self::Tsv => b'\t',
        }
    }
}

/// Returns the reject for the row at `offset` if its `bytes` bytes extend to the end of the file because a quote is not
/// closed.
pub fn unclosed_quote(offset: u64, bytes: u64) -> Reject {
    let lost = if bytes == 1 { "byte".to_owned() } else { format!("{bytes} bytes") };
    let message = format!(
        "the quoted cell in the row at byte {offset} is never closed; the last {lost} of the file became part of this row"
    );
    Reject::new(RejectCode::Truncated, message)
}

/// A row that cannot be read.
#[derive(Debug)]
pub struct BrokenRow {
    /// Line on which the row starts, from 1.
    pub line: u64,
    /// Offset of the row in the bytes.
    pub offset: usize,
    /// The defect.
    pub reject: Reject,
}

/// Reader of the rows in bytes, which it may own.
pub struct DelimitedReader<B> {
    dialect: Dialect,
    bytes: B,
    /// Bytes before the first row: a byte order mark, or rows that were skipped.
    skipped: usize,
    reader: Reader<Cursor<B>>,
    record: ByteRecord,
}

impl<B: AsRef<[u8]> + Clone> DelimitedReader<B> {
    /// Creates a reader of a whole table, or of its start. The next row names the columns.
    pub fn of_table(dialect: Dialect, bytes: B) -> Self {
        let skipped = bytes.as_ref().len() - without_bom(bytes.as_ref()).len();
        Self::new(dialect, bytes, skipped)
    }

    /// Creates a reader of rows from the middle of a table.
    pub fn of_rows(dialect: Dialect, bytes: B) -> Self {
        Self::new(dialect, bytes, 0)
    }

    fn new(dialect: Dialect, bytes: B, skipped: usize) -> Self {
        let mut unread = Cursor::new(bytes.clone());
        unread.set_position(skipped as u64);
        let mut reader = ReaderBuilder::new()
            .flexible(true)
            .delimiter(dialect.delimiter())
            .quoting(dialect == Dialect::Csv)
            .from_reader(unread);
        // Without headers, the reader would keep two copies of the first row, which may be large.
        reader.set_byte_headers(ByteRecord::new());
        Self { dialect, bytes, skipped, reader, record: ByteRecord::new() }
    }

    /// Reads the names of the columns; `None` if there is no row.
    ///
    /// # Errors
    ///
    /// As [`Self::read`].
    pub fn names(&mut self) -> Result<Option<Vec<String>>, BrokenRow> {
        let row = self.read()?;
        Ok(row.map(|row| row.record.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect()))
    }

    /// Returns the next row; `None` at the end.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes end inside a quoted cell, or if a row has too many cells. Only after the latter, more
    /// rows can be read.
    pub fn read(&mut self) -> Result<Option<DelimitedRow<'_>>, BrokenRow> {
        self.check_cells()?;
        match self.reader.read_byte_record(&mut self.record) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            // None are known: the bytes are in memory, and rows may have any number of cells.
            Err(error) => {
                let reject = Reject::new(RejectCode::Corrupt, format!("the table cannot be read: {error}"));
                return Err(BrokenRow { line: 0, offset: self.end(), reject });
            }
        }
        let bytes = self.bytes.as_ref();
        let (line, offset) = self
            .record
            .position()
            .map_or((0, 0), |at| first_line_of_row(bytes, at.line(), at.byte() as usize + self.skipped));
        if self.dialect == Dialect::Csv && self.end() == bytes.len() {
            let row = &bytes[offset..];
            let mut scanner = RowScanner::new(self.dialect.delimiter());
            scanner.scan(row, |_| ());
            if scanner.is_in_quotes() {
                let reject = unclosed_quote(offset as u64, row.len() as u64);
                return Err(BrokenRow { line, offset, reject });
            }
        }
        Ok(Some(DelimitedRow { line, offset, record: &self.record }))
    }

    /// Skips the next row if it has too many cells.
    fn check_cells(&mut self) -> Result<(), BrokenRow> {
        let bytes = self.bytes.as_ref();
        let rest = &bytes[self.end()..];
        if rest.len() < MAX_CELLS {
            return Ok(());
        }
        let (line, offset) = first_line_of_row(bytes, self.reader.position().line(), self.end());
        let (delimiter, is_quoting) = (self.dialect.delimiter(), self.dialect == Dialect::Csv);
        let (cells, length) = RowScanner::first_row(delimiter, is_quoting, &bytes[offset..]);
        if cells <= MAX_CELLS {
            return Ok(());
        }
        *self = Self::new(self.dialect, self.bytes.clone(), offset + length);
        let message = format!("the row has {cells} values, more than the limit of {MAX_CELLS}");
        Err(BrokenRow { line, offset, reject: Reject::new(RejectCode::TooLarge, message) })
    }

    /// Returns the offset after the rows that were read.
    pub fn end(&self) -> usize {
        let end = self.skipped + self.reader.position().byte() as usize;
        // The reader stops between the two bytes of a CRLF line end.
        let (before, after) = self.bytes.as_ref().split_at(end);
        end + usize::from(before.ends_with(b"\r") && after.starts_with(b"\n"))
    }
}

/// Returns the line and the offset of a row that the `csv` crate reports at `line` and `offset`. The crate counts empty
/// lines before a row as part of the row.
fn first_line_of_row(bytes: &[u8], mut line: u64, mut offset: usize) -> (u64, usize) {
    while let Some(&byte) = bytes.get(offset).filter(|&&byte| byte == b'\n' || byte == b'\r') {
        line += u64::from(byte == b'\n');
        offset += 1;
    }
    (line, offset)
}

/// A row of a table.
pub struct DelimitedRow<'a> {
    /// Line in the bytes on which the row starts, from 1.
    pub line: u64,
    /// Offset of the row in the bytes.
    pub offset: usize,
    record: &'a ByteRecord,
}

impl<'a> DelimitedRow<'a> {
    /// Returns the bytes of a cell. A cell that the row lacks is empty.
    pub fn bytes(&self, column: usize) -> &'a [u8] {
        self.record.get(column).unwrap_or_default()
    }

    /// Returns the text of a cell in the column called `name`. With `lossy`, invalid UTF-8 is replaced.
    ///
    /// # Errors
    ///
    /// Returns a reject if the cell is not UTF-8.
    pub fn text(&self, column: usize, name: &str, lossy: bool) -> Result<Cow<'a, str>, Reject> {
        let bytes = self.bytes(column);
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Cow::Borrowed(text)),
            Err(_) if lossy => Ok(String::from_utf8_lossy(bytes)),
            Err(_) => Err(Reject::new(RejectCode::InvalidUtf8, format!("the field {name:?} is not UTF-8"))),
        }
    }

    /// Checks that the row has one value for each of `columns` columns.
    ///
    /// # Errors
    ///
    /// Returns a reject if it has more or fewer.
    pub fn check_values(&self, columns: usize) -> Result<(), Reject> {
        if self.record.len() == columns {
            return Ok(());
        }
        // Golden files have this text, also for one value.
        let message = format!("the row has {} values, the first line {columns}", self.record.len());
        Err(Reject::new(RejectCode::InvalidValue, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_report_their_line_and_offset() {
        for (text, places) in [
            ("p,q\na,1\n\n\"b\nc\",2\nd,3", [(2, 4), (4, 9), (6, 17)]),
            ("p,q\r\na,1\r\n\r\n\"b\nc\",2\r\nd,3\r\n", [(2, 5), (4, 12), (6, 21)]),
            ("\u{feff}p,q\na,1\nb,2\nd,3\n", [(2, 7), (3, 11), (4, 15)]),
        ] {
            let mut reader = DelimitedReader::of_table(Dialect::Csv, text.as_bytes());
            assert_eq!(reader.names().unwrap().unwrap(), ["p", "q"], "{text:?}");
            let mut found = Vec::new();
            while let Some(row) = reader.read().unwrap() {
                found.push((row.line, row.offset));
            }
            assert_eq!(found, places, "{text:?}");
        }
    }

    #[test]
    fn a_row_of_another_length_is_a_defect() {
        for (row, message) in [
            ("a", "the row has 1 values, the first line 2"),
            ("a,b,c", "the row has 3 values, the first line 2"),
        ] {
            let mut reader = DelimitedReader::of_rows(Dialect::Csv, row.as_bytes());
            let reject = reader.read().unwrap().unwrap().check_values(2).unwrap_err();
            assert_eq!((reject.code, reject.message.as_str()), (RejectCode::InvalidValue, message));
        }
    }

    #[test]
    fn the_end_of_the_names_is_the_start_of_the_rows() {
        for text in ["a,b\nc,d", "a,b\r\nc,d", "\u{feff}a,b\r\nc,d", "\"a\",\"b\"\nc,d"] {
            let mut reader = DelimitedReader::of_table(Dialect::Csv, text.as_bytes());
            reader.names().unwrap();
            assert_eq!(&text[reader.end()..], "c,d", "{text:?}");
        }
    }

    #[test]
    fn a_quote_that_is_never_closed_is_a_defect() {
        for (text, line, offset, lost) in [
            ("\u{feff}p,q\n\na,\"1\nb,2\n", 3, 8, "9 bytes"),
            ("p\n\"", 2, 2, "byte"),
            ("p\n\"\"\"", 2, 2, "3 bytes"),
        ] {
            let mut reader = DelimitedReader::of_table(Dialect::Csv, text.as_bytes());
            reader.names().unwrap();
            let broken = reader.read().err().unwrap();
            assert_eq!((broken.line, broken.offset), (line, offset), "{text:?}");
            assert_eq!(broken.reject.code, RejectCode::Truncated);
            let shown = format!("at byte {offset} is never closed; the last {lost} of the file");
            assert!(broken.reject.message.contains(&shown), "{}", broken.reject.message);
            assert!(reader.read().unwrap().is_none());
        }
        for text in ["\u{feff}\"p\nq\"\na", "p\n\"\"", "p\n\"a\"\n", "p\na\"b", "p\n\"a\"b\""] {
            let mut reader = DelimitedReader::of_table(Dialect::Csv, text.as_bytes());
            reader.names().unwrap();
            assert!(reader.read().unwrap().is_some(), "{text:?}");
        }
        assert!(DelimitedReader::of_rows(Dialect::Tsv, b"a\t\"b").read().unwrap().is_some());
    }

    #[test]
    fn a_row_with_too_many_cells_is_skipped() {
        for (dialect, byte) in [(Dialect::Csv, ","), (Dialect::Tsv, "\t")] {
            let wide = byte.repeat(MAX_CELLS);
            let text = format!("a{byte}1\n\n{wide}\r\nb{byte}2\n");
            let mut reader = DelimitedReader::of_rows(dialect, text.as_bytes());
            assert_eq!(reader.read().unwrap().unwrap().bytes(0), b"a");
            let broken = reader.read().err().unwrap();
            assert_eq!((broken.reject.code, broken.offset), (RejectCode::TooLarge, 5));
            let row = reader.read().unwrap().unwrap();
            assert_eq!((row.bytes(0), row.offset), (&b"b"[..], text.len() - 4));
            assert!(reader.read().unwrap().is_none());
        }
        let quoted = format!("\"{}\",1\n", ",".repeat(2 * MAX_CELLS));
        assert!(DelimitedReader::of_rows(Dialect::Csv, quoted.as_bytes()).read().unwrap().is_some());
    }

    #[test]
    fn only_csv_cells_are_unquoted() {
        let cells = |dialect, row: &str| {
            let mut reader = DelimitedReader::of_rows(dialect, row.as_bytes());
            let row = reader.read().unwrap().unwrap();
            assert!(row.check_values(2).is_ok());
            [row.bytes(0).to_vec(), row.bytes(1).to_vec()].map(|cell| String::from_utf8(cell).unwrap())
        };
        assert_eq!(cells(Dialect::Csv, "\"one,\n\"\"two\"\"\",x"), ["one,\n\"two\"", "x"]);
        assert_eq!(cells(Dialect::Tsv, "\"one\"\tx\ny"), ["\"one\"", "x"]);
    }

    #[test]
    fn every_defect_has_its_code() {
        let mut reader = DelimitedReader::of_rows(Dialect::Csv, b"a,\xff,c");
        let row = reader.read().unwrap().unwrap();
        assert_eq!(row.check_values(2).unwrap_err().code, RejectCode::InvalidValue);
        let reject = row.text(1, "body", false).unwrap_err();
        assert_eq!((reject.code, reject.message.contains("\"body\"")), (RejectCode::InvalidUtf8, true));
        assert_eq!(row.text(1, "body", true).unwrap(), "\u{fffd}");
        assert_eq!(row.text(7, "none", false).unwrap(), "");
    }
}
