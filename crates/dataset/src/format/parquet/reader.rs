//! Reader of Parquet shards.
//!
//! The page index maps each row to one page per column. A random read therefore decodes one page per column instead of
//! a row group, and a batched read decodes each page it needs once. Rows with token lists that were decoded around a
//! requested one are kept in the [cache](super::cache). Apart from that, a reader holds only the footer and the page
//! index. It can be used from many threads and after a fork.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use ::parquet::arrow::ProjectionMask;
use ::parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection,
};
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use ::parquet::file::reader::{ChunkReader, Length};
use ::parquet::schema::types::SchemaDescriptor;
use bytes::{Buf, Bytes};

use super::cache::{ReaderId, Rows};
use super::guard;
use super::lists::Lists;
use crate::error::{Error, ErrorKind, Result, chain_until_error};
use crate::format::arrow_schema::{METADATA_KEY, expect, from_arrow, not_a_shard};
use crate::format::rows::DecodedRows;
use crate::format::{Placed, Scan, ShardReader};
use crate::sample::{Record, Value};
use crate::schema::{FieldType, Schema};
use crate::storage::{Blob, briefly};

/// Maximum rows per decoded batch.
const BATCH_ROWS: usize = 1024;
/// Decoded bytes of a batch, by the mean of its row group. The decoder grows its buffers as it fills them; small ones stay
/// in the caches of a core and in the memory that the process has.
const USUAL_BATCH_BYTES: u64 = 256 << 10;
/// Maximum bytes of the values in a batch if every value were the largest entry of a dictionary.
const BATCH_BYTES: u64 = 64 << 20;

/// Reads one Parquet shard.
pub(in crate::format) struct Reader {
    schema: Arc<Schema>,
    blob: Blob,
    metadata: ArrowReaderMetadata,
    checked: guard::CheckedPages,
    all: DecodedColumns,
    id: ReaderId,
}

/// Selection of columns to decode.
struct DecodedColumns {
    /// Indices in the schema of the file.
    columns: Arc<[usize]>,
    mask: ProjectionMask,
    /// Those that the `parquet` crate decodes.
    arrays: ProjectionMask,
    /// Types and leaves of the others, in stored order.
    lists: Vec<(FieldType, usize)>,
    /// Schema with only the fields of these columns, in stored order.
    schema: Arc<Schema>,
}

impl DecodedColumns {
    /// Selects the columns at these indices of the schema of `file`, in ascending order. `schema` has only their fields.
    fn new(schema: Arc<Schema>, columns: &[usize], file: &SchemaDescriptor) -> Self {
        let (mut mask, mut arrays, mut lists) = (Vec::new(), Vec::new(), Vec::new());
        for (&column, field) in columns.iter().zip(&schema.fields) {
            let leaves = (0..file.num_columns()).filter(|&leaf| file.get_column_root_idx(leaf) == column);
            // The paths of images in lists are all null: one page has those of all rows, which would be read for each.
            let leaves = leaves.take(if field.ty == FieldType::Images { 1 } else { usize::MAX });
            mask.extend(leaves.clone());
            match field.ty.is_token_list() {
                true => lists.extend(leaves.map(|leaf| (field.ty, leaf))),
                false => arrays.extend(leaves),
            }
        }
        let mask = ProjectionMask::leaves(file, mask);
        Self { columns: columns.into(), mask, arrays: ProjectionMask::leaves(file, arrays), lists, schema }
    }
}

impl Reader {
    pub(in crate::format) fn new(schema: Arc<Schema>, blob: Blob) -> Result<Self> {
        let metadata = load(&blob)?;
        expect(&schema, metadata.schema()).map_err(|e| e.at_path(blob.path()))?;
        guard::check_footer(metadata.metadata(), blob.len())
            .map_err(|why| Error::corrupt(why).at_path(blob.path()))?;
        let columns: Vec<usize> = (0..schema.fields.len()).collect();
        let file = metadata.metadata().file_metadata().schema_descr();
        let all = DecodedColumns::new(Arc::clone(&schema), &columns, file);
        let checked = guard::CheckedPages::new(metadata.metadata());
        Ok(Self { schema, blob, metadata, checked, all, id: ReaderId::new() })
    }

