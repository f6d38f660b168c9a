//! The columns of a batch: the requested names, or the defaults of the kind.

use dsconvert_dataset::error::{Error, Result};
use dsconvert_dataset::manifest::Alignment;
use dsconvert_dataset::sample::Value;
use dsconvert_dataset::schema::{
    ASSISTANT_MASKS, CROP_TOP_LEFT, CU_SEQLENS, FieldType, IMAGE, INPUT_IDS, Kind, LABEL, RESIZED_SIZE,
    TARGET_SIZE, TOKEN_WEIGHTS,
};

use super::added;
use super::batch_field::{BatchField, TokenLayout};
use super::joined;
use super::options::{LabelsFor, LoaderOptions, PackedLayout, StoredPacking};
use super::padded::open_axis;
use super::vision::{IMAGE_GRID_THW, MM_TOKEN_TYPE_IDS, PIXEL_VALUES, USE_CACHE, VisionFields};
use crate::RecordSource;
use crate::batch::{Batching, Last};

/// Name of the array that is true for rows with a record, and false for filler rows and blank rows.
pub const VALID: &str = "valid";
/// Name of the array that is true for token ids and false for padding.
pub const ATTENTION_MASK: &str = "attention_mask";
/// Name of the array with the number of the source of each record.
pub const SOURCE: &str = "source";
const LABELS: &str = "labels";
/// Name of the array with the number of token ids of each record.
pub const LENGTHS: &str = "lengths";
/// Name of the array with the position of each token id in its document.
pub const POSITION_IDS: &str = "position_ids";
/// Name of the entry that marks the tokens to train on of the completions of preference data.
const COMPLETION_MASK: &str = "completion_mask";
/// Entries of batches for FlashAttention, by their names in transformers.
const CU_SEQ_LENS: [&str; 2] = ["cu_seq_lens_q", "cu_seq_lens_k"];
const MAX_LENGTH: [&str; 2] = ["max_length_q", "max_length_k"];
/// Entries of batches for Megatron-LM, by their names there.
const TOKENS: &str = "tokens";
const LOSS_MASK: &str = "loss_mask";
const MAX_SEQLEN: &str = "max_seqlen";

/// The columns of a batch, with their names.
#[derive(Debug)]
pub(super) struct BatchFields {
    pub(super) columns: Vec<(String, BatchField)>,
    pub(super) shape: TokenLayout,
    /// Index of the field of token ids or images.
    pub(super) payload: Option<usize>,
    /// For rows that were packed when the dataset was made: the index of the field with the ends of their documents.
    pub(super) pieces: Option<usize>,
    /// Index of the field that marks the tokens to train on, if there is one.
    pub(super) masks: Option<usize>,
    /// For chats with images: their fields.
    pub(super) vision: Option<VisionFields>,
}

