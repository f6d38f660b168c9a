//! Options of batches of chats with images, and their validation.

use dsconvert_dataset::error::{Error, ErrorKind, Result};
use dsconvert_dataset::packing::Packing;

use super::PIXEL_VALUES;
use crate::RecordSource;
use crate::batch::{BatchSize, Batching, Oversize};
use crate::loader::fields::POSITION_IDS;
use crate::loader::options::{LabelsFor, LoaderOptions, PackedLayout, PatchType, StoredPacking};

/// Returns an error about a manifest without a processor.
fn no_processor() -> Error {
    let what = "the manifest has no processor of the images, or one of an unknown kind";
    Error::new(ErrorKind::Unsupported, what)
        .help("install the dsconvert that wrote the dataset, or a newer one")
}

/// Returns the options for records of `source` that are chats with images, and other options as they are.
pub(in crate::loader) fn for_source(
    mut options: LoaderOptions,
    source: &dyn RecordSource,
) -> Result<LoaderOptions> {
    if !source.schema().holds_multimodal() {
        if source.properties().vision.is_some() && options.fields.is_none() {
            let what = "the records are chats with images, and the fields of their images are not selected";
            return Err(Error::usage(what)
                .help("select \"images\", \"image_grids\" and \"patches\", too, or name the entries of a batch with `fields`"));
        }
        let given = &options.vision;
        return match (&given.processor, given.patches, given.dummy_image) {
            (None, PatchType::Float32, None | Some(false)) => Ok(options),
            _ => Err(Error::usage(
                "processor, pixels and dummy_image do not apply: the records are no chats with images",
            )),
        };
    }
    let Some(own) = source.properties().vision else {
        // Stored fields need no processor.
        return if options.fields.is_some() { Ok(options) } else { Err(no_processor()) };
    };
    if let Some(other) = &options.vision.processor
        && let Some((parameter, own, other)) = own.difference(other)
    {
        let what = format!(
            "the processor has {parameter} {other}, and the images of the dataset were counted with {parameter} {own}"
        );
        return Err(Error::usage(what)
            .help("train with the processor of the dataset, or convert the chats with the other one"));
    }
    if options.text.labels_for == Some(LabelsFor::Megatron) {
        return Err(Error::usage("labels_for \"megatron\" does not apply to chats with images")
            .help("use another convention of labels"));
    }
    // The models that take such batches shift labels themselves.
    options.text.labels_for.get_or_insert(LabelsFor::HuggingFace);
    Ok(options)
}

/// Refuses batches that cut records with images, or whose rows hold several of them that the model would mix.
pub(in crate::loader) fn check_layout(options: &LoaderOptions, source: &dyn RecordSource) -> Result<()> {
    let Some(processor) = source.properties().vision.filter(|_| source.schema().holds_multimodal()) else {
        return Ok(());
    };
    let cut = match &options.batching {
        Batching::Packed(rows) if rows.packing == Packing::Concat => Some("packing \"concat\""),
        Batching::Records(batches) if batches.oversize == Oversize::Truncate => Some("oversize \"truncate\""),
        _ => None,
    };
    if let Some(option) = cut {
        return Err(Error::usage(format!("`{option}` does not apply: a record with images is never cut"))
            .help("use another one, or convert with a smaller max_length"));
    }
    let is_flash = options.text.packed == PackedLayout::Flash;
    if options.batching.is_flat() && !is_flash {
        return Err(Error::usage("max_tokens_unpadded needs packed \"flash\" for chats with images")
            .help("models take rows, also a single one"));
    }
    let is_stored =
        source.properties().packed_length.is_some() && options.text.stored_packing == StoredPacking::Keep;
    if source.properties().packed_length.is_some() && !is_stored {
        return Err(Error::usage("stored_packing \"ignore\" does not apply to chats with images")
            .help("positions restart in each document"));
    }
    let is_one_row = match &options.batching {
        Batching::Packed(rows) => rows.batch_size == 1,
        Batching::Records(batches) => !is_stored || batches.size == BatchSize::BatchSize(1),
    };
    // Batches of stored fields are not the arguments of a model.
    let is_for_model = options
        .fields
        .as_ref()
        .is_none_or(|names| names.iter().any(|name| [POSITION_IDS, PIXEL_VALUES].contains(&name.as_str())));
    if !is_flash && !is_one_row && is_for_model {
        let what = "several packed rows of chats with images do not apply: with FlashAttention, models of transformers keep the \
                    documents of a single row apart only";
        return Err(Error::usage(what)
            .help("use batch_size 1, or packed \"flash\", which makes one row of all documents of a batch"));
    }
    if is_flash || is_stored || matches!(options.batching, Batching::Packed(_)) {
        processor
            .check_packing()
            .map_err(|error| Error::usage(error.what().to_owned()).help(error.help().to_owned()))?;
    }
    Ok(())
}
