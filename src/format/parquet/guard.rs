//! What is checked of a Parquet shard before the library decodes it.
//!
//! The library believes the sizes that footer and page headers claim and allocates for them, so a damaged or hostile
//! shard of a few bytes could ask for gigabytes. The shards that dsconvert writes keep promises that are checked here:
//! bounded row groups, pages inside their column, page sizes within what the footer claims.
//!
//! Some damage the library meets with a panic; [`caught`] makes an error of it.

use std::ops::Range;

use ::parquet::arrow::ProjectionMask;
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use ::parquet::file::page_index::offset_index::PageLocation;

use crate::error::{Error, Result};
use crate::format::MAX_RECORD_BYTES;
use crate::panics;
use crate::storage::Blob;

/// Most decoded bytes of a row group that has several rows. The writer ends one at 16 MiB of canonical bytes, of which
/// two-byte ids take twice the space in Parquet.
const MAX_GROUP_BYTES: u64 = 64 << 20;
/// The same for a single row of the largest size.
const MAX_ROW_BYTES: u64 = 2 * MAX_RECORD_BYTES + MAX_GROUP_BYTES;
/// Bytes that are enough for the part of a page header that is looked at.
const HEADER_BYTES: u64 = 64;

/// Checks what the footer says of a file of `file_bytes` bytes. The error is one sentence.
pub(super) fn check_footer(file: &ParquetMetaData, file_bytes: u64) -> Result<(), String> {
    for (number, group) in file.row_groups().iter().enumerate() {
        let fail = |why: &str| format!("row group {number}: {why}");
        let limit = if group.num_rows() > 1 { MAX_GROUP_BYTES } else { MAX_ROW_BYTES };
        let index = file.page_index_for_row_group(number);
        let mut decoded = 0u64;
        for (i, column) in group.columns().iter().enumerate() {
            let (begin, end) = extent(column).ok_or_else(|| fail("a column at a negative offset"))?;
            if end > file_bytes {
                return Err(fail("a column that ends after the file"));
            }
            let bytes =
                u64::try_from(column.uncompressed_size()).map_err(|_| fail("a column of negative size"))?;
            decoded = decoded.saturating_add(bytes);
            let pages = index.page_locations(i).ok_or_else(|| fail("a column without a page index"))?;
            if !in_order(pages, group, begin, end) {
                return Err(fail("a damaged page index"));
            }
        }
        if decoded > limit {
            return Err(fail(&format!("{decoded} bytes, the limit is {limit}")));
        }
    }
    Ok(())
}

/// Runs a part of the library that may panic on damaged bytes. What `decode` was working on must not be used again
/// after an error. (The panic hook of the program still sees the panic: by default it prints a line to stderr.)
pub(super) fn caught<T>(decode: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    panics::caught(decode).unwrap_or_else(|panic| {
        Err(ParquetError::General(format!("the decoder gave up: {}", panic.into_message())))
    })
}

/// Where the pages of `column` begin and end in the file.
fn extent(column: &ColumnChunkMetaData) -> Option<(u64, u64)> {
    let begin = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
    let begin = u64::try_from(begin).ok()?;
    let end = begin.checked_add(u64::try_from(column.compressed_size()).ok()?)?;
    Some((begin, end))
}

/// Whether `pages` follow each other in bytes and rows, inside the column and the row group.
fn in_order(pages: &[PageLocation], group: &RowGroupMetaData, begin: u64, end: u64) -> bool {
    let mut at = begin;
    let mut row = -1;
    for page in pages {
        let (Ok(offset), Ok(size)) = (u64::try_from(page.offset), u64::try_from(page.compressed_page_size))
        else {
            return false;
        };
        if offset < at || page.first_row_index <= row || page.first_row_index >= group.num_rows() {
            return false;
        }
        at = offset.saturating_add(size);
        row = page.first_row_index;
    }
    at <= end
        && (group.num_rows() == 0) == pages.is_empty()
        && pages.first().is_none_or(|p| p.first_row_index == 0)
}

/// The rows to decode for `rows` (ascending) of row group `number`: ranges that no page of a list column among
/// `columns` crosses.
///
/// Skipping rows inside a page of a list column is the one thing that must not be asked of the library: when the page
/// has fewer levels than its header says, skipping never ends, where reading reports it.
pub(super) fn ranges(
    file: &ParquetMetaData,
    number: usize,
    rows: &[u32],
    columns: &ProjectionMask,
) -> Vec<Range<usize>> {
    let Some(group) = file.row_groups().get(number) else { return Vec::new() };
    let index = file.page_index_for_row_group(number);
    let total = usize::try_from(group.num_rows()).unwrap_or_default();
    let is_list = |&i: &usize| group.column(i).column_descr().max_rep_level() > 0;
    let lists = (0..group.num_columns()).filter(|&i| columns.leaf_included(i)).filter(is_list);
    let lists: Vec<&Vec<PageLocation>> = lists.filter_map(|i| index.page_locations(i)).collect();
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for &row in rows {
        let row = row as usize;
        if ranges.last().is_some_and(|last| row < last.end) {
            continue;
        }
        let mut range = row..row + 1;
        loop {
            let before = range.clone();
            for pages in &lists {
                range.start = begin_of(pages, page_of(pages, range.start), total);
                range.end = begin_of(pages, page_of(pages, range.end - 1) + 1, total);
            }
            if range == before {
                break;
            }
        }
        ranges.push(range);
    }
    ranges
}

