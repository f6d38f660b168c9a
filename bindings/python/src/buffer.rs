//! Rust memory lent to Python: the only module with `unsafe` code.
//!
//! A [`Buffer`] implements Python's buffer protocol, so `numpy.asarray` makes an array of it without a copy, and torch
//! makes a tensor of that array. The array keeps the `Buffer` alive, and the `Buffer` keeps its owner alive: a mapped
//! shard, or an array of a batch. The memory of a batch returns to the loader's pool when its `Buffer` is dropped.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_long, c_void};
use std::ptr;

use bytes::Bytes;
use dsconvert::reader::loader::Array;
use dsconvert::sample::Numbers;
use dsconvert::schema::DType;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// Whether this machine is little-endian, as the files are.
const LITTLE_ENDIAN: bool = cfg!(target_endian = "little");

/// Format characters of integers of 64 bits. `q` and `Q` (C `long long`) give dtypes that equal `int64` and `uint64`, but
/// are other types, and torch refuses the unsigned one.
const SIGNED_64: &CStr = if size_of::<c_long>() == 8 { c"l" } else { c"q" };
const UNSIGNED_64: &CStr = if size_of::<c_long>() == 8 { c"L" } else { c"Q" };

/// Type of the elements of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ItemType {
    /// Format character, as in Python's module `struct`.
    format: &'static CStr,
    bytes: usize,
}

impl ItemType {
    /// Type of numbers in a shard, which are little-endian. Where that is the native order, native format characters give
    /// native dtypes.
    fn stored(dtype: DType) -> Self {
        if LITTLE_ENDIAN {
            return Self::of(dtype);
        }
        let format = match dtype {
            DType::Bool => c"?",
            DType::UInt8 => c"B",
            DType::Int8 => c"b",
            DType::UInt16 | DType::BFloat16 => c"<H",
            DType::Int16 => c"<h",
            DType::Float16 => c"<e",
            DType::UInt32 => c"<I",
            DType::Int32 => c"<i",
            DType::UInt64 => c"<Q",
            DType::Int64 => c"<q",
            DType::Float32 => c"<f",
            DType::Float64 => c"<d",
        };
        Self { format, bytes: dtype.bytes() }
    }

    /// Type of numbers in the memory of this machine.
    fn of(dtype: DType) -> Self {
        let format = match dtype {
            DType::Bool => c"?",
            DType::UInt8 => c"B",
            DType::Int8 => c"b",
            // numpy has no bfloat16.
            DType::UInt16 | DType::BFloat16 => c"H",
            DType::Int16 => c"h",
            DType::Float16 => c"e",
            DType::UInt32 => c"I",
            DType::Int32 => c"i",
            DType::Int64 => SIGNED_64,
            DType::UInt64 => UNSIGNED_64,
            DType::Float32 => c"f",
            DType::Float64 => c"d",
        };
        Self { format, bytes: dtype.bytes() }
    }
}

/// Owner of the memory of a buffer.
#[derive(Debug)]
enum Owner {
    /// Bytes of a shard, which other buffers may view, too.
    #[expect(dead_code, reason = "it is kept for the memory it owns")]
    Shared(Bytes),
    /// An array of a batch. Nothing else refers to its memory.
    #[expect(dead_code, reason = "it is kept for the memory it owns")]
    Sole(Array),
}

/// An array in C order whose memory Rust owns. `numpy.asarray(buffer)` views it.
#[pyclass(frozen, module = "dsconvert._native")]
#[derive(Debug)]
pub(crate) struct Buffer {
    /// Pointer to the first item. Valid as long as `owner`, which is never accessed. Writable for `Sole`.
    start: *mut u8,
    owner: Owner,
    dtype: DType,
    item: ItemType,
    shape: Box<[isize]>,
    strides: Box<[isize]>,
}

