//! Batches of chats with images: the options, and what the ids of a record tell about its images.

mod grids;
mod options;
#[cfg_attr(not(feature = "decode"), path = "absent.rs")]
mod pixels;
mod tokens;

use dsconvert_dataset::error::{Error, ErrorKind, Result};
use dsconvert_dataset::sample::Ids;
use dsconvert_dataset::schema::Schema;
use dsconvert_dataset::schema::multimodal::{IMAGE_GRIDS, IMAGES};
use dsconvert_vision::{Grid, Processor, add_positions};

use self::grids::grids_of;
pub(super) use self::options::{check_layout, for_source};
pub(super) use self::tokens::ImageTokens;
use super::pieces::{Pieces, StoredPiece};
use crate::{Record, RecordSource};

/// Name of the array that is 1 for the tokens of images and 0 for all others.
pub(super) const MM_TOKEN_TYPE_IDS: &str = "mm_token_type_ids";
/// Name of the array with the patches of all images.
pub(super) const PIXEL_VALUES: &str = "pixel_values";
/// Name of the switch that turns off the cache of keys and values.
pub(super) const USE_CACHE: &str = "use_cache";
/// Name of the array with the grids of all images.
pub(super) const IMAGE_GRID_THW: &str = "image_grid_thw";

/// What a batch needs of records with images.
#[derive(Debug)]
pub(super) struct VisionFields {
    /// Index of the field of encoded images.
    #[cfg_attr(not(feature = "decode"), expect(dead_code, reason = "only the decoder reads it"))]
    pub(super) images: usize,
    /// Index of the field of their grids.
    pub(super) grids: usize,
    pub(super) processor: Processor,
}

impl VisionFields {
    /// Returns `None` if records have no images whose tokens are among their ids, or if their processor is unknown.
    pub(super) fn of(source: &dyn RecordSource) -> Result<Option<Self>> {
        let schema = source.schema();
        match source.properties().vision.filter(|_| schema.holds_multimodal()) {
            Some(processor) => {
                let (images, grids) = (field(schema, IMAGES)?, field(schema, IMAGE_GRIDS)?);
                Ok(Some(Self { images, grids, processor }))
            }
            None => Ok(None),
        }
    }

    /// Reads the grids of `records` and compares them with the image tokens among the `ids` of each.
    pub(super) fn rows(
        &self,
        source: &dyn RecordSource,
        records: &[Record],
        ids: &[Ids<&[u8]>],
        pieces: &Pieces,
    ) -> Result<VisionRows> {
        let grids = records.iter().map(|record| grids_of(source, record, self.grids));
        let grids = grids.collect::<Result<Vec<_>>>()?;
        let starts = vec![0; records.len()];
        let mut rows = VisionRows { positions: vec![Vec::new(); records.len()], starts, grids };
        let mut used = vec![0; records.len()];
        let mut all = pieces.rows().flatten().peekable();
        while let Some(piece) = all.next() {
            let is_last = all.peek().is_none_or(|next| next.record != piece.record);
            let (Some(record), Some(ids)) = (records.get(piece.record), ids.get(piece.record)) else {
                return Err(Error::internal("a piece has no record"));
            };
            rows.add(source, (record, ids), *piece, &mut used, is_last, &self.processor)?;
        }
        Ok(rows)
    }
}

fn field(schema: &Schema, name: &str) -> Result<usize> {
    schema.index_of(name).ok_or_else(|| {
        Error::usage(format!("a batch of chats with images needs the field {name:?}, which is not selected"))
    })
}

/// The images of the records of a batch, without their pixels.
#[derive(Debug)]
pub(super) struct VisionRows {
    /// The grids of the images of each record.
    pub(super) grids: Vec<Vec<Grid>>,
    /// Positions in time, in the rows and in the columns, of the tokens of each record that are used.
    positions: Vec<Vec<[u32; 3]>>,
    /// The token of each record that the first of its positions is of.
    starts: Vec<usize>,
}

impl VisionRows {
    /// Adds the positions of a piece.
    fn add(
        &mut self,
        source: &dyn RecordSource,
        (record, ids): (&Record, &Ids<&[u8]>),
        piece: StoredPiece,
        used: &mut [usize],
        is_last: bool,
        processor: &Processor,
    ) -> Result<()> {
        let at = piece.record;
        let (Some(grids), Some(positions), Some(start), Some(used)) =
            (self.grids.get(at), self.positions.get_mut(at), self.starts.get_mut(at), used.get_mut(at))
        else {
            return Err(Error::internal("a piece has no record"));
        };
        if positions.is_empty() {
            *start = piece.start;
        }
        let refused = |kind, what: String| Err(of_record(source, record, kind, what));
        let is_cut = piece.start > 0 && positions.is_empty() || is_last && piece.end < ids.len();
        if is_cut && !grids.is_empty() {
            let what = format!(
                "the tokens {} to {} of {} cannot be a row: a record with images is never cut",
                piece.start,
                piece.end,
                ids.len()
            );
            return refused(ErrorKind::Usage, what)
                .map_err(|error: Error| error.help("use longer rows, or batches without packing"));
        }
        let rest = grids.get(*used..).unwrap_or_default();
        let of_piece = ids.iter().skip(piece.start).take(piece.len());
        let added =
            add_positions(of_piece, processor.image_token_id, processor.merge_size, rest, *used, positions);
        match added {
            Ok(images) => *used += images,
            Err(mismatch) => return refused(ErrorKind::Corrupt, mismatch.to_string()),
        }
        if is_last && *used < grids.len() {
            let token = &processor.image_token;
            let what = format!("it has {} images, and {token} stands for {used} of them", grids.len());
            return refused(ErrorKind::Corrupt, what);
        }
        Ok(())
    }

    /// Returns the positions of the tokens of a piece.
    pub(super) fn positions(&self, piece: StoredPiece) -> &[[u32; 3]] {
        let start = piece.start - self.starts.get(piece.record).copied().unwrap_or(0).min(piece.start);
        let all = self.positions.get(piece.record).map_or(&[][..], Vec::as_slice);
        all.get(start..start + piece.len()).unwrap_or_default()
    }

    /// Returns the grids of all images, in the order of their tokens.
    pub(super) fn all_grids(&self) -> impl Iterator<Item = &Grid> {
        self.grids.iter().flatten()
    }
}

/// Returns an error about the images of a record.
fn of_record(source: &dyn RecordSource, record: &Record, kind: ErrorKind, what: String) -> Error {
    let (ordinal, split) = (record.ordinal(), source.name());
    let key = record.key().map(|key| format!(", key {key:?}")).unwrap_or_default();
    source.at_record(Error::new(kind, format!("record {ordinal} of split {split:?}{key}: {what}")), ordinal)
}