/// The page that holds `row`.
fn page_of(pages: &[PageLocation], row: usize) -> usize {
    pages.partition_point(|p| p.first_row_index <= row as i64).saturating_sub(1)
}

/// The first row of page `page`, which may be the one after the last.
fn begin_of(pages: &[PageLocation], page: usize, total: usize) -> usize {
    pages.get(page).and_then(|p| usize::try_from(p.first_row_index).ok()).unwrap_or(total)
}

/// Checks the headers of the pages of `columns` that hold the rows `ranges` (ascending; all rows without them) of row
/// group `number`, which has passed [`check_footer`].
pub(super) fn check_pages(
    blob: &Blob,
    file: &ParquetMetaData,
    number: usize,
    ranges: Option<&[Range<usize>]>,
    columns: &ProjectionMask,
) -> Result<()> {
    let Some(group) = file.row_groups().get(number) else { return Ok(()) };
    let index = file.page_index_for_row_group(number);
    for (i, column) in group.columns().iter().enumerate().filter(|(i, _)| columns.leaf_included(*i)) {
        let (Some(all), Some((begin, _))) = (index.page_locations(i), extent(column)) else { continue };
        let Some(first) = all.first().and_then(|p| u64::try_from(p.offset).ok()) else { continue };
        if first > begin {
            check_page(blob, column, begin, first - begin)?;
        }
        let check = |page: &PageLocation| {
            let size = i64::from(page.compressed_page_size).cast_unsigned();
            check_page(blob, column, page.offset.cast_unsigned(), size)
        };
        let Some(ranges) = ranges else {
            all.iter().try_for_each(check)?;
            continue;
        };
        let mut checked = 0;
        for range in ranges {
            let end = page_of(all, range.end - 1) + 1;
            let begin = page_of(all, range.start).max(checked).min(end);
            all.get(begin..end).unwrap_or_default().iter().try_for_each(check)?;
            checked = end;
        }
    }
    Ok(())
}

/// Checks the header of the page of `size` bytes at `offset`.
fn check_page(blob: &Blob, column: &ColumnChunkMetaData, offset: u64, size: u64) -> Result<()> {
    let bytes = blob.read(offset, size.min(HEADER_BYTES))?;
    let chunk = column.uncompressed_size().cast_unsigned();
    let repeated = column.column_descr().max_rep_level() > 0;
    let sound = PageHeader::parse(&bytes).is_some_and(|page| {
        // Only lists have more values than rows, and their items are stored as four plain bytes: a few bytes cannot
        // stand for any number of them.
        let values = if repeated && !page.is_dictionary {
            page.values <= page.decoded / 4 + size * 2048
        } else {
            true
        };
        page.decoded <= chunk && page.stored <= size && values
    });
    if sound {
        return Ok(());
    }
    Err(Error::corrupt(format!("a damaged page of column {}", column.column_path())).at_offset(offset))
}

/// The beginning of a page header.
#[derive(Debug, PartialEq, Eq)]
struct PageHeader {
    is_dictionary: bool,
    decoded: u64,
    stored: u64,
    values: u64,
}

/// Thrift's compact protocol: the type code of a 32-bit number.
const THRIFT_I32: u8 = 5;
/// Thrift's compact protocol: the type code of a struct.
const THRIFT_STRUCT: u8 = 12;

impl PageHeader {
    /// Reads the fields up to the number of values: `type, uncompressed_page_size, compressed_page_size, crc?` and the
    /// first field of `data_page_header` or `dictionary_page_header`, in the order of their numbers as all writers
    /// write them. `None` for anything else.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.iter().copied();
        let mut numbers = [0; 5];
        let mut id = 0;
        let is_dictionary = loop {
            let head = rest.next()?;
            id += head >> 4;
            match (id, head & 0xf) {
                (1..=4, THRIFT_I32) if head >> 4 > 0 => {
                    *numbers.get_mut(usize::from(id))? = varint(&mut rest)?
                }
                (5, THRIFT_STRUCT) => break false,
                (7, THRIFT_STRUCT) => break true,
                _ => return None,
            }
        };
        if rest.next()? != 1 << 4 | THRIFT_I32 {
            return None;
        }
        let values = u64::try_from(zigzag(varint(&mut rest)?)).ok()?;
        let [_, _, decoded, stored, _] = numbers;
        Some(Self {
            is_dictionary,
            decoded: u64::try_from(zigzag(decoded)).ok()?,
            stored: u64::try_from(zigzag(stored)).ok()?,
            values,
        })
    }
}

fn varint(bytes: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let mut value = 0;
    for shift in (0..35).step_by(7) {
        let byte = bytes.next()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn zigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_a_page_header_is_read() {
        // type 0, 300 bytes decoded, 100 stored, then the header of a data page with 7 values.
        let header = [0x15, 0, 0x15, 0xd8, 0x04, 0x15, 0xc8, 0x01, 0x2c, 0x15, 14, 0x15, 0];
        let expected = PageHeader { is_dictionary: false, decoded: 300, stored: 100, values: 7 };
        assert_eq!(PageHeader::parse(&header), Some(expected));
        for len in 0..11 {
            assert_eq!(PageHeader::parse(&header[..len]), None, "{len}");
        }
        let negative = [0x15, 0, 0x15, 1, 0x15, 2, 0x2c, 0x15, 2];
        assert_eq!(PageHeader::parse(&negative), None);
    }
}
