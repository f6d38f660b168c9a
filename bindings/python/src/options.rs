//! Options of samplers and loaders, which Python passes as one JSON object.
//!
//! The table below is the only definition of their names, types, defaults and the conditions under which they apply. The
//! allowed words are those that serde accepts for the type; the reader checks ranges. The Python signatures, the
//! docstrings and `docs/reference/python.md` follow the table: `tests/python/test_package_options.py` compares them.

use std::collections::BTreeMap;

use dsconvert::error::{Error, Result};
use dsconvert::packing::Packing;
use dsconvert::reader::batch::{
    BatchOptions, BatchSize, Batching, Boundaries, BucketBy, ColumnBudget, DEFAULT_BLOCK_RECORDS,
    DEFAULT_FIRST_BOUND, DEFAULT_GROUP_BLOCKS, DEFAULT_MAX_WASTE, DEFAULT_RATIO, DEFAULT_WINDOW_STEPS, Last,
    Layout, Oversize, PackOptions, Shuffle,
};
use dsconvert::reader::loader::{
    Channels, Crop, DropField, IdType, ImageBatchOptions, ImageLayout, LabelsFor, LoaderOptions, MAX_THREADS,
    PackedLayout, PadSide, PairOrder, PatchType, StoredPacking, TextBatchOptions, Undecodable,
    VisionBatchOptions,
};
use dsconvert::reader::{
    Exhausted, MixtureEpoch, MixtureOptions, MixtureUnit, OnChange, RecordSource, Weights,
};
use dsconvert::sample::Value;
use dsconvert::schema::multimodal::PATCHES;
use pyo3::pyfunction;
use serde::{Deserialize, Serialize};

use crate::given::{
    ASSEMBLED, BLOCKS, BOUNDED, BUDGET, BY_LENGTH, CHAT_IMAGES, DECODED, GEOMETRIC, Given, IMAGES, LABELED,
    LOADER, MIRRORED, NOT_FLASH, NOT_PLANES, OptionInfo, PACKED, PADDED, PAIRS, PICTURES, RANDOM_CROP,
    STORED_PACKED, TEXT, TOKENS, UNPACKED, WINDOWS,
};
use crate::processor::processor_of;

/// Defines the struct with the values of all options, the function that reads it, and the table for Python, from lines
/// of `name: type = default, [conditions]`.
macro_rules! define_options {
    ($($name:ident: $type:ty = $default:expr, [$($condition:ident),*];)*) => {
        /// The values of all options: the given ones and defaults.
        #[derive(Debug)]
        struct Options {
            $($name: $type,)*
        }

        impl Options {
            fn read(given: &Given<'_>) -> Result<Self> {
                given.check_names(&[$(stringify!($name)),*])?;
                Ok(Self {
                    $($name: given.value(stringify!($name), &[$($condition),*], $default)?,)*
                })
            }
        }

        /// Returns the definitions, in the order of the Python signatures.
        #[pyfunction]
        pub(crate) fn option_table() -> Vec<OptionInfo> {
            vec![$(Given::info::<$type>(stringify!($name), &[$($condition),*], $default)),*]
        }
    };
}

