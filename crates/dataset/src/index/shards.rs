//! The shard table: all shards of a dataset with their sizes and hashes.
//!
//! It is small (one row per shard) and, unlike the other sidecar files, read completely.

use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, FixedSizeBinaryArray, RecordBatch, StringArray, UInt64Array};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use bytes::Bytes;

use super::ipc::{IpcFile, write_error};
use super::table::{BATCH_ROWS, check_schema, metadata};
use super::{INDEX_DIR, IndexFile, Segment, check_split_name};
use crate::error::{Error, ErrorKind, Result};
use crate::storage::{NewFile, create_dir, from_hex, hex};

/// Path of the shard table relative to the dataset.
pub const SHARD_TABLE_PATH: &str = "index/shards.arrow";

const TABLE: &str = "shards";
const SHA256_BYTES: usize = 32;
/// Number of columns in the table.
const COLUMNS: usize = 6;
/// Buffers per record batch: three for each of the two text columns, two for each other column.
const BUFFERS: usize = 14;
/// Maximum length of a shard file name in bytes. Leaves room for the suffixes of temporary files.
const MAX_SHARD_NAME_BYTES: usize = 200;

/// One row of the shard table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardEntry {
    /// File name; the path is `<split>/<name>`.
    pub name: String,
    /// Name of the split.
    pub split: String,
    /// Number of records.
    pub records: u64,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// SHA-256 of the file in lower-case hexadecimal.
    pub sha256: String,
    /// Ordinal of the first record in the split: the total number of records in the preceding shards.
    pub first_record: u64,
}

impl ShardEntry {
    /// Returns the path of the shard relative to the dataset.
    pub fn path(&self) -> String {
        format!("{}/{}", self.split, self.name)
    }

    /// Returns the work unit from a name of the form `<split>-<unit>-<ordinal>.<extension>`; `None` for other names.
    pub fn unit(&self) -> Option<u32> {
        let (rest, _) = self.name.strip_prefix(self.split.as_str())?.strip_prefix('-')?.split_once('-')?;
        rest.parse().ok()
    }
}

/// Shards of a dataset, grouped by split.
#[derive(Debug, Clone, Default)]
pub struct ShardTable {
    /// Splits that have shards, in table order.
    pub splits: Vec<SplitShards>,
}

impl ShardTable {
    /// Returns the shards of `split`, or `None` if it has none.
    pub fn split(&self, split: &str) -> Option<&SplitShards> {
        self.splits.iter().find(|s| s.name == split)
    }

    /// Iterates over all shards in table order.
    pub fn shards(&self) -> impl Iterator<Item = &ShardEntry> {
        self.splits.iter().flat_map(|split| &split.shards)
    }

    /// Appends a row, or returns what is wrong with it. `paths` contains the paths of the previous rows.
    fn push(&mut self, entry: ShardEntry, paths: &mut HashSet<String>) -> Result<(), String> {
        let path = entry.path();
        check_split_name(&entry.split).map_err(|e| e.to_string())?;
        if !is_shard_name(&entry.name) {
            return Err(format!("invalid shard name {:?}", entry.name));
        }
        if self.splits.last().is_none_or(|last| last.name != entry.split) {
            if self.split(&entry.split).is_some() {
                return Err(format!("the shards of split {:?} are not adjacent", entry.split));
            }
            self.splits.push(SplitShards { name: entry.split.clone(), shards: Vec::new(), records: 0 });
        }
        if let Some(split) = self.splits.last_mut() {
            if entry.first_record != split.records {
                let (first, before) = (entry.first_record, split.records);
                return Err(format!("{path} starts at record {first}, but {before} records precede it"));
            }
            if split.shards.len() > u32::MAX as usize {
                return Err(format!("split {:?} has too many shards", entry.split));
            }
            split.records = split
                .records
                .checked_add(entry.records)
                .ok_or_else(|| format!("split {:?} has too many records", entry.split))?;
            split.shards.push(entry);
        }
        match paths.replace(path) {
            None => Ok(()),
            Some(path) => Err(format!("{path} is listed twice")),
        }
    }
}

/// Shards of one split in record order.
#[derive(Debug, Clone)]
pub struct SplitShards {
    /// Name of the split.
    pub name: String,
    /// The shards. The ordinal of a shard is its position here.
    pub shards: Vec<ShardEntry>,
    /// Number of records in all shards.
    pub records: u64,
}

