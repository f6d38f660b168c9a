//! Conversion of records to Arrow columns, shared by the Arrow and Parquet writers.
//!
//! The Parquet writer excludes the columns that it encodes itself.

use std::sync::Arc;

use arrow_array::builder::{
    ArrayBuilder as _, BinaryBuilder, BooleanBuilder, Float32Builder, Float64Builder, Int32Builder,
    Int64Builder, StringBuilder, UInt32Builder, UInt64Builder,
};
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, LargeListArray, ListArray, RecordBatch, RecordBatchOptions,
    StringArray, StructArray, make_array,
};
use arrow_buffer::{Buffer, MutableBuffer, NullBuffer, NullBufferBuilder, OffsetBuffer};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType, SchemaRef};

use super::arrow_schema::{data_type, image_fields, item, number_type, shaped_fields, to_arrow};
use crate::error::{Error, Result};
use crate::sample::{ArrayValue, Record, Value};
use crate::schema::{ArrayLayout, ArrayType, Field, FieldType, Schema};

/// Buffered rows, column by column.
///
/// The caller limits their size: offsets are 32-bit, so it must call [`ColumnBuilders::take`] before 2 GiB are
/// buffered.
pub(super) struct ColumnBuilders {
    /// Schema of the batches.
    pub(super) arrow: SchemaRef,
    /// Columns with the index of their field in the schema.
    columns: Vec<(usize, ColumnBuilder)>,
    /// Number of buffered rows.
    pub(super) rows: usize,
    /// Canonical size of the buffered rows in bytes.
    pub(super) bytes: u64,
}

impl ColumnBuilders {
    /// Creates empty builders for the fields selected by `include`.
    pub(super) fn new(schema: &Schema, include: impl Fn(&Field) -> bool) -> Result<Self> {
        let fields = schema.fields.iter().enumerate().filter(|(_, field)| include(field));
        let columns: Vec<_> = fields.map(|(index, field)| (index, ColumnBuilder::new(field))).collect();
        let indices: Vec<usize> = columns.iter().map(|(index, _)| *index).collect();
        let arrow = to_arrow(schema)?.project(&indices).map_err(internal)?;
        Ok(Self { arrow: Arc::new(arrow), columns, rows: 0, bytes: 0 })
    }

    /// Appends `record`, which fits the schema and has a canonical size of `bytes`.
    pub(super) fn push(&mut self, record: &Record, bytes: u64) -> Result<()> {
        for (index, column) in &mut self.columns {
            column.push(record.values.get(*index).unwrap_or(&Value::Null))?;
        }
        self.rows += 1;
        self.bytes += bytes;
        Ok(())
    }

    /// Returns the buffered rows as one batch and clears the buffer.
    pub(super) fn take(&mut self) -> Result<RecordBatch> {
        let arrays = self.columns.iter_mut().map(|(_, column)| column.take()).collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        self.rows = 0;
        self.bytes = 0;
        RecordBatch::try_new_with_options(self.arrow.clone(), arrays, &options).map_err(internal)
    }
}

/// Builder of one column.
enum ColumnBuilder {
    Text(StringBuilder),
    Bytes(BinaryBuilder),
    Image(BinaryBuilder),
    Bool(BooleanBuilder),
    Int32(Int32Builder),
    Int64(Int64Builder),
    UInt32(UInt32Builder),
    UInt64(UInt64Builder),
    Float32(Float32Builder),
    Float64(Float64Builder),
    List(ListBuilder),
    Array(ArrayBuilder),
    Texts(ItemsBuilder<StringBuilder>),
    Files(ItemsBuilder<BinaryBuilder>),
}

impl ColumnBuilder {
    fn new(field: &Field) -> Self {
        match field.ty {
            FieldType::String | FieldType::Json => ColumnBuilder::Text(StringBuilder::new()),
            FieldType::Binary => ColumnBuilder::Bytes(BinaryBuilder::new()),
            FieldType::Image | FieldType::Mask => ColumnBuilder::Image(BinaryBuilder::new()),
            FieldType::Bool => ColumnBuilder::Bool(BooleanBuilder::new()),
            FieldType::Int32 => ColumnBuilder::Int32(Int32Builder::new()),
            FieldType::Int64 | FieldType::Label => ColumnBuilder::Int64(Int64Builder::new()),
            FieldType::UInt32 => ColumnBuilder::UInt32(UInt32Builder::new()),
            FieldType::UInt64 => ColumnBuilder::UInt64(UInt64Builder::new()),
            FieldType::Float32 => ColumnBuilder::Float32(Float32Builder::new()),
            FieldType::Float64 => ColumnBuilder::Float64(Float64Builder::new()),
            FieldType::Texts => ColumnBuilder::Texts(ItemsBuilder::new(StringBuilder::new())),
            FieldType::Images => ColumnBuilder::Files(ItemsBuilder::new(BinaryBuilder::new())),
            FieldType::Array(array) => ColumnBuilder::Array(ArrayBuilder::new(array)),
            // The remaining types are lists.
            list => ColumnBuilder::List(ListBuilder::new(list)),
        }
    }

