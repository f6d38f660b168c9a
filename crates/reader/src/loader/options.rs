//! Options of a loader, and their validation.

use std::sync::Arc;

use dsconvert_dataset::error::{Error, Result};
use dsconvert_dataset::sample::Value;
use dsconvert_dataset::schema::multimodal::PATCHES;
use dsconvert_vision::Processor;
use serde::{Deserialize, Serialize};

use crate::RecordSource;
use crate::batch::{Batching, ColumnBudget, Last, Layout, Lengths, MAX_BATCH_TOKENS, Oversize};
use crate::range::check_in_range;

/// Default number of batches that are made before they are requested, in addition to one per thread.
pub const DEFAULT_PREFETCH_MARGIN: usize = 2;
/// Maximum number of threads of one loader.
pub const MAX_THREADS: usize = 1024;
/// Maximum number of batches that are made before they are requested.
pub const MAX_PREFETCH: usize = 1 << 16;
/// Maximum side of a crop, in pixels.
pub const MAX_CROP: u32 = 1 << 14;

/// Returns whether records of `source` may have images that some of their tokens stand for. The record index tells it, also where
/// the fields of images are not selected.
fn may_have_images(source: &dyn RecordSource) -> Result<bool> {
    let (lengths, ends) = (source.lengths(), source.properties().part_ends);
    for start in std::iter::once(0).chain(ends).filter(|start| *start < lengths.records()) {
        if lengths.column_of(start, PATCHES)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Options of a [`Loader`](super::Loader).
///
/// `batching`, `seed` and `micro_batches` determine the records of each step, and are fixed once training has started.
/// The layout may change at any step, everything else at any time.
#[derive(Debug, Clone, PartialEq)]
pub struct LoaderOptions {
    /// How records are grouped into batches.
    pub batching: Batching,
    /// Seed of order and augmentation.
    pub seed: u64,
    /// Number of micro-batches of a global step over all ranks (`G`); `None`: one per rank.
    pub micro_batches: Option<u64>,
    /// The rank of this loader, and the number of ranks.
    pub layout: Layout,
    /// Number of threads that make batches; 0: batches are made by the calling thread.
    pub threads: usize,
    /// Maximum number of batches that are ready or in progress before they are requested; `None`: `threads` +
    /// [`DEFAULT_PREFETCH_MARGIN`]. At most this many threads have work.
    pub prefetch: Option<usize>,
    /// Names of the columns of a batch, in this order; `None`: the defaults of the kind. `docs/reference/loader.md`
    /// lists them.
    pub fields: Option<Vec<String>>,
    /// Names of fields of arrays with one open axis that are padded with zeros to the longest of a batch. The column
    /// `NAME.lengths` follows each.
    pub pad_fields: Vec<String>,
    /// Fields whose values are left out in a share of the records.
    pub drop: Vec<DropField>,
    /// How images are decoded and brought to one size.
    pub image: ImageBatchOptions,
    /// How token ids are laid out.
    pub text: TextBatchOptions,
    /// How the images of chats become patches.
    pub vision: VisionBatchOptions,
}

impl LoaderOptions {
    /// Creates the default options: seed 0, one rank, as many threads as the machine has.
    pub fn new(batching: impl Into<Batching>) -> Self {
        Self {
            batching: batching.into(),
            seed: 0,
            micro_batches: None,
            layout: Layout::SINGLE,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            prefetch: None,
            fields: None,
            pad_fields: Vec::new(),
            drop: Vec::new(),
            image: ImageBatchOptions::default(),
            text: TextBatchOptions::default(),
            vision: VisionBatchOptions::default(),
        }
    }

    /// Returns the maximum number of batches that are ready or in progress at once.
    pub(super) fn in_flight(&self) -> usize {
        self.prefetch.unwrap_or(self.threads + DEFAULT_PREFETCH_MARGIN)
    }

    /// Returns the options for the records of `source`, which may be rows that are already packed.
    pub(super) fn for_source(mut self, source: &Arc<dyn RecordSource>) -> Result<Self> {
        if let Batching::Records(batches) = &self.batching
            && batches.oversize == Oversize::Truncate
            && !source.can_be_cut()
        {
            let what =
                if source.schema().holds_images() { "images cannot be cut" } else { "only texts can be cut" };
            return Err(Error::usage(format!("`oversize \"truncate\"` does not apply: {what}"))
                .help("use another oversize policy"));
        }
        if let Batching::Records(batches) = &self.batching
            && batches.oversize == Oversize::Truncate
            && may_have_images(&**source)?
        {
            let what = "`oversize \"truncate\"` does not apply: a record with images is never cut";
            return Err(Error::usage(what).help("use another oversize policy"));
        }
        if let Batching::Packed(packed) = &mut self.batching
            && packed.budget.is_none()
            && may_have_images(&**source)?
        {
            // A cut could be inside an image, so documents are whole, also without a limit of patches.
            packed.budget = Some(ColumnBudget { column: PATCHES.to_owned(), max: MAX_BATCH_TOKENS });
        }
        let (Some(length), StoredPacking::Keep) =
            (source.properties().packed_length, self.text.stored_packing)
        else {
            return Ok(self);
        };
        self.batching = match self.batching {
            Batching::Records(batches) => Batching::Records(batches.for_records_of(&**source)),
            Batching::Packed(_) => {
                let what = format!(
                    "`seq_len` does not apply: the records are packed already, in rows of up to {length} tokens"
                );
                return Err(Error::usage(what).help(
                    "leave out `seq_len` to load the rows as they are stored, with position_ids and cu_seqlens; or set \
                     stored_packing to \"ignore\" to pack each row as if it were one document",
                ));
            }
        };
        if self.text.pad_side == PadSide::Left {
            return Err(Error::usage(
                "pad_side \"left\" does not apply: packed rows are filled from the left",
            ));
        }
        Ok(self)
    }

    /// Checks all numbers except those of the plan, which checks its own.
    pub(super) fn check(&self) -> Result<()> {
        check_in_range("threads", self.threads, 0..=MAX_THREADS)?;
        check_in_range("prefetch", self.in_flight(), 1..=MAX_PREFETCH)?;
        self.image.check()?;
        self.text.check()?;
        let (is_flash, is_flat) = (self.text.packed == PackedLayout::Flash, self.batching.is_flat());
        if is_flash && self.batching.last() == Last::Pad {
            return Err(Error::usage(
                "last \"pad\" does not apply: with packed \"flash\", nothing is padded",
            )
            .help("use another policy for the last step"));
        }
        if self.text.labels_for == Some(LabelsFor::Megatron)
            && (is_flash || is_flat || self.text.pad_side == PadSide::Left)
        {
            let cause = match (is_flash, is_flat) {
                (true, _) => "packed \"flash\"",
                (_, true) => "max_tokens_unpadded",
                _ => "pad_side \"left\"",
            };
            return Err(Error::usage(format!("{cause} does not apply with labels_for \"megatron\""))
                .help("Megatron-LM takes rows of one length that are padded at the right: use seq_len"));
        }
        Ok(())
    }
}

/// Order of the dimensions of a batch of images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ImageLayout {
    /// Rows, height, width, channels: as decoded, and the memory layout of torch's `channels_last`.
    #[default]
    Hwc,
    /// Rows, channels, height, width.
    Chw,
}

/// The samples of a pixel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Channels {
    /// 3: red, green, blue. Gray images have three equal samples; an alpha channel is dropped.
    #[default]
    Rgb,
    /// 1: luma (BT.601).
    Gray,
    /// Planes of luma and chroma, as they are stored: for images converted with `--encode yuv420` or `yuv444`.
    Yuv,
}

