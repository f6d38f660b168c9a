//! Token ids as arrays: padded, flat or packed.

use std::ops::Range;
use std::sync::Arc;

use dsconvert_dataset::error::{Error, Result};
use dsconvert_dataset::packing::{IGNORE_LABEL, MAX_SEQ_LEN, Piece, Row};
use dsconvert_dataset::sample::Ids;
use dsconvert_dataset::schema::{ASSISTANT_MASKS, IdWidth};

use super::array::Array;
use super::batch::Column;
use super::element::Element;
use super::fields::{BatchField, TokenLayout};
use super::options::{LabelsFor, PackedLayout, PadSide, TextBatchOptions};
use super::packed::{StoredPiece, StoredPieces};
use super::pool::Pool;
use super::stored::per_row;
use crate::batch::MicroBatch;

/// A type of token ids in a batch.
pub(super) trait TokenId: Element + From<u16> {
    /// Converts an id. Ids that do not fit are refused beforehand ([`check_ids`]).
    fn from_u32(id: u32) -> Self;
    fn from_i64(number: i64) -> Self;
    /// The largest id.
    const MAX: u32;
}

impl TokenId for i64 {
    fn from_u32(id: u32) -> Self {
        id.into()
    }

    fn from_i64(number: i64) -> Self {
        number
    }

    const MAX: u32 = u32::MAX;
}

impl TokenId for i32 {
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
                *slot = T::from(u16::from_le_bytes(*id));
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

/// Returns an error unless `mask` has a value for each of the `tokens` of a record.
fn check_mask(mask: &[u8], record: u64, tokens: usize) -> Result<()> {
    if mask.len() == tokens {
        return Ok(());
    }
    let what = format!("the record has {tokens} tokens, but {} values in {ASSISTANT_MASKS:?}", mask.len());
    Err(Error::corrupt(what).at_row(record))
}

/// Which tokens of a piece are labels, and of which positions.
#[derive(Debug, Clone, Copy)]
struct LabelRule {
    labels_for: LabelsFor,
    /// Whether the first token of a piece has no label, when labels are the tokens themselves.
    masks_first: bool,
}

impl LabelRule {
    /// Returns the tokens that are labels, as far as the mask allows.
    fn tokens(self, piece: StoredPiece) -> Range<usize> {
        match self.labels_for {
            LabelsFor::HuggingFace => (piece.start + usize::from(self.masks_first)).min(piece.end)..piece.end,
            // A piece that was cut also has a next token.
            LabelsFor::NextToken | LabelsFor::Megatron => {
                let start = piece.start + 1;
                start..piece.stored_end.min(piece.end + 1).max(start)
            }
        }
    }

    /// Writes what belongs to the labels of the positions of `piece` with `copy`, and `ignored` where there is no label:
    /// also where `mask`, that of the record, is 0.
    fn write<T: Element>(
        self,
        piece: StoredPiece,
        mask: Option<&[u8]>,
        ignored: T,
        out: &mut [T],
        copy: impl FnOnce(Range<usize>, &mut [T]),
    ) {
        let tokens = self.tokens(piece);
        // A label belongs to the position of its token, or to the one before.
        let before = if self.labels_for == LabelsFor::HuggingFace { tokens.start - piece.start } else { 0 };
        let (unlabeled, rest) = out.split_at_mut(before.min(out.len()));
        let (labels, after) = rest.split_at_mut(tokens.len().min(rest.len()));
        unlabeled.fill(ignored);
        after.fill(ignored);
        copy(tokens.clone(), labels);
        if let Some(mask) = mask {
            let flags = mask.get(tokens).unwrap_or_default();
            labels
                .iter_mut()
                .zip(flags)
                .filter(|(_, flag)| **flag == 0)
                .for_each(|(slot, _)| *slot = ignored);
        }
    }
}

/// Returns the number of tokens of `piece` that the loss is computed on. A model never predicts the first one.
pub(super) fn trained(labels_for: LabelsFor, piece: StoredPiece, mask: Option<&[u8]>) -> u64 {
    let tokens = LabelRule { labels_for, masks_first: true }.tokens(piece);
    let count = match mask {
        None => tokens.len(),
        Some(mask) => mask.get(tokens).unwrap_or_default().iter().filter(|flag| **flag != 0).count(),
    };
    count as u64
}

/// Calls `each` with the pieces of `row`, of which `used` of the `stored` tokens are used: those in `pieces`, or one.
pub(super) fn each_piece(
    pieces: Option<&StoredPieces>,
    row: usize,
    used: usize,
    stored: usize,
    each: impl FnMut(StoredPiece),
) {
    let whole = [StoredPiece { start: 0, end: used, stored_end: stored }];
    pieces.map_or(&whole[..], |pieces| pieces.row(row)).iter().copied().for_each(each);
}

/// The boundaries of documents in rows of `width`, as the datasets of Megatron-LM have them: the padding of a row belongs to
/// its last document.
struct MegatronRows {
    width: usize,
    /// The ends of the pieces of each row.
    ends: Vec<Vec<usize>>,
}

impl MegatronRows {
    fn new(width: usize, mut ends: Vec<Vec<usize>>) -> Self {
        for row in &mut ends {
            row.pop();
            row.push(width);
        }
        Self { width, ends }
    }

