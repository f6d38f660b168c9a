//! Where batches come from: a split of a dataset, or any other numbered records with known lengths.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use dsconvert_dataset::error::{Error, Result};
use dsconvert_dataset::sample::{Ids, Value};
use dsconvert_dataset::schema::preference::LONGEST;
use dsconvert_dataset::schema::{HEIGHT, Schema, TRAINED, WIDTH};
use dsconvert_vision::Processor;
use serde::Deserialize;

use crate::batch::{Batching, ImageShape, Lengths, Runs, StepPlan};
use crate::companions::Joined;
use crate::iter::block_end;
use crate::record::ReadIds;
use crate::{AddedField, Record, Split};

/// Records with the ordinals 0, 1, 2, …, which a [`Loader`](crate::loader::Loader) forms batches of. A [`Split`] is one.
///
/// The records, their order and their lengths never change. Methods are called once per batch, by many threads.
///
/// ```
/// use std::sync::Arc;
///
/// use dsconvert_reader::batch::{BatchOptions, BatchSize, Lengths, LengthsInMemory};
/// use dsconvert_reader::error::Result;
/// use dsconvert_reader::loader::{Loader, LoaderOptions};
/// use dsconvert_reader::sample::{Ids, Value};
/// use dsconvert_reader::schema::{Field, FieldType, IdWidth, Kind, Schema};
/// use dsconvert_reader::{Record, RecordSource};
///
/// /// Texts in memory.
/// #[derive(Debug, Clone)]
/// struct InMemory {
///     schema: Arc<Schema>,
///     texts: Vec<Ids>,
///     lengths: LengthsInMemory,
/// }
///
/// impl RecordSource for InMemory {
///     fn name(&self) -> &str {
///         "in memory"
///     }
///
///     fn fingerprint(&self) -> String {
///         self.lengths.fingerprint()
///     }
///
///     fn schema(&self) -> &Schema {
///         &self.schema
///     }
///
///     fn lengths(&self) -> &dyn Lengths {
///         &self.lengths
///     }
///
///     fn get_many(&self, records: &[u64]) -> Result<Vec<Record>> {
///         let record = |&at: &u64| {
///             let ids = self.texts.get(at as usize).cloned().map_or(Value::Null, Value::Ids);
///             Record::new(Arc::clone(&self.schema), at, vec![ids])
///         };
///         Ok(records.iter().map(record).collect())
///     }
///
///     fn reopened(&self) -> Arc<dyn RecordSource> {
///         Arc::new(self.clone())
///     }
/// }
///
/// let ids = (1..10).map(|len| Ids::pack(IdWidth::U16, &vec![7; len]));
/// let texts: Vec<Ids> = ids.collect::<Option<_>>().unwrap_or_default();
/// let lengths = LengthsInMemory::new(texts.iter().map(|ids| ids.len() as u64).collect());
/// let fields = vec![Field::required("input_ids", FieldType::IdsU16)];
/// let schema = Arc::new(Schema { kind: Kind::Text, fields, class_names: Vec::new(), indexed: Vec::new() });
/// let source: Arc<dyn RecordSource> = Arc::new(InMemory { schema, texts, lengths });
/// let batches = BatchOptions::new(BatchSize::BatchSize(4));
/// for batch in Loader::new(source, LoaderOptions::new(batches))? {
///     assert!(batch?.array("input_ids").is_some());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait RecordSource: fmt::Debug + Send + Sync {
    /// Returns the name, for messages.
    fn name(&self) -> &str;

    /// Returns the identifier of the records in saved states. It changes whenever the records do.
    fn fingerprint(&self) -> String;

    /// Returns the schema of the records.
    fn schema(&self) -> &Schema;

    /// Returns the lengths of the records.
    fn lengths(&self) -> &dyn Lengths;

    /// Returns the records with the ordinals `records`, in that order. Repeats are allowed.
    ///
    /// # Errors
    ///
    /// Fails if one of the records does not exist or cannot be read.
    fn get_many(&self, records: &[u64]) -> Result<Vec<Record>>;

    /// Calls `read` once with the token ids in the field at `field_index` of the records with the ordinals `records`, in
    /// that order. Sources that can lend ids without copying or counting references override it.
    ///
    /// # Errors
    ///
    /// Same as [`RecordSource::get_many`]; [`ErrorKind::Corrupt`](dsconvert_dataset::error::ErrorKind) when a record has
    /// no ids in that field.
    fn lend_ids(&self, records: &[u64], field_index: usize, read: &mut ReadIds<'_>) -> Result<()> {
        read(&ids_in(&self.get_many(records)?, field_index)?);
        Ok(())
    }

    /// Returns the end of the records that are best read together, starting with `start`, of about `most_bytes` stored
    /// bytes: a reader of all records in order asks for one such block after another.
    ///
    /// # Errors
    ///
    /// Fails if an index cannot be read.
    fn block_end(&self, start: u64, most_bytes: u64) -> Result<u64> {
        let _ = most_bytes;
        Ok(self.lengths().records().min(start.saturating_add(1024)))
    }

    /// Returns all records, in order. A record that cannot be read is an error in its position.
    fn iter(&self) -> Box<dyn Iterator<Item = Result<Record>> + Send> {
        let source = self.reopened();
        Box::new((0..source.lengths().records()).map(move |record| {
            let missing = || Error::internal("the source returns no record").at_row(record);
            source.get_many(&[record])?.pop().ok_or_else(missing)
        }))
    }

    /// Returns the same source for the child of a fork. It shares no lock with this one, because a thread of the parent
    /// may hold it.
    fn reopened(&self) -> Arc<dyn RecordSource>;

    /// Returns the source of the records, if this one only orders or selects them. They have its properties, unless this
    /// source overrides them.
    fn inner(&self) -> Option<&dyn RecordSource> {
        None
    }

    /// Returns what the records have in common, besides their schema.
    fn properties(&self) -> RecordProperties {
        match self.inner() {
            Some(inner) => inner.properties(),
            None => RecordProperties::of_schema(self.schema()),
        }
    }

    /// Returns whether reading a record may wait for the network.
    fn is_remote(&self) -> bool {
        self.inner().is_some_and(RecordSource::is_remote)
    }

    /// Plans the steps of an epoch, if the source itself decides which of its records form a batch, like a
    /// [`Mixture`](crate::Mixture). `None`: `batching` decides it ([`Batching::plan`]). `micro_batches` is the number of
    /// micro-batches of a global step.
    fn step_plan(
        &self,
        batching: &Batching,
        seed: u64,
        micro_batches: u64,
    ) -> Option<Result<Arc<dyn StepPlan>>> {
        let _ = (batching, seed, micro_batches);
        None
    }

    /// Adds the place of a record to an error about it.
    fn at_record(&self, error: Error, record: u64) -> Error {
        error.at_row(record)
    }
}

