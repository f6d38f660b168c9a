//! Assembles the arrays of a micro-batch from the ordinals of its records.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dsconvert_dataset::error::{Error, Result};
use dsconvert_dataset::packing::Row;
use dsconvert_dataset::sample::{Ids, Int32Pair, Value, pair};
use dsconvert_dataset::schema::CROP_TOP_LEFT;

use super::added::mirrored;
use super::augment::View;
use super::batch::{Batch, BatchId, BlankRow, Column};
use super::batch_field::{BatchField, TokenLayout};
use super::completions::Sides;
use super::drops::Drop;
use super::fields::BatchFields;
use super::image::{DecodeScratch, ImageRows};
use super::joined;
use super::options::{IdType, LoaderOptions};
use super::packed::stored_pieces;
use super::padded::{lengths, padded};
use super::pieces::Pieces;
use super::pool::Pool;
use super::stored;
use super::text::{TokenRows, trained};
use super::vision::{ImageTokens, VisionRows};
use crate::batch::{Batching, ImageShape, MicroBatch};
use crate::source::{flags_in, ids_in};
use crate::{Record, RecordProperties, RecordSource};

/// Assembles batches. Shared by all threads.
#[derive(Debug)]
pub(super) struct Assembler {
    source: Arc<dyn RecordSource>,
    properties: RecordProperties,
    options: LoaderOptions,
    fields: BatchFields,
    drops: Vec<Drop>,
    pool: Arc<Pool>,
    /// The step at which a thread panics, for tests.
    #[cfg(test)]
    pub(super) panic_at_step: Option<u64>,
    /// Whether threads panic between two batches, for tests.
    #[cfg(test)]
    pub(super) panic_between_batches: bool,
}

impl Assembler {
    pub(super) fn new(source: &Arc<dyn RecordSource>, options: &LoaderOptions) -> Result<Self> {
        let fields = BatchFields::new(&**source, options)?;
        if let Some(column) = source.properties().measured_by.filter(|_| source.schema().holds_token_ids()) {
            let what = format!("a loader of text cuts and pads records by their tokens, not by {column:?}");
            return Err(
                Error::usage(what).help("form batches with a sampler, and read the records by yourself")
            );
        }
        if fields.columns.iter().any(|(_, field)| field.is_decoded()) {
            super::image::check_build()?;
        }
        // As many batches as may be in flight, and as many again that the consumer holds.
        let kept = (2 * options.in_flight() + 2).saturating_mul(fields.columns.len().max(1));
        let pool = Arc::new(Pool::new(kept));
        Ok(Self {
            source: Arc::clone(source),
            properties: source.properties(),
            options: options.clone(),
            drops: Drop::all(&fields, source.schema(), &options.drop)?,
            fields,
            pool,
            #[cfg(test)]
            panic_at_step: None,
            #[cfg(test)]
            panic_between_batches: false,
        })
    }

    /// Returns whether making a batch costs little more than copying, because nothing is decoded.
    pub(super) fn is_light(&self) -> bool {
        !self.fields.columns.iter().any(|(_, field)| field.is_decoded())
    }

    /// Returns the source that is read.
    pub(super) fn source(&self) -> &Arc<dyn RecordSource> {
        &self.source
    }

    /// Returns what the records of the source have in common.
    pub(super) fn properties(&self) -> &RecordProperties {
        &self.properties
    }

    /// Returns the options of the loader.
    pub(super) fn options(&self) -> &LoaderOptions {
        &self.options
    }

    /// Returns whether batches hold token ids.
    pub(super) fn is_text(&self) -> bool {
        self.source.schema().holds_token_ids()
    }

