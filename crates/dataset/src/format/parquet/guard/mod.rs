//! Validation of a Parquet shard before the `parquet` crate decodes it.
//!
//! The crate allocates memory according to the footer, page index, page headers and encodings, so a single flipped bit
//! could abort the process with a failed allocation. Everything that the crate will parse is therefore validated first.
//! It must have the form that dsconvert writes: row groups of limited size, contiguous pages, as many values as the
//! page index has rows, and known encodings.
//!
//! The crate panics on some damaged values; [`caught`] converts such a panic into an error.

mod header;
pub(super) mod levels;

use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use ::parquet::arrow::ProjectionMask;
use ::parquet::basic::{Compression, Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use ::parquet::file::page_index::offset_index::PageLocation;
use bytes::Bytes;
pub(super) use header::PLAIN;
use header::PageHeader;
use zstd::bulk::Decompressor;

use super::GROUP_ROWS;
use crate::error::{Error, Result};
use crate::format::PARQUET_MAGIC as MAGIC;
use crate::format::parquet_footer::is_sound;
use crate::format::thrift::{STRUCT, Thrift};
use crate::panics;
use crate::schema::{MAX_AXES, MAX_RECORD_BYTES};
use crate::storage::Blob;

/// Maximum decoded bytes of a row group with several rows. The writer ends a row group at 16 MiB of canonical bytes;
/// two-byte ids take twice that space in Parquet, 8/3 of it if they have flags, and arrays of one-byte numbers four times that
/// space and their levels.
const MAX_GROUP_BYTES: u64 = 96 << 20;
/// Maximum decoded bytes of a row group with a single row of the largest size.
const MAX_ROW_BYTES: u64 = 3 * MAX_RECORD_BYTES + MAX_GROUP_BYTES;
/// Minimum stored size of a variable-length value: its length prefix.
const LENGTH_BYTES: u64 = 4;

/// Checks the footer of a file of `file_bytes` bytes. The error is one sentence.
pub(super) fn check_footer(file: &ParquetMetaData, file_bytes: u64) -> Result<(), String> {
    for (number, group) in file.row_groups().iter().enumerate() {
        let fail = |why: &str| format!("row group {number}: {why}");
        if !usize::try_from(group.num_rows()).is_ok_and(|rows| rows <= GROUP_ROWS) {
            return Err(fail(&format!("it has {} rows, but the limit is {GROUP_ROWS}", group.num_rows())));
        }
        let limit = if group.num_rows() > 1 { MAX_GROUP_BYTES } else { MAX_ROW_BYTES };
        let index = file.page_index_for_row_group(number);
        let mut decoded = 0u64;
        for (i, column) in group.columns().iter().enumerate() {
            let (begin, end) = extent(column).ok_or_else(|| fail("a column has a negative offset"))?;
            if end > file_bytes {
                return Err(fail("a column extends past the end of the file"));
            }
            let bytes = u64::try_from(column.uncompressed_size())
                .map_err(|_| fail("a column has a negative size"))?;
            decoded = decoded.saturating_add(bytes);
            if !matches!(column.compression(), Compression::UNCOMPRESSED | Compression::ZSTD(_)) {
                return Err(fail("a column is compressed with a codec that dsconvert does not use"));
            }
            let pages = index.page_locations(i).ok_or_else(|| fail("a column has no page index"))?;
            if !are_contiguous(pages, group, begin, end, column.dictionary_page_offset().is_some()) {
                return Err(fail("the page index is damaged"));
            }
        }
        if decoded > limit {
            return Err(fail(&format!("it has {decoded} decoded bytes, but the limit is {limit}")));
        }
    }
    Ok(())
}

/// Runs library code that may panic on damaged bytes. After an error, the state that `decode` was working on must not
/// be used again. The panic hook of the program still runs; the default hook prints a line to stderr.
pub(super) fn caught<T>(decode: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    panics::caught(decode).unwrap_or_else(|panic| {
        Err(ParquetError::General(format!("the decoder panicked: {}", panic.into_message())))
    })
}

/// Returns the start and end offsets of the pages of `column` in the file.
fn extent(column: &ColumnChunkMetaData) -> Option<(u64, u64)> {
    let begin = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
    let begin = u64::try_from(begin).ok()?;
    let end = begin.checked_add(u64::try_from(column.compressed_size()).ok()?)?;
    Some((begin, end))
}

/// Returns whether `pages` are contiguous in bytes and rows and fill the column after its dictionary.
fn are_contiguous(
    pages: &[PageLocation],
    group: &RowGroupMetaData,
    begin: u64,
    end: u64,
    has_dictionary: bool,
) -> bool {
    let Some(first) = pages.first() else { return group.num_rows() == 0 && begin == end };
    let Ok(mut at) = u64::try_from(first.offset) else { return false };
    if at < begin || (at > begin) != has_dictionary || first.first_row_index != 0 {
        return false;
    }
    let mut row = -1;
    for page in pages {
        let size = u64::try_from(page.compressed_page_size);
        let (Ok(size), true) = (size, u64::try_from(page.offset) == Ok(at)) else { return false };
        if page.first_row_index <= row || page.first_row_index >= group.num_rows() {
            return false;
        }
        at = at.saturating_add(size);
        row = page.first_row_index;
    }
    at == end
}

/// Returns the row ranges to decode in order to read `rows` (ascending) of row group `number`: [`whole_pages`], of which
/// adjacent ones are joined. Rows are skipped between any two ranges.
pub(super) fn ranges(
    file: &ParquetMetaData,
    number: usize,
    rows: &[u32],
    columns: &ProjectionMask,
) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for range in whole_pages(file, number, rows, columns) {
        match ranges.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => ranges.push(range),
        }
    }
    ranges
}

