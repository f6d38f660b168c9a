//! Document boundaries in rows that were packed when the dataset was made.

use dsconvert_dataset::error::{Error, Result};
use dsconvert_dataset::sample::Value;

use super::text::Pieces;
use crate::batch::{BatchOptions, BatchSize};
use crate::{Record, RecordSource, Split};

/// Name of the stored field with the ends of documents.
pub const CU_SEQLENS: &str = "cu_seqlens";
/// Name of the stored field with the position of the first token of each piece in its document.
pub const PIECE_STARTS: &str = "piece_starts";

impl Split {
    /// Returns the number of tokens of a full row, if the records of the split are rows of several documents (the
    /// option `pack` of the conversion).
    pub fn packed_length(&self) -> Option<u64> {
        self.schema().holds_token_ids().then(|| self.manifest().options.get("pack")?.as_u64()).flatten()
    }
}

impl BatchOptions {
    /// Returns the options for the records of `source`: rows that were packed when the dataset was made are padded
    /// to the length they were packed for, so that all batches have one shape. Has no effect if `pad_to_multiple_of`
    /// was set.
    #[must_use]
    pub fn for_records_of(self, source: &dyn RecordSource) -> Self {
        match (source.packed_length(), self.size) {
            (Some(length), BatchSize::BatchSize(_)) if self.pad_to_multiple_of == 1 => {
                Self { pad_to_multiple_of: length, ..self }
            }
            (Some(length), BatchSize::MaxTokens(max)) if self.pad_to_multiple_of == 1 && max >= length => {
                Self { pad_to_multiple_of: length, ..self }
            }
            _ => self,
        }
    }
}

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

/// Returns the pieces of `records`, whose first `lengths` tokens are used. `field_index` is that of the field `cu_seqlens`.
pub(super) fn stored_pieces(records: &[Record], lengths: &[u64], field_index: usize) -> Result<Pieces> {
    let mut all = Pieces::default();
    for (row, (record, &length)) in records.iter().zip(lengths).enumerate() {
        let tokens = record.input_ids().map(|ids| ids.len());
        let pieces = pieces(row, record.values().get(field_index), tokens, length).ok_or_else(|| {
            Error::corrupt(format!("{CU_SEQLENS} does not divide the tokens of the row"))
                .at_row(record.ordinal())
                .help("the shard was altered; `dsconvert inspect --verify` names it")
        })?;
        pieces.into_iter().for_each(|piece| all.push(piece));
        all.end_row();
    }
    Ok(all)
}

/// Returns the pieces of the record with this index, or `None` if the stored ends do not ascend from 0 to the number of tokens.
/// This is checked because nothing else compares the two lists.
fn pieces(
    record: usize,
    stored: Option<&Value>,
    tokens: Option<usize>,
    used: u64,
) -> Option<Vec<StoredPiece>> {
    let Some(Value::Ids(ends)) = stored else { return None };
    let used = usize::try_from(used).ok()?;
    let mut ends = ends.iter().map(|end| end as usize);
    let mut start = ends.next().filter(|&first| first == 0)?;
    let mut pieces = Vec::new();
    for stored_end in ends {
        if stored_end <= start {
            return None;
        }
        if start < used {
            pieces.push(StoredPiece { record, start, end: stored_end.min(used), stored_end });
        }
        start = stored_end;
    }
    (tokens.is_none_or(|tokens| tokens == start) && used <= start).then_some(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dsconvert_dataset::sample::Ids;
    use dsconvert_dataset::schema::IdWidth;

    #[test]
    fn pieces_are_checked_and_cut() {
        let stored = |ends: &[u32]| Value::Ids(Ids::pack(IdWidth::U32, ends).unwrap());
        let piece = |start, end, stored_end| StoredPiece { record: 2, start, end, stored_end };
        assert_eq!(
            pieces(2, Some(&stored(&[0, 3, 7])), Some(7), 7),
            Some(vec![piece(0, 3, 3), piece(3, 7, 7)])
        );
        assert_eq!(
            pieces(2, Some(&stored(&[0, 3, 7])), Some(7), 5),
            Some(vec![piece(0, 3, 3), piece(3, 5, 7)])
        );
        assert_eq!(pieces(2, Some(&stored(&[0, 3, 7])), None, 3), Some(vec![piece(0, 3, 3)]));
        for wrong in [&[0, 3, 6][..], &[1, 7], &[0, 7, 3], &[0, 3, 3, 7], &[0], &[]] {
            assert_eq!(pieces(2, Some(&stored(wrong)), Some(7), 7), None, "{wrong:?}");
        }
        assert_eq!(pieces(2, Some(&Value::Null), Some(7), 7), None);
    }
}
