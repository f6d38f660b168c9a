//! Columns of payload: token ids and encoded images, which are nearly all the bytes there are.
//!
//! They need no dictionary and no statistics, so their pages are made here, straight from the values of the records: a
//! value is copied once into the page that is under way, and buffers are used again from page to page and from row
//! group to row group. All other columns are written by the `parquet` crate, and that crate decides the bytes of these
//! as well: where a page ends, which levels are runs, what the header holds is as it does it, and the tests compare.
//!
//! That is why rows are gathered in chunks: that crate looks at the size of a page after so many levels, counted from
//! where it was last called, and it counts otherwise when all rows of a call are alike.

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
use page::{Counts, PageLayout, Pages};

/// Bytes before each value that varies in length, which give it.
const LENGTH_BYTES: usize = 4;

/// One column of payload of a shard.
pub(super) struct Payload {
    descriptor: ColumnDescPtr,
    compression: Compression,
    /// The width of ids; the values are bytes when there is none.
    ids: Option<IdWidth>,
    /// Values that wait to be encoded.
    rows: Vec<Option<Bytes>>,
    /// Whether a row begins, of ids.
    repetition: Levels,
    /// How much of a value is there, from nothing to all.
    definition: Levels,
    present: u8,
    page: Counts,
    page_bytes: usize,
    pages: Pages,
}

impl Payload {
    /// Whether values of a type are written here.
    pub(super) fn holds(ty: FieldType) -> bool {
        ty == FieldType::Binary || ty.is_image_file() || ty.id_width().is_some()
    }

    /// A column of values of `ty`, which Parquet stores in the leaf `descriptor`.
    pub(super) fn new(ty: FieldType, descriptor: ColumnDescPtr, compression: Compression) -> Result<Self> {
        let level = (compression != Compression::UNCOMPRESSED).then_some(ZSTD_LEVEL);
        let layout = ty.id_width().map_or(PageLayout::Plain, PageLayout::ByteStreams);
        let pages = Pages::new(layout, level)
            .map_err(|e| Error::internal("zstd cannot be used with this level").caused_by(e))?;
        let present = descriptor.max_def_level() as u8;
        Ok(Self {
            descriptor,
            compression,
            ids: ty.id_width(),
            rows: Vec::new(),
            repetition: Levels::new(1),
            definition: Levels::new(bits(present)),
            present,
            page: Counts::default(),
            page_bytes: 0,
            pages,
        })
    }

    /// Takes the value of a record.
    pub(super) fn push(&mut self, value: &Value) -> Result<()> {
        self.rows.push(match (value, self.ids) {
            (Value::Null, _) => None,
            (Value::Bytes(bytes), None) => Some(bytes.clone()),
            (Value::Ids(ids), Some(width)) if ids.width() == width => Some(ids.as_bytes().clone()),
            _ => return Err(Error::internal("a value does not fit its column")),
        });
        Ok(())
    }

    /// Which of the values that wait are there; nothing when all are.
    pub(super) fn present(&self) -> Option<NullBuffer> {
        let all = self.rows.iter().all(Option::is_some);
        (!all).then(|| self.rows.iter().map(Option::is_some).collect())
    }

    /// Encodes the values that wait.
    pub(super) fn encode(&mut self) -> ParquetResult<()> {
        let mut rows = std::mem::take(&mut self.rows);
        match self.ids {
            Some(width) => self.encode_ids(&mut rows, width)?,
            None => self.encode_bytes(&mut rows)?,
        }
        rows.clear();
        self.rows = rows;
        Ok(())
    }

    /// Ends the column chunk, and makes it the next of `group`.
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

    fn encode_ids(&mut self, rows: &mut [Option<Bytes>], width: IdWidth) -> ParquetResult<()> {
        let alike = rows.iter().all(|row| row.is_none())
            || rows.iter().all(|row| row.as_ref().is_some_and(Bytes::is_empty));
        let most = if alike { PAGE_ROWS } else { WRITE_BATCH };
        let mut begun = self.page.levels;
        for row in rows {
            // A row is never divided, so the last one may go beyond.
            if self.page.levels - begun >= most {
                self.end_full_page()?;
                begun = self.page.levels;
            }
            self.add_ids(row.take(), width);
        }
        self.end_full_page()
    }

    fn add_ids(&mut self, row: Option<Bytes>, width: IdWidth) {
        let absent = usize::from(row.is_none());
        let ids = row.unwrap_or_default();
        let count = ids.len() / width.bytes();
        // Present, but empty; its items are nullable and never null, which are two levels more.
        let definition = if count > 0 { self.present } else { self.present - 2 - absent as u8 };
        self.repetition.add(0, 1);
        self.repetition.add(1, count.saturating_sub(1));
        self.definition.add(definition, count.max(1));
        self.page.rows += 1;
        self.page.levels += count.max(1);
        self.page_bytes += count * IdWidth::U32.bytes();
        self.pages.values().extend_from_slice(&ids);
    }

    fn encode_bytes(&mut self, rows: &mut [Option<Bytes>]) -> ParquetResult<()> {
        let missing = rows.iter().filter(|row| row.is_none()).count();
        let alike = missing == 0 || missing == rows.len();
        let most = if alike { PAGE_ROWS } else { WRITE_BATCH };
        for rows in rows.chunks_mut(most) {
            let batch = rows_per_page(rows);
            for rows in rows.chunks_mut(batch) {
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
            // A record has a gibibyte at most.
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
        let has_repetition = self.ids.is_some();
        self.pages.end(counts, |levels| {
            if has_repetition {
                repetition.take(levels);
            }
            definition.take(levels);
        })
    }
}

/// How many of `rows` are encoded before the size of the page is looked at: those whose values fill a page, or all when
/// these do not.
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
    // Missing values are thought to be spread evenly.
    let present = rows.iter().flatten().count();
    (fill * rows.len()).div_ceil(present).min(rows.len())
}

/// Bits of a level that is at most `highest`.
fn bits(highest: u8) -> usize {
    (u8::BITS - highest.leading_zeros()) as usize
}