    /// Makes a batch of one record per row. `epochs` has the epoch of each record if they differ. If `stop` is set, it ends
    /// early with an error that is never returned to a caller.
    pub(super) fn records(
        &self,
        id: BatchId,
        batch: &MicroBatch,
        epochs: &[u64],
        scratch: &mut DecodeScratch,
        stop: &AtomicBool,
    ) -> Result<Batch> {
        #[cfg(test)]
        assert_ne!(Some(id.step), self.panic_at_step, "deliberate test failure");
        if self.sides() > 0 && !self.fields.columns.is_empty() {
            return self.completions(id, batch, epochs, scratch, stop);
        }
        let records = self.read_if(self.fields.reads_records(), &batch.records)?;
        let masks = self.masks_of(&records)?;
        self.with_ids(&batch.records, &records, |ids| {
            let pieces = self.pieces_of(&records, &batch.lengths, |row| ids.get(row).map(Ids::len))?;
            let images = self.images_of(&records, ids, &pieces)?;
            let text = TokenRows {
                pieces,
                filler_rows: batch.filler_rows as usize,
                width: usize::try_from(batch.width).unwrap_or(usize::MAX),
                layout: self.fields.shape,
                is_packed: self.fields.pieces.is_some(),
                records: &batch.records,
                ids,
                masks: &masks,
                stored: &records,
                images: self.image_tokens(images.as_ref()),
                options: &self.options.text,
                pool: &self.pool,
            };
            self.rows(id, text, batch.shape, (&records, epochs), scratch, stop)
        })
    }

    /// Returns the number of rows of a record of preference data; 0 of other records.
    pub(super) fn sides(&self) -> usize {
        self.source.schema().completions().len()
    }

    /// Makes a batch of preference data, of one row per side.
    fn completions(
        &self,
        id: BatchId,
        batch: &MicroBatch,
        epochs: &[u64],
        scratch: &mut DecodeScratch,
        stop: &AtomicBool,
    ) -> Result<Batch> {
        let records = self.read_if(true, &batch.records)?;
        let sides = Sides::of(self.source.schema(), &records, self.options.text.pairs)?;
        let ids: Vec<Ids<&[u8]>> = sides.ids.iter().map(Ids::lend).collect();
        let masks: Vec<&[u8]> = sides.masks.iter().map(Vec::as_slice).collect();
        let width = batch.width / self.sides().max(1) as u64;
        let text = TokenRows {
            pieces: Pieces::whole_records(&sides.lengths(), |row| ids.get(row).map(Ids::len))?,
            filler_rows: 0,
            width: usize::try_from(width).unwrap_or(usize::MAX),
            layout: self.fields.shape,
            is_packed: false,
            records: &sides.records,
            ids: &ids,
            masks: &masks,
            stored: &[],
            images: None,
            options: &self.options.text,
            pool: &self.pool,
        };
        self.rows(id, text, None, (&records, epochs), scratch, stop)
    }

    /// Returns the number of tokens of micro-batches of preference data that the loss is computed on.
    fn trained_in_completions(&self, batches: &[MicroBatch]) -> Result<u64> {
        let labels_for = self.options.text.labels_in(false);
        let mut count = 0;
        for batch in batches {
            let records = self.read_if(true, &batch.records)?;
            let sides = Sides::of(self.source.schema(), &records, self.options.text.pairs)?;
            let masks: Vec<&[u8]> = sides.masks.iter().map(Vec::as_slice).collect();
            let pieces = Pieces::whole_records(&sides.lengths(), |row| sides.ids.get(row).map(Ids::len))?;
            count += trained(labels_for, &pieces, &masks);
        }
        Ok(count)
    }

    /// Makes a batch of packed rows.
    pub(super) fn packed(
        &self,
        id: BatchId,
        rows: &[Row],
        filler_rows: u64,
        scratch: &mut DecodeScratch,
        stop: &AtomicBool,
    ) -> Result<Batch> {
        let pieces = rows.iter().flat_map(|row| &row.pieces);
        let ordinals: Vec<u64> = pieces.map(|piece| piece.document).collect();
        let is_needed = self.fields.reads_masks()
            || self.fields.reads_per_token()
            || self.fields.reads_joined()
            || self.fields.reads_images();
        let records = self.read_if(is_needed, &ordinals)?;
        let masks = self.masks_of(&records)?;
        self.with_ids(&ordinals, &records, |ids| {
            let pieces = Pieces::of_rows(rows)?;
            let images = self.images_of(&records, ids, &pieces)?;
            let text = TokenRows {
                pieces,
                filler_rows: filler_rows as usize,
                width: usize::try_from(self.options.batching.seq_len()).unwrap_or(usize::MAX),
                layout: self.fields.shape,
                is_packed: true,
                records: &ordinals,
                ids,
                masks: &masks,
                stored: &records,
                images: self.image_tokens(images.as_ref()),
                options: &self.options.text,
                pool: &self.pool,
            };
            self.rows(id, text, None, (&records, &[]), scratch, stop)
        })
    }

