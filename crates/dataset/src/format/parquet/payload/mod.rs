//! Payload columns: token ids, flags of tokens, encoded images and binary fields, which make up nearly all the bytes of a dataset.
//!
//! They need no dictionary and no statistics, so this module builds their pages directly from record values. Each value
//! is copied at most once into the current page, and buffers are reused across pages and row groups. The `parquet` crate
//! writes all other columns. The pages built here must be identical to those of that crate: page boundaries, runs of levels
//! and headers follow it, and the tests compare the bytes.
//!
//! This is why rows are encoded in chunks. The crate checks the page size after a certain number of levels, counted
//! from the start of each call, and that number is different if all rows of a call are alike.

mod levels;
mod page;

#[cfg(test)]
mod tests;

use ::parquet::basic::{Compression, Encoding, PageType};
use ::parquet::column::writer::ColumnCloseResult;
use ::parquet::errors::Result as ParquetResult;
use ::parquet::file::metadata::{ColumnChunkMetaData, PageEncodingStats};
use ::parquet::file::writer::SerializedRowGroupWriter;
use ::parquet::schema::types::ColumnDescPtr;
use arrow_buffer::NullBuffer;
use bytes::Bytes;

use super::{PAGE_BYTES, PAGE_ROWS, WRITE_BATCH, ZSTD_LEVEL};
use crate::error::{Error, Result};
use crate::format::watched::WatchedFile;
use crate::sample::Value;
use crate::schema::{FieldType, IdWidth};
use levels::Levels;
use page::{PageCounts, Pages};

/// Size of the length prefix of variable-length values.
const LENGTH_BYTES: usize = 4;

/// One payload column of a shard.
pub(super) struct Payload {
    descriptor: ColumnDescPtr,
    compression: Compression,
    /// Bytes per item if the values are lists of ids or flags; `None` if they are bytes.
    item_bytes: Option<usize>,
    /// Values not yet encoded.
    rows: Vec<Option<Bytes>>,
    /// Repetition levels, which mark where rows start (lists only).
    repetition: Levels,
    /// Definition levels: how much of a value is present, from 0 (nothing) to `present` (all of it).
    definition: Levels,
    present: u8,
    page: PageCounts,
    page_bytes: usize,
    pages: Pages,
}

impl Payload {
    /// Returns whether values of type `ty` are written by this module.
    pub(super) fn holds(ty: FieldType) -> bool {
        ty == FieldType::Binary || ty.is_image_file() || ty.is_token_list()
    }

    /// Creates a column for values of `ty`, which Parquet stores in the leaf `descriptor`.
    pub(super) fn new(ty: FieldType, descriptor: ColumnDescPtr, compression: Compression) -> Result<Self> {
        let level = (compression != Compression::UNCOMPRESSED).then_some(ZSTD_LEVEL);
        let pages = Pages::new(ty.item_bytes(), level)
            .map_err(|e| Error::internal("zstd does not support this level").caused_by(e))?;
        let present = descriptor.max_def_level() as u8;
        Ok(Self {
            descriptor,
            compression,
            item_bytes: ty.item_bytes(),
            rows: Vec::new(),
            repetition: Levels::new(1),
            definition: Levels::new(bits(present)),
            present,
            page: PageCounts::default(),
            page_bytes: 0,
            pages,
        })
    }

    /// Adds the value of the next record.
    pub(super) fn push(&mut self, value: &Value) -> Result<()> {
        self.rows.push(match (value, self.item_bytes) {
            (Value::Null, _) => None,
            (Value::Bytes(bytes), None | Some(1)) => Some(bytes.clone()),
            (Value::Ids(ids), Some(width)) if ids.width().bytes() == width => Some(ids.as_bytes().clone()),
            _ => return Err(Error::internal("a value does not fit its column")),
        });
        Ok(())
    }

    /// Returns which of the pending values are not null, or `None` if none of them is null.
    pub(super) fn present(&self) -> Option<NullBuffer> {
        let all = self.rows.iter().all(Option::is_some);
        (!all).then(|| self.rows.iter().map(Option::is_some).collect())
    }

    /// Encodes the pending values.
    pub(super) fn encode(&mut self) -> ParquetResult<()> {
        let mut rows = std::mem::take(&mut self.rows);
        match self.item_bytes {
            Some(width) => self.encode_lists(&mut rows, width)?,
            None => self.encode_bytes(&mut rows)?,
        }
        rows.clear();
        self.rows = rows;
        Ok(())
    }