    fn push(&mut self, value: &Value) -> Result<()> {
        match (self, value) {
            (ColumnBuilder::Text(b), Value::Text(t)) => b.append_value(t.as_str()),
            (ColumnBuilder::Text(b), Value::Null) => b.append_null(),
            (ColumnBuilder::Bytes(b) | ColumnBuilder::Image(b), Value::Bytes(v)) => b.append_value(v),
            (ColumnBuilder::Bytes(b) | ColumnBuilder::Image(b), Value::Null) => b.append_null(),
            (ColumnBuilder::Bool(b), Value::Bool(v)) => b.append_value(*v),
            (ColumnBuilder::Bool(b), Value::Null) => b.append_null(),
            // The ranges were checked, so these casts are lossless.
            (ColumnBuilder::Int32(b), Value::Int(v)) => b.append_value(*v as i32),
            (ColumnBuilder::Int32(b), Value::Null) => b.append_null(),
            (ColumnBuilder::Int64(b), Value::Int(v)) => b.append_value(*v),
            (ColumnBuilder::Int64(b), Value::Null) => b.append_null(),
            (ColumnBuilder::UInt32(b), Value::UInt(v)) => b.append_value(*v as u32),
            (ColumnBuilder::UInt32(b), Value::Null) => b.append_null(),
            (ColumnBuilder::UInt64(b), Value::UInt(v)) => b.append_value(*v),
            (ColumnBuilder::UInt64(b), Value::Null) => b.append_null(),
            (ColumnBuilder::Float32(b), Value::Float(v)) => b.append_value(*v as f32),
            (ColumnBuilder::Float32(b), Value::Null) => b.append_null(),
            (ColumnBuilder::Float64(b), Value::Float(v)) => b.append_value(*v),
            (ColumnBuilder::Float64(b), Value::Null) => b.append_null(),
            (ColumnBuilder::List(l), Value::Ids(ids)) => l.push(ids.as_bytes()),
            (ColumnBuilder::List(l), Value::Bytes(items)) => l.push(items),
            (ColumnBuilder::List(l), Value::Null) => l.end_row(false),
            (ColumnBuilder::Array(b), Value::Array(array)) => b.push(Some(array)),
            (ColumnBuilder::Array(b), Value::Null) => b.push(None),
            (ColumnBuilder::Texts(b), Value::Texts(texts)) => {
                texts.iter().for_each(|text| b.items.append_value(text.as_str()));
                b.end_row(true, b.items.len());
            }
            (ColumnBuilder::Texts(b), Value::Null) => b.end_row(false, b.items.len()),
            (ColumnBuilder::Files(b), Value::Files(files)) => {
                files.iter().for_each(|file| b.items.append_value(file));
                b.end_row(true, b.items.len());
            }
            (ColumnBuilder::Files(b), Value::Null) => b.end_row(false, b.items.len()),
            _ => return Err(Error::internal("a value does not fit its column")),
        }
        Ok(())
    }

    fn take(&mut self) -> Result<ArrayRef> {
        Ok(match self {
            ColumnBuilder::Text(b) => Arc::new(b.finish()),
            ColumnBuilder::Bytes(b) => Arc::new(b.finish()),
            ColumnBuilder::Image(b) => images(b.finish())?,
            ColumnBuilder::Bool(b) => Arc::new(b.finish()),
            ColumnBuilder::Int32(b) => Arc::new(b.finish()),
            ColumnBuilder::Int64(b) => Arc::new(b.finish()),
            ColumnBuilder::UInt32(b) => Arc::new(b.finish()),
            ColumnBuilder::UInt64(b) => Arc::new(b.finish()),
            ColumnBuilder::Float32(b) => Arc::new(b.finish()),
            ColumnBuilder::Float64(b) => Arc::new(b.finish()),
            ColumnBuilder::List(l) => l.finish()?,
            ColumnBuilder::Array(b) => b.finish()?,
            ColumnBuilder::Texts(b) => {
                let items = Arc::new(b.items.finish());
                b.list(DataType::Utf8, items)?
            }
            ColumnBuilder::Files(b) => {
                let items = images(b.items.finish())?;
                b.list(DataType::Struct(image_fields()), items)?
            }
        })
    }
}

