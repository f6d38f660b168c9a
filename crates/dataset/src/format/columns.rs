//! Conversion of records to Arrow columns, shared by the Arrow and Parquet writers.
//!
//! The Parquet writer excludes the columns that it encodes itself.

use std::sync::Arc;

use arrow_array::builder::{
    BinaryBuilder, BooleanBuilder, Float32Builder, Float64Builder, Int32Builder, Int64Builder, StringBuilder,
    UInt32Builder, UInt64Builder,
};
use arrow_array::types::{
    ArrowPrimitiveType, Float32Type, Int8Type, Int32Type, Int64Type, UInt16Type, UInt32Type,
};
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, ListArray, PrimitiveArray, RecordBatch, RecordBatchOptions,
    StringArray, StructArray,
};
use arrow_buffer::{NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, SchemaRef};

use super::arrow_schema::{BOX_NUMBERS, box_type, image_fields, item, to_arrow};
use crate::error::{Error, Result};
use crate::sample::{Record, Value};
use crate::schema::{Field, FieldType, Schema};

/// Buffered rows, column by column.
///
/// The caller limits their size: offsets are 32-bit, so it must call [`ColumnBuilders::take`] before 2 GiB are
/// buffered.
pub(super) struct ColumnBuilders {
    arrow: SchemaRef,
    /// Columns with the index of their field in the schema.
    columns: Vec<(usize, ColumnBuilder)>,
    rows: usize,
    bytes: u64,
}

impl ColumnBuilders {
    /// Creates empty builders for all columns.
    #[cfg(any(feature = "arrow", test))]
    pub(super) fn new(schema: &Schema) -> Result<Self> {
        Self::for_fields(schema, |_| true)
    }

    /// Creates empty builders for the fields selected by `include`.
    pub(super) fn for_fields(schema: &Schema, include: impl Fn(&Field) -> bool) -> Result<Self> {
        let fields = schema.fields.iter().enumerate().filter(|(_, field)| include(field));
        let columns: Vec<_> = fields.map(|(index, field)| (index, ColumnBuilder::new(field))).collect();
        let indices: Vec<usize> = columns.iter().map(|(index, _)| *index).collect();
        let arrow = to_arrow(schema)?.project(&indices).map_err(internal)?;
        Ok(Self { arrow: Arc::new(arrow), columns, rows: 0, bytes: 0 })
    }

    /// Returns the schema of the batches.
    #[cfg(any(feature = "arrow", test))]
    pub(super) fn arrow(&self) -> &SchemaRef {
        &self.arrow
    }