// SAFETY: `start` points into memory of `owner`, and both kinds of owner are `Send` and `Sync`. Rust neither reads nor
// writes through it; Python does, by its own rules for buffers.
unsafe impl Send for Buffer {}
// SAFETY: as above; a `Buffer` does not change after its creation.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Creates a read-only view of numbers in a shard, without a copy if they are aligned. In msgpack and protobuf, values
    /// start at any byte offset. Unaligned numbers are copied, because programs that access an array by its address may rely
    /// on alignment.
    pub(crate) fn shared(numbers: Numbers<&Bytes>) -> Self {
        let Numbers { dtype, mut shape, bytes } = numbers;
        let item = ItemType::stored(dtype);
        let bytes = match bytes.as_ptr().addr().is_multiple_of(item.bytes) {
            true => bytes.clone(),
            false => Bytes::copy_from_slice(bytes),
        };
        // Python reads as much memory as the shape describes, so it must never exceed the bytes.
        let size = shape.iter().try_fold(item.bytes, |size, &side| size.checked_mul(side));
        if size.is_none_or(|size| size > bytes.len()) {
            shape.fill(0);
        }
        Self::new(bytes.as_ptr().cast_mut(), Owner::Shared(bytes), dtype, item, &shape)
    }

    /// Creates a writable buffer that owns `array`. Moving the array does not move its memory.
    pub(crate) fn sole(mut array: Array) -> Self {
        let (dtype, shape) = (array.dtype(), array.shape().to_vec());
        Self::new(array.as_mut_ptr(), Owner::Sole(array), dtype, ItemType::of(dtype), &shape)
    }

    fn new(start: *mut u8, owner: Owner, dtype: DType, item: ItemType, shape: &[usize]) -> Self {
        // No allocation is larger than `isize::MAX` bytes.
        let shape: Box<[isize]> = shape.iter().map(|&n| n as isize).collect();
        let mut strides = shape.clone();
        let mut stride = item.bytes as isize;
        for (to, size) in strides.iter_mut().zip(&shape).rev() {
            *to = stride;
            stride *= *size;
        }
        Self { start, owner, dtype, item, shape, strides }
    }

    fn is_writable(&self) -> bool {
        matches!(self.owner, Owner::Sole(_))
    }
}

#[pymethods]
impl Buffer {
    // SAFETY: Python calls it with a `view` that is valid for writing.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let this = slf.get();
        let requested = |flag: c_int| flags & flag == flag;
        if view.is_null() {
            return Err(PyBufferError::new_err("the view is null"));
        }
        if requested(ffi::PyBUF_WRITABLE) && !this.is_writable() {
            return Err(PyBufferError::new_err("the records of a dataset are read-only"));
        }
        if requested(ffi::PyBUF_F_CONTIGUOUS) && this.shape.len() > 1 {
            return Err(PyBufferError::new_err("the items are in C order, not Fortran order"));
        }
        let if_requested = |flag: c_int, pointer: *const isize| {
            if requested(flag) { pointer.cast_mut() } else { ptr::null_mut() }
        };
        let format = if requested(ffi::PyBUF_FORMAT) { this.item.format.as_ptr() } else { ptr::null() };
        let filled = ffi::Py_buffer {
            buf: this.start.cast::<c_void>(),
            obj: slf.clone().into_any().into_ptr(),
            len: this.shape.iter().product::<isize>() * this.item.bytes as isize,
            itemsize: this.item.bytes as isize,
            readonly: c_int::from(!this.is_writable()),
            ndim: this.shape.len() as c_int,
            format: format.cast_mut(),
            shape: if_requested(ffi::PyBUF_ND, this.shape.as_ptr()),
            strides: if_requested(ffi::PyBUF_STRIDES, this.strides.as_ptr()),
            suboffsets: ptr::null_mut(),
            internal: ptr::null_mut(),
        };
        // SAFETY: `view` is valid, see above. All pointers in it point into `this`, which never changes (the class is
        // frozen) and lives as long as the view, which owns a reference to it. Python does not write through `format`,
        // `shape` and `strides`. It writes through `buf` only if the buffer is not read-only: that memory has no other
        // owner then.
        unsafe { view.write(filled) };
        Ok(())
    }
}

/// Returns a numpy array that views `buffer`.
pub(crate) fn to_numpy(py: Python<'_>, buffer: Buffer) -> PyResult<Bound<'_, PyAny>> {
    static ASARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    ASARRAY.import(py, "numpy", "asarray")?.call1((buffer,))
}

/// Returns a torch tensor that views `buffer`, which must be writable: torch has no read-only tensors.
pub(crate) fn to_torch(py: Python<'_>, buffer: Buffer) -> PyResult<Bound<'_, PyAny>> {
    static FROM_NUMPY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static BFLOAT16: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let dtype = buffer.dtype;
    let tensor = FROM_NUMPY.import(py, "torch", "from_numpy")?.call1((to_numpy(py, buffer)?,))?;
    match dtype {
        DType::BFloat16 => tensor.call_method1("view", (BFLOAT16.import(py, "torch", "bfloat16")?,)),
        _ => Ok(tensor),
    }
}