impl SplitShards {
    /// Returns the shard that contains `record`: its ordinal, its entry, and the row of the record within it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::OutOfRange`] if the split does not have that many records.
    pub fn of_record(&self, record: u64) -> Result<(u32, &ShardEntry, u64)> {
        let after = self.shards.partition_point(|shard| shard.first_record <= record);
        after
            .checked_sub(1)
            .and_then(|shard| Some((u32::try_from(shard).ok()?, self.shards.get(shard)?)))
            .map(|(shard, entry)| (shard, entry, record - entry.first_record))
            .filter(|(_, entry, row)| *row < entry.records)
            .ok_or_else(|| {
                let records = if self.records == 1 { "record" } else { "records" };
                let what = format!("split {:?} has {} {records}", self.name, self.records);
                Error::new(ErrorKind::OutOfRange, what).at_row(record)
            })
    }
}

/// Returns whether `name` is a plain file name: letters, digits, `.`, `_`, `-`, not starting with a dot.
fn is_shard_name(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    (1..=MAX_SHARD_NAME_BYTES).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(allowed)
}

fn schema() -> SchemaRef {
    let sha256 = DataType::FixedSizeBinary(SHA256_BYTES as i32);
    let fields: [Field; COLUMNS] = [
        Field::new("name", DataType::Utf8, false),
        Field::new("split", DataType::Utf8, false),
        Field::new("records", DataType::UInt64, false),
        Field::new("bytes", DataType::UInt64, false),
        Field::new("sha256", sha256, false),
        Field::new("first_record", DataType::UInt64, false),
    ];
    Arc::new(Schema::new_with_metadata(fields.to_vec(), metadata(TABLE)))
}

/// Writes the shard table of the dataset directory `out_dir`. The shards of a split must be adjacent and in record
/// order.
///
/// # Errors
///
/// [`ErrorKind::Usage`](crate::error::ErrorKind) if the entries contradict each other, `Io` if the file cannot be
/// written.
pub fn write_shard_table(out_dir: &Path, entries: &[ShardEntry]) -> Result<IndexFile> {
    let mut checked = ShardTable::default();
    let mut paths = HashSet::new();
    for entry in entries {
        checked.push(entry.clone(), &mut paths).map_err(Error::usage)?;
    }
    let path = out_dir.join(SHARD_TABLE_PATH);
    create_dir(&out_dir.join(INDEX_DIR))?;
    let schema = schema();
    let fail = |e: ArrowError| write_error(&path, e);
    let mut writer = FileWriter::try_new(NewFile::create_shared(&path)?, &schema).map_err(fail)?;
    for rows in entries.chunks(BATCH_ROWS as usize) {
        let hash = |e: &ShardEntry| {
            let bytes = from_hex(&e.sha256).filter(|bytes| bytes.len() == SHA256_BYTES);
            bytes.ok_or_else(|| Error::usage(format!("invalid SHA-256 {:?}", e.sha256)))
        };
        let hashes = rows.iter().map(hash).collect::<Result<Vec<_>>>()?.concat();
        let numbers = |of: fn(&ShardEntry) -> u64| -> ArrayRef {
            Arc::new(UInt64Array::from_iter_values(rows.iter().map(of)))
        };
        let hashes = FixedSizeBinaryArray::try_new(SHA256_BYTES as i32, hashes.into(), None).map_err(fail)?;
        let columns: [ArrayRef; COLUMNS] = [
            Arc::new(StringArray::from_iter_values(rows.iter().map(|e| &e.name))),
            Arc::new(StringArray::from_iter_values(rows.iter().map(|e| &e.split))),
            numbers(|e| e.records),
            numbers(|e| e.bytes),
            Arc::new(hashes),
            numbers(|e| e.first_record),
        ];
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns.to_vec()).map_err(fail)?;
        writer.write(&batch).map_err(fail)?;
    }
    let written = writer.into_inner().map_err(fail)?.commit()?;
    Ok(IndexFile {
        path: SHARD_TABLE_PATH.to_owned(),
        records: entries.len() as u64,
        bytes: written.bytes,
        sha256: written.sha256,
    })
}

impl ShardTable {
    /// Reads a shard table.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::error::ErrorKind) if the file is not a shard table, does not have as many shards
    /// as the manifest lists, or has contradictory rows; `Unsupported` if it has a newer version.
    pub fn read(file: Segment) -> Result<Self> {
        let Segment { blob, records: shards } = file;
        let path = blob.path().to_owned();
        let ipc = IpcFile::open(blob)?;
        check_schema(&ipc.footer.schema, &schema(), TABLE).map_err(|e| e.at_path(&path))?;
        let corrupt = |what: String| Error::corrupt(what).at_path(&path);
        let mut table = ShardTable::default();
        let mut paths = HashSet::new();
        let mut read = 0u64;
        for index in 0..ipc.footer.batches.len() {
            let columns = ShardColumns::read(&ipc, index)?;
            read = read
                .checked_add(columns.rows)
                .filter(|&read| read <= shards)
                .ok_or_else(|| corrupt(format!("it has more shards than the {shards} in the manifest")))?;
            for row in 0..columns.rows as usize {
                let entry = columns.entry(row).ok_or_else(|| corrupt(format!("row {row} cannot be read")))?;
                table.push(entry, &mut paths).map_err(corrupt)?;
            }
        }
        if read != shards {
            return Err(corrupt(format!("it has {read} shards, but the manifest lists {shards}")));
        }
        Ok(table)
    }
}

