//! Tests that damaged tables yield rows and rejects, and never fail, hang or panic.

use std::io::Write;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array, ListArray, RecordBatch, StringArray, types::Int32Type};
use proptest::prelude::*;

use super::NextRows;
use super::arrow::Batches;
use super::parquet::{Groups, ParquetFile};
use crate::error::ErrorKind;
use crate::sample::{Reject, RejectCode};
use crate::schema::{Field, FieldType};
use crate::source::io::broken::Broken;
use crate::source::io::planned::PlannedFile;
use crate::source::io::stream::Stream;
use crate::source::items::metadata::columns::Keep;
use crate::source::items::text::columns::{TextColumns, WantedColumns};
use crate::source::items::text::fields::TextFields;

const ROWS: usize = 90;

fn batch() -> RecordBatch {
    let texts = (0..ROWS).map(|i| (!i.is_multiple_of(7)).then(|| format!("text {i} {}", "z".repeat(i % 23))));
    let lists = (0..ROWS).map(|i| Some((0..i % 4).map(|n| Some(n as i32))));
    let columns: [(&str, ArrayRef); 3] = [
        ("text", Arc::new(StringArray::from_iter(texts))),
        ("n", Arc::new(Int32Array::from_iter_values(0..ROWS as i32))),
        ("list", Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap()
}

fn wanted() -> WantedColumns {
    let keep = ["n", "list"].map(|name| Keep { name: name.to_owned(), ty: None });
    WantedColumns {
        text: TextFields::Text("text".to_owned()),
        key: Some("n".to_owned()),
        keep: keep.to_vec(),
        split_by: None,
        has_images: false,
    }
}

fn parquet_bytes() -> Vec<u8> {
    use ::parquet::arrow::ArrowWriter;
    use ::parquet::basic::Compression;
    use ::parquet::file::properties::WriterProperties;
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(30))
        .set_data_page_row_count_limit(10)
        .set_write_batch_size(5)
        .set_compression(Compression::SNAPPY)
        .build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch().schema(), Some(properties)).unwrap();
    writer.write(&batch()).unwrap();
    writer.into_inner().unwrap()
}

fn arrow_bytes(compressed: bool) -> Vec<u8> {
    use arrow_ipc::CompressionType;
    use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
    let compression = compressed.then_some(CompressionType::ZSTD);
    let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
    let mut writer = FileWriter::try_new_with_options(Vec::new(), &batch().schema(), options).unwrap();
    (0..3).for_each(|i| writer.write(&batch().slice(i * 30, 30)).unwrap());
    writer.into_inner().unwrap()
}

/// The texts of all rows, and the defects, in order.
type RowTexts = Vec<Result<Option<String>, RejectCode>>;

fn rows(found: NextRows, columns: &TextColumns, read: &mut RowTexts) {
    let fields = [Field::nullable("n", FieldType::Int32), Field::nullable("list", FieldType::Json)];
    match found {
        NextRows::Broken { reject, .. } => read.push(Err(reject.code)),
        NextRows::Rows(rows) => {
            read.extend(
                (0..rows.len())
                    .map(|row| columns.document(&rows, row, &wanted().text, &fields, false))
                    .map(|row| Ok(row.ok().map(|row| row.text.into_owned()))),
            );
        }
    }
}

/// Returns the opened table. Damage to the file is recorded as one defect. A missing column is a
/// usage error, because it is usually a mistake of the user.
fn opened<T>(result: Result<T, Broken>, read: &mut RowTexts) -> Option<T> {
    match result {
        Ok(opened) => Some(opened),
        Err(Broken::Damaged(Reject { code, .. })) => {
            read.push(Err(code));
            None
        }
        Err(Broken::Failed(error)) => {
            assert_eq!(error.kind(), ErrorKind::Usage, "{error}");
            None
        }
    }
}

