//! Splits of an opened dataset: locates, reads and checks records.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use dsconvert_dataset::error::{Error, ErrorKind, Result};
use dsconvert_dataset::format::{self, Format, Placed, ShardReader};
use dsconvert_dataset::index::{IndexEntry, LengthIndex, RecordIndex, ShardEntry};
use dsconvert_dataset::manifest;
use dsconvert_dataset::sample::{self, Value};
use dsconvert_dataset::schema::Schema;

use super::companions::Joined;
use super::dataset_state::{CheckedIndexes, DatasetState};
use super::record::{Record, check_record};
use super::shards::OpenShards;

/// State shared by all handles of one split.
pub(super) struct SplitState {
    pub(super) dataset: Arc<DatasetState>,
    name: String,
    records: OnceLock<RecordIndex>,
    pub(super) lengths: OnceLock<LengthIndex>,
    pub(super) checked: CheckedIndexes,
    open: OpenShards,
}

impl SplitState {
    pub(super) fn new(dataset: Arc<DatasetState>, name: String) -> Self {
        let shards = dataset.shards.split(&name).map_or(0, |s| s.shards.len());
        let open = OpenShards::new(dataset.options.slots(shards));
        let (records, lengths) = (OnceLock::new(), OnceLock::new());
        Self { dataset, name, records, lengths, checked: CheckedIndexes::default(), open }
    }
}

impl fmt::Debug for SplitState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Split")
            .field("dataset", &self.dataset.path())
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The fields that a handle returns.
#[derive(Debug)]
struct Projection {
    schema: Arc<Schema>,
    /// Positions in the stored schema; `None` for all.
    columns: Option<Vec<usize>>,
    /// Holds records of this projection.
    read_ahead: ReadAhead,
}

impl Projection {
    fn new(schema: Arc<Schema>, columns: Option<Vec<usize>>) -> Arc<Self> {
        Arc::new(Self { schema, columns, read_ahead: ReadAhead::default() })
    }
}

/// A handle to one split of a dataset. Cloning is cheap, and threads may share a handle.
///
/// Opening starts no threads, locks are held only while a pointer is copied, and files are read at explicit positions
/// instead of a shared offset. A handle created before `fork` therefore works in parent and child, unless another
/// thread reads through it at the moment of the fork. A [`Loader`](super::loader::Loader) needs no such care.
#[derive(Debug, Clone)]
pub struct Split {
    pub(super) state: Arc<SplitState>,
    projection: Arc<Projection>,
    /// The fields of this split and of its companions, if there are some.
    joined: Option<Arc<Joined>>,
}

impl Split {
    /// Creates a handle that returns all fields.
    pub(super) fn whole(state: Arc<SplitState>) -> Self {
        let projection = Projection::new(Arc::clone(&state.dataset.schema), None);
        Self { state, projection, joined: None }
    }

    /// Returns a handle to the same split that returns the fields of `joined`.
    pub(super) fn joined_with(&self, joined: Joined) -> Self {
        Self { joined: Some(Arc::new(joined)), ..self.clone() }
    }

    pub(super) fn joined(&self) -> Option<&Joined> {
        self.joined.as_deref()
    }

    /// Returns the directory or URL of the dataset.
    pub(super) fn dataset_path(&self) -> &std::path::Path {
        self.state.dataset.path()
    }

