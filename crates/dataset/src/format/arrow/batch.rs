//! Record batches of an Arrow shard: the locations of their buffers, and access to single rows.

use std::sync::Arc;

use arrow_ipc::{Buffer, FieldNode, MessageHeader, RecordBatch, root_as_message_with_opts};
use bytes::Bytes;

use crate::arrow_footer::flatbuffer_limits;
use crate::error::{Error, Result};
use crate::format::check;
use crate::sample::{ArrayValue, Ids, Record, Text, Value};
use crate::schema::{ArrayLayout, ArrayType, Field, FieldType, Schema};
use crate::storage::Blob;

/// Marker before the size of a message, since version 0.15 of the format.
const CONTINUATION: [u8; 4] = [0xff; 4];

/// Buffers of a batch. Each was checked to be long enough and to lie within the batch body.
pub(super) struct ArrowBatch {
    pub(super) rows: u64,
    columns: Vec<ArrowColumn>,
    /// Schema of the shard, for field types and error messages.
    schema: Arc<Schema>,
}

/// Byte range within the body.
#[derive(Debug, Clone, Copy)]
struct Range {
    at: u64,
    len: u64,
}

/// Validity and values of one column.
struct ArrowColumn {
    /// One validity bit per row; `None` if no row is null.
    valid: Option<Range>,
    values: Values,
}

/// Buffers with the values of one column.
enum Values {
    /// One bit per value.
    Bits(Range),
    /// Fixed-size values, with the bytes per value.
    Fixed(Range, u64),
    /// Variable-size values between 32-bit offsets, which count items of `item_bytes` bytes each.
    Slices { offsets: Range, data: Range, item_bytes: u64 },
    /// Arrays.
    Arrays(Arrays),
    /// Lists of texts or files: 64-bit offsets of the lists, which count items, and 32-bit offsets of the items, which count
    /// bytes.
    Items { lists: Range, count: u64, items: Range, data: Range },
}

/// Buffers with arrays.
struct Arrays {
    layout: ArrayLayout,
    data: Range,
    /// Bytes of an array with fixed axes, of a row of an array of rows, or of a number.
    item_bytes: u64,
    /// 64-bit offsets, which count items, unless all axes are fixed.
    offsets: Option<Range>,
    /// Size of each axis of each array in 32 bits, if the layout has shapes.
    shapes: Option<Range>,
}

impl ArrowBatch {
    /// Parses the header of a batch whose body has `body_bytes` bytes. The error is one sentence.
    pub(super) fn parse(schema: &Arc<Schema>, header: &Bytes, body_bytes: u64) -> Result<Self, String> {
        let (mark, rest) = header.split_first_chunk::<4>().ok_or("the record batch has no header")?;
        let (size, rest) = rest.split_first_chunk::<4>().ok_or("the record batch has no header")?;
        let size = usize::try_from(u32::from_le_bytes(*size))
            .map_err(|_| "the header of the record batch is too long")?;
        let message = rest
            .get(..size)
            .filter(|_| *mark == CONTINUATION)
            .ok_or("the header of the record batch is damaged")?;
        let message = root_as_message_with_opts(&flatbuffer_limits(message), message)
            .map_err(|e| format!("the header of the record batch is damaged: {e}"))?;
        if message.header_type() != MessageHeader::RecordBatch {
            return Err("the message is not a record batch".to_owned());
        }
        let batch = message.header_as_record_batch().ok_or("the record batch has no header")?;
        if batch.compression().is_some() {
            return Err("the record batch is compressed, which dsconvert never writes".to_owned());
        }
        let mut parts = Parts::new(batch, body_bytes)?;
        let rows = parts.rows;
        let mut columns = Vec::with_capacity(schema.fields.len());
        for field in &schema.fields {
            columns.push(
                parts.column(field).ok_or_else(|| {
                    format!("the buffers of column {:?} do not match {rows} rows", field.name)
                })?,
            );
        }
        parts.end().ok_or("the record batch has more buffers than its columns need")?;
        Ok(Self { rows, columns, schema: schema.clone() })
    }

    /// Returns the value in `row` of the field with schema index `index`, or null if there is no such field. `row` must
    /// be less than the number of rows. The body starts at `base` in `blob`; `read` returns bytes given an offset in
    /// `blob` and a length.
    pub(super) fn value<B: AsRef<[u8]>>(
        &self,
        blob: &Blob,
        base: u64,
        row: u64,
        index: usize,
        read: impl Fn(u64, u64) -> Result<B>,
    ) -> Result<Value<B>> {
        let (Some(field), Some(column)) = (self.schema.fields.get(index), self.columns.get(index)) else {
            return Ok(Value::Null);
        };
        let body = Body { blob, base, read };
        let value = body.value(field.ty, column, row)?;
        check::value(&self.schema, field, &value)
            .map_err(|why| body.corrupt(column.values.range().at, why))?;
        Ok(value)
    }

