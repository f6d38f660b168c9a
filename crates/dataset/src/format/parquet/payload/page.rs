//! Data pages of a column chunk, built in reusable buffers.
//!
//! A page consists of a header, levels and values, and the header contains the size of the rest. Values are therefore
//! written first, after reserved space. Levels and header are placed at the end of that space when the page ends.
//! Readers of the chunk skip unused space.
//!
//! Format: <https://parquet.apache.org/docs/file-format/data-pages/>. Headers use the Thrift compact protocol:
//! <https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md>

use std::io::{self, Cursor, Read};
use std::ops::Range;

use ::parquet::basic::Encoding;
use ::parquet::errors::{ParquetError, Result};
use ::parquet::file::metadata::OffsetIndexBuilder;
use ::parquet::file::page_index::offset_index::OffsetIndexMetaData;
use ::parquet::file::reader::{ChunkReader, Length};
use bytes::Bytes;
use zstd::bulk::Compressor;

/// Space reserved before the values of a page for its header and, unless they are large, its levels.
const HEADROOM: usize = 1 << 10;

/// Capacity of value buffers that is kept for the next page, in bytes. Longer lists are not copied into them.
const KEPT_VALUES: usize = 4 << 20;
/// Capacity of the page buffer that is kept for the next chunk, in bytes.
const KEPT_PAGES: usize = 32 << 20;

/// Bytes of a stream that are written at a time.
const STREAM_CHUNK: usize = 4 << 10;

/// Pages of a column chunk.
pub(super) struct Pages {
    /// Bytes per number if the values are numbers. Pages store them as 32-bit numbers in byte streams: all first bytes, then
    /// all second bytes, and so on; the remaining bytes are 0. `None` if values are stored as given.
    item_bytes: Option<usize>,
    compressor: Option<Compressor<'static>>,
    /// Values of the current page if they will be compressed.
    values: Vec<u8>,
    /// A long list: the values of the current page after `values`.
    long: Bytes,
    /// Finished pages, and uncompressed values of the current page.
    bytes: Vec<u8>,
    /// Levels and values of the page being finished, if these are byte streams.
    streams: Vec<u8>,
    /// Ranges of the pages in `bytes`, in order.
    page_ranges: Vec<Range<usize>>,
    /// Header and levels of the page being finished.
    head: Vec<u8>,
    index: OffsetIndexBuilder,
    sizes: Sizes,
}

/// Totals over the pages of a chunk.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sizes {
    /// Stored bytes, including headers.
    pub(super) stored: u64,
    /// Uncompressed bytes, including headers.
    pub(super) plain: u64,
    pub(super) rows: u64,
    /// Values, counting nulls and empty lists.
    pub(super) levels: u64,
    pub(super) pages: i32,
}

/// Contents of one page.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PageCounts {
    pub(super) rows: usize,
    /// Values, counting nulls and empty lists.
    pub(super) levels: usize,
    /// Size of the values in bytes, if they have variable length.
    pub(super) variable_bytes: Option<i64>,
}

impl Pages {
    /// Creates an empty chunk. Pages are compressed with zstd if a level is given; otherwise values are stored as given.
    pub(super) fn new(item_bytes: Option<usize>, zstd_level: Option<i32>) -> io::Result<Self> {
        Ok(Self {
            item_bytes,
            compressor: zstd_level.map(Compressor::new).transpose()?,
            values: Vec::new(),
            long: Bytes::new(),
            bytes: Vec::new(),
            streams: Vec::new(),
            page_ranges: Vec::new(),
            head: Vec::new(),
            index: OffsetIndexBuilder::new(),
            sizes: Sizes::default(),
        })
    }

    /// Returns the encoding of the values.
    pub(super) fn encoding(&self) -> Encoding {
        if self.item_bytes.is_some() { Encoding::BYTE_STREAM_SPLIT } else { Encoding::PLAIN }
    }

    /// Returns the buffer to which values of the current page are appended.
    pub(super) fn values(&mut self) -> &mut Vec<u8> {
        let (buffer, begin) = match self.compressor {
            Some(_) => (&mut self.values, 0),
            None => (&mut self.bytes, self.page_ranges.last().map_or(0, |page| page.end)),
        };
        if buffer.len() == begin {
            buffer.resize(begin + HEADROOM, 0);
        }
        buffer
    }