    fn column<T: TokenId>(&self, field: BatchField, pool: &Arc<Pool>) -> Result<Column> {
        let rows = self.ends.len();
        let array = match field {
            BatchField::MaxSeqlen => {
                let longest = self.ends.iter().map(|ends| lens(ends).max().unwrap_or(0) as i32);
                Array::new(vec![rows], longest.collect(), Some(Arc::clone(pool)))
            }
            BatchField::CuSeqlens => {
                let width = self.width + 1;
                let mut out = pool.take_many::<i32>(checked_area(rows, width)?)?;
                for (slots, row) in out.chunks_exact_mut(width).zip(&self.ends) {
                    slots.fill(self.width as i32);
                    let ends = std::iter::once(&0).chain(row);
                    slots.iter_mut().zip(ends).for_each(|(slot, end)| *slot = *end as i32);
                }
                Array::new(vec![rows, width], out, Some(Arc::clone(pool)))
            }
            _ => {
                let mut out = pool.take_many::<T>(checked_area(rows, self.width)?)?;
                let mut rest = out.as_mut_slice();
                for len in self.ends.iter().flat_map(|ends| lens(ends)) {
                    let len = len.min(rest.len());
                    let (slots, after) = std::mem::take(&mut rest).split_at_mut(len);
                    number(slots);
                    rest = after;
                }
                Array::new(vec![rows, self.width], out, Some(Arc::clone(pool)))
            }
        };
        Ok(Column::Array(array))
    }
}

/// Returns the lengths of the pieces of a row that end at `ends`.
fn lens(ends: &[usize]) -> impl Iterator<Item = usize> {
    std::iter::once(&0).chain(ends).zip(ends).map(|(start, end)| end - start)
}

/// The columns of a batch of one record per row that come from token ids and their lengths. `ids` is empty if no
/// column needs them.
pub(super) struct TokenRows<'a> {
    pub(super) batch: &'a MicroBatch,
    pub(super) ids: &'a [Ids<&'a [u8]>],
    /// Which tokens are to be trained on; empty if all of them are, or no column needs it.
    pub(super) masks: &'a [&'a [u8]],
    /// The documents of rows that were packed when the dataset was made. If `None`, each row is one document.
    pub(super) pieces: Option<&'a StoredPieces>,
    pub(super) options: &'a TextBatchOptions,
    pub(super) pool: &'a Arc<Pool>,
}