    /// Returns the record in `row` as views of `blob`.
    pub(super) fn record(&self, blob: &Blob, base: u64, row: u64) -> Result<Record> {
        let value = |index| self.value(blob, base, row, index, |at, len| blob.read(at, len));
        Ok(Record { values: (0..self.columns.len()).map(value).collect::<Result<_>>()? })
    }
}

impl Values {
    fn range(&self) -> Range {
        match self {
            Values::Bits(range) | Values::Fixed(range, _) => *range,
            Values::Slices { data, .. }
            | Values::Arrays(Arrays { data, .. })
            | Values::Items { data, .. } => *data,
        }
    }
}

/// Nodes and buffers of a header, consumed in column order.
struct Parts {
    rows: u64,
    nodes: std::vec::IntoIter<FieldNode>,
    buffers: std::vec::IntoIter<Range>,
}

impl Parts {
    fn new(batch: RecordBatch<'_>, body_bytes: u64) -> Result<Self, String> {
        let rows =
            u64::try_from(batch.length()).map_err(|_| "the record batch has a negative number of rows")?;
        let inside = |b: &Buffer| {
            let range = Range { at: u64::try_from(b.offset()).ok()?, len: u64::try_from(b.length()).ok()? };
            range.at.checked_add(range.len).filter(|&end| end <= body_bytes)?;
            Some(range)
        };
        let buffers = batch.buffers().into_iter().flatten().map(inside).collect::<Option<Vec<_>>>();
        let buffers = buffers.ok_or("a buffer lies outside the body of the record batch")?;
        let nodes: Vec<FieldNode> = batch.nodes().into_iter().flatten().copied().collect();
        Ok(Self { rows, nodes: nodes.into_iter(), buffers: buffers.into_iter() })
    }

    /// Takes the next column, or returns `None` if it is missing or too short.
    fn column(&mut self, field: &Field) -> Option<ArrowColumn> {
        let rows = self.rows;
        let valid = self.valid(rows)?;
        let values = match field.ty {
            FieldType::Bool => Values::Bits(self.buffer(rows.div_ceil(8))?),
            FieldType::Int32 | FieldType::UInt32 | FieldType::Float32 => {
                Values::Fixed(self.items(rows, 4)?, 4)
            }
            FieldType::Int64 | FieldType::Label | FieldType::UInt64 | FieldType::Float64 => {
                Values::Fixed(self.items(rows, 8)?, 8)
            }
            FieldType::String | FieldType::Json | FieldType::Binary => self.slices(rows)?,
            FieldType::Image | FieldType::Mask => {
                // The children are null exactly where the image is, so the validity bits of the image suffice.
                self.valid(rows)?;
                let values = self.slices(rows)?;
                self.valid(rows)?;
                self.slices(rows)?;
                values
            }
            FieldType::Array(array) => Values::Arrays(self.arrays(rows, array)?),
            FieldType::Texts => {
                let lists = self.offsets_of(rows, 8)?;
                let count = self.peek_length()?;
                // Texts are never null.
                self.valid(count)?.is_none().then_some(())?;
                Values::Items { lists, count, items: self.offsets(count)?, data: self.buffer(0)? }
            }
            FieldType::Images => {
                let lists = self.offsets_of(rows, 8)?;
                let count = self.peek_length()?;
                // Neither images nor their bytes are null.
                self.valid(count)?.is_none().then_some(())?;
                self.valid(count)?.is_none().then_some(())?;
                let (items, data) = (self.offsets(count)?, self.buffer(0)?);
                self.valid(count)?;
                self.slices(count)?;
                Values::Items { lists, count, items, data }
            }
            // The remaining types are lists.
            list => {
                let of = list.list_items()?;
                let item_bytes = of.bytes() as u64;
                let offsets = self.offsets(rows)?;
                let items = self.peek_length()?;
                // Items are never null.
                self.valid(items)?.is_none().then_some(())?;
                if let Some(columns) = of.columns {
                    let numbers = items.checked_mul(columns as u64)?;
                    self.valid(numbers)?.is_none().then_some(())?;
                }
                let data = self.items(items, item_bytes)?;
                Values::Slices { offsets, data: Range { len: items * item_bytes, ..data }, item_bytes }
            }
        };
        Some(ArrowColumn { valid, values })
    }

