//! The record index: the position of each record of a split, in record order.

use std::ops::Range;
use std::path::Path;

use super::table::{Geometry, IndexTable, Spec, TableColumn, TableWriter, Width, u32_column, u64_column};
use super::{IndexFile, MAX_LENGTH, Segment};
use crate::error::{Error, Result};
use crate::format::Placed;
use crate::schema::{LENGTH, MAX_INDEX_COLUMNS, Schema};
use crate::storage::Blob;

/// Number of columns of every record index.
const COMMON_COLUMNS: usize = 5;
/// Columns of every record index. Those of [`Schema::index_columns`] follow.
static COLUMNS: [TableColumn; COMMON_COLUMNS] = [
    u32_column("shard"),
    u64_column("position"),
    u64_column("bytes"),
    u64_column(LENGTH),
    u32_column("crc32c"),
];
const LENGTH_COLUMN: usize = 3;
const CHECKSUM_COLUMN: usize = 4;
/// Maximum number of columns.
const MAX_COLUMNS: usize = COMMON_COLUMNS + MAX_INDEX_COLUMNS;

fn spec(schema: &Schema) -> Spec {
    let further =
        schema.index_columns().map(|name| TableColumn { name: name.to_owned().into(), width: Width::U32 });
    let columns = COLUMNS.iter().cloned().chain(further).collect();
    Spec { table: "records", columns, unit: Some(schema.length_unit()), segmented: true }
}

/// One row of the record index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IndexEntry {
    /// Ordinal of the shard in the split's shard table.
    pub shard: u32,
    /// [`Placed::position`].
    pub position: u64,
    /// [`Placed::bytes`].
    pub bytes: u64,
    /// Length in the unit of the dataset kind, at most [`MAX_LENGTH`].
    pub length: u64,
    /// CRC32C of the canonical form of the record.
    pub crc32c: u32,
    /// Values of the fields that the index stores, too, in the order of [`Schema::index_columns`]: width and height of an
    /// image in pixels, or the number of tokens to train on, and those that the schema names. The rest is 0.
    pub columns: [u32; MAX_INDEX_COLUMNS],
}

impl IndexEntry {
    /// Returns the position of the record in its shard.
    pub fn placed(&self) -> Placed {
        Placed { position: self.position, bytes: self.bytes }
    }

    /// Returns the value of the field `name` of `schema`, if the index stores it.
    pub fn column(&self, schema: &Schema, name: &str) -> Option<u32> {
        let at = schema.index_columns().position(|column| column == name)?;
        self.columns.get(at).copied()
    }

    fn to_row(self) -> [u64; MAX_COLUMNS] {
        let Self { shard, position, bytes, length, crc32c, columns } = self;
        let mut row = [0; MAX_COLUMNS];
        let (common, further) = row.split_at_mut(COMMON_COLUMNS);
        common.copy_from_slice(&[shard.into(), position, bytes, length, crc32c.into()]);
        further.copy_from_slice(&columns.map(u64::from));
        row
    }

    fn from_row([shard, position, bytes, length, crc32c, columns @ ..]: [u64; MAX_COLUMNS]) -> Self {
        // `u32` columns are read from four bytes, so the casts are lossless.
        Self {
            shard: shard as u32,
            position,
            bytes,
            length,
            crc32c: crc32c as u32,
            columns: columns.map(|value| value as u32),
        }
    }
}

/// Writes the record index of one split. Holds one record batch in memory.
pub struct RecordIndexWriter {
    table: TableWriter,
}

impl RecordIndexWriter {
    /// Creates the record index of `split` in the dataset directory `out_dir`.
    ///
    /// # Errors
    ///
    /// Fails if the split name is invalid ([`check_split_name`](super::check_split_name)) or the directory cannot be
    /// created.
    pub fn create(out_dir: &Path, split: &str, schema: &Schema) -> Result<Self> {
        Self::with_geometry(out_dir, split, schema, Geometry::STANDARD)
    }