impl Channels {
    /// Returns the number of interleaved samples per pixel; `None` for planes.
    pub fn count(self) -> Option<usize> {
        match self {
            Channels::Rgb => Some(3),
            Channels::Gray => Some(1),
            Channels::Yuv => None,
        }
    }
}

/// The part of an image that is used. All images of a batch have one size.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub enum Crop {
    /// The whole image: the images of a batch must have one size.
    #[default]
    None,
    /// The center. An image that is smaller in one direction is first enlarged, just enough to cover the crop.
    Center {
        /// Pixels.
        height: u32,
        /// Pixels.
        width: u32,
    },
    /// A random part, resized (bilinear, antialiased): torchvision's `RandomResizedCrop`.
    RandomResized {
        /// Pixels of the result.
        height: u32,
        /// Pixels of the result.
        width: u32,
        /// Minimum and maximum fraction of the area that is used.
        scale: (f64, f64),
        /// Minimum and maximum width ÷ height of the part; its logarithm is drawn uniformly.
        ratio: (f64, f64),
    },
}

impl Crop {
    /// torchvision's default scale.
    pub const SCALE: (f64, f64) = (0.08, 1.0);
    /// torchvision's default ratio.
    pub const RATIO: (f64, f64) = (3.0 / 4.0, 4.0 / 3.0);

    /// Returns a center crop of `height` × `width`.
    pub fn center(height: u32, width: u32) -> Self {
        Crop::Center { height, width }
    }

