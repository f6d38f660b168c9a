//! Token ids as arrays: padded, flat or packed.

use std::ops::Range;
use std::sync::Arc;

use dsconvert_dataset::error::{Error, Result};
use dsconvert_dataset::packing::{IGNORE_LABEL, MAX_SEQ_LEN, Row};
use dsconvert_dataset::sample::Ids;
use dsconvert_dataset::schema::IdWidth;

use super::array::Array;
use super::batch::Column;
use super::element::Element;
use super::fields::{BatchField, TokenLayout};
use super::options::{LabelsFor, PadSide, TextBatchOptions};
use super::packed::{StoredPiece, StoredPieces};
use super::pool::Pool;
use crate::batch::MicroBatch;

/// A type of token ids in a batch.
pub(super) trait TokenId: Element {
    fn from_u16(id: u16) -> Self;
    /// Converts an id. Ids that do not fit are refused beforehand ([`check_ids`]).
    fn from_u32(id: u32) -> Self;
    fn from_i64(number: i64) -> Self;
    /// The largest id.
    const MAX: u32;
}

impl TokenId for i64 {
    fn from_u16(id: u16) -> Self {
        id.into()
    }

    fn from_u32(id: u32) -> Self {
        id.into()
    }

    fn from_i64(number: i64) -> Self {
        number
    }

    const MAX: u32 = u32::MAX;
}

impl TokenId for i32 {
    fn from_u16(id: u16) -> Self {
        id.into()
    }

    fn from_u32(id: u32) -> Self {
        id.cast_signed()
    }

    fn from_i64(number: i64) -> Self {
        number as i32 // small numbers only: pad ids that were checked, the label to ignore, positions in a row
    }

    const MAX: u32 = i32::MAX.cast_unsigned();
}

/// Writes the ids in `range` to `out`, which has the same length.
fn copy_ids<T: TokenId>(ids: &Ids<&[u8]>, range: Range<usize>, out: &mut [T]) {
    let width = ids.width().bytes();
    let bytes = ids.as_bytes().get(range.start * width..range.end * width).unwrap_or_default();
    match ids.width() {
        IdWidth::U16 => {
            for (slot, id) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
                *slot = T::from_u16(u16::from_le_bytes(*id));
            }
        }
        IdWidth::U32 => {
            for (slot, id) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
                *slot = T::from_u32(u32::from_le_bytes(*id));
            }
        }
    }
}

/// Checks that a record has at least `length` ids and that they fit into `T`.
fn check_ids<T: TokenId>(ids: &Ids<&[u8]>, record: u64, length: u64) -> Result<()> {
    if (ids.len() as u64) < length {
        let what = format!("the record has {} tokens, but at least {length} in the record index", ids.len());
        return Err(Error::corrupt(what).at_row(record));
    }
    if T::MAX < u32::MAX && ids.width() == IdWidth::U32 {
        // The largest id is faster to find than the first that is too large.
        let largest = ids.as_bytes().as_chunks::<4>().0.iter().map(|id| u32::from_le_bytes(*id)).max();
        if largest.is_some_and(|id| id > T::MAX) {
            return Err(Error::usage(format!("the record has ids above {}", T::MAX))
                .at_row(record)
                .help("use ids of type int64"));
        }
    }
    Ok(())
}

/// The columns of a batch of one record per row that come from token ids and their lengths. `ids` is empty if no
/// column needs them.
pub(super) struct TokenRows<'a> {
    pub(super) batch: &'a MicroBatch,
    pub(super) ids: &'a [Ids<&'a [u8]>],
    /// The documents of rows that were packed when the dataset was made. If `None`, each row is one document.
    pub(super) pieces: Option<&'a StoredPieces>,
    pub(super) options: &'a TextBatchOptions,
    pub(super) pool: &'a Arc<Pool>,
}

