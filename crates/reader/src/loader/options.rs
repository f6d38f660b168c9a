//! What a loader is asked for, and the checks of it.

use dsconvert_dataset::error::{Error, Result};

use crate::Split;
use crate::batch::{BatchOptions, Layout, PackOptions};

/// Default number of batches that are made before they are asked for, beside one for each thread.
pub const DEFAULT_PREFETCH_MARGIN: usize = 2;
/// Most threads of one loader.
pub const MAX_THREADS: usize = 1024;
/// Most batches that are made before they are asked for.
pub const MAX_PREFETCH: usize = 1 << 16;
/// Longest side of a crop, in pixels.
pub const MAX_CROP: u32 = 1 << 14;

/// How records become batches.
#[derive(Debug, Clone, PartialEq)]
pub enum Batching {
    /// One record per row.
    Records(BatchOptions),
    /// Documents packed in rows of one length; text only.
    Packed(PackOptions),
}

impl From<BatchOptions> for Batching {
    fn from(options: BatchOptions) -> Self {
        Batching::Records(options)
    }
}

impl From<PackOptions> for Batching {
    fn from(options: PackOptions) -> Self {
        Batching::Packed(options)
    }
}

/// Options of a [`Loader`](super::Loader).
///
/// `batching`, `seed` and `micro_batches` decide which records come when, and are fixed once training has started. The
/// layout may change at any step, everything else at any time.
#[derive(Debug, Clone, PartialEq)]
pub struct LoaderOptions {
    /// How records become batches.
    pub batching: Batching,
    /// Seed of order and augmentation.
    pub seed: u64,
    /// Micro-batches of a global step over all ranks (`G`); `None`: one per rank.
    pub micro_batches: Option<u64>,
    /// Which of the ranks this is.
    pub layout: Layout,
    /// Threads that make batches; 0: they are made by the thread that asks for them.
    pub threads: usize,
    /// Batches that are made or being made before they are asked for; `None`: `threads` +
    /// [`DEFAULT_PREFETCH_MARGIN`]. No more threads than this have work.
    pub prefetch: Option<usize>,
    /// Names of what a batch holds, in this order; `None`: the defaults of the kind. `docs/reference/loader.md` lists them.
    pub fields: Option<Vec<String>>,
    /// How images are brought to one size.
    pub image: ImageOptions,
    /// How token ids are laid out.
    pub text: TextOptions,
}

impl LoaderOptions {
    /// Defaults: seed 0, one rank, as many threads as the machine has.
    pub fn new(batching: impl Into<Batching>) -> Self {
        Self {
            batching: batching.into(),
            seed: 0,
            micro_batches: None,
            layout: Layout::SINGLE,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            prefetch: None,
            fields: None,
            image: ImageOptions::default(),
            text: TextOptions::default(),
        }
    }

    /// Batches that may be there or in the making at once.
    pub(super) fn in_flight(&self) -> usize {
        self.prefetch.unwrap_or(self.threads + DEFAULT_PREFETCH_MARGIN)
    }

    /// The options for the records of `split`, which may be rows that are packed already.
    pub(super) fn for_split(mut self, split: &Split) -> Result<Self> {
        let (Some(length), StoredPacking::Keep) = (split.packed_length(), self.text.stored_packing) else {
            return Ok(self);
        };
        self.batching = match self.batching {
            Batching::Records(batches) => Batching::Records(batches.for_records_of(split)),
            Batching::Packed(_) => {
                let what = format!(
                    "seq_len does not apply: the records are packed already, in rows of up to {length} tokens"
                );
                return Err(Error::usage(what).help(
                    "leave out seq_len, and batch_size rows come as they are stored, with position_ids and cu_seqlens; \
                     or set stored_packing to \"ignore\" to pack each row as if it were one document",
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

    /// Checks every number; the plan checks its own.
    pub(super) fn check(&self) -> Result<()> {
        in_range("threads", self.threads, 0, MAX_THREADS)?;
        in_range("prefetch", self.in_flight(), 1, MAX_PREFETCH)?;
        self.image.check()?;
        self.text.check()
    }
}

fn in_range<T: PartialOrd + std::fmt::Display>(name: &str, value: T, least: T, most: T) -> Result<()> {
    if value >= least && value <= most {
        return Ok(());
    }
    Err(Error::usage(format!("{name} is {value}, not between {least} and {most}")))
}

/// Order of the dimensions of a batch of images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ImageLayout {
    /// Rows, height, width, channels: as decoded, and what `channels_last` of torch is in memory.
    #[default]
    Hwc,
    /// Rows, channels, height, width.
    Chw,
}

/// Samples of a pixel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Channels {
    /// 3: red, green, blue. Grey images have three equal samples; an alpha channel is left out.
    #[default]
    Rgb,
    /// 1: luma (BT.601).
    Gray,
}

impl Channels {
    /// How many.
    pub fn count(self) -> usize {
        match self {
            Channels::Rgb => 3,
            Channels::Gray => 1,
        }
    }
}

/// Which part of an image is taken. All images of a batch come out in one size.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Crop {
    /// All of it: the images of a batch must have one size.
    #[default]
    None,
    /// The middle. An image that is smaller in a direction is first enlarged, just enough to cover the crop.
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
        /// Least and largest share of the area that is taken.
        scale: (f64, f64),
        /// Least and largest width ÷ height of what is taken; the logarithm is drawn evenly.
        ratio: (f64, f64),
    },
}

impl Crop {
    /// torchvision's default scale.
    pub const SCALE: (f64, f64) = (0.08, 1.0);
    /// torchvision's default ratio.
    pub const RATIO: (f64, f64) = (3.0 / 4.0, 4.0 / 3.0);

