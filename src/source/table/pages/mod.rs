//! Checks the sizes and counts that the pages of Parquet files claim, before the `parquet` crate allocates for them.
//!
//! The files come from other programs and may be damaged. The crate decodes a page as a whole. The page header states
//! the decompressed size, and values in a delta encoding start with their count. The crate allocates for both without a
//! limit, and a failed allocation aborts the process. The page headers of a column are therefore parsed first. Pages in
//! a delta encoding, which few writers use, are decompressed twice: the first time, their counts and lengths are
//! checked here.

mod delta;
#[cfg(test)]
mod flips;
mod header;

use std::sync::Arc;

use ::parquet::basic::Encoding;
use ::parquet::column::page::{Page, PageReader};
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::ColumnChunkMetaData;
use ::parquet::file::reader::{ChunkReader, SerializedPageReader};
use bytes::Bytes;

use self::delta::BadDelta;
use self::header::PageHeader;
pub(super) use self::header::as_compressed;

/// Bytes read first for a header of unknown length.
const HEADER_BYTES: u64 = 4 << 10;
/// Maximum size of a page header with its statistics, in bytes.
const MAX_HEADER_BYTES: u64 = 4 << 20;
/// Rows or values allowed per stored byte, in addition to [`FREE_ROWS`].
const MAX_ROWS_RATIO: u64 = 1000;
/// Rows allowed in any row group.
const FREE_ROWS: u64 = 1 << 24;

/// The reason why a column is not decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BadPages {
    /// The column violates the format.
    Corrupt(&'static str),
    /// The column extends beyond the end of the file.
    Truncated,
    /// A page decompresses to at least this many bytes, which exceeds the limit.
    TooLarge(u64),
}

/// Returns the maximum number of rows in a row group of `stored_bytes` bytes.
pub(in crate::source) fn max_rows(stored_bytes: u64) -> u64 {
    stored_bytes.saturating_mul(MAX_ROWS_RATIO).saturating_add(FREE_ROWS)
}

/// Checks the pages of a column in a row group of `rows` rows. No page may decompress to more than `max_bytes` bytes.
/// Returns the defect, if any. Calls `on_flag` with the position of each flag that says that a page is not compressed,
/// before the page is decoded.
///
/// # Errors
///
/// Returns errors of the `parquet` crate. Defects found here are returned as the value.
pub(super) fn check_column<R: ChunkReader + Clone + 'static>(
    file: &R,
    column: &ColumnChunkMetaData,
    rows: u64,
    max_bytes: u64,
    on_flag: impl Fn(u64),
) -> Result<Option<BadPages>, ParquetError> {
    let start = match (column.dictionary_page_offset(), column.data_page_offset()) {
        // Without rows, pyarrow writes a dictionary page and no data page, whose offset is then 0.
        (Some(dictionary), 0) if dictionary > 0 => dictionary,
        (Some(dictionary), data) if dictionary > 0 => dictionary.min(data),
        (_, data) => data,
    };
    let (start, length) = (u64::try_from(start), u64::try_from(column.compressed_size()));
    let (Ok(mut at), Ok(length)) = (start, length) else {
        return Ok(Some(BadPages::Corrupt("a column has a negative offset or size")));
    };
    let end = at.saturating_add(length);
    if end > file.len() {
        return Ok(Some(BadPages::Truncated));
    }
    let mut has_deltas = false;
    while at < end {
        let Some(header) = read_header(file, at, end - at)? else {
            return Ok(Some(BadPages::Corrupt("a page header is damaged")));
        };
        if header.decoded_bytes > max_bytes {
            return Ok(Some(BadPages::TooLarge(header.decoded_bytes)));
        }
        if let Some(flag) = header.uncompressed_flag {
            on_flag(at.saturating_add(flag));
        }
        has_deltas |= header.encoding.is_some_and(|encoding| delta::ALL.contains(&encoding));
        at = at.saturating_add(header.header_bytes).saturating_add(header.stored_bytes);
    }
    if has_deltas { check_deltas(file, column, rows, max_bytes) } else { Ok(None) }
}