define_options! {
    // Which records form a batch.
    batch_size: Option<u64> = None, [];
    max_tokens: Option<u64> = None, [UNPACKED];
    max_tokens_unpadded: Option<u64> = None, [UNPACKED];
    max_patches: Option<u64> = None, [BOUNDED];
    budget: Option<BTreeMap<String, u64>> = None, [BOUNDED];
    shuffle: ShuffleBy = ShuffleBy::Switch(true), [];
    seed: u64 = 0, [];
    bucket: Option<Buckets> = None, [UNPACKED];
    max_waste: f64 = DEFAULT_MAX_WASTE, [UNPACKED, BY_LENGTH];
    first_boundary: u64 = DEFAULT_FIRST_BOUND, [UNPACKED, GEOMETRIC];
    boundary_ratio: f64 = DEFAULT_RATIO, [UNPACKED, GEOMETRIC];
    window_steps: u64 = DEFAULT_WINDOW_STEPS, [UNPACKED, WINDOWS];
    block_records: u64 = DEFAULT_BLOCK_RECORDS, [BLOCKS];
    block_group: u64 = DEFAULT_GROUP_BLOCKS, [BLOCKS];
    longest_first: bool = batches().longest_first, [UNPACKED];
    oversize: Oversize = batches().oversize, [UNPACKED, BUDGET];
    last: Last = batches().last, [];
    // Contents, threads and ranks.
    fields: Option<Vec<String>> = None, [LOADER];
    pad_fields: Option<Vec<String>> = None, [LOADER, ASSEMBLED];
    drop: Option<BTreeMap<String, (f64, serde_json::Value)>> = None, [LOADER, ASSEMBLED];
    num_threads: Option<usize> = None, [LOADER];
    prefetch: Option<usize> = None, [LOADER];
    micro_batches: Option<u64> = None, [];
    // Images.
    max_pixels: Option<u64> = None, [IMAGES, UNPACKED];
    decode: bool = ImageBatchOptions::default().decode, [LOADER, IMAGES, PICTURES];
    center_crop: Option<CropSize> = None, [LOADER, IMAGES, PICTURES, DECODED, ASSEMBLED];
    random_resized_crop: Option<CropSize> = None, [LOADER, IMAGES, PICTURES, DECODED, ASSEMBLED];
    crop_scale: (f64, f64) = Crop::SCALE, [LOADER, IMAGES, PICTURES, DECODED, RANDOM_CROP, ASSEMBLED];
    crop_ratio: (f64, f64) = Crop::RATIO, [LOADER, IMAGES, PICTURES, DECODED, RANDOM_CROP, ASSEMBLED];
    hflip: f64 = ImageBatchOptions::default().hflip, [LOADER, IMAGES, MIRRORED, DECODED, ASSEMBLED];
    layout: ImageLayout = ImageLayout::default(), [LOADER, IMAGES, PICTURES, DECODED, NOT_PLANES, ASSEMBLED];
    channels: u64 = 3, [LOADER, IMAGES, PICTURES, DECODED, NOT_PLANES, ASSEMBLED];
    color: ImageColor = ImageColor::Rgb, [LOADER, IMAGES, PICTURES, DECODED, ASSEMBLED];
    undecodable: Undecodable = Undecodable::default(), [LOADER, IMAGES, PICTURES, DECODED, ASSEMBLED];
    // Text.
    seq_len: Option<u64> = None, [LOADER, TEXT, ASSEMBLED];
    packing: Packing = PackOptions::new(1, 1).packing, [LOADER, TEXT, PACKED, ASSEMBLED];
    pack_window: Option<u64> = None, [LOADER, TEXT, PACKED, ASSEMBLED];
    packed: PackedLayout = PackedLayout::default(), [LOADER, TEXT, TOKENS, ASSEMBLED];
    pad_id: u32 = TextBatchOptions::default().pad_id, [LOADER, TEXT, TOKENS, PADDED, NOT_FLASH, ASSEMBLED];
    pad_side: PadSide = PadSide::default(), [LOADER, TEXT, TOKENS, UNPACKED, PADDED, NOT_FLASH, ASSEMBLED];
    pad_to_multiple_of: u64 = batches().pad_to_multiple_of, [TEXT, UNPACKED, PADDED, NOT_FLASH];
    labels_for: Option<LabelsFor> = None, [LOADER, TEXT, LABELED, ASSEMBLED];
    stored_packing: StoredPacking = StoredPacking::default(), [LOADER, TEXT, STORED_PACKED];
    pairs: PairOrder = PairOrder::default(), [LOADER, TEXT, PAIRS, ASSEMBLED];
    id_dtype: IdType = IdType::default(), [LOADER, TEXT, TOKENS, ASSEMBLED];
    // Chats with images.
    pixels: PatchType = PatchType::default(), [LOADER, CHAT_IMAGES, ASSEMBLED];
    dummy_image: Option<bool> = None, [LOADER, CHAT_IMAGES, ASSEMBLED];
}

/// Returns the default batch options, for the fields whose defaults do not depend on the batch size.
fn batches() -> BatchOptions {
    BatchOptions::new(BatchSize::BatchSize(1))
}

/// Value of `shuffle`.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected true, false, `full`, `none` or `block`")]
enum ShuffleBy {
    Switch(bool),
    Name(ShuffleName),
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ShuffleName {
    Full,
    None,
    Block,
}

/// Value of `bucket`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "expected `none`, `length`, `geometric`, `windows`, `shape` or a list of boundaries"
)]
enum Buckets {
    Name(BucketName),
    Boundaries(Vec<u64>),
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum BucketName {
    None,
    Length,
    Geometric,
    Windows,
    Shape,
}

/// Value of `color`.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ImageColor {
    Rgb,
    Yuv,
}

/// Size of a crop: the side of a square, or height and width.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a number of pixels, or height and width")]
enum CropSize {
    Square(u32),
    Sides(u32, u32),
}

