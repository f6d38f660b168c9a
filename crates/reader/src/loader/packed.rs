//! Document boundaries in rows that were packed when the dataset was made.

use dsconvert_dataset::error::{Error, Result};
use dsconvert_dataset::sample::Value;

use crate::batch::{BatchOptions, BatchSize};
use crate::{Record, RecordSource, Split};

/// Name of the stored field with the ends of documents.
pub const CU_SEQLENS: &str = "cu_seqlens";

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
    /// First token in the row.
    pub(super) start: usize,
    /// One past the last token that is used.
    pub(super) end: usize,
    /// One past the last token that is stored.
    pub(super) stored_end: usize,
}

/// The pieces of the rows of a batch.
#[derive(Debug, Default)]
pub(super) struct StoredPieces(Vec<Vec<StoredPiece>>);

impl StoredPieces {
    /// Returns the pieces of `records`, whose first `lengths` tokens are used. `field_index` is that of the field
    /// `cu_seqlens`.
    pub(super) fn of(records: &[Record], lengths: &[u64], field_index: usize) -> Result<Self> {
        let rows = records.iter().zip(lengths).map(|(record, &length)| {
            pieces(record.values().get(field_index), record.input_ids().map(|ids| ids.len()), length)
                .ok_or_else(|| {
                    Error::corrupt(format!("{CU_SEQLENS} does not divide the tokens of the row"))
                        .at_row(record.ordinal())
                        .help("the shard was altered; `dsconvert inspect --verify` names it")
                })
        });
        rows.collect::<Result<_>>().map(Self)
    }

    /// Returns the pieces of a row; none for a row without a record.
    pub(super) fn row(&self, row: usize) -> &[StoredPiece] {
        self.0.get(row).map_or(&[], Vec::as_slice)
    }

    /// Returns the length of the longest piece.
    pub(super) fn longest(&self) -> u64 {
        self.0.iter().flatten().map(|piece| (piece.end - piece.start) as u64).max().unwrap_or(0)
    }

    /// Returns the number of pieces.
    pub(super) fn count(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }
}

/// Returns the pieces of a row, or `None` if the stored ends do not ascend from 0 to the number of tokens. This is
/// checked because nothing else compares the two lists.
fn pieces(stored: Option<&Value>, tokens: Option<usize>, used: u64) -> Option<Vec<StoredPiece>> {
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
            pieces.push(StoredPiece { start, end: stored_end.min(used), stored_end });
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
        let piece = |start, end, stored_end| StoredPiece { start, end, stored_end };
        assert_eq!(pieces(Some(&stored(&[0, 3, 7])), Some(7), 7), Some(vec![piece(0, 3, 3), piece(3, 7, 7)]));
        assert_eq!(pieces(Some(&stored(&[0, 3, 7])), Some(7), 5), Some(vec![piece(0, 3, 3), piece(3, 5, 7)]));
        assert_eq!(pieces(Some(&stored(&[0, 3, 7])), None, 3), Some(vec![piece(0, 3, 3)]));
        for wrong in [&[0, 3, 6][..], &[1, 7], &[0, 7, 3], &[0, 3, 3, 7], &[0], &[]] {
            assert_eq!(pieces(Some(&stored(wrong)), Some(7), 7), None, "{wrong:?}");
        }
        assert_eq!(pieces(Some(&Value::Null), Some(7), 7), None);
    }
}