    /// Returns a random crop, resized to `height` × `width`, with [`Crop::SCALE`] and [`Crop::RATIO`].
    pub fn random_resized(height: u32, width: u32) -> Self {
        Crop::RandomResized { height, width, scale: Self::SCALE, ratio: Self::RATIO }
    }
}

/// What happens to a record whose image does not decode. Damage to the dataset itself is always an error: a record that
/// does not match its checksum or cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Undecodable {
    /// An error that names the record takes the place of its batch.
    #[default]
    Error,
    /// The row of the record stays and is blank: pixels are 0, `label` is −100, and `valid`, which is then a default
    /// column, is false. All batches, their number, and states stay the same.
    /// [`Batch::blank_rows`](super::Batch::blank_rows) names the record.
    Blank,
}

/// How images are decoded. Random choices are a function of seed, epoch and ordinal of the record.
#[derive(Debug, Clone, PartialEq)]
pub struct ImageBatchOptions {
    /// Whether images are decoded. If not, `image` is a list of encoded images.
    pub decode: bool,
    /// The part of an image that is used.
    pub crop: Crop,
    /// Probability of a horizontal flip.
    pub hflip: f64,
    /// Order of the dimensions.
    pub layout: ImageLayout,
    /// The samples of a pixel.
    pub channels: Channels,
    /// What happens to images that do not decode.
    pub undecodable: Undecodable,
}

impl Default for ImageBatchOptions {
    fn default() -> Self {
        Self {
            decode: true,
            crop: Crop::None,
            hflip: 0.0,
            layout: ImageLayout::Hwc,
            channels: Channels::Rgb,
            undecodable: Undecodable::Error,
        }
    }
}

impl ImageBatchOptions {
    /// Returns whether a row with a record may be blank.
    pub(super) fn may_be_blank(&self) -> bool {
        self.decode && self.undecodable == Undecodable::Blank
    }

    fn check(&self) -> Result<()> {
        check_in_range("hflip", self.hflip, 0.0..=1.0)?;
        if self.channels == Channels::Yuv && self.layout == ImageLayout::Chw {
            return Err(Error::usage("layout \"chw\" does not apply: planes have a layout of their own"));
        }
        match self.crop {
            Crop::None => Ok(()),
            Crop::Center { height, width } => check_sides("center_crop", height, width),
            Crop::RandomResized { height, width, scale, ratio } => {
                check_sides("random_resized_crop", height, width)?;
                check_limits("crop_scale", scale, 1e-6, 1.0)?;
                check_limits("crop_ratio", ratio, 1e-3, 1e3)
            }
        }
    }
}

fn check_sides(name: &str, height: u32, width: u32) -> Result<()> {
    if [height, width].iter().all(|side| (1..=MAX_CROP).contains(side)) {
        return Ok(());
    }
    let what = format!("{name} is {height} × {width} pixels: each side must be between 1 and {MAX_CROP}");
    Err(Error::usage(what))
}

/// Checks a pair of a minimum and a maximum.
fn check_limits(name: &str, (smallest, largest): (f64, f64), least: f64, most: f64) -> Result<()> {
    if least <= smallest && smallest <= largest && largest <= most {
        return Ok(());
    }
    Err(Error::usage(format!(
        "{name} is ({smallest}, {largest}), not a minimum and a maximum between {least} and {most}"
    )))
}

/// Type of token ids in a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum IdType {
    /// The type that embedding layers of torch take.
    #[default]
    Int64,
    /// Half the memory.
    Int32,
}

/// The side of a row that is padded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PadSide {
    /// Tokens first.
    #[default]
    Right,
    /// Tokens last: for generation.
    Left,
}

/// The token that is the label of a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LabelsFor {
    /// The token at the position itself, for models that shift labels themselves, such as those of Hugging Face. The
    /// first token of each document is ignored wherever such a model would predict it from another document or from
    /// padding.
    #[serde(rename = "huggingface")]
    HuggingFace,
    /// The next token of the document, for a loss that compares logits and labels position by position. The last token
    /// of a document has no label.
    NextToken,
    /// The same labels, in batches with the entries of Megatron-LM's dataset for fine-tuning: `tokens`, `labels`,
    /// `loss_mask`, `position_ids`, `cu_seqlens` and `max_seqlen`.
    Megatron,
}

/// How several documents are laid out in one array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PackedLayout {
    /// As the batching says: rows of one length, or an array of one dimension.
    #[default]
    Rows,
    /// One row with all documents of the batch and no padding, and their boundaries in the arguments that models of Hugging
    /// Face pass on to FlashAttention.
    Flash,
}