    fn with_geometry(out_dir: &Path, split: &str, schema: &Schema, geometry: Geometry) -> Result<Self> {
        Ok(Self { table: TableWriter::create(out_dir, split, spec(schema), geometry)? })
    }

    /// Appends the entry of the next record.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`](crate::error::ErrorKind) if the length exceeds [`MAX_LENGTH`], `Io` if the file cannot be
    /// written.
    pub fn push(&mut self, entry: &IndexEntry) -> Result<()> {
        if entry.length > MAX_LENGTH {
            return Err(Error::usage(format!(
                "the length {} exceeds the maximum of {MAX_LENGTH}",
                entry.length
            )));
        }
        self.table.push(&entry.to_row())
    }

    /// Commits the last file and returns all files in order. There is at least one, even for a split without records.
    pub fn finish(self) -> Result<Vec<IndexFile>> {
        self.table.finish()
    }
}

/// The opened record index of one split. Lookups take constant time.
#[derive(Debug)]
pub struct RecordIndex {
    table: IndexTable,
}

impl RecordIndex {
    /// Opens the files of a record index, given in manifest order.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::error::ErrorKind) if a file is not the record index of a dataset with this `schema` or
    /// does not have as many records as the manifest lists; `Unsupported` if it has a newer version.
    pub fn open(segments: Vec<Segment>, schema: &Schema) -> Result<Self> {
        Self::with_geometry(segments, schema, Geometry::STANDARD)
    }

    fn with_geometry(segments: Vec<Segment>, schema: &Schema, geometry: Geometry) -> Result<Self> {
        Ok(Self { table: IndexTable::open(segments, spec(schema), geometry)? })
    }

    /// Returns the number of records.
    pub fn len(&self) -> u64 {
        self.table.rows
    }

    /// Returns whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the files of the index in manifest order.
    pub fn blobs(&self) -> impl Iterator<Item = &Blob> {
        self.table.blobs()
    }

    /// Returns the entry of `record`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::OutOfRange`](crate::error::ErrorKind) if there is no such record.
    pub fn get(&self, record: u64) -> Result<IndexEntry> {
        self.table.row(record).map(IndexEntry::from_row)
    }

    /// Returns the length of `record` without reading the rest of its entry.
    pub fn length(&self, record: u64) -> Result<u64> {
        self.table.value(record, LENGTH_COLUMN)
    }