/// Columns of one record batch.
struct ShardColumns {
    rows: u64,
    names: Strings,
    splits: Strings,
    records: Bytes,
    bytes: Bytes,
    sha256: Bytes,
    first_records: Bytes,
}

/// Text column: 32-bit offsets and the bytes between them.
struct Strings {
    offsets: Bytes,
    text: Bytes,
}

impl ShardColumns {
    fn read(ipc: &IpcFile, index: usize) -> Result<Self> {
        let batch = ipc.batch(index, COLUMNS)?;
        let truncated =
            || Error::corrupt(format!("record batch {index} is truncated")).at_path(ipc.blob.path());
        let buffers: [Range<u64>; BUFFERS] = batch.buffers.try_into().map_err(|_| truncated())?;
        // The first buffer of each column, its validity, is not used.
        let column = |buffer: usize, width: u64, count: u64| {
            let range = buffers[buffer].clone();
            // A product that overflows u64 exceeds the file as well.
            let enough = width.checked_mul(count).is_some_and(|need| range.end - range.start >= need);
            if enough { ipc.bytes(range) } else { Err(truncated()) }
        };
        let rows = batch.rows;
        Ok(Self {
            rows,
            names: Strings { offsets: column(1, 4, rows + 1)?, text: column(2, 1, 0)? },
            splits: Strings { offsets: column(4, 4, rows + 1)?, text: column(5, 1, 0)? },
            records: column(7, 8, rows)?,
            bytes: column(9, 8, rows)?,
            sha256: column(11, SHA256_BYTES as u64, rows)?,
            first_records: column(13, 8, rows)?,
        })
    }

    fn entry(&self, row: usize) -> Option<ShardEntry> {
        let number = |column: &Bytes| column.as_chunks().0.get(row).map(|b| u64::from_le_bytes(*b));
        Some(ShardEntry {
            name: self.names.get(row)?,
            split: self.splits.get(row)?,
            records: number(&self.records)?,
            bytes: number(&self.bytes)?,
            sha256: hex(self.sha256.as_chunks::<SHA256_BYTES>().0.get(row)?),
            first_record: number(&self.first_records)?,
        })
    }
}

