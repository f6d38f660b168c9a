//! Token ids as arrays: padded, flat or packed.

use std::ops::Range;
use std::sync::Arc;

use dsconvert_dataset::error::{Error, Result};
use dsconvert_dataset::packing::{IGNORE_LABEL, MAX_SEQ_LEN};
use dsconvert_dataset::sample::Ids;
use dsconvert_dataset::schema::{ASSISTANT_MASKS, IdWidth};

use super::array::Array;
use super::batch::Column;
use super::batch_field::{BatchField, TokenLayout};
use super::element::Element;
use super::options::{LabelsFor, PackedLayout, PadSide, TextBatchOptions};
use super::pieces::{Pieces, StoredPiece, too_large};
use super::pool::Pool;
use super::stored::per_row;
use super::vision::ImageTokens;
use crate::Record;

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

/// Checks that the ids of a record include those of `piece`, and that these fit into `T`.
fn check_ids<T: TokenId>(ids: &Ids<&[u8]>, record: u64, piece: StoredPiece) -> Result<()> {
    let end = piece.end.max(piece.stored_end);
    if ids.len() < end {
        let what = format!("the record has {} tokens, but at least {end} in the record index", ids.len());
        return Err(Error::corrupt(what).at_row(record));
    }
    if T::MAX < u32::MAX && ids.width() == IdWidth::U32 {
        // The largest id is faster to find than the first that is too large.
        let of_piece = ids.as_bytes().as_chunks::<4>().0.get(piece.start..end).unwrap_or_default();
        let largest = of_piece.iter().map(|id| u32::from_le_bytes(*id)).max();
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
pub(super) struct LabelRule {
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
    pub(super) fn write<T: Element>(
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

/// Returns the number of tokens of `pieces` that the loss is computed on. A model never predicts the first one of a piece.
pub(super) fn trained(labels_for: LabelsFor, pieces: &Pieces, masks: &[&[u8]]) -> u64 {
    let rule = LabelRule { labels_for, masks_first: true };
    let of_piece = |piece: &StoredPiece| {
        let tokens = rule.tokens(*piece);
        match masks.get(piece.record) {
            None => tokens.len(),
            Some(mask) => mask.get(tokens).unwrap_or_default().iter().filter(|flag| **flag != 0).count(),
        }
    };
    pieces.all().iter().map(of_piece).sum::<usize>() as u64
}

/// The columns of a batch that come from token ids and their lengths.
pub(super) struct TokenRows<'a> {
    pub(super) pieces: Pieces,
    pub(super) filler_rows: usize,
    /// Tokens of a row, including padding. Without effect if records are one after another.
    pub(super) width: usize,
    pub(super) layout: TokenLayout,
    /// Whether a row holds several documents.
    pub(super) is_packed: bool,
    /// The ordinals of the records.
    pub(super) records: &'a [u64],
    /// The ids of each record; empty if no column needs them.
    pub(super) ids: &'a [Ids<&'a [u8]>],
    /// Which tokens of each record are to be trained on; empty if all of them are, or no column needs it.
    pub(super) masks: &'a [&'a [u8]],
    /// The records, if columns need more of them.
    pub(super) stored: &'a [Record],
    /// For chats with images: what belongs to the tokens of images.
    pub(super) images: Option<ImageTokens<'a>>,
    pub(super) options: &'a TextBatchOptions,
    pub(super) pool: &'a Arc<Pool>,
}

impl TokenRows<'_> {
    pub(super) fn column<T: TokenId>(&self, field: BatchField) -> Result<Column> {
        let is_megatron = self.options.labels_for == Some(LabelsFor::Megatron);
        let rule = self.label_rule();
        match field {
            BatchField::Lengths => {
                let lengths = self.pieces.rows().map(|row| tokens(row) as i64);
                Ok(per_row(self.pool, self.rows(), lengths, 0, &[]))
            }
            BatchField::MaxLength => Ok(Column::Number(self.longest())),
            BatchField::CuSeqlens | BatchField::MaxSeqlen | BatchField::PositionIds if is_megatron => {
                self.for_megatron::<T>(field)
            }
            BatchField::CuSeqlens => self.cu_seqlens(),
            BatchField::AttentionMask => self.filled(fill(T::default()), |_, out| {
                out.fill(T::from_i64(1));
                Ok(())
            }),
            BatchField::MmTokenTypeIds | BatchField::RotaryPositions => match &self.images {
                Some(images) if field == BatchField::MmTokenTypeIds => images.types::<T>(self),
                Some(images) => images.positions::<T>(self),
                None => Err(Error::internal("the batch has no images")),
            },
            // The padding is one more piece.
            BatchField::PositionIds => self.filled(number::<T>, |_, out| {
                number(out);
                Ok(())
            }),
            BatchField::Labels => {
                let ignored = T::from_i64(IGNORE_LABEL);
                self.filled(fill(ignored), |piece, out| {
                    let (ids, mask) = (self.ids_of::<T>(piece)?, self.mask(piece));
                    rule.write(piece, mask, ignored, out, |tokens, out| copy_ids(ids, tokens, out));
                    Ok(())
                })
            }
            BatchField::LossMask => self.filled(fill(0f32), |piece, out| {
                rule.write(piece, self.mask(piece), 0.0, out, |_, out| out.fill(1.0));
                Ok(())
            }),
            BatchField::AssistantMasks => self.filled(fill(0i8), |piece, out| {
                let flags = self.mask(piece).and_then(|mask| mask.get(piece.start..)).unwrap_or_default();
                out.iter_mut().zip(flags).for_each(|(slot, flag)| *slot = flag.cast_signed());
                Ok(())
            }),
            BatchField::CompletionMask => self.filled(fill(T::default()), |piece, out| {
                let flags = self.mask(piece).and_then(|mask| mask.get(piece.start..)).unwrap_or_default();
                out.iter_mut().zip(flags).for_each(|(slot, flag)| *slot = T::from_i64((*flag).into()));
                Ok(())
            }),
            _ => {
                let ids = self.filled(fill(T::from_u32(self.options.pad_id)), |piece, out| {
                    copy_ids(self.ids_of::<T>(piece)?, piece.start..piece.end, out);
                    Ok(())
                })?;
                Ok(self.images.iter().fold(ids, |ids, images| images.with_dummy::<T>(ids)))
            }
        }
    }

    /// Returns which tokens are labels.
    pub(super) fn label_rule(&self) -> LabelRule {
        // In padded rows, nothing may precede the first token. Elsewhere, a model that shifts labels itself would predict it
        // from the previous record or from padding. A masked dataset has a label only where it can be predicted.
        let masks_first = self.layout != TokenLayout::Padded
            || self.is_packed
            || self.options.pad_side == PadSide::Left
            || !self.masks.is_empty();
        LabelRule { labels_for: self.options.labels_in(self.is_packed), masks_first }
    }

    /// Returns the number of rows, including those without a record.
    pub(super) fn rows(&self) -> usize {
        self.pieces.rows().len() + self.filler_rows
    }

    /// Returns the record of each row, which is one record.
    pub(super) fn records_of_rows(&self) -> Vec<Option<u64>> {
        let mut records: Vec<_> = self.records.iter().copied().map(Some).collect();
        records.resize(self.rows(), None);
        records
    }

    /// Returns the record of each piece of packed rows. As in `cu_seqlens`, the padding of a row is a piece, unless it belongs
    /// to the last document, as in batches for Megatron-LM.
    pub(super) fn records_of_pieces(&self) -> Vec<Option<u64>> {
        let is_megatron = self.options.labels_for == Some(LabelsFor::Megatron);
        let pads = !self.is_flat() && !is_megatron;
        let mut records = Vec::with_capacity(self.pieces.all().len() + self.rows());
        for row in self.pieces.rows() {
            records.extend(row.iter().map(|piece| self.records.get(piece.record).copied()));
            if pads && tokens(row) < self.width {
                records.push(None);
            }
        }
        let fillers = if self.is_flat() { 0 } else { self.filler_rows };
        records.extend(std::iter::repeat_n(None, fillers));
        records
    }

    /// Returns the number of tokens.
    pub(super) fn tokens(&self) -> usize {
        tokens(self.pieces.all())
    }

    /// Returns whether the records are one after another, without padding.
    pub(super) fn is_flat(&self) -> bool {
        self.layout == TokenLayout::Flat || self.options.packed == PackedLayout::Flash
    }

    /// Checks that the records are at least as long as the index states, before memory is allocated.
    pub(super) fn check(&self) -> Result<()> {
        for &piece in self.pieces.all() {
            let (ids, record) = (self.ids.get(piece.record), self.ordinal(piece));
            if let Some(ids) = ids {
                check_ids::<i64>(ids, record, piece)?;
            }
            if let Some(mask) = self.mask(piece) {
                check_mask(mask, record, ids.map_or(mask.len().max(piece.end), Ids::len))?;
            }
        }
        Ok(())
    }

    fn ordinal(&self, piece: StoredPiece) -> u64 {
        self.records.get(piece.record).copied().unwrap_or(0)
    }

    /// Returns the ids of the record of `piece`.
    fn ids_of<T: TokenId>(&self, piece: StoredPiece) -> Result<&Ids<&[u8]>> {
        let ids = self.ids.get(piece.record).ok_or_else(|| Error::internal("a piece has no record"))?;
        check_ids::<T>(ids, self.ordinal(piece), piece)?;
        Ok(ids)
    }

    /// Returns the mask of the record of `piece`, if only some tokens are to be trained on.
    pub(super) fn mask(&self, piece: StoredPiece) -> Option<&[u8]> {
        self.masks.get(piece.record).copied()
    }

    /// Returns the number of tokens that the loss is computed on.
    pub(super) fn trained(&self) -> u64 {
        trained(self.options.labels_in(self.is_packed), &self.pieces, self.masks)
    }

    /// Returns the length of the longest piece. In rows of several documents, padding at the end is a piece.
    pub(super) fn longest(&self) -> u64 {
        let pieces = self.pieces.all().iter().map(|piece| piece.len());
        let fillers = (self.filler_rows > 0).then_some(self.width);
        let padding = self.pieces.rows().map(|row| self.width.saturating_sub(tokens(row))).chain(fillers);
        let padding = padding.filter(|_| self.is_packed && !self.is_flat());
        pieces.chain(padding).max().unwrap_or(0) as u64
    }

    /// Returns an array of rows × width or, if the records are one after another, of all tokens. `write` fills the positions
    /// of a piece, `pad` the padding of a row.
    pub(super) fn filled<T: Element>(
        &self,
        pad: impl Fn(&mut [T]),
        write: impl Fn(StoredPiece, &mut [T]) -> Result<()>,
    ) -> Result<Column> {
        let shape = self.shape();
        let area = shape.iter().try_fold(1, |area, side| checked_area(area, *side))?;
        let mut out = self.pool.take_many::<T>(area)?;
        self.fill_slots(out.get_mut(..area).unwrap_or_default(), pad, write)?;
        Ok(self.array(shape, out))
    }

    /// Returns the shape of an array with one value per token.
    pub(super) fn shape(&self) -> Vec<usize> {
        // The image without effect has no padding to be in.
        let more = self.images.as_ref().map_or(0, ImageTokens::added_tokens);
        match (self.is_flat(), self.options.packed) {
            (true, PackedLayout::Flash) => vec![1, self.tokens() + more],
            (true, PackedLayout::Rows) => vec![self.tokens()],
            (false, _) => vec![self.rows(), self.width],
        }
    }

    /// Fills `slots`, which has the size of [`Self::shape`], as [`Self::filled`] does.
    pub(super) fn fill_slots<T: Element>(
        &self,
        slots: &mut [T],
        pad: impl Fn(&mut [T]),
        write: impl Fn(StoredPiece, &mut [T]) -> Result<()>,
    ) -> Result<()> {
        let mut left = slots;
        for row in self.pieces.rows() {
            let tokens = tokens(row);
            let width = if self.is_flat() { tokens } else { self.width }.min(left.len());
            let (slots, after) = std::mem::take(&mut left).split_at_mut(width);
            let padding = width.saturating_sub(tokens);
            let (mut slots, padding) = match self.options.pad_side {
                PadSide::Left if self.layout == TokenLayout::Padded => {
                    let (padding, slots) = slots.split_at_mut(padding);
                    (slots, padding)
                }
                _ => slots.split_at_mut(width - padding),
            };
            for &piece in row {
                let (of_piece, rest) = slots.split_at_mut(piece.len().min(slots.len()));
                write(piece, of_piece)?;
                slots = rest;
            }
            pad(padding);
            left = after;
        }
        match self.is_flat() {
            true => pad(left),
            false => left.chunks_exact_mut(self.width.max(1)).for_each(pad),
        }
        Ok(())
    }

    pub(super) fn array<T: Element>(&self, shape: Vec<usize>, block: Vec<T>) -> Column {
        Column::Array(Array::new(shape, block, Some(Arc::clone(self.pool))))
    }

    fn cu_seqlens(&self) -> Result<Column> {
        let (width, all) = match self.is_flat() {
            true => (0, self.tokens()),
            false => (self.width, self.rows().saturating_mul(self.width)),
        };
        if all as u64 > MAX_SEQ_LEN {
            let what = format!("{all} tokens exceed the range of cu_seqlens");
            return Err(Error::usage(what).help("use a smaller batch size or budget"));
        }
        let mut ends = Vec::with_capacity(1 + self.pieces.all().len() + self.rows());
        let mut end = 0; // all sums are at most what was checked
        ends.push(end);
        let fillers = std::iter::repeat_n(width, self.filler_rows);
        for len in self.pieces.rows().flat_map(|row| lens(row, width)).chain(fillers) {
            end += len as i32;
            ends.push(end);
        }
        if let Some(more @ 1..) = self.images.as_ref().map(ImageTokens::added_tokens) {
            ends.push(end + more as i32);
        }
        Ok(self.array(vec![ends.len()], ends))
    }

    /// Returns a column as the datasets of Megatron-LM have it: the padding of a row belongs to its last document.
    fn for_megatron<T: TokenId>(&self, field: BatchField) -> Result<Column> {
        let (rows, width) = (self.rows(), self.width);
        let documents = |row: &[StoredPiece]| {
            let mut lens: Vec<usize> = row.iter().map(|piece| piece.len()).collect();
            let padding = width.saturating_sub(tokens(row));
            match lens.last_mut() {
                Some(last) => *last += padding,
                None => lens.push(padding),
            }
            lens
        };
        let fillers = std::iter::repeat_n(vec![width], self.filler_rows);
        let documents = self.pieces.rows().map(documents).chain(fillers);
        match field {
            BatchField::MaxSeqlen => {
                let longest = documents.map(|lens| lens.into_iter().max().unwrap_or(0) as i32);
                Ok(per_row(self.pool, rows, longest, 0, &[]))
            }
            BatchField::CuSeqlens => {
                let width = width + 1;
                let mut out = self.pool.take_many::<i32>(checked_area(rows, width)?)?;
                for (slots, lens) in out.chunks_exact_mut(width).zip(documents) {
                    slots.fill(self.width as i32);
                    let mut end = 0;
                    for (slot, len) in slots.iter_mut().zip(lens) {
                        *slot = end;
                        end += len as i32;
                    }
                }
                Ok(self.array(vec![rows, width], out))
            }
            _ => {
                let mut out = self.pool.take_many::<T>(checked_area(rows, width)?)?;
                let mut left = out.as_mut_slice();
                for len in documents.flatten() {
                    let len = len.min(left.len());
                    let (slots, after) = std::mem::take(&mut left).split_at_mut(len);
                    number(slots);
                    left = after;
                }
                Ok(self.array(vec![rows, width], out))
            }
        }
    }
}

/// Returns the number of tokens of pieces.
pub(super) fn tokens(row: &[StoredPiece]) -> usize {
    row.iter().fold(0, |sum, piece| sum.saturating_add(piece.len()))
}

/// Returns the lengths of the pieces of a row that is padded to `width`. The padding is one more piece.
fn lens(row: &[StoredPiece], width: usize) -> impl Iterator<Item = usize> {
    let padding = width.saturating_sub(tokens(row));
    row.iter().map(|piece| piece.len()).chain((padding > 0).then_some(padding))
}

/// Returns a function that fills with `value`.
pub(super) fn fill<T: Copy>(value: T) -> impl Fn(&mut [T]) {
    move |out| out.fill(value)
}

/// Writes 0, 1, 2, ….
pub(super) fn number<T: TokenId>(out: &mut [T]) {
    out.iter_mut().zip(0..).for_each(|(slot, n)| *slot = T::from_i64(n));
}

/// Returns rows × width, if memory can hold it.
pub(super) fn checked_area(rows: usize, width: usize) -> Result<usize> {
    rows.checked_mul(width).filter(|area| *area <= isize::MAX as usize / 8).ok_or_else(too_large)
}