    /// Returns a handle for the child of a fork: it shares nothing that a thread of the parent may have locked. It
    /// reopens indexes and shards when they are needed.
    pub(super) fn detached(&self) -> Self {
        let mut state = SplitState::new(Arc::clone(&self.state.dataset), self.state.name.clone());
        state.checked = self.state.checked.copy();
        let Projection { schema, columns, .. } = &*self.projection;
        let projection = Projection::new(Arc::clone(schema), columns.clone());
        let joined = self.joined().map(|joined| Arc::new(joined.detached()));
        Self { state: Arc::new(state), projection, joined }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// Returns the entry of the split in the manifest: counts, bytes, distribution of lengths.
    pub fn info(&self) -> Option<&manifest::Split> {
        self.state.dataset.manifest.splits.get(self.name())
    }

    /// Returns the number of records.
    pub fn len(&self) -> u64 {
        self.info().map_or(0, |s| s.records)
    }

    /// Returns whether the split has no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the schema of the records: all fields, or the selected ones.
    pub fn schema(&self) -> &Schema {
        match self.joined() {
            Some(joined) => joined.schema(),
            None => &self.projection.schema,
        }
    }

    /// Returns the number of tokens of a full row, if the records of the split are rows of several documents (the
    /// option `pack` of the conversion).
    pub fn packed_length(&self) -> Option<u64> {
        self.schema().holds_token_ids().then(|| self.manifest().options.get("pack")?.as_u64()).flatten()
    }

    /// Returns whether the dataset is in object storage, where reading a record may wait for minutes.
    pub fn is_remote(&self) -> bool {
        self.state.dataset.location.is_remote()
    }

    /// Returns the manifest of the dataset.
    pub(super) fn manifest(&self) -> &manifest::Manifest {
        &self.state.dataset.manifest
    }

    /// Returns the identifier of this split in saved states: the fingerprints in the manifests of its dataset and of the
    /// companions that are added, and the name of the split.
    pub fn fingerprint(&self) -> String {
        let own = std::iter::once(self.manifest().fingerprint.as_str());
        let added = self.joined().into_iter().flat_map(Joined::fingerprints);
        format!("{}/{}", own.chain(added).collect::<Vec<_>>().join("+"), self.name())
    }

    pub(super) fn read_ahead(&self) -> &ReadAhead {
        &self.projection.read_ahead
    }

    /// Maps the index of a field in the records of this handle to its index in stored records.
    pub(super) fn stored_index(&self, field_index: usize) -> Option<usize> {
        match &self.projection.columns {
            None => Some(field_index),
            Some(columns) => columns.get(field_index).copied(),
        }
    }

    /// Returns the fields to decode, in stored order; `None` for all. The checksum of a record covers all its fields,
    /// so a subset is decoded only when checksums are not verified.
    fn decoded_columns(&self) -> Option<Vec<usize>> {
        if self.state.dataset.options.verify_checksums {
            return None;
        }
        let mut columns = self.projection.columns.clone()?;
        columns.sort_unstable();
        columns.dedup();
        Some(columns)
    }

    pub(super) fn format(&self) -> Format {
        self.state.dataset.manifest.format
    }

    /// Returns the shards in record order.
    pub fn shards(&self) -> &[ShardEntry] {
        self.state.dataset.shards.split(self.name()).map_or(&[], |s| &s.shards)
    }

    /// Returns the same split with only the fields `names`, in that order. Records are still checked as a whole, which
    /// requires reading all their fields. With [`verify_checksums(false)`](super::OpenOptions::verify_checksums), only
    /// the selected fields of Parquet shards are decoded.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`] when there is no such field (the remedy lists the existing ones) or a field is named twice.
    pub fn select(&self, names: &[&str]) -> Result<Split> {
        if let Some(joined) = self.joined() {
            return joined.select(names);
        }
        let stored = &self.state.dataset.schema;
        let find = |name: &&str| {
            stored.index_of(name).ok_or_else(|| {
                let names: Vec<&str> = stored.fields.iter().map(|f| f.name.as_str()).collect();
                Error::usage(format!("the dataset has no field {name:?}"))
                    .help(format!("its fields are {}", names.join(", ")))
            })
        };
        if let Some((_, name)) = names.iter().enumerate().find(|&(at, name)| names[..at].contains(name)) {
            return Err(Error::usage(format!("the field {name:?} is requested twice")));
        }
        let columns = names.iter().map(find).collect::<Result<Vec<_>>>()?;
        let fields = columns.iter().filter_map(|&c| stored.fields.get(c).cloned()).collect();
        let indexed = stored.indexed.iter().filter(|name| names.contains(&name.as_str())).cloned().collect();
        let schema = Schema { kind: stored.kind, fields, class_names: stored.class_names.clone(), indexed };
        let projection = Projection::new(Arc::new(schema), Some(columns));
        Ok(Self { state: Arc::clone(&self.state), projection, joined: None })
    }

    /// Returns the record index. Its files are compared with their checksums on the first call.
    ///
    /// # Errors
    ///
    /// Same as [`RecordIndex::open`]; also [`ErrorKind::Corrupt`] when a file does not match its checksum.
    pub fn record_index(&self) -> Result<&RecordIndex> {
        let index = self.unchecked_record_index()?;
        let files = self.info().map_or(&[][..], |s| &s.record_index);
        self.state.dataset.check_files(&self.state.checked.records, index.blobs(), files)?;
        Ok(index)
    }

    /// Returns the record index without checking its files, for looking up records that have their own checksums.
    pub(super) fn unchecked_record_index(&self) -> Result<&RecordIndex> {
        if let Some(index) = self.state.records.get() {
            return Ok(index);
        }
        let dataset = &self.state.dataset;
        let files = self.info().map_or(&[][..], |s| &s.record_index);
        let index =
            dataset.read_index(files, || RecordIndex::open(dataset.segments(files)?, &dataset.schema))?;
        Ok(self.state.records.get_or_init(|| index))
    }

    /// Returns the position, length and checksum of a record from the [`Split::record_index`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::OutOfRange`] when there is no such record.
    pub fn entry(&self, record: u64) -> Result<IndexEntry> {
        self.check_range(record)?;
        self.record_index()?.get(record)
    }

    /// Returns the length of a record from the [`Split::record_index`], in the unit of the dataset's kind
    /// ([`Kind::length_unit`](dsconvert_dataset::schema::Kind::length_unit)).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::OutOfRange`] when there is no such record.
    pub fn length(&self, record: u64) -> Result<u64> {
        self.check_range(record)?;
        self.record_index()?.length(record)
    }

    /// Returns the value of the field `name` of a record from the [`Split::record_index`], without reading the record; `None`
    /// if the index does not store the field ([`Schema::index_columns`](dsconvert_dataset::schema::Schema::index_columns)).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::OutOfRange`] when there is no such record.
    pub fn index_column(&self, record: u64, name: &str) -> Result<Option<u32>> {
        Ok(self.entry(record)?.column(&self.state.dataset.schema, name))
    }

    /// Returns the record with the ordinal `record`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::OutOfRange`] when there is no such record, [`ErrorKind::Corrupt`] when its bytes are not those that
    /// were written, [`ErrorKind::Io`] when they cannot be read. The latter two name the shard and the row.
    pub fn get(&self, record: u64) -> Result<Record> {
        if let Some(joined) = self.joined() {
            self.check_range(record)?;
            return joined.get(record);
        }
        // Only Parquet benefits: its records are compressed together.
        if self.format() == Format::Parquet
            && let Some(record) = self.get_ahead(record, self.state.dataset.options.read_ahead_bytes)?
        {
            return Ok(record);
        }
        let found = self.locate(record)?;
        match self.get_located(&found) {
            Err(e) if is_corrupt(&e) && self.forget_shard(found.entry.shard) => self.get_located(&found),
            result => result,
        }
    }

    fn get_located(&self, found: &Located) -> Result<Record> {
        let reader = self.open_shard(found.entry.shard)?;
        let values = self.read_one(&*reader, found.entry.placed()).map_err(|e| self.at(e, found))?;
        self.finish(found, values)
    }

    /// Drops what was fetched of a shard that is damaged; see [`Location::read_again_if_damaged`].
    ///
    /// [`Location::read_again_if_damaged`]: dsconvert_dataset::storage::Location::read_again_if_damaged
    fn forget_shard(&self, shard: u32) -> bool {
        let Some(entry) = self.shards().get(shard as usize) else { return false };
        let is_dropped = self.state.dataset.location.forget(&[(&entry.path(), &entry.sha256)]);
        if is_dropped {
            self.state.open.close(shard);
        }
        is_dropped
    }

    /// Returns the records with the ordinals `records`, in that order. Repeats are allowed. Each shard and row group is
    /// visited once, in its order on disk.
    ///
    /// # Errors
    ///
    /// Same as [`Split::get`], for one of the records that fail.
    pub fn get_many(&self, records: &[u64]) -> Result<Vec<Record>> {
        self.get_each(records)?.into_iter().collect()
    }

    /// Same as [`Split::get_many`], but a record that cannot be read is an error in its position.
    ///
    /// # Errors
    ///
    /// Fails as a whole if the store does not respond, if the caller was interrupted, or if a record cannot be looked
    /// up or its shard cannot be opened.
    pub(super) fn get_each(&self, records: &[u64]) -> Result<Vec<Result<Record>>> {
        if let Some(joined) = self.joined() {
            records.iter().try_for_each(|&record| self.check_range(record))?;
            return joined.get_each(records);
        }
        let wanted = self.locate_all(records)?;
        let mut out: Vec<Option<Result<Record>>> =
            std::iter::repeat_with(|| None).take(records.len()).collect();
        // If reads had to go to object storage since the last check, fetch the records concurrently.
        if self.state.dataset.location.has_fetched() && wanted.len() > 1 {
            self.warm(&wanted)?;
        }
        for of_shard in wanted.chunk_by(|(a, _), (b, _)| a.entry.shard == b.entry.shard) {
            let read = self.get_of_shard(of_shard, &mut out);
            let is_damaged = match &read {
                Ok(()) => of_shard
                    .iter()
                    .any(|(_, slot)| matches!(out.get(*slot), Some(Some(Err(e))) if is_corrupt(e))),
                Err(e) => is_corrupt(e),
            };
            match of_shard.first() {
                Some((first, _)) if is_damaged && self.forget_shard(first.entry.shard) => {
                    self.get_of_shard(of_shard, &mut out)?;
                }
                _ => read?,
            }
        }
        let missing =
            || Err(Error::corrupt("the record could not be read; see the error of its first occurrence"));
        Ok(out.into_iter().map(|record| record.unwrap_or_else(missing)).collect())
    }

    /// Reads records of one shard, sorted by position, into their slots in `out`.
    fn get_of_shard(&self, wanted: &[(Located, usize)], out: &mut [Option<Result<Record>>]) -> Result<()> {
        let Some((first, _)) = wanted.first() else { return Ok(()) };
        let reader = self.open_shard(first.entry.shard)?;
        let distinct: Vec<&[(Located, usize)]> =
            wanted.chunk_by(|(a, _), (b, _)| a.record == b.record).collect();
        let placed: Vec<Placed> =
            distinct.iter().filter_map(|same| Some(same.first()?.0.entry.placed())).collect();
        let dataset = &self.state.dataset;
        let read = || match dataset.unless_outage(self.read_many(&*reader, &placed))? {
            Ok(values) if values.len() == placed.len() => Ok(values.into_iter().map(Ok).collect()),
            // Read one at a time to find out which record failed.
            _ => placed
                .iter()
                .map(|&at| dataset.unless_outage(self.read_one(&*reader, at)))
                .collect::<Result<_>>(),
        };
        let values: Vec<Result<sample::Record>> = read().map_err(|e| self.at(e, first))?;
        for (same, values) in distinct.iter().zip(values) {
            let Some(((found, first), repeats)) = same.split_first() else { continue };
            match values.map_err(|e| self.at(e, found)).and_then(|values| self.finish(found, values)) {
                Ok(record) => {
                    repeats.iter().for_each(|(_, slot)| put(out, *slot, Ok(record.clone())));
                    put(out, *first, Ok(record));
                }
                // Errors cannot be cloned: the first occurrence in the requested order gets it.
                Err(e) => put(out, *first, Err(e)),
            }
        }
        Ok(())
    }

    fn read_one(&self, reader: &dyn ShardReader, at: Placed) -> Result<sample::Record> {
        match self.decoded_columns() {
            None => reader.get(at),
            Some(_) => self.read_many(reader, &[at])?.pop().ok_or_else(|| Error::corrupt("no such record")),
        }
    }

    pub(super) fn read_many(&self, reader: &dyn ShardReader, at: &[Placed]) -> Result<Vec<sample::Record>> {
        match self.decoded_columns() {
            None => reader.get_many(at),
            Some(columns) => reader.get_columns(at, &columns),
        }
    }

    pub(super) fn check_range(&self, record: u64) -> Result<()> {
        if record < self.len() {
            return Ok(());
        }
        let records = if self.len() == 1 { "record" } else { "records" };
        let what = format!("split {:?} has {} {records}", self.name(), self.len());
        Err(Error::new(ErrorKind::OutOfRange, what).at_row(record))
    }

    /// Looks up a record. The record index and the shard table must agree on the shard.
    fn locate(&self, record: u64) -> Result<Located> {
        self.check_range(record)?;
        let entry = self.unchecked_record_index()?.get(record)?;
        let shards = self.state.dataset.shards.split(self.name());
        let (shard, row) = match shards {
            Some(shards) => shards.of_record(record).map(|(shard, _, row)| (shard, row))?,
            None => return Err(Error::corrupt("the split has no shards").at_row(record)),
        };
        let found = Located { record, row, entry };
        if entry.shard != shard {
            let what =
                format!("the record is in shard {shard}, but in shard {} in the record index", entry.shard);
            let found = Located { entry: IndexEntry { shard, ..entry }, ..found };
            return Err(self.at(Error::corrupt(what), &found).help(ALTERED));
        }
        Ok(found)
    }

    /// Looks up records, each with its index in `records`, and sorts them by position on disk.
    pub(super) fn locate_all(&self, records: &[u64]) -> Result<Vec<(Located, usize)>> {
        let mut found = Vec::with_capacity(records.len());
        for (slot, &record) in records.iter().enumerate() {
            found.push((self.locate(record)?, slot));
        }
        found.sort_unstable_by_key(|(found, slot)| {
            (found.entry.shard, found.entry.position, found.record, *slot)
        });
        Ok(found)
    }

    /// Returns the shard with the ordinal `shard`, opening it if necessary.
    pub(super) fn open_shard(&self, shard: u32) -> Result<Arc<dyn ShardReader>> {
        self.state.open.get(shard, || {
            let dataset = &self.state.dataset;
            let entry = self.shards().get(shard as usize).ok_or_else(|| {
                Error::corrupt(format!("the record index names shard {shard} of {}", self.shards().len()))
            })?;
            let open = || {
                let blob = dataset.open(&entry.path(), entry.bytes, &entry.sha256)?;
                format::open(dataset.manifest.format, Arc::clone(&dataset.schema), blob)
            };
            open().map_err(|e| e.at_shard(&entry.name))
        })
    }

    /// Checks the stored values of a record and creates a record of this handle from them.
    fn finish(&self, found: &Located, stored: sample::Record) -> Result<Record> {
        if self.state.dataset.options.verify_checksums {
            check_record(&self.state.dataset.schema, &found.entry, &stored.values)
                .map_err(|what| self.at(Error::corrupt(what), found).help(ALTERED))?;
        }
        let values = match &self.projection.columns {
            None => stored.values,
            Some(columns) => {
                let value = |&c: &usize| stored.values.get(c).cloned().unwrap_or(Value::Null);
                columns.iter().map(value).collect()
            }
        };
        Ok(Record::new(Arc::clone(&self.projection.schema), found.record, values))
    }

    /// Adds the shard and row of the record with the ordinal `record` to `error`.
    pub(super) fn at_record(&self, error: Error, record: u64) -> Error {
        match self.locate(record) {
            Ok(found) => self.at(error, &found),
            Err(_) => error.at_row(record),
        }
    }

    fn at(&self, error: Error, found: &Located) -> Error {
        let error = error.at_row(found.row);
        match self.shards().get(found.entry.shard as usize) {
            Some(shard) => error.at_shard(&shard.name),
            None => error,
        }
    }
}

fn is_corrupt(error: &Error) -> bool {
    error.kind() == ErrorKind::Corrupt
}

fn put(out: &mut [Option<Result<Record>>], slot: usize, record: Result<Record>) {
    if let Some(out) = out.get_mut(slot) {
        *out = Some(record);
    }
}

/// A record that was located.
#[derive(Debug, Clone, Copy)]
pub(super) struct Located {
    /// Ordinal in the split.
    pub(super) record: u64,
    /// Row in the shard.
    row: u64,
    pub(super) entry: IndexEntry,
}

/// Remedy when records and indexes disagree.
const ALTERED: &str =
    "the shard or an index was altered; `dsconvert inspect --verify` names it: restore it or convert again";

/// The read-ahead cache of a split: one block of consecutive records.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    state: Mutex<ReadAheadState>,
}

