//! Packing of documents into rows of equal length, so that no token of a batch is padding.
//!
//! A [`Window`] packs a limited number of documents and needs only their lengths. The loader uses it to pack records
//! while reading, the converter to store packed rows; both produce the same rows. `docs/reference/batching.md`
//! specifies the result.
//!
//! A row has `seq_len` inputs and `seq_len` labels. The label of a token is the next token **in its document**; the
//! last token of a document has no label ([`IGNORE_LABEL`]). If a document continues in another row, its next token is
//! the last label of this row. Every token except the first of each document is therefore a label exactly once.

mod best_fit;
mod first_fit;
mod window;

use std::ops::Range;

use serde::{Deserialize, Serialize};

pub use best_fit::best_fit_rows;
pub use window::{Carry, Window};

/// Label of a position without a next token.
pub const IGNORE_LABEL: i64 = -100;

/// Maximum row length, because attention kernels use signed 32-bit offsets.
pub const MAX_SEQ_LEN: u64 = i32::MAX as u64;

/// Strategy for packing documents into rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Packing {
    /// Concatenates documents and cuts them where a row is full, even in the middle of a document. All rows except the
    /// last of an epoch are full.
    Concat,
    /// Cuts documents longer than a row into full rows. Combines their remainders and the shorter documents without
    /// cutting them. Rows are almost full.
    BestFit,
}

/// A document to pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Document {
    /// Identifier chosen by the caller: the ordinal of its record.
    pub id: u64,
    /// Number of tokens.
    pub length: u64,
}

/// Tokens of one document within a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// [`Document::id`].
    pub document: u64,
    /// Index of the first token in the document.
    pub start: u64,
    /// Number of tokens, at least 1.
    pub len: u64,
    /// Whether the piece ends with the last token of the document, which has no label.
    pub ends: bool,
}

impl Piece {
    /// Returns the range of document tokens that are inputs.
    pub fn inputs(&self) -> Range<u64> {
        self.start..self.start + self.len
    }

    /// Returns the number of positions with a label.
    pub fn labels(&self) -> u64 {
        self.len - u64::from(self.ends)
    }
}

/// Pieces of one row, from its start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Row {
    /// Pieces in order.
    pub pieces: Vec<Piece>,
}

impl Row {
    /// Returns the number of tokens. The rest of the row, up to `seq_len`, is padding.
    pub fn tokens(&self) -> u64 {
        self.pieces.iter().map(|p| p.len).sum()
    }

    /// Returns the number of positions with a label.
    pub fn labels(&self) -> u64 {
        self.pieces.iter().map(Piece::labels).sum()
    }

    /// Returns the number of tokens that are not the first of their piece. A model that shifts labels itself predicts
    /// these.
    pub fn tokens_after_first(&self) -> u64 {
        self.pieces.iter().map(|p| p.len.saturating_sub(1)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_document_has_a_label_for_its_last_token() {
        let whole = Piece { document: 7, start: 0, len: 3, ends: true };
        let partial = Piece { document: 8, start: 1, len: 2, ends: false };
        let row = Row { pieces: vec![whole, partial] };
        assert_eq!((row.tokens(), row.labels(), row.tokens_after_first()), (5, 4, 3));
    }
}