/// Returns the ranges around `rows` (ascending) of row group `number`: the smallest ones that split no page of a list
/// column in `columns`. The range of a row depends on nothing but the file and the columns.
///
/// Skipping rows in a list page with fewer levels than its header claims never returns, but reading them reports the
/// damage.
pub(super) fn whole_pages(
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
                range.start = first_row_of(pages, page_of(pages, range.start), total);
                range.end = first_row_of(pages, page_of(pages, range.end - 1) + 1, total);
            }
            if range == before {
                break;
            }
        }
        ranges.push(range);
    }
    ranges
}

/// Returns the indices of the pages that contain `rows`, which must not be empty.
pub(super) fn pages_of(pages: &[PageLocation], rows: &Range<usize>) -> Range<usize> {
    page_of(pages, rows.start)..page_of(pages, rows.end - 1) + 1
}

/// Returns the rows of page `page` of a row group with `total` rows.
pub(super) fn rows_of(pages: &[PageLocation], page: usize, total: usize) -> Range<usize> {
    first_row_of(pages, page, total)..first_row_of(pages, page + 1, total)
}

/// Returns the index of the page that contains `row`.
fn page_of(pages: &[PageLocation], row: usize) -> usize {
    pages.partition_point(|p| p.first_row_index <= row as i64).saturating_sub(1)
}

/// Returns the first row of page `page`, which may be one past the last page.
fn first_row_of(pages: &[PageLocation], page: usize, total: usize) -> usize {
    pages.get(page).and_then(|p| usize::try_from(p.first_row_index).ok()).unwrap_or(total)
}

/// Pages whose content has been checked: `[row group][column][page]`. Later reads skip the check.
pub(super) struct CheckedPages(Vec<Vec<Vec<AtomicBool>>>);

impl CheckedPages {
    /// Creates the table for `file`, with all pages unchecked.
    pub(super) fn new(file: &ParquetMetaData) -> Self {
        let column = |group: usize, column: usize| {
            let index = file.page_index_for_row_group(group);
            let pages = index.page_locations(column).map_or(0, Vec::len);
            std::iter::repeat_with(AtomicBool::default).take(pages).collect()
        };
        let group = |(number, group): (usize, &RowGroupMetaData)| {
            (0..group.num_columns()).map(|i| column(number, i)).collect()
        };
        Self(file.row_groups().iter().enumerate().map(group).collect())
    }