    /// Iterates over the entries of `records` in order.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::OutOfRange`](crate::error::ErrorKind) if `records` exceeds the index. The iterator ends after the
    /// first error.
    pub fn entries(&self, records: Range<u64>) -> Result<impl Iterator<Item = Result<IndexEntry>> + '_> {
        let rows = self.table.iter::<MAX_COLUMNS>(records, std::array::from_fn(|column| column))?;
        Ok(rows.map(|row| row.map(IndexEntry::from_row)))
    }

    /// Iterates over the checksums of `records` in order; otherwise like [`RecordIndex::entries`].
    pub fn checksums(&self, records: Range<u64>) -> Result<impl Iterator<Item = Result<u32>> + '_> {
        let rows = self.table.iter(records, [CHECKSUM_COLUMN])?;
        // The column has 32 bits.
        Ok(rows.map(|row| row.map(|[checksum]| checksum as u32)))
    }

    /// Iterates over the lengths of `records` in order; otherwise like [`RecordIndex::entries`].
    pub fn lengths(&self, records: Range<u64>) -> Result<impl Iterator<Item = Result<u64>> + '_> {
        let rows = self.table.iter(records, [LENGTH_COLUMN])?;
        Ok(rows.map(|row| row.map(|[length]| length)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::error::ErrorKind;
    use crate::index::testing::{
        CASES_WITH_FILES, SMALL, any_alteration, reports_damaged_file, segment, segment_of, segments,
    };
    use crate::schema::{Field, FieldType, IdWidth};
    use crate::storage::{Access, hash_file};

    /// Existing datasets depend on these columns, so this test never changes.
    #[test]
    fn columns_of_the_record_index_never_change() {
        let describe = |dataset: &Schema| {
            let schema = spec(dataset).schema();
            assert_eq!(schema.metadata["dsconvert.index"], "records/1");
            assert!(schema.fields().iter().all(|f| !f.is_nullable()));
            assert_eq!(schema.field(3).metadata()["unit"], dataset.length_unit().name());
            schema
                .fields()
                .iter()
                .map(|f| format!("{} {}", f.name(), f.data_type()))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let common = "shard UInt32, position UInt64, bytes UInt64, length UInt64, crc32c UInt32";
        assert_eq!(describe(&text()), common);
        assert_eq!(describe(&images()), format!("{common}, width UInt32, height UInt32"));
        let masked = text().with_assistant_masks().unwrap();
        assert_eq!(describe(&masked), format!("{common}, trained UInt32"));
        assert_eq!(describe(&counted()), format!("{common}, width UInt32, height UInt32, frames UInt32"));
    }

    fn text() -> Schema {
        Schema::text(IdWidth::U16, vec![]).unwrap()
    }

    fn images() -> Schema {
        Schema::images(None, vec![]).unwrap()
    }

    /// An image dataset with a count in its record index.
    fn counted() -> Schema {
        let frames = vec![Field::required("frames", FieldType::UInt64)];
        Schema::images(None, frames).unwrap().with_indexed(&["frames"]).unwrap()
    }

    #[test]
    fn two_processes_write_the_same_index_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let create = || RecordIndexWriter::with_geometry(dir.path(), "train", &text(), SMALL).unwrap();
        let mut writers = [create(), create()];
        for length in 0..20 {
            let entry = IndexEntry { length, ..IndexEntry::default() };
            writers.iter_mut().for_each(|writer| writer.push(&entry).unwrap());
        }
        // The one that started first ends first, while the other still writes.
        for writer in writers {
            for file in writer.finish().unwrap() {
                assert_eq!(hash_file(&dir.path().join(&file.path)).unwrap().sha256, file.sha256);
            }
        }
    }

    fn any_entry() -> impl Strategy<Value = IndexEntry> {
        (any::<(u32, u64, u64, u32, [u32; MAX_INDEX_COLUMNS])>(), 0..=MAX_LENGTH).prop_map(
            |((shard, position, bytes, crc32c, columns), length)| IndexEntry {
                shard,
                position,
                bytes,
                length,
                crc32c,
                columns,
            },
        )
    }

    fn write(dir: &Path, schema: &Schema, geometry: Geometry, entries: &[IndexEntry]) -> Vec<IndexFile> {
        let mut writer = RecordIndexWriter::with_geometry(dir, "train", schema, geometry).unwrap();
        entries.iter().for_each(|e| writer.push(e).unwrap());
        writer.finish().unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(CASES_WITH_FILES))]

        #[test]
        fn entries_round_trip_with_any_geometry_and_access(
            entries in prop::collection::vec(any_entry(), 0..60),
            batch_rows in 1u64..9,
            batches in 1u64..4,
            (schema, kept) in prop::sample::select(vec![
                (text(), 0), (text().with_assistant_masks().unwrap(), 1), (images(), 2), (counted(), 3),
            ]),
            mapped: bool,
        ) {
            let access = if mapped { Access::Map } else { Access::Read };
            let geometry = Geometry { batch_rows, segment_rows: batch_rows * batches };
            let dir = tempfile::tempdir().unwrap();
            let files = write(dir.path(), &schema, geometry, &entries);
            prop_assert_eq!(files.len(), entries.len().div_ceil(geometry.segment_rows as usize).max(1));
            let index =
                RecordIndex::with_geometry(segments(dir.path(), &files, access), &schema, geometry).unwrap();
            let expected: Vec<IndexEntry> = entries.into_iter().map(|mut entry| {
                entry.columns[kept..].fill(0);
                entry
            }).collect();
            prop_assert_eq!(index.len(), expected.len() as u64);
            for (i, entry) in (0..).zip(&expected) {
                prop_assert_eq!(index.get(i).unwrap(), *entry);
                prop_assert_eq!(index.length(i).unwrap(), entry.length);
                let from: Vec<_> = index.entries(i..index.len()).unwrap().map(Result::unwrap).collect();
                prop_assert_eq!(&from, &expected[i as usize..]);
            }
            let lengths: Vec<_> = index.lengths(0..index.len()).unwrap().map(Result::unwrap).collect();
            prop_assert_eq!(lengths, expected.iter().map(|e| e.length).collect::<Vec<_>>());
            prop_assert_eq!(index.get(index.len()).unwrap_err().kind(), ErrorKind::OutOfRange);
            prop_assert!(index.get(u64::MAX).is_err());
            prop_assert!(index.entries(0..index.len() + 1).is_err());
        }
    }

    #[test]
    fn an_altered_index_is_an_error_or_stays_readable() {
        let dir = tempfile::tempdir().unwrap();
        let files = write(dir.path(), &images(), SMALL, &[IndexEntry::default(); 7]);
        let bytes = std::fs::read(dir.path().join(&files[0].path)).unwrap();
        proptest!(ProptestConfig::with_cases(1000), |(alteration in any_alteration())| {
            let file = segment_of(alteration.apply(&bytes), 7);
            let read = RecordIndex::with_geometry(vec![file], &images(), SMALL).and_then(|index| {
                (0..7).try_for_each(|i| index.get(i).map(drop))?;
                index.entries(0..7)?.collect::<Result<Vec<_>>>()
            });
            match read {
                Ok(entries) => prop_assert_eq!(entries.len(), 7),
                Err(e) => prop_assert!(reports_damaged_file(&e), "{e}"),
            }
        });
    }

    #[test]
    fn an_index_that_does_not_match_the_manifest_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let files = write(dir.path(), &text(), SMALL, &[IndexEntry::default(); 7]);
        let open = |records, schema: &Schema| {
            let file = Segment { records, ..segment(dir.path(), &files[0]) };
            RecordIndex::with_geometry(vec![file], schema, SMALL).map_err(|e| e.kind())
        };
        assert!(open(7, &text()).is_ok());
        assert_eq!(open(7, &images()).err(), Some(ErrorKind::Corrupt));
        assert_eq!(open(7, &text().with_assistant_masks().unwrap()).err(), Some(ErrorKind::Corrupt));
        assert_eq!(open(4, &text()).err(), Some(ErrorKind::Corrupt));
        // The number of record batches is right, the number of rows is not. This is detected at the last batch.
        let short = open(8, &text()).unwrap();
        assert!(short.get(0).is_ok());
        assert_eq!(short.get(7).unwrap_err().kind(), ErrorKind::Corrupt);
        let twice = vec![segment(dir.path(), &files[0]), segment(dir.path(), &files[0])];
        assert!(RecordIndex::with_geometry(twice, &text(), SMALL).is_err());
        assert!(RecordIndex::open(vec![], &text()).is_err());
    }

    #[test]
    fn the_same_entries_give_the_same_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let entries = [IndexEntry { length: 3, crc32c: 9, ..IndexEntry::default() }; 20];
        let once = write(dir.path(), &images(), SMALL, &entries);
        assert_eq!(once[1].path, "index/train.records-0001.arrow");
        assert_eq!(write(dir.path(), &images(), SMALL, &entries), once);
    }

    #[test]
    fn invalid_split_names_and_lengths_are_rejected() {
        let dir = tempfile::tempdir().unwrap();
        assert!(RecordIndexWriter::create(dir.path(), "../x", &text()).is_err());
        let mut writer = RecordIndexWriter::create(dir.path(), "train", &text()).unwrap();
        let entry = IndexEntry { length: MAX_LENGTH + 1, ..IndexEntry::default() };
        assert_eq!(writer.push(&entry).unwrap_err().kind(), ErrorKind::Usage);
    }
}
