//! Named arrays: what a batch is made of.
//!
//! An [`Array`] owns its numbers alone, in one block that never moves, so a binding may hand out its address without a
//! copy for as long as it keeps the array. When it is dropped, its memory goes back to the [`Pool`] it came from and
//! becomes part of a later batch: not before.

use std::fmt;
use std::sync::Arc;

use super::pool::Pool;

/// Type of the elements of an [`Array`]. Multi-byte types are in the byte order of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DType {
    /// One byte, 0 or 1.
    Bool,
    /// Unsigned, 8 bits.
    UInt8,
    /// Signed, 32 bits.
    Int32,
    /// Signed, 64 bits.
    Int64,
    /// Unsigned, 64 bits.
    UInt64,
    /// IEEE 754 binary32.
    Float32,
    /// IEEE 754 binary64.
    Float64,
}

impl DType {
    /// The name that numpy and torch use.
    pub fn name(self) -> &'static str {
        match self {
            DType::Bool => "bool",
            DType::UInt8 => "uint8",
            DType::Int32 => "int32",
            DType::Int64 => "int64",
            DType::UInt64 => "uint64",
            DType::Float32 => "float32",
            DType::Float64 => "float64",
        }
    }

    /// Bytes of one element.
    pub fn bytes(self) -> usize {
        match self {
            DType::Bool | DType::UInt8 => 1,
            DType::Int32 | DType::Float32 => 4,
            DType::Int64 | DType::UInt64 | DType::Float64 => 8,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A block of elements of one type.
#[derive(Debug)]
pub(super) enum Elements {
    Bool(Vec<bool>),
    UInt8(Vec<u8>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    UInt64(Vec<u64>),
    Float32(Vec<f32>),
    Float64(Vec<f64>),
}

/// A type that an array can hold.
pub trait Element: Copy + Default + PartialEq + fmt::Debug + Send + Sync + sealed::Sealed + 'static {
    /// Its [`DType`].
    const DTYPE: DType;
}

mod sealed {
    use super::Elements;

    /// Keeps [`Element`](super::Element) to the types of [`Elements`], and gets at them.
    pub trait Sealed: Sized {
        #[doc(hidden)]
        #[allow(private_interfaces)]
        fn wrap(block: Vec<Self>) -> Elements;
        #[doc(hidden)]
        #[allow(private_interfaces)]
        fn of(block: &Elements) -> Option<&Vec<Self>>;
        #[doc(hidden)]
        #[allow(private_interfaces)]
        fn of_mut(block: &mut Elements) -> Option<&mut Vec<Self>>;
    }
}

/// One `match` for all types of elements: `each!(block, v => v.len())`.
macro_rules! each {
    ($block:expr, $v:ident => $result:expr) => {
        match $block {
            Elements::Bool($v) => $result,
            Elements::UInt8($v) => $result,
            Elements::Int32($v) => $result,
            Elements::Int64($v) => $result,
            Elements::UInt64($v) => $result,
            Elements::Float32($v) => $result,
            Elements::Float64($v) => $result,
        }
    };
}

macro_rules! element {
    ($($ty:ty => $variant:ident),*) => {$(
        impl Element for $ty {
            const DTYPE: DType = DType::$variant;
        }

        #[allow(private_interfaces)]
        impl sealed::Sealed for $ty {
            fn wrap(block: Vec<Self>) -> Elements {
                Elements::$variant(block)
            }

            fn of(block: &Elements) -> Option<&Vec<Self>> {
                match block {
                    Elements::$variant(block) => Some(block),
                    _ => None,
                }
            }

            fn of_mut(block: &mut Elements) -> Option<&mut Vec<Self>> {
                match block {
                    Elements::$variant(block) => Some(block),
                    _ => None,
                }
            }
        }
    )*};
}

element!(bool => Bool, u8 => UInt8, i32 => Int32, i64 => Int64, u64 => UInt64, f32 => Float32, f64 => Float64);

impl Elements {
    pub(super) fn dtype(&self) -> DType {
        match self {
            Elements::Bool(_) => DType::Bool,
            Elements::UInt8(_) => DType::UInt8,
            Elements::Int32(_) => DType::Int32,
            Elements::Int64(_) => DType::Int64,
            Elements::UInt64(_) => DType::UInt64,
            Elements::Float32(_) => DType::Float32,
            Elements::Float64(_) => DType::Float64,
        }
    }

    /// Elements there is room for.
    pub(super) fn len(&self) -> usize {
        each!(self, v => v.len())
    }

    fn address(&self) -> *const u8 {
        each!(self, v => v.as_ptr().cast())
    }

    fn address_mut(&mut self) -> *mut u8 {
        each!(self, v => v.as_mut_ptr().cast())
    }
}

/// An n-dimensional array in row-major order, without gaps.
pub struct Array {
    shape: Vec<usize>,
    /// At least as long as the shape says: what is behind it is left over from before.
    block: Elements,
    len: usize,
    pool: Option<Arc<Pool>>,
}

impl Array {
    /// An array of `shape` over `block`, which has at least so many elements.
    pub(super) fn new<T: Element>(shape: Vec<usize>, block: Vec<T>, pool: Option<Arc<Pool>>) -> Self {
        let len = shape.iter().product::<usize>().min(block.len());
        Self { shape, block: T::wrap(block), len, pool }
    }

    /// The only row of an array of one row.
    pub(super) fn into_row(mut self) -> Self {
        if self.shape.first() == Some(&1) {
            self.shape.remove(0);
        }
        self
    }

    /// Type of the elements.
    pub fn dtype(&self) -> DType {
        self.block.dtype()
    }

    /// Size in each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of bytes.
    pub fn byte_len(&self) -> usize {
        self.len * self.dtype().bytes()
    }

    /// Address of the first element, aligned for its type. It stays the same, and [`Array::byte_len`] bytes from there
    /// on are nobody else's, until the array is dropped.
    pub fn as_ptr(&self) -> *const u8 {
        self.block.address()
    }

    /// As [`Array::as_ptr`], for who wants to write.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.block.address_mut()
    }

    /// The elements; `None` when they are of another type.
    pub fn as_slice<T: Element>(&self) -> Option<&[T]> {
        T::of(&self.block)?.get(..self.len)
    }

    /// The elements, to be changed; `None` when they are of another type.
    pub fn as_mut_slice<T: Element>(&mut self) -> Option<&mut [T]> {
        T::of_mut(&mut self.block)?.get_mut(..self.len)
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.take() {
            pool.put(std::mem::replace(&mut self.block, Elements::UInt8(Vec::new())));
        }
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype(), self.shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_shows_its_shape_and_no_more() {
        let mut array = Array::new(vec![2, 3], vec![1i32, 2, 3, 4, 5, 6, 99], None);
        assert_eq!(array.as_slice::<i32>(), Some(&[1, 2, 3, 4, 5, 6][..]));
        assert_eq!(array.as_slice::<i64>(), None);
        assert_eq!((array.len(), array.byte_len(), array.dtype().name()), (6, 24, "int32"));
        assert_eq!(array.as_ptr(), array.as_mut_ptr().cast_const());
        assert_eq!(array.as_ptr().align_offset(4), 0);
        array.as_mut_slice::<i32>().unwrap()[0] = 7;
        assert_eq!(array.as_slice::<i32>().unwrap()[0], 7);
        assert_eq!(format!("{array:?}"), "int32[2, 3]");
    }
}