    /// Returns the number of buffered rows.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the canonical size of the buffered rows in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
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
    Ids16(ListBuilder<UInt16Type>),
    Ids32(ListBuilder<UInt32Type>),
    Flags(ListBuilder<Int8Type>),
    Boxes(ListBuilder<Float32Type>),
    BoxNumbers(ListBuilder<Int64Type>),
    Pair(ListBuilder<Int32Type>),
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
            FieldType::IdsU16 => ColumnBuilder::Ids16(ListBuilder::new()),
            FieldType::IdsU32 => ColumnBuilder::Ids32(ListBuilder::new()),
            FieldType::Flags => ColumnBuilder::Flags(ListBuilder::new()),
            FieldType::Boxes => ColumnBuilder::Boxes(ListBuilder::new()),
            FieldType::BoxLabels | FieldType::BoxInts => ColumnBuilder::BoxNumbers(ListBuilder::new()),
            FieldType::Int32Pair => ColumnBuilder::Pair(ListBuilder::new()),
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
            (ColumnBuilder::Ids16(l), Value::Ids(ids)) => {
                l.values.extend(ids.as_bytes().as_chunks().0.iter().map(|c| u16::from_le_bytes(*c)));
                l.end_row(true);
            }
            (ColumnBuilder::Ids16(l), Value::Null) => l.end_row(false),
            (ColumnBuilder::Ids32(l), Value::Ids(ids)) => {
                l.values.extend(ids.as_bytes().as_chunks().0.iter().map(|c| u32::from_le_bytes(*c)));
                l.end_row(true);
            }
            (ColumnBuilder::Ids32(l), Value::Null) => l.end_row(false),
            (ColumnBuilder::Flags(l), Value::Bytes(flags)) => {
                l.values.extend(flags.iter().map(|flag| flag.cast_signed()));
                l.end_row(true);
            }
            (ColumnBuilder::Boxes(l), Value::Bytes(boxes)) => {
                l.values.extend(boxes.as_chunks().0.iter().map(|c| f32::from_le_bytes(*c)));
                l.end_row(true);
            }
            (ColumnBuilder::Boxes(l), Value::Null) => l.end_row(false),
            (ColumnBuilder::BoxNumbers(l), Value::Bytes(numbers)) => {
                l.values.extend(numbers.as_chunks().0.iter().map(|c| i64::from_le_bytes(*c)));
                l.end_row(true);
            }
            (ColumnBuilder::BoxNumbers(l), Value::Null) => l.end_row(false),
            (ColumnBuilder::Pair(l), Value::Bytes(pair)) => {
                l.values.extend(pair.as_chunks().0.iter().map(|c| i32::from_le_bytes(*c)));
                l.end_row(true);
            }
            (ColumnBuilder::Pair(l), Value::Null) => l.end_row(false),
            _ => return Err(Error::internal("a value does not fit its column")),
        }
        Ok(())
    }

    fn take(&mut self) -> Result<ArrayRef> {
        Ok(match self {
            ColumnBuilder::Text(b) => Arc::new(b.finish()),
            ColumnBuilder::Bytes(b) => Arc::new(b.finish()),
            ColumnBuilder::Image(b) => {
                let bytes = b.finish();
                let path = StringArray::new_null(bytes.len());
                let nulls = bytes.nulls().cloned();
                let children: Vec<ArrayRef> = vec![Arc::new(bytes), Arc::new(path)];
                Arc::new(StructArray::try_new(image_fields(), children, nulls).map_err(internal)?)
            }
            ColumnBuilder::Bool(b) => Arc::new(b.finish()),
            ColumnBuilder::Int32(b) => Arc::new(b.finish()),
            ColumnBuilder::Int64(b) => Arc::new(b.finish()),
            ColumnBuilder::UInt32(b) => Arc::new(b.finish()),
            ColumnBuilder::UInt64(b) => Arc::new(b.finish()),
            ColumnBuilder::Float32(b) => Arc::new(b.finish()),
            ColumnBuilder::Float64(b) => Arc::new(b.finish()),
            ColumnBuilder::Ids16(l) => l.finish()?,
            ColumnBuilder::Ids32(l) => l.finish()?,
            ColumnBuilder::Flags(l) => l.finish()?,
            ColumnBuilder::Boxes(l) => l.finish_boxes()?,
            ColumnBuilder::BoxNumbers(l) => l.finish()?,
            ColumnBuilder::Pair(l) => l.finish()?,
        })
    }
}

/// Builder of a list column. Unlike the arrow-rs builder, it appends whole lists instead of single items.
struct ListBuilder<T: ArrowPrimitiveType> {
    values: Vec<T::Native>,
    offsets: Vec<i32>,
    valid: NullBufferBuilder,
}

impl<T: ArrowPrimitiveType> ListBuilder<T> {
    fn new() -> Self {
        Self { values: Vec::new(), offsets: vec![0], valid: NullBufferBuilder::new(0) }
    }

    fn end_row(&mut self, valid: bool) {
        self.valid.append(valid);
        // The caller limits the buffered bytes, so the number of values fits.
        self.offsets.push(self.values.len() as i32);
    }

    fn finish(&mut self) -> Result<ArrayRef> {
        let values = self.take_values();
        self.finish_with(T::DATA_TYPE, Arc::new(values))
    }

    fn take_values(&mut self) -> PrimitiveArray<T> {
        PrimitiveArray::new(ScalarBuffer::from(std::mem::take(&mut self.values)), None)
    }

    /// Returns the lists of `items`, which have this type.
    fn finish_with(&mut self, ty: DataType, items: ArrayRef) -> Result<ArrayRef> {
        let offsets = std::mem::replace(&mut self.offsets, vec![0]);
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        let list = ListArray::try_new(item(ty), offsets, items, self.valid.finish());
        Ok(Arc::new(list.map_err(internal)?))
    }
}

impl ListBuilder<Float32Type> {
    /// Returns lists whose items are boxes.
    fn finish_boxes(&mut self) -> Result<ArrayRef> {
        let numbers = self.take_values();
        self.offsets.iter_mut().for_each(|offset| *offset /= BOX_NUMBERS);
        let number = item(DataType::Float32);
        let boxes = FixedSizeListArray::try_new(number, BOX_NUMBERS, Arc::new(numbers), None);
        self.finish_with(box_type(), Arc::new(boxes.map_err(internal)?))
    }
}

/// Returns the error for inconsistent columns: a bug in this module.
fn internal(e: arrow_schema::ArrowError) -> Error {
    Error::internal("the records cannot be converted to columns").caused_by(e)
}