/// What the records of a source have in common, besides their schema.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct RecordProperties {
    /// Number of tokens of a full row, if the records are rows of several documents, whose ends are in the field
    /// [`CU_SEQLENS`](dsconvert_dataset::schema::CU_SEQLENS).
    pub packed_length: Option<u64>,
    /// Whether the records mark the tokens to train on, in the field
    /// [`ASSISTANT_MASKS`](dsconvert_dataset::schema::ASSISTANT_MASKS), even if the schema is a selection without it.
    pub has_masks: bool,
    /// Samples per pixel, if images are stored as raw samples instead of image files.
    pub raw_channels: Option<usize>,
    /// Identifier of the tokenizer that made the token ids, if it is known. Sources with different ones cannot be read as one.
    pub tokenizer: Option<String>,
    /// The processor with which the image tokens of chats were counted. Sources with different ones cannot be read as one.
    pub vision: Option<Processor>,
    /// One past the last ordinal of each source that the records are from, one source after another
    /// ([`Concatenated`](crate::Concatenated)). Empty if it is a single one.
    pub part_ends: Vec<u64>,
    /// What is known about the fields that companions add, by name.
    pub added: BTreeMap<String, AddedField>,
    /// Name of the column of the record index that the lengths are from, if they are not those of the records
    /// ([`Measured`](crate::Measured)).
    pub measured_by: Option<String>,
    /// Whether the source itself decides which records form a batch ([`RecordSource::step_plan`]). Its batches then tell of which
    /// source each record is.
    pub is_mixture: bool,
}

impl RecordProperties {
    /// Returns the properties of records that are documents or encoded images of one source.
    pub fn of_schema(schema: &Schema) -> Self {
        Self { has_masks: schema.masks_field().is_some(), ..Self::default() }
    }
}

impl RecordSource for Split {
    fn name(&self) -> &str {
        self.name()
    }

    fn fingerprint(&self) -> String {
        self.fingerprint()
    }

    fn schema(&self) -> &Schema {
        self.schema()
    }

    fn lengths(&self) -> &dyn Lengths {
        self
    }

    fn get_many(&self, records: &[u64]) -> Result<Vec<Record>> {
        self.get_many(records)
    }

    fn lend_ids(&self, records: &[u64], field_index: usize, read: &mut ReadIds<'_>) -> Result<()> {
        self.lend_ids(records, field_index, read)
    }

    fn block_end(&self, start: u64, most_bytes: u64) -> Result<u64> {
        block_end(self, start..self.len(), most_bytes)
    }

    fn iter(&self) -> Box<dyn Iterator<Item = Result<Record>> + Send> {
        Box::new(self.iter())
    }

    fn reopened(&self) -> Arc<dyn RecordSource> {
        Arc::new(self.detached())
    }