    /// Runs `check` unless it has already succeeded for this page.
    fn once(
        &self,
        group: usize,
        column: usize,
        page: usize,
        check: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let done = self.0.get(group).and_then(|group| group.get(column)?.get(page));
        if done.is_some_and(|done| done.load(Ordering::Relaxed)) {
            return Ok(());
        }
        check()?;
        if let Some(done) = done {
            done.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Checks the pages of `columns` that contain the rows `ranges` (ascending; `None` for all rows) of row group `number`,
/// which has passed [`check_footer`]. Returns the decoded size of the largest dictionary.
pub(super) fn check_pages(
    blob: &Blob,
    file: &ParquetMetaData,
    number: usize,
    ranges: Option<&[Range<usize>]>,
    columns: &ProjectionMask,
    checked: &CheckedPages,
) -> Result<u64> {
    let Some(group) = file.row_groups().get(number) else { return Ok(0) };
    let index = file.page_index_for_row_group(number);
    let total = usize::try_from(group.num_rows()).unwrap_or_default();
    // Ranges cover list pages completely, so rows of such a page can be skipped only between two ranges.
    let skips_lists = ranges.is_some_and(|ranges| ranges.len() > 1);
    let mut largest_dictionary = 0;
    for (i, column) in group.columns().iter().enumerate().filter(|(i, _)| columns.leaf_included(*i)) {
        let (Some(all), Some((begin, _))) = (index.page_locations(i), extent(column)) else { continue };
        let Some(first) = all.first().and_then(|p| u64::try_from(p.offset).ok()) else { continue };
        let pages = PageChecker { blob, column };
        let has_dictionary = first > begin;
        if has_dictionary {
            largest_dictionary = largest_dictionary.max(pages.check_dictionary(begin, first - begin)?);
        }
        let is_list = column.column_descr().max_rep_level() > 0;
        let check = |page: usize| -> Result<()> {
            let Some(location) = all.get(page) else { return Ok(()) };
            let rows = rows_of(all, page, total);
            let count = (rows.end - rows.start) as u64;
            let header = pages.check_data(location, count, has_dictionary)?;
            if is_list && skips_lists {
                checked.once(number, i, page, || pages.check_levels(location, count, &header))
            } else if header.encoding == header::PLAIN
                && column.column_type() == Type::BYTE_ARRAY
                && ranges.is_some_and(|ranges| !covers(ranges, &rows))
            {
                checked.once(number, i, page, || pages.check_lengths(location, &header))
            } else {
                Ok(())
            }
        };
        let Some(ranges) = ranges else {
            (0..all.len()).try_for_each(check)?;
            continue;
        };
        let mut next = 0;
        for range in ranges {
            let pages = pages_of(all, range);
            (pages.start.max(next)..pages.end).try_for_each(check)?;
            next = pages.end;
        }
    }
    Ok(largest_dictionary)
}

/// Returns whether one of `ranges` contains all of `rows`.
fn covers(ranges: &[Range<usize>], rows: &Range<usize>) -> bool {
    let after = ranges.partition_point(|range| range.end < rows.end);
    ranges.get(after).is_some_and(|range| range.start <= rows.start)
}

/// Checks the pages of one column chunk.
pub(super) struct PageChecker<'a> {
    pub(super) blob: &'a Blob,
    pub(super) column: &'a ColumnChunkMetaData,
}

impl PageChecker<'_> {
    /// Checks the header of the dictionary page of `size` bytes at `offset` and returns its decoded size.
    fn check_dictionary(&self, offset: u64, size: u64) -> Result<u64> {
        let header = self.header(offset, size)?;
        let sound = header.is_dictionary
            && matches!(header.encoding, header::PLAIN | header::PLAIN_DICTIONARY)
            && header.values.saturating_mul(self.value_bytes()) <= header.decoded_bytes;
        if sound { Ok(header.decoded_bytes) } else { Err(self.damaged(offset)) }
    }

    /// Checks the header of a data page, which must contain `rows` rows.
    pub(super) fn check_data(
        &self,
        page: &PageLocation,
        rows: u64,
        has_dictionary: bool,
    ) -> Result<PageHeader> {
        let offset = page.offset.cast_unsigned();
        let header = self.header(offset, i64::from(page.compressed_page_size).cast_unsigned())?;
        let encoding = match header.encoding {
            header::PLAIN => true,
            header::PLAIN_DICTIONARY | header::RLE_DICTIONARY => has_dictionary,
            header::BYTE_STREAM_SPLIT => self.column.column_type() == Type::INT32,
            _ => false,
        };
        let values = if self.column.column_descr().max_rep_level() > 0 {
            // A row without items counts as one value but takes no bytes; items are stored at full width.
            (rows..=rows.saturating_add(header.decoded_bytes / self.value_bytes())).contains(&header.values)
        } else {
            header.values == rows
        };
        if !header.is_dictionary && encoding && values { Ok(header) } else { Err(self.damaged(offset)) }
    }

    /// Checks that the repetition levels of the data page describe `rows` rows.
    fn check_levels(&self, page: &PageLocation, rows: u64, header: &PageHeader) -> Result<()> {
        let max = u8::try_from(self.column.column_descr().max_rep_level()).unwrap_or(u8::MAX);
        let found = levels::rows(Decompressed::default().of(self, page, header)?, header.values, max);
        if found == Some(rows) { Ok(()) } else { Err(self.damaged(page.offset.cast_unsigned())) }
    }

    /// Checks that the plain byte strings of the data page end exactly where the page ends.
    fn check_lengths(&self, page: &PageLocation, header: &PageHeader) -> Result<()> {
        let has_definition = self.column.column_descr().max_def_level() > 0;
        let content = &mut Decompressed::default();
        let whole = levels::are_whole_strings(content.of(self, page, header)?, has_definition);
        if whole { Ok(()) } else { Err(self.damaged(page.offset.cast_unsigned())) }
    }

    /// Reads the header of the page of `size` bytes at `offset`.
    fn header(&self, offset: u64, size: u64) -> Result<PageHeader> {
        let bytes = self.blob.read(offset, size.min(header::MAX_HEADER_BYTES))?;
        let sound = |header: &PageHeader| {
            let compressed = self.column.compression() != Compression::UNCOMPRESSED;
            header.header_bytes + header.stored_bytes == size
                && header.decoded_bytes <= self.column.uncompressed_size().cast_unsigned()
                && (compressed || header.decoded_bytes == header.stored_bytes)
        };
        PageHeader::parse(&bytes).filter(sound).ok_or_else(|| self.damaged(offset))
    }

    /// Returns the minimum size of a plain value in bytes.
    fn value_bytes(&self) -> u64 {
        match self.column.column_type() {
            Type::INT64 | Type::DOUBLE => 8,
            Type::INT32 | Type::FLOAT => 4,
            Type::BYTE_ARRAY => LENGTH_BYTES,
            Type::BOOLEAN | Type::INT96 | Type::FIXED_LEN_BYTE_ARRAY => 1,
        }
    }

    pub(super) fn damaged(&self, offset: u64) -> Error {
        let column = self.column.column_path();
        Error::corrupt(format!("a page of column {column} is damaged")).at_offset(offset)
    }
}

/// The content of a data page, in a buffer that the next page reuses.
#[derive(Default)]
pub(super) struct Decompressed {
    stored: Bytes,
    content: Vec<u8>,
}

impl Decompressed {
    /// Returns the content of `page`, whose header was checked.
    pub(super) fn of(
        &mut self,
        pages: &PageChecker<'_>,
        page: &PageLocation,
        header: &PageHeader,
    ) -> Result<&[u8]> {
        thread_local! {
            /// The state of zstd is larger than most pages, and new memory of that size is expensive.
            static ZSTD: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
        }
        let offset = page.offset.cast_unsigned();
        self.stored = pages.blob.read(offset + header.header_bytes, header.stored_bytes)?;
        if pages.column.compression() == Compression::UNCOMPRESSED {
            return Ok(&self.stored);
        }
        let Self { stored, content } = self;
        content.clear();
        // At most the column size in the footer, which is limited.
        content.reserve(header.decoded_bytes as usize);
        let decompress = |zstd: &mut Option<Decompressor<'_>>| {
            let zstd = match zstd {
                Some(zstd) => zstd,
                none => none.insert(Decompressor::new()?),
            };
            zstd.decompress_to_buffer(stored, content)
        };
        ZSTD.with_borrow_mut(decompress).map_err(|e| pages.damaged(offset).caused_by(e))?;
        Ok(content)
    }
}

