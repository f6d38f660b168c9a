//! A split whose records are measured by another number than their length.

use std::sync::Arc;

use dsconvert_dataset::error::{Error, Result};
use dsconvert_dataset::schema::Schema;

use crate::batch::{ImageShape, Lengths, LengthsInMemory, Runs};
use crate::record::ReadIds;
use crate::{Record, RecordProperties, RecordSource, Split};

/// A split whose lengths are those of a column of its record index, such as `patches`: batches, buckets and budgets
/// count that column.
///
/// The column is read once, and takes 16 bytes of memory per record.
#[derive(Debug, Clone)]
pub struct Measured {
    split: Split,
    column: String,
    lengths: Arc<LengthsInMemory>,
}

impl Measured {
    /// Reads the column `name` of the record index of `split`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`](dsconvert_dataset::error::ErrorKind) if the index has no such column; otherwise, if the index
    /// cannot be read.
    pub fn new(split: Split, name: &str) -> Result<Self> {
        let column = split.index_column_of_all(name)?;
        let lengths = LengthsInMemory::new(column.into_iter().map(u64::from).collect());
        Ok(Self { split, column: name.to_owned(), lengths: Arc::new(lengths) })
    }
}

impl Split {
    /// Returns the column `name` of the record index, for all records in order.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`](dsconvert_dataset::error::ErrorKind) if the index has no such column; otherwise, if the index
    /// cannot be read.
    pub fn index_column_of_all(&self, name: &str) -> Result<Vec<u32>> {
        let columns: Vec<&str> = self.manifest().schema.index_columns().collect();
        if !columns.contains(&name) {
            let help = match columns.as_slice() {
                [] => "it has none of its own: name one with `index_columns` when the dataset is written"
                    .to_owned(),
                names => format!("its columns are {}", names.join(", ")),
            };
            return Err(Error::usage(format!("the record index has no column {name:?}")).help(help));
        }
        // Checks the number of records before memory is allocated for them.
        self.record_index()?;
        let value = |record| self.index_column(record, name).map(Option::unwrap_or_default);
        (0..self.len()).map(value).collect()
    }
}

impl RecordSource for Measured {
    fn name(&self) -> &str {
        self.split.name()
    }

    fn fingerprint(&self) -> String {
        format!("{}/{}", self.split.fingerprint(), self.column)
    }

    fn schema(&self) -> &Schema {
        self.split.schema()
    }

    fn lengths(&self) -> &dyn Lengths {
        self
    }

    fn get_many(&self, records: &[u64]) -> Result<Vec<Record>> {
        self.split.get_many(records)
    }

    fn lend_ids(&self, records: &[u64], field_index: usize, read: &mut ReadIds<'_>) -> Result<()> {
        self.split.lend_ids(records, field_index, read)
    }

    fn block_end(&self, start: u64, most_bytes: u64) -> Result<u64> {
        RecordSource::block_end(&self.split, start, most_bytes)
    }

    fn iter(&self) -> Box<dyn Iterator<Item = Result<Record>> + Send> {
        RecordSource::iter(&self.split)
    }

    fn reopened(&self) -> Arc<dyn RecordSource> {
        Arc::new(Self { split: self.split.detached(), ..self.clone() })
    }

    fn inner(&self) -> Option<&dyn RecordSource> {
        Some(&self.split)
    }

    fn properties(&self) -> RecordProperties {
        RecordProperties { measured_by: Some(self.column.clone()), ..RecordSource::properties(&self.split) }
    }

    fn at_record(&self, error: Error, record: u64) -> Error {
        self.split.at_record(error, record)
    }
}

impl Lengths for Measured {
    fn records(&self) -> u64 {
        self.lengths.records()
    }

    fn record_at(&self, rank: u64) -> Result<u64> {
        self.lengths.record_at(rank)
    }

    fn length_of(&self, record: u64) -> Result<u64> {
        self.lengths.length_of(record)
    }

    fn shape_of(&self, record: u64) -> Result<Option<ImageShape>> {
        self.split.shape_of(record)
    }

    fn column_of(&self, record: u64, name: &str) -> Result<Option<u64>> {
        self.split.column_of(record, name)
    }

    fn key_of(&self, record: u64) -> Option<String> {
        self.split.key_of(record)
    }

    fn runs(&self) -> Result<Runs<'_>> {
        self.lengths.runs()
    }
}
