//! Fields of companions that follow those of their base: values per token move with the tokens, and values that were computed
//! from an image refuse what changes the image.

use std::collections::BTreeMap;

use dsconvert_dataset::error::{Error, Result};
use dsconvert_dataset::manifest::Alignment;
use dsconvert_dataset::sample::{Numbers, Value};
use dsconvert_dataset::schema::{ArrayType, DType, FieldType, INPUT_IDS, Schema, TOKEN_WEIGHTS};

use super::batch::Column;
use super::batch_field::BatchField;
use super::element::{BHalf, Half};
use super::options::{Crop, LoaderOptions};
use super::stored::with_element;
use super::text::{TokenRows, fill};
use crate::batch::{Batching, Oversize};
use crate::{AddedField, Record};

/// Returns how the values of the field `name` of records of `schema` become a column, if it follows another field.
pub(super) fn following(
    schema: &Schema,
    added: &BTreeMap<String, AddedField>,
    options: &LoaderOptions,
    name: &str,
) -> Result<Option<BatchField>> {
    if let Some((index, array)) = schema.weights_field().filter(|_| name == TOKEN_WEIGHTS) {
        return Ok(Some(BatchField::PerToken { index, array, aligned: Alignment::Target }));
    }
    let Some(AddedField { bound, .. }) = added.get(name) else { return Ok(None) };
    let Some(index) = schema.index_of(name) else { return Ok(None) };
    let ty = schema.fields.get(index).map(|field| field.ty);
    if bound.of.is_some()
        && let Batching::Records(batches) = &options.batching
        && batches.oversize == Oversize::Truncate
    {
        let what = format!(
            "`oversize \"truncate\"` does not apply with {name:?}, a value of all tokens of a record"
        );
        return Err(Error::usage(what).help("use another oversize policy, or leave out the field"));
    }
    if let (Some(_), Some(FieldType::Array(array))) = (&bound.per, ty)
        && schema.holds_token_ids()
    {
        if schema.index_of(INPUT_IDS).is_none() {
            return Err(Error::usage(format!(
                "{name:?} needs the field {INPUT_IDS:?}, which is not selected"
            )));
        }
        return Ok(Some(BatchField::PerToken { index, array, aligned: bound.aligned }));
    }
    if let (Some(twin), Some(ty)) = (&bound.flip, ty)
        && options.image.hflip > 0.0
    {
        let twin = schema.index_of(twin).ok_or_else(|| {
            Error::usage(format!("hflip mirrors {name:?}, which needs the field {twin:?}"))
                .help("select it, too, or leave out hflip")
        })?;
        return Ok(Some(BatchField::Mirrored { index, twin, ty }));
    }
    Ok(None)
}

/// Refuses to crop or mirror images beside values that were computed from the whole image.
pub(super) fn check_images(
    columns: &[(String, BatchField)],
    schema: &Schema,
    added: &BTreeMap<String, AddedField>,
    options: &LoaderOptions,
) -> Result<()> {
    let of_image = |name: &String| schema.fields.iter().any(|f| f.name == *name && f.ty.is_image_file());
    if !columns.iter().any(|(_, field)| field.is_decoded()) {
        return Ok(());
    }
    for (name, field) in columns {
        let Some(image) = added.get(name).and_then(|added| added.reads.iter().find(|read| of_image(read)))
        else {
            continue;
        };
        let refused = |option: &str, help: String| {
            let what =
                format!("{option} does not apply: {name:?} was computed from {image:?} as it is stored");
            Err(Error::usage(what).help(help))
        };
        let leave_out = |option: &str| format!("leave out {option}, or load {name:?} without {image:?}");
        match options.image.crop {
            Crop::None => {}
            Crop::Center { .. } => return refused("center_crop", leave_out("center_crop")),
            Crop::RandomResized { .. } => {
                return refused("random_resized_crop", leave_out("random_resized_crop"));
            }
        }
        if options.image.hflip > 0.0 && !matches!(field, BatchField::Mirrored { .. }) {
            let twin = "; or add the values for mirrored images as another field, and name it (`flip`)";
            return refused("hflip", leave_out("hflip") + twin);
        }
    }
    Ok(())
}

/// Returns `records` with the value of the field `twin` in place of that of `index` where `is_mirrored`.
pub(super) fn mirrored(
    records: &[Record],
    index: usize,
    twin: usize,
    is_mirrored: impl Fn(usize, &Record) -> bool,
) -> Vec<Record> {
    let chosen = |(row, record): (usize, &Record)| {
        let mut chosen = record.clone();
        if is_mirrored(row, record) {
            chosen.set(index, record.values().get(twin).cloned().unwrap_or(Value::Null));
        }
        chosen
    };
    records.iter().enumerate().map(chosen).collect()
}

impl TokenRows<'_> {
    /// Returns the values in the field at `index`, one per token, in the layout of the token ids. As targets, they move with the
    /// labels, and are 0 where there is no label.
    pub(super) fn per_token(&self, index: usize, array: ArrayType, aligned: Alignment) -> Result<Column> {
        let rule = self.label_rule();
        macro_rules! values {
            ($t:ty, $number:expr) => {
                self.filled(fill(<$t>::default()), |piece, out| {
                    let numbers =
                        self.numbers_of(piece.record, index, array, piece.end.max(piece.stored_end))?;
                    let size = size_of::<$t>();
                    let copy = |tokens: std::ops::Range<usize>, out: &mut [$t]| {
                        let bytes = numbers.get(tokens.start * size..tokens.end * size).unwrap_or_default();
                        let found = bytes.as_chunks().0.iter().copied().map($number);
                        out.iter_mut().zip(found).for_each(|(to, from)| *to = from);
                    };
                    match aligned {
                        Alignment::Input => copy(piece.start..piece.end, out),
                        Alignment::Target => rule.write(piece, self.mask(piece), <$t>::default(), out, copy),
                    }
                    Ok(())
                })
            };
        }
        with_element!(array.dtype(), values)
    }

    /// Returns the numbers of a record, of which there are at least `tokens`.
    fn numbers_of(&self, record: usize, index: usize, array: ArrayType, tokens: usize) -> Result<&[u8]> {
        let record = self.stored.get(record).ok_or_else(|| Error::internal("a piece has no record"))?;
        let value = record.values().get(index).unwrap_or(&Value::Null);
        let numbers = Numbers::of(FieldType::Array(array), value);
        let found = numbers.as_ref().map_or(0, |numbers| numbers.shape.first().copied().unwrap_or_default());
        match numbers {
            Some(numbers) if found >= tokens => Ok(numbers.bytes),
            _ => {
                let name = record.schema().fields.get(index).map_or("", |field| field.name.as_str());
                let what =
                    format!("{name:?} has {found} values, and the record has at least {tokens} tokens");
                Err(Error::corrupt(what).at_row(record.ordinal()))
            }
        }
    }
}