fn read_parquet(bytes: &[u8]) -> RowTexts {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    let mut read = Vec::new();
    let Some(table) = opened(ParquetFile::open(&PlannedFile::now(file.path()).unwrap()), &mut read) else {
        return read;
    };
    let found = opened(wanted().columns(table.schema()).map_err(Broken::Failed), &mut read);
    let Some((columns, types)) = found else { return read };
    if types != [FieldType::Int32, FieldType::Json] {
        return read;
    }
    let (roots, columns) = columns.alone();
    let count = table.groups(&roots).len();
    let mut groups = Groups::new(table, roots, 0..count, 1 << 20);
    while let Some(found) = groups.read().unwrap() {
        rows(found, &columns, &mut read);
    }
    read
}

fn read_arrow(bytes: &[u8]) -> RowTexts {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    let mut read = Vec::new();
    let stream = Stream::open(&PlannedFile::now(file.path()).unwrap(), None).unwrap();
    let Some(mut batches) = opened(Batches::open(stream), &mut read) else { return read };
    let found = opened(wanted().columns(batches.schema()).map_err(Broken::Failed), &mut read);
    let Some((columns, types)) = found else { return read };
    if types != [FieldType::Int32, FieldType::Json] {
        return read;
    }
    let (roots, columns) = columns.alone();
    batches.select(roots);
    while let Some(found) = batches.read().unwrap() {
        rows(found, &columns, &mut read);
    }
    read
}

fn whole() -> RowTexts {
    let text = |i: usize| (!i.is_multiple_of(7)).then(|| format!("text {i} {}", "z".repeat(i % 23)));
    (0..ROWS).map(|i| Ok(text(i))).collect()
}

#[test]
fn whole_files_are_read() {
    assert_eq!(read_parquet(&parquet_bytes()), whole());
    assert_eq!(read_arrow(&arrow_bytes(false)), whole());
    assert_eq!(read_arrow(&arrow_bytes(true)), whole());
}

#[test]
fn a_page_that_is_too_large_names_an_option_only_if_one_sets_the_limit() {
    use ::parquet::arrow::ArrowWriter;
    use ::parquet::basic::Compression;
    use ::parquet::file::properties::WriterProperties;
    let text: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(65 << 20)]));
    let batch = RecordBatch::try_from_iter([("text", text)]).unwrap();
    let properties =
        WriterProperties::builder().set_compression(Compression::SNAPPY).set_dictionary_enabled(false);
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties.build())).unwrap();
    writer.write(&batch).unwrap();
    let bytes: bytes::Bytes = writer.into_inner().unwrap().into();
    let message = |limit: &dyn Fn(Groups) -> Groups| {
        let Ok(file) = ParquetFile::in_memory(bytes.clone()) else { panic!() };
        match limit(Groups::new(file, vec![0], 0..1, 1 << 20)).read().unwrap() {
            Some(NextRows::Broken { reject, .. }) => {
                assert_eq!(reject.code, RejectCode::TooLarge);
                reject.message
            }
            _ => panic!(),
        }
    };
    let message_of_texts = message(&|groups| groups.limited_by("max_document_bytes"));
    assert!(message_of_texts.ends_with("more than the 67108864 that `max_document_bytes` allows"));
    assert!(message(&|groups| groups).ends_with("more than the limit of 67108864"));
}

#[test]
fn arrow_files_are_read_without_their_footer() {
    let bytes = arrow_bytes(false);
    let footer = bytes.len() - 200;
    assert_eq!(read_arrow(&bytes[..footer]), whole());
}

fn damages() -> impl Strategy<Value = Vec<(prop::sample::Index, u8)>> {
    prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn damaged_files_give_rows_and_rejects(damages in damages(), cut in any::<prop::sample::Index>(), cuts: bool) {
        // The panics of the decoders are caught; their messages can be ignored.
        for (bytes, read) in [
            (parquet_bytes(), read_parquet as fn(&[u8]) -> RowTexts),
            (arrow_bytes(false), read_arrow),
            (arrow_bytes(true), read_arrow),
        ] {
            let mut bytes = bytes;
            for (at, byte) in &damages {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            if cuts {
                bytes.truncate(cut.index(bytes.len()));
            }
            prop_assert!(read(&bytes).len() <= 4 * ROWS);
        }
    }
}