impl TokenRows<'_> {
    pub(super) fn column<T: TokenId>(&self, shape: TokenLayout, field: BatchField) -> Result<Column> {
        match (field, shape) {
            (BatchField::Lengths, _) => Ok(self.lengths()),
            (BatchField::CuSeqlens, _) => self.cu_seqlens(shape),
            (BatchField::AttentionMask, _) => self.padded::<T>(fill(T::default()), |_, out| {
                out.fill(T::from_i64(1));
                Ok(())
            }),
            (BatchField::InputIds, TokenLayout::Padded) => {
                self.padded(fill(T::from_u32(self.options.pad_id)), |row, out| self.ids(row, out))
            }
            (BatchField::Labels, TokenLayout::Padded) => {
                // Nothing, or padding, precedes the first token of a row.
                let masks_first = self.pieces.is_some() || self.options.pad_side == PadSide::Left;
                self.padded(fill(T::from_i64(IGNORE_LABEL)), |row, out| self.labels(row, masks_first, out))
            }
            // The padding is one more piece, as in rows that are packed at read time.
            (BatchField::PositionIds, TokenLayout::Padded) => {
                self.padded::<T>(number, |row, out| self.positions(row, out))
            }
            (BatchField::PositionIds, _) => self.flat(|row, out: &mut [T]| self.positions(row, out)),
            // A model that shifts labels itself would predict the first token from the previous record.
            (BatchField::Labels, _) => self.flat(|row, out: &mut [T]| self.labels(row, true, out)),
            _ => self.flat(|row, out: &mut [T]| self.ids(row, out)),
        }
    }

    /// Checks that the records are at least as long as the index states, before memory is allocated.
    pub(super) fn check(&self) -> Result<()> {
        for ((ids, &record), &length) in self.ids.iter().zip(&self.batch.records).zip(&self.batch.lengths) {
            check_ids::<i64>(ids, record, length)?;
        }
        Ok(())
    }

    /// Returns the ids of `row`, at least `length`. `None` for a row without a record.
    fn ids_of<T: TokenId>(&self, row: usize, length: usize) -> Result<Option<&Ids<&[u8]>>> {
        let (Some(ids), Some(&record)) = (self.ids.get(row), self.batch.records.get(row)) else {
            return Ok(None);
        };
        check_ids::<T>(ids, record, length as u64)?;
        Ok(Some(ids))
    }

    fn ids<T: TokenId>(&self, row: usize, out: &mut [T]) -> Result<()> {
        let Some(ids) = self.ids_of::<T>(row, out.len())? else { return Ok(()) };
        copy_ids(ids, 0..out.len(), out);
        Ok(())
    }

    /// Calls `each` with the pieces of `row` and their part of `out`. `stored` is the number of stored tokens.
    fn each_piece<T>(&self, row: usize, stored: usize, out: &mut [T], each: impl Fn(StoredPiece, &mut [T])) {
        let whole = [StoredPiece { start: 0, end: out.len(), stored_end: stored }];
        let pieces = self.pieces.map_or(&whole[..], |pieces| pieces.row(row));
        for &piece in pieces {
            if let Some(part) = out.get_mut(piece.start..piece.end) {
                each(piece, part);
            }
        }
    }

    /// Writes the labels of `row`. `masks_first`: whether the first token of each piece has no label, when labels are
    /// the tokens themselves.
    fn labels<T: TokenId>(&self, row: usize, masks_first: bool, out: &mut [T]) -> Result<()> {
        let Some(ids) = self.ids_of::<T>(row, out.len())? else { return Ok(()) };
        let labels_for = self.options.labels_in(self.pieces.is_some());
        self.each_piece(row, ids.len(), out, |piece, out| match labels_for {
            LabelsFor::HuggingFace => {
                copy_ids(ids, piece.start..piece.end, out);
                if let (Some(first), true) = (out.first_mut(), masks_first) {
                    *first = T::from_i64(IGNORE_LABEL);
                }
            }
            LabelsFor::NextToken => {
                // A piece that was cut also has a next token.
                let known = piece.stored_end.saturating_sub(1).min(piece.end).saturating_sub(piece.start);
                copy_ids(ids, piece.start + 1..piece.start + 1 + known, out);
                out.iter_mut().skip(known).for_each(|slot| *slot = T::from_i64(IGNORE_LABEL));
            }
        });
        Ok(())
    }

    /// Writes 0, 1, 2, … in each piece.
    fn positions<T: TokenId>(&self, row: usize, out: &mut [T]) -> Result<()> {
        self.each_piece(row, out.len(), out, |_, out| number(out));
        Ok(())
    }

    /// Returns the length of the longest record or, if packed, piece. Padding at the end of a packed row is a piece.
    pub(super) fn longest(&self, shape: TokenLayout) -> u64 {
        let lengths = self.batch.lengths.iter().copied();
        let Some(pieces) = self.pieces else { return lengths.max().unwrap_or(0) };
        if shape == TokenLayout::Flat {
            return pieces.longest();
        }
        let fillers = std::iter::repeat_n(0, self.batch.filler_rows as usize);
        let padding = lengths.chain(fillers).map(|length| self.batch.width.saturating_sub(length));
        padding.max().unwrap_or(0).max(pieces.longest())
    }

    /// Returns an array of rows × width. `write` fills the tokens, `pad` the padding.
    fn padded<T: TokenId>(
        &self,
        pad: impl Fn(&mut [T]),
        write: impl Fn(usize, &mut [T]) -> Result<()>,
    ) -> Result<Column> {
        let (rows, width) = (to_usize(self.batch.rows())?, to_usize(self.batch.width)?);
        let mut out = self.pool.take_many::<T>(checked_area(rows, width)?)?;
        for (row, slots) in out.chunks_exact_mut(width.max(1)).take(rows).enumerate() {
            let length = to_usize(self.batch.lengths.get(row).copied().unwrap_or(0))?.min(width);
            let (tokens, pads) = match self.options.pad_side {
                PadSide::Right => slots.split_at_mut(length),
                PadSide::Left => {
                    let (pads, tokens) = slots.split_at_mut(width - length);
                    (tokens, pads)
                }
            };
            write(row, tokens)?;
            pad(pads);
        }
        Ok(Column::Array(Array::new(vec![rows, width], out, Some(Arc::clone(self.pool)))))
    }

    /// Returns an array of all tokens.
    fn flat<T: TokenId>(&self, write: impl Fn(usize, &mut [T]) -> Result<()>) -> Result<Column> {
        let tokens = to_usize(self.batch.tokens())?;
        let mut out = self.pool.take_many::<T>(tokens)?;
        let mut rest = out.as_mut_slice();
        for (row, &length) in self.batch.lengths.iter().enumerate() {
            let (slots, after) = std::mem::take(&mut rest).split_at_mut(to_usize(length)?);
            write(row, slots)?;
            rest = after;
        }
        Ok(Column::Array(Array::new(vec![tokens], out, Some(Arc::clone(self.pool)))))
    }

    fn lengths(&self) -> Column {
        let rows = self.batch.rows() as usize;
        let mut out = self.pool.take::<i64>(rows);
        let lengths = self.batch.lengths.iter().map(|&length| length as i64).chain(std::iter::repeat(0));
        out.iter_mut().zip(lengths).for_each(|(slot, length)| *slot = length);
        Column::Array(Array::new(vec![rows], out, Some(Arc::clone(self.pool))))
    }

    fn cu_seqlens(&self, shape: TokenLayout) -> Result<Column> {
        let width = if shape == TokenLayout::Padded { self.batch.width } else { 0 };
        let all = if shape == TokenLayout::Padded { self.batch.padded_tokens() } else { self.batch.tokens() };
        if all > MAX_SEQ_LEN {
            let what = format!("{all} tokens exceed the range of cu_seqlens");
            return Err(Error::usage(what).help("use a smaller batch size or budget"));
        }
        let mut ends =
            Vec::with_capacity(1 + self.pieces.map_or(0, StoredPieces::count) + self.batch.lengths.len());
        ends.push(0i32);
        let mut start = 0; // start of a row; all sums are at most what was checked
        for (row, &length) in self.batch.lengths.iter().enumerate() {
            match self.pieces {
                Some(pieces) => ends.extend(pieces.row(row).iter().map(|piece| start + piece.end as i32)),
                None => ends.push(start + length as i32),
            }
            start += width.max(length) as i32;
            if length < width {
                ends.push(start);
            }
        }
        for _ in 0..self.batch.filler_rows {
            start += width as i32;
            ends.push(start);
        }
        Ok(Column::Array(Array::new(vec![ends.len()], ends, Some(Arc::clone(self.pool)))))
    }
}