impl BatchFields {
    pub(super) fn new(source: &dyn RecordSource, options: &LoaderOptions) -> Result<Self> {
        let schema = source.schema();
        let shape = match &options.batching {
            Batching::Packed(_) => TokenLayout::Packed,
            batching if batching.is_flat() || is_flash(source, options) => TokenLayout::Flat,
            Batching::Records(_) => TokenLayout::Padded,
        };
        if shape == TokenLayout::Packed && !schema.holds_token_ids() {
            let what = format!("{} cannot be packed", schema.kind.name());
            return Err(Error::usage(what).help("use a batch size"));
        }
        let payload = schema.payload_field();
        let pieces = stored_pieces(source, options, payload)?;
        let (masks, vision) = (schema.masks_field(), VisionFields::of(source)?);
        let mut fields = Self { columns: Vec::new(), shape, payload, pieces, masks, vision };
        let names = match &options.fields {
            Some(names) => names.clone(),
            None => {
                let names = fields.defaults(source, options);
                if names.iter().all(|name| name == VALID || name == SOURCE) {
                    let selected: Vec<&str> = schema.fields.iter().map(|f| f.name.as_str()).collect();
                    let what = format!(
                        "a batch has no entries: of the fields of the dataset, only {} are selected",
                        selected.join(", ")
                    );
                    return Err(Error::usage(what).help(
                        "name the entries of a batch with `fields`, or open the dataset with all fields",
                    ));
                }
                names
            }
        };
        for name in names {
            fields.add(source, options, &name)?;
        }
        for name in &options.pad_fields {
            let field = source.schema().fields.iter().find(|field| field.name == *name);
            let unknown = || Error::usage(format!("a batch has no field {name:?} to pad"));
            open_axis(name, field.ok_or_else(unknown)?.ty)?;
            if fields.columns.iter().all(|(column, _)| column != name) {
                return Err(unknown().help("name it among `fields`, too"));
            }
        }
        added::check_images(&fields.columns, schema, &source.properties().added, options)?;
        if source.properties().has_masks
            && fields.masks.is_none()
            && (fields.has_labels() || fields.has_targets())
        {
            let what =
                format!("the records mark the tokens to train on, and {ASSISTANT_MASKS:?} is not selected");
            return Err(Error::usage(what)
                .help("select it, too, or name the entries of a batch with `fields`, without labels"));
        }
        Ok(fields)
    }

    /// Returns the default columns.
    fn defaults(&self, source: &dyn RecordSource, options: &LoaderOptions) -> Vec<String> {
        let mut names = match self.shape {
            _ if source.schema().holds_completions() => {
                vec![INPUT_IDS, ATTENTION_MASK, COMPLETION_MASK, LABELS, LENGTHS, LABEL]
            }
            _ if source.schema().holds_prompts() => {
                source.schema().fields.iter().map(|field| field.name.as_str()).collect()
            }
            _ if source.schema().holds_images() => vec![IMAGE, LABEL],
            _ if !source.schema().holds_token_ids() => Vec::new(),
            // The entries of these batches are the arguments of a model.
            _ if self.vision.is_some() => {
                let mut names =
                    vec![INPUT_IDS, ATTENTION_MASK, LABELS, MM_TOKEN_TYPE_IDS, PIXEL_VALUES, IMAGE_GRID_THW];
                if self.has_documents() {
                    names[1] = POSITION_IDS;
                    names.push(USE_CACHE);
                }
                names
            }
            _ if is_flash(source, options) => {
                [&[INPUT_IDS, LABELS, POSITION_IDS], &CU_SEQ_LENS[..], &MAX_LENGTH].concat()
            }
            _ if is_megatron(options) => {
                vec![TOKENS, LABELS, LOSS_MASK, POSITION_IDS, CU_SEQLENS, MAX_SEQLEN]
            }
            TokenLayout::Padded if self.pieces.is_none() => {
                vec![INPUT_IDS, ATTENTION_MASK, LABELS, LENGTHS]
            }
            TokenLayout::Flat => vec![INPUT_IDS, LABELS, POSITION_IDS, CU_SEQLENS, LENGTHS],
            TokenLayout::Padded | TokenLayout::Packed => vec![INPUT_IDS, LABELS, POSITION_IDS, CU_SEQLENS],
        };
        // Items without classes have no label, and a selection may leave fields out.
        let needs = |name: &str| match name {
            IMAGE | LABEL => source.schema().index_of(name).is_some(),
            _ => self.payload.is_some(),
        };
        names.retain(|name| needs(name));
        let may_be_blank = names.contains(&IMAGE) && options.image.may_be_blank();
        if options.batching.last() == Last::Pad || may_be_blank {
            names.push(VALID);
        }
        // The entries of these batches are the arguments of a model.
        let are_arguments = is_flash(source, options) || is_megatron(options) || self.vision.is_some();
        if source.schema().weights_field().is_some() && !are_arguments {
            names.push(TOKEN_WEIGHTS);
        }
        if source.properties().is_mixture && !are_arguments {
            names.push(SOURCE);
        }
        let mut names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        if source.schema().kind == Kind::Records {
            names.splice(..0, source.schema().fields.iter().map(|field| field.name.clone()));
        }
        if source.schema().holds_images() {
            let further = source.schema().fields.iter().filter(|f| f.ty.is_image_file() && f.name != IMAGE);
            let after_image = usize::from(names.first().is_some_and(|name| name == IMAGE));
            let per_box = source.schema().fields.iter().filter(|f| f.ty.is_per_box());
            names.splice(after_image..after_image, further.chain(per_box).map(|f| f.name.clone()));
        }
        names
    }