/// Maximum number of levels of a column. A list has two levels below its column.
const MAX_SCHEMA_DEPTH: usize = 2 + 2 * MAX_AXES;

/// Checks the end of the file and the structure of the footer.
pub(in crate::format::parquet) fn check_footer_bytes(blob: &Blob) -> Result<()> {
    let bad = |why: &str| Error::corrupt(why).at_path(blob.path());
    let tail_bytes = 4 + MAGIC.len() as u64;
    let Some(end) = blob.len().checked_sub(tail_bytes).filter(|&end| end >= MAGIC.len() as u64) else {
        return Err(bad("the file is too short for a Parquet file"));
    };
    let tail = blob.read(end, tail_bytes)?;
    let Some((size, magic)) = tail.split_first_chunk::<4>() else { return Err(bad("the file is truncated")) };
    if magic != MAGIC || blob.read(0, MAGIC.len() as u64)? != MAGIC.as_slice() {
        return Err(bad("the file is not a Parquet file, or it is truncated"));
    }
    let size = u64::from(u32::from_le_bytes(*size));
    let start = end.checked_sub(size).filter(|&start| start >= MAGIC.len() as u64);
    let start = start.ok_or_else(|| bad("the Parquet footer is longer than the file"))?;
    match is_sound(&blob.read(start, size)?, MAX_SCHEMA_DEPTH) {
        true => Ok(()),
        false => Err(bad("the Parquet footer is damaged")),
    }
}

/// Checks that every column of `file` has a well-formed offset index inside the file.
pub(in crate::format::parquet) fn check_page_index(blob: &Blob, file: &ParquetMetaData) -> Result<()> {
    for (number, group) in file.row_groups().iter().enumerate() {
        for column in group.columns() {
            let sound = match column.offset_index_range() {
                Some(range) if range.end <= blob.len() && range.start < range.end => {
                    let bytes = blob.read(range.start, range.end - range.start)?;
                    Thrift::new(&bytes).skip(STRUCT).is_some()
                }
                _ => false,
            };
            if !sound {
                let what =
                    format!("row group {number}: the page index of {} is damaged", column.column_path());
                return Err(Error::corrupt(what).at_path(blob.path()));
            }
        }
    }
    Ok(())
}