    /// Ends the column chunk and appends it to `group`.
    pub(super) fn finish(
        &mut self,
        group: &mut SerializedRowGroupWriter<'_, WatchedFile>,
    ) -> ParquetResult<()> {
        if self.page.levels > 0 {
            self.end_page()?;
        }
        let (sizes, index) = self.pages.describe();
        let pages = PageEncodingStats {
            page_type: PageType::DATA_PAGE,
            encoding: self.pages.encoding(),
            count: sizes.pages,
        };
        let metadata = ColumnChunkMetaData::builder(self.descriptor.clone())
            .set_compression(self.compression)
            .set_encodings(vec![self.pages.encoding(), Encoding::RLE])
            .set_page_encoding_stats(vec![pages])
            .set_total_compressed_size(sizes.stored as i64)
            .set_total_uncompressed_size(sizes.plain as i64)
            .set_num_values(sizes.levels as i64)
            .set_data_page_offset(0)
            .build()?;
        let close = ColumnCloseResult {
            bytes_written: sizes.stored,
            rows_written: sizes.rows,
            metadata,
            bloom_filter: None,
            column_index: None,
            offset_index: Some(index),
        };
        group.append_column(&&self.pages, close)?;
        self.pages.clear();
        Ok(())
    }

    fn encode_lists(&mut self, rows: &mut [Option<Bytes>], item_bytes: usize) -> ParquetResult<()> {
        let alike = rows.iter().all(|row| row.is_none())
            || rows.iter().all(|row| row.as_ref().is_some_and(Bytes::is_empty));
        let batch_levels = if alike { PAGE_ROWS } else { WRITE_BATCH };
        let mut batch_start = self.page.levels;
        for row in rows {
            // A row is never split, so the last one may exceed the limit.
            if self.page.levels - batch_start >= batch_levels {
                self.end_full_page()?;
                batch_start = self.page.levels;
            }
            self.add_list(row.take(), item_bytes);
        }
        self.end_full_page()
    }

    fn add_list(&mut self, row: Option<Bytes>, item_bytes: usize) {
        let absent = usize::from(row.is_none());
        let items = row.unwrap_or_default();
        let count = items.len() / item_bytes;
        // An empty list is two levels below an item, because items are declared nullable (though never null). A null
        // list is one level lower.
        let definition = if count > 0 { self.present } else { self.present - 2 - absent as u8 };
        self.repetition.add(0, 1);
        self.repetition.add(1, count.saturating_sub(1));
        self.definition.add(definition, count.max(1));
        self.page.rows += 1;
        self.page.levels += count.max(1);
        self.page_bytes += count * IdWidth::U32.bytes();
        self.pages.push_items(items);
    }

    fn encode_bytes(&mut self, rows: &mut [Option<Bytes>]) -> ParquetResult<()> {
        let missing = rows.iter().filter(|row| row.is_none()).count();
        let alike = missing == 0 || missing == rows.len();
        let batch_rows = if alike { PAGE_ROWS } else { WRITE_BATCH };
        for rows in rows.chunks_mut(batch_rows) {
            let page_rows = rows_per_page(rows);
            for rows in rows.chunks_mut(page_rows) {
                rows.iter_mut().for_each(|row| self.add_bytes(row.take()));
                self.end_full_page()?;
            }
        }
        Ok(())
    }

    fn add_bytes(&mut self, row: Option<Bytes>) {
        self.definition.add(if row.is_some() { self.present } else { 0 }, 1);
        self.page.rows += 1;
        self.page.levels += 1;
        let variable_bytes = self.page.variable_bytes.get_or_insert(0);
        if let Some(bytes) = row {
            *variable_bytes += bytes.len() as i64;
            self.page_bytes += LENGTH_BYTES + bytes.len();
            let values = self.pages.values();
            // A record has at most 1 GiB.
            values.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            values.extend_from_slice(&bytes);
        }
    }

    fn end_full_page(&mut self) -> ParquetResult<()> {
        let full = self.page.rows >= PAGE_ROWS || self.page_bytes >= PAGE_BYTES;
        if full { self.end_page() } else { Ok(()) }
    }

    fn end_page(&mut self) -> ParquetResult<()> {
        let counts = std::mem::take(&mut self.page);
        self.page_bytes = 0;
        let (repetition, definition) = (&mut self.repetition, &mut self.definition);
        let has_repetition = self.item_bytes.is_some();
        self.pages.end(counts, |levels| {
            if has_repetition {
                repetition.take(levels);
            }
            definition.take(levels);
        })
    }
}

/// Returns how many of `rows` to encode before the next check of the page size: enough to fill a page, or all of them
/// if their values do not fill one.
fn rows_per_page(rows: &[Option<Bytes>]) -> usize {
    let mut bytes = 0;
    let mut values = rows.iter().flatten();
    let fill = values.by_ref().position(|value| {
        bytes += LENGTH_BYTES + value.len();
        bytes > PAGE_BYTES
    });
    let Some(fill) = fill.map(|last| last + 1).filter(|_| values.next().is_some()) else {
        return rows.len().max(1);
    };
    // Assumes that nulls are spread evenly.
    let present = rows.iter().flatten().count();
    (fill * rows.len()).div_ceil(present).min(rows.len())
}

/// Returns the bits needed for levels up to `highest`.
fn bits(highest: u8) -> usize {
    (u8::BITS - highest.leading_zeros()) as usize
}