/// Builder of a list column. Unlike the arrow-rs builder, it appends whole lists, whose items are stored as in records.
struct ListBuilder {
    ty: FieldType,
    items: MutableBuffer,
    offsets: Vec<i32>,
    valid: NullBufferBuilder,
}

impl ListBuilder {
    fn new(ty: FieldType) -> Self {
        Self { ty, items: MutableBuffer::new(0), offsets: vec![0], valid: NullBufferBuilder::new(0) }
    }

    fn push(&mut self, items: &[u8]) {
        self.items.extend_from_slice(items);
        self.end_row(true);
    }

    fn end_row(&mut self, valid: bool) {
        self.valid.append(valid);
        // The caller limits the buffered bytes, so the number of items fits.
        let items = self.items.len() / self.ty.item_bytes().unwrap_or(1);
        self.offsets.push(items as i32);
    }

    fn finish(&mut self) -> Result<ArrayRef> {
        let DataType::List(item) = data_type(self.ty) else {
            return Err(Error::internal("not a list column"));
        };
        let offsets = OffsetBuffer::new(std::mem::replace(&mut self.offsets, vec![0]).into());
        let list = array(item.data_type(), &std::mem::take(&mut self.items).into())
            .and_then(|items| ListArray::try_new(item, offsets, items, self.valid.finish()));
        Ok(Arc::new(list.map_err(internal)?))
    }
}

/// Returns a column of images with these bytes.
fn images(bytes: arrow_array::BinaryArray) -> Result<ArrayRef> {
    let path = StringArray::new_null(bytes.len());
    let nulls = bytes.nulls().cloned();
    let children: Vec<ArrayRef> = vec![Arc::new(bytes), Arc::new(path)];
    Ok(Arc::new(StructArray::try_new(image_fields(), children, nulls).map_err(internal)?))
}

/// Builder of a column of lists of texts or files.
struct ItemsBuilder<B> {
    items: B,
    /// End of each list in items.
    offsets: Vec<i64>,
    valid: NullBufferBuilder,
}

impl<B> ItemsBuilder<B> {
    fn new(items: B) -> Self {
        Self { items, offsets: vec![0], valid: NullBufferBuilder::new(0) }
    }

    /// Ends a row, after which there are `items` items.
    fn end_row(&mut self, valid: bool, items: usize) {
        self.valid.append(valid);
        self.offsets.push(items as i64);
    }

    /// Returns the column with `items` of type `ty`.
    fn list(&mut self, ty: DataType, items: ArrayRef) -> Result<ArrayRef> {
        let offsets = OffsetBuffer::new(std::mem::replace(&mut self.offsets, vec![0]).into());
        let list = LargeListArray::try_new(item(ty), offsets, items, self.valid.finish());
        Ok(Arc::new(list.map_err(internal)?))
    }
}

/// Builder of a column of arrays.
struct ArrayBuilder {
    ty: ArrayType,
    layout: ArrayLayout,
    /// Numbers of all arrays. With fixed axes, a null has numbers, too.
    numbers: MutableBuffer,
    /// End of each array in numbers, or in rows of numbers.
    offsets: Vec<i64>,
    /// Size of each axis of each array, if the layout has shapes.
    shapes: Vec<i32>,
    valid: NullBufferBuilder,
}

impl ArrayBuilder {
    fn new(ty: ArrayType) -> Self {
        let (numbers, valid) = (MutableBuffer::new(0), NullBufferBuilder::new(0));
        Self { ty, layout: ty.layout(), numbers, offsets: vec![0], shapes: Vec::new(), valid }
    }