/// The columns of a batch of packed rows.
pub(super) struct PackedRows<'a> {
    pub(super) rows: &'a [Row],
    pub(super) filler_rows: u64,
    pub(super) seq_len: u64,
    /// One for each piece of each row.
    pub(super) ids: &'a [Ids<&'a [u8]>],
    pub(super) options: &'a TextBatchOptions,
    pub(super) pool: &'a Arc<Pool>,
}

impl PackedRows<'_> {
    pub(super) fn column<T: TokenId>(&self, field: BatchField) -> Result<Column> {
        match field {
            BatchField::CuSeqlens => self.cu_seqlens(),
            BatchField::PositionIds => self.filled::<T>(
                |_, _, _, out| {
                    number(out);
                    Ok(())
                },
                number,
            ),
            BatchField::Labels if self.options.labels_in(true) == LabelsFor::HuggingFace => self.filled::<T>(
                |ids, start, _, out| {
                    copy_ids(ids, start..start + out.len(), out);
                    // A model that shifts labels itself would predict it from the previous piece.
                    out.iter_mut().take(1).for_each(|slot| *slot = T::from_i64(IGNORE_LABEL));
                    Ok(())
                },
                |pads| pads.fill(T::from_i64(IGNORE_LABEL)),
            ),
            BatchField::Labels => self.filled::<T>(
                |ids, start, ends, out| {
                    let labels = out.len() - usize::from(ends);
                    copy_ids(ids, start + 1..start + 1 + labels, out);
                    out.iter_mut().skip(labels).for_each(|slot| *slot = T::from_i64(IGNORE_LABEL));
                    Ok(())
                },
                |pads| pads.fill(T::from_i64(IGNORE_LABEL)),
            ),
            _ => self.filled::<T>(
                |ids, start, _, out| {
                    copy_ids(ids, start..start + out.len(), out);
                    Ok(())
                },
                |pads| pads.fill(T::from_u32(self.options.pad_id)),
            ),
        }
    }

    /// Returns an array of rows × `seq_len`. `write` fills the positions of a piece (arguments: ids, first token,
    /// whether the document ends, positions), `pad` the end of a row.
    fn filled<T: TokenId>(
        &self,
        write: impl Fn(&Ids<&[u8]>, usize, bool, &mut [T]) -> Result<()>,
        pad: impl Fn(&mut [T]),
    ) -> Result<Column> {
        let (rows, width) = (to_usize(self.rows.len() as u64 + self.filler_rows)?, to_usize(self.seq_len)?);
        let mut out = self.pool.take_many::<T>(checked_area(rows, width)?)?;
        let mut all = self.ids.iter();
        let none = Row::default();
        let filled = self.rows.iter().chain(std::iter::repeat(&none));
        for (slots, row) in out.chunks_exact_mut(width.max(1)).take(rows).zip(filled) {
            let mut rest = slots;
            for piece in &row.pieces {
                let ids = all.next().ok_or_else(|| Error::internal("a piece has no record"))?;
                // One more than the inputs, for the label of the last.
                check_ids::<T>(ids, piece.document, piece.inputs().end + u64::from(!piece.ends))?;
                let len = to_usize(piece.len)?.min(rest.len());
                let (piece_slots, after) = std::mem::take(&mut rest).split_at_mut(len);
                write(ids, to_usize(piece.start)?, piece.ends, piece_slots)?;
                rest = after;
            }
            pad(rest);
        }
        Ok(Column::Array(Array::new(vec![rows, width], out, Some(Arc::clone(self.pool)))))
    }

    fn cu_seqlens(&self) -> Result<Column> {
        let mut rows = self.rows.to_vec();
        rows.extend(std::iter::repeat_n(Row::default(), to_usize(self.filler_rows)?));
        let ends = dsconvert_dataset::packing::cu_seqlens(&rows, self.seq_len)?;
        Ok(Column::Array(Array::new(vec![ends.len()], ends, Some(Arc::clone(self.pool)))))
    }
}

/// Returns a function that fills with `value`.
fn fill<T: Copy>(value: T) -> impl Fn(&mut [T]) {
    move |out| out.fill(value)
}

/// Writes 0, 1, 2, ….
fn number<T: TokenId>(out: &mut [T]) {
    out.iter_mut().zip(0..).for_each(|(slot, n)| *slot = T::from_i64(n));
}

fn to_usize(number: u64) -> Result<usize> {
    usize::try_from(number).map_err(|_| too_large())
}

/// Returns rows × width, if memory can hold it.
fn checked_area(rows: usize, width: usize) -> Result<usize> {
    rows.checked_mul(width).filter(|area| *area <= isize::MAX as usize / 8).ok_or_else(too_large)
}

fn too_large() -> Error {
    Error::usage("the batch exceeds the address space").help("use a smaller batch size or budget")
}