    fn add(&mut self, source: &dyn RecordSource, options: &LoaderOptions, name: &str) -> Result<()> {
        if self.columns.iter().any(|(n, _)| n == name) {
            return Err(Error::usage(format!("the field {name:?} is requested twice")));
        }
        let mut field = self.field(source, options, name)?;
        if let BatchField::Stored(index, ty @ FieldType::Array(array)) = field
            && options.pad_fields.iter().any(|padded| padded == name)
        {
            field = BatchField::Padded { index, array, axis: open_axis(name, ty)? };
        }
        self.columns.push((name.to_owned(), field));
        if let BatchField::Padded { index, axis, .. } = field {
            self.columns.push((format!("{name}.{LENGTHS}"), BatchField::PaddedLengths { index, axis }));
        }
        let as_numbers = match field {
            BatchField::Image(index) | BatchField::Mask(index) => Some(index),
            BatchField::Stored(index, ty) => ty.fixed_shape().map(|_| index),
            BatchField::Padded { index, .. } => Some(index),
            BatchField::CropTopLeft { corner, .. } => Some(corner),
            BatchField::Mirrored { index, ty, .. } => ty.fixed_shape().map(|_| index),
            _ => None,
        };
        if let Some(index) = as_numbers
            && (source.schema().fields.get(index).is_some_and(|f| f.nullable)
                || options.drop.iter().any(|drop| drop.field == name && drop.value == Value::Null))
        {
            self.columns.push((format!("{name}.{VALID}"), BatchField::StoredValid(index)));
        }
        Ok(())
    }

