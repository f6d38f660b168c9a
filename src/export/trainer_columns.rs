//! Documents with the columns that trainers read as already tokenized, as a folder for `datasets`.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::{Int8Builder, Int32Builder, ListBuilder};
use arrow_schema::{DataType, Schema as ArrowSchema, SchemaRef};

use super::documents::check_text;
use super::hf::check_split_names;
use super::hub_card::Features;
use super::row_columns::RowColumns;
use super::rows_file::{ids_and_masks, list, signed};
use super::{Columns, ExportInput, ExportOptions, ExportSplit, left_out, unused_fields};
use crate::error::{Error, Result};
use crate::reader::Record;
use crate::schema::{ASSISTANT_MASKS, INPUT_IDS};

/// The label of a token that is not trained on: what PyTorch's `cross_entropy` ignores by default.
const IGNORED: i32 = -100;

/// Documents for trainers.
pub(super) struct TrainerColumns {
    schema: SchemaRef,
    columns: Columns,
    warnings: Vec<String>,
}

impl TrainerColumns {
    pub(super) fn new(input: &ExportInput, options: &ExportOptions, columns: Columns) -> Result<Self> {
        check_text(input, options.format)?;
        check_split_names(input)?;
        if input.is_packed()? {
            return Err(Error::usage(format!(
                "rows of a packed dataset hold several documents, and trainers that read `columns {columns}` would attend \
                 from one to the other"
            ))
            .help("convert without `pack`: these trainers pack documents themselves"));
        }
        let fields = unused_fields(input.schema()?, &[ASSISTANT_MASKS]);
        let warnings = left_out(format_args!("`columns {columns}`"), &fields).into_iter().collect();
        let fields: Vec<_> = names_and_types(columns).map(|(name, ty, _)| list(name, ty)).collect();
        Ok(Self { schema: Arc::new(ArrowSchema::new(fields)), columns, warnings })
    }

    /// Adds a document.
    fn add(&self, record: &Record, rows: &mut Rows) -> Result<()> {
        let (ids, masks) = ids_and_masks(record)?;
        for (at, id) in ids.iter().enumerate() {
            let id = signed(id)?;
            let is_trained = masks.is_none_or(|masks| masks.get(at).is_some_and(|mark| *mark != 0));
            rows.ids.values().append_value(id);
            rows.attention.values().append_value(1);
            match self.columns {
                Columns::LossMask => rows.loss_mask.values().append_value(i8::from(is_trained)),
                _ => rows.labels.values().append_value(if is_trained { id } else { IGNORED }),
            }
        }
        rows.ids.append(true);
        rows.attention.append(true);
        match self.columns {
            Columns::LossMask => rows.loss_mask.append(true),
            _ => rows.labels.append(true),
        }
        Ok(())
    }
}

/// Names, types and types for `datasets` of the columns.
fn names_and_types(columns: Columns) -> impl Iterator<Item = (&'static str, DataType, &'static str)> {
    let last = match columns {
        Columns::LossMask => ("loss_mask", DataType::Int8, "sequence: int8"),
        _ => ("labels", DataType::Int32, "sequence: int32"),
    };
    [
        (INPUT_IDS, DataType::Int32, "sequence: int32"),
        ("attention_mask", DataType::Int8, "sequence: int8"),
        last,
    ]
    .into_iter()
}

/// Columns of documents.
#[derive(Default)]
struct Rows {
    ids: ListBuilder<Int32Builder>,
    attention: ListBuilder<Int8Builder>,
    labels: ListBuilder<Int32Builder>,
    loss_mask: ListBuilder<Int8Builder>,
}

impl RowColumns for TrainerColumns {
    const CONTENT: &str = "tokenized text";

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn columns(&self) -> Columns {
        self.columns
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn arrays(&self, split: &ExportSplit, records: &[Record]) -> Result<Vec<ArrayRef>> {
        let mut rows = Rows::default();
        for record in records {
            self.add(record, &mut rows).map_err(|e| split.source.at_record(e, record.ordinal()))?;
        }
        let last: ArrayRef = match self.columns {
            Columns::LossMask => Arc::new(rows.loss_mask.finish()),
            _ => Arc::new(rows.labels.finish()),
        };
        Ok(vec![Arc::new(rows.ids.finish()), Arc::new(rows.attention.finish()), last])
    }

    fn features(&self) -> Features {
        let features =
            names_and_types(self.columns).map(|(name, _, feature)| (name.to_owned(), feature.to_owned()));
        Features { task: Some("text-generation"), fields: features.collect() }
    }
}