    /// The middle, `height` × `width`.
    pub fn center(height: u32, width: u32) -> Self {
        Crop::Center { height, width }
    }

    /// A random part, resized to `height` × `width`, with [`Crop::SCALE`] and [`Crop::RATIO`].
    pub fn random_resized(height: u32, width: u32) -> Self {
        Crop::RandomResized { height, width, scale: Self::SCALE, ratio: Self::RATIO }
    }
}

/// What becomes of a record whose image does not decode. Damage to the dataset itself is always an error: a record that is
/// not what was written (its checksum tells), or cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Undecodable {
    /// An error in the place of its batch, which names it.
    #[default]
    Error,
    /// Its row stays, and is blank: pixels are 0, `label` is −100 and `valid`, then there by default, is false. So all
    /// batches, their number, and states are what they were. [`Batch::blank_rows`](super::Batch::blank_rows) names it.
    Blank,
}

/// How images are decoded. Random choices are a function of seed, epoch and ordinal of the record.
#[derive(Debug, Clone, PartialEq)]
pub struct ImageOptions {
    /// Whether they are decoded at all: if not, `image` is a list of encoded images.
    pub decode: bool,
    /// Which part of them.
    pub crop: Crop,
    /// Probability with which an image is mirrored.
    pub hflip: f64,
    /// Order of the dimensions.
    pub layout: ImageLayout,
    /// Samples of a pixel.
    pub channels: Channels,
    /// What becomes of those that do not decode.
    pub undecodable: Undecodable,
}

impl Default for ImageOptions {
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

impl ImageOptions {
    /// Whether a row may be blank though it has a record.
    pub(super) fn may_be_blank(&self) -> bool {
        self.decode && self.undecodable == Undecodable::Blank
    }

    fn check(&self) -> Result<()> {
        in_range("hflip", self.hflip, 0.0, 1.0)?;
        match self.crop {
            Crop::None => Ok(()),
            Crop::Center { height, width } => {
                in_range("the height of the crop", height, 1, MAX_CROP)?;
                in_range("the width of the crop", width, 1, MAX_CROP)
            }
            Crop::RandomResized { height, width, scale, ratio } => {
                in_range("the height of the crop", height, 1, MAX_CROP)?;
                in_range("the width of the crop", width, 1, MAX_CROP)?;
                in_range("the least scale", scale.0, 1e-6, 1.0)?;
                in_range("the largest scale", scale.1, scale.0, 1.0)?;
                in_range("the least ratio", ratio.0, 1e-3, 1e3)?;
                in_range("the largest ratio", ratio.1, ratio.0, 1e3)
            }
        }
    }
}

/// Type of token ids in a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IdType {
    /// What embedding layers of torch take.
    #[default]
    Int64,
    /// Half the memory.
    Int32,
}

/// Side of a row on which padding stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PadSide {
    /// Tokens first.
    #[default]
    Right,
    /// Tokens last: for generation.
    Left,
}

/// Which token is the label of a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabelsFor {
    /// The token at the position itself, for models that shift labels themselves, as those of Hugging Face do. The first
    /// token of each document is ignored wherever such a model would predict it from another document or from padding.
    HuggingFace,
    /// The next token of the document, for a loss that compares logits and labels position by position. The last token
    /// of a document has none.
    NextToken,
}

/// What happens to rows of several documents that were packed when the dataset was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StoredPacking {
    /// They come as they were packed: with `position_ids`, `cu_seqlens` and labels that stop at each document.
    #[default]
    Keep,
    /// Each row is treated as one document: it may be padded, packed again, and attended to across documents.
    Ignore,
}

/// How token ids are laid out. Packed rows are always filled from the left.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TextOptions {
    /// Type of `input_ids`, `labels`, `attention_mask` and `position_ids`.
    pub ids: IdType,
    /// Id of padding; no token of the vocabulary need have it, as masks and labels tell padding apart.
    pub pad_id: u32,
    /// Side of padding.
    pub pad_side: PadSide,
    /// The convention of `labels`. `None`: [`LabelsFor::NextToken`] in packed rows, [`LabelsFor::HuggingFace`] in all
    /// others.
    pub labels_for: Option<LabelsFor>,
    /// Rows that were packed when the dataset was made.
    pub stored_packing: StoredPacking,
}

impl TextOptions {
    /// The convention of `labels` in packed rows, or in all others.
    pub fn labels_in(&self, is_packed: bool) -> LabelsFor {
        let default = if is_packed { LabelsFor::NextToken } else { LabelsFor::HuggingFace };
        self.labels_for.unwrap_or(default)
    }

    fn check(&self) -> Result<()> {
        match self.ids {
            IdType::Int32 => in_range("pad_id", self.pad_id, 0, i32::MAX.cast_unsigned()),
            IdType::Int64 => Ok(()),
        }
    }
}