    fn file(&self) -> &ParquetMetaData {
        self.metadata.metadata()
    }

    /// Decodes `ranges` (ascending; `None` for all rows) of an existing row group in batches, up to the first error.
    fn batches<'a>(
        &'a self,
        group: usize,
        ranges: Option<Vec<Range<usize>>>,
        columns: &'a DecodedColumns,
    ) -> Result<impl Iterator<Item = Result<DecodedRows>> + use<'a>> {
        let (file, ranges_to_check) = (self.file(), ranges.as_deref());
        let dictionary =
            guard::check_pages(&self.blob, file, group, ranges_to_check, &columns.arrays, &self.checked)
                .map_err(|e| self.while_decoding(group, e))?;
        let list = |&(ty, leaf)| {
            Lists::new(ty, &self.blob, file, (group, leaf), ranges_to_check)
                .ok_or_else(|| self.corrupt(group, "a column is missing"))
        };
        let mut lists = columns.lists.iter().map(list).collect::<Result<Vec<_>>>()?;
        let batch_rows = (BATCH_BYTES / dictionary.max(1)).min(USUAL_BATCH_BYTES / self.bytes_of_row(group));
        let batch_rows = batch_rows.clamp(1, BATCH_ROWS as u64) as usize;
        let chunks = BlobChunks::new(self.blob.clone());
        let failure = Arc::clone(&chunks.failure);
        let damaged = move |e| taken(&failure).unwrap_or_else(|| self.damaged(group, e));
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(chunks, self.metadata.clone())
            .with_row_groups(vec![group])
            .with_projection(columns.arrays.clone())
            .with_batch_size(batch_rows);
        let builder = match ranges {
            Some(ranges) => {
                let total = self.group_rows(group).unwrap_or_default() as usize;
                builder.with_row_selection(RowSelection::from_consecutive_ranges(ranges.into_iter(), total))
            }
            None => builder,
        };
        let mut decoder = Some(guard::caught(|| builder.build()).map_err(&damaged)?);
        Ok(std::iter::from_fn(move || {
            let mut current = decoder.take()?;
            let next =
                guard::caught(|| current.next().transpose().map_err(|e| ParquetError::External(e.into())));
            let batch = match next.transpose()? {
                Ok(batch) => batch,
                Err(e) => return Some(Err(damaged(e))),
            };
            let values = |list: &mut Lists<'_>| (0..batch.num_rows()).map(|_| list.next()).collect();
            let lists = match lists.iter_mut().map(values).collect() {
                Ok(lists) => lists,
                Err(e) => return Some(Err(self.while_decoding(group, e))),
            };
            decoder = Some(current);
            Some(DecodedRows::new(&columns.schema, &batch, lists).map_err(|why| self.corrupt(group, why)))
        }))
    }

    /// Adds the row group to an error that reports damage.
    fn while_decoding(&self, group: usize, error: Error) -> Error {
        if is_damage(&error) { self.damaged(group, error) } else { error }
    }

    /// Returns the error for a row group that cannot be decoded.
    fn damaged(&self, group: usize, cause: impl std::error::Error + Send + Sync + 'static) -> Error {
        Error::corrupt(format!("row group {group} cannot be decoded"))
            .at_path(self.blob.path())
            .caused_by(cause)
    }

    fn corrupt(&self, group: usize, why: impl std::fmt::Display) -> Error {
        Error::corrupt(format!("row group {group}: {why}")).at_path(self.blob.path())
    }

    fn group_rows(&self, group: usize) -> Option<u64> {
        self.file().row_groups().get(group).and_then(|g| u64::try_from(g.num_rows()).ok())
    }

    /// Returns the mean number of decoded bytes per row of a row group, at least 1.
    fn bytes_of_row(&self, group: usize) -> u64 {
        let group = self.file().row_groups().get(group);
        let (rows, bytes) = group.map_or((0, 0), |group| (group.num_rows(), group.total_byte_size()));
        (bytes.cast_unsigned() / rows.cast_unsigned().max(1)).max(1)
    }

    /// Iterates over all records of one row group. Ends with an error if it has fewer rows than the footer claims.
    fn scan_group(&self, group: usize) -> Result<impl Iterator<Item = Result<(Placed, Record)>>> {
        let expected = self.group_rows(group).unwrap_or_default();
        let mut records = chain_until_error(self.batches(group, None, &self.all)?.map(move |rows| {
            let rows = rows?;
            Ok((0..rows.len)
                .map(move |i| rows.record(&self.schema, i).map_err(|why| self.corrupt(group, why))))
        }));
        let mut row = 0;
        Ok(std::iter::from_fn(move || match records.next() {
            Some(Ok(record)) => {
                let placed = Placed::in_group(group as u32, row as u32, record.canonical_size());
                row += 1;
                Some(Ok((placed, record)))
            }
            Some(Err(e)) => Some(Err(e)),
            None if row == expected => None,
            None => Some(Err(self.corrupt(group, format!("{row} rows instead of {expected}")))),
        }))
    }

    /// Returns the ranges to decode in order to read `rows` (ascending) of a row group, if their other rows are worth
    /// keeping. Without token lists, no other rows are decoded; and a caller that reads most rows of several ranges reads in
    /// order, and will not come back.
    fn rows_to_keep(
        &self,
        group: usize,
        rows: &[u32],
        columns: &DecodedColumns,
    ) -> Option<Vec<Range<usize>>> {
        if columns.lists.is_empty() {
            return None;
        }
        let ranges = guard::whole_pages(self.file(), group, rows, &columns.mask);
        let decoded: usize = ranges.iter().map(ExactSizeIterator::len).sum();
        (ranges.len() == 1 || decoded > 2 * rows.len()).then_some(ranges)
    }

    /// Passes the records in `rows` (ascending) of a row group to `take`, from the cache or from `ranges`, which are then
    /// kept there.
    fn read_kept(
        &self,
        group: usize,
        rows: &[u32],
        ranges: &[Range<usize>],
        columns: &DecodedColumns,
        take: &mut dyn FnMut(u32, Record),
    ) -> Result<()> {
        let kept = self.id.get(group, ranges.iter().map(|range| range.start), &columns.columns);
        let mut rows = rows.iter().copied().peekable();
        for (range, kept) in ranges.iter().zip(kept) {
            let decoded = match kept {
                Some(kept) => kept,
                None => {
                    let decoded = self.batches(group, Some(vec![range.clone()]), columns)?;
                    let decoded = Arc::new(Rows::new(decoded.collect::<Result<_>>()?));
                    self.id.keep(group, range.start, &columns.columns, Arc::clone(&decoded));
                    decoded
                }
            };
            while let Some(row) = rows.next_if(|&row| range.contains(&(row as usize))) {
                let record = decoded.record(&columns.schema, row as usize - range.start);
                let record = record.unwrap_or_else(|| Err(format!("row {row} is missing")));
                take(row, record.map_err(|why| self.corrupt(group, why))?);
            }
        }
        Ok(())
    }

    /// Passes the records in `rows` (ascending) of a row group to `take`, without the cache.
    fn read_once(
        &self,
        group: usize,
        rows: &[u32],
        columns: &DecodedColumns,
        take: &mut dyn FnMut(u32, Record),
    ) -> Result<()> {
        let ranges = guard::ranges(self.file(), group, rows, &columns.mask);
        let mut decoded_rows = ranges.iter().cloned().flatten();
        let mut wanted = rows.iter().copied().peekable();
        for decoded in self.batches(group, Some(ranges.clone()), columns)? {
            let decoded = decoded?;
            for (i, row) in (0..decoded.len).zip(decoded_rows.by_ref()) {
                if let Some(wanted) = wanted.next_if(|&wanted| wanted as usize == row) {
                    let record =
                        decoded.record(&columns.schema, i).map_err(|why| self.corrupt(group, why))?;
                    take(wanted, record);
                }
            }
        }
        Ok(())
    }

    /// Reads the records at `at` with only the fields in `columns`.
    fn read(&self, at: &[Placed], columns: &DecodedColumns) -> Result<Vec<Record>> {
        let mut groups: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for at in at {
            groups.entry(at.group()).or_default().push(at.row());
        }
        // By position, in ascending order.
        let mut found: Vec<(u64, Record)> = Vec::with_capacity(at.len());
        for (group, mut rows) in groups {
            rows.sort_unstable();
            rows.dedup();
            let g = group as usize;
            let total =
                self.group_rows(g).ok_or_else(|| self.corrupt(g, "the shard has no such row group"))?;
            if let Some(row) = rows.iter().find(|&&row| u64::from(row) >= total) {
                return Err(self.corrupt(g, format!("row {row} does not exist, there are only {total} rows")));
            }
            let mut take = |row, record| found.push((Placed::in_group(group, row, 0).position, record));
            match self.rows_to_keep(g, &rows, columns) {
                Some(ranges) => self.read_kept(g, &rows, &ranges, columns, &mut take)?,
                None => self.read_once(g, &rows, columns, &mut take)?,
            }
        }
        if found.iter().map(|(position, _)| *position).eq(at.iter().map(|at| at.position)) {
            return Ok(found.into_iter().map(|(_, record)| record).collect());
        }
        at.iter()
            .map(|at| {
                let record = found.binary_search_by_key(&at.position, |(position, _)| *position);
                let record = record.ok().and_then(|index| found.get(index)).map(|(_, record)| record.clone());
                record
                    .ok_or_else(|| self.corrupt(at.group() as usize, format!("row {} is missing", at.row())))
            })
            .collect()
    }
}