/// What happens to rows of several documents that were packed when the dataset was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StoredPacking {
    /// They are returned as they were packed, with `position_ids`, `cu_seqlens` and labels that stop at each document.
    #[default]
    Keep,
    /// Each row is treated as one document: it may be padded, packed again, and attended to across documents.
    Ignore,
}

/// The order of the rows of preference pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PairOrder {
    /// All chosen ones, then all rejected ones, as TRL has them.
    #[default]
    Stacked,
    /// Chosen and rejected ones in turn, as NeMo RL has them.
    Alternating,
}

/// Type of the patches of images in a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum PatchType {
    /// Normalized, each frame of a patch: the values that the image processor returns.
    #[default]
    Float32,
    /// Samples that are not normalized, one frame of a patch: an eighth of the bytes, if patches have two frames.
    UInt8,
}

/// How the images of chats become patches.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct VisionBatchOptions {
    /// Type of the patches.
    pub patches: PatchType,
    /// Whether a batch without images gets an image without effect, so that every rank computes the vision tower in every step.
    /// `None`: if there are several ranks.
    pub dummy_image: Option<bool>,
    /// The processor of the model, which must be that of the dataset. `None`: not compared.
    pub processor: Option<Processor>,
}

/// A field whose value is replaced in a share of the records, drawn for each record and epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct DropField {
    /// Name of the field.
    pub field: String,
    /// Share of the records, from 0 to 1.
    pub probability: f64,
    /// The value in its place: [`Value::Null`], or one of the type of the field.
    pub value: Value,
}

/// How token ids are laid out. Packed rows are always filled from the left.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TextBatchOptions {
    /// Type of `input_ids`, `labels`, `attention_mask` and `position_ids`.
    pub ids: IdType,
    /// Id of padding. It need not be the id of a token, because masks and labels mark padding.
    pub pad_id: u32,
    /// Side of padding.
    pub pad_side: PadSide,
    /// The convention of `labels`. `None`: [`LabelsFor::NextToken`] in packed rows, [`LabelsFor::HuggingFace`] in all
    /// others and with [`PackedLayout::Flash`].
    pub labels_for: Option<LabelsFor>,
    /// How several documents are laid out.
    pub packed: PackedLayout,
    /// What happens to rows that were packed when the dataset was made.
    pub stored_packing: StoredPacking,
    /// The order of the rows of preference pairs.
    pub pairs: PairOrder,
}

impl TextBatchOptions {
    /// Returns the convention of `labels` in packed rows, or in all others.
    pub fn labels_in(&self, is_packed: bool) -> LabelsFor {
        let default = match (is_packed, self.packed) {
            (true, PackedLayout::Rows) => LabelsFor::NextToken,
            _ => LabelsFor::HuggingFace,
        };
        self.labels_for.unwrap_or(default)
    }

    fn check(&self) -> Result<()> {
        match self.ids {
            IdType::Int32 => check_in_range("pad_id", self.pad_id, 0..=i32::MAX.cast_unsigned()),
            IdType::Int64 => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_numbers_are_refused_by_option_name() {
        let random = |scale, ratio| Crop::RandomResized { height: 8, width: 8, scale, ratio };
        for (crop, what) in [
            (Crop::center(0, 8), "center_crop is 0 × 8 pixels"),
            (Crop::center(8, MAX_CROP + 1), "center_crop is 8 × 16385 pixels"),
            (Crop::random_resized(8, 0), "random_resized_crop is 8 × 0 pixels"),
            (random((0.0, 1.0), Crop::RATIO), "crop_scale is (0, 1)"),
            (random((0.5, 0.4), Crop::RATIO), "crop_scale is (0.5, 0.4)"),
            (random((0.5, 1.1), Crop::RATIO), "crop_scale is (0.5, 1.1)"),
            (random((f64::NAN, 1.0), Crop::RATIO), "crop_scale is (NaN, 1)"),
            (random(Crop::SCALE, (1.0, 1001.0)), "crop_ratio is (1, 1001)"),
        ] {
            let message =
                ImageBatchOptions { crop, ..ImageBatchOptions::default() }.check().unwrap_err().to_string();
            assert!(message.starts_with(what), "{message}");
        }
        for crop in
            [Crop::center(1, MAX_CROP), random((1e-6, 1.0), (1e-3, 1e3)), random((1.0, 1.0), (2.0, 2.0))]
        {
            ImageBatchOptions { crop, ..ImageBatchOptions::default() }.check().unwrap();
        }
    }
}