impl CropSize {
    fn height_and_width(self) -> (u32, u32) {
        match self {
            CropSize::Square(side) => (side, side),
            CropSize::Sides(height, width) => (height, width),
        }
    }
}

/// Parses the options of a sampler: those of its batches, the seed, and the number of micro-batches.
pub(crate) fn sampler_options(json: &str) -> Result<(BatchOptions, u64, Option<u64>)> {
    let given = Given::parse(json, None, true)?;
    let options = Options::read(&given)?;
    Ok((options.batches(&given)?, options.seed, options.micro_batches))
}

/// Parses the options of a loader, including those of its batches. If `assemble` is false, its batches have no columns,
/// because a function of the user returns the contents.
pub(crate) fn loader_options(
    json: &str,
    rank_layout: Layout,
    source: &dyn RecordSource,
    processor: Option<&str>,
    assemble: bool,
) -> Result<LoaderOptions> {
    let given = Given::parse(json, Some(source), assemble)?;
    let options = Options::read(&given)?;
    if !assemble && options.last == Last::Pad {
        return Err(Error::usage("last='pad' does not apply: with transform, every row has a record"));
    }
    let batching = match options.seq_len {
        Some(seq_len) => Batching::Packed(options.packed(seq_len)?),
        None => Batching::Records(options.batches(&given)?),
    };
    let defaults = LoaderOptions::new(batching);
    let threads = options.num_threads.unwrap_or(defaults.threads);
    if threads > MAX_THREADS {
        return Err(Error::usage(format!("num_threads is {threads}, not between 0 and {MAX_THREADS}")));
    }
    Ok(LoaderOptions {
        seed: options.seed,
        micro_batches: options.micro_batches,
        layout: rank_layout,
        threads,
        prefetch: options.prefetch,
        image: options.image()?,
        text: options.text(),
        vision: VisionBatchOptions {
            patches: options.pixels,
            dummy_image: options.dummy_image,
            processor: processor.map(|files| processor_of(files, source)).transpose()?,
        },
        drop: options.drop.into_iter().flatten().map(drop_field).collect::<Result<_>>()?,
        fields: if assemble { options.fields } else { Some(Vec::new()) },
        pad_fields: options.pad_fields.unwrap_or_default(),
        ..defaults
    })
}

/// Returns the field that is dropped with a probability, and the value in its place.
fn drop_field((field, (probability, value)): (String, (f64, serde_json::Value))) -> Result<DropField> {
    use serde_json::Value as Json;
    let value = match &value {
        Json::Null => Some(Value::Null),
        Json::Bool(value) => Some(Value::Bool(*value)),
        Json::String(text) => Some(Value::Text(text.as_str().into())),
        Json::Number(number) => number.as_i64().map(Value::Int).or(number.as_f64().map(Value::Float)),
        Json::Array(_) | Json::Object(_) => None,
    };
    let value = value.ok_or_else(|| {
        Error::usage(format!("drop cannot replace {field:?} by a list or a dictionary"))
            .help("None leaves the value out")
    })?;
    Ok(DropField { field, probability, value })
}

/// Parses the options of a mixture.
pub(crate) fn mixture_options(json: &str) -> Result<MixtureOptions> {
    let given = Given::parse(json, None, true)?;
    let epoch_tokens: Option<u64> = given.value("epoch_tokens", &[], None)?;
    let epoch_steps: Option<u64> = given.value("epoch_steps", &[], None)?;
    let epoch = match (epoch_tokens, epoch_steps) {
        (Some(_), Some(_)) => return Err(Error::usage("give epoch_tokens or epoch_steps, not both")),
        (tokens, steps) => tokens.map(MixtureEpoch::Tokens).or(steps.map(MixtureEpoch::Steps)),
    };
    Ok(MixtureOptions {
        weights: given.value("weights", &[], Weights::new())?,
        unit: given.value("unit", &[], MixtureUnit::default())?,
        mix: given.value("mix", &[], None)?,
        exhausted: given.value("exhausted", &[], Exhausted::default())?,
        epoch,
        schedule: given.value("schedule", &[], Vec::new())?,
        on_change: given.value("on_change", &[], OnChange::default())?,
    })
}