impl ShardReader for Reader {
    fn get(&self, at: Placed) -> Result<Record> {
        let mut records = self.get_many(&[at])?;
        records.pop().ok_or_else(|| self.corrupt(at.group() as usize, "no such row"))
    }

    fn get_many(&self, at: &[Placed]) -> Result<Vec<Record>> {
        self.read(at, &self.all)
    }

    fn get_columns(&self, at: &[Placed], columns: &[usize]) -> Result<Vec<Record>> {
        let file = self.file().file_metadata().schema_descr();
        let fields = columns.iter().filter_map(|&c| self.schema.fields.get(c).cloned()).collect();
        let schema = Arc::new(Schema { fields, ..(*self.schema).clone() });
        let records = self.read(at, &DecodedColumns::new(schema, columns, file))?;
        // Puts each value at its schema index.
        let spread = |record: Record| {
            let mut values = vec![Value::Null; self.schema.fields.len()];
            for (&column, value) in columns.iter().zip(record.values) {
                if let Some(slot) = values.get_mut(column) {
                    *slot = value;
                }
            }
            Record { values }
        };
        Ok(records.into_iter().map(spread).collect())
    }

    fn scan(&self) -> Result<Scan<'_>> {
        let groups = (0..self.file().num_row_groups()).map(|group| self.scan_group(group));
        Ok(Box::new(chain_until_error(groups)))
    }
}