    /// Returns what belongs to the images of `records`, if columns need it.
    fn images_of(
        &self,
        records: &[Record],
        ids: &[Ids<&[u8]>],
        pieces: &Pieces,
    ) -> Result<Option<VisionRows>> {
        let vision = self.fields.vision.as_ref().filter(|_| self.fields.reads_images());
        vision.map(|vision| vision.rows(&*self.source, records, ids, pieces)).transpose()
    }

    fn image_tokens<'a>(&self, rows: Option<&'a VisionRows>) -> Option<ImageTokens<'a>> {
        Some(ImageTokens::new(self.fields.vision.as_ref()?, rows?))
    }

    /// Returns whether batches without images get one without effect.
    fn adds_dummy_images(&self) -> bool {
        let is_shared = self.options.layout.world_size() > 1;
        self.options.vision.dummy_image.unwrap_or(is_shared)
    }

    /// Returns the records `ordinals` if they are needed, else none.
    fn read_if(&self, is_needed: bool, ordinals: &[u64]) -> Result<Vec<Record>> {
        if !is_needed {
            return Ok(Vec::new());
        }
        let records = self.source.get_many(ordinals)?;
        check_number(records.len(), ordinals)?;
        Ok(records)
    }

    /// Returns the pieces of `records`, whose first `lengths` tokens are used: their documents if they were packed when the
    /// dataset was made, else one for each record, of which so many tokens are `stored`.
    fn pieces_of(
        &self,
        records: &[Record],
        lengths: &[u64],
        stored: impl Fn(usize) -> Option<usize>,
    ) -> Result<Pieces> {
        match self.fields.pieces {
            Some(index) => stored_pieces(records, lengths, index),
            None => Pieces::whole_records(lengths, stored),
        }
    }

    /// Returns which tokens of `records` are to be trained on; nothing if all of them are, or no column needs it.
    fn masks_of<'a>(&self, records: &'a [Record]) -> Result<Vec<&'a [u8]>> {
        match self.fields.masks.filter(|_| self.fields.reads_masks()) {
            Some(index) => flags_in(records, index),
            None => Ok(Vec::new()),
        }
    }

    /// Returns the number of tokens of micro-batches that the loss is computed on, as [`Batch::trained`] does. Reads records
    /// only if they mark these tokens. `None` if they do not, and are rows of several documents, whose starts would have to be
    /// read.
    pub(super) fn trained_in_records(&self, batches: &[MicroBatch]) -> Result<Option<u64>> {
        if !self.fields.has_labels() || (self.fields.pieces.is_some() && !self.fields.reads_masks()) {
            return Ok(None);
        }
        if self.sides() > 0 {
            return self.trained_in_completions(batches).map(Some);
        }
        let labels_for = self.options.text.labels_in(self.fields.pieces.is_some());
        let mut count = 0;
        for batch in batches {
            let records = self.read_if(self.fields.reads_masks(), &batch.records)?;
            let (mut lengths, masks) = (Vec::new(), self.masks_of(&records)?);
            self.source.lengths().lengths_of(&batch.records, &mut lengths)?;
            let stored = |row: usize| lengths.get(row).map(|&length| length as usize);
            count += trained(labels_for, &self.pieces_of(&records, &batch.lengths, stored)?, &masks);
        }
        Ok(Some(count))
    }

    /// Returns the number of tokens of packed rows that the loss is computed on, as [`Batch::trained`] does.
    pub(super) fn trained_in_rows(&self, rows: &[Row]) -> Result<Option<u64>> {
        if !self.fields.has_labels() {
            return Ok(None);
        }
        let pieces = rows.iter().flat_map(|row| &row.pieces);
        let ordinals: Vec<u64> = pieces.map(|piece| piece.document).collect();
        let records = self.read_if(self.fields.reads_masks(), &ordinals)?;
        let labels_for = self.options.text.labels_in(true);
        Ok(Some(trained(labels_for, &Pieces::of_rows(rows)?, &self.masks_of(&records)?)))
    }

    /// Calls `read` with the token ids of the records `ordinals`, taken from `records` if these were already read, and
    /// returns its result. Passes no ids if no column needs them.
    fn with_ids<T>(
        &self,
        ordinals: &[u64],
        records: &[Record],
        mut read: impl FnMut(&[Ids<&[u8]>]) -> Result<T>,
    ) -> Result<T> {
        match self.fields.payload.filter(|_| self.fields.reads_tokens()) {
            None => read(&[]),
            Some(index) if records.is_empty() => {
                let mut made = None;
                let mut read = |ids: &[Ids<&[u8]>]| {
                    made = Some(check_number(ids.len(), ordinals).and_then(|()| read(ids)));
                };
                self.source.lend_ids(ordinals, index, &mut read)?;
                made.unwrap_or_else(|| Err(Error::internal("the source of the records lends no ids")))
            }
            Some(index) => read(&ids_in(records, index)?),
        }
    }

    /// Returns the number of tokens by which rows become wider.
    fn padding_multiple(&self) -> usize {
        match &self.options.batching {
            Batching::Records(batches) if self.fields.pieces.is_none() => {
                usize::try_from(batches.pad_to_multiple_of).unwrap_or(1)
            }
            _ => 1,
        }
    }

    /// Makes the batch of `text`, whose stored fields are in `records`, with their epochs if these differ.
    fn rows(
        &self,
        id: BatchId,
        mut text: TokenRows<'_>,
        shape: Option<ImageShape>,
        (records, epochs): (&[Record], &[u64]),
        scratch: &mut DecodeScratch,
        stop: &AtomicBool,
    ) -> Result<Batch> {
        // A record of preference data has several rows, but its stored fields one value.
        let rows = text.rows() / self.sides().max(1);
        text.check()?;
        let (images_of_chats, vision) =
            (text.images.map(|images| images.rows()), self.fields.vision.as_ref());
        let dummy = match vision.filter(|_| self.adds_dummy_images()) {
            Some(vision) => text.add_dummy(vision.processor.merge_size, self.padding_multiple()),
            None => None,
        };
        let chats = vision.zip(images_of_chats);
        let epoch_of = |row: usize| epochs.get(row).copied().unwrap_or(id.epoch);
        let kept =
            (!self.drops.is_empty()).then(|| Drop::apply(&self.drops, records, self.options.seed, epoch_of));
        let records = kept.as_deref().unwrap_or(records);
        let images = |field_index| ImageRows {
            source: &*self.source,
            records,
            rows,
            shape,
            field_index,
            raw_channels: self.properties.raw_channels,
            options: &self.options.image,
            seed: self.options.seed,
            epoch: id.epoch,
            epochs,
            pool: &self.pool,
        };
        let is_mirrored = |row: usize, record: &Record| {
            let mut random = images(0).random(row, record);
            View::of(&self.options.image, 1, 1, &mut random).mirrored
        };
        // Images and masks first, because other columns depend on which rows are blank.
        let mut decoded = VecDeque::new();
        let mut blank: Vec<BlankRow> = Vec::new();
        for (_, field) in &self.fields.columns {
            let (column, without) = match *field {
                BatchField::Image(index) => images(index).column(scratch, stop)?,
                BatchField::Mask(index) => images(index).masks(stop)?,
                _ => continue,
            };
            decoded.push_back(column);
            let is_new = |row: &BlankRow| blank.iter().all(|other| other.row != row.row);
            let without: Vec<BlankRow> = without.into_iter().filter(is_new).collect();
            blank.extend(without);
        }
        blank.sort_by_key(|row| row.row);
        let mut columns = Vec::with_capacity(self.fields.columns.len());
        for (name, field) in &self.fields.columns {
            let column = match *field {
                BatchField::Image(_) | BatchField::Mask(_) => match decoded.pop_front() {
                    Some(column) => column,
                    None => continue, // never: each has a decoded column
                },
                BatchField::PixelValues => match chats {
                    Some((vision, rows)) => {
                        let records = (&*self.source, records);
                        let options = &self.options.vision;
                        match vision.pixel_values(records, rows, dummy, options, scratch, stop, &self.pool)? {
                            Some(column) => column,
                            None => continue,
                        }
                    }
                    None => continue, // never: the batch has images
                },
                BatchField::UseCache => Column::Flag(false),
                BatchField::ImageGrids => {
                    match chats.and_then(|(_, rows)| rows.image_grids(&self.pool, dummy)) {
                        Some(column) => column,
                        None => continue,
                    }
                }
                BatchField::Label(index) => stored::labels(&self.pool, records, rows, index, &blank),
                BatchField::PerBox(index, ty) => images(index).boxes(ty, &blank)?,
                BatchField::PerToken { index, array, aligned } => text.per_token(index, array, aligned)?,
                BatchField::Mirrored { index, twin, ty } => {
                    let chosen = mirrored(records, index, twin, is_mirrored);
                    stored::column(&self.pool, &chosen, rows, index, ty)?
                }
                BatchField::CropTopLeft { corner, resized, target } => {
                    let of = |record: &Record, index: usize| match record.values().get(index) {
                        Some(Value::Bytes(bytes)) => pair(bytes).unwrap_or_default(),
                        _ => Int32Pair::default(),
                    };
                    let corner_of = |row, record: &Record, [y, x]: Int32Pair| match is_mirrored(row, record) {
                        // What is left of the crop is right of its mirror image.
                        true => {
                            let (all, kept) = (of(record, resized)[1], of(record, target)[1]);
                            [y, all.wrapping_sub(kept).wrapping_sub(x)]
                        }
                        false => [y, x],
                    };
                    stored::pairs(&self.pool, records, rows, corner, corner_of).map_err(|record| {
                        Error::corrupt(format!("a value of {CROP_TOP_LEFT:?} is no pair"))
                            .at_row(record.ordinal())
                    })?
                }
                BatchField::Joined(index, ty) => joined::column(&text, index, ty)?,
                BatchField::Stored(index, ty) => stored::column(&self.pool, records, rows, index, ty)?,
                BatchField::Padded { index, array, axis } => {
                    padded(&self.pool, records, rows, index, array, axis).map_err(|record| {
                        Error::corrupt(format!("a value of {name:?} is no array")).at_row(record.ordinal())
                    })?
                }
                BatchField::PaddedLengths { index, axis } => lengths(&self.pool, records, rows, index, axis),
                BatchField::StoredValid(index) => stored::validity(&self.pool, records, rows, index),
                BatchField::Valid => stored::valid(&self.pool, rows - text.filler_rows, rows, &blank),
                BatchField::Source => {
                    let ends = &self.properties.part_ends;
                    match self.fields.shape == TokenLayout::Packed {
                        true => stored::sources(&self.pool, ends, text.records_of_pieces()),
                        false => stored::sources(&self.pool, ends, text.records_of_rows()),
                    }
                }
                field => match self.options.text.ids {
                    IdType::Int64 => text.column::<i64>(field)?,
                    IdType::Int32 => text.column::<i32>(field)?,
                },
            };
            columns.push((name.clone(), column));
        }
        Ok(Batch {
            id,
            rows: text.rows(),
            filler_rows: text.filler_rows,
            blank_rows: blank,
            records: text.records.to_vec(),
            tokens: text.tokens() as u64,
            trained: self.fields.has_labels().then(|| text.trained()),
            max_len: text.longest(),
            columns,
            attached: None,
        })
    }
}

/// Checks that a source returns as many records as were requested.
fn check_number(found: usize, requested: &[u64]) -> Result<()> {
    if found == requested.len() {
        return Ok(());
    }
    Err(Error::internal(format!("the source returns {found} records instead of {}", requested.len())))
}