    /// Appends a list to the current page, whose values are numbers.
    pub(super) fn push_items(&mut self, items: Bytes) {
        let earlier = std::mem::take(&mut self.long);
        self.values().extend_from_slice(&earlier);
        match items.len() > KEPT_VALUES {
            true => self.long = items,
            false => self.values().extend_from_slice(&items),
        }
    }

    /// Ends the current page; `write_levels` appends its levels.
    pub(super) fn end(&mut self, counts: PageCounts, write_levels: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let encoding = self.encoding();
        self.values();
        self.head.clear();
        write_levels(&mut self.head);
        let begin = self.page_ranges.last().map_or(0, |page| page.end);
        let (page_bytes, header) = match &mut self.compressor {
            None => {
                let page_bytes = self.head.len() + self.bytes.len() - begin - HEADROOM;
                let header = header(page_bytes, page_bytes, counts.levels, Encoding::PLAIN)?;
                self.head.splice(..0, header.iter().copied());
                (page_bytes, header)
            }
            Some(compressor) => {
                let page = match self.item_bytes {
                    None => {
                        let from = place_before(&mut self.values, 0, &self.head);
                        &self.values[from..]
                    }
                    Some(width) => {
                        let values = [&self.values[HEADROOM..], &self.long];
                        self.streams.clone_from(&self.head);
                        let streams = &mut self.streams;
                        match width {
                            1 => push_streams(values, |[flag]: [u8; 1]| flag.into(), streams),
                            2 => push_streams(values, |id| u16::from_le_bytes(id).into(), streams),
                            _ => push_streams(values, u32::from_le_bytes, streams),
                        }
                        &self.streams
                    }
                };
                self.bytes.resize(begin + HEADROOM, 0);
                self.bytes.reserve(zstd::zstd_safe::compress_bound(page.len()));
                let mut into = Cursor::new(&mut self.bytes);
                into.set_position((begin + HEADROOM) as u64);
                let stored = compressor.compress_to_buffer(page, &mut into)?;
                let page_bytes = page.len();
                let header = header(page_bytes, stored, counts.levels, encoding)?;
                self.values.clear();
                self.values.shrink_to(KEPT_VALUES);
                self.long = Bytes::new();
                self.streams.clear();
                self.streams.shrink_to(KEPT_VALUES);
                self.head.clone_from(&header);
                (page_bytes, header)
            }
        };
        let page = place_before(&mut self.bytes, begin, &self.head)..self.bytes.len();
        self.index.append_row_count(counts.rows as i64);
        self.index.append_unencoded_byte_array_data_bytes(counts.variable_bytes);
        self.index.append_offset_and_size(self.sizes.stored as i64, number(page.len())?);
        self.sizes.stored += page.len() as u64;
        self.sizes.plain += (header.len() + page_bytes) as u64;
        self.sizes.rows += counts.rows as u64;
        self.sizes.levels += counts.levels as u64;
        self.sizes.pages += 1;
        self.page_ranges.push(page);
        Ok(())
    }

    /// Returns the totals and the index of the pages, with offsets relative to the first page, and resets both.
    pub(super) fn describe(&mut self) -> (Sizes, OffsetIndexMetaData) {
        let index = std::mem::replace(&mut self.index, OffsetIndexBuilder::new());
        (std::mem::take(&mut self.sizes), index.build())
    }

    /// Starts the next chunk.
    pub(super) fn clear(&mut self) {
        self.page_ranges.clear();
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_PAGES);
    }
}

/// Reads the finished pages as contiguous bytes.
impl<'a> ChunkReader for &'a Pages {
    type T = PagesReader<'a>;

    fn get_read(&self, start: u64) -> Result<PagesReader<'a>> {
        let page_ranges = self.page_ranges.iter();
        let mut reader = PagesReader { bytes: &self.bytes, rest: &[], page_ranges };
        io::copy(&mut (&mut reader).take(start), &mut io::sink())?;
        Ok(reader)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let mut bytes = Vec::new();
        self.get_read(start)?.take(length as u64).read_to_end(&mut bytes)?;
        Ok(bytes.into())
    }
}

impl Length for &Pages {
    fn len(&self) -> u64 {
        self.page_ranges.iter().map(|page| page.len() as u64).sum()
    }
}

