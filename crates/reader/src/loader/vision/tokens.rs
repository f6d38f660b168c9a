//! Columns with one value per token of chats with images.

use dsconvert_dataset::error::Result;
use dsconvert_vision::Grid;

use super::{VisionFields, VisionRows};
use crate::loader::batch::Column;
use crate::loader::batch_field::TokenLayout;
use crate::loader::options::PadSide;
use crate::loader::text::{TokenId, TokenRows, checked_area, fill, number, tokens};

/// What belongs to the tokens of images in a batch.
#[derive(Debug, Clone, Copy)]
pub(in crate::loader) struct ImageTokens<'a> {
    rows: &'a VisionRows,
    image_token: u32,
    /// The slot of the token of an image without effect, and whether it is one more token than the records have.
    dummy: Option<(usize, bool)>,
}

impl<'a> ImageTokens<'a> {
    pub(in crate::loader) fn new(fields: &VisionFields, rows: &'a VisionRows) -> Self {
        Self { rows, image_token: fields.processor.image_token_id, dummy: None }
    }

    /// Returns the images of the records.
    pub(in crate::loader) fn rows(&self) -> &'a VisionRows {
        self.rows
    }

    /// Returns the number of tokens of a flat batch that no record has.
    pub(in crate::loader) fn added_tokens(&self) -> usize {
        usize::from(matches!(self.dummy, Some((_, true))))
    }

    /// Returns 1 for each token of an image, and 0 for all others.
    pub(in crate::loader) fn types<T: TokenId>(&self, text: &TokenRows<'_>) -> Result<Column> {
        let types = text.filled(fill(T::default()), |piece, out| {
            let ids = text.ids.get(piece.record).into_iter().flat_map(|ids| ids.iter().skip(piece.start));
            for (slot, id) in out.iter_mut().zip(ids) {
                *slot = T::from(u16::from(id == self.image_token));
            }
            Ok(())
        })?;
        Ok(self.with_slot(types, T::from(1)))
    }

    /// Returns the positions in time, in the rows and in the columns, each in an array like that of the ids. Before them, rows of
    /// several documents have the positions of the tokens in their documents, which tell a model where a document starts.
    pub(in crate::loader) fn positions<T: TokenId>(&self, text: &TokenRows<'_>) -> Result<Column> {
        let has_documents = text.layout != TokenLayout::Padded || text.is_packed;
        let planes = if has_documents { 4 } else { 3 };
        let mut shape = text.shape();
        let area = shape.iter().try_fold(1, |area, side| checked_area(area, *side))?;
        let mut out = text.pool.take_many::<T>(checked_area(area, planes)?)?;
        for (plane, slots) in out.chunks_exact_mut(area.max(1)).take(planes).enumerate() {
            // The padding is one more document.
            let pad = |out: &mut [T]| match has_documents {
                true => number(out),
                false => out.fill(T::default()),
            };
            text.fill_slots(slots, pad, |piece, out| {
                match (plane + 3).checked_sub(planes) {
                    None => number(out),
                    Some(axis) => {
                        for (slot, position) in out.iter_mut().zip(self.rows.positions(piece)) {
                            *slot = T::from_u32(position[axis]);
                        }
                    }
                }
                Ok(())
            })?;
        }
        shape.insert(0, planes);
        Ok(text.array(shape, out))
    }

    /// Writes the token of the image without effect to the ids, if there is one.
    pub(in crate::loader) fn with_dummy<T: TokenId>(&self, ids: Column) -> Column {
        self.with_slot(ids, T::from_u32(self.image_token))
    }

    fn with_slot<T: TokenId>(&self, mut column: Column, value: T) -> Column {
        if let (Some((at, _)), Column::Array(array)) = (self.dummy, &mut column)
            && let Some(slot) = array.as_mut_slice::<T>().and_then(|slots| slots.get_mut(at))
        {
            *slot = value;
        }
        column
    }
}

impl TokenRows<'_> {
    /// Adds an image without effect and returns its grid, if the batch has no image. Its only token is in the padding, which no
    /// other token attends to and which has no label; a batch without padding becomes wider, by a multiple of `multiple`.
    pub(in crate::loader) fn add_dummy(&mut self, merge: u32, multiple: usize) -> Option<Grid> {
        let is_empty = self.rows() == 0 || self.images?.rows.all_grids().next().is_some();
        if is_empty {
            return None;
        }
        let dummy = match (self.is_flat(), self.first_padding()) {
            (true, _) => (self.tokens(), true),
            (false, Some(slot)) => (slot, false),
            (false, None) => {
                self.width += multiple.max(1);
                (self.first_padding()?, false)
            }
        };
        self.images.as_mut()?.dummy = Some(dummy);
        Some([1, merge, merge])
    }

    /// Returns the slot of the first padding.
    fn first_padding(&self) -> Option<usize> {
        let is_left = self.layout == TokenLayout::Padded && self.options.pad_side == PadSide::Left;
        let used = self.pieces.rows().map(tokens).chain(std::iter::repeat_n(0, self.filler_rows));
        let (row, used) = used.enumerate().find(|(_, used)| *used < self.width)?;
        Some(row * self.width + if is_left { 0 } else { used })
    }
}
