//! Row ends of tables with quoted cells, found where the `csv` crate finds them, in bytes that arrive piece by piece.

use memchr::{memchr, memchr2};

/// State of a table after a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CellState {
    /// At the start of a cell.
    Start,
    Plain,
    Quoted,
    /// After a quote inside a quoted cell: the end of the cell, or the first of two quotes.
    Quote,
}

/// Scanner of the bytes of a table, as defined by RFC 4180 and the `csv` crate.
#[derive(Debug)]
pub struct RowScanner {
    delimiter: u8,
    cell: CellState,
}

impl RowScanner {
    /// Creates a scanner at the start of a row.
    pub fn new(delimiter: u8) -> Self {
        Self { delimiter, cell: CellState::Start }
    }

    /// Scans the next bytes. Calls `row_end` with each offset in `bytes` after which a row may start: after every line
    /// end outside of quotes.
    pub fn scan(&mut self, bytes: &[u8], mut row_end: impl FnMut(usize)) {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            self.cell = match (self.cell, byte) {
                (CellState::Quoted, b'"') => CellState::Quote,
                (CellState::Quoted, _) => {
                    let Some(quote) = memchr(b'"', &bytes[at..]) else { return };
                    at += quote;
                    continue;
                }
                (CellState::Start | CellState::Quote, b'"') => CellState::Quoted,
                (_, b'\n' | b'\r') => {
                    row_end(at + 1);
                    CellState::Start
                }
                (_, byte) if byte == self.delimiter => CellState::Start,
                _ => CellState::Plain,
            };
            at += 1;
            if self.cell == CellState::Plain {
                // Bytes that end neither the cell nor the row.
                let skip = memchr2(self.delimiter, b'\n', &bytes[at..]).unwrap_or(bytes.len() - at);
                at += memchr(b'\r', &bytes[at..at + skip]).unwrap_or(skip);
            }
        }
    }

    /// Returns the number of cells in the row at the start of `bytes`, and the end of the row. Without `is_quoting`, quotes
    /// have no meaning.
    pub fn first_row(delimiter: u8, is_quoting: bool, bytes: &[u8]) -> (usize, usize) {
        let (mut cells, mut cell) = (1, CellState::Start);
        for (at, &byte) in bytes.iter().enumerate() {
            cell = match (cell, byte) {
                (CellState::Quoted, b'"') => CellState::Quote,
                (CellState::Quoted, _) => CellState::Quoted,
                (CellState::Start | CellState::Quote, b'"') if is_quoting => CellState::Quoted,
                (_, b'\n' | b'\r') => return (cells, at + 1),
                (_, byte) if byte == delimiter => {
                    cells += 1;
                    CellState::Start
                }
                _ => CellState::Plain,
            };
        }
        (cells, bytes.len())
    }

    /// Returns whether the bytes end inside a quoted cell: its quote is not closed.
    pub fn is_in_quotes(&self) -> bool {
        self.cell == CellState::Quoted
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn quotes_are_open_where_the_csv_crate_swallows_more_rows(
            text in prop::collection::vec(prop::sample::select(b"ab,\n\r\"\"".to_vec()), 0..60),
            step in 1usize..9,
        ) {
            let mut scanner = RowScanner::new(b',');
            text.chunks(step).for_each(|part| scanner.scan(part, |_| ()));
            let (cells, end) = RowScanner::first_row(b',', true, &text);
            let mut rows = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(&text[..end]);
            let first = rows.byte_records().next().map_or(1, |row| row.unwrap().len());
            prop_assert_eq!(cells, first, "{:?}", String::from_utf8_lossy(&text));
            let more = [&text[..], b"\nx,y"].concat();
            let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(&more[..]);
            let last = reader.byte_records().last().unwrap().unwrap();
            prop_assert_eq!(scanner.is_in_quotes(), last != vec!["x", "y"], "{:?}", String::from_utf8_lossy(&text));
        }
    }
}