impl Options {
    fn batches(&self, given: &Given<'_>) -> Result<BatchOptions> {
        let sizes = [
            self.batch_size.map(BatchSize::BatchSize),
            self.max_tokens.map(BatchSize::MaxTokens),
            self.max_tokens_unpadded.map(BatchSize::MaxTokensUnpadded),
            // The tokens of an image are its pixels.
            self.max_pixels.map(BatchSize::MaxTokens),
        ];
        let mut sizes = sizes.into_iter().flatten();
        let (Some(size), None) = (sizes.next(), sizes.next()) else {
            let what = "give one of batch_size, max_tokens, max_tokens_unpadded and (for images) max_pixels";
            return Err(Error::usage(what));
        };
        let by_length = BucketBy::Length(Boundaries::Auto { max_waste: self.max_waste });
        let bucket = match &self.bucket {
            None if given.has("max_waste") => by_length,
            None => BatchOptions::new(size).bucket,
            Some(Buckets::Name(BucketName::None)) => BucketBy::None,
            Some(Buckets::Name(BucketName::Length)) => by_length,
            Some(Buckets::Name(BucketName::Geometric)) => BucketBy::Length(Boundaries::Geometric {
                first: self.first_boundary,
                ratio: self.boundary_ratio,
            }),
            Some(Buckets::Name(BucketName::Shape)) => BucketBy::Shape,
            Some(Buckets::Name(BucketName::Windows)) => BucketBy::Windows { steps: self.window_steps },
            Some(Buckets::Boundaries(boundaries)) => BucketBy::Length(Boundaries::Given(boundaries.clone())),
        };
        Ok(BatchOptions {
            size,
            budget: self.second_budget()?,
            pad_to_multiple_of: self.pad_to_multiple_of,
            bucket,
            shuffle: self.shuffle(),
            longest_first: self.longest_first,
            oversize: self.oversize,
            last: self.last,
        })
    }

    fn packed(&self, seq_len: u64) -> Result<PackOptions> {
        let Some(batch_size) = self.batch_size else {
            return Err(Error::usage("seq_len needs batch_size, the number of rows per batch"));
        };
        Ok(PackOptions {
            seq_len,
            budget: self.second_budget()?,
            packing: self.packing,
            window: self.pack_window,
            batch_size,
            shuffle: self.shuffle(),
            last: self.last,
        })
    }

    /// Returns the budget that holds besides that for tokens.
    fn second_budget(&self) -> Result<Option<ColumnBudget>> {
        let of = |(column, &max): (&String, &u64)| ColumnBudget { column: column.clone(), max };
        match (self.max_patches, &self.budget) {
            (Some(_), Some(_)) => Err(Error::usage(
                "give max_patches or budget, not both: max_patches=N is budget={\"patches\": N}",
            )),
            (Some(max), None) => Ok(Some(ColumnBudget { column: PATCHES.to_owned(), max })),
            (None, Some(columns)) if columns.len() != 1 => {
                Err(Error::usage(format!("budget has {} columns, not one", columns.len())))
            }
            (None, columns) => Ok(columns.as_ref().and_then(|columns| columns.iter().next()).map(of)),
        }
    }

    fn shuffle(&self) -> Shuffle {
        match self.shuffle {
            ShuffleBy::Switch(true) | ShuffleBy::Name(ShuffleName::Full) => Shuffle::Full,
            ShuffleBy::Switch(false) | ShuffleBy::Name(ShuffleName::None) => Shuffle::None,
            ShuffleBy::Name(ShuffleName::Block) => {
                Shuffle::Block { records: self.block_records, group: self.block_group }
            }
        }
    }

    fn image(&self) -> Result<ImageBatchOptions> {
        let crop = match (
            self.center_crop.map(CropSize::height_and_width),
            self.random_resized_crop.map(CropSize::height_and_width),
        ) {
            (None, None) => Crop::None,
            (Some((height, width)), None) => Crop::Center { height, width },
            (None, Some((height, width))) => {
                Crop::RandomResized { height, width, scale: self.crop_scale, ratio: self.crop_ratio }
            }
            _ => return Err(Error::usage("give center_crop or random_resized_crop, not both")),
        };
        let channels = match (self.color, self.channels) {
            (ImageColor::Yuv, _) => Channels::Yuv,
            (ImageColor::Rgb, 3) => Channels::Rgb,
            (ImageColor::Rgb, 1) => Channels::Gray,
            (_, other) => return Err(Error::usage(format!("channels is {other}, not 1 or 3"))),
        };
        Ok(ImageBatchOptions {
            decode: self.decode,
            crop,
            hflip: self.hflip,
            layout: self.layout,
            channels,
            undecodable: self.undecodable,
        })
    }

    fn text(&self) -> TextBatchOptions {
        TextBatchOptions {
            ids: self.id_dtype,
            pad_id: self.pad_id,
            pad_side: self.pad_side,
            labels_for: self.labels_for,
            packed: self.packed,
            stored_packing: self.stored_packing,
            pairs: self.pairs,
        }
    }
}