fn read_header<R: ChunkReader>(
    file: &R,
    at: u64,
    max_bytes: u64,
) -> Result<Option<PageHeader>, ParquetError> {
    let mut length = HEADER_BYTES.min(max_bytes);
    loop {
        let bytes = file.get_bytes(at, length as usize)?;
        let header = PageHeader::parse(&bytes);
        if header.is_some() || length == max_bytes.min(MAX_HEADER_BYTES) {
            return Ok(header);
        }
        length = (length * 16).min(max_bytes).min(MAX_HEADER_BYTES);
    }
}

/// Checks the values of pages in a delta encoding.
fn check_deltas<R: ChunkReader + Clone + 'static>(
    file: &R,
    column: &ColumnChunkMetaData,
    rows: u64,
    max_bytes: u64,
) -> Result<Option<BadPages>, ParquetError> {
    let rows = usize::try_from(rows).unwrap_or(usize::MAX);
    let mut pages = SerializedPageReader::new(Arc::new(file.clone()), column, rows, None)?;
    while let Some(page) = pages.get_next_page()? {
        let Some(encoding) = delta::code(page.encoding()) else { continue };
        let max_values = u64::from(page.num_values()).min(max_rows(page.buffer().len() as u64));
        let Some(values) = values(&page, column) else {
            return Ok(Some(BadPages::Corrupt("the levels of a page are damaged")));
        };
        match delta::check(encoding, &values, max_values, max_bytes) {
            Ok(()) => {}
            Err(BadDelta::Damaged) => {
                return Ok(Some(BadPages::Corrupt("a page in a delta encoding is damaged")));
            }
            Err(BadDelta::TooLarge(bytes)) => return Ok(Some(BadPages::TooLarge(bytes))),
        }
    }
    Ok(None)
}

/// Returns the values of a page, without its levels.
fn values(page: &Page, column: &ColumnChunkMetaData) -> Option<Bytes> {
    let start = match page {
        Page::DictionaryPage { .. } => 0,
        Page::DataPageV2 { def_levels_byte_len, rep_levels_byte_len, .. } => {
            u64::from(*def_levels_byte_len) + u64::from(*rep_levels_byte_len)
        }
        Page::DataPage { buf, num_values, def_level_encoding, rep_level_encoding, .. } => {
            let column = column.column_descr();
            let levels =
                [(column.max_rep_level(), rep_level_encoding), (column.max_def_level(), def_level_encoding)];
            let mut start = 0;
            for (max_level, encoding) in levels.into_iter().filter(|(max_level, _)| *max_level > 0) {
                start += if *encoding == Encoding::RLE {
                    let length = buf.get(usize::try_from(start).ok()?..)?.first_chunk()?;
                    4 + u64::from(u32::from_le_bytes(*length))
                } else {
                    // The only other allowed encoding packs each level into as few bits as the largest level needs.
                    let bits = u64::from(i16::BITS - max_level.leading_zeros());
                    (u64::from(*num_values) * bits).div_ceil(8)
                };
            }
            start
        }
    };
    let start = usize::try_from(start).ok().filter(|&start| start <= page.buffer().len())?;
    Some(page.buffer().slice(start..))
}

/// Returns the values of all data pages of the first column of `file`.
#[cfg(test)]
fn values_of_pages(file: Vec<u8>) -> Vec<Bytes> {
    use ::parquet::file::reader::{FileReader, SerializedFileReader};
    let reader = SerializedFileReader::new(Bytes::from(file)).unwrap();
    let group = reader.get_row_group(0).unwrap();
    let pages = group.get_column_page_reader(0).unwrap().map(Result::unwrap);
    pages.filter_map(|page| values(&page, group.metadata().column(0))).collect()
}