impl TokenRows<'_> {
    pub(super) fn column<T: TokenId>(&self, shape: TokenLayout, field: BatchField) -> Result<Column> {
        match (field, shape) {
            (BatchField::Lengths, _) => Ok(self.lengths()),
            (BatchField::MaxLength, _) => Ok(Column::Number(self.longest(shape))),
            (
                BatchField::CuSeqlens | BatchField::MaxSeqlen | BatchField::PositionIds,
                TokenLayout::Padded,
            ) if self.options.labels_for == Some(LabelsFor::Megatron) => {
                MegatronRows::new(to_usize(self.batch.width)?, self.ends()?).column::<T>(field, self.pool)
            }
            (BatchField::CuSeqlens, _) => self.cu_seqlens(shape),
            (BatchField::AttentionMask, _) => self.arranged::<T>(shape, fill(T::default()), |_, out| {
                out.fill(T::from_i64(1));
                Ok(())
            }),
            // The padding is one more piece, as in rows that are packed at read time.
            (BatchField::PositionIds, _) => self.arranged::<T>(shape, number, |row, out| {
                self.each_piece(row, out, |_, out| number(out));
                Ok(())
            }),
            (BatchField::Labels, _) => {
                let ignored = T::from_i64(IGNORE_LABEL);
                self.arranged(shape, fill(ignored), |row, out: &mut [T]| {
                    let Some(ids) = self.ids_of::<T>(row, out.len())? else { return Ok(()) };
                    self.labels(shape, row, ignored, out, |tokens, out| copy_ids(ids, tokens, out));
                    Ok(())
                })
            }
            (BatchField::LossMask, _) => self.arranged(shape, fill(0f32), |row, out| {
                self.labels(shape, row, 0.0, out, |_, out| out.fill(1.0));
                Ok(())
            }),
            (BatchField::AssistantMasks, _) => self.arranged(shape, fill(0i8), |row, out| {
                copy_flags(self.mask(row).unwrap_or_default(), out);
                Ok(())
            }),
            _ => self.arranged(shape, fill(T::from_u32(self.options.pad_id)), |row, out| self.ids(row, out)),
        }
    }

    /// Returns the array of one record per row, or of the records one after another.
    fn arranged<T: Element>(
        &self,
        shape: TokenLayout,
        pad: impl Fn(&mut [T]),
        write: impl Fn(usize, &mut [T]) -> Result<()>,
    ) -> Result<Column> {
        if shape == TokenLayout::Padded { self.padded(pad, write) } else { self.flat(write) }
    }

    /// Checks that the records are at least as long as the index states, before memory is allocated.
    pub(super) fn check(&self) -> Result<()> {
        for ((ids, &record), &length) in self.ids.iter().zip(&self.batch.records).zip(&self.batch.lengths) {
            check_ids::<i64>(ids, record, length)?;
        }
        for ((row, mask), &record) in self.masks.iter().enumerate().zip(&self.batch.records) {
            let used = self.batch.lengths.get(row).map_or(0, |&length| length as usize);
            check_mask(mask, record, self.stored(row, mask.len().max(used)))?;
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

    /// Returns the mask of `row`, if only some tokens are to be trained on.
    fn mask(&self, row: usize) -> Option<&[u8]> {
        self.masks.get(row).copied()
    }

    /// Returns the number of stored tokens of `row`, of which `used` are used.
    fn stored(&self, row: usize, used: usize) -> usize {
        self.ids.get(row).map_or(used, Ids::len)
    }

    /// Calls `each` with the pieces of `row` and their part of `out`.
    fn each_piece<T>(&self, row: usize, out: &mut [T], mut each: impl FnMut(StoredPiece, &mut [T])) {
        each_piece(self.pieces, row, out.len(), self.stored(row, out.len()), |piece| {
            if let Some(part) = out.get_mut(piece.start..piece.end) {
                each(piece, part);
            }
        });
    }

    /// Writes the labels of `row`, or what belongs to them, with `copy`, which receives the tokens, and `ignored` where there
    /// is none.
    fn labels<T: Element>(
        &self,
        shape: TokenLayout,
        row: usize,
        ignored: T,
        out: &mut [T],
        copy: impl Fn(Range<usize>, &mut [T]),
    ) {
        // In padded rows, nothing may precede the first token. Elsewhere, a model that shifts labels itself would predict it
        // from the previous record or from padding. A masked dataset has a label only where it can be predicted.
        let masks_first = shape != TokenLayout::Padded
            || self.pieces.is_some()
            || self.options.pad_side == PadSide::Left
            || !self.masks.is_empty();
        let rule = LabelRule { labels_for: self.options.labels_in(self.pieces.is_some()), masks_first };
        self.each_piece(row, out, |piece, out| rule.write(piece, self.mask(row), ignored, out, &copy));
    }

    /// Returns the number of tokens that the loss is computed on.
    pub(super) fn trained(&self) -> u64 {
        let labels_for = self.options.labels_in(self.pieces.is_some());
        let mut count = 0;
        for (row, &length) in self.batch.lengths.iter().enumerate() {
            let used = length as usize; // the ids were checked to be as many
            each_piece(self.pieces, row, used, self.stored(row, used), |piece| {
                count += trained(labels_for, piece, self.mask(row));
            });
        }
        count
    }

    /// Returns the ends of the pieces of each row.
    fn ends(&self) -> Result<Vec<Vec<usize>>> {
        let mut ends = vec![Vec::new(); to_usize(self.batch.rows())?];
        for ((row, ends), &length) in ends.iter_mut().enumerate().zip(&self.batch.lengths) {
            let used = to_usize(length)?;
            each_piece(self.pieces, row, used, used, |piece| ends.push(piece.end));
        }
        Ok(ends)
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
    fn padded<T: Element>(
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
    fn flat<T: Element>(&self, write: impl Fn(usize, &mut [T]) -> Result<()>) -> Result<Column> {
        let tokens = to_usize(self.batch.tokens())?;
        let mut out = self.pool.take_many::<T>(tokens)?;
        let mut rest = out.as_mut_slice();
        for (row, &length) in self.batch.lengths.iter().enumerate() {
            let (slots, after) = std::mem::take(&mut rest).split_at_mut(to_usize(length)?);
            write(row, slots)?;
            rest = after;
        }
        let shape = if self.options.packed == PackedLayout::Flash { vec![1, tokens] } else { vec![tokens] };
        Ok(Column::Array(Array::new(shape, out, Some(Arc::clone(self.pool)))))
    }

    fn lengths(&self) -> Column {
        let lengths = self.batch.lengths.iter().map(|&length| length as i64);
        per_row(self.pool, self.batch.rows() as usize, lengths, 0, &[])
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
    /// One for each piece of each row; empty if no column needs them.
    pub(super) ids: &'a [Ids<&'a [u8]>],
    /// Which tokens of the document of each piece are to be trained on; empty if all of them are, or no column needs it.
    pub(super) masks: &'a [&'a [u8]],
    pub(super) options: &'a TextBatchOptions,
    pub(super) pool: &'a Arc<Pool>,
}

impl PackedRows<'_> {
    pub(super) fn column<T: TokenId>(&self, field: BatchField) -> Result<Column> {
        let rule = LabelRule { labels_for: self.options.labels_in(true), masks_first: true };
        let is_megatron = rule.labels_for == LabelsFor::Megatron;
        match field {
            BatchField::MaxLength => Ok(Column::Number(self.longest())),
            BatchField::CuSeqlens | BatchField::MaxSeqlen | BatchField::PositionIds if is_megatron => {
                MegatronRows::new(to_usize(self.seq_len)?, self.ends()).column::<T>(field, self.pool)
            }
            BatchField::CuSeqlens => self.cu_seqlens(),
            BatchField::PositionIds => self.filled::<T>(number, |_, _, out| {
                number(out);
                Ok(())
            }),
            BatchField::Labels => {
                let ignored = T::from_i64(IGNORE_LABEL);
                self.filled(fill(ignored), |at, piece, out| {
                    let (ids, mask) = (self.ids_of::<T>(at, piece)?, self.masks.get(at).copied());
                    rule.write(stored(piece), mask, ignored, out, |tokens, out| copy_ids(ids, tokens, out));
                    Ok(())
                })
            }
            BatchField::LossMask => self.filled(fill(0f32), |at, piece, out| {
                rule.write(stored(piece), self.masks.get(at).copied(), 0.0, out, |_, out| out.fill(1.0));
                Ok(())
            }),
            BatchField::AssistantMasks => self.filled(fill(0i8), |at, piece, out| {
                let mask = self.masks.get(at).copied().unwrap_or_default();
                copy_flags(mask.get(stored(piece).start..).unwrap_or_default(), out);
                Ok(())
            }),
            _ => self.filled(fill(T::from_u32(self.options.pad_id)), |at, piece, out| {
                let (ids, start) = (self.ids_of::<T>(at, piece)?, stored(piece).start);
                copy_ids(ids, start..start + out.len(), out);
                Ok(())
            }),
        }
    }

    fn is_flash(&self) -> bool {
        self.options.packed == PackedLayout::Flash
    }

    fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.rows.iter().flat_map(|row| &row.pieces)
    }

    /// Checks that each mask has a value for each token of its document, before one is used.
    pub(super) fn check(&self) -> Result<()> {
        for ((at, mask), piece) in self.masks.iter().enumerate().zip(self.pieces()) {
            let tokens = match self.ids.get(at) {
                Some(ids) => ids.len(),
                None => mask.len().max(stored(piece).end),
            };
            check_mask(mask, piece.document, tokens)?;
        }
        Ok(())
    }

    /// Returns the number of tokens that the loss is computed on.
    pub(super) fn trained(&self) -> u64 {
        let labels_for = self.options.labels_in(true);
        let each = self.pieces().enumerate();
        each.map(|(at, piece)| trained(labels_for, stored(piece), self.masks.get(at).copied())).sum()
    }

    /// Returns the ids of the document of piece number `at`.
    fn ids_of<T: TokenId>(&self, at: usize, piece: &Piece) -> Result<&Ids<&[u8]>> {
        let ids = self.ids.get(at).ok_or_else(|| Error::internal("a piece has no record"))?;
        // One more than the inputs, for the label of the last.
        check_ids::<T>(ids, piece.document, piece.inputs().end + u64::from(!piece.ends))?;
        Ok(ids)
    }

    /// Returns an array of rows × `seq_len` or, without padding, one row of all pieces. `pad` fills the end of a row, `write`
    /// the positions of a piece (arguments: its number in the batch, the piece, the positions).
    fn filled<T: Element>(
        &self,
        pad: impl Fn(&mut [T]),
        write: impl Fn(usize, &Piece, &mut [T]) -> Result<()>,
    ) -> Result<Column> {
        let shape = match self.is_flash() {
            true => vec![1, to_usize(self.rows.iter().map(Row::tokens).sum())?],
            false => vec![to_usize(self.rows.len() as u64 + self.filler_rows)?, to_usize(self.seq_len)?],
        };
        let area = shape.iter().try_fold(1, |area, side| checked_area(area, *side))?;
        let mut out = self.pool.take_many::<T>(area)?;
        let mut left = out.get_mut(..area).unwrap_or_default();
        let mut at = 0;
        for row in self.rows {
            let width = if self.is_flash() { row.tokens() } else { self.seq_len };
            let width = to_usize(width)?.min(left.len());
            let (mut slots, after) = std::mem::take(&mut left).split_at_mut(width);
            for piece in &row.pieces {
                let len = to_usize(piece.len)?.min(slots.len());
                let (of_piece, rest) = slots.split_at_mut(len);
                write(at, piece, of_piece)?;
                (slots, at) = (rest, at + 1);
            }
            pad(slots);
            left = after;
        }
        left.chunks_exact_mut(to_usize(self.seq_len)?.max(1)).for_each(pad);
        Ok(Column::Array(Array::new(shape, out, Some(Arc::clone(self.pool)))))
    }

    /// Returns the length of the longest piece. Padding at the end of a row is a piece.
    pub(super) fn longest(&self) -> u64 {
        let padding = self.rows.iter().map(|row| self.seq_len.saturating_sub(row.tokens()));
        let fillers = (self.filler_rows > 0).then_some(self.seq_len);
        let padding = padding.chain(fillers).filter(|_| !self.is_flash());
        self.pieces().map(|piece| piece.len).chain(padding).max().unwrap_or(0)
    }

    /// Returns the ends of the pieces of each row.
    fn ends(&self) -> Vec<Vec<usize>> {
        let of_row = |row: &Row| {
            let mut end = 0;
            let lens = row.pieces.iter().map(|piece| stored(piece).end - stored(piece).start);
            lens.map(|len| {
                end += len;
                end
            })
            .collect()
        };
        let fillers = std::iter::repeat_n(Vec::new(), self.filler_rows as usize);
        self.rows.iter().map(of_row).chain(fillers).collect()
    }

    fn cu_seqlens(&self) -> Result<Column> {
        let ends = if self.is_flash() {
            let row = Row { pieces: self.pieces().copied().collect() };
            let tokens = row.tokens();
            dsconvert_dataset::packing::cu_seqlens(&[row], tokens)?
        } else {
            let mut rows = self.rows.to_vec();
            rows.extend(std::iter::repeat_n(Row::default(), to_usize(self.filler_rows)?));
            dsconvert_dataset::packing::cu_seqlens(&rows, self.seq_len)?
        };
        Ok(Column::Array(Array::new(vec![ends.len()], ends, Some(Arc::clone(self.pool)))))
    }
}

/// Returns a piece of a document as part of its record. A piece whose document is cut there has one more token.
pub(super) fn stored(piece: &Piece) -> StoredPiece {
    // The ids of the record were, or are, compared with it: they are as many.
    let (start, end) = (piece.start as usize, piece.inputs().end as usize);
    StoredPiece { start, end, stored_end: end + usize::from(!piece.ends) }
}

/// Writes the first flags to `out`.
fn copy_flags(flags: &[u8], out: &mut [i8]) {
    out.iter_mut().zip(flags).for_each(|(slot, flag)| *slot = flag.cast_signed());
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
