//! Tests that damage to the first pages of Parquet files from other programs yields rows or errors, and never aborts
//! the process.
//!
//! A failed allocation aborts the process. The damage is therefore tested in child processes with a limited address
//! space, which run this test binary again.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use ::parquet::arrow::ArrowWriter;
use ::parquet::basic::{Compression, Encoding, ZstdLevel};
use ::parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use ::parquet::file::properties::{WriterProperties, WriterVersion};
use arrow_array::builder::{ListBuilder, StringBuilder};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use rustix::process::{Resource, Rlimit, setrlimit};

use super::header::PageHeader;
use crate::options::SourceSpec;
use crate::source::io::planned::PlannedFile;
use crate::source::items::metadata::columns::Keep;
use crate::source::items::metadata::placed::MetadataFile;
use crate::source::items::text::columns::WantedColumns;
use crate::source::items::text::fields::TextFields;
use crate::source::table::NextRows;
use crate::source::table::parquet::{Groups, ParquetFile};

/// Address space of a child in bytes: far above what these files need, far below what damage may claim.
const ADDRESS_SPACE: u64 = 1 << 30;
/// Environment variable that selects the file for a child.
const CASE: &str = "DSCONVERT_PAGE_FLIPS_CASE";
/// Environment variable with the path of the file in which a child records its progress.
const REPORT: &str = "DSCONVERT_PAGE_FLIPS_REPORT";
/// A 35-bit number, as damage may claim for a count or length.
const HUGE: [u8; 5] = [0xff, 0xff, 0xff, 0xff, 0x7f];
const ROWS: usize = 60;

/// Returns all combinations of settings with which the file is written.
fn cases() -> Vec<(Encoding, WriterVersion, Compression)> {
    let zstd = Compression::ZSTD(ZstdLevel::default());
    let mut cases = Vec::new();
    for encoding in [Encoding::DELTA_LENGTH_BYTE_ARRAY, Encoding::DELTA_BYTE_ARRAY] {
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            cases.extend(
                [Compression::UNCOMPRESSED, zstd].map(|compression| (encoding, version, compression)),
            );
        }
    }
    cases
}

#[test]
fn damaged_pages_in_delta_encodings_never_end_the_process() {
    let reports = tempfile::tempdir().unwrap();
    for case in 0..cases().len() {
        let report = reports.path().join(case.to_string());
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "source::table::pages::flips::one_process", "--ignored", "--nocapture"]);
        command.env(CASE, case.to_string()).env(REPORT, &report).env("RUST_BACKTRACE", "0");
        let status =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        let noted = std::fs::read_to_string(&report).unwrap_or_default();
        assert!(status.success(), "{:?}: {status}, {noted}", cases()[case]);
        assert!(noted.starts_with("done"), "{noted}");
    }
}

