//! Megatron-Bridge's packed sequences in Parquet: ids, loss masks and the starts of documents, one row per pack.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::builder::{Int8Builder, Int32Builder, ListBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Schema as ArrowSchema, SchemaRef};
use serde_json::{Value as Json, json};

use super::documents::{check_text, pieces};
use super::output::StagedFiles;
use super::rows_file::{RowsFile, ids_and_masks, list, signed};
use super::{ExportFormat, ExportInput, ExportOptions, ExportSplit, Exporter, Part, left_out, unused_fields};
use crate::error::{Error, Result};
use crate::manifest::FileEntry;
use crate::reader::Record;
use crate::schema::{ASSISTANT_MASKS, CU_SEQLENS};

/// Packed sequences of Megatron-Bridge.
pub(super) struct MegatronBridge {
    schema: SchemaRef,
    packed: bool,
    warnings: Vec<String>,
}

impl MegatronBridge {
    pub(super) fn new(input: &ExportInput, options: &ExportOptions) -> Result<Self> {
        let schema = input.schema()?;
        check_text(input, ExportFormat::MegatronBridge)?;
        if let Some(id) = input.tokenizer.max_id.filter(|id| i32::try_from(*id).is_err()) {
            return Err(Error::usage(format!("the token id {id} does not fit in 32 bits with a sign")));
        }
        let packed = input.is_packed()?;
        let fields = unused_fields(schema, &[CU_SEQLENS, ASSISTANT_MASKS]);
        let mut warnings: Vec<String> = left_out(options.format, &fields).into_iter().collect();
        if !packed {
            warnings.push(
                "the dataset is not packed, so each document is a row of its own; convert with `pack` to fill rows".to_owned(),
            );
        }
        let columns = vec![
            list("input_ids", DataType::Int32),
            list("loss_mask", DataType::Int8),
            list("seq_start_id", DataType::Int32),
        ];
        Ok(Self { schema: Arc::new(ArrowSchema::new(columns)), packed, warnings })
    }

    /// Adds a row. The mask is shifted within each document: a token is trained on where it is the next one, so the last
    /// token of a document predicts nothing.
    fn add(&self, record: &Record, rows: &mut BridgeRows) -> Result<()> {
        let (ids, masks) = ids_and_masks(record)?;
        let documents = match self.packed {
            true => pieces(record, ids.len())?,
            false => std::iter::once(0..ids.len()).collect(),
        };
        for id in ids.iter() {
            rows.ids.values().append_value(signed(id)?);
        }
        for document in documents {
            let start =
                i32::try_from(document.start).map_err(|_| Error::corrupt("the row has 2^31 tokens"))?;
            rows.starts.values().append_value(start);
            for next in document.start + 1..document.end {
                let is_trained = masks.is_none_or(|masks| masks[next] != 0);
                rows.masks.values().append_value(i8::from(is_trained));
            }
            // An empty document has no last token.
            if !document.is_empty() {
                rows.masks.values().append_value(0);
            }
        }
        rows.ids.append(true);
        rows.masks.append(true);
        rows.starts.append(true);
        Ok(())
    }
}

/// Columns of rows.
#[derive(Default)]
struct BridgeRows {
    ids: ListBuilder<Int32Builder>,
    masks: ListBuilder<Int8Builder>,
    starts: ListBuilder<Int32Builder>,
}

impl Exporter for MegatronBridge {
    type Block = RecordBatch;
    type Files = RowsFile;

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }

    fn described(&self) -> Json {
        json!({})
    }

    fn encode(&self, split: &ExportSplit, records: Range<u64>) -> Result<RecordBatch> {
        let ordinals: Vec<u64> = records.collect();
        let mut rows = BridgeRows::default();
        for record in split.source.get_many(&ordinals)? {
            self.add(&record, &mut rows).map_err(|e| split.source.at_record(e, record.ordinal()))?;
        }
        let columns: Vec<ArrayRef> =
            vec![Arc::new(rows.ids.finish()), Arc::new(rows.masks.finish()), Arc::new(rows.starts.finish())];
        RecordBatch::try_new(Arc::clone(&self.schema), columns)
            .map_err(|e| Error::internal("the rows do not fit their schema").caused_by(e))
    }

    fn create(&self, part: &Part<'_>, staged: &StagedFiles) -> Result<RowsFile> {
        RowsFile::create(format!("{}.idx.parquet", part.stem()), &self.schema, staged)
    }

    fn append(&self, file: &mut RowsFile, block: RecordBatch) -> Result<()> {
        file.append(&block)
    }

    fn close(&self, file: RowsFile, _: &StagedFiles) -> Result<Vec<FileEntry>> {
        file.close()
    }
}
