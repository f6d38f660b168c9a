//! The documents of the rows of a batch, and parts of them.

use dsconvert_dataset::error::{Error, Result};
use dsconvert_dataset::packing::Row;

/// A document, or a part of one, in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StoredPiece {
    /// Index of its record in the batch.
    pub(super) record: usize,
    /// First token in the record.
    pub(super) start: usize,
    /// One past the last token that is used.
    pub(super) end: usize,
    /// One past the last token that is stored.
    pub(super) stored_end: usize,
}

impl StoredPiece {
    /// Returns the number of tokens that are used.
    pub(super) fn len(&self) -> usize {
        self.end - self.start
    }
}

/// The pieces of the rows of a batch that hold a record, one after another.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    all: Vec<StoredPiece>,
    /// For each row, one past its last piece.
    ends: Vec<usize>,
}

impl Pieces {
    /// Returns one piece per row: the first of `lengths` tokens of its record, which has `stored`.
    pub(super) fn whole_records(lengths: &[u64], stored: impl Fn(usize) -> Option<usize>) -> Result<Self> {
        let piece = |(record, &length): (usize, &u64)| {
            let end = to_usize(length)?;
            Ok(StoredPiece { record, start: 0, end, stored_end: stored(record).unwrap_or(end) })
        };
        let all = lengths.iter().enumerate().map(piece).collect::<Result<Vec<_>>>()?;
        let ends = (1..=all.len()).collect();
        Ok(Self { all, ends })
    }

    /// Returns the pieces of rows that are packed at read time. Each has a record of its own in the batch.
    pub(super) fn of_rows(rows: &[Row]) -> Result<Self> {
        let mut pieces = Self::default();
        for row in rows {
            for piece in &row.pieces {
                let (start, end) = (to_usize(piece.start)?, to_usize(piece.inputs().end)?);
                // A document that is cut there has one more token.
                let stored_end = end + usize::from(!piece.ends);
                pieces.push(StoredPiece { record: pieces.all.len(), start, end, stored_end });
            }
            pieces.end_row();
        }
        Ok(pieces)
    }

    /// Adds a piece to the current row.
    pub(super) fn push(&mut self, piece: StoredPiece) {
        self.all.push(piece);
    }

    pub(super) fn end_row(&mut self) {
        self.ends.push(self.all.len());
    }

    /// Returns the pieces of all rows, one after another.
    pub(super) fn all(&self) -> &[StoredPiece] {
        &self.all
    }

    /// Returns the pieces of each row.
    pub(super) fn rows(&self) -> impl ExactSizeIterator<Item = &[StoredPiece]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let row = self.all.get(start..end).unwrap_or_default();
            start = end;
            row
        })
    }
}

fn to_usize(number: u64) -> Result<usize> {
    usize::try_from(number).map_err(|_| too_large())
}

pub(super) fn too_large() -> Error {
    Error::usage("the batch exceeds the address space").help("use a smaller batch size or budget")
}