/// Reader of concatenated pages.
pub(super) struct PagesReader<'a> {
    bytes: &'a [u8],
    rest: &'a [u8],
    page_ranges: std::slice::Iter<'a, Range<usize>>,
}

impl Read for PagesReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            match self.page_ranges.next() {
                Some(page) => self.rest = &self.bytes[page.clone()],
                None => return Ok(0),
            }
        }
        self.rest.read(into)
    }
}

/// Copies `head` to the end of the reserved space at `begin`, directly before the values, and returns where it starts.
fn place_before(buffer: &mut Vec<u8>, begin: usize, head: &[u8]) -> usize {
    if let Some(missing) = head.len().checked_sub(HEADROOM) {
        buffer.splice(begin..begin, std::iter::repeat_n(0, missing));
    }
    let end = begin + head.len().max(HEADROOM);
    let at = end - head.len();
    buffer[at..end].copy_from_slice(head);
    at
}

/// Appends the numbers in `values`, given as `WIDTH` bytes each, as byte streams ([`Pages::item_bytes`]).
///
/// The last streams are zero, and so are others if all numbers are small. In a large new buffer, zeros are not written:
/// pages of an allocation that are never written take no memory.
fn push_streams<const WIDTH: usize>(
    values: [&[u8]; 2],
    number: impl Fn([u8; WIDTH]) -> u32,
    out: &mut Vec<u8>,
) {
    let values = values.map(|values| values.as_chunks::<WIDTH>().0);
    let count: usize = values.iter().map(|values| values.len()).sum();
    let size = out.len() + size_of::<u32>() * count;
    if size <= KEPT_VALUES {
        out.reserve(size - out.len());
        for n in 0..WIDTH {
            for values in values {
                // Converting to numbers lets the compiler vectorize this.
                out.extend(values.iter().map(|value| (number(*value) >> (8 * n)) as u8));
            }
        }
        out.resize(size, 0);
        return;
    }
    let mut zeroed = vec![0; size];
    let (head, mut streams) = zeroed.split_at_mut(out.len());
    head.copy_from_slice(out);
    for n in 0..WIDTH {
        for values in values {
            let stream;
            (stream, streams) = streams.split_at_mut(values.len());
            for (stream, values) in stream.chunks_mut(STREAM_CHUNK).zip(values.chunks(STREAM_CHUNK)) {
                let mut chunk = [0; STREAM_CHUNK];
                let mut any = 0;
                for (to, value) in chunk.iter_mut().zip(values) {
                    *to = (number(*value) >> (8 * n)) as u8;
                    any |= *to;
                }
                if any != 0 {
                    stream.copy_from_slice(&chunk[..stream.len()]);
                }
            }
        }
    }
    *out = zeroed;
}

/// Builds the header of a version 1 data page.
fn header(page_bytes: usize, stored: usize, levels: usize, encoding: Encoding) -> Result<Vec<u8>> {
    const DATA_PAGE: i32 = 0;
    const RLE: i32 = 3;
    /// Struct whose field number is the previous one plus two.
    const STRUCTURE_AFTER_NEXT: u8 = 0x2c;
    const END: u8 = 0;
    let mut header = Vec::with_capacity(32);
    let (sizes, counts) =
        ([DATA_PAGE, number(page_bytes)?, number(stored)?], [number(levels)?, encoding as i32, RLE, RLE]);
    sizes.into_iter().for_each(|value| push_field(&mut header, value));
    header.push(STRUCTURE_AFTER_NEXT);
    counts.into_iter().for_each(|value| push_field(&mut header, value));
    header.extend([END, END]);
    Ok(header)
}

/// Appends a 32-bit field whose number is the previous one plus one. `value` must not be negative.
fn push_field(header: &mut Vec<u8>, value: i32) {
    const NEXT_I32: u8 = 0x15;
    header.push(NEXT_I32);
    let mut zigzag = value.cast_unsigned() << 1;
    while zigzag >= 0x80 {
        header.push(zigzag as u8 | 0x80);
        zigzag >>= 7;
    }
    header.push(zigzag as u8);
}

fn number(count: usize) -> Result<i32> {
    let too_large = |_| ParquetError::General(format!("a page of {count} bytes or values is too large"));
    i32::try_from(count).map_err(too_large)
}