    /// Takes the buffers of arrays.
    fn arrays(&mut self, rows: u64, ty: ArrayType) -> Option<Arrays> {
        let layout = ty.layout();
        let width = ty.dtype().bytes() as u64;
        let (mut offsets, mut shapes) = (None, None);
        let (data, item_bytes) = match &layout {
            ArrayLayout::Fixed(sizes) => self.fixed(rows, sizes, width)?,
            ArrayLayout::Rows(sizes) => {
                offsets = Some(self.offsets_of(rows, 8)?);
                let count = self.peek_length()?;
                // Items are never null.
                self.valid(count)?.is_none().then_some(())?;
                self.fixed(count, sizes, width)?
            }
            ArrayLayout::Shaped(rank) => {
                self.valid(rows)?.is_none().then_some(())?;
                offsets = Some(self.offsets_of(rows, 8)?);
                let count = self.peek_length()?;
                self.valid(count)?.is_none().then_some(())?;
                let data = self.fixed(count, &[], width)?;
                self.valid(rows)?.is_none().then_some(())?;
                shapes = Some(self.fixed(rows, &[*rank], 4)?.0);
                data
            }
        };
        Some(Arrays { layout, data, item_bytes, offsets, shapes })
    }

    /// Takes the lists of fixed `sizes` in `count` items, whose node was taken: their nodes, and the buffer with numbers of
    /// `width` bytes. Returns its range and the bytes of an item.
    fn fixed(&mut self, count: u64, sizes: &[usize], width: u64) -> Option<(Range, u64)> {
        let (mut numbers, mut bytes) = (count, width);
        for &size in sizes {
            numbers = numbers.checked_mul(size as u64)?;
            bytes = bytes.checked_mul(size as u64)?;
            self.valid(numbers)?.is_none().then_some(())?;
        }
        let data = self.items(numbers, width)?;
        Some((Range { len: numbers * width, ..data }, bytes))
    }

    /// Takes the next node, which must have `rows` rows, and returns its validity bits if any row is null.
    #[allow(clippy::option_option)]
    fn valid(&mut self, rows: u64) -> Option<Option<Range>> {
        let node = self.nodes.next()?;
        (u64::try_from(node.length()).ok()? == rows).then_some(())?;
        let bits = self.buffers.next()?;
        if node.null_count() == 0 {
            return Some(None);
        }
        (bits.len >= rows.div_ceil(8)).then_some(Some(bits))
    }

    /// Returns the length of the next node without taking it.
    fn peek_length(&self) -> Option<u64> {
        u64::try_from(self.nodes.as_slice().first()?.length()).ok()
    }

    /// Takes the next buffer, which must have at least `len` bytes.
    fn buffer(&mut self, len: u64) -> Option<Range> {
        self.buffers.next().filter(|b| b.len >= len)
    }

    fn items(&mut self, items: u64, item_bytes: u64) -> Option<Range> {
        self.buffer(items.checked_mul(item_bytes)?)
    }

    fn offsets(&mut self, rows: u64) -> Option<Range> {
        self.offsets_of(rows, 4)
    }

    fn offsets_of(&mut self, rows: u64, width: u64) -> Option<Range> {
        // The format allows empty offsets if there are no rows.
        self.buffer(if rows == 0 { 0 } else { rows.checked_add(1)?.checked_mul(width)? })
    }

    fn slices(&mut self, rows: u64) -> Option<Values> {
        Some(Values::Slices { offsets: self.offsets(rows)?, data: self.buffer(0)?, item_bytes: 1 })
    }

    fn end(&mut self) -> Option<()> {
        (self.nodes.next().is_none() && self.buffers.next().is_none()).then_some(())
    }
}

/// Access to the bytes of a batch.
struct Body<'a, R> {
    blob: &'a Blob,
    base: u64,
    /// Reads bytes given an offset in the blob and a length.
    read: R,
}