    fn properties(&self) -> RecordProperties {
        let manifest = self.manifest();
        let tokenizer = manifest.tokenizer.as_ref();
        RecordProperties {
            packed_length: self.packed_length(),
            has_masks: manifest.schema.masks_field().is_some(),
            raw_channels: manifest.raw_channels().map(|n| n as usize),
            tokenizer: tokenizer.map(|_| manifest.tokenizer_sha256().unwrap_or("bytes").to_owned()),
            vision: manifest.vision().and_then(|vision| Processor::deserialize(vision).ok()),
            part_ends: Vec::new(),
            added: self.joined().map(Joined::added).unwrap_or_default(),
            measured_by: None,
            is_mixture: false,
        }
    }

    fn is_remote(&self) -> bool {
        self.is_remote()
    }

    fn at_record(&self, error: Error, record: u64) -> Error {
        self.at_record(error, record)
    }
}

/// The lengths of an opened split.
impl Lengths for Split {
    fn records(&self) -> u64 {
        self.len()
    }

    fn record_at(&self, rank: u64) -> Result<u64> {
        self.ranked(rank)
    }

    fn length_of(&self, record: u64) -> Result<u64> {
        self.length(record)
    }

    fn lengths_of(&self, records: &[u64], out: &mut Vec<u64>) -> Result<()> {
        let index = self.record_index()?;
        for &record in records {
            self.check_range(record)?;
            out.push(index.length(record)?);
        }
        Ok(())
    }

    fn trained_of(&self, record: u64) -> Result<u64> {
        let entry = self.entry(record)?;
        Ok(entry.column(&self.manifest().schema, TRAINED).map_or(entry.length, u64::from))
    }

    fn longest_side_of(&self, record: u64) -> Result<u64> {
        let entry = self.entry(record)?;
        Ok(entry.column(&self.manifest().schema, LONGEST).map_or(entry.length, u64::from))
    }

    fn shape_of(&self, record: u64) -> Result<Option<ImageShape>> {
        let schema = &self.manifest().schema;
        let entry = self.entry(record)?;
        let column = |name| entry.column(schema, name);
        let shape = column(WIDTH).zip(column(HEIGHT)).map(|(width, height)| ImageShape { width, height });
        Ok(shape.filter(|_| schema.holds_images()))
    }

    fn column_of(&self, record: u64, name: &str) -> Result<Option<u64>> {
        Ok(self.index_column(record, name)?.map(u64::from))
    }

    fn key_of(&self, record: u64) -> Option<String> {
        Some(self.get(record).ok()?.key()?.to_owned())
    }

    fn can_be_cut(&self) -> bool {
        self.schema().holds_token_ids()
    }

    fn runs(&self) -> Result<Runs<'_>> {
        Ok(Box::new(self.histogram()?))
    }
}

impl From<Split> for Arc<dyn RecordSource> {
    fn from(split: Split) -> Self {
        Arc::new(split)
    }
}

/// The lengths of the records of a source.
impl Lengths for Arc<dyn RecordSource> {
    fn records(&self) -> u64 {
        self.lengths().records()
    }

    fn record_at(&self, rank: u64) -> Result<u64> {
        self.lengths().record_at(rank)
    }

    fn length_of(&self, record: u64) -> Result<u64> {
        self.lengths().length_of(record)
    }

    fn lengths_of(&self, records: &[u64], out: &mut Vec<u64>) -> Result<()> {
        self.lengths().lengths_of(records, out)
    }

    fn trained_of(&self, record: u64) -> Result<u64> {
        self.lengths().trained_of(record)
    }

    fn longest_side_of(&self, record: u64) -> Result<u64> {
        self.lengths().longest_side_of(record)
    }

    fn shape_of(&self, record: u64) -> Result<Option<ImageShape>> {
        self.lengths().shape_of(record)
    }

    fn column_of(&self, record: u64, name: &str) -> Result<Option<u64>> {
        self.lengths().column_of(record, name)
    }

    fn key_of(&self, record: u64) -> Option<String> {
        Some(self.get_many(&[record]).ok()?.first()?.key()?.to_owned())
    }

    fn can_be_cut(&self) -> bool {
        self.schema().holds_token_ids()
    }

    fn runs(&self) -> Result<Runs<'_>> {
        self.lengths().runs()
    }
}

/// Borrows the flags in the field at `field_index` of `records`.
pub(super) fn flags_in(records: &[Record], field_index: usize) -> Result<Vec<&[u8]>> {
    let of_record = records.iter().map(|record| match record.values().get(field_index) {
        Some(Value::Bytes(flags)) => Ok(flags.as_ref()),
        _ => Err(Error::corrupt("the record does not mark the tokens to train on").at_row(record.ordinal())),
    });
    of_record.collect()
}

/// Borrows the token ids in the field at `field_index` of `records`.
pub(super) fn ids_in(records: &[Record], field_index: usize) -> Result<Vec<Ids<&[u8]>>> {
    let of_record = records.iter().map(|record| match record.values().get(field_index) {
        Some(Value::Ids(ids)) => Ok(ids.lend()),
        _ => Err(Error::corrupt("the record has no token ids").at_row(record.ordinal())),
    });
    of_record.collect()
}