    fn field(&self, source: &dyn RecordSource, options: &LoaderOptions, name: &str) -> Result<BatchField> {
        let schema = source.schema();
        let generated = match (self.shape, name) {
            (_, VALID) => Some(BatchField::Valid),
            (_, name) if schema.holds_completions() => match name {
                INPUT_IDS => Some(BatchField::InputIds),
                ATTENTION_MASK => Some(BatchField::AttentionMask),
                COMPLETION_MASK => Some(BatchField::CompletionMask),
                LABELS => Some(BatchField::Labels),
                LENGTHS => Some(BatchField::Lengths),
                SOURCE if !source.properties().part_ends.is_empty() => Some(BatchField::Source),
                _ => None,
            },
            (_, SOURCE) if !source.properties().part_ends.is_empty() => Some(BatchField::Source),
            _ if !schema.holds_token_ids() => None,
            (_, ASSISTANT_MASKS) if self.masks.is_some() => Some(BatchField::AssistantMasks),
            (_, ATTENTION_MASK) if self.vision.is_some() && self.has_documents() => {
                let what = format!(
                    "{ATTENTION_MASK:?} does not apply: with it, a model mixes the documents of a row"
                );
                return Err(
                    Error::usage(what).help(format!("use {POSITION_IDS:?}, which restart in each document"))
                );
            }
            (_, MM_TOKEN_TYPE_IDS) if self.vision.is_some() => Some(BatchField::MmTokenTypeIds),
            (_, PIXEL_VALUES) if self.vision.is_some() => Some(BatchField::PixelValues),
            (_, IMAGE_GRID_THW) if self.vision.is_some() => Some(BatchField::ImageGrids),
            (_, POSITION_IDS) if self.vision.is_some() => Some(BatchField::RotaryPositions),
            (_, USE_CACHE) if self.vision.is_some() && self.has_documents() => Some(BatchField::UseCache),
            (_, name) if is_flash(source, options) && CU_SEQ_LENS.contains(&name) => {
                Some(BatchField::CuSeqlens)
            }
            (_, name) if is_flash(source, options) && MAX_LENGTH.contains(&name) => {
                Some(BatchField::MaxLength)
            }
            (_, TOKENS) if is_megatron(options) => Some(BatchField::InputIds),
            (_, LOSS_MASK) if is_megatron(options) => Some(BatchField::LossMask),
            (_, POSITION_IDS) if is_megatron(options) => Some(BatchField::PositionIds),
            (_, CU_SEQLENS) if is_megatron(options) => Some(BatchField::CuSeqlens),
            (_, MAX_SEQLEN) if is_megatron(options) => Some(BatchField::MaxSeqlen),
            (TokenLayout::Padded, ATTENTION_MASK) => Some(BatchField::AttentionMask),
            (TokenLayout::Padded, POSITION_IDS | CU_SEQLENS) if self.pieces.is_none() => None,
            (_, POSITION_IDS) => Some(BatchField::PositionIds),
            (_, CU_SEQLENS) => Some(BatchField::CuSeqlens),
            (TokenLayout::Padded | TokenLayout::Flat, LENGTHS) => Some(BatchField::Lengths),
            (_, LABELS) => Some(BatchField::Labels),
            (_, INPUT_IDS) => Some(BatchField::InputIds),
            _ => None,
        };
        if let Some(field) = generated {
            if !matches!(field, BatchField::Valid | BatchField::Source | BatchField::Lengths)
                && self.payload.is_none()
            {
                return Err(Error::usage(format!(
                    "{name:?} needs the field {INPUT_IDS:?}, which is not selected"
                )));
            }
            return Ok(field);
        }
        if let Some(field) = added::following(schema, &source.properties().added, options, name)? {
            return Ok(field);
        }
        let index = schema.index_of(name).ok_or_else(|| {
            let names: Vec<&str> = schema.fields.iter().map(|f| f.name.as_str()).collect();
            Error::usage(format!("a batch has no field {name:?}"))
                .help(format!("the fields of its records are {}", names.join(", ")))
        })?;
        if self.shape == TokenLayout::Packed {
            return joined::field(schema, options, index, name);
        }
        let ty = schema.fields.get(index).map_or(FieldType::Binary, |f| f.ty);
        Ok(match ty {
            _ if !schema.holds_images() => BatchField::Stored(index, ty),
            _ if name == LABEL => BatchField::Label(index),
            FieldType::Mask if options.image.decode => BatchField::Mask(index),
            FieldType::Image if options.image.decode => BatchField::Image(index),
            FieldType::Int32Pair
                if name == CROP_TOP_LEFT && options.image.decode && options.image.hflip > 0.0 =>
            {
                let of = |name: &str| {
                    let is_pair =
                        |at: &usize| schema.fields.get(*at).is_some_and(|f| f.ty == FieldType::Int32Pair);
                    schema.index_of(name).filter(is_pair).ok_or_else(|| {
                        Error::usage(format!(
                            "hflip mirrors {CROP_TOP_LEFT:?}, which needs the field {name:?}"
                        ))
                        .help("select it, too, or leave out hflip")
                    })
                };
                BatchField::CropTopLeft {
                    corner: index,
                    resized: of(RESIZED_SIZE)?,
                    target: of(TARGET_SIZE)?,
                }
            }
            ty if ty.is_per_box() && options.image.decode => BatchField::PerBox(index, ty),
            _ => BatchField::Stored(index, ty),
        })
    }