/// Tests one file, in a process started by the test above.
#[test]
#[ignore = "started by damaged_pages_in_delta_encodings_never_end_the_process"]
fn one_process() {
    let Some(case) = std::env::var(CASE).ok().and_then(|case| case.parse::<usize>().ok()) else { return };
    let (encoding, version, compression) = cases()[case];
    let limit = Rlimit { current: Some(ADDRESS_SPACE), maximum: Some(ADDRESS_SPACE) };
    setrlimit(Resource::As, limit).unwrap();
    // The decoders report some damage by panics, which are caught.
    std::panic::set_hook(Box::new(|_| {}));
    let report = File::create(std::env::var_os(REPORT).unwrap()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    let bytes = parquet(encoding, version, compression);
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!((text_rows(&path), metadata_rows(&path)), (Some(ROWS), Some(ROWS)), "before any flip");
    let file = File::options().write(true).open(&path).unwrap();
    let (mut refused, mut tried) = (0, 0);
    for at in first_pages(&bytes) {
        let flips = [1 << (at * 5 % 8), 0x80, 0xff].map(|mask| vec![bytes[at] ^ mask]);
        for damage in flips.into_iter().chain([HUGE.to_vec()]) {
            report.write_all_at(format!("byte {at:6} is {damage:02x?}{:20}", "").as_bytes(), 0).unwrap();
            file.write_all_at(&damage, at as u64).unwrap();
            refused += usize::from(text_rows(&path).is_none()) + usize::from(metadata_rows(&path).is_none());
            tried += 2;
            file.write_all_at(&bytes[at..at + damage.len()], at as u64).unwrap();
        }
    }
    report.write_all_at(format!("done: {refused} of {tried} refused").as_bytes(), 0).unwrap();
    assert!(refused > tried / 10, "the damage is noticed: {refused} of {tried}");
}

fn parquet(encoding: Encoding, version: WriterVersion, compression: Compression) -> Vec<u8> {
    let mut tags = ListBuilder::new(StringBuilder::new());
    for row in 0..ROWS {
        tags.append_value((0..row % 3).map(|tag| Some(format!("tag {tag}"))));
    }
    let text = |row: usize| (row % 7 != 6).then(|| format!("images/{:04}.jpg", row / 2 * 2));
    let columns: [(&str, ArrayRef); 4] = [
        ("file_name", Arc::new(StringArray::from_iter_values((0..ROWS).map(|row| format!("{row:04}.jpg"))))),
        ("text", Arc::new(StringArray::from_iter((0..ROWS).map(text)))),
        ("n", Arc::new(Int64Array::from_iter_values((0..ROWS).map(|row| (row * row) as i64)))),
        ("tags", Arc::new(tags.finish())),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(columns.map(|(n, c)| (n, c, true))).unwrap();
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_writer_version(version)
        .set_compression(compression)
        .set_data_page_row_count_limit(20)
        .set_write_batch_size(5)
        .set_encoding(encoding)
        .set_column_encoding("n".into(), Encoding::DELTA_BINARY_PACKED);
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties.build())).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}

fn metadata(bytes: &[u8]) -> ParquetMetaData {
    let bytes = bytes::Bytes::copy_from_slice(bytes);
    ParquetMetaDataReader::new().parse_and_finish(&bytes).unwrap()
}

/// Returns the offsets of all bytes in the first page of each column, including its header.
fn first_pages(bytes: &[u8]) -> Vec<usize> {
    let metadata = metadata(bytes);
    let mut all = Vec::new();
    for column in metadata.row_group(0).columns() {
        let start = usize::try_from(column.data_page_offset()).unwrap();
        let header = PageHeader::parse(&bytes[start..]).unwrap();
        assert!(header.encoding.is_some_and(|encoding| super::delta::ALL.contains(&encoding)));
        all.extend(start..start + (header.header_bytes + header.stored_bytes) as usize);
    }
    all
}

/// Returns the number of rows read as documents; `None` if something is refused.
fn text_rows(path: &Path) -> Option<usize> {
    let file = ParquetFile::open(&PlannedFile::now(path).unwrap()).ok()?;
    let keep = ["n", "tags"].map(|name| Keep { name: name.to_owned(), ty: None });
    let wanted = WantedColumns {
        text: TextFields::Text("text".to_owned()),
        key: Some("file_name".to_owned()),
        keep: keep.to_vec(),
        split_by: None,
        has_images: false,
    };
    let (columns, _) = wanted.columns(file.schema()).ok()?;
    let mut groups = Groups::new(file, columns.alone().0, 0..1, 1 << 20);
    let mut rows = 0;
    while let Some(found) = groups.read().unwrap() {
        match found {
            NextRows::Rows(found) => rows += found.end() as usize - rows,
            NextRows::Broken { .. } => return None,
        }
    }
    Some(rows)
}

/// Returns the number of rows read as a table of image metadata; `None` if the table is refused.
fn metadata_rows(path: &Path) -> Option<usize> {
    let table = MetadataFile { path: path.to_owned(), path_field: "file_name".to_owned(), keep: None };
    let source = SourceSpec { label: "s".to_owned(), path: path.parent().unwrap().to_owned() };
    table.list(&source, false, None, None, &[], None).ok().map(|found| found.files.len())
}