/// Infers the schema from the file.
pub(in crate::format) fn infer_schema(blob: &Blob) -> Result<Schema> {
    let chunks = BlobChunks::new(blob.clone());
    let footer = load_footer(blob, &chunks)?;
    // A file from another program may have no page index. It is foreign, not damaged.
    if own_metadata(&footer).is_none() {
        return Err(not_a_shard().at_path(blob.path()));
    }
    let metadata = with_page_index(blob, &chunks, footer)?;
    from_arrow(metadata.schema(), own_metadata(metadata.metadata())).map_err(|e| e.at_path(blob.path()))
}

/// Returns the metadata that a shard stores for its readers.
fn own_metadata(file: &ParquetMetaData) -> Option<&str> {
    file.file_metadata().key_value_metadata()?.iter().find(|kv| kv.key == METADATA_KEY)?.value.as_deref()
}

/// Loads the footer, which is checked before it is parsed.
fn load_footer(blob: &Blob, chunks: &BlobChunks) -> Result<ParquetMetaData> {
    guard::check_footer_bytes(blob)?;
    let mut footer = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Skip);
    guard::caught(|| footer.try_parse(chunks).and_then(|()| footer.finish()))
        .map_err(|e| unread(blob, chunks, e))
}

/// Returns the error for a footer that cannot be parsed: the failure to read it, or damage.
fn unread(blob: &Blob, chunks: &BlobChunks, error: ParquetError) -> Error {
    let damaged =
        || Error::corrupt("the Parquet footer cannot be read").at_path(blob.path()).caused_by(error);
    taken(&chunks.failure).unwrap_or_else(damaged)
}