    /// Returns whether fields of the records other than their token ids are needed.
    pub(super) fn reads_records(&self) -> bool {
        let stored = |field: &BatchField| {
            matches!(
                field,
                BatchField::Image(_)
                    | BatchField::Mask(_)
                    | BatchField::Label(_)
                    | BatchField::PerBox(..)
                    | BatchField::CropTopLeft { .. }
                    | BatchField::PerToken { .. }
                    | BatchField::Mirrored { .. }
                    | BatchField::Stored(..)
                    | BatchField::Padded { .. }
                    | BatchField::PaddedLengths { .. }
                    | BatchField::StoredValid(_)
            )
        };
        self.pieces.is_some()
            || self.reads_masks()
            || self.reads_images()
            || self.columns.iter().any(|(_, field)| stored(field))
    }

    /// Returns whether batches have labels.
    pub(super) fn has_labels(&self) -> bool {
        self.columns.iter().any(|(_, field)| matches!(field, BatchField::Labels | BatchField::LossMask))
    }

    /// Returns whether batches have numbers that move with the labels.
    fn has_targets(&self) -> bool {
        let is_target = |(_, field): &(String, BatchField)| {
            matches!(field, BatchField::PerToken { aligned: Alignment::Target, .. })
        };
        self.columns.iter().any(is_target)
    }

    /// Returns whether batches have numbers per token, which are in records.
    pub(super) fn reads_per_token(&self) -> bool {
        self.columns.iter().any(|(_, field)| matches!(field, BatchField::PerToken { .. }))
    }

    /// Returns whether packed rows have fields of their documents, which are in records.
    pub(super) fn reads_joined(&self) -> bool {
        self.columns.iter().any(|(_, field)| matches!(field, BatchField::Joined(..)))
    }

    /// Returns whether it is needed which tokens are to be trained on.
    pub(super) fn reads_masks(&self) -> bool {
        let is_mask = |(_, field): &(String, BatchField)| *field == BatchField::AssistantMasks;
        self.masks.is_some() && (self.has_labels() || self.has_targets() || self.columns.iter().any(is_mask))
    }

    /// Returns whether a row holds several documents.
    fn has_documents(&self) -> bool {
        self.shape != TokenLayout::Padded || self.pieces.is_some()
    }

    /// Returns whether the images of chats, or their grids, are needed.
    pub(super) fn reads_images(&self) -> bool {
        let of_images = |(_, field): &(String, BatchField)| {
            use BatchField::{ImageGrids, MmTokenTypeIds, PixelValues, RotaryPositions};
            matches!(field, ImageGrids | MmTokenTypeIds | PixelValues | RotaryPositions)
        };
        self.columns.iter().any(of_images)
    }

    /// Returns whether token ids are needed. Lengths, and columns that follow from them, are known from the plan.
    pub(super) fn reads_tokens(&self) -> bool {
        self.has_labels()
            || self.reads_images()
            || self.columns.iter().any(|(_, field)| *field == BatchField::InputIds)
    }
}

/// Returns whether the documents of a batch are one row without padding.
fn is_flash(source: &dyn RecordSource, options: &LoaderOptions) -> bool {
    options.text.packed == PackedLayout::Flash && source.schema().holds_token_ids()
}

/// Returns whether batches have the entries of Megatron-LM.
fn is_megatron(options: &LoaderOptions) -> bool {
    options.text.labels_for == Some(LabelsFor::Megatron)
}

/// Returns the index of the field with the ends of documents in rows that are already packed. It is needed whenever ids
/// are needed.
fn stored_pieces(
    source: &dyn RecordSource,
    options: &LoaderOptions,
    payload: Option<usize>,
) -> Result<Option<usize>> {
    if source.properties().packed_length.is_none()
        || options.text.stored_packing == StoredPacking::Ignore
        || payload.is_none()
    {
        return Ok(None);
    }
    source.schema().index_of(CU_SEQLENS).map(Some).ok_or_else(|| {
        Error::usage(format!("the records hold several documents each, and {CU_SEQLENS:?} is not selected"))
            .help("select it, too; or set stored_packing to \"ignore\" to treat each record as one document")
    })
}