    fn push(&mut self, array: Option<&ArrayValue>) {
        self.valid.append(array.is_some());
        let width = self.ty.dtype().bytes();
        if let Some(array) = array {
            self.numbers.extend_from_slice(array.as_bytes());
        }
        match &self.layout {
            ArrayLayout::Fixed(sizes) if array.is_none() => {
                let row = sizes.iter().product::<usize>() * width;
                self.numbers.resize(self.numbers.len() + row, 0);
            }
            ArrayLayout::Fixed(_) => {}
            ArrayLayout::Rows(sizes) => {
                let row = sizes.iter().product::<usize>() * width;
                self.offsets.push((self.numbers.len() / row) as i64);
            }
            ArrayLayout::Shaped(rank) => {
                self.offsets.push((self.numbers.len() / width) as i64);
                // Sizes were checked to have less than 32 bits.
                let sizes = array.map(|array| array.shape().iter().map(|&size| size as i32));
                self.shapes.extend(sizes.into_iter().flatten());
                self.shapes.resize(self.offsets.len().saturating_sub(1) * rank, 0);
            }
        }
    }

    fn finish(&mut self) -> Result<ArrayRef> {
        let offsets = OffsetBuffer::new(std::mem::replace(&mut self.offsets, vec![0]).into());
        let numbers: Buffer = std::mem::take(&mut self.numbers).into();
        let valid = self.valid.finish();
        let number = number_type(self.ty.dtype());
        let column: Result<ArrayRef, ArrowError> = match &self.layout {
            ArrayLayout::Fixed(sizes) => nested(&number, sizes, &numbers, valid),
            ArrayLayout::Rows(sizes) => nested(&number, sizes, &numbers, None).and_then(|rows| {
                let list = LargeListArray::try_new(item(rows.data_type().clone()), offsets, rows, valid)?;
                Ok(Arc::new(list) as ArrayRef)
            }),
            ArrayLayout::Shaped(rank) => {
                let shapes =
                    std::mem::take(&mut self.shapes).into_iter().flat_map(i32::to_le_bytes).collect();
                nested(&DataType::Int32, &[*rank], &shapes, None).and_then(|shapes| {
                    let data = array(&number, &numbers)?;
                    let data = LargeListArray::try_new(item(number), offsets, data, None)?;
                    let fields = shaped_fields(self.ty.dtype(), *rank);
                    let children: Vec<ArrayRef> = vec![Arc::new(data), shapes];
                    Ok(Arc::new(StructArray::try_new(fields, children, valid)?) as ArrayRef)
                })
            }
        };
        column.map_err(internal)
    }
}

/// Returns nested lists of the fixed `sizes`, the outermost first, with the little-endian `numbers` of type `ty`. `valid` is
/// the validity of the outermost lists, or of the numbers if there are no sizes.
fn nested(
    ty: &DataType,
    sizes: &[usize],
    numbers: &Buffer,
    mut valid: Option<NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    let mut array = match sizes {
        [] => {
            let data = array(ty, numbers)?.to_data().into_builder().nulls(valid.take());
            make_array(data.build()?)
        }
        _ => array(ty, numbers)?,
    };
    for (axis, &size) in sizes.iter().enumerate().rev() {
        let valid = if axis == 0 { valid.take() } else { None };
        let of = item(array.data_type().clone());
        array = Arc::new(FixedSizeListArray::try_new(of, size as i32, array, valid)?);
    }
    Ok(array)
}

/// Returns the array of the type `ty`, numbers or lists of a fixed size, with the little-endian `numbers`.
fn array(ty: &DataType, numbers: &Buffer) -> Result<ArrayRef, ArrowError> {
    if let DataType::FixedSizeList(number, size) = ty {
        let numbers = array(number.data_type(), numbers)?;
        return Ok(Arc::new(FixedSizeListArray::try_new(Arc::clone(number), *size, numbers, None)?));
    }
    let width = ty.primitive_width().unwrap_or(1);
    let data = ArrayData::builder(ty.clone()).len(numbers.len() / width);
    Ok(make_array(data.add_buffer(little_endian(numbers, width)).build()?))
}

/// Converts numbers of `width` bytes between little-endian bytes and those of this machine, without a copy if these are the
/// same.
pub(super) fn little_endian(numbers: &Buffer, width: usize) -> Buffer {
    if cfg!(target_endian = "little") {
        return numbers.clone();
    }
    numbers.chunks_exact(width).flat_map(|number| number.iter().rev().copied()).collect()
}

/// Returns the error for inconsistent columns: a bug in this module.
fn internal(e: ArrowError) -> Error {
    Error::internal("the records cannot be converted to columns").caused_by(e)
}
