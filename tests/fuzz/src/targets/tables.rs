//! Tables of documents in the formats of other programs, generated for each search.

use std::io::Write;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_ipc::writer::{FileWriter, StreamWriter};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{WriterProperties, WriterVersion};

use crate::Result;

/// Rows per table.
pub(super) const ROWS: usize = 24;

/// Returns a batch with the column called `first`, a number and a label.
fn batch(first: &str, value: impl Fn(usize) -> String) -> Result<RecordBatch> {
    let texts: ArrayRef = Arc::new(StringArray::from_iter((0..ROWS).map(|i| (i % 7 != 6).then(|| value(i)))));
    let numbers: ArrayRef =
        Arc::new(Int64Array::from_iter((0..ROWS).map(|i| (i % 5 != 4).then_some(i as i64))));
    let labels: ArrayRef = Arc::new(StringArray::from_iter_values((0..ROWS).map(label)));
    Ok(RecordBatch::try_from_iter_with_nullable([
        (first, texts, true),
        ("number", numbers, true),
        ("label", labels, false),
    ])?)
}

fn label(i: usize) -> &'static str {
    if i.is_multiple_of(2) { "a" } else { "b" }
}

/// Returns the text of document `i`.
pub(super) fn text(i: usize) -> String {
    format!("Document {i}: {}", "the quick brown fox, ".repeat(i % 5))
}

/// Returns the table as JSON lines.
pub(super) fn jsonl(first: &str, value: impl Fn(usize) -> String) -> Vec<u8> {
    let line = |i| {
        let label = label(i);
        serde_json::json!({ first: value(i), "number": i, "label": label }).to_string() + "\n"
    };
    (0..ROWS).map(line).collect::<String>().into_bytes()
}

/// Returns the table as CSV.
pub(super) fn csv(first: &str, value: impl Fn(usize) -> String) -> Vec<u8> {
    let row = |i| format!("\"{}\",{i},{}\r\n", value(i), label(i));
    format!("{first},number,label\r\n{}", (0..ROWS).map(row).collect::<String>()).into_bytes()
}

/// Returns the table as Parquet: with pages of version 1 and dictionaries, or of version 2 and delta encodings.
pub(super) fn parquet(
    first: &str,
    value: impl Fn(usize) -> String,
    version: WriterVersion,
) -> Result<Vec<u8>> {
    let mut properties =
        WriterProperties::builder().set_writer_version(version).set_max_row_group_row_count(Some(10));
    properties = match version {
        WriterVersion::PARQUET_1_0 => properties.set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?)),
        WriterVersion::PARQUET_2_0 => properties
            .set_compression(Compression::SNAPPY)
            .set_dictionary_enabled(false)
            .set_column_encoding(first.into(), Encoding::DELTA_LENGTH_BYTE_ARRAY)
            .set_column_encoding("label".into(), Encoding::DELTA_BYTE_ARRAY)
            .set_column_encoding("number".into(), Encoding::DELTA_BINARY_PACKED),
    };
    let batch = batch(first, value)?;
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties.build()))?;
    writer.write(&batch)?;
    Ok(writer.into_inner()?)
}

/// Returns the table as an Arrow IPC file.
pub(super) fn arrow_file(first: &str, value: impl Fn(usize) -> String) -> Result<Vec<u8>> {
    let batch = batch(first, value)?;
    let mut writer = FileWriter::try_new(Vec::new(), &batch.schema())?;
    writer.write(&batch)?;
    Ok(writer.into_inner()?)
}

/// Returns the table as an Arrow IPC stream.
pub(super) fn arrow_stream(first: &str, value: impl Fn(usize) -> String) -> Result<Vec<u8>> {
    let batch = batch(first, value)?;
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema())?;
    writer.write(&batch)?;
    Ok(writer.into_inner()?)
}

/// Compresses `bytes` with every codec, and returns file extensions with the compressed data.
pub(super) fn compressed(bytes: &[u8]) -> Result<Vec<(&'static str, Vec<u8>)>> {
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(bytes)?;
    let mut bz2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    bz2.write_all(bytes)?;
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
    xz.write_all(bytes)?;
    Ok(vec![
        ("gz", gz.finish()?),
        ("bz2", bz2.finish()?),
        ("xz", xz.finish()?),
        ("zst", zstd::stream::encode_all(bytes, 1)?),
    ])
}

/// Returns a zip archive of `files`, all of them stored or deflated.
pub(super) fn zip(files: &[(String, &[u8])], is_deflated: bool) -> Result<Vec<u8>> {
    let (mut zip, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in files {
        let mut crc = flate2::Crc::new();
        crc.update(content);
        let data = if is_deflated { deflated(content)? } else { content.to_vec() };
        let mut common = vec![20, 0, 0, 0, if is_deflated { 8 } else { 0 }, 0, 0, 0, 0, 0];
        for number in [crc.sum(), data.len() as u32, content.len() as u32, name.len() as u32] {
            common.extend(number.to_le_bytes());
        }
        let offset = zip.len() as u32;
        zip.extend(b"PK\x03\x04".iter().chain(&common).chain(name.as_bytes()).chain(&data));
        directory.extend(b"PK\x01\x02\x14\x00".iter().chain(&common));
        directory.extend([0; 10]);
        directory.extend(offset.to_le_bytes().iter().chain(name.as_bytes()));
    }
    let (start, count) = (zip.len() as u32, files.len() as u16);
    zip.extend(&directory);
    zip.extend(b"PK\x05\x06\0\0\0\0".iter().chain(&count.to_le_bytes()).chain(&count.to_le_bytes()));
    zip.extend((directory.len() as u32).to_le_bytes().iter().chain(&start.to_le_bytes()).chain(&[0, 0]));
    Ok(zip)
}

fn deflated(content: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content)?;
    Ok(encoder.finish()?)
}
