//! Records in memory.

use std::sync::Arc;

use dsconvert_dataset::error::Result;
use dsconvert_dataset::sample::{Ids, Value};
use dsconvert_dataset::schema::{ASSISTANT_MASKS, Field, FieldType, INPUT_IDS, IdWidth, Kind, Schema};

use crate::batch::{Lengths, LengthsInMemory};
use crate::{Record, RecordSource};

/// A document and the masks of its tokens.
pub(crate) type Document = (Vec<u32>, Vec<u8>);

/// Documents in memory, with or without their masks.
#[derive(Debug, Clone)]
pub(crate) struct InMemory {
    schema: Arc<Schema>,
    documents: Vec<Document>,
    lengths: LengthsInMemory,
    /// Whether the last record has one mask too few.
    is_short: bool,
}

impl InMemory {
    pub(crate) fn new(documents: &[Document], has_masks: bool) -> Self {
        let mut fields = vec![Field::required(INPUT_IDS, FieldType::IdsU32)];
        if has_masks {
            fields.push(Field::required(ASSISTANT_MASKS, FieldType::Flags));
        }
        let schema =
            Arc::new(Schema { kind: Kind::Text, fields, class_names: Vec::new(), indexed: Vec::new() });
        let lengths = LengthsInMemory::new(documents.iter().map(|(ids, _)| ids.len() as u64).collect());
        Self { schema, documents: documents.to_vec(), lengths, is_short: false }
    }

    /// Gives the last record one mask too few.
    pub(crate) fn short(self) -> Self {
        Self { is_short: true, ..self }
    }
}

impl RecordSource for InMemory {
    fn name(&self) -> &str {
        "in memory"
    }

    fn fingerprint(&self) -> String {
        self.lengths.fingerprint()
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn lengths(&self) -> &dyn Lengths {
        &self.lengths
    }

    fn get_many(&self, records: &[u64]) -> Result<Vec<Record>> {
        let record = |&at: &u64| {
            let (ids, masks) = &self.documents[at as usize];
            let is_short = self.is_short && at as usize + 1 == self.documents.len();
            let masks = masks[usize::from(is_short)..].to_vec();
            let ids = Ids::pack(IdWidth::U32, ids).map_or(Value::Null, Value::Ids);
            let mut values = vec![ids, Value::Bytes(masks.into())];
            values.truncate(self.schema.fields.len());
            Record::new(Arc::clone(&self.schema), at, values)
        };
        Ok(records.iter().map(record).collect())
    }

    fn reopened(&self) -> Arc<dyn RecordSource> {
        Arc::new(self.clone())
    }
}