impl Strings {
    fn get(&self, row: usize) -> Option<String> {
        let offset = |row: usize| {
            let bytes = self.offsets.as_chunks().0.get(row)?;
            usize::try_from(i32::from_le_bytes(*bytes)).ok()
        };
        let text = self.text.get(offset(row)?..offset(row + 1)?)?;
        std::str::from_utf8(text).ok().map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::index::testing::{
        CASES_WITH_FILES, any_alteration, reports_damaged_file, segment, segment_of,
    };

    fn entry(split: &str, name: &str, first_record: u64, records: u64) -> ShardEntry {
        ShardEntry {
            name: name.to_owned(),
            split: split.to_owned(),
            records,
            bytes: 10,
            sha256: "0f".repeat(32),
            first_record,
        }
    }

    fn table(entries: impl IntoIterator<Item = ShardEntry>) -> Result<ShardTable, String> {
        let mut table = ShardTable::default();
        let mut paths = HashSet::new();
        entries.into_iter().try_for_each(|e| table.push(e, &mut paths)).map(|()| table)
    }

    #[test]
    fn a_record_is_found_in_its_shard() {
        let entries =
            [entry("a", "x", 0, 3), entry("a", "empty", 3, 0), entry("a", "y", 3, 2), entry("b", "x", 0, 1)];
        let table = table(entries).unwrap();
        let split = table.split("a").unwrap();
        let found = |record| split.of_record(record).map(|(shard, e, row)| (shard, e.name.clone(), row)).ok();
        assert_eq!(found(0), Some((0, "x".into(), 0)));
        assert_eq!(found(2), Some((0, "x".into(), 2)));
        assert_eq!(found(3), Some((2, "y".into(), 0)));
        assert_eq!(found(4), Some((2, "y".into(), 1)));
        assert_eq!(split.of_record(5).unwrap_err().kind(), ErrorKind::OutOfRange);
        assert_eq!(table.split("b").unwrap().records, 1);
        assert!(table.split("c").is_none());
        assert_eq!(
            table.shards().map(ShardEntry::path).collect::<Vec<_>>(),
            ["a/x", "a/empty", "a/y", "b/x"]
        );
    }

    #[test]
    fn contradictory_rows_are_rejected() {
        let bad = [
            vec![entry("a", "x", 1, 1)],
            vec![entry("a", "x", 0, 2), entry("a", "y", 1, 1)],
            vec![entry("a", "x", 0, 1), entry("b", "x", 0, 1), entry("a", "y", 1, 1)],
            vec![entry("a", "x", 0, 1), entry("a", "x", 1, 1)],
            vec![entry("a", "x", 0, u64::MAX), entry("a", "y", u64::MAX, 1)],
            vec![entry("..", "x", 0, 1)],
        ];
        for entries in bad {
            assert!(table(entries.clone()).is_err(), "{entries:?}");
        }
        for name in ["", ".", "..", ".x", "a/b", "a\\b", "a b", &"x".repeat(201)] {
            assert!(table([entry("a", name, 0, 1)]).is_err(), "{name:?}");
        }
    }

    /// Existing datasets depend on these columns, so this test never changes.
    #[test]
    fn columns_of_the_shard_table_never_change() {
        assert_eq!(SHARD_TABLE_PATH, "index/shards.arrow");
        let schema = schema();
        let columns: Vec<_> = schema
            .fields()
            .iter()
            .map(|f| (f.name().as_str(), f.data_type().to_string(), f.is_nullable()))
            .collect();
        let expected = [
            ("name", "Utf8"),
            ("split", "Utf8"),
            ("records", "UInt64"),
            ("bytes", "UInt64"),
            ("sha256", "FixedSizeBinary(32)"),
            ("first_record", "UInt64"),
        ];
        assert_eq!(columns, expected.map(|(name, ty)| (name, ty.to_owned(), false)));
        assert_eq!(schema.metadata["dsconvert.index"], "shards/1");
    }

    fn entries(sizes: &[u64]) -> Vec<ShardEntry> {
        let mut first = 0;
        let mut entry = |(i, &records): (usize, &u64)| {
            let mut entry = entry("train", &format!("train-{i:06}-00.pb"), first, records);
            entry.sha256 = hex(&[i as u8; SHA256_BYTES]);
            first += records;
            entry
        };
        sizes.iter().enumerate().map(&mut entry).collect()
    }

    fn read(dir: &Path, file: &IndexFile) -> Result<Vec<ShardEntry>> {
        Ok(ShardTable::read(segment(dir, file))?.shards().cloned().collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(CASES_WITH_FILES))]

        #[test]
        fn tables_round_trip(sizes in prop::collection::vec(0u64..1 << 40, 0..40)) {
            let dir = tempfile::tempdir().unwrap();
            let entries = entries(&sizes);
            let file = write_shard_table(dir.path(), &entries).unwrap();
            prop_assert_eq!(file.records, sizes.len() as u64);
            prop_assert_eq!(read(dir.path(), &file).unwrap(), entries);
        }
    }

    #[test]
    fn an_altered_table_is_an_error_or_stays_readable() {
        let dir = tempfile::tempdir().unwrap();
        let file = write_shard_table(dir.path(), &entries(&[5, 7, 0, 9])).unwrap();
        let bytes = std::fs::read(dir.path().join(&file.path)).unwrap();
        proptest!(ProptestConfig::with_cases(1000), |(alteration in any_alteration())| {
            match ShardTable::read(segment_of(alteration.apply(&bytes), file.records)) {
                Ok(table) => {
                    prop_assert_eq!(table.shards().count(), 4);
                    for split in &table.splits {
                        prop_assert!(split.of_record(split.records).is_err());
                    }
                }
                Err(e) => prop_assert!(reports_damaged_file(&e), "{e}"),
            }
        });
    }

    #[test]
    fn many_shards_take_several_record_batches() {
        let dir = tempfile::tempdir().unwrap();
        let entries = entries(&vec![1; BATCH_ROWS as usize + 1]);
        let file = write_shard_table(dir.path(), &entries).unwrap();
        assert!(read(dir.path(), &file).unwrap() == entries);
    }

    #[test]
    fn the_number_of_shards_must_match_the_manifest() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = write_shard_table(dir.path(), &entries(&[1, 2])).unwrap();
        for wrong in [0, 1, 3] {
            file.records = wrong;
            assert_eq!(read(dir.path(), &file).unwrap_err().kind(), ErrorKind::Corrupt);
        }
    }

    #[test]
    fn invalid_hashes_are_rejected() {
        let dir = tempfile::tempdir().unwrap();
        for bad in ["", "0f", &"0F".repeat(32), &"0g".repeat(32), &"0f".repeat(33)] {
            let entry = ShardEntry { sha256: bad.to_owned(), ..entry("train", "a", 0, 1) };
            assert_eq!(write_shard_table(dir.path(), &[entry]).unwrap_err().kind(), ErrorKind::Usage);
        }
    }
}
