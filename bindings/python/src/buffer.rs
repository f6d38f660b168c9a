//! Memory of Rust, lent to Python: the one place with `unsafe`.
//!
//! A [`Buffer`] speaks Python's buffer protocol, so `numpy.asarray` makes an array of it without a copy. The array keeps
//! the `Buffer` alive, and the `Buffer` keeps what it owns: a mapped shard, or an array of a batch, whose memory goes
//! back to the pool of the loader only then.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use bytes::Bytes;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// Type of the items of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Item {
    U8,
    U16,
    U32,
    U64,
}

impl Item {
    /// The character of the `struct` module, little-endian as the bytes are in the files.
    fn format(self) -> &'static CStr {
        match self {
            Item::U8 => c"B",
            Item::U16 => c"<H",
            Item::U32 => c"<I",
            Item::U64 => c"<Q",
        }
    }

    fn bytes(self) -> usize {
        match self {
            Item::U8 => 1,
            Item::U16 => 2,
            Item::U32 => 4,
            Item::U64 => 8,
        }
    }
}

/// What keeps the memory of a buffer: read-only bytes, shared with whoever else has a view of them.
#[derive(Debug)]
struct Memory(Bytes);

/// Items in memory that Rust owns, in rows (C order). `numpy.asarray(buffer)` views them.
#[pyclass(frozen, module = "dsconvert._native")]
#[derive(Debug)]
pub(crate) struct Buffer {
    memory: Memory,
    item: Item,
    shape: Box<[isize]>,
    strides: Box<[isize]>,
}

impl Buffer {
    /// A view of `bytes` as a row of items; what is behind the last whole item is not part of it.
    pub(crate) fn read_only(bytes: Bytes, item: Item) -> Self {
        let size = item.bytes();
        // Memory is never larger than `isize`.
        let shape = Box::new([(bytes.len() / size) as isize]);
        Self { memory: Memory(bytes), item, shape, strides: Box::new([size as isize]) }
    }
}

#[pymethods]
impl Buffer {
    /// Number of bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.memory.0.len()
    }

    // SAFETY: Python calls it with a `view` that is valid for writing.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let this = slf.get();
        if view.is_null() {
            return Err(PyBufferError::new_err("there is no view to fill"));
        }
        if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
            return Err(PyBufferError::new_err("the records of a dataset cannot be written"));
        }
        let asked = |flag: c_int| flags & flag == flag;
        let filled = ffi::Py_buffer {
            buf: this.memory.0.as_ptr().cast_mut().cast::<c_void>(),
            obj: ptr::null_mut(),
            len: this.shape.iter().product::<isize>() * this.item.bytes() as isize,
            itemsize: this.item.bytes() as isize,
            readonly: 1,
            ndim: this.shape.len() as c_int,
            format: if asked(ffi::PyBUF_FORMAT) { this.item.format().as_ptr().cast_mut() } else { ptr::null_mut() },
            shape: if asked(ffi::PyBUF_ND) { this.shape.as_ptr().cast_mut() } else { ptr::null_mut() },
            strides: if asked(ffi::PyBUF_STRIDES) { this.strides.as_ptr().cast_mut() } else { ptr::null_mut() },
            suboffsets: ptr::null_mut(),
            internal: ptr::null_mut(),
        };
        // SAFETY: `view` is valid, see above. All pointers are into `this`, which is never changed (the class is frozen)
        // and lives as long as the view, which owns a reference to it. Nothing is written through them: the view is
        // read-only, and shape and strides are constant by protocol.
        unsafe {
            *view = filled;
            (*view).obj = slf.into_any().into_ptr();
        }
        Ok(())
    }
}

/// The numpy array that views `buffer`.
pub(crate) fn to_numpy(py: Python<'_>, buffer: Buffer) -> PyResult<Bound<'_, PyAny>> {
    static ASARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    ASARRAY.import(py, "numpy", "asarray")?.call1((buffer,))
}
