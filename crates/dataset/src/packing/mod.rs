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
mod window;

use std::ops::Range;

use serde::{Deserialize, Serialize};

pub use best_fit::best_fit_rows;
pub use window::{Carry, Window};

use crate::error::{Error, Result};

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

    /// Writes the inputs and labels of a row with `inputs.len()` positions. `documents` contains all tokens of the
    /// document of each piece. Padding is `pad_id` with the label [`IGNORE_LABEL`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::error::ErrorKind) if a document has fewer tokens than its length claims; `Usage`
    /// if the row does not fit.
    pub fn fill<T: Copy + Into<i64>>(
        &self,
        documents: &[&[T]],
        pad_id: i64,
        inputs: &mut [i64],
        labels: &mut [i64],
    ) -> Result<()> {
        let seq_len = inputs.len();
        if documents.len() != self.pieces.len() || labels.len() != seq_len || self.tokens() > seq_len as u64 {
            let what = format!("a row of {} tokens does not fit {seq_len} positions", self.tokens());
            return Err(Error::usage(what));
        }
        let (mut inputs, mut labels) = (inputs.iter_mut(), labels.iter_mut());
        for (piece, document) in self.pieces.iter().zip(documents) {
            let tokens = usize::try_from(piece.start).ok().and_then(|start| document.get(start..));
            let tokens = tokens.filter(|t| t.len() as u64 >= piece.len + u64::from(!piece.ends));
            let Some(tokens) = tokens else {
                let (found, least) = (document.len(), piece.inputs().end);
                let what = format!("the document has {found} tokens, expected at least {least}");
                return Err(Error::corrupt(what).at_row(piece.document));
            };
            let len = piece.len as usize; // at most the length of `tokens`
            for (slot, &token) in inputs.by_ref().take(len).zip(tokens) {
                *slot = token.into();
            }
            let next = tokens.iter().skip(1).map(|&token| token.into());
            let next = next.take(piece.labels() as usize).chain(std::iter::repeat(IGNORE_LABEL));
            for (slot, label) in labels.by_ref().take(len).zip(next) {
                *slot = label;
            }
        }
        inputs.for_each(|slot| *slot = pad_id);
        labels.for_each(|slot| *slot = IGNORE_LABEL);
        Ok(())
    }
}

/// Returns the boundaries of pieces when `rows` of `seq_len` tokens are concatenated: 0, then the end of each piece.
/// The padding of a row counts as one more piece, so the last number is rows × `seq_len`.
///
/// # Errors
///
/// [`ErrorKind::Usage`](crate::error::ErrorKind) if the total exceeds [`MAX_SEQ_LEN`].
pub fn cu_seqlens(rows: &[Row], seq_len: u64) -> Result<Vec<i32>> {
    if (rows.len() as u64).checked_mul(seq_len).is_none_or(|all| all > MAX_SEQ_LEN) {
        let what = format!("{} rows of {seq_len} tokens exceed the limit of {MAX_SEQ_LEN}", rows.len());
        return Err(Error::usage(what));
    }
    let mut ends = vec![0];
    let mut end = 0;
    for row in rows {
        let padding = seq_len.saturating_sub(row.tokens());
        for len in row.pieces.iter().map(|p| p.len).chain((padding > 0).then_some(padding)) {
            end += len as i32; // at most rows × seq_len, for rows that fit
            ends.push(end);
        }
    }
    Ok(ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        let whole = Piece { document: 7, start: 0, len: 3, ends: true };
        let partial = Piece { document: 8, start: 1, len: 2, ends: false };
        Row { pieces: vec![whole, partial] }
    }

    #[test]
    fn labels_are_the_next_tokens_of_the_same_document() {
        let (mut inputs, mut labels) = ([0; 7], [0; 7]);
        let documents: [&[u16]; 2] = [&[10, 11, 12], &[20, 21, 22, 23]];
        row().fill(&documents, 99, &mut inputs, &mut labels).unwrap();
        assert_eq!(inputs, [10, 11, 12, 21, 22, 99, 99]);
        assert_eq!(labels, [11, 12, -100, 22, 23, -100, -100]);
        assert_eq!((row().tokens(), row().labels()), (5, 4));
    }

    #[test]
    fn padding_counts_as_a_piece() {
        assert_eq!(cu_seqlens(&[row(), row()], 7).unwrap(), [0, 3, 5, 7, 10, 12, 14]);
        assert_eq!(cu_seqlens(&[row()], 5).unwrap(), [0, 3, 5]);
        assert!(cu_seqlens(&[row(), row()], MAX_SEQ_LEN).is_err());
    }

    #[test]
    fn a_document_that_is_too_short_is_an_error() {
        let (mut inputs, mut labels) = ([0; 5], [0; 5]);
        let documents: [&[u32]; 2] = [&[10, 11, 12], &[20, 21, 22]];
        let error = row().fill(&documents, 0, &mut inputs, &mut labels).unwrap_err();
        assert_eq!(error.place().row, Some(8));
        let documents: [&[u32]; 2] = [&[10, 11, 12], &[20, 21, 22, 23]];
        assert!(row().fill(&documents, 0, &mut inputs[..4], &mut labels[..4]).is_err());
    }
}