impl<B: AsRef<[u8]>, R: Fn(u64, u64) -> Result<B>> Body<'_, R> {
    fn value(&self, ty: FieldType, column: &ArrowColumn, row: u64) -> Result<Value<B>> {
        if let Some(bits) = column.valid
            && !self.bit(bits, row)?
        {
            return Ok(Value::Null);
        }
        Ok(match (&column.values, ty) {
            (Values::Bits(bits), _) => Value::Bool(self.bit(*bits, row)?),
            (Values::Fixed(range, 4), _) => {
                let bytes = self.array::<4>(range.at + row * 4)?;
                match ty {
                    FieldType::Int32 => Value::Int(i32::from_le_bytes(bytes).into()),
                    FieldType::UInt32 => Value::UInt(u32::from_le_bytes(bytes).into()),
                    _ => Value::Float(f32::from_le_bytes(bytes).into()),
                }
            }
            (Values::Fixed(range, _), _) => {
                let bytes = self.array::<8>(range.at + row * 8)?;
                match ty {
                    FieldType::Int64 | FieldType::Label => Value::Int(i64::from_le_bytes(bytes)),
                    FieldType::UInt64 => Value::UInt(u64::from_le_bytes(bytes)),
                    _ => Value::Float(f64::from_le_bytes(bytes)),
                }
            }
            (&Values::Items { lists, count, items, data }, FieldType::Images) => {
                let (begin, end) = self.ends(lists, row, count)?;
                Value::Files((begin..end).map(|at| self.slice(items, data, 1, at)).collect::<Result<_>>()?)
            }
            (&Values::Items { lists, count, items, data }, _) => {
                let (begin, end) = self.ends(lists, row, count)?;
                let text = |at| {
                    let bytes = self.slice(items, data, 1, at)?;
                    Text::new(bytes).map_err(|_| self.corrupt(data.at, "the text is not UTF-8"))
                };
                Value::Texts((begin..end).map(text).collect::<Result<_>>()?)
            }
            (Values::Arrays(arrays), _) => Value::Array(self.array_value(arrays, row)?),
            (&Values::Slices { offsets, data, item_bytes }, _) => {
                let bytes = self.slice(offsets, data, item_bytes, row)?;
                match (ty, ty.id_width()) {
                    (FieldType::String | FieldType::Json, _) => Value::Text(
                        Text::new(bytes).map_err(|_| self.corrupt(data.at, "the text is not UTF-8"))?,
                    ),
                    (_, Some(width)) => {
                        let partial = || self.corrupt(data.at, "the id list ends in the middle of an id");
                        Value::Ids(Ids::new(width, bytes).ok_or_else(partial)?)
                    }
                    _ => Value::Bytes(bytes),
                }
            }
        })
    }

    fn array_value(&self, arrays: &Arrays, row: u64) -> Result<ArrayValue<B>> {
        let Arrays { data, item_bytes, offsets, shapes, .. } = *arrays;
        let (begin, count) = match offsets {
            None => (row, 1),
            Some(offsets) => {
                let (begin, end) = self.ends(offsets, row, data.len / item_bytes.max(1))?;
                (begin, end - begin)
            }
        };
        let bytes = (self.read)(self.base + data.at + begin * item_bytes, count * item_bytes)?;
        let sizes = |sizes: &[usize]| sizes.iter().map(|&size| size as u32).collect::<Vec<u32>>();
        let shape = match (&arrays.layout, shapes) {
            (ArrayLayout::Shaped(rank), Some(shapes)) => {
                let rank = *rank as u64;
                let size = |axis| Ok(u32::from_le_bytes(self.array(shapes.at + (row * rank + axis) * 4)?));
                (0..rank).map(size).collect::<Result<_>>()?
            }
            // A record has less than 2³¹ items.
            (ArrayLayout::Rows(of), _) => {
                [vec![u32::try_from(count).unwrap_or(u32::MAX)], sizes(of)].concat()
            }
            (ArrayLayout::Fixed(of), _) => sizes(of),
            _ => Vec::new(),
        };
        Ok(ArrayValue::new(shape, bytes))
    }

    /// Returns the 64-bit offsets of `row`, which are ascending and at most `count`.
    fn ends(&self, offsets: Range, row: u64, count: u64) -> Result<(u64, u64)> {
        let at = offsets.at + row * 8;
        let ends: [[u8; 8]; 2] = [self.array(at)?, self.array(at + 8)?];
        let [begin, end] = ends.map(u64::from_le_bytes);
        match begin <= end && end <= count {
            true => Ok((begin, end)),
            false => Err(self.corrupt(at, "a list offset is out of range")),
        }
    }

    /// Returns the bytes between the offsets of `row`. Inline, because it is called for most values of each record.
    #[inline]
    fn slice(&self, offsets: Range, data: Range, item_bytes: u64, row: u64) -> Result<B> {
        let at = offsets.at + row * 4;
        let [a, b, c, d, e, f, g, h] = self.array::<8>(at)?;
        let begin = u64::from(u32::from_le_bytes([a, b, c, d])) * item_bytes;
        let end = u64::from(u32::from_le_bytes([e, f, g, h])) * item_bytes;
        if begin > end || end > data.len {
            return Err(self.corrupt(at, "a value offset is out of range"));
        }
        (self.read)(self.base + data.at + begin, end - begin)
    }

    fn bit(&self, bits: Range, row: u64) -> Result<bool> {
        let [byte] = self.array::<1>(bits.at + row / 8)?;
        Ok(byte >> (row % 8) & 1 == 1)
    }

    fn array<const N: usize>(&self, at: u64) -> Result<[u8; N]> {
        self.blob.array(self.base + at)
    }

    fn corrupt(&self, at: u64, why: impl Into<String>) -> Error {
        Error::corrupt(why).at_path(self.blob.path()).at_offset(self.base + at)
    }
}