/// Loads the footer and the page index. Both are checked before they are parsed.
fn load(blob: &Blob) -> Result<ArrowReaderMetadata> {
    let chunks = BlobChunks::new(blob.clone());
    let footer = load_footer(blob, &chunks)?;
    with_page_index(blob, &chunks, footer)
}

/// Adds the page index, which is checked before it is parsed.
fn with_page_index(blob: &Blob, chunks: &BlobChunks, footer: ParquetMetaData) -> Result<ArrowReaderMetadata> {
    guard::check_page_index(blob, &footer)?;
    let mut index = ParquetMetaDataReader::new_with_metadata(footer)
        .with_column_index_policy(PageIndexPolicy::Skip)
        .with_offset_index_policy(PageIndexPolicy::Required);
    guard::caught(|| {
        index.read_page_indexes(chunks)?;
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        ArrowReaderMetadata::try_new(Arc::new(index.finish()?), options)
    })
    .map_err(|e| unread(blob, chunks, e))
}

/// Returns whether the bytes are at fault, not the attempt to read them.
fn is_damage(error: &Error) -> bool {
    error.kind() == ErrorKind::Corrupt
}

/// Adapter from [`Blob`] to the traits of the Parquet library.
struct BlobChunks {
    blob: Blob,
    /// The first failed read, unless it reported damage. The library turns errors into text, but callers need to know whether
    /// reading again may help.
    failure: Arc<Mutex<Option<Error>>>,
}

/// Takes the failed read of a [`BlobChunks`].
fn taken(failure: &Mutex<Option<Error>>) -> Option<Error> {
    briefly(failure)?.take()
}

impl BlobChunks {
    fn new(blob: Blob) -> Self {
        Self { blob, failure: Arc::default() }
    }
}

impl Length for BlobChunks {
    fn len(&self) -> u64 {
        self.blob.len()
    }
}

impl ChunkReader for BlobChunks {
    type T = bytes::buf::Reader<Bytes>;

