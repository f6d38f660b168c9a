//! Batches of preference data: each row is a side, the prompt of a record with one of its completions.

use std::sync::Arc;

use dsconvert_dataset::error::{Error, Result};
use dsconvert_dataset::sample::{Ids, Value};
use dsconvert_dataset::schema::Schema;
use dsconvert_dataset::schema::preference::PROMPT_IDS;

use super::options::{LabelsFor, LoaderOptions, PackedLayout, PairOrder};
use crate::batch::{Batching, Last, Lengths, LengthsInMemory, MicroBatch};
use crate::{Record, RecordSource};

/// Preference pairs, whose length is that of their rows with padding: twice the longer side. A budget then holds for both rows.
#[derive(Debug)]
struct PaddedPairs {
    inner: Arc<dyn RecordSource>,
    lengths: Arc<LengthsInMemory>,
}

impl RecordSource for PaddedPairs {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn fingerprint(&self) -> String {
        self.inner.fingerprint()
    }

    fn schema(&self) -> &Schema {
        self.inner.schema()
    }

    fn lengths(&self) -> &dyn Lengths {
        &*self.lengths
    }

    fn get_many(&self, records: &[u64]) -> Result<Vec<Record>> {
        self.inner.get_many(records)
    }

    fn reopened(&self) -> Arc<dyn RecordSource> {
        Arc::new(Self { inner: self.inner.reopened(), lengths: Arc::clone(&self.lengths) })
    }

    fn inner(&self) -> Option<&dyn RecordSource> {
        Some(&*self.inner)
    }

    fn at_record(&self, error: Error, record: u64) -> Error {
        self.inner.at_record(error, record)
    }
}

/// Returns the source and the options for batches of preference data, and other ones as they are.
pub(super) fn for_batches(
    source: Arc<dyn RecordSource>,
    mut options: LoaderOptions,
) -> Result<(Arc<dyn RecordSource>, LoaderOptions)> {
    let sides = source.schema().completions().len();
    if sides == 0 {
        return Ok((source, options));
    }
    let refuse = |what: &str| {
        Err(Error::usage(format!("{what} does not apply to preference data: each row is one side"))
            .help("use batch_size or max_tokens"))
    };
    if source.properties().is_mixture {
        return Err(Error::usage(
            "a mixture does not apply to preference data, whose records have several rows",
        )
        .help("load several datasets as one, as in [\"a\", \"b\"]; or convert them into one dataset"));
    }
    match &mut options.batching {
        Batching::Packed(_) => return refuse("seq_len"),
        batching if batching.is_flat() => return refuse("max_tokens_unpadded"),
        batching if batching.last() == Last::Pad => return refuse("last \"pad\""),
        // A row is one of `sides` that together have the planned width.
        Batching::Records(batches) => {
            batches.pad_to_multiple_of = batches.pad_to_multiple_of.saturating_mul(sides as u64);
        }
    }
    if options.text.packed == PackedLayout::Flash {
        return refuse("packed \"flash\"");
    }
    if options.text.labels_for == Some(LabelsFor::Megatron) {
        return refuse("labels_for \"megatron\"");
    }
    if sides == 1 {
        return Ok((source, options));
    }
    let lengths = source.lengths();
    let padded = |record| Ok(lengths.longest_side_of(record)?.saturating_mul(sides as u64));
    let lengths = (0..lengths.records()).map(padded).collect::<Result<Vec<u64>>>()?;
    let lengths = Arc::new(LengthsInMemory::new(lengths));
    Ok((Arc::new(PaddedPairs { inner: source, lengths }), options))
}

/// The sides of the records of a batch, in the order of its rows.
#[derive(Debug, Default)]
pub(super) struct Sides {
    /// The ordinal of the record of each row.
    pub(super) records: Vec<u64>,
    pub(super) ids: Vec<Ids>,
    /// 1 for each token of a completion that is trained.
    pub(super) masks: Vec<Vec<u8>>,
}

impl Sides {
    /// Joins the prompt of each record with each of its completions.
    ///
    /// # Errors
    ///
    /// Fails if a field of the records is not selected, or if a record is damaged.
    pub(super) fn of(schema: &Schema, records: &[Record], order: PairOrder) -> Result<Self> {
        let field = |name: &str| {
            schema.index_of(name).ok_or_else(|| {
                Error::usage(format!(
                    "a batch of preference data needs the field {name:?}, which is not selected"
                ))
            })
        };
        let (prompt, completions) = (field(PROMPT_IDS)?, schema.completions());
        let fields = completions.iter().map(|(ids, masks)| Ok((field(ids)?, field(masks)?)));
        let fields = fields.collect::<Result<Vec<_>>>()?;
        let mut sides = Self::default();
        let mut add = |record: &Record, side: (usize, usize)| -> Result<()> {
            let (ids, mask) = joined(record, prompt, side).ok_or_else(|| {
                Error::corrupt("the lists of ids of the record do not fit").at_row(record.ordinal())
            })?;
            sides.records.push(record.ordinal());
            sides.ids.push(ids);
            sides.masks.push(mask);
            Ok(())
        };
        match order {
            PairOrder::Stacked => {
                for side in fields {
                    records.iter().try_for_each(|record| add(record, side))?;
                }
            }
            PairOrder::Alternating => {
                for record in records {
                    fields.iter().try_for_each(|side| add(record, *side))?;
                }
            }
        }
        Ok(sides)
    }

    /// Returns the number of tokens of each row.
    pub(super) fn lengths(&self) -> Vec<u64> {
        self.ids.iter().map(|ids| ids.len() as u64).collect()
    }
}

/// Returns prompt and completion as one list, with its mask. `None` if the record has other values.
fn joined(record: &Record, prompt: usize, (ids, masks): (usize, usize)) -> Option<(Ids, Vec<u8>)> {
    let list = |at: usize| match record.values().get(at) {
        Some(Value::Ids(ids)) => Some(ids),
        _ => None,
    };
    let (prompt, completion) = (list(prompt)?, list(ids)?);
    let bytes = [prompt.as_bytes().as_ref(), completion.as_bytes().as_ref()].concat();
    let mut mask = vec![0; prompt.len()];
    match record.values().get(masks)? {
        Value::Null => mask.resize(prompt.len() + completion.len(), 1),
        Value::Array(marks) => mask.extend_from_slice(marks.as_bytes().as_ref()),
        _ => return None,
    }
    let ids = Ids::new(prompt.width(), bytes.into())?;
    (prompt.width() == completion.width() && mask.len() == ids.len()).then_some((ids, mask))
}

/// Returns the number of tokens of the sides of the records of `batches`, without padding.
pub(super) fn tokens(source: &dyn RecordSource, batches: &[MicroBatch]) -> Result<u64> {
    let lengths = source.inner().map_or(source.lengths(), RecordSource::lengths);
    let mut all = Vec::new();
    for batch in batches {
        lengths.lengths_of(&batch.records, &mut all)?;
    }
    Ok(all.into_iter().fold(0, u64::saturating_add))
}