#[derive(Debug, Default)]
struct ReadAheadState {
    /// The ordinal after that of the last requested record; 0 before the first request.
    next: u64,
    /// Consecutive records that were read ahead.
    block: Vec<Record>,
}

/// The result of [`ReadAhead::look_up`].
pub(super) enum ReadAheadLookup {
    /// The record was read ahead.
    Hit(Record),
    /// The record follows the last requested one, so the records after it will probably be requested, too.
    Sequential,
    /// Neither is the case: the record is read on its own.
    Random,
}

impl ReadAhead {
    /// Looks up `record` and remembers that it was requested.
    pub(super) fn look_up(&self, record: u64) -> ReadAheadLookup {
        let Ok(mut state) = self.state.try_lock() else { return ReadAheadLookup::Random };
        let sequential = record > 0 && state.next == record;
        state.next = record.saturating_add(1);
        let offset = record.checked_sub(state.block.first().map_or(u64::MAX, Record::ordinal));
        match offset.and_then(|offset| state.block.get(usize::try_from(offset).ok()?)) {
            Some(found) => ReadAheadLookup::Hit(found.clone()),
            None if sequential => ReadAheadLookup::Sequential,
            None => ReadAheadLookup::Random,
        }
    }

    /// Replaces the kept block with these consecutive records.
    pub(super) fn keep(&self, block: Vec<Record>) {
        if let Ok(mut state) = self.state.try_lock() {
            state.block = block;
        }
    }
}