    /// Reads all bytes from `start` on. The library needs only the end of the footer: pages are located by the page index.
    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        let rest = self.blob.len().saturating_sub(start);
        Ok(self.get_bytes(start, rest as usize)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        self.blob.read(start, length as u64).map_err(|error| {
            let text = error.to_string();
            let kept = briefly(&self.failure).filter(|first| first.is_none() && !is_damage(&error));
            if let Some(mut first) = kept {
                *first = Some(error);
            }
            ParquetError::General(text)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Format, writer};
    use crate::sample::Ids;
    use crate::schema::IdWidth;
    use crate::storage::{Access, NewFile};

    /// Writes a shard of `count` records, and opens it.
    fn shard(
        dir: &std::path::Path,
        count: u32,
        record: impl Fn(u32) -> Record,
    ) -> (Reader, Vec<Placed>, Vec<Record>) {
        let path = dir.join("a.parquet");
        let schema = Arc::new(Schema::text(IdWidth::U16, vec![]).unwrap());
        let file = NewFile::create(&path).unwrap();
        let mut shard = writer(Format::Parquet, Arc::clone(&schema), file).unwrap();
        let records: Vec<Record> = (0..count).map(record).collect();
        let placed = records.iter().map(|record| shard.push(record).unwrap()).collect();
        shard.finish().unwrap().commit().unwrap();
        let reader = Reader::new(schema, Blob::open(&path, Access::Map, None).unwrap()).unwrap();
        (reader, placed, records)
    }

    fn text(number: u32, tokens: u32) -> Record {
        let ids: Vec<u32> = (0..tokens).map(|at| (at * 7 + number) % 50_000).collect();
        let ids = Value::Ids(Ids::pack(IdWidth::U16, &ids).unwrap());
        let key = Value::Text(format!("{number}").into());
        Record { values: vec![key, ids, Value::UInt(tokens.into()), Value::Text("a".into())] }
    }

    /// Returns which rows are kept around `row` of the first row group.
    fn kept(reader: &Reader, row: usize) -> Option<Range<usize>> {
        let range = guard::whole_pages(reader.file(), 0, &[row as u32], &reader.all.mask).pop().unwrap();
        let found = reader.id.get(0, std::iter::once(range.start), &reader.all.columns).pop().unwrap();
        found.map(|_| range)
    }

    #[test]
    fn rows_around_a_record_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let (reader, placed, records) = shard(dir.path(), 500, |number| text(number, 100 + number % 7));
        assert_eq!(kept(&reader, 250), None);
        assert_eq!(reader.get(placed[250]).unwrap(), records[250]);
        let range = kept(&reader, 250).unwrap();
        assert!(range.contains(&250) && range.len() > 20 && range.len() < 200, "{range:?}");
        // Rows of the same pages, in any order and repeated, and others, which are then kept, too.
        let wanted = [range.start, 499, range.end - 1, 250, 0, range.start];
        let at: Vec<Placed> = wanted.iter().map(|&row| placed[row]).collect();
        let expected: Vec<Record> = wanted.iter().map(|&row| records[row].clone()).collect();
        assert_eq!(reader.get_many(&at).unwrap(), expected);
        assert!(kept(&reader, 0).is_some() && kept(&reader, 499).is_some());
        // With other columns, the rows are others.
        let key = reader.get_columns(&at, &[0]).unwrap();
        assert!(key.iter().zip(&expected).all(|(key, record)| key.values[0] == record.values[0]));
        let ids = reader.get_columns(&at, &[1, 2]).unwrap();
        assert!(ids.iter().zip(&expected).all(|(ids, record)| ids.values[1..3] == record.values[1..3]));
        assert!(ids.iter().all(|ids| ids.values[0] == Value::Null));
        // Another reader of the file shares nothing with this one.
        let blob = Blob::open(&dir.path().join("a.parquet"), Access::Map, None).unwrap();
        assert_eq!(kept(&Reader::new(Arc::clone(&reader.schema), blob).unwrap(), 250), None);
    }

    #[test]
    fn reading_in_order_keeps_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (reader, placed, records) = shard(dir.path(), 500, |number| text(number, 100));
        assert_eq!(reader.get_many(&placed).unwrap(), records);
        assert_eq!(reader.get_many(&placed[100..400]).unwrap(), records[100..400]);
        assert!(reader.scan().unwrap().zip(&records).all(|(read, record)| read.unwrap().1 == *record));
        assert!((0..500).all(|row| kept(&reader, row).is_none()));
    }

    #[test]
    fn threads_share_kept_rows() {
        let dir = tempfile::tempdir().unwrap();
        let (reader, placed, records) = shard(dir.path(), 300, |number| text(number, 50));
        std::thread::scope(|scope| {
            for thread in 0..4usize {
                let (reader, placed, records) = (&reader, &placed, &records);
                scope.spawn(move || {
                    for step in 0..600 {
                        let row = (step * 37 + thread * 101) % 300;
                        assert_eq!(reader.get(placed[row]).unwrap(), records[row]);
                    }
                });
            }
        });
    }

    /// A list page whose rows are all read is decompressed once: only between ranges are its levels checked before.
    #[test]
    fn consecutive_pages_are_one_range_and_batches_are_limited_in_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let (reader, placed, records) = shard(dir.path(), 60, |number| text(number, 20_000));

        let ranges = |rows: &[u32]| guard::ranges(reader.file(), 0, rows, &reader.all.mask);
        let all = ranges(&(0..60).collect::<Vec<_>>());
        assert_eq!((all.len(), &all[0]), (1, &(0..60)));
        let apart = ranges(&[0, 1, 58, 59]);
        assert_eq!((apart.len(), apart[0].start, apart[1].end), (2, 0, 60));

        let batches = reader.batches(0, None, &reader.all).unwrap();
        let rows: Vec<usize> = batches.map(|batch| batch.unwrap().len).collect();
        assert_eq!(rows.iter().sum::<usize>(), 60);
        // 80 kB per row.
        assert!(rows.iter().all(|&rows| rows <= 3), "{rows:?}");
        assert_eq!(reader.get_many(&placed).unwrap(), records);
    }
}
