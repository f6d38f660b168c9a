//! Document boundaries in rows that were packed when the dataset was made.

use dsconvert_dataset::error::{Error, Result};
use dsconvert_dataset::sample::Value;
use dsconvert_dataset::schema::CU_SEQLENS;

use super::pieces::{Pieces, StoredPiece};
use crate::batch::{BatchOptions, BatchSize};
use crate::{Record, RecordSource};

impl BatchOptions {
    /// Returns the options for the records of `source`: rows that were packed when the dataset was made are padded
    /// to the length they were packed for, so that all batches have one shape. Has no effect if `pad_to_multiple_of`
    /// was set.
    #[must_use]
    pub fn for_records_of(self, source: &dyn RecordSource) -> Self {
        match (source.properties().packed_length, self.size) {
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
